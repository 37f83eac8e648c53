//! The API for applications, below `/v1`: append to a stream, read it, read a shard's log, and what
//! the node says of itself.
//!
//! Each handler is a client of this very node, over the loopback: limits, repeating and what counts
//! as unknown are the client library's.

mod append;
mod body;
mod cloud;
mod cluster;
mod conditions;
mod event;
mod native;
mod openapi;
mod payload;
mod read;
mod refusal;

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Query, Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use duolog_net::client::{Client, Error};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Method, StatusCode, Uri};
use serde::de::DeserializeOwned;

pub use body::Room;
pub use cluster::Cluster;
pub use native::Native;
use openapi::Refusals;

use super::Site;
use super::limits::REQUEST_MAX;
use super::problem::Problem;

/// Everything below `/v1`.
pub(super) fn routes(site: &Arc<Site>) -> Router {
    Router::new()
        .route("/v1/streams/{stream}/events", get(read::stream).post(append::append))
        .route("/v1/shards/{shard}/events", get(read::log))
        .route("/v1/status", get(status))
        .route("/v1/cluster", get(cluster::cluster))
        .route("/v1/openapi.json", get(openapi::document))
        .layer(from_fn(in_time))
        .with_state(Arc::clone(site))
}

/// Ends what takes too long.
async fn in_time(request: Request, next: Next) -> Response {
    let method = request.method().clone();
    match tokio::time::timeout(REQUEST_MAX, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let seconds = REQUEST_MAX.as_secs();
            let text = match method {
                Method::POST => format!(
                    "not done after {seconds} s: the append may have happened; send it again with \
                     the same Idempotency-Key"
                ),
                _ => format!("not done after {seconds} s: ask again"),
            };
            Problem::new(StatusCode::GATEWAY_TIMEOUT, "unknown", text).into_response()
        }
    }
}

/// What a handler ends with.
type Outcome = Result<Response, Problem>;

impl Site {
    /// The client of this node, once its shards run.
    async fn client(&self) -> Result<&Client, Problem> {
        let Some(address) = self.life.client.get() else {
            let text = format!("the node is {}: see /startupz", self.life.phase().name());
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "starting", text);
            return Err(problem.retry_after_ms(1000));
        };
        self.native.client(*address).await.map_err(|error| refusal::problem(&error, false))
    }

    /// The problem that the error is: if another node leads and is known, the way there.
    async fn refusal(&self, error: &Error, conditional: bool, uri: &Uri) -> Problem {
        let problem = refusal::problem(error, conditional);
        let Error::NotLeader { leader: Some(leader), .. } = error else { return problem };
        let Some(http) = self.native.http_of(leader).await else { return problem };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        match HeaderValue::from_str(&format!("http://{http}{path}")) {
            Ok(location) => {
                let there = problem.status(StatusCode::TEMPORARY_REDIRECT);
                there.with("leader_http", http).header(LOCATION, location)
            }
            Err(_) => problem,
        }
    }
}

/// The query's parameters.
fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    let parsed = Query::try_from_uri(uri);
    parsed.map(|Query(query)| query).map_err(|error| bad_request(error.body_text()))
}

/// The part of the path that names something.
fn named<T>(path: Result<Path<T>, PathRejection>) -> Result<T, Problem> {
    path.map(|Path(name)| name).map_err(|error| bad_request(error.body_text()))
}

fn bad_request(text: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "bad_request", text)
}

fn internal(error: &impl std::fmt::Display) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string())
}

/// A JSON document that nobody may keep: the next one is another.
fn document(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(kind)),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (status, headers, body).into_response()
}

/// A part of a path in which nothing has a meaning of its own.
fn segment(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// What the node says of itself
#[utoipa::path(
    get,
    path = "/v1/status",
    tag = "node",
    responses((status = 200, description = "See OPERATIONS.md, Status", body = Object), Refusals)
)]
async fn status(State(site): State<Arc<Site>>, uri: Uri) -> Outcome {
    let client = site.client().await?;
    match client.status().await {
        Ok(text) => Ok(document(StatusCode::OK, "application/json", text.into_bytes())),
        Err(error) => Err(site.refusal(&error, false, &uri).await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_in_a_path() {
        assert_eq!(segment("order-7"), "order-7");
        assert_eq!(segment("{a}/b c?é"), "%7Ba%7D%2Fb%20c%3F%C3%A9");
    }
}
