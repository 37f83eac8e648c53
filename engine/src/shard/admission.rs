//! Admission: idempotency key first, then fencing token, then expected revisions, all against the
//! *ordered* state; what is accepted is written into the open block at once.
//!
//! No answer rests on state that is not committed yet (invariant A3): refusals and replays that do
//! are attached to the newest block.

use super::assembly::{Answer, Pending};
use super::waiting::Wait;
use super::{Actions, Copies, Receipt, Refusal, RequestId, Shard};
use crate::append::AppendView;
use crate::block::BLOCK_HEADER_BYTES;
use crate::ids::{Generation, Lsn, Now, Place, Revision, StreamId};
use crate::index::heads::Head;
use crate::index::span::Direction;
use crate::index::tail::TailSlot;
use crate::record::{self, AppendParts, EventParts, RECORD_ALIGN_BYTES, StreamRange};
use crate::route::shard_of;

/// What a client that met a full shard should wait before it tries again: a few group commits.
const BUSY_RETRY_AFTER_MS: u32 = 5;

/// A stream without events.
pub(super) const NO_HEAD: Head = Head {
    next_revision: Revision(0),
    fencing_token: 0,
    last_generation: Generation(0),
    tail_slot: TailSlot::NONE,
};

/// Reused memory of one admission.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    streams: Vec<(StreamId, Head)>,
    pub ranges: Vec<StreamRange>,
    places: Vec<Place>,
}

/// What became of an append.
pub(super) enum Verdict {
    /// It need not wait.
    Done(Done),
    /// Waits for the heads of cold streams.
    Park,
    /// Waits for a segment.
    Stall,
}

/// How an append ends, but for the disk.
pub(super) enum Done {
    /// Written into the open block.
    Admitted,
    /// Refused; the answer may rest on uncommitted state.
    Refused(Refusal),
    /// Refused for a reason that needs no log.
    RefusedNow(Refusal),
    /// The same append came before; its record is there.
    Replay(Place),
}

impl Shard {
    pub(super) fn append(
        &mut self,
        now: Now,
        to: RequestId,
        view: AppendView<'_>,
        out: &mut Actions,
    ) {
        let size = view.bytes().len();
        if let Some(refusal) = self.closed_to_appends(now) {
            return out.refuse(to, refusal);
        }
        // A8: nothing is queued beyond the bounds.
        if self.in_flight >= self.config.in_flight_max
            || self.in_flight_bytes + size > self.config.in_flight_max_bytes
        {
            let retry_after_ms = BUSY_RETRY_AFTER_MS;
            return out.refuse(to, Refusal::Busy { retry_after_ms });
        }
        self.in_flight += 1;
        self.in_flight_bytes += size;
        if let Some(refusal) = self.foreign(&view) {
            self.release(size);
            return out.refuse(to, refusal);
        }
        self.identify(&view);
        if self.parked.is_stalled() {
            return self.park(to, &view, Wait::Room, out);
        }
        let behind = |(stream, _): &(StreamId, Head)| self.parked.holds(*stream);
        if !self.parked.is_empty() && self.scratch.streams.iter().any(behind) {
            return self.park(to, &view, Wait::Turn, out);
        }
        match self.judge(now, to, &view, out) {
            Verdict::Done(done) => self.conclude(to, &view, done, out),
            Verdict::Park => self.park(to, &view, Wait::Turn, out),
            Verdict::Stall => self.park(to, &view, Wait::Room, out),
        }
    }

    fn foreign(&self, view: &AppendView<'_>) -> Option<Refusal> {
        if self.config.shard_count == 1 {
            return None;
        }
        let mut first = None;
        for (stream_index, stream) in (0_u16..).zip(view.streams()) {
            let own = shard_of(stream.name, self.config.shard_count);
            let first = *first.get_or_insert(own);
            if own != first || own != self.config.shard {
                return Some(Refusal::CrossShard { stream_index, first, other: own });
            }
        }
        None
    }

    /// Notes the request's stream ids in the scratch list.
    pub(super) fn identify(&mut self, view: &AppendView<'_>) {
        self.scratch.streams.clear();
        for stream in view.streams() {
            let id = StreamId::of(stream.name);
            self.scratch.streams.push((id, NO_HEAD));
        }
    }

    pub(super) fn scratch_streams(&self) -> impl Iterator<Item = StreamId> {
        self.scratch.streams.iter().map(|(stream, _)| *stream)
    }

