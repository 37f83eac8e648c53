//! The shard machine: admits appends, orders them, groups them into blocks, releases answers.
//!
//! Owns the ordered state of one shard (heads, idempotency window, index of the unsealed segment)
//! and the order of commits. Promises A1–A6 and D3 of docs/INVARIANTS.md. Leaves to its driver all
//! I/O, to `recovery` the reading of old logs, to sessions the form of requests and answers.

mod actions;
mod admission;
mod assembly;
mod commit;
mod parked;
mod recent;
mod replay;
mod segments;
mod view;
mod waiting;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

pub use actions::{
    Action, Actions, Event, LoadFailed, Outcome, Receipt, Refusal, RequestId, StoredHead,
};
pub use segments::{Active, Layout, SEGMENTS_AHEAD};
pub use view::{Located, StreamEnd};

use crate::block::BlockHash;
use crate::ids::{
    ClusterId, Generation, Hlc, IdempotencyKey, LeaseEpoch, Lsn, Now, Place, ShardId,
};
use crate::index::heads::Heads;
use crate::index::key_file::SegmentKeys;
use crate::index::keys::KeyWindow;
use crate::index::lookup::Run;
use crate::index::tail::Tail;
use crate::limits::BLOCK_OVERLAP_BYTES;
use crate::segment::LogEnd;
use assembly::Assembly;
use parked::Parked;
use recent::Recent;
use segments::Segments;

/// Settings of one shard. Sizes are checked by the program's configuration.
#[derive(Clone, Copy, Debug)]
pub struct ShardConfig {
    /// The cluster.
    pub cluster: ClusterId,
    /// This shard.
    pub shard: ShardId,
    /// Number of shards in the cluster.
    pub shard_count: u32,
    /// The reign; 0 standalone.
    pub epoch: LeaseEpoch,
    /// Segment sizes.
    pub layout: Layout,
    /// Blocks being written at one time, at least 1.
    pub blocks_in_flight_max: usize,
    /// A block closes at this body size, bytes.
    pub block_target_bytes: usize,
    /// Appends with a key that are remembered.
    pub idempotency_window: usize,
    /// Stream heads in memory.
    pub hot_streams_max: usize,
    /// Committed blocks kept in memory for readers, bytes.
    pub recent_max_bytes: usize,
    /// Accepted and not answered appends.
    pub in_flight_max: usize,
    /// Their bytes.
    pub in_flight_max_bytes: usize,
}

/// The index and keys of a segment that is complete, until they are saved.
#[derive(Debug)]
pub struct Sealed {
    /// The segment.
    pub generation: Generation,
    /// Its streams and the places of their events.
    pub tail: Tail,
    /// The keys of its appends and the offsets of their append records, in order.
    pub keys: SegmentKeys,
    /// The end of the log behind it.
    pub end: LogEnd,
}

/// What the machine starts from.
#[derive(Debug)]
pub struct ShardStart {
    /// The end of the log.
    pub end: LogEnd,
    /// The next block's stamp is above this one and the end's. It is that of blocks which were cut
    /// off: the same appends in the same order must not become the same blocks again, or what is
    /// left of the old log behind them would continue it.
    pub newest_stamp: Hlc,
    /// Newest segment in use, 0 in an empty log.
    pub newest: Generation,
    /// That segment, unless it is complete and its index saved.
    pub active: Option<Active>,
    /// Index of the active segment.
    pub tail: Tail,
    /// Keys of the active segment.
    pub tail_keys: SegmentKeys,
    /// Heads of all streams in `tail`.
    pub heads: Heads,
    /// The idempotency window.
    pub keys: KeyWindow,
    /// Complete segments whose index could not be saved, in order.
    pub unsaved: Vec<Sealed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Serving,
    Draining,
    Drained,
    Poisoned,
}

