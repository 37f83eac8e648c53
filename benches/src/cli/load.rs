//! `duolog bench append`, `read` and `mixed`: the load generator's options.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use clap::Args;

use super::duration::parse_duration;
use super::size::parse_size_bytes;
use super::sweep::SweepArgs;
use super::{BenchError, ResultArgs};
use crate::generator::settings::{HOT_STREAMS_DEFAULT, RATE_DEFAULT_PER_S};
use crate::generator::{Arrivals, Expectation, ReadMode, Settings, StreamOrder, Workload};

pub(super) const APPEND_HELP: &str = "\
Examples:
  duolog bench append --connections 64 --rate 20000 --arrivals poisson --duration 60s
  duolog bench append --closed --connections 256 --expect exact --key --json
  duolog bench append --closed --connections 32 --expect hot
  duolog bench append --closed --connections 64 --streams-per-append 4 --batch 10 --size 1KiB
  duolog bench append --connections 64 --sweep --slo-p99 5ms
  duolog bench append --rate 20000 --out ./result --dir ./data

Conditions: with --expect exact every connection owns its streams and knows their revisions, so a
conflict is an error. With --expect hot all connections append to the same few streams; a conflict
tells the revision, the append is sent again, and its latency counts from its first start.

Loops: requests start by a timetable whatever the server does, and latency counts from the moment
that the timetable says, however late a request went out (open loop). A refusal is counted by its
name and not sent again. With --closed each answer starts the next request of its slot: a slow
server is asked less, and latencies are those of the requests that were made.
Connections are open and the warm-up has passed before anything is counted.";

pub(super) const READ_HELP: &str = "\
Examples:
  duolog bench read --mode point --connections 64 --rate 20000
  duolog bench read --closed --mode replay --streams 100 --events 10000 --size 1KiB

Writes its streams before the clock starts. `page` reads the first page of a stream, `point` one
event at a random revision, `replay` a whole stream page after page (its latency is that of the
whole), `backwards` the last page, newest first. Loops are those of `duolog bench append --help`.";

pub(super) const MIXED_HELP: &str = "\
Examples:
  duolog bench mixed --reads 80 --connections 64 --rate 20000
  duolog bench mixed --closed --reads 50 --connections 256

Writes its streams before the clock starts, then reads single events at random revisions and
appends; latencies are printed together and for each kind. Loops are those of
`duolog bench append --help`.";

/// What all loads take.
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
    /// Streams; each run has its own [default: 10000, hot: 1]
    #[arg(long, value_name = "S")]
    pub streams: Option<u32>,
    /// How the stream of each operation is chosen
    #[arg(long, value_enum, default_value_t = StreamOrder::Uniform, value_name = "ORDER")]
    pub stream_order: StreamOrder,
    /// Payload of each event: bytes, or `1KiB`, `64KiB`
    #[arg(long, default_value = "100", value_parser = parse_size_bytes, value_name = "SIZE")]
    pub size: u32,
    /// Requests in flight on each connection, 1 to 4096
    #[arg(long, default_value_t = 1, value_name = "K")]
    pub in_flight: u32,
    /// Open loop: requests per second over all connections [default: 1000]
    #[arg(long, value_name = "R")]
    pub rate: Option<u64>,
    /// Open loop: how arrivals follow each other
    #[arg(long, value_enum, default_value_t = Arrivals::Constant, value_name = "KIND")]
    pub arrivals: Arrivals,
    /// Closed loop: an answer starts the next request, there is no rate
    #[arg(long, conflicts_with_all = ["rate", "arrivals"])]
    pub closed: bool,
    /// Generator threads, each with its share of the connections
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub threads: u32,
    /// What becomes of the result.
    #[command(flatten)]
    pub result: ResultArgs,
    /// Of `--sweep`.
    #[command(flatten)]
    pub sweep: SweepArgs,
}

