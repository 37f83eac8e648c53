//! The steps of a promotion in the order of the rules.

use super::probe::{Probe, Verdict};
use super::{
    Action, BlockEnd, Ended, Failure, GetAnswer, ObjectFacts, Promotion, PutOutcome, Step,
    StoredChain,
};
use crate::ids::{LeaseEpoch, MonoMs};
use crate::replica::chain::Seq;
use crate::replica::chain::header::ObjectKind;
use crate::replica::limits::{PROMOTION_OPENS_MAX, PROMOTION_READ_AHEAD, UNUSABLE_READS_MAX};
use crate::segment::LogEnd;

type Place = (LeaseEpoch, Seq);

/// An object that was asked for.
#[derive(Debug)]
pub(super) enum Ready {
    /// No answer yet.
    Asked,
    /// Its answer; not for "unknown", which is asked again when it is needed.
    Answer(GetAnswer),
}

impl Promotion {
    /// P2: looks at the next older Open.
    pub(super) fn search_below(&mut self, epoch: LeaseEpoch, out: &mut Vec<Action>) {
        let below = match &self.listed {
            None => epoch.0 - 1,
            Some(listed) => {
                let count = listed.partition_point(|known| *known < epoch);
                count.checked_sub(1).map_or(0, |newest| listed[newest].0)
            }
        };
        if below == 0 {
            return self.search_ended(out);
        }
        if self.epochs_looked_at == PROMOTION_OPENS_MAX && self.listed.is_none() {
            self.step = Step::Listing;
            out.push(Action::ListEpochs);
            return;
        }
        if let Some(stored) = self.start.stored.take_if(|stored| stored.epoch.0 == below) {
            let probe = self.probe(vec![stored.end]);
            return self.recall(stored, probe, out);
        }
        self.epochs_looked_at += 1;
        self.step = Step::Searching(LeaseEpoch(below));
        out.push(Action::Get { epoch: LeaseEpoch(below), seq: Seq::OPEN });
    }

    fn search_ended(&mut self, out: &mut Vec<Action>) {
        match self.disconnected {
            Some((epoch, base)) => {
                let (shard, own_end) = (self.start.shard, self.own_end.lsn);
                self.fail(Failure::Gap { shard, own_end, epoch, base }, out);
            }
            None if self.start.epoch == LeaseEpoch::FIRST => self.find_base(out),
            // P2: no Open at all: the oldest chain begins with the empty log.
            None => self.read_epoch(LeaseEpoch::FIRST, out),
        }
    }

    pub(super) fn epochs(&mut self, mut epochs: Vec<LeaseEpoch>, out: &mut Vec<Action>) {
        if !matches!(self.step, Step::Listing) {
            return;
        }
        epochs.sort_unstable();
        self.listed = Some(epochs);
        let looked_at = u64::from(self.epochs_looked_at);
        self.search_below(LeaseEpoch(self.start.epoch.0 - looked_at), out);
    }

    pub(super) fn got(
        &mut self,
        now: MonoMs,
        place: Place,
        answer: GetAnswer,
        out: &mut Vec<Action>,
    ) {
        let (epoch, seq) = place;
        let awaited = match self.step {
            Step::Searching(at) => (at, Seq::OPEN) == place,
            Step::Reading(at, next) => (at, next) == place,
            Step::ReadingOpen(_) => (self.start.epoch, Seq::OPEN) == place,
            _ => false,
        };
        if !awaited {
            return self.got_ahead(place, answer, out);
        }
        self.again = None;
        match answer {
            GetAnswer::Unknown => self.repeat(now, Action::Get { epoch, seq }),
            GetAnswer::Unusable(error) => {
                self.unusable += 1;
                let shard = self.start.shard;
                if self.unusable == UNUSABLE_READS_MAX {
                    self.fail(Failure::Unusable { shard, epoch, seq, error }, out);
                } else {
                    self.repeat(now, Action::Get { epoch, seq });
                }
            }
            answer => {
                (self.pause, self.unusable) = (super::Pause::new(), 0);
                match self.step {
                    Step::Searching(_) => self.search_got(epoch, answer, out),
                    Step::ReadingOpen(base) => self.open_got(base, answer, out),
                    _ => self.read_got(epoch, seq, answer, out),
                }
            }
        }
    }

