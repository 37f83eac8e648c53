//! How a call can end badly, and what its caller can do about it.

use std::time::Duration;

use duolog_engine::append::Expect;
use duolog_engine::ids::{Lsn, Revision, ShardId};
use uuid::Uuid;

/// Why a call has no result. Everything but [`Error::Unknown`] says for certain that nothing was
/// appended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A stream is not as expected.
    #[error(
        "stream {stream:?}: expected {}, but {}: read the stream, then decide again",
        describe(*expected), describe_actual(*actual)
    )]
    Conflict {
        /// The stream.
        stream: String,
        /// What the append expected.
        expected: Expect,
        /// The stream's last revision; `None`: it has no event.
        actual: Option<Revision>,
    },
    /// Somebody with a higher fencing token has appended to the stream.
    #[error(
        "stream {stream:?}: fencing token {given} is below {highest}, the highest seen: another \
         writer has taken over, stop writing"
    )]
    Fenced {
        /// The stream.
        stream: String,
        /// The append's token.
        given: u64,
        /// The stream's token.
        highest: u64,
    },
    /// A limit on requests in flight. Nothing was done.
    #[error("{text}; ask again after {} ms", retry_after.as_millis())]
    Busy {
        /// When to ask again; zero = no promise.
        retry_after: Duration,
        /// Which limit.
        text: String,
    },
    /// The append may have happened or not, and may still happen.
    #[error(
        "it is not known whether the append happened ({text}); {}",
        ask_again(*idempotency_key)
    )]
    Unknown {
        /// The append's key. Sent again with it, the append happens at most once.
        idempotency_key: Option<Uuid>,
        /// What went wrong.
        text: String,
    },
    /// An event or append over the server's limit.
    #[error("{text}: make events smaller or split the append")]
    TooLarge {
        /// Bytes.
        size: u64,
        /// The limit, bytes.
        limit: u64,
        /// What is too large.
        text: String,
    },
    /// The idempotency key came before with another request.
    #[error("{text}")]
    KeyReused {
        /// The key.
        idempotency_key: Option<Uuid>,
        /// As the server says.
        text: String,
    },
    /// Streams of one append live in several shards.
    #[error(
        "the append's streams live in shards {first} and {other}: give their names one routing \
         key in braces, like {{order-7}}.items and {{order-7}}.state ({text})"
    )]
    CrossShard {
        /// Shard of the first stream.
        first: ShardId,
        /// Shard of the stream that differs.
        other: ShardId,
        /// As the server says.
        text: String,
    },
    /// The server's disk is full. Nothing was done; reads go on.
    #[error("{text}: make room on the server's disk")]
    DiskFull {
        /// As the server says.
        text: String,
    },
    /// The server is stopping. Nothing was done.
    #[error("{text}: ask again, or ask another node")]
    ShuttingDown {
        /// As the server says.
        text: String,
    },
    /// Another node leads, or none does at the moment. Nothing was done.
    #[error("{text}: ask the node that leads, or again when one does")]
    NotLeader {
        /// Where clients reach the leader; `None`: nobody said so.
        leader: Option<String>,
        /// As the server says.
        text: String,
    },
    /// The log cannot give these events.
    #[error("{text}")]
    Damaged {
        /// First LSN.
        first: Lsn,
        /// Last LSN.
        last: Lsn,
        /// As the server says.
        text: String,
    },
    /// The server ended a subscription whose reader took nothing for too long.
    #[error("{text}: go on from the position of the last event that was taken")]
    CutOff {
        /// As the server says.
        text: String,
    },
    /// The request is wrong: names, counts, types.
    #[error("{text}")]
    BadRequest {
        /// What is wrong with it.
        text: String,
    },
    /// No connection could be made. Nothing was done.
    #[error("no connection to {addresses} ({text}): is the server running there?")]
    Connect {
        /// The addresses tried, separated by commas.
        addresses: String,
        /// What went wrong.
        text: String,
    },
    /// The time for the call has passed without an answer. Nothing was appended.
    #[error("no answer within {} ms ({text}): ask again, or allow a longer deadline",
        deadline.as_millis())]
    Deadline {
        /// The call's deadline.
        deadline: Duration,
        /// What was waited for.
        text: String,
    },
    /// An operator's command may have been carried out or not.
    #[error("it is not known whether the command was carried out ({text}): see `duolog status`")]
    CommandUnknown {
        /// What went wrong.
        text: String,
    },
    /// An operator's command was refused. Nothing was done.
    #[error("{text}")]
    Refused {
        /// As the server says.
        text: String,
    },
    /// The other side does not speak this protocol, or not this version.
    #[error("{text}: is this a Duolog server of this client's release?")]
    Protocol {
        /// What was wrong.
        text: String,
    },
}

