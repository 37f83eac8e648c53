//! A server as a service: what its manager is told, and what a reload changes.

mod service_notify;
mod service_reload;
