//! The shard machine: admits appends, orders them, groups them into blocks, releases answers; or
//! follows the blocks that another node has made.
//!
//! Owns the ordered state of one shard (heads, idempotency window, index of the unsealed segment)
//! and the order of commits. Promises A1–A6, D3 and R1–R5 of docs/INVARIANTS.md. Leaves to its
//! driver all I/O, to `recovery` the reading of old logs, to sessions the form of requests and
//! answers, to the lease machine who leads.

mod actions;
mod admission;
mod apply;
mod assembly;
mod commit;
mod coverage;
mod epochs;
mod follow;
mod parked;
mod recent;
mod replay;
mod role;
mod segments;
mod stamps;
mod start;
mod view;
mod waiting;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

pub use actions::{
    Action, Actions, Event, LoadFailed, Outcome, Receipt, Refusal, RequestId, StoredHead,
};
pub use apply::RecordMisfit;
pub(crate) use apply::{BlockSink, walk};
pub use coverage::Copies;
pub use epochs::{EPOCH_MARKS_MAX, EpochEnd, EpochMarks};
pub use follow::{BlockRefused, Fit};
pub use role::Role;
pub use segments::{Active, Layout, SEGMENTS_AHEAD};
pub use start::{Boundary, Sealed, ShardConfig, ShardStart};
pub use view::{Located, StreamEnd};

use crate::block::BlockHash;
use crate::ids::{Generation, Hlc, IdempotencyKey, LeaseEpoch, Lsn, Now, Place};
use crate::index::heads::Heads;
use crate::index::key_file::SegmentKeys;
use crate::index::keys::KeyWindow;
use crate::index::lookup::Run;
use crate::index::tail::Tail;
use crate::limits::BLOCK_OVERLAP_BYTES;
use crate::segment::LogEnd;
use apply::Unsettled;
use assembly::Assembly;
use coverage::Coverage;
use duolog_lease::grant::Grant;
use parked::Parked;
use recent::Recent;
use segments::Segments;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Serving,
    Draining,
    Drained,
    Poisoned,
}

/// A node of a pair marks its log at every so many ticks under load: once per second a write of
/// 4 KiB, so that no more than a second of lost events could go unnoticed at the next start.
const UNMARKED_TICKS_MAX: u32 = 10;

