//! An append, put together call by call, and its receipt.

use std::sync::Arc;
use std::time::Duration;

use duolog_engine::append::{AppendBuilder, AppendError, AppendView, Expect};
use duolog_engine::ids::{Hlc, IdempotencyKey, LeaseEpoch, Lsn, Revision, ShardId};
use duolog_engine::limits::APPEND_OVERHEAD_MAX_BYTES;
use uuid::Uuid;

use super::Client;
use super::call::{Purpose, Request};
use super::chance::{derived_id, random_uuid};
use super::error::Error;
use super::event::Event;
use crate::wire::{AppendedView, Copies, FrameKind};

#[derive(Clone, Debug)]
struct StreamPart {
    name: String,
    expect: Expect,
    events: Vec<Event>,
}

/// An append about to be sent. Conditions and events apply to the stream named last.
#[derive(Clone, Debug)]
#[must_use = "nothing is appended before send() is awaited"]
pub struct AppendCall {
    client: Client,
    /// Never empty.
    streams: Vec<StreamPart>,
    key: Option<Uuid>,
    fencing_token: Option<u64>,
    deadline: Duration,
}

impl AppendCall {
    pub(super) fn new(client: Client, stream: String) -> Self {
        let deadline = client.deadline();
        let call = Self { client, streams: Vec::new(), key: None, fencing_token: None, deadline };
        call.and_stream(stream)
    }

    /// Names a further stream of the same append: all of them get their events, or none. They must
    /// live in one shard (give them one routing key in braces). Without events the stream is only
    /// checked. At most 256 streams; each is named once.
    pub fn and_stream(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.streams.push(StreamPart { name, expect: Expect::Any, events: Vec::new() });
        self
    }

    fn last(&mut self) -> &mut StreamPart {
        self.streams.last_mut().expect("new() names the first stream")
    }

    /// What the stream must look like, else [`Error::Conflict`]. Default: [`Expect::Any`].
    pub fn expect(mut self, expect: Expect) -> Self {
        self.last().expect = expect;
        self
    }

    /// Adds an event.
    pub fn event(mut self, event: Event) -> Self {
        self.last().events.push(event);
        self
    }

    /// Adds events in order. At most 65,536 in one append.
    pub fn events(mut self, events: impl IntoIterator<Item = Event>) -> Self {
        self.last().events.extend(events);
        self
    }

    /// Names the append, so that it happens at most once however often it is sent; the library
    /// repeats it by itself then, within the deadline, when the server is busy or stopping, the
    /// lead moves or the connection is lost. Every append needs a key of its own.
    pub const fn idempotency_key(mut self, key: Uuid) -> Self {
        self.key = Some(key);
        self
    }

    /// [`AppendCall::idempotency_key`] with a random key.
    pub fn retry(self) -> Self {
        self.idempotency_key(random_uuid())
    }

    /// Refuses the append with [`Error::Fenced`] when any of its streams has seen a higher token.
    pub const fn fencing_token(mut self, token: u64) -> Self {
        self.fencing_token = Some(token);
        self
    }

    /// How long this call may take, retries included, instead of the client's deadline. At most a
    /// day.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = super::bounded(deadline);
        self
    }

    /// Sends the append and waits until it is durable.
    ///
    /// # Errors
    /// See [`Error`]. Without a key, a lost connection or a passed deadline is
    /// [`Error::Unknown`]: the append may have happened. A node that does not lead refuses for
    /// certain: then the library goes to the one that does, key or not. An append that was
    /// refused or repeated on the way may come behind one that was started later.
    pub async fn send(self) -> Result<Receipt, Error> {
        let limit = self.client.request_max_bytes();
        let body = self.encode(limit).map_err(refused_here)?;
        let request = Request {
            kind: FrameKind::Append,
            expected: FrameKind::Appended,
            cost_bytes: body.len(),
            body: Arc::new(body),
            purpose: Purpose::Append { key: self.key },
        };
        let lane = self.client.lane(self.streams[0].name.as_bytes());
        let answer = lane.call(&request, self.deadline).await?;
        self.receipt(&answer.body)
    }

    fn encode(&self, frame_body_max_bytes: usize) -> Result<Vec<u8>, AppendError> {
        let mut append = AppendBuilder::new();
        if let Some(key) = self.key {
            append.key(IdempotencyKey(key.as_u128()));
        }
        if let Some(token) = self.fencing_token {
            append.fencing_token(token);
        }
        let mut index = 0;
        for part in &self.streams {
            append.stream(&part.name, part.expect)?;
            for event in &part.events {
                let id = event.id.unwrap_or_else(|| match self.key {
                    Some(key) => derived_id(key, index),
                    None => random_uuid(),
                });
                append.event(id.as_u128(), &event.kind, &event.metadata, &event.data)?;
                index += 1;
            }
        }
        let mut body = Vec::new();
        append.encode(&mut body);
        // The server's own check, before anything is sent.
        let event_max_bytes = frame_body_max_bytes.saturating_sub(APPEND_OVERHEAD_MAX_BYTES);
        AppendView::parse(&body, event_max_bytes)?;
        Ok(body)
    }

    fn receipt(&self, body: &[u8]) -> Result<Receipt, Error> {
        let wrong = |text: String| Error::Unknown { idempotency_key: self.key, text };
        let view = AppendedView::decode(body).map_err(|error| wrong(error.to_string()))?;
        let with_events = || self.streams.iter().filter(|part| !part.events.is_empty());
        let fits = view.spans().len() == with_events().count()
            && view
                .spans()
                .zip(with_events())
                .all(|(span, part)| span.event_count as usize == part.events.len());
        if !fits {
            return Err(wrong("the receipt does not fit the append".to_owned()));
        }
        let streams = with_events().zip(view.spans()).map(|(part, span)| StreamReceipt {
            stream: part.name.clone(),
            first: span.first,
            last: span.last(),
        });
        let head = view.head;
        Ok(Receipt {
            streams: streams.collect(),
            first_lsn: head.first_lsn,
            last_lsn: head.last_lsn,
            hlc: head.hlc,
            epoch: head.epoch,
            shard: head.shard,
            copies: head.copies,
            replayed: head.replayed,
        })
    }
}

fn refused_here(error: AppendError) -> Error {
    let text = error.to_string();
    match error {
        AppendError::EventTooLarge { size, limit }
        | AppendError::AppendTooLarge { size, limit } => Error::TooLarge { size, limit, text },
        _ => Error::BadRequest { text },
    }
}

/// What one stream got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamReceipt {
    /// The stream.
    pub stream: String,
    /// Revision of its first event in this append.
    pub first: Revision,
    /// Revision of its last event in this append: what the next append can expect.
    pub last: Revision,
}

/// Proof of an append: durable, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The streams with events, in the append's order; at least one.
    pub streams: Vec<StreamReceipt>,
    /// Position of the first event in the shard's log.
    pub first_lsn: Lsn,
    /// Position of the last event in the shard's log.
    pub last_lsn: Lsn,
    /// Hybrid logical clock stamp of its events.
    pub hlc: Hlc,
    /// 0 on a standalone node.
    pub epoch: LeaseEpoch,
    /// The shard.
    pub shard: ShardId,
    /// Where the events are stored.
    pub copies: Copies,
    /// True: an earlier append with this key had been done; this is its receipt.
    pub replayed: bool,
}

impl Receipt {
    /// What a next append to the first stream can expect: nothing has come in between.
    #[must_use]
    pub fn next_expect(&self) -> Expect {
        self.streams.first().map_or(Expect::Any, |stream| Expect::Exact(stream.last))
    }
}
