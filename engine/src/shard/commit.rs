//! Closing blocks, committing them in order, releasing what waited for them.

use super::assembly::{Answer, Assembly, Pending};
use super::{Action, Actions, Outcome, Refusal, RequestId, Sealed, Shard, State};
use crate::block::BlockSeal;
use crate::bytes::align_up;
use crate::ids::{Lsn, Place};
use crate::index::key_file::SegmentKeys;
use crate::index::tail::{Tail, TailCapacity};
use crate::segment::LogEnd;
use std::sync::Arc;

/// Buffers of committed blocks that are kept for the next ones, at most; more are in use only in
/// bursts.
const SPARE_BLOCKS_MAX: usize = 16;
/// A larger buffer is not kept, bytes: it held one huge append.
const SPARE_BLOCK_MAX_BYTES: usize = 1 << 20;

impl Shard {
    /// Closes the open block if the disk may take another one.
    pub(super) fn flush(&mut self, out: &mut Actions) {
        if self.state == State::Poisoned {
            return;
        }
        self.start_writes(out);
        if self.wants_flush() {
            self.close_block(out);
        }
    }

    /// Seals the open block and queues it for the disk.
    pub(super) fn close_block(&mut self, out: &mut Actions) {
        assert!(!self.open.is_empty(), "an empty block is never closed");
        assert_eq!(self.open.first_lsn, self.end.lsn.next(), "A1: blocks follow without a gap");
        let generation = self.open.place.generation;
        let seal = BlockSeal {
            shard: self.config.shard,
            generation,
            epoch: self.config.epoch,
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
        self.end = LogEnd {
            lsn: self.open.last_lsn(),
            hash: self.open.hash,
            hlc: self.open.hlc,
            epoch: self.config.epoch,
        };
        assert_eq!(self.end.lsn, self.ordered, "the open block held the newest events");
        let next = self.spare_blocks.pop().unwrap_or_else(Assembly::new);
        let block = std::mem::replace(&mut self.open, next);
        self.open_started = false;
        self.closed.push_back(block);
        self.start_writes(out);
    }

    fn start_writes(&mut self, out: &mut Actions) {
        while self.writing < self.config.blocks_in_flight_max && self.writing < self.closed.len() {
            let Assembly { first_lsn, place, header, .. } = &self.closed[self.writing];
            let (first_lsn, place, header) = (*first_lsn, *place, *header);
            out.list.push(Action::Write { first_lsn, place, header });
            self.writing += 1;
        }
    }

    /// A block is durable. Commits every block that now has no undurable one before it.
    pub(super) fn block_written(&mut self, first_lsn: Lsn, out: &mut Actions) {
        if self.state == State::Poisoned {
            return;
        }
        let block = self.closed.iter_mut().take(self.writing);
        let block = block.into_iter().find(|block| block.first_lsn == first_lsn);
        block.expect("only blocks being written are reported").written = true;
        let before = self.committed.lsn;
        while self.closed.front().is_some_and(|block| block.written) {
            self.commit_front(out);
        }
        if self.committed.lsn > before {
            out.list.push(Action::Committed { lsn: self.committed.lsn });
            self.save_indexes(out);
        }
        self.start_writes(out);
    }

    fn commit_front(&mut self, out: &mut Actions) {
        let mut block = self.closed.pop_front().expect("the caller saw it");
        self.writing -= 1;
        assert_eq!(block.first_lsn, self.committed.lsn.next(), "commits follow without a gap");
        self.committed = LogEnd {
            lsn: block.last_lsn(),
            hash: block.hash,
            hlc: block.hlc,
            epoch: self.config.epoch,
        };
        let end = u64::from(block.place.offset) + block.bytes.len() as u64;
        let end = align_up(end, u64::from(self.config.layout.align_bytes)).unwrap_or(end);
        let offset = u32::try_from(end).expect("a block ends inside its segment");
        self.committed_place = Place { generation: block.place.generation, offset };
        for pending in block.pending.drain(..) {
            self.in_flight -= 1;
            self.in_flight_bytes -= pending.request_bytes as usize;
            let outcome = match pending.answer {
                Answer::Refuse(refusal) => Outcome::Refused(refusal),
                Answer::Appended { mut receipt } => {
                    let own = receipt.ranges_at as usize;
                    let own = own..own + receipt.ranges_count as usize;
                    receipt.ranges_at = out.ranges.len() as u32;
                    out.ranges.extend_from_slice(&block.ranges[own]);
                    Outcome::Appended(receipt)
                }
            };
            out.list.push(Action::Reply { to: pending.to, outcome });
        }
        self.recent.keep(block.place, &block.bytes);
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
            if sealed.end.lsn > self.committed.lsn {
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
