//! Everything `/metrics` tells, as read at one moment.

use duolog_s3client::Count;

use super::histogram::HistogramReading;
use super::node::NodeCounts;
use super::shard::ShardCounts;
use crate::serve::cluster::gauges::ShardReading;
use crate::serve::vitals::Vitals;

/// See the module.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The cluster's id.
    pub cluster: String,
    /// The node's id.
    pub node: String,
    /// What the node is, in a word.
    pub role: &'static str,
    /// None on a standalone node.
    pub pair: Option<PairReading>,
    /// In the shards' order.
    pub shards: Vec<ShardPart>,
    /// By [`super::shard::STAGES`].
    pub stages: [HistogramReading; 5],
    /// What the process has consumed.
    pub vitals: Vitals,
    /// When it started, ms since 1970.
    pub started_ms: u64,
    /// The data directory's file system; none where it does not tell.
    pub disk: Option<Disk>,
}

/// One shard's.
#[derive(Clone, Debug, Default)]
pub struct ShardPart {
    /// How far its log is.
    pub log: ShardReading,
    /// What it has counted.
    pub counts: ShardCounts,
    /// How often the watchdog rang its bell.
    pub pokes: u64,
    /// How often with work waiting.
    pub rescues: u64,
}

/// What only a node of a pair has.
#[derive(Clone, Debug)]
pub struct PairReading {
    /// What the control has published.
    pub node: NodeCounts,
    /// How much longer the leader may serve; 0 if it does not lead.
    pub lease_remaining_ms: u64,
    /// How far the store's clock is from this node's for certain; none before its first answer.
    pub s3_skew_ms: Option<i64>,
    /// Requests to the bucket.
    pub s3: Vec<Count>,
}

/// Space on the data directory's file system, bytes.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    /// That the server may still take.
    pub free: u64,
    /// In all.
    pub size: u64,
}
