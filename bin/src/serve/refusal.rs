//! What the shard machine refuses, in the words of the wire: code, numbers, and a text that says
//! what to do.

use std::fmt;

use duolog_engine::append::{AppendError, Expect};
use duolog_engine::ids::Revision;
use duolog_engine::shard::Refusal;
use duolog_net::wire::{ErrorCode, ErrorFrame};

/// A refusal with its text.
#[derive(Clone, Copy, Debug)]
pub struct RefusalText<'a>(pub &'a Refusal);

impl fmt::Display for RefusalText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Refusal::Conflict { stream_index, expected, next } => {
                write!(f, "stream {stream_index} of the request was expected ")?;
                match expected {
                    Expect::NoStream => write!(f, "not to exist")?,
                    Expect::Exact(revision) => write!(f, "at revision {revision}")?,
                    Expect::Any | Expect::StreamExists => write!(f, "to exist")?,
                }
                match next {
                    Revision(0) => write!(f, ", but it does not exist"),
                    next => write!(f, ", but its last revision is {}", next.0 - 1),
                }?;
                write!(f, ": read it again and decide anew")
            }
            Refusal::Fenced { stream_index, given, highest } => write!(
                f,
                "fencing token {given} is below {highest}, the highest that stream {stream_index} \
                 of the request has seen: another writer has taken over; stop writing"
            ),
            Refusal::Busy { retry_after_ms } => write!(
                f,
                "the shard has as many requests in flight as limits.shard_in_flight allows: try \
                 again in {retry_after_ms} ms"
            ),
            Refusal::KeyReused => write!(
                f,
                "this idempotency key came before with other events: use a new key for each new \
                 append"
            ),
            Refusal::CrossShard { stream_index, first, other } => write!(
                f,
                "stream {stream_index} of the request lives in shard {other}, the first one in \
                 shard {first}: streams of one append need one routing key, like {{order-7}}.lines"
            ),
            Refusal::DiskFull => write!(
                f,
                "no space for the next segment: nothing was appended; free space in the data \
                 directory's file system, appends go on by themselves"
            ),
            Refusal::ShuttingDown => {
                write!(f, "the node is stopping: nothing was appended; connect again later")
            }
            Refusal::NotLeader => {
                write!(f, "the node does not lead: nothing was appended; ask the other node")
            }
            Refusal::Unknown => write!(
                f,
                "a write to the log failed or the node stopped leading: it is not known whether \
                 the append is stored; ask again with the same idempotency key"
            ),
            Refusal::Damaged => write!(
                f,
                "the index or the log could not be read: nothing was appended; run `duolog verify` \
                 on the data directory"
            ),
            Refusal::TooLarge { size, limit } => write!(
                f,
                "the append takes {size} bytes in the log, a segment has {limit}: split the append \
                 or raise log.segment_size_bytes"
            ),
        }
    }
}

/// Code and numbers of a refusal.
pub fn frame(refusal: &Refusal) -> ErrorFrame {
    match *refusal {
        Refusal::Conflict { stream_index, expected, next } => {
            ErrorFrame::conflict(stream_index, expected, next)
        }
        Refusal::Fenced { stream_index, given, highest } => {
            ErrorFrame::new(ErrorCode::Fenced).numbers(given, highest).stream(stream_index)
        }
        Refusal::Busy { retry_after_ms } => {
            ErrorFrame::new(ErrorCode::Busy).retry_after_ms(retry_after_ms)
        }
        Refusal::KeyReused => ErrorFrame::new(ErrorCode::KeyReused),
        Refusal::CrossShard { stream_index, first, other } => {
            let (first, other) = (u64::from(first.0), u64::from(other.0));
            ErrorFrame::new(ErrorCode::CrossShard).numbers(first, other).stream(stream_index)
        }
        Refusal::DiskFull => ErrorFrame::new(ErrorCode::DiskFull),
        Refusal::ShuttingDown => ErrorFrame::new(ErrorCode::ShuttingDown),
        Refusal::NotLeader => ErrorFrame::new(ErrorCode::NotLeader),
        Refusal::Unknown => ErrorFrame::new(ErrorCode::Unknown),
        Refusal::Damaged => ErrorFrame::new(ErrorCode::Damaged),
        Refusal::TooLarge { size, limit } => {
            ErrorFrame::new(ErrorCode::TooLarge).numbers(size, limit)
        }
    }
}

/// Code and numbers of a request that could not be read.
pub fn bad_request(error: &AppendError) -> ErrorFrame {
    match *error {
        AppendError::EventTooLarge { size, limit }
        | AppendError::AppendTooLarge { size, limit } => {
            ErrorFrame::new(ErrorCode::TooLarge).numbers(size, limit)
        }
        _ => ErrorFrame::new(ErrorCode::BadRequest),
    }
}