/// One shard.
#[derive(Debug)]
pub struct Shard {
    config: ShardConfig,
    state: State,
    role: Role,
    /// The highest reign that was followed, led or written.
    reign: LeaseEpoch,
    grant: Option<Grant>,
    coverage: Coverage,
    /// Everything up to here is committed as the leader says; counts unless this node leads.
    mark: Lsn,
    epochs: EpochMarks,
    /// End of the newest closed block.
    end: LogEnd,
    /// See [`ShardStart`].
    stamp_floor: Hlc,
    /// As follower: what the leader has promised about later stamps.
    heard: stamps::Heard,
    /// LSN of the newest admitted event.
    ordered: Lsn,
    /// Everything up to here is on this disk.
    durable: LogEnd,
    committed: LogEnd,
    /// Blocks behind it that an earlier life has left, as far as they are not in `closed`.
    uncommitted: VecDeque<Boundary>,
    /// Everything before this place is committed.
    committed_place: Place,
    marked: Lsn,
    marked_candidate: Lsn,
    /// Ticks of a pair's node since its last mark.
    unmarked_ticks: u32,
    segments: Segments,
    open: Assembly,
    open_started: bool,
    /// Closed blocks in order, until they commit. The first `durable_count` of them are durable
    /// with everything before, the first `issued` have been handed to the driver.
    closed: VecDeque<Assembly>,
    durable_count: usize,
    issued: usize,
    /// What the others take on the disk, bytes.
    waiting_bytes: usize,
    /// Writes under way.
    writes: usize,
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
    unsettled: Unsettled,
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
        let role = match config.pair {
            None => Role::Standalone,
            Some(_) => Role::Follower { epoch: None },
        };
        Self {
            config,
            state: State::Serving,
            role,
            reign: start.end.epoch,
            grant: None,
            coverage: Coverage::new(config.pair),
            mark: start.committed.end.lsn,
            epochs: start.epochs,
            end: start.end,
            stamp_floor: start.newest_stamp,
            heard: stamps::Heard::default(),
            ordered: start.end.lsn,
            durable: start.end,
            committed: start.committed.end,
            uncommitted: start.uncommitted,
            committed_place: start.committed.behind,
            marked: Lsn(0),
            marked_candidate: Lsn(0),
            unmarked_ticks: 0,
            segments,
            open: Assembly::new(),
            open_started: false,
            closed: VecDeque::with_capacity(64),
            durable_count: 0,
            issued: 0,
            waiting_bytes: 0,
            writes: 0,
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
            unsettled: Unsettled::default(),
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
            Event::BlockWritten { first_lsn } => self.block_written(now, first_lsn, out),
            Event::WriteFailed => self.poison(out),
            Event::SegmentReady { generation } => self.segment_ready(now, generation, out),
            Event::SegmentRefused => self.segment_refused(now, out),
            Event::HeadLoaded { stream, head } => self.head_loaded(now, stream, head, out),
            Event::ReplayLoaded { to, record } => self.replay_loaded(to, record, out),
            Event::IndexSaved { generation } => self.index_saved(generation, out),
            Event::Tick => self.tick(now, out),
            Event::Drain => self.drain(out),
            Event::Resume => self.resume(),
            Event::Grant(grant) => self.set_grant(now, grant, out),
            Event::Members { in_sync, proposal } => {
                self.coverage.set_members(in_sync, proposal);
                self.commit(now, out);
            }
            Event::Follow { epoch } => self.follow(epoch, out),
            Event::StopFollowing => self.stop_following(),
            Event::Received { epoch, block } => self.received(now, epoch, block, out),
            Event::CommitMark { epoch, lsn } => self.commit_mark(now, epoch, lsn, out),
            Event::Promote { epoch } => self.promote(epoch, out),
            Event::Opened { epoch } => self.opened(epoch, out),
            Event::PeerAcked { node, epoch, lsn } => {
                // An ack beyond the log's end is about nothing that is here.
                self.coverage.peer_acked(node, epoch, lsn.min(self.end.lsn));
                self.commit(now, out);
            }
            Event::ChainStored { epoch, lsn } => {
                self.coverage.chain_stored(epoch, lsn.min(self.end.lsn));
                self.commit(now, out);
            }
            Event::Demote => self.demote(out),
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

    /// Bytes of their requests.
    #[must_use]
    pub const fn in_flight_bytes(&self) -> usize {
        self.in_flight_bytes
    }

    /// Whether a block waits for [`Event::Flush`]: at once when the disk is free; a second one
    /// beside a write under way only when it is large. Small groups would cost more processor time
    /// than their wait costs latency (measured, docs/adr/0003), large ones keep the disk busy.
    #[must_use]
    pub fn wants_flush(&self) -> bool {
        if self.state == State::Poisoned {
            return false;
        }
        // What a leader has closed goes to the disk by itself.
        self.wants_to_close() || (!self.role.makes_blocks() && self.may_write())
    }

    fn wants_to_close(&self) -> bool {
        let large = self.open.bytes.len() >= BLOCK_OVERLAP_BYTES;
        let free = self.writes == 0 || (large && self.writes < self.config.blocks_in_flight_max);
        self.open_started && !self.open.is_empty() && free
    }

    /// Whether a block is being written.
    #[must_use]
    pub const fn is_writing(&self) -> bool {
        self.writes > 0
    }

    /// The bytes of the blocks named by [`Action::Write`], headers included, padding not.
    pub fn write_parts(
        &self,
        first_lsn: Lsn,
        blocks: u32,
    ) -> impl Iterator<Item = &[u8]> + Clone + use<'_> {
        let at = self.closed.partition_point(|block| block.first_lsn < first_lsn);
        let found = self.closed.get(at).is_some_and(|block| block.first_lsn == first_lsn);
        assert!(found, "the driver asks for a block that is being written");
        self.closed.range(at..at + blocks as usize).map(|block| &block.bytes[..])
    }

    /// The bytes of the block that begins with this LSN, header included, while they are in memory:
    /// from its closing or arrival to some time after its commit.
    #[must_use]
    pub fn in_memory_block(&self, first_lsn: Lsn) -> Option<&[u8]> {
        let at = self.closed.partition_point(|block| block.first_lsn < first_lsn);
        match self.closed.get(at) {
            Some(block) if block.first_lsn == first_lsn => Some(&block.bytes),
            _ => self.recent.block(first_lsn),
        }
    }