/// One shard.
#[derive(Debug)]
pub struct Shard {
    config: ShardConfig,
    state: State,
    /// End of the newest closed block.
    end: LogEnd,
    /// See [`ShardStart`].
    stamp_floor: Hlc,
    /// LSN of the newest admitted event.
    ordered: Lsn,
    committed: LogEnd,
    /// Everything before this place is committed.
    committed_place: Place,
    marked: Lsn,
    marked_candidate: Lsn,
    segments: Segments,
    open: Assembly,
    open_started: bool,
    /// Closed blocks in order; the first `writing` of them have been handed to the driver.
    closed: VecDeque<Assembly>,
    writing: usize,
    /// Buffers for the next blocks.
    spare_blocks: Vec<Assembly>,
    recent: Recent,
    heads: Heads,
    keys: KeyWindow,
    tail: Tail,
    tail_keys: SegmentKeys,
    sealed: VecDeque<Arc<Sealed>>,
    saving: usize,
    /// Indexes whose memory the next segments use. Nobody else refers to them.
    spare_indexes: Vec<Arc<Sealed>>,
    runs: Vec<Arc<Run>>,
    parked: Parked,
    in_flight: usize,
    in_flight_bytes: usize,
    replays: HashMap<RequestId, Replay>,
    scratch: admission::Scratch,
}

/// A retry whose first answer has to be read from the log.
#[derive(Clone, Copy, Debug)]
struct Replay {
    request_bytes: usize,
    fingerprint: u64,
    key: Option<IdempotencyKey>,
}

impl Shard {
    /// A shard that goes on where recovery ended.
    #[must_use]
    pub fn new(config: ShardConfig, start: ShardStart) -> Self {
        assert!(config.blocks_in_flight_max > 0, "at least one block can be written");
        let segments = Segments::new(&config, start.newest, start.active);
        let committed_place = match start.active {
            Some(Active { generation, offset, .. }) => Place { generation, offset },
            None => Place { generation: start.newest.next(), offset: 0 },
        };
        Self {
            config,
            state: State::Serving,
            end: start.end,
            stamp_floor: start.newest_stamp,
            ordered: start.end.lsn,
            committed: start.end,
            committed_place,
            marked: Lsn(0),
            marked_candidate: Lsn(0),
            segments,
            open: Assembly::new(),
            open_started: false,
            closed: VecDeque::with_capacity(64),
            writing: 0,
            spare_blocks: Vec::with_capacity(16),
            recent: Recent::new(config.recent_max_bytes),
            heads: start.heads,
            keys: start.keys,
            tail: start.tail,
            tail_keys: start.tail_keys,
            sealed: start.unsaved.into_iter().map(Arc::new).collect(),
            saving: 0,
            spare_indexes: Vec::new(),
            runs: Vec::new(),
            parked: Parked::default(),
            in_flight: 0,
            in_flight_bytes: 0,
            replays: HashMap::new(),
            scratch: admission::Scratch::default(),
        }
    }

    /// The machine's one verb.
    pub fn step(&mut self, now: Now, event: Event<'_>, out: &mut Actions) {
        match event {
            Event::Append { to, view } => self.append(now, to, view, out),
            Event::Flush => self.flush(out),
            Event::BlockWritten { first_lsn } => self.block_written(first_lsn, out),
            Event::WriteFailed => self.poison(out),
            Event::SegmentReady { generation } => self.segment_ready(now, generation, out),
            Event::SegmentRefused => self.segment_refused(now, out),
            Event::HeadLoaded { stream, head } => self.head_loaded(now, stream, head, out),
            Event::ReplayLoaded { to, record } => self.replay_loaded(to, record, out),
            Event::IndexSaved { generation } => self.index_saved(generation),
            Event::Tick => self.tick(out),
            Event::Drain => self.drain(out),
        }
        self.finish_draining(out);
        self.want_segment(out);
        #[cfg(debug_assertions)]
        self.check();
    }

    /// Settings it runs with.
    #[must_use]
    pub const fn config(&self) -> &ShardConfig {
        &self.config
    }

    /// Appends accepted and not answered yet.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether a block waits for [`Event::Flush`]: at once when the disk is free; a second one
    /// beside a write under way only when it is large. Small groups would cost more processor time
    /// than their wait costs latency (measured, docs/adr/0003), large ones keep the disk busy.
    #[must_use]
    pub fn wants_flush(&self) -> bool {
        let large = self.open.bytes.len() >= BLOCK_OVERLAP_BYTES;
        let free = self.writing == 0 || (large && self.writing < self.config.blocks_in_flight_max);
        let waits = self.open_started && !self.open.is_empty();
        waits && free && self.state != State::Poisoned
    }

    /// Whether a block is being written.
    #[must_use]
    pub const fn is_writing(&self) -> bool {
        self.writing > 0
    }

