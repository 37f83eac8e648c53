//! One call: attempts until there is a result, a refusal that stands, or no time left.
//!
//! The rule that everything here serves: an append that may have reached a server is reported as
//! refused only when the refusal also holds for that earlier attempt; else its outcome is unknown.

use std::sync::Arc;
use std::time::Duration;

use duolog_engine::append::{AppendView, Expect};
use duolog_engine::ids::{Lsn, ShardId};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::chance::Backoff;
use super::connection::{Answer, Claim, Outcome, Outgoing, Status};
use super::error::Error;
use super::nodes::Nodes;
use super::search::{Aim, Down};
use crate::wire::{ErrorCode, ErrorView, FrameKind};

/// What a call is for; decides what may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Changes nothing: repeated freely.
    Read,
    /// Repeated only with a key, or when nothing was done for certain.
    Append { key: Option<Uuid> },
    /// An operator's: repeated only when nothing was done for certain.
    Command,
}

/// A request, independent of connections.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) kind: FrameKind,
    pub(super) expected: FrameKind,
    pub(super) body: Arc<Vec<u8>>,
    pub(super) cost_bytes: usize,
    pub(super) purpose: Purpose,
}

/// The way to one connection's task.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) queue: mpsc::Sender<Outgoing>,
    pub(super) status: watch::Receiver<Status>,
    pub(super) nodes: Nodes,
    pub(super) aim: Aim,
}

