//! Reading: pages, and events one by one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use duolog_engine::ids::{Lsn, Revision, ShardId};

use super::Client;
use super::call::{Purpose, Request};
use super::error::Error;
use super::event::RecordedEvent;
use crate::limits::FRAME_HEADER_BYTES;
use crate::wire::{
    Consistency, Direction, FrameKind, LogPage as LogPageView, LogTail, ReadLog, ReadStream,
    RecordsView, StreamPage as StreamPageView, StreamTail,
};

/// A page of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamPage {
    /// The events in the order of reading.
    pub events: Vec<RecordedEvent>,
    /// Where to go on, and what was known then.
    pub tail: StreamTail,
}

/// A page of a shard's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPage {
    /// The events in the order of the log.
    pub events: Vec<RecordedEvent>,
    /// Where to go on, and what was known then.
    pub tail: LogTail,
}

fn wrong(text: impl std::fmt::Display) -> Error {
    Error::Protocol { text: format!("the server's page: {text}") }
}

fn owned(records: RecordsView<'_>) -> Result<Vec<RecordedEvent>, Error> {
    records.map(|record| record.map(RecordedEvent::from).map_err(wrong)).collect()
}

/// A read of a stream. [`StreamRead::page`] gets one page; [`StreamRead::next`] walks over all
/// events and fetches pages as needed.
#[derive(Clone, Debug)]
pub struct StreamRead {
    client: Client,
    stream: String,
    kind: Option<String>,
    from: Option<Revision>,
    direction: Direction,
    consistency: Consistency,
    page_bytes: u32,
    deadline: Duration,
    left: u64,
    fetched: VecDeque<RecordedEvent>,
    ended: bool,
}

impl StreamRead {
    pub(super) fn new(client: Client, stream: String) -> Self {
        let deadline = client.deadline();
        Self {
            client,
            stream,
            kind: None,
            from: None,
            direction: Direction::Forwards,
            consistency: Consistency::Linearizable,
            page_bytes: 0,
            deadline,
            left: u64::MAX,
            fetched: VecDeque::new(),
            ended: false,
        }
    }

    /// The first revision to read, inclusive. Default: the stream's first event, or backwards its
    /// last.
    #[must_use]
    pub const fn from(mut self, revision: Revision) -> Self {
        self.from = Some(revision);
        self
    }

    /// Towards revision 0.
    #[must_use]
    pub const fn backwards(mut self) -> Self {
        self.direction = Direction::Backwards;
        self
    }

    /// Only events of this type.
    #[must_use]
    pub fn of_type(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// At most so many events in all.
    #[must_use]
    pub const fn limit(mut self, events: u64) -> Self {
        self.left = events;
        self
    }

    /// Bytes of records in one page at most: 4 MiB; 0 = 1 MiB. A larger event still comes alone.
    #[must_use]
    pub const fn page_bytes(mut self, bytes: u32) -> Self {
        self.page_bytes = bytes;
        self
    }

    /// Takes whatever a node has committed, be it the leader or not, without proof that it is the
    /// latest. Pages of one read may come from different nodes.
    #[must_use]
    pub const fn any_consistency(self) -> Self {
        self.consistency(Consistency::Any)
    }

    /// Asks the leader for proof that it leads, taken after the request came: its follower says so,
    /// or the bucket. Without this its lease is the proof, which is as good as the clocks' drift
    /// bound. Costs a round trip to the other node.
    #[must_use]
    pub const fn confirmed(self) -> Self {
        self.consistency(Consistency::Confirmed)
    }

    /// How fresh the pages have to be; linearizable if nothing is said.
    #[must_use]
    pub const fn consistency(mut self, consistency: Consistency) -> Self {
        self.consistency = consistency;
        self
    }

    /// How long fetching one page may take, retries included, instead of the client's deadline.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = super::bounded(deadline);
        self
    }

    fn start(&self) -> Revision {
        self.from.unwrap_or(match self.direction {
            Direction::Forwards => Revision(0),
            Direction::Backwards => ReadStream::END,
        })
    }

