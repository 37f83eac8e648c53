//! Taking a request's body: of a kind that is known, within the limits.

use axum::body::Body;
use futures_lite::StreamExt as _;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use tokio::sync::Semaphore;

use super::super::limits::{BODIES_MAX_BYTES, BODY_UNIT_BYTES};
use super::super::problem::Problem;

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Events in the API's own form.
    Events,
    /// One CloudEvent.
    CloudEvent,
    /// An array of CloudEvents.
    CloudEvents,
}

impl Kind {
    /// Of a request with these headers.
    pub fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let essence = given.unwrap_or_default().split(';').next().unwrap_or_default();
        match &*essence.trim().to_ascii_lowercase() {
            "application/json" => Ok(Self::Events),
            "application/cloudevents+json" => Ok(Self::CloudEvent),
            "application/cloudevents-batch+json" => Ok(Self::CloudEvents),
            other => {
                let text = format!(
                    "the body is {other:?}: application/json, application/cloudevents+json or \
                     application/cloudevents-batch+json is wanted"
                );
                let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
                Err(Problem::new(status, "unsupported_media_type", text))
            }
        }
    }
}

/// The room for all bodies at one time.
#[derive(Debug)]
pub struct Room {
    units: Semaphore,
    body_max_bytes: usize,
}

impl Room {
    /// Room for bodies of at most so many bytes each.
    #[must_use]
    pub fn new(body_max_bytes: usize) -> Self {
        let all = BODIES_MAX_BYTES.max(body_max_bytes);
        Self { units: Semaphore::new(all.div_ceil(BODY_UNIT_BYTES)), body_max_bytes }
    }

    /// Reads the body and does `work` with it while it takes room. Waits for room.
    pub async fn with<T>(
        &self,
        headers: &HeaderMap,
        body: Body,
        work: impl AsyncFnOnce(Vec<u8>) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let limit = self.body_max_bytes;
        let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let size = announced.and_then(|text| text.parse().ok()).unwrap_or(limit);
        if size > limit {
            return Err(too_large(Some(size), limit));
        }
        let units = u32::try_from(size.div_ceil(BODY_UNIT_BYTES)).unwrap_or(u32::MAX);
        let held = self.units.acquire_many(units).await;
        // Never closed: the wait ends with the room.
        let _held = held.map_err(|error| {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", error.to_string())
        })?;
        let mut bytes = Vec::with_capacity(if announced.is_some() { size } else { 0 });
        let mut chunks = body.into_data_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| {
                let text = format!("the body was not received: {error}");
                Problem::new(StatusCode::BAD_REQUEST, "bad_request", text)
            })?;
            if bytes.len() + chunk.len() > limit {
                return Err(too_large(None, limit));
            }
            bytes.extend_from_slice(&chunk);
        }
        work(bytes).await
    }
}

fn too_large(size: Option<usize>, limit: usize) -> Problem {
    let text = format!("the body has more than {limit} bytes: split the append");
    let problem = Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", text);
    problem.with("size_bytes", size).with("limit_bytes", limit)
}