    /// The bytes of a block named by [`Action::Write`], header included.
    #[must_use]
    pub fn block_bytes(&self, first_lsn: Lsn) -> &[u8] {
        let block = self.closed.iter().find(|block| block.first_lsn == first_lsn);
        &block.expect("the driver asks for a block that is being written").bytes
    }

    /// The segment that is being written, if there is one.
    #[must_use]
    pub fn active_generation(&self) -> Option<Generation> {
        self.segments.has_active().then(|| self.segments.generation())
    }

    /// The end of what is committed.
    #[must_use]
    pub const fn committed(&self) -> LogEnd {
        self.committed
    }

    fn want_segment(&mut self, out: &mut Actions) {
        if self.state == State::Poisoned {
            return;
        }
        if let Some(generation) = self.segments.want() {
            out.list.push(Action::PrepareSegment { generation });
        }
    }

    fn segment_ready(&mut self, now: Now, generation: Generation, out: &mut Actions) {
        self.segments.ready(generation);
        self.run_stalled(now, out);
    }

    fn segment_refused(&mut self, now: Now, out: &mut Actions) {
        self.segments.refuse();
        self.run_stalled(now, out);
    }

    fn index_saved(&mut self, generation: Generation) {
        let sealed = self.sealed.pop_front().expect("a saved index was being saved");
        assert_eq!(sealed.generation, generation, "indexes are saved in order");
        self.saving -= 1;
        self.heads.set_flushed(generation);
        // The thread that saved it may still hold its reference; then the memory goes with it.
        if Arc::strong_count(&sealed) == 1 {
            self.spare_indexes.push(sealed);
        }
    }

    /// Replaces the list of saved indexes (after a save or a merge).
    pub fn set_runs(&mut self, runs: Vec<Arc<Run>>) {
        self.runs = runs;
    }

    /// The index named by [`Action::SaveIndex`].
    #[must_use]
    pub fn sealed(&self, generation: Generation) -> Option<Arc<Sealed>> {
        self.sealed.iter().find(|sealed| sealed.generation == generation).cloned()
    }

    fn tick(&mut self, out: &mut Actions) {
        // Those that recovery could not save.
        self.save_indexes(out);
        // A mark per tick at most, and only when the log has stood still since the last tick:
        // under load the commit marks of later blocks say the same (FORMAT.md, "Mark").
        let lsn = self.committed.lsn;
        if lsn > self.marked && lsn == self.marked_candidate && self.in_flight == 0 {
            self.marked = lsn;
            out.list.push(Action::WriteMark { end: self.committed });
        }
        self.marked_candidate = lsn;
    }

    fn drain(&mut self, out: &mut Actions) {
        if self.state == State::Serving {
            self.state = State::Draining;
        }
        self.flush(out);
    }

    fn finish_draining(&mut self, out: &mut Actions) {
        if self.state == State::Draining && self.in_flight == 0 && self.closed.is_empty() {
            self.state = State::Drained;
            if self.committed.lsn > self.marked {
                self.marked = self.committed.lsn;
                out.list.push(Action::WriteMark { end: self.committed });
            }
            out.list.push(Action::Drained);
        }
    }

    /// The ordering chain that must hold after every step (invariant A1).
    pub fn check(&self) {
        assert!(self.committed.lsn <= self.end.lsn, "committed blocks are closed blocks");
        assert!(self.end.lsn <= self.ordered, "closed events are ordered events");
        assert!(self.writing <= self.closed.len(), "blocks being written are closed");
        assert!(self.writing <= self.config.blocks_in_flight_max, "the window is kept");
        assert!(self.saving <= self.sealed.len(), "indexes being saved are sealed");
        assert!(self.marked <= self.committed.lsn, "a mark never runs ahead of the commit");
    }

    fn release(&mut self, request_bytes: usize) {
        assert!(self.in_flight > 0, "A5: an answer belongs to an accepted request");
        self.in_flight -= 1;
        self.in_flight_bytes -= request_bytes;
    }

    fn next_hlc(&self, now: Now) -> Hlc {
        self.end.hlc.max(self.stamp_floor).tick(now.wall)
    }

    fn previous_hash(&self) -> BlockHash {
        self.end.hash
    }
}

#[cfg(test)]
pub(crate) mod tests;
