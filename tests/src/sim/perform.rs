//! The driver's part: doing what the machine asks for, each thing after a while.

use duolog_engine::ids::{Generation, Lsn, Place, StreamId};
use duolog_engine::index::span::Direction;
use duolog_engine::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use duolog_engine::shard::{Action, Actions, Event, LoadFailed, Outcome, RequestId};

use super::disk::{WriteId, image};
use super::plan::Mistake;
use super::world::{Due, World};

/// Longest ordinary making of a segment, microseconds.
const PREPARE_MAX_US: u64 = 3_000;
/// How long space is missing at most, microseconds.
const FULL_MAX_US: u64 = 30_000;
/// How long the driver waits before it tries a segment again, microseconds.
const PREPARE_RETRY_US: u64 = 5_000;
/// Longest ordinary reading of a page or record, microseconds.
const LOAD_MAX_US: u64 = 800;
/// Longest ordinary saving of an index, microseconds.
const SAVE_MAX_US: u64 = 6_000;

impl World {
    /// Does what a step asked for, and holds it against the ledger.
    pub(super) fn perform(&mut self, actions: &Actions) {
        let committed = self.shard.committed();
        let durable = self.ledger.durable_lsn();
        assert!(committed.lsn <= durable, "D3: {} is committed, {durable} durable", committed.lsn);
        let mut fresh = self.ledger.commit(committed, &self.work);
        for action in &actions.list {
            self.digest.add(action);
            match action {
                Action::Write { first_lsn, blocks, place, header } => {
                    assert!(!self.poisoned, "D3: nothing is written after a failed write");
                    assert_eq!(*blocks, 1, "a standalone node's blocks are written one by one");
                    self.write(*first_lsn, *place, *header);
                }
                Action::Reply { to, outcome } => {
                    self.reply(*to, outcome, actions);
                    if let Outcome::Appended(receipt) = outcome
                        && !receipt.replayed
                    {
                        let at = fresh.iter().position(|lsn| *lsn == receipt.first_lsn);
                        fresh.remove(at.expect("A5: an answer leaves with its block's commit"));
                    }
                }
                Action::PrepareSegment { generation } => {
                    self.soon(PREPARE_MAX_US, Due::Prepare(*generation));
                }
                Action::LoadHead { stream } => self.load_head(*stream),
                Action::LoadReplay { to, place } => {
                    let behind = self.ledger.committed_end().lsn;
                    assert!(behind.0 > 0, "A3: a replay is read from committed blocks only");
                    self.soon(LOAD_MAX_US, Due::Record(*to, *place));
                }
                Action::SaveIndex { generation } => self.save_index(*generation),
                Action::WriteMark { end } => {
                    assert!(end.lsn <= committed.lsn, "D4: a mark names what is committed");
                    self.soon(PREPARE_MAX_US, Due::Marked(*end));
                }
                Action::Committed { lsn } => {
                    assert_eq!(*lsn, committed.lsn, "A4: readers hear of what is committed");
                }
                Action::Poisoned => self.poisoned = true,
                Action::Drained => self.drained = true,
                Action::Durable { .. } | Action::BlockRefused { .. } => {
                    panic!("R1: a standalone node follows nobody: {action:?}");
                }
            }
        }
        assert!(fresh.is_empty(), "A5: appends at {fresh:?} are committed and not answered");
    }

    fn write(&mut self, first_lsn: Lsn, place: Place, header: Option<SegmentHeader>) {
        let bytes = self.shard.in_memory_block(first_lsn).expect("it is being written").to_vec();
        self.ledger.write(&bytes, place, header, &self.streams, &self.work);
        let align = self.plan.config.layout.align_bytes as usize;
        if header.is_none() && place.offset as usize == align {
            // A crash has left the header and not the block behind it.
            let page = self.disk.visible(Place { offset: 0, ..place }, SEGMENT_HEADER_BYTES);
            let found = SegmentHeader::decode(page).expect("D5: a segment has a header");
            let before = self.ledger.end_of(self.ledger.blocks.len() - 1);
            assert_eq!(found.base, before, "D5: its header names the log's end before it");
        }
        if header.is_some() {
            assert_eq!(place.offset as usize, align, "D5: a segment's first block lies behind it");
        }
        let mut image = image(header.as_ref(), [bytes.as_slice()], align);
        let mut offset = if header.is_some() { 0 } else { place.offset };
        if header.is_some() && self.plan.mistake == Mistake::ForgottenHeader {
            image.drain(..align);
            offset = place.offset;
        }
        let write = self.disk.begin_write(place.generation, offset, image);
        let failure = self.chance.below(1000) < self.plan.faults.write_failure_per_1000;
        if failure {
            self.soon(self.plan.write_max_us, Due::WriteFails);
        } else if self.plan.mistake == Mistake::AckBeforeDurable {
            self.soon(self.plan.write_max_us, Due::Durable(write, first_lsn));
            self.mark_durable(first_lsn);
            self.after(1, Due::Written(first_lsn));
        } else {
            self.soon(self.plan.write_max_us, Due::Durable(write, first_lsn));
        }
    }

