//! Pages of a stream.

use std::rc::Rc;

use duolog_engine::ids::{Revision, StreamId};
use duolog_engine::index::span::Direction;
use duolog_engine::record::{EventRecord, Record};
use duolog_engine::shard::{Located, RequestId, StreamEnd};
use duolog_net::wire::{self, ErrorCode, ErrorFrame, OpenPage, ReadStream, StreamPage, StreamTail};

use super::fetch::{FetchError, RecordFetch, sealed_places, stored_head};
use super::freshness::Freshness;
use super::shard_loop::ShardLoop;

/// Places looked up in one go.
const PLACES_MAX: usize = 512;
/// Events that one page looks at when a filter selects few of them: bounds a page's time.
const SCANNED_MAX: usize = 8192;

/// The request's body, for another shard.
pub(super) fn body_of(read: &ReadStream<'_>) -> Vec<u8> {
    let mut frame = Vec::new();
    read.encode(&mut frame, 0).expect("a decoded request can be encoded");
    frame.split_off(duolog_net::limits::FRAME_HEADER_BYTES)
}

/// Serves a page in a task of its own.
pub(super) fn spawn(shard: &Rc<ShardLoop>, id: RequestId, correlation: u64, read: &ReadStream<'_>) {
    let shard = Rc::clone(shard);
    let body = body_of(read);
    glommio::spawn_local(async move {
        // A spawned task runs at once, here inside a session that is borrowed: wait a turn.
        futures_lite::future::yield_now().await;
        let read = ReadStream::decode(&body).expect("it was encoded here");
        // Before the permit: a proof may take long, and other reads need none.
        let freshness = Freshness::of(&shard, read.consistency).await;
        shard.reads.take().await;
        let mut frame = Vec::new();
        let mut open = StreamPage::begin(&mut frame, correlation);
        match fill(&shard, &read, &mut open, &mut frame).await {
            _ if freshness.refuse(&shard, &mut frame, correlation) => {}
            Ok(tail) => open.finish_stream(&mut frame, &tail),
            Err(error) => {
                open.abandon(&mut frame);
                let (stream, from) = (read.stream, read.from);
                tracing::error!(shard = shard.id().0, stream, %error, event = "read_failed");
                let text = format_args!(
                    "the log cannot give the events of this stream from revision {from} on \
                     ({error}): run `duolog verify` on the data directory"
                );
                ErrorFrame::new(ErrorCode::Damaged).encode(&mut frame, correlation, text);
            }
        }
        shard.reads.release();
        shard.answer_frame(id, frame);
    })
    .detach();
}

/// Writes the stream's events into the page until it is full or the stream ends.
pub(super) async fn fill(
    shard: &ShardLoop,
    read: &ReadStream<'_>,
    open: &mut OpenPage,
    out: &mut Vec<u8>,
) -> Result<StreamTail, FetchError> {
    Page::new(shard, read, open).fill(out).await
}

/// The stream's committed end.
pub(super) async fn end(shard: &ShardLoop, stream: StreamId) -> Result<Revision, FetchError> {
    let known = shard.shard.borrow_mut().stream_end(stream);
    match known {
        StreamEnd::Known(end) => Ok(end),
        StreamEnd::Sealed => {
            let head = stored_head(shard, stream).await?;
            Ok(head.map_or(Revision(0), |head| head.next))
        }
    }
}

struct Page<'a> {
    shard: &'a ShardLoop,
    read: &'a ReadStream<'a>,
    stream: StreamId,
    direction: Direction,
    open: &'a mut OpenPage,
    scanned: usize,
}

impl<'a> Page<'a> {
    fn new(shard: &'a ShardLoop, read: &'a ReadStream<'a>, open: &'a mut OpenPage) -> Self {
        let stream = StreamId::of(read.stream.as_bytes());
        let direction = match read.direction {
            wire::Direction::Forwards => Direction::Forwards,
            wire::Direction::Backwards => Direction::Backwards,
        };
        Self { shard, read, stream, direction, open, scanned: 0 }
    }

    /// Writes records until the page is full or the stream ends.
    async fn fill(&mut self, out: &mut Vec<u8>) -> Result<StreamTail, FetchError> {
        let end = end(self.shard, self.stream).await?;
        let committed = self.shard.shard.borrow().committed().lsn;
        let tail =
            |next, end_reached| StreamTail { next, stream_next: end, committed, end: end_reached };
        let mut next = match self.direction {
            Direction::Forwards => self.read.from,
            Direction::Backwards => Revision(self.read.from.0.min(end.0.saturating_sub(1))),
        };
        let mut fetch = RecordFetch::default();
        let mut record = Vec::new();
        let mut places = Vec::new();
        loop {
            if next >= end {
                return Ok(tail(next, true));
            }
            places.clear();
            self.places(next, end, &mut places).await?;
            if places.is_empty() {
                return Err(FetchError::Io(std::io::Error::other("the index has a hole")));
            }
            for index in 0..places.len() {
                if self.scanned >= SCANNED_MAX {
                    return Ok(tail(next, false));
                }
                fetch.record(self.shard, &places[index..], &mut record).await?;
                let place = places[index];
                let event = decode(&record, place)?;
                // Q2, Q3: this very event, and the next one.
                if event.stream != self.read.stream || event.revision != next {
                    return Err(FetchError::Misplaced(place));
                }
                let wanted = self.read.kind.is_none_or(|kind| kind == event.kind);
                if wanted && !self.fits(out, record.len()) {
                    return Ok(tail(next, false));
                }
                if wanted {
                    self.open.push(out, &record);
                }
                self.scanned += 1;
                next = match self.direction {
                    Direction::Forwards => next.next(),
                    Direction::Backwards if next.0 == 0 => return Ok(tail(next, true)),
                    Direction::Backwards => Revision(next.0 - 1),
                };
            }
        }
    }

    fn fits(&self, out: &[u8], length: usize) -> bool {
        let count = self.open.record_count();
        let enough = self.read.events_max != 0 && count >= self.read.events_max;
        let full = self.open.record_bytes(out) + length > self.read.page_bytes() as usize;
        !enough && (count == 0 || !full)
    }

    async fn places(
        &self,
        from: Revision,
        end: Revision,
        out: &mut Vec<duolog_engine::ids::Place>,
    ) -> Result<(), FetchError> {
        let (stream, direction) = (self.stream, self.direction);
        let left = usize::try_from(end.0.saturating_sub(from.0)).unwrap_or(PLACES_MAX);
        let max = match direction {
            Direction::Forwards => PLACES_MAX.min(left),
            Direction::Backwards => PLACES_MAX,
        };
        let located = self.shard.shard.borrow().locate(stream, from, direction, max, out);
        match located {
            Located::Places | Located::End => Ok(()),
            Located::Sealed => sealed_places(self.shard, stream, from, direction, max, out).await,
        }
    }
}

fn decode(record: &[u8], place: duolog_engine::ids::Place) -> Result<EventRecord<'_>, FetchError> {
    match Record::decode(record) {
        Ok((Record::Event(event), _)) => Ok(event),
        Ok((Record::Append(_), _)) => Err(FetchError::Misplaced(place)),
        Err(error) => Err(FetchError::Record { place, error }),
    }
}
