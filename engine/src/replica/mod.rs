//! The pair: what one shard's log has to do with the other node's copy and with the chain in the
//! bucket. Pure machines; their drivers move the bytes.
//!
//! The rules are numbered in `docs/PROTOCOL.md` (R: replication, C: chain, P: promotion,
//! G: garbage); the code cites them.

pub mod hello;
pub mod link;

use crate::block::BlockHash;
use crate::ids::{LeaseEpoch, Lsn};
use crate::segment::LogEnd;

/// Where one reign's blocks end in a log: the end of the last block that carries `epoch`. A log's
/// list of these ("epoch marks") has one per reign that has a block in it, oldest first, both
/// numbers growing strictly; the newest is the log's end itself. Two logs agree up to a mark when
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
