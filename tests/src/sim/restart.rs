//! Stops and starts: the real recovery over what the disk kept, held against the ledger.

use duolog_engine::block::Block;
use duolog_engine::ids::{Generation, Lsn, Place};
use duolog_engine::recovery::{
    Checkpoint, Damage, Ending, Found, LogIdentity, LogSource, RecoverError, Recovered, Scan,
    ScanStart, empty_log, recover,
};
use duolog_engine::segment::LogEnd;
use duolog_engine::segment::SEGMENT_HEADER_BYTES;
use duolog_engine::shard::{Refusal, Shard};

use super::disk::{Crash, SimDisk};
use super::index::SimIndex;
use super::ledger::Written;
use super::plan::{Mistake, Plan};
use super::work::{Answer, Known};
use super::world::World;

fn identity(plan: &Plan) -> LogIdentity {
    LogIdentity { cluster: plan.config.cluster, shard: plan.config.shard }
}

/// Starts on an empty disk.
pub(super) fn first_start(plan: &Plan, disk: &mut SimDisk, index: &mut SimIndex) -> Shard {
    let recovered = start(plan, disk, index, None).expect("an empty disk can be read").0;
    assert_eq!(recovered.scan.ending, Ending::Clean, "D4: an empty disk is a clean end");
    Shard::new(plan.config, recovered.start)
}

/// Opens the indexes and recovers; also the newest segment whose index was saved before.
fn start(
    plan: &Plan,
    disk: &mut SimDisk,
    index: &mut SimIndex,
    mark: Option<LogEnd>,
) -> Result<(Recovered, Generation), RecoverError> {
    let opened = index.open();
    let mut keys = opened.keys;
    if plan.mistake == Mistake::ForgottenKeys {
        keys = duolog_engine::index::keys::KeyWindow::new(plan.config.idempotency_window, 7);
    }
    let flushed = opened.flushed;
    let end = opened.end.unwrap_or_else(|| empty_log(identity(plan)));
    let mark = mark.filter(|_| plan.mistake != Mistake::ForgottenMark);
    let checkpoint = Checkpoint { flushed, end, mark, keys };
    Ok((recover(&plan.config, disk, checkpoint, index)?, flushed))
}

impl World {
    /// Stops the node, lets things decay, and starts it again.
    pub(super) fn restart(&mut self, clean: bool) {
        let faults = self.plan.faults;
        if clean && self.ledger.committed_end().lsn > Lsn(0) {
            let committed = self.ledger.committed_end();
            assert!(self.is_marked(&committed), "D4: a clean stop leaves a mark");
        }
        let crash = if self.chance.percent(faults.power) { Crash::Power } else { Crash::Kill };
        self.stop(crash);
        if self.chance.percent(faults.lost_mark) {
            self.mark = None;
        }
        if self.chance.percent(faults.lost_index) {
            self.index.decay(&mut self.chance);
        }
        if self.chance.percent(faults.resized) {
            let sizes = [64 << 10, 96 << 10, 160 << 10];
            self.plan.config.layout.segment_size_bytes = self.chance.pick(&sizes);
        }
        if self.chance.percent(faults.rot) {
            self.rot();
        }
        self.index.full = self.chance.percent(faults.no_space);
        let started = start(&self.plan, &mut self.disk, &mut self.index, self.mark);
        self.index.full = false;
        let (recovered, flushed) = started.expect("D4: a crash leaves a log that can be read");
        self.recovered(&recovered, self.survivors());
        self.recovered_state(recovered, flushed);
        self.walk_everything();
    }

    /// How many blocks the disk has without a gap.
    fn survivors(&self) -> usize {
        let whole = |block: &Written| self.is_whole(block);
        let lost = self.ledger.blocks[self.ledger.committed..].iter().position(|b| !whole(b));
        lost.map_or(self.ledger.blocks.len(), |lost| self.ledger.committed + lost)
    }

    fn is_whole(&self, block: &Written) -> bool {
        let seen = self.disk.visible(block.place, block.bytes.len());
        let header = block.header.is_none_or(|header| {
            let mut page = [0; SEGMENT_HEADER_BYTES];
            header.encode(&mut page);
            self.disk.visible(Place { offset: 0, ..block.place }, page.len()) == page
        });
        header && seen == block.bytes
    }

    fn recovered(&mut self, recovered: &Recovered, survivors: usize) {
        let end = recovered.scan.end;
        let committed = self.ledger.committed_end().lsn;
        assert!(end.lsn >= committed, "A5: {committed} was committed, {} is left", end.lsn);
        let expected = self.ledger.end_of(survivors);
        assert_eq!(end, expected, "D5: the log is what is left without a gap, no more, no less");
        let damaged = matches!(recovered.scan.ending, Ending::Damaged(_));
        assert!(!damaged, "D4: a crash is no damage: {:?}", recovered.scan);
        self.report.cut += (self.ledger.blocks.len() - survivors) as u64;
        self.ledger.cut(survivors);
        let fresh = self.ledger.commit(end, &self.work);
        for lsn in fresh {
            let append = &self.ledger.appends[&lsn];
            let open = |answer: Option<Answer>| {
                matches!(answer, None | Some(Answer::Refused(Refusal::Unknown)))
            };
            let mine = self.work.submissions.iter().any(|made| {
                made.operation == append.operation && made.life == self.life && open(made.answer)
            });
            assert!(mine, "A5: nobody waits for {append:?}, which a crash has brought");
        }
        self.again.clear();
        let unanswered = std::mem::take(&mut self.unanswered);
        if self.chance.percent(60) {
            let keyed = |made: &usize| {
                let operation = self.work.submissions[*made].operation;
                self.work.operations[operation].key.is_some()
            };
            self.again.extend(unanswered.into_iter().filter(keyed));
        }
    }

