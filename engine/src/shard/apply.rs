//! From a block that was made elsewhere to the state that its maker had behind it: heads, tail
//! index, keys. Shared by recovery, which reads blocks from its own disk.
//!
//! A follower does not wait for the head of a cold stream: revisions follow from the blocks, and
//! only the highest fencing token before them has to be looked up. Until it is known the stream is
//! *unsettled*: it has no head, and the index of a segment with its events is not saved.

use std::collections::BTreeMap;

use super::{Action, Actions, BlockRefused, LoadFailed, Shard, StoredHead};
use crate::block::Block;
use crate::ids::{Generation, IdempotencyKey, Lsn, Place, Revision, StreamId, StreamMap};
use crate::index::heads::Head;
use crate::index::tail::TailSlot;
use crate::record::{EventRecord, Record, RecordError};
use std::sync::Arc;

/// A record of a whole block that cannot be read or does not belong there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordMisfit {
    /// The event's LSN, or the block's first.
    pub lsn: Lsn,
    /// What is wrong.
    pub error: RecordError,
}

impl RecordMisfit {
    pub(crate) const fn new(lsn: Lsn, what: &'static str) -> Self {
        Self { lsn, error: RecordError::Malformed(what) }
    }
}

/// What the records of a block are told to.
pub(crate) trait BlockSink {
    /// Why it takes no more.
    type Error: From<RecordMisfit>;

    /// An append with this key has its record there.
    fn key(&mut self, key: IdempotencyKey, place: Place);

    /// An event, and the fencing token of its append.
    fn event(
        &mut self,
        place: Place,
        event: &EventRecord<'_>,
        token: Option<u64>,
    ) -> Result<(), Self::Error>;
}

/// Walks through the records of the block at `place`; checks that LSNs follow each other and that
/// the header's count is right.
pub(crate) fn walk<S: BlockSink>(
    place: Place,
    block: &Block<'_>,
    sink: &mut S,
) -> Result<(), S::Error> {
    let lsn = block.header.first_lsn;
    let generation = place.generation;
    let mut next_lsn = lsn;
    let mut token = None;
    let mut token_events = 0;
    for record in block.records() {
        let (at, record) = record.map_err(|error| RecordMisfit { lsn, error })?;
        let record_place = Place { generation, offset: place.offset + at };
        match record {
            Record::Append(append) => {
                (token, token_events) = (append.fencing_token, append.event_count);
                if let Some(key) = append.key {
                    sink.key(key, record_place);
                }
            }
            Record::Event(event) => {
                if event.lsn != next_lsn {
                    return Err(RecordMisfit::new(lsn, "LSN").into());
                }
                next_lsn = next_lsn.next();
                let token = token.filter(|_| token_events > 0);
                token_events = token_events.saturating_sub(1);
                sink.event(record_place, &event, token)?;
            }
        }
    }
    if next_lsn == block.header.last_lsn().next() {
        return Ok(());
    }
    Err(RecordMisfit::new(lsn, "event count").into())
}

/// A stream whose highest token before the events here is being looked up.
#[derive(Clone, Copy, Debug)]
struct UnsettledStream {
    /// As far as it is known. The slot is that of the newest segment with an event.
    head: Head,
    /// The oldest segment whose index waits for the token.
    first_generation: Generation,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    streams: StreamMap<UnsettledStream>,
    /// How many streams wait, by their oldest segment.
    waiting: BTreeMap<Generation, usize>,
    /// Those whose look-up failed; tried again with the next tick.
    failed: Vec<StreamId>,
}

impl Unsettled {
    pub(super) fn holds(&self, stream: StreamId) -> bool {
        !self.streams.is_empty() && self.streams.contains_key(&stream)
    }

    /// Whether the index of `generation` may be saved as it is.
    pub(super) fn allows(&self, generation: Generation) -> bool {
        self.waiting.first_key_value().is_none_or(|(oldest, _)| *oldest > generation)
    }

    fn add(&mut self, stream: StreamId, head: Head) {
        let first_generation = head.last_generation;
        self.streams.insert(stream, UnsettledStream { head, first_generation });
        *self.waiting.entry(first_generation).or_default() += 1;
    }

    fn remove(&mut self, stream: StreamId) -> Option<UnsettledStream> {
        let found = self.streams.remove(&stream)?;
        let count = self.waiting.get_mut(&found.first_generation);
        let count = count.expect("every unsettled stream was counted");
        *count -= 1;
        if *count == 0 {
            self.waiting.remove(&found.first_generation);
        }
        Some(found)
    }
}

