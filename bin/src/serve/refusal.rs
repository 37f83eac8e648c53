//! What the shard machine refuses, in words that say what to do. Codes and numbers are the wire's.

use std::fmt;

use duolog_engine::append::Expect;
use duolog_engine::ids::Revision;
use duolog_engine::shard::Refusal;

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
