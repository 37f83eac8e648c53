//! The driver of the shard machine: its disk, its segments, its answers.

use duolog_engine::ids::{Generation, Lsn, Place};
use duolog_engine::segment::SegmentHeader;
use duolog_engine::shard::{Action, Actions, Event, Outcome};
use duolog_lease::event::Event as LeaseEvent;

use super::node::{LAYOUT, ToNode};
use super::plan::Mistake;
use super::world::World;
use crate::sim::disk::{WriteId, image};

/// Longest write to a disk that is very slow, us.
const SLOW_DISK_US: u64 = 2_500_000;
/// Pause before a segment is tried again when the disk was full, us.
const FULL_US: u64 = 500_000;
/// Longest making of a segment, us.
const PREPARE_MAX_US: u64 = 3_000;
/// How long a mark takes to become durable, us.
const MARK_US: u64 = 500;
/// Longest wait of a request for its block to be closed, us.
const FLUSH_US: u64 = 20;

impl World {
    /// Hands the machine one event.
    pub fn shard_step(&mut self, node: usize, event: Event<'_>) {
        let now = self.nodes[node].now(self.now_us);
        let mut actions = Actions::default();
        let shard = &mut self.process(node).shard;
        shard.step(now, event, &mut actions);
        shard.check();
        self.perform(node, &actions);
        let process = self.process(node);
        if process.shard.wants_flush() && !std::mem::replace(&mut process.flush_due, true) {
            self.soon(node, FLUSH_US, ToNode::Flush);
        }
        self.after_step(node);
    }

    fn perform(&mut self, node: usize, actions: &Actions) {
        for action in &actions.list {
            self.digest.add(&(node, action));
            match action {
                Action::Write { first_lsn, blocks, place, header } => {
                    self.write(node, *first_lsn, *blocks, *place, *header);
                    self.send_new(node);
                }
                Action::Reply { to, outcome } => {
                    if let Outcome::Appended(receipt) = outcome {
                        self.check_ack(node, receipt);
                    }
                    self.reply(node, *to, outcome, actions);
                }
                Action::PrepareSegment { generation } => {
                    self.process(node).preparing += 1;
                    let us = self.chance.between(1, PREPARE_MAX_US);
                    self.soon(node, us, ToNode::Prepared(*generation));
                }
                Action::WriteMark { end } => {
                    let too_high = self.makes(Mistake::MarkTooHigh);
                    let end = if too_high { self.process(node).shard.end() } else { *end };
                    self.soon(node, MARK_US, ToNode::Marked(end));
                }
                Action::Committed { .. } => self.check_commit(node),
                Action::Durable { epoch, lsn } => self.ack_leader(node, *epoch, *lsn),
                Action::SaveIndex { generation } => {
                    let saved = ToNode::IndexSaved(*generation, self.process(node).cuts);
                    self.soon(node, PREPARE_MAX_US, saved);
                }
                Action::Drained => {
                    if let Some(epoch) = self.process(node).draining.take() {
                        self.tell_control(node, LeaseEvent::Drained { epoch });
                    }
                }
                Action::BlockRefused { reason } => self.refuse_block(node, reason),
                Action::LoadHead { stream } => {
                    let (stream, head) = (*stream, Ok(None));
                    self.shard_step(node, Event::HeadLoaded { stream, head });
                }
                Action::LoadReplay { to, place } => {
                    let record = self.nodes[node].disk.visible(*place, 64 << 10).to_vec();
                    self.saw("a retry is answered from the disk");
                    self.shard_step(node, Event::ReplayLoaded { to: *to, record: Ok(&record) });
                }
                // D3: nobody writes or acks after a failed write; the process ends.
                Action::Poisoned => self.soon(node, 0, ToNode::Died),
            }
        }
    }

    fn write(
        &mut self,
        node: usize,
        first_lsn: Lsn,
        blocks: u32,
        place: Place,
        header: Option<SegmentHeader>,
    ) {
        if header.is_some() {
            self.saw("a log goes on in the next segment");
        }
        let blocks = self.process(node).shard.write_parts(first_lsn, blocks);
        let image = image(header.as_ref(), blocks, LAYOUT.align_bytes as usize);
        let offset = if header.is_some() { 0 } else { place.offset };
        let write = self.nodes[node].disk.begin_write(place.generation, offset, image);
        let slow = self.nodes[node].slow_disk;
        let max_us = if slow { SLOW_DISK_US } else { self.plan.disk_us };
        let us = self.chance.between(10, max_us);
        if self.makes(Mistake::DurableTooEarly) {
            let early = Event::BlockWritten { first_lsn };
            let now = self.nodes[node].now(self.now_us);
            let mut actions = Actions::default();
            self.process(node).shard.step(now, early, &mut actions);
            self.perform(node, &actions);
        }
        self.soon(node, us, ToNode::Written(write, first_lsn));
    }

    /// A segment is made.
    pub fn prepared(&mut self, node: usize, generation: Generation) {
        if self.nodes[node].full {
            self.saw("a disk is full");
            self.shard_step(node, Event::SegmentRefused);
            return self.soon(node, FULL_US, ToNode::Prepared(generation));
        }
        self.process(node).preparing -= 1;
        let recycle = self.chance.percent(30);
        self.nodes[node].disk.prepare(generation, LAYOUT, recycle);
        self.shard_step(node, Event::SegmentReady { generation });
    }

    /// A write is durable.
    pub fn written(&mut self, node: usize, write: WriteId, first_lsn: Lsn) {
        if std::mem::replace(&mut self.nodes[node].failing, false) {
            self.saw("a write fails");
            let counts = self.makes(Mistake::FailedWriteCounts);
            let event = if counts { Event::BlockWritten { first_lsn } } else { Event::WriteFailed };
            return self.shard_step(node, event);
        }
        self.nodes[node].disk.complete_write(write);
        if !self.makes(Mistake::DurableTooEarly) {
            self.shard_step(node, Event::BlockWritten { first_lsn });
        }
    }

    /// Cuts the log behind `lsn` and makes the machine anew; nothing is under way.
    pub fn cut(&mut self, node: usize, lsn: Lsn) {
        self.check_cut(node, lsn);
        let committed = self.process(node).shard.committed();
        assert!(self.process(node).is_settled(), "R3: a cut waits for the disk");
        let state = &mut self.nodes[node];
        if committed.lsn > Lsn(0) {
            state.mark = Some(committed);
        }
        let at = state.boundary_at(lsn);
        let at = at.expect("R3: a log is cut where a block ends");
        state.disk.cut_behind(at.behind, LAYOUT.align_bytes as usize);
        let shard = state.recovered();
        assert_eq!(shard.end().lsn, lsn, "R3: the log ends where it was cut");
        let process = self.process(node);
        process.shard = shard;
        process.cuts += 1;
        let (reign, members) = (process.reign, process.members);
        self.saw("a log is cut");
        self.shard_step(node, Event::Tick);
        if let Some(epoch) = reign {
            self.shard_step(node, Event::Promote { epoch });
        }
        if let Some((in_sync, proposal)) = members {
            self.shard_step(node, Event::Members { in_sync, proposal });
        }
    }
}