impl Lane {
    /// Makes the call. `deadline` covers all attempts.
    pub(super) async fn call(
        &self,
        request: &Request,
        deadline: Duration,
    ) -> Result<Answer, Error> {
        let ends_at = Instant::now() + deadline;
        let mut backoff = Backoff::new();
        let mut maybe_done = false;
        let mut redirected = false;
        loop {
            let error = match self.attempt(request, ends_at, deadline).await {
                Ok(answer) if answer.kind == request.expected => return Ok(answer),
                Ok(answer) => request.refusal(&answer),
                Err(error) => error,
            };
            maybe_done |= matches!(error, Error::Unknown { .. });
            let error = if maybe_done { request.after_unknown(error) } else { error };
            let pause = match &error {
                Error::Busy { retry_after, .. } => backoff.pause().max(*retry_after),
                // The way to the leader is known; a second time somebody is mistaken.
                Error::NotLeader { leader: Some(_), .. } if !redirected => {
                    redirected = true;
                    Duration::ZERO
                }
                _ => backoff.pause(),
            };
            if !self.may_repeat(request, &error) || Instant::now() + pause >= ends_at {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn attempt(
        &self,
        request: &Request,
        ends_at: Instant,
        deadline: Duration,
    ) -> Result<Answer, Error> {
        let (reply, outcome) = oneshot::channel();
        let claim = Arc::new(Claim::default());
        let outgoing = Outgoing {
            kind: request.kind,
            body: Arc::clone(&request.body),
            cost_bytes: request.cost_bytes,
            claim: Arc::clone(&claim),
            reply,
        };
        match timeout_at(ends_at, self.queue.send(outgoing)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(self.ended()),
            Err(_) => return Err(self.never_sent(deadline)),
        }
        match timeout_at(ends_at, outcome).await {
            Ok(Ok(Outcome::Answered(answer))) => Ok(answer),
            Ok(Ok(Outcome::Lost(text))) => Err(self.lost(request, text)),
            Ok(Ok(Outcome::Garbage(text))) => Err(request.garbled(text)),
            Ok(Ok(Outcome::TooLarge { size, limit })) => {
                let text = format!("request of {size} bytes is over the server's limit of {limit}");
                Err(Error::TooLarge { size: size as u64, limit: limit as u64, text })
            }
            Ok(Err(_)) if claim.abandon() => Err(self.ended()),
            Ok(Err(_)) => Err(self.lost(request, "the client's runtime ended".to_owned())),
            Err(_) if claim.abandon() => Err(self.never_sent(deadline)),
            Err(_) => {
                let text = format!("no answer within {} ms", deadline.as_millis());
                Err(request.unknown(text).unwrap_or_else(|| Error::Deadline {
                    deadline,
                    text: "the request was sent".to_owned(),
                }))
            }
        }
    }

    fn lost(&self, request: &Request, text: String) -> Error {
        request.unknown(text.clone()).unwrap_or_else(|| self.unconnected(text))
    }

    fn unconnected(&self, text: String) -> Error {
        Error::Connect { addresses: self.nodes.addresses.join(","), text }
    }

    fn may_repeat(&self, request: &Request, error: &Error) -> bool {
        // Who stays where it is has to hear that another node leads.
        if self.aim == Aim::This && matches!(error, Error::NotLeader { .. }) {
            return false;
        }
        // With a single address, whoever stops the server is to be told at once.
        let stopping = matches!(error, Error::ShuttingDown { .. });
        let elsewhere = !stopping || self.nodes.addresses.len() > 1;
        request.may_repeat_after(error) && (elsewhere || request.is_repeatable())
    }

    fn ended(&self) -> Error {
        self.unconnected("the runtime that the client was made in has ended".to_owned())
    }

    fn never_sent(&self, deadline: Duration) -> Error {
        match self.status.borrow().down.clone() {
            Some(Down::Unreachable(error)) => error,
            Some(Down::NoLeader(text)) => {
                let leader = self.nodes.known().leader.map(|leader| leader.to_string());
                Error::NotLeader { leader, text: format!("no node leads ({text})") }
            }
            Some(Down::Ended(text)) => self.unconnected(text),
            None => Error::Deadline {
                deadline,
                text: "the request was not sent: those before it were not answered".to_owned(),
            },
        }
    }
}

impl Request {
    /// "Unknown", if that can be: a read changes nothing.
    fn unknown(&self, text: String) -> Option<Error> {
        match self.purpose {
            Purpose::Read => None,
            Purpose::Append { key } => Some(Error::Unknown { idempotency_key: key, text }),
            Purpose::Command => Some(Error::CommandUnknown { text }),
        }
    }

    fn garbled(&self, text: String) -> Error {
        self.unknown(text.clone()).unwrap_or(Error::Protocol { text })
    }

    /// Whether doing it twice is the same as doing it once.
    const fn is_repeatable(&self) -> bool {
        match self.purpose {
            Purpose::Read => true,
            Purpose::Append { key } => key.is_some(),
            Purpose::Command => false,
        }
    }

    const fn may_repeat_after(&self, error: &Error) -> bool {
        match error {
            // Nothing was done, and another node may do it.
            Error::NotLeader { .. } | Error::ShuttingDown { .. } => true,
            Error::Busy { .. } | Error::Unknown { .. } | Error::Connect { .. } => {
                self.is_repeatable()
            }
            _ => false,
        }
    }

    /// What a refusal means after an earlier attempt that may have been done, or may still be.
    fn after_unknown(&self, error: Error) -> Error {
        let holds_for_both = match &error {
            Error::Unknown { .. }
            | Error::Fenced { .. }
            | Error::KeyReused { .. }
            | Error::CrossShard { .. }
            | Error::TooLarge { .. }
            | Error::BadRequest { .. } => true,
            // The server knows the key before it looks at the stream, and streams only grow. Only
            // "stream exists" can fail now and hold when the earlier attempt arrives.
            Error::Conflict { expected, .. } => *expected != Expect::StreamExists,
            _ => false,
        };
        if holds_for_both {
            return error;
        }
        self.unknown(format!("an attempt was lost, then: {error}")).unwrap_or(error)
    }

    /// The error that a frame of another kind than expected stands for.
    fn refusal(&self, answer: &Answer) -> Error {
        if answer.kind != FrameKind::Error {
            let (got, expected) = (answer.kind, self.expected);
            return self.garbled(format!("the server answered {got:?} instead of {expected:?}"));
        }
        let view = match ErrorView::decode(&answer.body) {
            Ok(view) => view,
            Err(error) => return self.garbled(format!("the server's error: {error}")),
        };
        let text = view.text.to_owned();
        let key = match self.purpose {
            Purpose::Append { key } => key,
            Purpose::Read | Purpose::Command => None,
        };
        let Some(code) = view.code() else {
            let text = format!("error {} of a later version: {text}", view.code_number);
            return self.garbled(text);
        };
        match code {
            ErrorCode::BadFrame | ErrorCode::UnsupportedVersion => Error::Protocol { text },
            ErrorCode::BadRequest => Error::BadRequest { text },
            ErrorCode::TooLarge => Error::TooLarge { size: view.a, limit: view.b, text },
            ErrorCode::Conflict => {
                let (expected, actual) = view.conflict();
                Error::Conflict { stream: self.stream_name(&view), expected, actual }
            }
            ErrorCode::Fenced => {
                Error::Fenced { stream: self.stream_name(&view), given: view.a, highest: view.b }
            }
            ErrorCode::Busy => {
                let retry_after = Duration::from_millis(view.retry_after_ms.into());
                Error::Busy { retry_after, text }
            }
            ErrorCode::KeyReused => Error::KeyReused { idempotency_key: key, text },
            ErrorCode::CrossShard => {
                let shard = |number: u64| ShardId(u32::try_from(number).unwrap_or(u32::MAX));
                Error::CrossShard { first: shard(view.a), other: shard(view.b), text }
            }
            ErrorCode::DiskFull => Error::DiskFull { text },
            ErrorCode::Unknown => self.garbled(text),
            ErrorCode::ShuttingDown => Error::ShuttingDown { text },
            ErrorCode::Damaged => Error::Damaged { first: Lsn(view.a), last: Lsn(view.b), text },
            ErrorCode::NotLeader => {
                let leader = (!view.leader.is_empty()).then(|| view.leader.to_owned());
                Error::NotLeader { leader, text }
            }
            ErrorCode::Refused => Error::Refused { text },
            ErrorCode::CutOff => Error::CutOff { text },
        }
    }

    /// The stream that an error names by its index.
    fn stream_name(&self, view: &ErrorView<'_>) -> String {
        let index = usize::from(view.stream_index.unwrap_or(0));
        let parsed = AppendView::parse(&self.body, self.body.len());
        let name = parsed.ok().and_then(|append| append.streams().nth(index));
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        name.map(|stream| text(stream.name)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use duolog_engine::ids::Revision;

    use super::*;

    fn append(key: Option<Uuid>) -> Request {
        Request {
            kind: FrameKind::Append,
            expected: FrameKind::Appended,
            body: Arc::new(Vec::new()),
            cost_bytes: 0,
            purpose: Purpose::Append { key },
        }
    }

    fn conflict(expected: Expect) -> Error {
        Error::Conflict { stream: "s".to_owned(), expected, actual: None }
    }

    #[test]
    fn a_refusal_never_hides_an_earlier_attempt_that_may_have_been_done() {
        let request = append(Some(Uuid::nil()));
        let text = String::new;
        let passing = [
            Error::Busy { retry_after: Duration::ZERO, text: text() },
            Error::DiskFull { text: text() },
            Error::ShuttingDown { text: text() },
            Error::NotLeader { leader: None, text: text() },
            Error::Connect { addresses: text(), text: text() },
            Error::Deadline { deadline: Duration::ZERO, text: text() },
            Error::Protocol { text: text() },
            conflict(Expect::StreamExists),
        ];
        for error in passing {
            let judged = request.after_unknown(error);
            assert!(matches!(judged, Error::Unknown { idempotency_key: Some(_), .. }));
        }
        let standing = [
            conflict(Expect::NoStream),
            conflict(Expect::Exact(Revision(3))),
            Error::Fenced { stream: text(), given: 1, highest: 2 },
            Error::BadRequest { text: text() },
        ];
        for error in standing {
            assert_eq!(request.after_unknown(error.clone()), error);
        }
    }

    #[test]
    fn only_passing_errors_are_repeated_and_appends_only_with_a_key() {
        let busy = Error::Busy { retry_after: Duration::ZERO, text: String::new() };
        let full = Error::DiskFull { text: String::new() };
        assert!(append(Some(Uuid::nil())).may_repeat_after(&busy));
        assert!(!append(Some(Uuid::nil())).may_repeat_after(&full));
        assert!(!append(None).may_repeat_after(&busy));
        let elsewhere = Error::NotLeader { leader: None, text: String::new() };
        assert!(append(None).may_repeat_after(&elsewhere), "nothing was done");
        let command = Request { purpose: Purpose::Command, ..append(None) };
        assert!(command.may_repeat_after(&elsewhere) && !command.may_repeat_after(&busy));
        let read = Request { purpose: Purpose::Read, ..append(None) };
        assert!(read.may_repeat_after(&busy));
        assert!(!read.may_repeat_after(&conflict(Expect::NoStream)));
    }
}
