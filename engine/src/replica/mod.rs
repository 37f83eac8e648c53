//! The pair: what one shard's log has to do with the other node's copy and with the chain in the
//! bucket. Pure machines; their drivers move the bytes.
//!
//! The rules are numbered in `docs/PROTOCOL.md` (R: replication, C: chain, P: promotion,
//! G: garbage); the code cites them.

pub mod chain;
pub mod garbage;
pub mod hello;
pub mod limits;
pub mod link;
mod pause;
pub mod promotion;
pub mod uploader;

use crate::block::{BlockHash, genesis};
use crate::ids::{ClusterId, LeaseEpoch, Lsn, ShardId};
use crate::segment::LogEnd;

/// Where one reign's blocks end in a log: the end of the last block that carries `epoch`. A log's
/// "epoch marks" are those of its reigns that are over, oldest first, both numbers growing
/// strictly; the mark of the last reign is the log's end itself. Two logs agree up to a mark when
/// they have the same hash at its LSN, because a hash names a block's whole past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The reign.
    pub epoch: LeaseEpoch,
    /// LSN of its last event.
    pub lsn: Lsn,
    /// Hash of its last block.
    pub hash: BlockHash,
}

impl EpochEnd {
    /// The mark that a log's end makes for the reign of its last block.
    #[must_use]
    pub const fn of(end: &LogEnd) -> Self {
        Self { epoch: end.epoch, lsn: end.lsn, hash: end.hash }
    }
}

/// The end of a block: where two logs have this in common they are equal from the start up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockEnd {
    /// LSN of its last event.
    pub lsn: Lsn,
    /// Its hash.
    pub hash: BlockHash,
}

impl BlockEnd {
    /// The end of a log's last block.
    #[must_use]
    pub const fn of(end: &LogEnd) -> Self {
        Self { lsn: end.lsn, hash: end.hash }
    }

    /// The end of the empty log of a shard: every log of the cluster contains it.
    #[must_use]
    pub fn genesis(cluster: ClusterId, shard: ShardId) -> Self {
        Self { lsn: Lsn(0), hash: genesis(cluster, shard) }
    }
}