/// What the caller of a failed call can do. Each variant is another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing was done: the same call may succeed after this time.
    Retry {
        /// Zero = no promise; pause a little all the same.
        after: Duration,
    },
    /// Send the same append with the same idempotency key until it is answered.
    RetryWithSameKey,
    /// Read the stream, then decide anew what to append, if anything.
    ReadThenDecide,
    /// Another writer has taken over: stop writing.
    StandDown,
    /// The call can never succeed as it is.
    FixRequest,
    /// Somebody has to look at the server.
    CallOperator,
}

impl Error {
    /// What the caller can do.
    #[must_use]
    pub const fn remedy(&self) -> Remedy {
        match self {
            Self::Busy { retry_after, .. } => Remedy::Retry { after: *retry_after },
            Self::CutOff { .. }
            | Self::ShuttingDown { .. }
            | Self::NotLeader { .. }
            | Self::Connect { .. }
            | Self::Deadline { .. } => Remedy::Retry { after: Duration::ZERO },
            Self::Unknown { idempotency_key: Some(_), .. } => Remedy::RetryWithSameKey,
            Self::Unknown { idempotency_key: None, .. } | Self::Conflict { .. } => {
                Remedy::ReadThenDecide
            }
            Self::Fenced { .. } => Remedy::StandDown,
            Self::TooLarge { .. }
            | Self::KeyReused { .. }
            | Self::CrossShard { .. }
            | Self::BadRequest { .. } => Remedy::FixRequest,
            Self::DiskFull { .. }
            | Self::Damaged { .. }
            | Self::CommandUnknown { .. }
            | Self::Refused { .. }
            | Self::Protocol { .. } => Remedy::CallOperator,
        }
    }

    /// The text alone, for another error that names the address itself.
    pub(super) fn inner_text(&self) -> String {
        match self {
            Self::Connect { text, .. } => text.clone(),
            other => other.to_string(),
        }
    }
}

fn describe(expected: Expect) -> String {
    match expected {
        Expect::Any => "any stream".to_owned(),
        Expect::NoStream => "no event".to_owned(),
        Expect::StreamExists => "at least one event".to_owned(),
        Expect::Exact(revision) => format!("last revision {revision}"),
    }
}

fn describe_actual(actual: Option<Revision>) -> String {
    match actual {
        None => "it has no event".to_owned(),
        Some(revision) => format!("its last revision is {revision}"),
    }
}

const fn ask_again(key: Option<Uuid>) -> &'static str {
    match key {
        Some(_) => "send it again with the same idempotency key",
        None => "read the stream to find out, and give appends an idempotency key",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_say_what_happened_and_what_to_do() {
        let conflict = Error::Conflict {
            stream: "order-1".to_owned(),
            expected: Expect::Exact(Revision(4)),
            actual: Some(Revision(6)),
        };
        assert_eq!(
            conflict.to_string(),
            "stream \"order-1\": expected last revision 4, but its last revision is 6: read the \
             stream, then decide again"
        );
        let unknown = Error::Unknown { idempotency_key: None, text: "connection lost".to_owned() };
        assert_eq!(
            unknown.to_string(),
            "it is not known whether the append happened (connection lost); read the stream to \
             find out, and give appends an idempotency key"
        );
        let shards = Error::CrossShard { first: ShardId(0), other: ShardId(3), text: "x".into() };
        assert!(shards.to_string().contains("{order-7}.items"));
    }

    #[test]
    fn a_key_decides_what_can_be_done_about_an_unknown_outcome() {
        let unknown = |idempotency_key| Error::Unknown { idempotency_key, text: String::new() };
        assert_eq!(unknown(None).remedy(), Remedy::ReadThenDecide);
        assert_eq!(unknown(Some(Uuid::nil())).remedy(), Remedy::RetryWithSameKey);
        let busy = Error::Busy { retry_after: Duration::from_millis(7), text: String::new() };
        assert_eq!(busy.remedy(), Remedy::Retry { after: Duration::from_millis(7) });
    }
}
