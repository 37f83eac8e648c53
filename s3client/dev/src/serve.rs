//! Connections and the faults that strike requests on their way to s3s and back.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, DATE, ETAG};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use s3s::auth::{S3Auth, SecretKey};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::host::{S3Host, VirtualHost};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, S3Result, s3_error};
use tokio::net::{TcpListener, TcpStream};

use crate::Settings;
use crate::backend::Backend;
use crate::clock;
use crate::faults::{Answer, ETagRewrite, Fault, Faults, Seen};
use crate::store::Store;

/// What S3 allows between its clock and the client's.
const SKEW_MS_MAX: i64 = 900_000;

/// `bucket.localhost` is a bucket; every other host is addressed by path.
struct Hosts;

impl S3Host for Hosts {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        Ok(match name.strip_suffix(".localhost") {
            Some(bucket) => VirtualHost::new("localhost").with_bucket(bucket),
            None => VirtualHost::new(host),
        })
    }
}

/// The one pair of keys that there is.
struct OneKey {
    id: String,
    secret: SecretKey,
}

#[async_trait::async_trait]
impl S3Auth for OneKey {
    async fn get_secret_key(&self, id: &str) -> S3Result<SecretKey> {
        match id == self.id {
            true => Ok(self.secret.clone()),
            false => Err(s3_error!(InvalidAccessKeyId, "there is no access key id {id:?}")),
        }
    }
}

/// The way of a request.
#[derive(Clone)]
pub(crate) struct Service {
    s3: S3Service,
    faults: Faults,
}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
#[error("cut on command, or an inner failure: {0}")]
pub(crate) struct Cut(String);

impl Service {
    pub(crate) fn new(store: Arc<Store>, faults: Faults, settings: &Settings) -> Self {
        let mut builder = S3ServiceBuilder::new(Backend { store, faults: faults.clone() });
        let (id, secret) = (&settings.access_key_id, &settings.secret_access_key);
        builder.set_auth(OneKey { id: id.clone(), secret: SecretKey::from(secret.clone()) });
        builder.set_host(Hosts);
        let mut config = S3Config::default();
        // The clock is judged here, because it can be shifted here.
        config.presigned_url_max_skew_time_secs = u32::MAX;
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        Self { s3: builder.build(), faults }
    }

    async fn call(self, request: Request<Incoming>) -> Result<Response<Body>, Cut> {
        let fault = self.faults.strike(seen(&request));
        let shift_ms = self.faults.clock_shift_ms();
        let outcome = match (self.refuse(&request, shift_ms), fault) {
            (Some(answer), None) => Ok(response(&answer)),
            (None, None) => self.apply(request.map(Body::from)).await,
            (_, Some(fault)) => self.strike(request, fault).await,
        };
        let mut response = outcome?;
        let date = clock::http_date(clock::wall_ms().saturating_add(shift_ms));
        if let Ok(date) = HeaderValue::from_str(&date) {
            response.headers_mut().insert(DATE, date);
        }
        Ok(response)
    }

    /// Judges time and region, which s3s does not do as this server has to.
    fn refuse(&self, request: &Request<Incoming>, shift_ms: i64) -> Option<Answer> {
        let text = |name: &str| request.headers().get(name)?.to_str().ok();
        let now_ms = clock::wall_ms().saturating_add(shift_ms);
        let signed_ms = text("x-amz-date").and_then(clock::parse_amz);
        let skew_ms = signed_ms.map_or(0, |signed_ms| signed_ms.saturating_sub(now_ms));
        if skew_ms.saturating_abs() > SKEW_MS_MAX {
            return Some(Answer::error(403, "RequestTimeTooSkewed"));
        }
        let region = self.faults.region()?;
        let signed = text(AUTHORIZATION.as_str())?.split('/').nth(2)?;
        (signed != region).then(|| {
            Answer::error(400, "AuthorizationHeaderMalformed").header("x-amz-bucket-region", region)
        })
    }

    async fn apply(&self, request: Request<Body>) -> Result<Response<Body>, Cut> {
        self.s3.call(request).await.map_err(|error| Cut(format!("{error:?}")))
    }

