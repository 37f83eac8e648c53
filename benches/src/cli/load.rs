//! `duolog bench append` and `duolog bench read`: the load generator's options.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::BenchError;
use super::duration::parse_duration;
use crate::generator::{Expectation, Settings, Workload};

pub(super) const HELP: &str = "\
Examples:
  duolog bench append --connections 64 --duration 30s
  duolog bench append --connections 256 --in-flight 16 --streams 100000 --expect exact --key
  duolog bench append --connections 64 --rate 20000 --duration 60s --json

Without --rate the loop is closed: each answer starts the next request, so a slow server is asked
less, and latencies are those of the requests that were made. With --rate requests start by a
constant schedule whatever the server does, and latency counts from the scheduled moment.
Connections are opened and the warm-up has passed before anything is counted.";

/// What both workloads take.
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    /// The server's client port
    #[arg(long, default_value = "127.0.0.1:7400", value_name = "HOST:PORT")]
    pub addr: String,
    /// Connections, 1 to 65536
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub connections: u32,
    /// Measured time: `30s`, `500ms`, `2m`
    #[arg(long, default_value = "10s", value_parser = parse_duration, value_name = "T")]
    pub duration: Duration,
    /// Load before the measured time, not counted
    #[arg(long, default_value = "1s", value_parser = parse_duration, value_name = "T")]
    pub warm_up: Duration,
    /// Streams, chosen uniformly; each run has its own
    #[arg(long, default_value_t = 10_000, value_name = "S")]
    pub streams: u32,
    /// Payload of each event, bytes
    #[arg(long, default_value_t = 100, value_name = "BYTES")]
    pub size: u32,
    /// Requests in flight on each connection, 1 to 4096
    #[arg(long, default_value_t = 1, value_name = "K")]
    pub in_flight: u32,
    /// Open loop: requests per second over all connections
    #[arg(long, value_name = "R")]
    pub rate: Option<u64>,
    /// Generator threads, each with its share of the connections
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub threads: u32,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// `duolog bench append`.
#[derive(Args, Clone, Debug)]
pub struct AppendArgs {
    /// What both workloads take.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Condition of each append: none, or the exact revision of a stream that its connection owns
    #[arg(long, value_enum, default_value_t = ExpectArg::Any)]
    pub expect: ExpectArg,
    /// Send an idempotency key with every append
    #[arg(long)]
    pub key: bool,
}

/// `--expect`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectArg {
    /// No condition
    Any,
    /// The exact revision
    Exact,
}

impl LoadArgs {
    pub(super) fn settings(&self, workload: Workload) -> Result<Settings, BenchError> {
        Ok(Settings {
            workload,
            in_flight: self.in_flight,
            streams: self.streams,
            warm_up: self.warm_up,
            rate_per_s: self.rate,
            threads: self.threads,
            ..Settings::appends(resolve(&self.addr)?, self.connections, self.size, self.duration)
        })
    }
}

impl AppendArgs {
    pub(super) fn settings(&self) -> Result<Settings, BenchError> {
        let expectation = match self.expect {
            ExpectArg::Any => Expectation::Any,
            ExpectArg::Exact => Expectation::Exact,
        };
        let settings = self.load.settings(Workload::Append)?;
        Ok(Settings { expectation, with_keys: self.key, ..settings })
    }
}

fn resolve(addr: &str) -> Result<SocketAddr, BenchError> {
    let refused = |reason: String| BenchError::Addr { addr: addr.to_owned(), reason };
    let mut found = addr.to_socket_addrs().map_err(|error| refused(error.to_string()))?;
    found.next().ok_or_else(|| refused("the name has no address".to_owned()))
}