    /// Heads, tokens and keys are those of the log.
    fn recovered_state(&mut self, mut recovered: Recovered, flushed: Generation) {
        for (stream, id) in self.streams.ids.iter().enumerate() {
            let (next, token) = self.ledger.stream(stream);
            let last = self.ledger.streams[stream].lsns.last();
            // Recovery has saved the indexes of all segments but the newest.
            let newest = recovered.start.newest;
            let unsaved = last.is_some_and(|lsn| {
                newest > flushed && self.ledger.row(*lsn).place.generation == newest
            });
            let head = recovered.start.heads.get(*id);
            assert!(head.is_some() || !unsaved, "D7: the head of {stream} is not in memory");
            let Some(head) = head else { continue };
            assert_eq!(head.next_revision.0, next, "D7: stream {stream} goes on where it ended");
            assert_eq!(head.fencing_token, token, "A7: stream {stream} keeps its highest token");
        }
        let keys = recovered.start.keys.iter();
        let same = keys.eq(self.ledger.window.iter().copied());
        assert!(same, "A6: the window is that of the log");
        if self.plan.mistake != Mistake::NotSetAside {
            self.disk.set_aside_beyond(recovered.start.newest);
        }
        self.shard = Shard::new(self.plan.config, recovered.start);
        self.shard.set_runs(self.index.runs());
    }

    /// The whole log from its first block, as an offline check reads it.
    fn walk_everything(&mut self) {
        let identity = identity(&self.plan);
        let start = ScanStart { generation: Generation(1), end: empty_log(identity) };
        let mut count = 0;
        let blocks = &self.ledger.blocks;
        let walked = Scan::new(&mut self.disk, identity).run(start, None, &mut |found| {
            if let Found::Block(place, block, _) = found {
                let Block { header, .. } = block;
                let expected = &blocks[count];
                assert_eq!(place, expected.place, "D1: a block lies where it was written");
                assert_eq!(header.hash, expected.end.hash, "D1: a block is what was written");
                count += 1;
            }
            Ok(())
        });
        let walked = walked.expect("D2: the log can be read");
        assert_eq!(count, blocks.len(), "D1: the log has all its blocks");
        assert_eq!(walked.end, self.ledger.committed_end(), "D1: and ends behind the last");
    }

    /// Flips a bit in the tail, looks what a start makes of it, and flips it back.
    fn rot(&mut self) {
        // First, so that no write lands on the flipped bit and heals it.
        self.disk.settle(Generation(1)).expect("a simulated disk syncs");
        let survivors = self.survivors();
        let flushed = self.index.open().flushed;
        let first = self.ledger.blocks.partition_point(|block| block.place.generation <= flushed);
        if first >= survivors {
            return;
        }
        let hit = first + self.chance.index(survivors - first);
        let (place, bit) = self.choose_bit(hit);
        self.disk.flip_bit(place, bit);
        let started = start(&self.plan, &mut self.disk, &mut self.index, self.mark);
        self.disk.flip_bit(place, bit);
        let before = self.ledger.end_of(hit);
        let block = &self.ledger.blocks[hit];
        let proven = self.mark.is_some_and(|mark| mark.lsn > before.lsn)
            || self.ledger.blocks[hit + 1..]
                .iter()
                .any(|later| later.commit_mark > before.lsn && self.is_body_whole(later));
        let recovered = match started {
            Ok((recovered, _)) => recovered,
            Err(RecoverError::Newer { .. }) if !proven => {
                // Nothing but the version of the newest block or header is wrong.
                self.report.damage_found += 1;
                return;
            }
            Err(error) => panic!("D4: damage is no reason to fail: {error}"),
        };
        assert_eq!(recovered.scan.end, before, "D2: a damaged block is not taken for a whole one");
        match recovered.scan.ending {
            Ending::Damaged(Damage { first, last, .. }) => {
                let committed = hit < self.ledger.committed;
                assert!(committed, "D4: nothing committed is missing: {:?}", recovered.scan);
                assert_eq!(first, block.first_lsn, "D4: the damage begins with the block");
                assert!(last >= block.end.lsn, "D4: {last} ends before the block, {:?}", block.end);
                self.report.damage_found += 1;
            }
            ending => {
                assert!(!proven, "D4: there is proof, but {ending:?}: {block:?}");
                self.report.damage_unproven += 1;
            }
        }
    }

    fn is_body_whole(&self, block: &Written) -> bool {
        self.disk.visible(block.place, block.bytes.len()) == block.bytes
    }

    /// A bit of a block or of its segment's header, where it matters.
    fn choose_bit(&mut self, hit: usize) -> (Place, u8) {
        let block = &self.ledger.blocks[hit];
        let bit = self.chance.below(8) as u8;
        if block.header.is_some() && self.chance.percent(40) {
            let offset = self.chance.below(SEGMENT_HEADER_BYTES as u64) as u32;
            return (Place { offset, ..block.place }, bit);
        }
        let at = self.chance.index(block.bytes.len()) as u32;
        (Place { offset: block.place.offset + at, ..block.place }, bit)
    }
}
