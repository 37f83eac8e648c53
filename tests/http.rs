//! What the HTTP side of a real server promises.

mod http_access;
mod http_api;
mod http_metrics;
mod http_page;
mod http_probes;
