//! What a shard answers, as frames: codes and numbers of its refusals, and receipts.

use duolog_engine::ids::ShardId;
use duolog_engine::record::StreamRange;
use duolog_engine::shard::{Copies as Kept, Receipt, Refusal};

use super::appended::{Appended, Copies, StreamSpan};
use super::error::{ErrorCode, ErrorFrame};

impl From<&Refusal> for ErrorFrame {
    /// The code and numbers of a refusal; its text is the server's.
    fn from(refusal: &Refusal) -> Self {
        match *refusal {
            Refusal::Conflict { stream_index, expected, next } => {
                Self::conflict(stream_index, expected, next)
            }
            Refusal::Fenced { stream_index, given, highest } => {
                Self::new(ErrorCode::Fenced).numbers(given, highest).stream(stream_index)
            }
            Refusal::Busy { retry_after_ms } => {
                Self::new(ErrorCode::Busy).retry_after_ms(retry_after_ms)
            }
            Refusal::KeyReused => Self::new(ErrorCode::KeyReused),
            Refusal::CrossShard { stream_index, first, other } => {
                let (first, other) = (u64::from(first.0), u64::from(other.0));
                Self::new(ErrorCode::CrossShard).numbers(first, other).stream(stream_index)
            }
            Refusal::DiskFull => Self::new(ErrorCode::DiskFull),
            Refusal::ShuttingDown => Self::new(ErrorCode::ShuttingDown),
            Refusal::NotLeader => Self::new(ErrorCode::NotLeader),
            Refusal::Unknown => Self::new(ErrorCode::Unknown),
            Refusal::Damaged => Self::new(ErrorCode::Damaged),
            Refusal::TooLarge { size, limit } => {
                Self::new(ErrorCode::TooLarge).numbers(size, limit)
            }
        }
    }
}

impl From<&StreamRange> for StreamSpan {
    fn from(range: &StreamRange) -> Self {
        Self { first: range.first, event_count: range.event_count }
    }
}

impl Appended {
    /// What a client is told of a shard's receipt, but for the streams.
    #[must_use]
    pub const fn of(receipt: &Receipt, shard: ShardId) -> Self {
        Self {
            first_lsn: receipt.first_lsn,
            last_lsn: receipt.last_lsn,
            hlc: receipt.hlc,
            epoch: receipt.epoch,
            shard,
            copies: match receipt.copies {
                Kept::Disk => Copies::ThisDisk,
                Kept::Peer => Copies::ThisDiskAndPeer,
                Kept::Chain => Copies::ThisDiskAndS3,
            },
            replayed: receipt.replayed,
        }
    }
}
