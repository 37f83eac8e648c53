//! What is where.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::CONNECTION;
use http::{HeaderValue, StatusCode, Uri};

use super::problem::Problem;
use super::{Site, access, api, page, probes, scrape};

/// Everything.
pub(super) fn whole(site: &Arc<Site>) -> Router {
    let guarded = api::routes(site)
        .merge(Router::new().route("/metrics", get(scrape::scrape)).with_state(Arc::clone(site)))
        .fallback(absent)
        .layer(from_fn_with_state(Arc::clone(site), access::guard));
    probe_routes(site).merge(page::routes()).merge(guarded)
}

/// For connections beyond the limit: probes, and an apology.
pub(super) fn probes_only(site: &Arc<Site>) -> Router {
    probe_routes(site).fallback(crowded)
}

/// What a supervisor asks; never guarded.
fn probe_routes(site: &Arc<Site>) -> Router {
    Router::new()
        .route("/livez", get(probes::alive))
        .route("/readyz", get(probes::ready))
        .route("/startupz", get(probes::started))
        .with_state(Arc::clone(site))
}

async fn absent(uri: Uri) -> Problem {
    let text = format!("there is nothing at {}; docs/HTTP.md says what is where", uri.path());
    Problem::new(StatusCode::NOT_FOUND, "not_found", text)
}

async fn crowded() -> Response {
    let text = "too many connections: come back later";
    let busy = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", text);
    let close = (CONNECTION, HeaderValue::from_static("close"));
    ([close], busy).into_response()
}
