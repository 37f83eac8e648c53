//! Subscriptions: events that are there, then events to come, without a gap and without a
//! duplicate, over failovers too.

mod bookmark;
mod feed;
mod merge;

use std::sync::Arc;

use duolog_engine::ids::{Lsn, Revision, ShardId};
use duolog_engine::route::shard_of;
use tokio::sync::mpsc;

pub use bookmark::{Bookmark, NoBookmark};
use feed::{Feed, News, Wanted, Words};
use merge::{Merge, Step};

use super::Client;
use super::error::Error;
use super::event::RecordedEvent;
use super::search::{Aim, Search};
use crate::wire::{Origin, Position};

/// Pieces that wait for the subscriber, for each shard; the window bounds their bytes.
const PIECES_MAX: usize = 4;

/// What a subscription is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    Stream(String),
    Shard(ShardId),
    All { prefix: String },
}

/// Where a subscription begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With the first event there is.
    #[default]
    Beginning,
    /// With the first event that is committed after the subscription has begun.
    End,
    /// With the event that has this number: a stream's revision or a shard's LSN. Not for
    /// subscriptions to several shards.
    At(u64),
    /// Behind this event, of a subscription to the same.
    After(Bookmark),
}

/// A subscription in the making.
#[derive(Clone, Debug)]
#[must_use = "open() begins the subscription"]
pub struct SubscribeCall {
    client: Client,
    topic: Topic,
    start: Start,
    kind: Option<String>,
    system: bool,
    aim: Aim,
    window_bytes: u32,
}

impl SubscribeCall {
    pub(super) fn new(client: &Client, topic: Topic) -> Self {
        Self {
            client: client.clone(),
            topic,
            start: Start::Beginning,
            kind: None,
            system: false,
            aim: Aim::Leader,
            window_bytes: 0,
        }
    }

    /// Where to begin. Default: with the first event there is.
    pub const fn from(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Only events of this type (1..=255 bytes).
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// Also events of Duolog's own streams, whose names begin with `$duolog.`: cursors and marks of
    /// imports. A subscription to one such stream needs no leave.
    pub const fn with_system(mut self) -> Self {
        self.system = true;
        self
    }

    /// From any node that answers instead of the one that leads. A follower has an event some
    /// hundred microseconds later; a subscription to several shards may wait there up to 100 ms for
    /// one of them that is idle.
    pub const fn any_node(mut self) -> Self {
        self.aim = Aim::Anyone;
        self
    }

    /// Bytes of events that each shard may send ahead of what [`Subscription::next`] has given out,
    /// 16 KiB to 64 MiB. Default: 1 MiB.
    pub const fn window(mut self, bytes: u32) -> Self {
        self.window_bytes = bytes;
        self
    }

    /// Begins. Connections are made by tasks of the runtime, one for each shard that has events of
    /// the topic, and made again when they are lost.
    ///
    /// # Errors
    /// [`Error::BadRequest`] when the start does not fit the topic or there is no such shard.
    pub fn open(self) -> Result<Subscription, Error> {
        let info = self.client.server();
        let wrong = |text: &str| Err(Error::BadRequest { text: text.to_owned() });
        let (shards, name, log) = match &self.topic {
            Topic::Stream(name) if name.is_empty() || name.len() > 255 => {
                return wrong("stream names are 1 to 255 bytes");
            }
            Topic::Stream(name) => {
                (vec![shard_of(name.as_bytes(), info.shard_count)], name.as_str(), None)
            }
            Topic::Shard(shard) if shard.0 >= info.shard_count => {
                return wrong(&format!("there is no shard {shard}"));
            }
            Topic::Shard(shard) => (vec![*shard], "", Some(self.system)),
            Topic::All { prefix } if prefix.len() > 255 => {
                return wrong("a prefix of stream names has at most 255 bytes");
            }
            Topic::All { prefix } => {
                ((0..info.shard_count).map(ShardId).collect(), prefix.as_str(), Some(self.system))
            }
        };
        let origin = self.origin()?;
        let nodes = self.client.nodes();
        let (out, news) = mpsc::channel(PIECES_MAX * shards.len());
        let mut words = Vec::new();
        for (index, shard) in shards.iter().enumerate() {
            let said = Arc::new(Words::default());
            words.push(Arc::clone(&said));
            let wanted = Wanted {
                name: name.to_owned(),
                log,
                kind: self.kind.clone(),
                window_bytes: self.window_bytes,
            };
            let search = Search::new(nodes.for_shard(*shard), self.aim);
            let (shard, out) = (*shard, out.clone());
            let feed = Feed { index, shard, wanted, origin, search, words: said, out };
            tokio::spawn(feed.run());
        }
        let merge = Merge::new(shards);
        Ok(Subscription { topic: self.topic, merge, words, news, cut_offs: 0 })
    }

    fn origin(&self) -> Result<Origin, Error> {
        let origin = match (self.start, &self.topic) {
            (Start::Beginning, _) => Some(Origin::From(0)),
            (Start::End, _) => Some(Origin::End),
            (Start::At(number), Topic::Stream(_) | Topic::Shard(_)) => Some(Origin::From(number)),
            (Start::After(Bookmark::Revision(Revision(last))), Topic::Stream(_))
            | (Start::After(Bookmark::Lsn(Lsn(last))), Topic::Shard(_)) => {
                last.checked_add(1).map(Origin::From)
            }
            (Start::After(Bookmark::Position(position)), Topic::All { .. }) => {
                Some(Origin::Behind(position))
            }
            _ => None,
        };
        origin.ok_or_else(|| Error::BadRequest {
            text: format!(
                "a subscription to {} cannot begin at {}",
                self.topic.describe(),
                match self.start {
                    Start::At(number) => format!("number {number}"),
                    Start::After(bookmark) => format!("position {bookmark}"),
                    Start::Beginning | Start::End => "its end".to_owned(),
                }
            ),
        })
    }
}

impl Topic {
    fn describe(&self) -> String {
        match self {
            Self::Stream(name) => format!("stream {name:?}"),
            Self::Shard(shard) => format!("shard {shard}"),
            Self::All { .. } => "several shards".to_owned(),
        }
    }
}

/// What a subscription gives out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The next event.
    Event(Box<Delivered>),
    /// Everything that was there when the subscription had reached the end was given out; what
    /// follows comes as it is committed. Once for each subscription.
    CaughtUp,
}