    /// Answers a judged append, or leaves the answer to its block.
    pub(super) fn conclude(
        &mut self,
        to: RequestId,
        view: &AppendView<'_>,
        done: Done,
        out: &mut Actions,
    ) {
        let size = view.bytes().len();
        match done {
            Done::Admitted => {
                if self.open.bytes.len() >= BLOCK_HEADER_BYTES + self.config.block_target_bytes {
                    self.close_block(out);
                }
            }
            // A3: what the answer rests on has to be committed first.
            Done::Refused(refusal) if self.rests_on_uncommitted() => {
                let request_bytes = size as u32;
                self.defer(Pending { to, request_bytes, answer: Answer::Refuse(refusal) });
            }
            Done::Refused(refusal) | Done::RefusedNow(refusal) => {
                self.release(size);
                out.refuse(to, refusal);
            }
            Done::Replay(place) => self.replay(to, view, place, out),
        }
    }

    /// Judges the append whose streams are in the scratch list, and writes it if nothing stands
    /// against it.
    pub(super) fn judge(
        &mut self,
        now: Now,
        to: RequestId,
        view: &AppendView<'_>,
        out: &mut Actions,
    ) -> Verdict {
        if let Some(place) = view.key().and_then(|key| self.keys.get(key)) {
            return Verdict::Done(Done::Replay(place));
        }
        if !self.find_heads() {
            return Verdict::Park;
        }
        if let Some(refusal) = self.objection(view) {
            return Verdict::Done(Done::Refused(refusal));
        }
        let needed = records_bytes(view);
        if let Err(verdict) = self.make_room(needed, out) {
            return verdict;
        }
        self.write(now, to, view);
        Verdict::Done(Done::Admitted)
    }

    /// Whether one of the request's streams has an event that is ordered but not committed.
    fn rests_on_uncommitted(&mut self) -> bool {
        let Scratch { streams, places, .. } = &mut self.scratch;
        let sealed = self.sealed.iter().rev().map(|sealed| &sealed.tail);
        for tail in std::iter::once(&self.tail).chain(sealed) {
            for (stream, _) in &*streams {
                places.clear();
                tail.places(*stream, Revision(u64::MAX), Direction::Backwards, 1, places);
                if places.first().is_some_and(|place| *place >= self.committed_place) {
                    return true;
                }
            }
        }
        false
    }

    /// Fills in the heads of the request's streams; whether all are known.
    fn find_heads(&mut self) -> bool {
        for index in 0..self.scratch.streams.len() {
            let (stream, _) = self.scratch.streams[index];
            let Some(head) = self.head(stream) else { return false };
            self.scratch.streams[index].1 = head;
        }
        true
    }

    fn objection(&self, view: &AppendView<'_>) -> Option<Refusal> {
        let token = view.fencing_token();
        let heads = self.scratch.streams.iter();
        for ((stream_index, stream), (_, head)) in (0_u16..).zip(view.streams()).zip(heads) {
            // A7: a lower token belongs to a writer that was replaced.
            if let Some(given) = token.filter(|given| *given < head.fencing_token) {
                let highest = head.fencing_token;
                return Some(Refusal::Fenced { stream_index, given, highest });
            }
            if !stream.expect.holds(head.next_revision) {
                let (expected, next) = (stream.expect, head.next_revision);
                return Some(Refusal::Conflict { stream_index, expected, next });
            }
        }
        None
    }

    /// Sees to it that the open block takes `needed` more bytes.
    fn make_room(&mut self, needed: usize, out: &mut Actions) -> Result<(), Verdict> {
        let block_max = self.config.layout.block_max_bytes();
        if BLOCK_HEADER_BYTES + needed > block_max {
            let (size, limit) = ((BLOCK_HEADER_BYTES + needed) as u64, block_max as u64);
            return Err(Verdict::Done(Done::RefusedNow(Refusal::TooLarge { size, limit })));
        }
        self.close_outrun_block(out);
        if self.open_started && self.open.bytes.len() + needed > block_max {
            self.close_block(out);
        }
        let used = if self.open_started { self.open.bytes.len() } else { BLOCK_HEADER_BYTES };
        if used + needed <= self.segments.room() {
            return Ok(());
        }
        if !self.segments.can_rotate() {
            let full = self.segments.is_refused();
            let refused = Verdict::Done(Done::RefusedNow(Refusal::DiskFull));
            return Err(if full { refused } else { Verdict::Stall });
        }
        if self.open_started && !self.open.is_empty() {
            self.close_block(out);
        }
        self.rotate();
        Ok(())
    }