    /// An answer that was asked for ahead of its use, or that nobody waits for any more.
    fn got_ahead(&mut self, (epoch, seq): Place, answer: GetAnswer, out: &mut Vec<Action>) {
        let reading = match self.step {
            Step::Reading(at, _)
            | Step::Sealing(at, _)
            | Step::Comparing(at, ..)
            | Step::Cutting(at, ..)
            | Step::Applying(at, ..) => Some(at),
            _ => None,
        };
        let in_use = self.uses(epoch, seq);
        match self.ready.get_mut(&seq).filter(|_| reading == Some(epoch)) {
            Some(ready @ Ready::Asked) => match answer {
                GetAnswer::Object(_) | GetAnswer::Nothing => *ready = Ready::Answer(answer),
                GetAnswer::Unusable(_) | GetAnswer::Unknown => {
                    self.ready.remove(&seq);
                }
            },
            // A second answer: the first one is in use.
            Some(_) => {}
            None if in_use => {}
            None => out.push(Action::Release { epoch, seq }),
        }
    }

    /// Whether the driver has to keep this object.
    fn uses(&self, epoch: LeaseEpoch, seq: Seq) -> bool {
        match &self.step {
            Step::Connecting(at, _) => (*at, Seq::OPEN) == (epoch, seq),
            Step::Comparing(at, next, _)
            | Step::Cutting(at, next, ..)
            | Step::Applying(at, next, _) => (*at, *next) == (epoch, seq),
            _ => false,
        }
    }

    fn search_got(&mut self, epoch: LeaseEpoch, answer: GetAnswer, out: &mut Vec<Action>) {
        match answer {
            GetAnswer::Object(facts) if facts.header.kind == ObjectKind::Open => {
                // P2: contained in the own log, not simply the newest.
                let probe = self.probe(vec![facts.header.base]);
                self.ready.insert(Seq::OPEN, Ready::Answer(GetAnswer::Object(facts)));
                self.connect(epoch, probe, out);
            }
            _ => self.search_below(epoch, out),
        }
    }

    fn probe(&self, points: Vec<BlockEnd>) -> Probe {
        Probe::new(points, BlockEnd::of(&self.own_end), &[self.genesis, self.chain_end])
    }

    fn connect(&mut self, epoch: LeaseEpoch, probe: Probe, out: &mut Vec<Action>) {
        match probe.verdict() {
            Verdict::Ask(lsn) => {
                self.find_end(lsn, out);
                self.step = Step::Connecting(epoch, probe);
            }
            Verdict::Fork(_) => {
                self.chain_end = probe.last();
                self.read_epoch(epoch, out);
            }
            Verdict::Disjoint => {
                self.disconnected.get_or_insert((epoch, probe.last().lsn));
                self.ready.clear();
                out.push(Action::Release { epoch, seq: Seq::OPEN });
                self.search_below(epoch, out);
            }
        }
    }

    /// P2: a chain whose stored part the own log contains is read from behind that part. None of
    /// the objects before can be a Seal, and none of their blocks is missing here.
    fn recall(&mut self, stored: StoredChain, probe: Probe, out: &mut Vec<Action>) {
        let StoredChain { epoch, next, end } = stored;
        match probe.verdict() {
            Verdict::Ask(lsn) => {
                self.find_end(lsn, out);
                self.step = Step::Recalling(stored, probe);
            }
            Verdict::Fork(_) => {
                self.chain_end = end;
                // Most often nothing is there: a refused Seal tells as much as a GET.
                self.seal(epoch, next, out);
            }
            Verdict::Disjoint => self.search_below(epoch.next(), out),
        }
    }

    fn seal(&mut self, epoch: LeaseEpoch, seq: Seq, out: &mut Vec<Action>) {
        self.step = Step::Sealing(epoch, seq);
        out.push(Action::PutSeal { epoch, seq });
    }

    /// P3: reads the chain of `epoch` from its Open on. The Open may be at hand already.
    fn read_epoch(&mut self, epoch: LeaseEpoch, out: &mut Vec<Action>) {
        self.read_ahead = 1;
        self.read(epoch, Seq::OPEN, out);
    }

