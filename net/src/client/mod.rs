//! The client library, on tokio; a current-thread runtime is enough.
//!
//! A [`Client`] is a cheap handle on background tasks, one per connection. Calls are pipelined;
//! every call ends within a finite deadline. An append is repeated by the library only when it
//! has an idempotency key; without one, an outcome that is not known is said to be
//! [unknown](Error::Unknown). Reads are repeated freely.
//!
//! ```no_run
//! use duolog_net::client::{Client, Error, Event, Expect};
//!
//! # async fn example() -> Result<(), Error> {
//! let client = Client::connect("127.0.0.1:7400").await?;
//! let receipt = client
//!     .append("order-7")
//!     .expect(Expect::NoStream)
//!     .event(Event::new("placed", r#"{"total": 12}"#))
//!     .retry()
//!     .send()
//!     .await?;
//! println!("at revision {}", receipt.streams[0].last);
//!
//! let mut events = client.read("order-7").of_type("placed").limit(10);
//! while let Some(event) = events.next().await? {
//!     println!("{} {} {}", event.revision, event.kind, event.data.len());
//! }
//! # Ok(())
//! # }
//! ```

mod append;
mod builder;
mod call;
mod chance;
mod connection;
mod cursor;
mod dial;
mod error;
mod event;
mod nodes;
mod read;
mod search;
mod subscribe;

use std::sync::Arc;
use std::time::Duration;

pub use append::{AppendCall, Receipt, StreamReceipt};
pub use builder::ClientBuilder;
pub use cursor::Cursor;
pub use dial::ServerInfo;
pub use duolog_engine::append::Expect;
pub use duolog_engine::ids::{
    ClusterId, Hlc, LeaseEpoch, Lsn, NodeId, Revision, ShardId, StreamId,
};
pub use error::{Error, Remedy};
pub use event::{Event, RecordedEvent};
pub use read::{LogPage, LogRead, StreamPage, StreamRead};
pub use subscribe::{
    Bookmark, Delivered, Delivery, NoBookmark, Start, SubscribeCall, Subscription,
};
pub use uuid::Uuid;

pub use crate::wire::{Consistency, Copies, LogTail, NodeRole, Position, StreamTail};

use call::{Lane, Purpose, Request};
use subscribe::Topic;

use crate::limits::{ADMIN_ANSWER_MAX_BYTES, CALL_DEADLINE_MS_MAX};
use crate::wire::FrameKind;

#[derive(Debug)]
struct Inner {
    /// To the node that leads. Never empty.
    lanes: Vec<Lane>,
    /// To any node.
    anyone: Lane,
    deadline: Duration,
}

/// A handle on a server. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

impl Client {
    /// Connects with default options; see [`ClientBuilder::addresses`] for the form of the list.
    ///
    /// # Errors
    /// See [`ClientBuilder::connect`].
    pub async fn connect(addresses: &str) -> Result<Self, Error> {
        Self::builder().addresses(addresses).connect().await
    }

    /// Options before connecting.
    pub const fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    /// Begins an append to `stream` (1..=255 bytes of UTF-8).
    pub fn append(&self, stream: impl Into<String>) -> AppendCall {
        AppendCall::new(self.clone(), stream.into())
    }

    /// Begins a read of `stream`: all its events forwards, unless told otherwise.
    #[must_use]
    pub fn read(&self, stream: impl Into<String>) -> StreamRead {
        StreamRead::new(self.clone(), stream.into())
    }

    /// Begins a read of a shard's log from an LSN, inclusive; 1 is the beginning.
    #[must_use]
    pub fn read_log(&self, shard: ShardId, from: Lsn) -> LogRead {
        LogRead::new(self.clone(), shard, from)
    }

    /// Begins a subscription to the events of one stream, those that are there and those to come.
    pub fn subscribe(&self, stream: impl Into<String>) -> SubscribeCall {
        SubscribeCall::new(self, Topic::Stream(stream.into()))
    }

    /// Begins a subscription to the events of all streams, in an order that is the same on both
    /// nodes and every time, and in which every event lies behind those that anybody could have
    /// seen before it was appended.
    pub fn subscribe_all(&self) -> SubscribeCall {
        SubscribeCall::new(self, Topic::All { prefix: String::new() })
    }

