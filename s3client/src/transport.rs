//! One signed request over HTTP, once: no retry, no redirect, no proxy.
//!
//! Promise: the outcome says whether the request can have reached the server. The one thing that
//! happens underneath is that the HTTP library takes another connection if a kept one was closed
//! before the first byte of the request was written to it; nothing was sent then.

use std::error::Error as _;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};

use crate::answer::Answer;
use crate::limits::{
    CONNECT_MS, ERROR_BYTES_MAX, IDLE_CONNECTION_MS, IDLE_CONNECTIONS_MAX,
    TRANSFER_BYTES_PER_SEC_MIN,
};

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Connecting, TLS included.
    pub connect: Duration,
    /// One attempt of a small request, connecting included; large ones get the time that
    /// [`TRANSFER_BYTES_PER_SEC_MIN`] needs on top.
    pub attempt: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_millis(CONNECT_MS),
            attempt: Duration::from_millis(crate::limits::ATTEMPT_MS),
        }
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The request did not leave: no connection, or no request.
    NotSent(String),
    /// It left, or may have; there is no whole answer.
    NoAnswer(String),
}

/// Connections to servers. Clones share them.
#[derive(Clone, Debug)]
pub struct Transport {
    http: reqwest::Client,
    timeouts: Timeouts,
}

/// Why no transport could be made.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The file with certificates.
    #[error("s3.ca_file: {reason}")]
    CaFile {
        /// What is wrong with it.
        reason: String,
    },
    /// The HTTP library.
    #[error("the HTTP client cannot be set up: {reason}")]
    Setup {
        /// Its words.
        reason: String,
    },
}

/// Whom to trust.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// The system's certificate authorities.
    #[default]
    System,
    /// These besides, as PEM.
    Also(Vec<u8>),
    /// Nobody: only plain HTTP is spoken, so no certificates are read.
    Nobody,
}

impl Transport {
    /// A transport without connections. With `connect_to`, connections to that host go to that
    /// address, whatever its name resolves to.
    pub fn new(
        timeouts: Timeouts,
        trust: &Trust,
        connect_to: Option<(&str, SocketAddr)>,
    ) -> Result<Self, TransportError> {
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("duolog/", env!("CARGO_PKG_VERSION")))
            .http1_only()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .tcp_nodelay(true)
            .connect_timeout(timeouts.connect)
            .pool_idle_timeout(Duration::from_millis(IDLE_CONNECTION_MS))
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .tls_built_in_root_certs(*trust != Trust::Nobody);
        if let Some((host, address)) = connect_to {
            builder = builder.resolve(host, address);
        }
        if let Trust::Also(pem) = trust {
            let unusable = |reason: String| TransportError::CaFile { reason };
            let certificates = reqwest::Certificate::from_pem_bundle(pem)
                .map_err(|error| unusable(chain(&error)))?;
            if certificates.is_empty() {
                return Err(unusable("there is no PEM certificate in it".to_owned()));
            }
            for certificate in certificates {
                builder = builder.add_root_certificate(certificate);
            }
        }
        let http = builder.build();
        let http = http.map_err(|error| TransportError::Setup { reason: chain(&error) })?;
        Ok(Self { http, timeouts })
    }

    /// Time for an attempt that moves so many bytes.
    fn attempt_time(&self, bytes: u64) -> Duration {
        self.timeouts.attempt + Duration::from_secs(bytes / TRANSFER_BYTES_PER_SEC_MIN)
    }

    /// Sends `request` once and reads the answer, of which at most `answer_bytes_max` of a
    /// success.
    pub async fn send(
        &self,
        request: http::Request<Bytes>,
        answer_bytes_max: u64,
    ) -> Result<Answer, Failure> {
        let size_bytes = request.body().len() as u64;
        self.send_body(request.map(reqwest::Body::from), size_bytes, answer_bytes_max).await
    }

    /// The same with a body that comes bit by bit; its `size_bytes` are known.
    pub async fn send_body(
        &self,
        request: http::Request<reqwest::Body>,
        size_bytes: u64,
        answer_bytes_max: u64,
    ) -> Result<Answer, Failure> {
        let head = request.method() == http::Method::HEAD;
        let signed_uri = request.uri().to_string();
        let mut request = reqwest::Request::try_from(request).map_err(not_sent)?;
        // What was signed is what goes out: the URL library must not have tidied it up.
        if request.url().as_str() != signed_uri {
            let reason = format!("{signed_uri} would be sent as {}", request.url());
            return Err(Failure::NotSent(reason));
        }
        *request.timeout_mut() = Some(self.attempt_time(size_bytes));
        let answer = self.http.execute(request).await.map_err(failure)?;
        let limit = if answer.status().is_success() { answer_bytes_max } else { ERROR_BYTES_MAX };
        read(answer, head, limit).await
    }
}

/// Reads an answer to its end and checks that it is whole.
async fn read(mut answer: reqwest::Response, head: bool, limit: u64) -> Result<Answer, Failure> {
    let (status, headers) = (answer.status(), answer.headers().clone());
    let bodiless = head || status.is_informational() || matches!(status.as_u16(), 204 | 304);
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let framed = length.is_some() || headers.contains_key(TRANSFER_ENCODING);
    let mut body = BytesMut::new();
    // Headers alone decide nothing: a body that is too long is an answer that was not understood.
    if !bodiless && length.is_some_and(|length: u64| length > limit) {
        return Err(Failure::NoAnswer(too_long(limit)));
    }
    while let Some(chunk) = answer.chunk().await.map_err(failure)? {
        if body.len() as u64 + chunk.len() as u64 > limit {
            return Err(Failure::NoAnswer(too_long(limit)));
        }
        body.extend_from_slice(&chunk);
    }
    if !bodiless && !framed && !body.is_empty() {
        let reason = "the answer has neither Content-Length nor chunks: it may have been cut";
        return Err(Failure::NoAnswer(reason.to_owned()));
    }
    if !bodiless && length.is_some_and(|length| length != body.len() as u64) {
        let length = length.unwrap_or_default();
        return Err(Failure::NoAnswer(format!(
            "the answer has {} bytes and not the {length} it announced",
            body.len()
        )));
    }
    Ok(Answer { status, headers, body: body.freeze() })
}

fn too_long(limit: u64) -> String {
    format!("the answer is longer than {limit} bytes")
}

fn not_sent(error: reqwest::Error) -> Failure {
    Failure::NotSent(chain(&error))
}

fn failure(error: reqwest::Error) -> Failure {
    // A time-out counts as "connecting" only while the connection was not there.
    if error.is_connect() || error.is_builder() { not_sent(error) } else { no_answer(&error) }
}

fn no_answer(error: &reqwest::Error) -> Failure {
    Failure::NoAnswer(match error.is_timeout() {
        true => "time-out".to_owned(),
        false => chain(error),
    })
}

/// An error with its causes; the library's own texts leave them out.
pub(crate) fn chain(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let words = inner.to_string();
        if !text.contains(&words) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&words);
        }
        cause = inner.source();
    }
    if text.is_empty() { error.to_string() } else { text }
}