struct Applying<'a> {
    shard: &'a mut Shard,
    out: &'a mut Actions,
}

impl BlockSink for Applying<'_> {
    type Error = BlockRefused;

    fn key(&mut self, key: IdempotencyKey, place: Place) {
        self.shard.keys.restore(key, place);
        self.shard.tail_keys.push(key, place.offset);
    }

    fn event(
        &mut self,
        place: Place,
        event: &EventRecord<'_>,
        token: Option<u64>,
    ) -> Result<(), BlockRefused> {
        self.shard.apply_event(place, event, token.unwrap_or(0), self.out)
    }
}

impl Shard {
    pub(super) fn apply(
        &mut self,
        place: Place,
        block: &Block<'_>,
        out: &mut Actions,
    ) -> Result<(), BlockRefused> {
        walk(place, block, &mut Applying { shard: self, out })
    }

    fn apply_event(
        &mut self,
        place: Place,
        event: &EventRecord<'_>,
        token: u64,
        out: &mut Actions,
    ) -> Result<(), BlockRefused> {
        let stream = StreamId::of(event.stream.as_bytes());
        let misfit = || BlockRefused::from(RecordMisfit::new(event.lsn, "revision"));
        let behind = event.revision.0.checked_add(1).map(Revision).ok_or_else(misfit)?;
        let unsettled = self.unsettled.streams.get(&stream).map(|unsettled| unsettled.head);
        let known = unsettled.or_else(|| self.head(stream));
        // A stream that begins here has no older events, whatever a filter says.
        let known = known.or_else(|| (event.revision.0 == 0).then_some(super::admission::NO_HEAD));
        if known.is_some_and(|head| head.next_revision != event.revision) {
            return Err(misfit());
        }
        let highest = known.map_or(0, |head| head.fencing_token);
        let fencing_token = highest.max(token);
        let here = known.filter(|head| head.last_generation == place.generation);
        let slot = here.map_or(TailSlot::NONE, |head| head.tail_slot);
        let noted = (fencing_token > 0).then_some(fencing_token);
        let tail_slot = if slot == TailSlot::NONE {
            self.tail.push(stream, event.revision, place.offset, noted)
        } else {
            self.tail.push_at(slot, stream, event.revision, place.offset, noted);
            slot
        };
        let (next_revision, last_generation) = (behind, place.generation);
        let head = Head { next_revision, fencing_token, last_generation, tail_slot };
        match (unsettled, known) {
            (Some(_), _) => {
                let entry = self.unsettled.streams.get_mut(&stream);
                entry.expect("it was found above").head = head;
            }
            (None, Some(_)) => self.heads.put(stream, head),
            (None, None) => {
                self.unsettled.add(stream, head);
                if self.parked.start_loading(stream) {
                    out.list.push(Action::LoadHead { stream });
                }
            }
        }
        Ok(())
    }

    /// What the sealed segments know of an unsettled stream has come; whether it was one.
    pub(super) fn settle(
        &mut self,
        stream: StreamId,
        stored: Result<Option<StoredHead>, LoadFailed>,
        out: &mut Actions,
    ) -> bool {
        if !self.unsettled.holds(stream) {
            return false;
        }
        let Ok(stored) = stored else {
            self.unsettled.failed.push(stream);
            return true;
        };
        let found = self.unsettled.remove(stream).expect("it was there");
        let token = stored.map_or(0, |stored| stored.fencing_token);
        let mut head = found.head;
        if token > 0 {
            head.fencing_token = head.fencing_token.max(token);
            self.tail.raise_token(stream, token);
            for sealed in &mut self.sealed {
                if sealed.generation >= found.first_generation {
                    // D7: an index that waits for this stream has not been handed out.
                    let sealed = Arc::get_mut(sealed).expect("it is saved when it is settled");
                    sealed.tail.raise_token(stream, token);
                }
            }
        }
        self.heads.put(stream, head);
        self.save_indexes(out);
        true
    }

    /// Looks up again what could not be read.
    pub(super) fn retry_unsettled(&mut self, out: &mut Actions) {
        for stream in std::mem::take(&mut self.unsettled.failed) {
            if self.unsettled.holds(stream) && self.parked.start_loading(stream) {
                out.list.push(Action::LoadHead { stream });
            }
        }
    }
}