    /// The same of the streams whose names begin with `prefix`.
    pub fn subscribe_prefix(&self, prefix: impl Into<String>) -> SubscribeCall {
        SubscribeCall::new(self, Topic::All { prefix: prefix.into() })
    }

    /// Begins a subscription to the events of one shard, in the order of its log.
    pub fn subscribe_shard(&self, shard: ShardId) -> SubscribeCall {
        SubscribeCall::new(self, Topic::Shard(shard))
    }

    /// Asks the server for a sign of life.
    ///
    /// # Errors
    /// [`Error::Connect`] or [`Error::Deadline`] when there is none.
    pub async fn ping(&self) -> Result<(), Error> {
        let request = Request {
            kind: FrameKind::Ping,
            expected: FrameKind::Pong,
            body: Arc::default(),
            cost_bytes: 0,
            purpose: Purpose::Read,
        };
        self.lane(&[]).call(&request, self.inner.deadline).await.map(drop)
    }

    /// Sends an operator's request (WIRE.md, "Admin") to the node that leads, once: the answer, in
    /// JSON.
    ///
    /// # Errors
    /// [`Error::CommandUnknown`] when the answer was lost; see [`Error`].
    pub async fn command(&self, json: &str) -> Result<String, Error> {
        self.admin(json, Purpose::Command, self.lane(&[])).await
    }

    /// Asks any node that answers about itself: its status, in JSON (OPERATIONS.md, "Status").
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn status(&self) -> Result<String, Error> {
        self.admin(r#"{"command":"status"}"#, Purpose::Read, &self.inner.anyone).await
    }

    /// Sends an operator's request that changes nothing to any node that answers: the answer, in
    /// JSON.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn ask(&self, json: &str) -> Result<String, Error> {
        self.admin(json, Purpose::Read, &self.inner.anyone).await
    }

    async fn admin(&self, json: &str, purpose: Purpose, lane: &Lane) -> Result<String, Error> {
        let request = Request {
            kind: FrameKind::Admin,
            expected: FrameKind::AdminAnswer,
            body: Arc::new(json.as_bytes().to_vec()),
            cost_bytes: ADMIN_ANSWER_MAX_BYTES,
            purpose,
        };
        let answer = lane.call(&request, self.inner.deadline).await?;
        let wrong = |_| Error::Protocol { text: "the server's answer is not UTF-8".to_owned() };
        String::from_utf8(answer.body).map_err(wrong)
    }

    /// What the server reached last said about itself.
    #[must_use]
    pub fn server(&self) -> ServerInfo {
        self.lane(&[]).status.borrow().info.clone()
    }

    /// The nodes as far as they are known.
    fn nodes(&self) -> &nodes::Nodes {
        &self.lane(&[]).nodes
    }

    /// Largest request that the server takes, bytes.
    fn request_max_bytes(&self) -> usize {
        self.lane(&[]).status.borrow().info.frame_body_max_bytes
    }

    fn deadline(&self) -> Duration {
        self.inner.deadline
    }

    /// The connection for a read about `subject`: to any node, if that is fresh enough.
    fn read_lane(&self, subject: &[u8], consistency: Consistency) -> &Lane {
        match consistency {
            // There is no other node to go to.
            _ if self.lane(&[]).status.borrow().info.role == NodeRole::Standalone => {
                self.lane(subject)
            }
            Consistency::Linearizable | Consistency::Confirmed => self.lane(subject),
            Consistency::Any => &self.inner.anyone,
        }
    }

    /// The connection for calls about `subject`: always the same one.
    fn lane(&self, subject: &[u8]) -> &Lane {
        let count = self.inner.lanes.len();
        let index = if count == 1 { 0 } else { StreamId::of(subject).0 as usize % count };
        &self.inner.lanes[index]
    }
}

/// A time limit that is none would wait for ever; zero would never send.
fn bounded(limit: Duration) -> Duration {
    limit.clamp(Duration::from_millis(1), Duration::from_millis(CALL_DEADLINE_MS_MAX))
}
