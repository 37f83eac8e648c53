//! Closing blocks, committing them in order, releasing what waited for them.

use super::assembly::{Answer, Assembly, Pending};
use super::{Action, Actions, Boundary, Outcome, Refusal, RequestId, Sealed, Shard, State};
use crate::block::BlockSeal;
use crate::ids::{Lsn, Now};
use crate::index::key_file::SegmentKeys;
use crate::index::tail::{Tail, TailCapacity};
use crate::limits::{BLOCK_OVERLAP_BYTES, WRITE_JOIN_MAX_BYTES};
use std::sync::Arc;

/// Buffers of committed blocks that are kept for the next ones, at most; more are in use only in
/// bursts.
const SPARE_BLOCKS_MAX: usize = 16;
/// A larger buffer is not kept, bytes: it held one huge append.
const SPARE_BLOCK_MAX_BYTES: usize = 1 << 20;
/// Writes of a follower that begin however small they are: one block's may run beside another's.
const SMALL_WRITES_MAX: usize = 2;
/// Indexes that are being saved while a follower goes on, at most: each is the index of a segment.
const SAVES_BEHIND_MAX: usize = 4;

impl Shard {
    /// Closes the open block if the disk may take another one.
    pub(super) fn flush(&mut self, out: &mut Actions) {
        if self.state == State::Poisoned {
            return;
        }
        self.start_writes(out);
        if self.wants_to_close() {
            self.close_block(out);
        }
    }

    /// Seals the open block and queues it for the disk.
    pub(super) fn close_block(&mut self, out: &mut Actions) {
        assert!(!self.open.is_empty(), "an empty block is never closed");
        assert_eq!(self.open.first_lsn, self.end.lsn.next(), "A1: blocks follow without a gap");
        assert!(self.role.makes_blocks(), "R1: only a leader appends");
        let generation = self.open.place.generation;
        let seal = BlockSeal {
            shard: self.config.shard,
            generation,
            epoch: self.role.block_epoch(),
            first_lsn: self.open.first_lsn,
            event_count: self.open.event_count,
            hlc: self.open.hlc,
            commit_mark: self.committed.lsn,
            previous_hash: self.previous_hash(),
        };
        self.open.seal(&seal);
        let (place, header) = self.segments.place_block(self.open.bytes.len());
        assert_eq!(place, self.open.place, "a block closes where it was opened");
        self.open.header = header;
        self.epochs.follow(&self.end, seal.epoch);
        self.end = self.open.end();
        assert_eq!(self.end.lsn, self.ordered, "the open block held the newest events");
        let next = self.spare_blocks.pop().unwrap_or_else(Assembly::new);
        let block = std::mem::replace(&mut self.open, next);
        self.open_started = false;
        self.queue(block);
        self.start_writes(out);
    }

    /// Puts a block behind those that wait for the disk.
    pub(super) fn queue(&mut self, block: Assembly) {
        self.waiting_bytes += self.padded(&block);
        self.closed.push_back(block);
    }

    pub(super) fn start_writes(&mut self, out: &mut Actions) {
        while self.may_write() {
            let blocks = self.join();
            let first = &mut self.closed[self.issued];
            first.joined = blocks;
            let (first_lsn, place, header) = (first.first_lsn, first.place, first.header);
            out.list.push(Action::Write { first_lsn, blocks, place, header });
            self.issued += blocks as usize;
            self.writes += 1;
        }
    }

    /// Whether the next block that waits may go to the disk.
    pub(super) fn may_write(&self) -> bool {
        let Some(next) = self.closed.get(self.issued) else { return false };
        let ready = self.segments.is_ready(next.place.generation);
        if !ready || self.writes >= self.config.blocks_in_flight_max {
            return false;
        }
        if self.role.makes_blocks() {
            return true;
        }
        // A follower's disk takes what has arrived at once or, when it is busy, in larger pieces.
        // It stops while the saving of indexes lags behind: they are memory.
        let worth = self.writes < SMALL_WRITES_MAX || self.waiting_bytes >= BLOCK_OVERLAP_BYTES;
        worth && self.saving <= SAVES_BEHIND_MAX
    }