    /// The page at the current position. It may have fewer events than fit, even none, without
    /// being the end: a filter by type looks at a bounded number of events per page.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn page(&self) -> Result<StreamPage, Error> {
        let read = ReadStream {
            from: self.start(),
            events_max: u32::try_from(self.left).unwrap_or(0),
            bytes_max: self.page_bytes,
            direction: self.direction,
            consistency: self.consistency,
            stream: &self.stream,
            kind: self.kind.as_deref(),
        };
        let mut frame = Vec::new();
        read.encode(&mut frame, 0)
            .map_err(|error| Error::BadRequest { text: error.to_string() })?;
        let request = Request {
            kind: FrameKind::ReadStream,
            expected: FrameKind::StreamPage,
            body: Arc::new(frame.split_off(FRAME_HEADER_BYTES)),
            cost_bytes: read.page_bytes() as usize,
            purpose: Purpose::Read,
        };
        let lane = self.client.read_lane(self.stream.as_bytes(), self.consistency);
        let answer = lane.call(&request, self.deadline).await?;
        let page = StreamPageView::decode(&answer.body).map_err(wrong)?;
        let page = StreamPage { events: owned(page.records)?, tail: page.tail };
        self.check(&page)?;
        Ok(page)
    }

    /// A server's slip must not turn into a silent gap or an endless loop here.
    fn check(&self, page: &StreamPage) -> Result<(), Error> {
        let rank = |revision: Revision| match self.direction {
            Direction::Forwards => revision.0,
            Direction::Backwards => u64::MAX - revision.0,
        };
        let (start, mut next) = (rank(self.start()), rank(self.start()));
        for (index, event) in page.events.iter().enumerate() {
            let (stream, revision) = (&event.stream, event.revision);
            let gapless = index == 0 || self.kind.is_some() || rank(revision) == next;
            if *stream != self.stream || rank(revision) < next || !gapless {
                return Err(wrong(format!("{stream:?} {revision} is out of place")));
            }
            next = rank(revision).saturating_add(1);
        }
        let told = rank(page.tail.next);
        if !page.tail.end && (told <= start || told < next) {
            return Err(wrong(format!("it leads back to revision {}", page.tail.next)));
        }
        Ok(())
    }

    /// The next event, `None` at the end or the limit. At the end, asking again looks for new
    /// events: a reader that follows a stream pauses and calls it again.
    ///
    /// # Errors
    /// See [`Error`]; after one, calling again tries the same page again.
    pub async fn next(&mut self) -> Result<Option<RecordedEvent>, Error> {
        while self.fetched.is_empty() && self.left > 0 {
            if std::mem::take(&mut self.ended) {
                return Ok(None);
            }
            let page = self.page().await?;
            self.left = self.left.saturating_sub(page.events.len() as u64);
            self.ended = page.tail.end;
            self.advance(&page);
            self.fetched.extend(page.events);
        }
        Ok(self.fetched.pop_front())
    }

    fn advance(&mut self, page: &StreamPage) {
        match self.direction {
            _ if !page.tail.end => self.from = Some(page.tail.next),
            Direction::Forwards => {
                let seen = page.events.last().map(|event| event.revision.next());
                let seen = seen.unwrap_or_else(|| self.start());
                // What a filter left out need not be looked at again.
                let looked_at = self.kind.as_ref().map_or(seen, |_| page.tail.stream_next);
                self.from = Some(seen.max(looked_at));
            }
            // Backwards, the end is revision 0: nothing can come any more.
            Direction::Backwards => self.left = 0,
        }
    }
}

/// A read of a shard's log. [`LogRead::page`] gets one page; [`LogRead::next`] walks over all
/// events and fetches pages as needed.
#[derive(Clone, Debug)]
pub struct LogRead {
    client: Client,
    shard: ShardId,
    from: Lsn,
    consistency: Consistency,
    page_bytes: u32,
    deadline: Duration,
    left: u64,
    fetched: VecDeque<RecordedEvent>,
    ended: bool,
}