    /// The bytes of the newest block that begins with this LSN or before it, while they are in
    /// memory: the block that has this LSN, if the log reaches that far.
    #[must_use]
    pub fn in_memory_block_up_to(&self, lsn: Lsn) -> Option<&[u8]> {
        let behind = self.closed.partition_point(|block| block.first_lsn <= lsn);
        match behind.checked_sub(1).and_then(|at| self.closed.get(at)) {
            Some(block) => Some(&block.bytes),
            None => self.recent.block_up_to(lsn),
        }
    }

    /// The segment that is being written, if there is one.
    #[must_use]
    pub fn active_generation(&self) -> Option<Generation> {
        self.segments.has_active().then(|| self.segments.generation())
    }

    /// The end of the newest closed or received block.
    #[must_use]
    pub const fn end(&self) -> LogEnd {
        self.end
    }

    /// The end of what is on this disk.
    #[must_use]
    pub const fn durable(&self) -> LogEnd {
        self.durable
    }

    /// The end of what is committed.
    #[must_use]
    pub const fn committed(&self) -> LogEnd {
        self.committed
    }

    /// Leader: the last LSN that has its second copy under every set in force.
    #[must_use]
    pub fn covered(&self) -> Lsn {
        self.coverage.covered()
    }

    /// Where the reigns before the log's newest end, the newest [`EPOCH_MARKS_MAX`], oldest first.
    #[must_use]
    pub fn epoch_marks(&self) -> &[EpochEnd] {
        self.epochs.as_slice()
    }

    /// Whether [`Shard::epoch_marks`] names every reign of the log.
    #[must_use]
    pub const fn epoch_marks_complete(&self) -> bool {
        self.epochs.is_complete()
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
        self.start_writes(out);
    }

    fn segment_refused(&mut self, now: Now, out: &mut Actions) {
        self.segments.refuse();
        self.run_stalled(now, out);
    }

    fn index_saved(&mut self, generation: Generation, out: &mut Actions) {
        let sealed = self.sealed.pop_front().expect("a saved index was being saved");
        assert_eq!(sealed.generation, generation, "indexes are saved in order");
        self.saving -= 1;
        self.heads.set_flushed(generation);
        // The thread that saved it may still hold its reference; then the memory goes with it.
        if Arc::strong_count(&sealed) == 1 {
            self.spare_indexes.push(sealed);
        }
        if self.state != State::Poisoned {
            self.start_writes(out);
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

    fn tick(&mut self, now: Now, out: &mut Actions) {
        if self.role != Role::Standalone && self.state != State::Poisoned {
            self.commit(now, out);
            self.retry_unsettled(out);
        }
        // Those that recovery could not save.
        self.save_indexes(out);
        // A mark per tick at most, and only when the log has stood still since the last tick:
        // under load the commit marks of later blocks say the same (FORMAT.md, "Mark").
        let lsn = self.committed.lsn;
        let rests = lsn == self.marked_candidate && self.in_flight == 0;
        // In a pair those say what the leader knew, not what this disk has, and prove nothing.
        self.unmarked_ticks += u32::from(self.role != Role::Standalone);
        if lsn > self.marked && (rests || self.unmarked_ticks >= UNMARKED_TICKS_MAX) {
            (self.marked, self.unmarked_ticks) = (lsn, 0);
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

    fn resume(&mut self) {
        if matches!(self.state, State::Draining | State::Drained) {
            self.state = State::Serving;
        }
    }

    fn finish_draining(&mut self, out: &mut Actions) {
        // A follower's blocks may be committed later, by whom it follows then.
        let rests = if self.role.makes_blocks() {
            self.closed.is_empty()
        } else {
            self.durable_count == self.closed.len()
        };
        if self.state == State::Draining && self.in_flight == 0 && rests {
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
        assert!(self.committed.lsn <= self.durable.lsn, "D3: committed blocks are durable");
        assert!(self.durable.lsn <= self.end.lsn, "durable blocks are closed blocks");
        assert!(self.end.lsn <= self.ordered, "closed events are ordered events");
        assert!(self.durable_count <= self.issued, "durable blocks were written");
        assert!(self.issued <= self.closed.len(), "blocks being written are closed");
        assert!(self.writes <= self.config.blocks_in_flight_max, "the window is kept");
        let open = self.open_started && !self.open.is_empty();
        assert!(!open || self.role.makes_blocks(), "R1: a follower makes no blocks");
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
