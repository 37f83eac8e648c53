//! What one shard counts. The shard's thread writes, others read.

use duolog_engine::shard::Copies;
use duolog_net::session::Request;
use duolog_net::wire::ErrorCode;

use super::histogram::{Histogram, HistogramReading};
use super::number::Number;

/// Kinds of requests, in the order of [`ShardMetrics::requested`].
pub const REQUEST_KINDS: [&str; 5] = ["append", "read_stream", "read_log", "admin", "subscribe"];
/// Where the second copy of an acknowledged append was, in the order of [`ShardMetrics::acked`].
pub const COPIES: [&str; 3] = ["disk", "peer", "s3"];
/// Names of the stages, in the order of [`Stages`].
pub const STAGES: [&str; 5] = ["queue", "write", "replicate", "commit", "total"];

/// What errors are called in metrics, in the order of [`ErrorCode::ALL`].
#[must_use]
pub const fn error_name(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::BadFrame => "bad_frame",
        ErrorCode::UnsupportedVersion => "unsupported_version",
        ErrorCode::BadRequest => "bad_request",
        ErrorCode::TooLarge => "too_large",
        ErrorCode::Conflict => "conflict",
        ErrorCode::Fenced => "fenced",
        ErrorCode::Busy => "busy",
        ErrorCode::KeyReused => "key_reused",
        ErrorCode::CrossShard => "cross_shard",
        ErrorCode::DiskFull => "disk_full",
        ErrorCode::Unknown => "unknown",
        ErrorCode::ShuttingDown => "shutting_down",
        ErrorCode::Damaged => "damaged",
        ErrorCode::NotLeader => "not_leader",
        ErrorCode::Refused => "refused",
        ErrorCode::CutOff => "cut_off",
    }
}

/// Where an append's time goes. docs/METRICS.md says from when to when each is counted.
#[derive(Debug, Default)]
pub struct Stages {
    /// Per append: parsed until its block is on its way.
    pub queue: Histogram,
    /// Per write: given to the disk until durable.
    pub write: Histogram,
    /// Per block: on its way until it has its second copy.
    pub replicate: Histogram,
    /// Per block: on its way until committed.
    pub commit: Histogram,
    /// Per append: parsed until its answer is released.
    pub total: Histogram,
}

/// See the module.
#[derive(Debug, Default)]
pub struct ShardMetrics {
    /// Where an append's time goes.
    pub stages: Stages,
    acks: [Number; COPIES.len()],
    events: Number,
    /// Appends answered with what an earlier one with the same key was answered.
    pub replays: Number,
    requests: [Number; REQUEST_KINDS.len()],
    errors: [Number; ErrorCode::ALL.len()],
    /// Requests that the shard has not answered.
    pub in_flight: Number,
    /// Clients' connections that this shard serves.
    pub connections: Number,
    /// Subscriptions.
    pub subscribers: Number,
    /// Connections accepted.
    pub accepted: Number,
    /// Segments that were made ready for writing.
    pub segments: Number,
}

impl ShardMetrics {
    /// Counts appends that are acknowledged and the events in them.
    pub fn acked(&self, copies: Copies, appends: u64, events: u64) {
        let index = match copies {
            Copies::Disk => 0,
            Copies::Peer => 1,
            Copies::Chain => 2,
        };
        self.acks[index].add(appends);
        self.events.add(events);
    }

    /// Counts a request of a connection of this shard.
    pub fn requested(&self, request: &Request<'_>) {
        let index = match request {
            Request::Append(_) => 0,
            Request::ReadStream(_) => 1,
            Request::ReadLog(_) => 2,
            Request::Admin(_) => 3,
            Request::Subscribe(_) => 4,
        };
        self.requests[index].add(1);
    }

    /// Counts errors sent to clients.
    pub fn refused(&self, code: ErrorCode, count: u32) {
        self.errors[usize::from(code.code()) - 1].add(u64::from(count));
    }

    /// What was counted so far, the stages apart.
    #[must_use]
    pub fn read(&self) -> ShardCounts {
        let of = |numbers: &[Number]| numbers.iter().map(Number::get).collect();
        ShardCounts {
            acks: of(&self.acks),
            events: self.events.get(),
            replays: self.replays.get(),
            requests: of(&self.requests),
            errors: of(&self.errors),
            in_flight: self.in_flight.get(),
            connections: self.connections.get(),
            subscribers: self.subscribers.get(),
            accepted: self.accepted.get(),
            segments: self.segments.get(),
        }
    }
}

/// A reading of a [`ShardMetrics`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardCounts {
    /// By [`COPIES`].
    pub acks: Vec<u64>,
    /// Events of acknowledged appends.
    pub events: u64,
    /// See [`ShardMetrics`].
    pub replays: u64,
    /// By [`REQUEST_KINDS`].
    pub requests: Vec<u64>,
    /// By [`ErrorCode::ALL`].
    pub errors: Vec<u64>,
    /// See [`ShardMetrics`].
    pub in_flight: u64,
    /// See [`ShardMetrics`].
    pub connections: u64,
    /// See [`ShardMetrics`].
    pub subscribers: u64,
    /// See [`ShardMetrics`].
    pub accepted: u64,
    /// See [`ShardMetrics`].
    pub segments: u64,
}

/// The stages of all these shards together, by [`STAGES`].
#[must_use]
pub fn stages<'a>(shards: impl Iterator<Item = &'a ShardMetrics>) -> [HistogramReading; 5] {
    let mut sums: [HistogramReading; 5] = Default::default();
    for ShardMetrics { stages, .. } in shards {
        let Stages { queue, write, replicate, commit, total } = stages;
        for (sum, stage) in sums.iter_mut().zip([queue, write, replicate, commit, total]) {
            stage.add_to(sum);
        }
    }
    sums
}
