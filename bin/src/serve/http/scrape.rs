//! `/metrics`: for Prometheus and its kin; docs/METRICS.md.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};

use super::Site;
use super::problem::Problem;
use crate::serve::metrics;

/// Everything that is counted, now.
pub(super) async fn scrape(State(site): State<Arc<Site>>) -> Response {
    let Some(sources) = site.life.metrics.get() else {
        let text = "the node has not started: /startupz tells how far it is";
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, "starting", text).into_response();
    };
    let kind = (CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
    ([kind], metrics::render(sources.read())).into_response()
}