/// `duolog bench append`.
#[derive(Args, Clone, Debug)]
pub struct AppendArgs {
    /// What all loads take.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Condition of each append
    #[arg(long, value_enum, default_value_t = Expectation::Any)]
    pub expect: Expectation,
    /// Send an idempotency key with every append
    #[arg(long)]
    pub key: bool,
    /// Streams that each append writes to at once, all in one shard; 1 to 256
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub streams_per_append: u32,
    /// Events that each append has for each of its streams
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub batch: u32,
}

/// `duolog bench read`.
#[derive(Args, Clone, Debug)]
pub struct ReadArgs {
    /// What all loads take.
    #[command(flatten)]
    pub load: LoadArgs,
    /// What a read is
    #[arg(long, value_enum, default_value_t = ReadMode::Page)]
    pub mode: ReadMode,
    /// Events of each stream [default: 100, or 1 MiB of larger ones]
    #[arg(long, value_name = "N")]
    pub events: Option<u32>,
}

/// `duolog bench mixed`.
#[derive(Args, Clone, Debug)]
pub struct MixedArgs {
    /// What all loads take.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Share of the operations that are reads, percent
    #[arg(long, default_value_t = 80, value_name = "PERCENT")]
    pub reads: u32,
    /// Events of each stream before the load begins [default: 100, or 1 MiB of larger ones]
    #[arg(long, value_name = "N")]
    pub events: Option<u32>,
    /// Send an idempotency key with every append
    #[arg(long)]
    pub key: bool,
}

impl LoadArgs {
    fn settings(&self, workload: Workload) -> Result<Settings, BenchError> {
        let settings =
            Settings::appends(resolve(&self.addr)?, self.connections, self.size, self.duration);
        Ok(Settings {
            workload,
            in_flight: self.in_flight,
            streams: self.streams.unwrap_or(settings.streams),
            stream_order: self.stream_order,
            warm_up: self.warm_up,
            rate_per_s: (!self.closed).then(|| self.rate.unwrap_or(RATE_DEFAULT_PER_S)),
            arrivals: self.arrivals,
            threads: self.threads,
            ..settings
        })
    }

    /// What a person should know who gave no rate.
    pub(super) fn rate_note(&self) -> Option<String> {
        (!self.closed && self.rate.is_none() && !self.sweep.sweep).then(|| {
            format!(
                "no --rate: {RATE_DEFAULT_PER_S} requests per second, not what the server can do \
                 (--sweep finds that, --closed asks without a timetable)\n"
            )
        })
    }
}

impl AppendArgs {
    pub(super) fn settings(&self) -> Result<Settings, BenchError> {
        let settings = self.load.settings(Workload::Append)?;
        let hot = self.expect == Expectation::Hot;
        let streams_default = if hot { HOT_STREAMS_DEFAULT } else { settings.streams };
        Ok(Settings {
            expectation: self.expect,
            with_keys: self.key,
            streams_per_append: self.streams_per_append,
            batch: self.batch,
            streams: self.load.streams.unwrap_or(streams_default.max(self.streams_per_append)),
            ..settings
        })
    }
}

impl ReadArgs {
    pub(super) fn settings(&self) -> Result<Settings, BenchError> {
        let settings = self.load.settings(Workload::Read)?;
        let stream_events = self.events.unwrap_or(settings.stream_events);
        Ok(Settings { read_mode: self.mode, stream_events, ..settings })
    }
}

impl MixedArgs {
    pub(super) fn settings(&self) -> Result<Settings, BenchError> {
        let settings = self.load.settings(Workload::Mixed)?;
        let stream_events = self.events.unwrap_or(settings.stream_events);
        let (reads_percent, with_keys) = (self.reads, self.key);
        Ok(Settings { reads_percent, with_keys, stream_events, ..settings })
    }
}

fn resolve(addr: &str) -> Result<SocketAddr, BenchError> {
    let refused = |reason: String| BenchError::Addr { addr: addr.to_owned(), reason };
    let mut found = addr.to_socket_addrs().map_err(|error| refused(error.to_string()))?;
    found.next().ok_or_else(|| refused("the name has no address".to_owned()))
}