    /// P3: the next object of a chain.
    fn read(&mut self, epoch: LeaseEpoch, seq: Seq, out: &mut Vec<Action>) {
        self.step = Step::Reading(epoch, seq);
        let mut ahead = seq;
        for _ in 0..self.read_ahead {
            self.ready.entry(ahead).or_insert_with(|| {
                out.push(Action::Get { epoch, seq: ahead });
                Ready::Asked
            });
            ahead = ahead.next();
        }
        if let Some(Ready::Answer(_)) = self.ready.get(&seq)
            && let Some(Ready::Answer(answer)) = self.ready.remove(&seq)
        {
            self.read_got(epoch, seq, answer, out);
        }
    }

    fn read_got(&mut self, epoch: LeaseEpoch, seq: Seq, answer: GetAnswer, out: &mut Vec<Action>) {
        self.ready.remove(&seq);
        match answer {
            GetAnswer::Object(facts) if facts.header.kind == ObjectKind::Seal => {
                out.push(Action::Release { epoch, seq });
                self.chain_ended(epoch, out);
            }
            GetAnswer::Object(ObjectFacts { header, ends }) => {
                self.read_ahead = (2 * self.read_ahead).min(PROMOTION_READ_AHEAD);
                let points = std::iter::once(header.base).chain(ends).collect();
                let probe = self.probe(points);
                self.compare(epoch, seq, probe, out);
            }
            // P3: the end is fixed by the Seal, not by what was not found.
            _ => self.seal(epoch, seq, out),
        }
    }

    /// The chain of `epoch` is sealed.
    fn chain_ended(&mut self, epoch: LeaseEpoch, out: &mut Vec<Action>) {
        // Objects behind a Seal do not exist for anybody.
        for seq in std::mem::take(&mut self.ready).into_keys() {
            out.push(Action::Release { epoch, seq });
        }
        if epoch.next() < self.start.epoch {
            self.read_epoch(epoch.next(), out);
        } else {
            self.find_base(out);
        }
    }

    fn compare(&mut self, epoch: LeaseEpoch, seq: Seq, probe: Probe, out: &mut Vec<Action>) {
        let shard = self.start.shard;
        match probe.verdict() {
            Verdict::Ask(lsn) => {
                self.find_end(lsn, out);
                self.step = Step::Comparing(epoch, seq, probe);
            }
            Verdict::Disjoint => {
                let (own_end, base) = (self.own_end.lsn, probe.points()[0].lsn);
                self.fail(Failure::Gap { shard, own_end, epoch, base }, out);
            }
            // P4: what the own log has behind it stays.
            Verdict::Fork(at) if at + 1 == probe.points().len() => {
                self.object_done(epoch, seq, probe.last(), out);
            }
            Verdict::Fork(at) => {
                let fork = probe.points()[at];
                let committed = self.start.committed.max(self.chain_end.lsn);
                if fork.lsn == self.own_end.lsn {
                    self.apply(epoch, seq, fork, probe.last(), out);
                } else if fork.lsn < committed {
                    // R4: an alarm, not an action.
                    let fork = fork.lsn;
                    self.fail(Failure::CutBelowCommitted { shard, epoch, fork, committed }, out);
                } else {
                    out.push(Action::CutTo { end: fork });
                    self.step = Step::Cutting(epoch, seq, probe, at);
                }
            }
        }
    }

    fn apply(
        &mut self,
        epoch: LeaseEpoch,
        seq: Seq,
        after: BlockEnd,
        last: BlockEnd,
        out: &mut Vec<Action>,
    ) {
        out.push(Action::Apply { epoch, seq, after: after.lsn });
        self.step = Step::Applying(epoch, seq, last);
    }

    pub(super) fn cut(&mut self, end: LogEnd, out: &mut Vec<Action>) {
        let Step::Cutting(epoch, seq, probe, at) = &self.step else { return };
        let (epoch, seq, fork, last) = (*epoch, *seq, probe.points()[*at], probe.last());
        if self.log_ends_at(fork, end, out) {
            self.apply(epoch, seq, fork, last, out);
        }
    }

    pub(super) fn applied(&mut self, end: LogEnd, out: &mut Vec<Action>) {
        let Step::Applying(epoch, seq, last) = self.step else { return };
        if self.log_ends_at(last, end, out) {
            self.object_done(epoch, seq, last, out);
        }
    }