/// An event and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// It.
    pub event: RecordedEvent,
    /// Its shard.
    pub shard: ShardId,
    /// Where a later subscription to the same goes on: [`Start::After`].
    pub bookmark: Bookmark,
}

/// A subscription that is running. Dropping it ends it.
#[derive(Debug)]
pub struct Subscription {
    topic: Topic,
    merge: Merge,
    words: Vec<Arc<Words>>,
    news: mpsc::Receiver<(usize, News)>,
    cut_offs: u64,
}

impl Subscription {
    /// The next event or notice; waits until there is one. Connections that are lost are made
    /// again meanwhile. Can be dropped and called again.
    ///
    /// # Errors
    /// What no further attempt mends: [`Error::BadRequest`], [`Error::Damaged`],
    /// [`Error::Protocol`]. The subscription is over then.
    pub async fn next(&mut self) -> Result<Delivery, Error> {
        loop {
            match self.merge.next() {
                Step::Event(index, event) => return Ok(self.deliver(index, *event)),
                Step::CaughtUp => return Ok(Delivery::CaughtUp),
                Step::Wait => {}
            }
            for (index, stamp) in self.merge.questions() {
                self.words[index].settle(stamp);
            }
            match self.news.recv().await {
                Some((index, News::Piece(piece))) => self.merge.push(index, piece),
                Some((index, News::Connected)) => self.merge.reconnected(index),
                Some((_, News::CutOff)) => self.cut_offs += 1,
                Some((_, News::Failed(error))) => {
                    self.news.close();
                    return Err(error);
                }
                None => {
                    let text = "the subscription ended with an earlier error".to_owned();
                    return Err(Error::Protocol { text });
                }
            }
        }
    }

    /// How often the server has cut this subscription off because its events were not taken in
    /// time (`limits.subscriber_stall_ms`). It went on where it was each time.
    #[must_use]
    pub const fn cut_offs(&self) -> u64 {
        self.cut_offs
    }

    fn deliver(&mut self, index: usize, event: RecordedEvent) -> Delivery {
        let room = self.merge.room(index);
        if room > 0 {
            self.words[index].take(room);
        }
        let shard = self.merge.shard(index);
        let bookmark = match self.topic {
            Topic::Stream(_) => Bookmark::Revision(event.revision),
            Topic::Shard(_) => Bookmark::Lsn(event.lsn),
            Topic::All { .. } => {
                Bookmark::Position(Position { stamp: event.hlc, shard, lsn: event.lsn })
            }
        };
        Delivery::Event(Box::new(Delivered { event, shard, bookmark }))
    }
}