    async fn strike(
        &self,
        request: Request<Incoming>,
        fault: Fault,
    ) -> Result<Response<Body>, Cut> {
        // The whole request first: a fault strikes what has arrived.
        let (parts, mut body) = request.into_parts();
        let body = collect(&mut body).await.map_err(|error| Cut(error.to_string()))?;
        let request = Request::from_parts(parts, Body::from(body));
        let cut = || Err(Cut("on command".to_owned()));
        match fault {
            Fault::Delay(length) => {
                tokio::time::sleep(length).await;
                self.apply(request).await
            }
            Fault::DelayReply(length) => {
                let response = self.apply(request).await;
                tokio::time::sleep(length).await;
                response
            }
            Fault::DropReply => {
                self.apply(request).await?;
                cut()
            }
            Fault::DropRequest => cut(),
            Fault::ApplyLate(length) => {
                let service = self.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(length).await;
                    service.apply(request).await
                });
                cut()
            }
            Fault::Answer(answer) => Ok(response(&answer)),
            Fault::ApplyAndAnswer(answer) => {
                self.apply(request).await?;
                Ok(response(&answer))
            }
            Fault::CutBody => cut_body(self.apply(request).await?).await,
            Fault::RewriteETag(rewrite) => Ok(rewrite_etag(self.apply(request).await?, rewrite)),
        }
    }
}

fn seen(request: &Request<Incoming>) -> Seen {
    let target = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = request.headers().iter().map(|(name, value)| (name.to_string(), text(value)));
    Seen { method: request.method().to_string(), target, headers: headers.collect() }
}

fn response(answer: &Answer) -> Response<Body> {
    let body = match (answer.body, answer.code) {
        (Some(body), _) => body.to_owned(),
        (None, "") => String::new(),
        (None, code) => format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code>\
             <Message>made up on command</Message><RequestId>0</RequestId></Error>"
        ),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    for (name, value) in &answer.headers {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(*name, value);
        }
    }
    response
}

fn rewrite_etag(mut response: Response<Body>, rewrite: ETagRewrite) -> Response<Body> {
    let Some(etag) = response.headers_mut().remove(ETAG) else { return response };
    let text = String::from_utf8_lossy(etag.as_bytes()).into_owned();
    let text = match rewrite {
        ETagRewrite::Weak => format!("W/{text}"),
        ETagRewrite::Unquoted => text.trim_matches('"').to_owned(),
        ETagRewrite::Missing => return response,
    };
    if let Ok(value) = HeaderValue::from_str(&text) {
        response.headers_mut().insert(ETAG, value);
    }
    response
}

async fn collect<B>(body: &mut B) -> Result<Bytes, B::Error>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let mut bytes = BytesMut::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes.freeze())
}

/// Sends the half of a body that was announced as a whole, then breaks the connection.
async fn cut_body(response: Response<Body>) -> Result<Response<Body>, Cut> {
    let (mut parts, mut body) = response.into_parts();
    let body = collect(&mut body).await.map_err(|error| Cut(error.to_string()))?;
    if body.is_empty() {
        return Err(Cut("on command".to_owned()));
    }
    parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    let half = Half { rest: Some(body.slice(..body.len() / 2)), size: body.len() as u64 };
    Ok(Response::from_parts(parts, Body::http_body(half)))
}

struct Half {
    rest: Option<Bytes>,
    size: u64,
}

impl HttpBody for Half {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(Some(match self.rest.take() {
            Some(half) => Ok(Frame::data(half)),
            None => Err(io::Error::from(io::ErrorKind::ConnectionAborted)),
        }))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.size)
    }
}

/// Accepts until the end of the runtime; an outage closes the port for its time.
pub(crate) async fn run(listener: std::net::TcpListener, address: SocketAddr, service: Service) {
    let mut outage = service.faults.watch_outage();
    let mut listener = TcpListener::from_std(listener).ok();
    loop {
        let out = *outage.borrow_and_update();
        match (&listener, out) {
            (_, true) => {
                listener = None;
                service.faults.cut_connections();
                if outage.changed().await.is_err() {
                    return;
                }
            }
            (None, false) => match TcpListener::bind(address).await {
                Ok(again) => listener = Some(again),
                Err(error) => {
                    tracing::warn!(%address, %error, "cannot listen again");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
            (Some(open), false) => tokio::select! {
                changed = outage.changed() => if changed.is_err() { return },
                accepted = open.accept() => match accepted {
                    Ok((socket, _)) => drop(tokio::spawn(connection(socket, service.clone()))),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
            },
        }
    }
}

async fn connection(socket: TcpStream, service: Service) {
    let mut cuts = service.faults.watch_cuts();
    let _ = socket.set_nodelay(true);
    let answer = hyper::service::service_fn(move |request| {
        let service = service.clone();
        // A task of its own: a request that has arrived is applied even if its client has left.
        let task = tokio::spawn(service.call(request));
        async move { task.await.unwrap_or_else(|error| Err(Cut(error.to_string()))) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    let connection =
        builder.timer(TokioTimer::new()).serve_connection(TokioIo::new(socket), answer);
    tokio::select! {
        outcome = connection => if let Err(error) = outcome {
            tracing::debug!(%error, "a connection ended");
        },
        _ = cuts.changed() => {}
    }
}