    fn log_ends_at(&mut self, expected: BlockEnd, end: LogEnd, out: &mut Vec<Action>) -> bool {
        if BlockEnd::of(&end) == expected {
            self.own_end = end;
            return true;
        }
        let (shard, expected, found) = (self.start.shard, expected.lsn, end.lsn);
        self.fail(Failure::LogDiffers { shard, expected, found }, out);
        false
    }

    fn object_done(&mut self, epoch: LeaseEpoch, seq: Seq, last: BlockEnd, out: &mut Vec<Action>) {
        self.chain_end = last;
        out.push(Action::Release { epoch, seq });
        self.read(epoch, seq.next(), out);
    }

    pub(super) fn end_found(&mut self, end: Option<BlockEnd>, out: &mut Vec<Action>) {
        match std::mem::replace(&mut self.step, Step::New) {
            Step::Connecting(epoch, mut probe) => {
                probe.answer(end);
                self.connect(epoch, probe, out);
            }
            Step::Recalling(stored, mut probe) => {
                probe.answer(end);
                self.recall(stored, probe, out);
            }
            Step::Comparing(epoch, seq, mut probe) => {
                probe.answer(end);
                self.compare(epoch, seq, probe, out);
            }
            Step::FindingBase => {
                let mark = end.filter(|end| end.lsn == self.start.committed);
                self.open(mark.unwrap_or(self.chain_end), out);
            }
            // The second answer to one question.
            other => self.step = other,
        }
    }

    /// P5: the later of the commit mark and the end of what was read; both are committed.
    fn find_base(&mut self, out: &mut Vec<Action>) {
        let committed = self.start.committed;
        if committed <= self.chain_end.lsn {
            self.open(self.chain_end, out);
        } else if committed == self.own_end.lsn {
            self.open(BlockEnd::of(&self.own_end), out);
        } else {
            self.step = Step::FindingBase;
            self.find_end(committed, out);
        }
    }

    fn open(&mut self, base: BlockEnd, out: &mut Vec<Action>) {
        self.step = Step::Opening(base);
        out.push(Action::PutOpen { base, end: BlockEnd::of(&self.own_end) });
    }

    pub(super) fn put(
        &mut self,
        now: MonoMs,
        place: Place,
        outcome: PutOutcome,
        out: &mut Vec<Action>,
    ) {
        let (epoch, seq) = place;
        match self.step {
            Step::Sealing(at, next) if (at, next) == place => {
                self.again = None;
                match outcome {
                    PutOutcome::Stored => self.chain_ended(epoch, out),
                    // P3: a late Batch is applied and the walk goes on.
                    PutOutcome::Exists => self.read(epoch, seq, out),
                    PutOutcome::Unknown => self.repeat(now, Action::PutSeal { epoch, seq }),
                }
            }
            Step::Opening(base) if (self.start.epoch, Seq::OPEN) == place => {
                self.again = None;
                let end = BlockEnd::of(&self.own_end);
                match outcome {
                    PutOutcome::Stored => self.opened(base, out),
                    PutOutcome::Exists => {
                        self.step = Step::ReadingOpen(base);
                        out.push(Action::Get { epoch, seq });
                    }
                    PutOutcome::Unknown => self.repeat(now, Action::PutOpen { base, end }),
                }
            }
            _ => {}
        }
    }

    /// P5: what is there where the Open was refused.
    fn open_got(&mut self, base: BlockEnd, answer: GetAnswer, out: &mut Vec<Action>) {
        match answer {
            GetAnswer::Nothing => self.open(base, out),
            GetAnswer::Object(ObjectFacts { header, ends }) => {
                let end = ends.last().copied().unwrap_or(header.base);
                let own = header.kind == ObjectKind::Open
                    && header.node == self.start.node
                    && header.base == base
                    && end == BlockEnd::of(&self.own_end);
                if own { self.opened(base, out) } else { self.end(Ended::Deposed, out) }
            }
            GetAnswer::Unusable(_) | GetAnswer::Unknown => {}
        }
    }

    fn opened(&mut self, base: BlockEnd, out: &mut Vec<Action>) {
        self.end(Ended::Opened { base, end: self.own_end }, out);
    }
}
