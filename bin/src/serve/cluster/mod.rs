//! The pair: what a node does besides serving when it is not alone.
//!
//! Decisions are made by the lease machine (on shard 0) and by the machines of `engine::replica`
//! (on every shard); this folder and `uring/pair` move their messages, objects and blocks.

pub mod boot;
pub mod chronicle;
pub mod gauges;
pub mod join;
pub mod message;
pub mod objects;
pub mod promise;
pub mod store;

use std::path::PathBuf;

use duolog_engine::ids::LeaseEpoch;
use duolog_engine::shard::Layout;
use duolog_lease::machine::Identity;
use duolog_lease::timings::Timings;
use duolog_net::peer::{PeerHello, Purpose};

use objects::Keys;
use store::Store;

use super::metrics::NodeMetrics;

/// What every shard of a pair's node knows.
#[derive(Debug)]
pub struct PairSettings {
    /// Who this node is.
    pub identity: Identity,
    /// The lease's timings.
    pub timings: Timings,
    /// Where the cluster's objects lie.
    pub keys: Keys,
    /// The way to the bucket.
    pub store: Store,
    /// Number of shards.
    pub shard_count: u32,
    /// Sizes that both nodes must share.
    pub layout: Layout,
    /// Where clients reach this node.
    pub client_address: String,
    /// Where the other node reaches it.
    pub peer_address: String,
    /// How long blocks are gathered before they go to the bucket, ms.
    pub replication_delay_ms: u64,
    /// What the lease machine's driver counts for operators.
    pub metrics: NodeMetrics,
    /// The data directory.
    pub data_dir: PathBuf,
    /// The data directory was made by this process: nothing is lost if it is made anew.
    pub is_new: bool,
}

impl PairSettings {
    /// A hello of this node as leader.
    #[must_use]
    pub fn hello(&self, epoch: LeaseEpoch, purpose: Purpose) -> PeerHello {
        PeerHello {
            epoch,
            cluster: self.identity.cluster,
            from: self.identity.node,
            shard_count: self.shard_count,
            segment_size_bytes: self.layout.segment_size_bytes,
            align_bytes: self.layout.align_bytes,
            purpose,
            client_address: self.client_address.clone(),
        }
    }
}