    pub(super) fn durable(&mut self, write: WriteId, first_lsn: Lsn) {
        self.disk.complete_write(write);
        if self.plan.mistake != Mistake::AckBeforeDurable {
            self.mark_durable(first_lsn);
            let delay_us = self.chance.pick(&[1, 1, 1, 300]);
            self.after(delay_us, Due::Written(first_lsn));
        }
    }

    fn mark_durable(&mut self, first_lsn: Lsn) {
        let at = self.ledger.blocks.partition_point(|block| block.first_lsn < first_lsn);
        self.ledger.blocks[at].durable = true;
    }

    /// A write fails: the machine answers everybody and does nothing any more.
    pub(super) fn fail_write(&mut self) {
        self.stopping = true;
        self.step(Event::WriteFailed);
        assert!(self.poisoned, "D3: a failed write ends the shard");
        let left = &self.unanswered;
        assert!(left.is_empty(), "A5: a failed write leaves {left:?} without an answer");
        self.step(Event::Flush);
        self.step(Event::Tick);
        self.step(Event::Drain);
    }

    pub(super) fn prepare(&mut self, generation: Generation) {
        if !self.full && self.chance.percent(self.plan.faults.no_space) {
            self.full = true;
            self.soon(FULL_MAX_US, Due::SpaceReturns);
        }
        if self.full {
            self.after(PREPARE_RETRY_US, Due::Prepare(generation));
            return self.step(Event::SegmentRefused);
        }
        let recycle = self.chance.percent(self.plan.faults.recycled);
        self.disk.prepare(generation, self.plan.config.layout, recycle);
        self.report.segments += 1;
        self.step(Event::SegmentReady { generation });
    }

    fn load_head(&mut self, stream: StreamId) {
        self.report.cold_heads += 1;
        let mut head = if self.chance.percent(self.plan.faults.load_failure) {
            self.failed_heads.insert(self.streams.index_of(stream));
            Err(LoadFailed)
        } else {
            let snapshot = match self.plan.mistake {
                Mistake::StaleHead => self.index.snapshot().without_newest(),
                _ => self.index.snapshot(),
            };
            Ok(snapshot.head(stream).expect("D7: saved indexes can be read"))
        };
        if let (Ok(Some(head)), Mistake::LostToken) = (&mut head, self.plan.mistake) {
            head.fencing_token = 0;
        }
        self.soon(LOAD_MAX_US, Due::Head(stream, head));
    }

    pub(super) fn load_record(&mut self, to: RequestId, place: Place) {
        if self.chance.percent(self.plan.faults.load_failure) {
            self.failed_records.insert(to.0 as usize);
            return self.step(Event::ReplayLoaded { to, record: Err(LoadFailed) });
        }
        let place = match self.plan.mistake {
            Mistake::WrongReplay => self.ledger.window.front().map_or(place, |(_, place)| *place),
            _ => place,
        };
        let record = self.disk.visible(place, 64 << 10).to_vec();
        self.step(Event::ReplayLoaded { to, record: Ok(&record) });
    }

    fn save_index(&mut self, generation: Generation) {
        let sealed = self.shard.sealed(generation).expect("D7: an index to save is there");
        let committed = self.ledger.committed_end().lsn;
        assert!(sealed.end.lsn <= committed, "D7: an index is saved of committed events only");
        self.saves.push_back(sealed);
        if self.saves.len() == 1 {
            self.soon(SAVE_MAX_US, Due::IndexAdded);
        }
    }

    pub(super) fn add_index(&mut self) {
        let sealed = self.saves.pop_front().expect("a save is under way");
        let generation = sealed.generation;
        if self.plan.mistake != Mistake::UnsavedIndex {
            self.index.add(&sealed).expect("D7: indexes are saved in order");
        }
        if !self.saves.is_empty() {
            self.soon(SAVE_MAX_US, Due::IndexAdded);
        }
        // Delays must not reorder the answers.
        self.after(1, Due::IndexSaved(generation));
        if self.chance.percent(30) {
            self.soon(SAVE_MAX_US, Due::Merge);
        }
    }

    pub(super) fn index_saved(&mut self, generation: Generation) {
        self.shard.set_runs(self.index.runs());
        self.step(Event::IndexSaved { generation });
    }

    pub(super) fn merge(&mut self) {
        if self.index.maintain().expect("D7: saved indexes can be merged") {
            self.shard.set_runs(self.index.runs());
        }
    }

    /// A reader looks at some stream.
    pub(super) fn look(&mut self) {
        let stream = self.chance.index(self.streams.names.len());
        let direction = self.chance.pick(&[Direction::Forwards, Direction::Backwards]);
        self.read_stream(stream, direction);
    }
}