    fn write(&mut self, now: Now, to: RequestId, view: &AppendView<'_>) {
        if !self.open_started {
            let hlc = self.next_hlc(now);
            self.open.open(self.segments.next_place(), self.ordered.next(), hlc);
            self.open_started = true;
        }
        let first_lsn = self.ordered.next();
        self.collect_ranges(view);
        if view.key().is_some() || view.fencing_token().is_some() {
            self.write_append_record(view, first_lsn);
        }
        self.write_events(view, first_lsn);
        let ranges_at = self.open.ranges.len() as u32;
        self.open.ranges.extend_from_slice(&self.scratch.ranges);
        let event_count = view.event_count();
        self.open.event_count += event_count;
        self.ordered = Lsn(first_lsn.0 + u64::from(event_count) - 1);
        let receipt = Receipt {
            first_lsn,
            last_lsn: self.ordered,
            hlc: self.open.hlc,
            epoch: self.role.block_epoch(),
            copies: Copies::Disk,
            replayed: false,
            ranges_at,
            ranges_count: self.scratch.ranges.len() as u32,
        };
        let request_bytes = view.bytes().len() as u32;
        self.open.pending.push(Pending { to, request_bytes, answer: Answer::Appended { receipt } });
    }

    fn collect_ranges(&mut self, view: &AppendView<'_>) {
        let Scratch { streams, ranges, .. } = &mut self.scratch;
        ranges.clear();
        for (stream, (id, head)) in view.streams().zip(streams.iter()) {
            if stream.event_count > 0 {
                let (first, event_count) = (head.next_revision, stream.event_count);
                ranges.push(StreamRange { stream: *id, first, event_count });
            }
        }
    }

    fn write_append_record(&mut self, view: &AppendView<'_>, first_lsn: Lsn) {
        let place = self.open.record_place();
        let parts = AppendParts {
            first_lsn,
            key: view.key(),
            fingerprint: view.fingerprint(),
            fencing_token: view.fencing_token(),
            event_count: view.event_count(),
            hlc: self.open.hlc,
            epoch: self.role.block_epoch(),
            streams: &self.scratch.ranges,
        };
        record::encode_append(&mut self.open.bytes, &parts);
        if let Some(key) = view.key() {
            self.keys.insert(key, place);
            self.tail_keys.push(key, place.offset);
        }
    }

    fn write_events(&mut self, view: &AppendView<'_>, first_lsn: Lsn) {
        let generation = self.segments.generation();
        let mut events = view.events();
        let mut lsn = first_lsn;
        for (index, stream) in view.streams().enumerate() {
            let (id, head) = self.scratch.streams[index];
            // The highest token of all goes with every event: whoever looks for it in the sealed
            // segments need not go further back than the newest one that has the stream.
            let fencing_token = head.fencing_token.max(view.fencing_token().unwrap_or(0));
            let token = (fencing_token > 0).then_some(fencing_token);
            let mut revision = head.next_revision;
            let here = head.last_generation == generation;
            let mut slot = if here { head.tail_slot } else { TailSlot::NONE };
            for _ in 0..stream.event_count {
                let event = events.next().expect("counts were checked when it was parsed");
                let place = self.open.record_place();
                let parts = EventParts {
                    lsn,
                    revision,
                    hlc: self.open.hlc,
                    id: event.id,
                    stream: stream.name,
                    type_length: event.kind.len() as u8,
                    metadata_length: event.metadata.len() as u32,
                    body: event.body,
                };
                record::encode_event(&mut self.open.bytes, &parts);
                if slot == TailSlot::NONE {
                    slot = self.tail.push(id, revision, place.offset, token);
                } else {
                    self.tail.push_at(slot, id, revision, place.offset, token);
                }
                revision = revision.next();
                lsn = lsn.next();
            }
            if stream.event_count > 0 {
                let (next_revision, last_generation, tail_slot) = (revision, generation, slot);
                let head = Head { next_revision, fencing_token, last_generation, tail_slot };
                self.heads.put(id, head);
                self.parked.outdate(id);
            }
        }
    }
}

/// Bytes that the append's records take in a block, padding included.
fn records_bytes(view: &AppendView<'_>) -> usize {
    let mut sum = 0;
    if view.key().is_some() || view.fencing_token().is_some() {
        let written = view.streams().filter(|stream| stream.event_count > 0).count();
        sum += record::append_record_bytes(written);
    }
    let mut events = view.events();
    for stream in view.streams() {
        for _ in 0..stream.event_count {
            let event = events.next().expect("counts were checked when it was parsed");
            let length = record::event_record_bytes(stream.name.len(), event.body.len());
            sum += length.next_multiple_of(RECORD_ALIGN_BYTES);
        }
    }
    sum
}
