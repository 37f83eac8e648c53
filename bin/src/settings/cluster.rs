//! The settings of a pair: where the nodes reach one another, and the timings of the lease.

use std::net::SocketAddr;

use duolog_lease::timings::{TimingValues, Timings, TimingsError};

use crate::settings::Values;
use crate::settings::value::Value;

/// `listen.peer`, `advertise.*`, `heartbeat.*`, `max_clock_drift_ms` and two of `s3.*`
#[derive(Clone, Debug)]
pub struct Cluster {
    /// `listen.peer`
    pub listen_peer: SocketAddr,
    /// `advertise.client`, else nothing: then what `listen.client` got.
    pub advertise_client: Option<String>,
    /// `advertise.peer`, else nothing.
    pub advertise_peer: Option<String>,
    /// The timings of the lease, checked one by one but not together.
    pub timings: TimingValues,
    /// `s3.replication_delay_ms`
    pub replication_delay_ms: u64,
}

impl Cluster {
    pub(super) fn typed(values: &Values<'_>) -> Self {
        let text = |name: &str| match &values.entry(name).value {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        };
        Self {
            listen_peer: values.address("listen.peer"),
            advertise_client: text("advertise.client"),
            advertise_peer: text("advertise.peer"),
            timings: timing_values(values),
            replication_delay_ms: values.number("s3.replication_delay_ms"),
        }
    }

    /// The timings, checked together.
    pub fn timings(&self) -> Result<Timings, TimingsError> {
        Timings::new(self.timings)
    }
}

/// The four timings of the lease as given.
pub(super) fn timing_values(values: &Values<'_>) -> TimingValues {
    TimingValues {
        heartbeat_interval_ms: values.number("heartbeat.interval_ms"),
        heartbeat_lease_duration_ms: values.number("heartbeat.lease_duration_ms"),
        max_clock_drift_ms: values.number("max_clock_drift_ms"),
        s3_lease_duration_ms: values.number("s3.lease_duration_ms"),
    }
}