impl LogRead {
    pub(super) fn new(client: Client, shard: ShardId, from: Lsn) -> Self {
        let deadline = client.deadline();
        Self {
            client,
            shard,
            from: from.max(Lsn(1)),
            consistency: Consistency::Linearizable,
            page_bytes: 0,
            deadline,
            left: u64::MAX,
            fetched: VecDeque::new(),
            ended: false,
        }
    }

    /// At most so many events in all.
    #[must_use]
    pub const fn limit(mut self, events: u64) -> Self {
        self.left = events;
        self
    }

    /// Bytes of records in one page at most: 4 MiB; 0 = 1 MiB. A larger event still comes alone.
    #[must_use]
    pub const fn page_bytes(mut self, bytes: u32) -> Self {
        self.page_bytes = bytes;
        self
    }

    /// Takes whatever a node has committed, be it the leader or not.
    #[must_use]
    pub const fn any_consistency(self) -> Self {
        self.consistency(Consistency::Any)
    }

    /// Asks the leader for proof that it leads, taken after the request came: its follower says so,
    /// or the bucket. Without this its lease is the proof, which is as good as the clocks' drift
    /// bound. Costs a round trip to the other node.
    #[must_use]
    pub const fn confirmed(self) -> Self {
        self.consistency(Consistency::Confirmed)
    }

    /// How fresh the pages have to be; linearizable if nothing is said.
    #[must_use]
    pub const fn consistency(mut self, consistency: Consistency) -> Self {
        self.consistency = consistency;
        self
    }

    /// How long fetching one page may take, retries included, instead of the client's deadline.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = super::bounded(deadline);
        self
    }

    /// The page at the current position.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn page(&self) -> Result<LogPage, Error> {
        let read = ReadLog {
            from: self.from,
            shard: self.shard,
            events_max: u32::try_from(self.left).unwrap_or(0),
            bytes_max: self.page_bytes,
            consistency: self.consistency,
        };
        let mut frame = Vec::new();
        read.encode(&mut frame, 0);
        let request = Request {
            kind: FrameKind::ReadLog,
            expected: FrameKind::LogPage,
            body: Arc::new(frame.split_off(FRAME_HEADER_BYTES)),
            cost_bytes: read.page_bytes() as usize,
            purpose: Purpose::Read,
        };
        let lane = self.client.read_lane(&self.shard.0.to_le_bytes(), self.consistency);
        let answer = lane.call(&request, self.deadline).await?;
        let page = LogPageView::decode(&answer.body).map_err(wrong)?;
        let page = LogPage { events: owned(page.records)?, tail: page.tail };
        self.check(&page)?;
        Ok(page)
    }

    /// The log has no gaps: neither has a page.
    fn check(&self, page: &LogPage) -> Result<(), Error> {
        let mut expected = self.from;
        for event in &page.events {
            if event.lsn != expected {
                return Err(wrong(format!("LSN {} instead of {expected}", event.lsn)));
            }
            expected = expected.next();
        }
        let told = page.tail.next;
        if !page.tail.end && (told != expected || told == self.from) {
            return Err(wrong(format!("it leads to LSN {told} instead of {expected}")));
        }
        Ok(())
    }

    /// The next event, `None` at the end or the limit. At the end, asking again looks for new
    /// events.
    ///
    /// # Errors
    /// See [`Error`]; after one, calling again tries the same page again.
    pub async fn next(&mut self) -> Result<Option<RecordedEvent>, Error> {
        while self.fetched.is_empty() && self.left > 0 {
            if std::mem::take(&mut self.ended) {
                return Ok(None);
            }
            let page = self.page().await?;
            self.left = self.left.saturating_sub(page.events.len() as u64);
            self.ended = page.tail.end;
            self.from = page.events.last().map_or(self.from, |event| event.lsn.next());
            self.fetched.extend(page.events);
        }
        Ok(self.fetched.pop_front())
    }
}