    /// What a block takes on the disk, bytes.
    const fn padded(&self, block: &Assembly) -> usize {
        block.bytes.len().next_multiple_of(self.config.layout.align_bytes as usize)
    }

    /// How many of the waiting blocks go into the next write.
    fn join(&mut self) -> u32 {
        let joins = !self.role.makes_blocks();
        let padded = |block| self.padded(block);
        let generation = self.closed[self.issued].place.generation;
        let (mut blocks, mut bytes) = (0, 0);
        for block in self.closed.range(self.issued..) {
            let more = joins
                && block.place.generation == generation
                && bytes + padded(block) <= WRITE_JOIN_MAX_BYTES;
            if blocks > 0 && !more {
                break;
            }
            blocks += 1;
            bytes += padded(block);
        }
        self.waiting_bytes -= bytes;
        blocks
    }

    /// A write is durable. Everything that now has nothing undurable before it may commit.
    pub(super) fn block_written(&mut self, now: Now, first_lsn: Lsn, out: &mut Actions) {
        if self.state == State::Poisoned {
            return;
        }
        let at = self.closed.partition_point(|block| block.first_lsn < first_lsn);
        let found = self.closed.get(at).filter(|block| block.first_lsn == first_lsn);
        let found = found.filter(|block| at < self.issued && !block.written);
        let joined = found.expect("only blocks being written are reported").joined as usize;
        for block in self.closed.range_mut(at..at + joined) {
            block.written = true;
        }
        self.writes -= 1;
        let before = self.durable_count;
        while let Some(block) = self.closed.get(self.durable_count).filter(|block| block.written) {
            self.durable = block.end();
            self.durable_count += 1;
        }
        if self.durable_count > before {
            self.acknowledge(out);
            self.commit(now, out);
        }
        self.start_writes(out);
    }

    /// Commits what may be committed now.
    pub(super) fn commit(&mut self, now: Now, out: &mut Actions) {
        // D3: nothing is acknowledged after a failed write.
        if self.state == State::Poisoned {
            return;
        }
        self.commit_up_to(self.commit_limit(now), out);
    }

    pub(super) fn commit_up_to(&mut self, limit: Lsn, out: &mut Actions) {
        let before = self.committed.lsn;
        while let Some(Boundary { end, behind }) =
            self.uncommitted.front().filter(|boundary| boundary.end.lsn <= limit)
        {
            (self.committed, self.committed_place) = (*end, *behind);
            self.uncommitted.pop_front();
        }
        // R2: in order, and never before it is durable here.
        while self.durable_count > 0
            && self.closed.front().is_some_and(|block| block.last_lsn() <= limit)
        {
            self.commit_front(out);
        }
        if self.committed.lsn > before {
            out.list.push(Action::Committed { lsn: self.committed.lsn });
            self.save_indexes(out);
        }
    }

    fn commit_front(&mut self, out: &mut Actions) {
        let mut block = self.closed.pop_front().expect("the caller saw it");
        self.issued -= 1;
        self.durable_count -= 1;
        assert_eq!(block.first_lsn, self.committed.lsn.next(), "commits follow without a gap");
        self.committed = block.end();
        self.committed_place = self.segments.behind(block.place, block.bytes.len());
        let copies = self.coverage.copies(self.committed.lsn);
        for pending in block.pending.drain(..) {
            self.in_flight -= 1;
            self.in_flight_bytes -= pending.request_bytes as usize;
            let outcome = match pending.answer {
                Answer::Refuse(refusal) => Outcome::Refused(refusal),
                Answer::Appended { mut receipt } => {
                    let own = receipt.ranges_at as usize;
                    let own = own..own + receipt.ranges_count as usize;
                    receipt.ranges_at = out.ranges.len() as u32;
                    receipt.copies = copies;
                    out.ranges.extend_from_slice(&block.ranges[own]);
                    Outcome::Appended(receipt)
                }
            };
            out.list.push(Action::Reply { to: pending.to, outcome });
        }
        self.recent.keep(block.place, block.first_lsn, &block.bytes);
        // A huge append's buffer is not worth keeping.
        if self.spare_blocks.len() < SPARE_BLOCKS_MAX
            && block.bytes.capacity() <= SPARE_BLOCK_MAX_BYTES
        {
            self.spare_blocks.push(block);
        }
    }

    /// Attaches an answer to the newest block, to leave when everything ordered now is committed.
    pub(super) fn defer(&mut self, pending: Pending) {
        self.newest_block().pending.push(pending);
    }

    /// The open block if it has events, else the block closed last. There is one as long as
    /// something is ordered and not committed.
    pub(super) fn newest_block(&mut self) -> &mut Assembly {
        let open = self.open_started && !self.open.is_empty();
        let newest = if open { Some(&mut self.open) } else { self.closed.back_mut() };
        newest.expect("uncommitted events are in an open or closed block")
    }

    /// The active segment is complete: its index is frozen, the next segment begins.
    pub(super) fn rotate(&mut self) {
        assert!(!self.open_started || self.open.is_empty(), "the open block is closed first");
        let generation = self.segments.generation();
        if self.segments.has_active() {
            let mut sealed = self.spare_indexes.pop().unwrap_or_else(|| self.new_index());
            let index = Arc::get_mut(&mut sealed).expect("nobody else refers to a spare index");
            std::mem::swap(&mut self.tail, &mut index.tail);
            std::mem::swap(&mut self.tail_keys, &mut index.keys);
            (index.generation, index.end) = (generation, self.end);
            self.sealed.push_back(sealed);
        }
        self.segments.rotate(self.end);
        self.tail.clear(self.segments.generation());
        self.tail_keys.clear(self.segments.generation());
        self.open_started = false;
    }

    fn new_index(&self) -> Arc<Sealed> {
        let size_bytes = self.config.layout.segment_size_bytes;
        let generation = self.segments.generation();
        let tail = Tail::with_capacity(generation, TailCapacity::for_segment(size_bytes));
        let keys = SegmentKeys::for_segment(generation, size_bytes);
        Arc::new(Sealed { generation, tail, keys, end: self.end })
    }

    pub(super) fn save_indexes(&mut self, out: &mut Actions) {
        while let Some(sealed) = self.sealed.get(self.saving) {
            // D7: an index is saved of committed events only.
            let settled = self.unsettled.allows(sealed.generation);
            if sealed.end.lsn > self.committed.lsn || !settled {
                break;
            }
            self.saving += 1;
            out.list.push(Action::SaveIndex { generation: sealed.generation });
        }
    }

    /// A write failed: every append in flight has an unknown outcome, and nothing follows it.
    pub(super) fn poison(&mut self, out: &mut Actions) {
        if self.state == State::Poisoned {
            return;
        }
        self.state = State::Poisoned;
        for block in self.closed.iter_mut().chain(std::iter::once(&mut self.open)) {
            for pending in block.pending.drain(..) {
                out.refuse(pending.to, Refusal::Unknown);
            }
        }
        for append in self.parked.drain() {
            out.refuse(append.to, Refusal::ShuttingDown);
        }
        // What they retry is in the log; but whoever hears that nothing was done may ask anew
        // under another key.
        let mut replays: Vec<RequestId> = self.replays.drain().map(|(to, _)| to).collect();
        replays.sort_unstable_by_key(|to| to.0);
        for to in replays {
            out.refuse(to, Refusal::Unknown);
        }
        (self.in_flight, self.in_flight_bytes) = (0, 0);
        out.list.push(Action::Poisoned);
    }
}
