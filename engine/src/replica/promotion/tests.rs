//! Promotion step by step: whole action lists for each rule.

use super::*;
use crate::ids::Hlc;
use crate::replica::chain::header::{ObjectKind, Packing};
use crate::replica::chain::{ObjectId, ObjectPlace};

const CLUSTER: ClusterId = ClusterId(7);
const SHARD: ShardId = ShardId(2);
const NODE: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);
const NOW: MonoMs = MonoMs(1000);

/// The end at `lsn` of the one true log; block hashes name it.
fn at(lsn: u64) -> BlockEnd {
    if lsn == 0 { BlockEnd::genesis(CLUSTER, SHARD) } else { strange(lsn, 1) }
}

/// The end at `lsn` of another log.
fn strange(lsn: u64, log: u8) -> BlockEnd {
    BlockEnd { lsn: Lsn(lsn), hash: [log; 32] }
}

fn log_end(end: BlockEnd, epoch: u64) -> LogEnd {
    LogEnd { lsn: end.lsn, hash: end.hash, hlc: Hlc(9), epoch: LeaseEpoch(epoch) }
}

fn object(kind: ObjectKind, place: (u64, u32), node: NodeId, points: &[BlockEnd]) -> ObjectFacts {
    let place = ObjectPlace { shard: SHARD, epoch: LeaseEpoch(place.0), seq: Seq(place.1) };
    let blocks = points.len().saturating_sub(1) as u32;
    let bare = BlockEnd { lsn: Lsn(0), hash: [0; 32] };
    let header = ObjectHeader {
        id: ObjectId { cluster: CLUSTER, place },
        kind,
        node,
        reign: if kind == ObjectKind::Seal { place.epoch.next() } else { place.epoch },
        base: points.first().copied().unwrap_or(bare),
        last_lsn: points.last().map_or(Lsn(0), |end| end.lsn),
        block_count: blocks,
        packing: Packing::Plain,
        stored_bytes: 200 * blocks,
        body_bytes: 200 * blocks,
        body_checksum: 0,
    };
    ObjectFacts { header, ends: points.get(1..).unwrap_or_default().to_vec() }
}

struct Case {
    machine: Promotion,
    out: Vec<Action>,
}

impl Case {
    /// Promotes to epoch `epoch` a log that ends at `end` and is committed up to `committed`.
    fn new(epoch: u64, end: BlockEnd, committed: u64) -> Self {
        let machine = Promotion::new(PromotionStart {
            cluster: CLUSTER,
            shard: SHARD,
            node: NODE,
            epoch: LeaseEpoch(epoch),
            end: log_end(end, epoch - 1),
            committed: Lsn(committed),
            stored: None,
        });
        Self { machine, out: Vec::new() }
    }

    /// The same with what the last leader has told of its chain.
    fn told(mut self, epoch: u64, next: u32, end: BlockEnd) -> Self {
        let stored = StoredChain { epoch: LeaseEpoch(epoch), next: Seq(next), end };
        self.machine.start.stored = Some(stored);
        self
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        self.machine.step(NOW, event, &mut self.out);
        std::mem::take(&mut self.out)
    }

    fn got(&mut self, place: (u64, u32), answer: GetAnswer) -> Vec<Action> {
        self.tell(Event::Got { epoch: LeaseEpoch(place.0), seq: Seq(place.1), answer })
    }

    fn open(&mut self, place: (u64, u32), points: &[BlockEnd]) -> Vec<Action> {
        self.got(place, GetAnswer::Object(object(ObjectKind::Open, place, OTHER, points)))
    }

    fn batch(&mut self, place: (u64, u32), points: &[BlockEnd]) -> Vec<Action> {
        self.got(place, GetAnswer::Object(object(ObjectKind::Batch, place, OTHER, points)))
    }

    fn seal(&mut self, place: (u64, u32)) -> Vec<Action> {
        self.got(place, GetAnswer::Object(object(ObjectKind::Seal, place, OTHER, &[])))
    }

    fn nothing(&mut self, place: (u64, u32)) -> Vec<Action> {
        self.got(place, GetAnswer::Nothing)
    }

    fn put(&mut self, place: (u64, u32), outcome: PutOutcome) -> Vec<Action> {
        self.tell(Event::Put { epoch: LeaseEpoch(place.0), seq: Seq(place.1), outcome })
    }

    fn found(&mut self, end: Option<BlockEnd>) -> Vec<Action> {
        let ask = self.machine.asks;
        self.tell(Event::EndFound { ask, end })
    }
}

fn get(epoch: u64, seq: u32) -> Action {
    Action::Get { epoch: LeaseEpoch(epoch), seq: Seq(seq) }
}

fn put_seal(epoch: u64, seq: u32) -> Action {
    Action::PutSeal { epoch: LeaseEpoch(epoch), seq: Seq(seq) }
}

fn release(epoch: u64, seq: u32) -> Action {
    Action::Release { epoch: LeaseEpoch(epoch), seq: Seq(seq) }
}

fn put_open(base: u64, end: u64) -> Action {
    Action::PutOpen { base: at(base), end: at(end) }
}

fn opened(base: u64, end: u64, epoch: u64) -> Action {
    Action::Ended(Ended::Opened { base: at(base), end: log_end(at(end), epoch) })
}

/// The usual case: the last leader never needed its chain.
#[test]
fn a_follower_with_everything_opens_after_four_calls_to_the_store() {
    let mut case = Case::new(5, at(30), 20);
    assert_eq!(case.tell(Event::Begin), [get(4, 0)]);
    assert_eq!(case.open((4, 0), &[at(10)]), [Action::FindEnd { ask: 1, lsn: Lsn(10) }]);
    let asked = case.found(Some(at(10)));
    assert_eq!(asked, [release(4, 0), get(4, 1), get(4, 2)], "P3: GET finds the end");
    assert_eq!(case.nothing((4, 1)), [put_seal(4, 1)]);
    let base = case.put((4, 1), PutOutcome::Stored);
    assert_eq!(base, [release(4, 2), Action::FindEnd { ask: 2, lsn: Lsn(20) }]);
    assert_eq!(case.found(Some(at(20))), [put_open(20, 30)], "P4, P5: the own tail is kept");
    assert_eq!(case.put((5, 0), PutOutcome::Stored), [opened(20, 30, 4)]);
    assert_eq!(case.nothing((4, 2)), [release(4, 2)], "an answer that came late");
    assert_eq!(case.put((5, 0), PutOutcome::Exists), [], "nothing comes after the end");
}

/// The leader had told of its chain: nothing of it is read.
#[test]
fn a_follower_that_was_told_of_the_chain_opens_after_two_calls_to_the_store() {
    let mut case = Case::new(5, at(30), 20).told(4, 131, at(18));
    assert_eq!(case.tell(Event::Begin), [Action::FindEnd { ask: 1, lsn: Lsn(18) }]);
    assert_eq!(case.found(Some(at(18))), [put_seal(4, 131)]);
    let base = case.put((4, 131), PutOutcome::Stored);
    assert_eq!(base, [Action::FindEnd { ask: 2, lsn: Lsn(20) }]);
    assert_eq!(case.found(Some(at(20))), [put_open(20, 30)]);
}

/// The leader went on alone: what it stored meanwhile is read, and nothing before.
#[test]
fn objects_behind_those_told_of_are_read() {
    let mut case = Case::new(5, at(30), 20).told(4, 9, at(30));
    assert_eq!(case.tell(Event::Begin), [put_seal(4, 9)], "the end of the own log is known");
    assert_eq!(case.put((4, 9), PutOutcome::Exists), [get(4, 9)]);
    let apply = Action::Apply { epoch: LeaseEpoch(4), seq: Seq(9), after: Lsn(30) };
    assert_eq!(case.batch((4, 9), &[at(30), at(33)]), [apply]);
    let end = log_end(at(33), 4);
    let next = case.tell(Event::Applied { end });
    assert_eq!(next, [release(4, 9), get(4, 10), get(4, 11)]);
    assert_eq!(case.seal((4, 10)), [release(4, 10), release(4, 11), put_open(33, 33)]);
}

/// What was told helps nobody whose log does not have it: a cut, or another log.
#[test]
fn a_chain_that_the_own_log_does_not_contain_is_read_from_its_open() {
    let mut case = Case::new(5, at(30), 20).told(4, 9, strange(25, 9));
    assert_eq!(case.tell(Event::Begin), [Action::FindEnd { ask: 1, lsn: Lsn(25) }]);
    assert_eq!(case.found(Some(at(25))), [get(4, 0)]);
    let mut case = Case::new(5, at(30), 20).told(4, 9, at(31));
    assert_eq!(case.tell(Event::Begin), [get(4, 0)]);
    let mut case = Case::new(5, at(30), 20).told(3, 9, at(18));
    assert_eq!(case.tell(Event::Begin), [get(4, 0)], "a newer reign comes first");
    assert_eq!(case.nothing((4, 0)), [Action::FindEnd { ask: 1, lsn: Lsn(18) }]);
    assert_eq!(case.found(Some(at(18))), [put_seal(3, 9)]);
    assert_eq!(case.put((3, 9), PutOutcome::Stored), [get(4, 0)], "P3: up to e in order");
}

#[test]
fn the_first_reign_of_a_cluster_opens_at_once() {
    let mut case = Case::new(1, at(0), 0);
    assert_eq!(case.tell(Event::Begin), [put_open(0, 0)]);
    assert_eq!(case.put((1, 0), PutOutcome::Stored), [opened(0, 0, 0)]);
}

#[test]
fn p2_the_newest_open_that_connects_is_the_start() {
    let mut case = Case::new(5, at(15), 12);
    case.tell(Event::Begin);
    assert_eq!(case.open((4, 0), &[at(20)]), [release(4, 0), get(3, 0)], "it lies ahead");
    assert_eq!(case.seal((3, 0)), [get(2, 0)], "that reign never opened");
    assert_eq!(case.open((2, 0), &[at(10)]), [Action::FindEnd { ask: 1, lsn: Lsn(10) }]);
    let asked = case.found(Some(at(10)));
    assert_eq!(asked, [release(2, 0), get(2, 1), get(2, 2)]);
    let applied = case.batch((2, 1), &[at(12), at(15), at(20), at(25)]);
    let after = Lsn(15);
    let apply = Action::Apply { epoch: LeaseEpoch(2), seq: Seq(1), after };
    assert_eq!(applied, [apply]);
    let next = case.tell(Event::Applied { end: log_end(at(25), 2) });
    assert_eq!(next, [release(2, 1), get(2, 3), get(2, 4), get(2, 5)]);
    let next = case.seal((2, 2));
    let released = [release(2, 2), release(2, 3), release(2, 4), release(2, 5)];
    assert_eq!(next, [released.as_slice(), &[get(3, 0)]].concat());
    assert_eq!(case.seal((3, 0)), [release(3, 0), get(4, 0)], "each chain to e is read");
    assert_eq!(case.open((4, 0), &[at(20)]), [Action::FindEnd { ask: 2, lsn: Lsn(20) }]);
    assert_eq!(case.found(Some(at(20))), [release(4, 0), get(4, 1), get(4, 2)]);
}

#[test]
fn p2_an_open_that_does_not_connect_is_a_fatal_gap() {
    let mut case = Case::new(3, at(15), 12);
    case.tell(Event::Begin);
    assert_eq!(case.open((2, 0), &[at(20)]), [release(2, 0), get(1, 0)]);
    let failure =
        Failure::Gap { shard: SHARD, own_end: Lsn(15), epoch: LeaseEpoch(2), base: Lsn(20) };
    assert_eq!(case.nothing((1, 0)), [Action::Ended(Ended::Failed(failure))]);
}

#[test]
fn p2_many_reigns_without_an_open_are_listed() {
    let mut case = Case::new(100, at(15), 12);
    let mut next = case.tell(Event::Begin);
    for epoch in (84..100).rev() {
        assert_eq!(next, [get(epoch, 0)]);
        next = case.nothing((epoch, 0));
    }
    assert_eq!(next, [Action::ListEpochs]);
    let epochs = [3, 99, 40, 84].map(LeaseEpoch).to_vec();
    assert_eq!(case.tell(Event::Epochs(epochs)), [get(40, 0)], "older than what was looked at");
    assert_eq!(case.seal((40, 0)), [get(3, 0)]);
    assert_eq!(case.nothing((3, 0)), [get(1, 0)], "no Open: the oldest chain");
    assert_eq!(case.nothing((1, 0)), [put_seal(1, 0)], "sealed at seq 0");
}

#[test]
fn p3_a_late_batch_is_applied_and_the_walk_goes_on() {
    let mut case = Case::new(2, at(15), 10);
    case.tell(Event::Begin);
    case.open((1, 0), &[at(0)]);
    assert_eq!(case.nothing((1, 1)), [put_seal(1, 1)]);
    assert_eq!(case.nothing((1, 2)), [], "read ahead");
    assert_eq!(case.put((1, 1), PutOutcome::Exists), [get(1, 1)], "412: read it again");
    let apply = Action::Apply { epoch: LeaseEpoch(1), seq: Seq(1), after: Lsn(15) };
    assert_eq!(case.batch((1, 1), &[at(15), at(18)]), [apply]);
    let next = case.tell(Event::Applied { end: log_end(at(18), 1) });
    assert_eq!(next, [release(1, 1), get(1, 3), get(1, 4), get(1, 5), put_seal(1, 2)]);
    assert_eq!(case.put((1, 2), PutOutcome::Exists), [get(1, 2)]);
    let end = case.seal((1, 2));
    assert_eq!(end[..4], [release(1, 2), release(1, 3), release(1, 4), release(1, 5)]);
    assert_eq!(end[4..], [put_open(18, 18)]);
}

#[test]
fn p3_own_blocks_that_differ_are_cut_and_the_chain_is_taken() {
    let mut case = Case::new(2, strange(30, 2), 10);
    case.tell(Event::Begin);
    case.open((1, 0), &[at(0)]);
    let points = [at(5), at(10), at(20), at(25)];
    assert_eq!(case.batch((1, 1), &points), [Action::FindEnd { ask: 1, lsn: Lsn(25) }]);
    assert_eq!(case.found(None), [Action::FindEnd { ask: 2, lsn: Lsn(10) }]);
    assert_eq!(case.found(Some(at(10))), [Action::FindEnd { ask: 3, lsn: Lsn(20) }]);
    assert_eq!(case.found(Some(strange(20, 2))), [Action::CutTo { end: at(10) }]);
    let apply = Action::Apply { epoch: LeaseEpoch(1), seq: Seq(1), after: Lsn(10) };
    assert_eq!(case.tell(Event::Cut { end: log_end(at(10), 1) }), [apply]);
    assert_eq!(case.tell(Event::Cut { end: log_end(at(10), 1) }), [], "told twice");
    let next = case.tell(Event::Applied { end: log_end(at(25), 1) });
    assert_eq!(next[0], release(1, 1));
}

#[test]
fn r4_nothing_that_was_acknowledged_is_cut() {
    let mut case = Case::new(2, strange(30, 2), 11);
    case.tell(Event::Begin);
    case.open((1, 0), &[at(0)]);
    case.batch((1, 1), &[at(10), at(20)]);
    assert_eq!(case.found(None), [Action::FindEnd { ask: 2, lsn: Lsn(10) }]);
    let failure = Failure::CutBelowCommitted {
        shard: SHARD,
        epoch: LeaseEpoch(1),
        fork: Lsn(10),
        committed: Lsn(11),
    };
    assert_eq!(case.found(Some(at(10))), [Action::Ended(Ended::Failed(failure))]);
}

#[test]
fn p3_a_batch_behind_a_hole_that_the_own_log_does_not_fill_is_a_gap() {
    let mut case = Case::new(2, at(15), 10);
    case.tell(Event::Begin);
    case.open((1, 0), &[at(0)]);
    let failure =
        Failure::Gap { shard: SHARD, own_end: Lsn(15), epoch: LeaseEpoch(1), base: Lsn(20) };
    let ended = case.batch((1, 1), &[at(20), at(25)]);
    assert_eq!(ended, [Action::Ended(Ended::Failed(failure))]);
}

#[test]
fn p5_a_sealed_or_foreign_open_means_deposed() {
    for foreign in [false, true] {
        let mut case = opening();
        assert_eq!(case.put((2, 0), PutOutcome::Exists), [get(2, 0)]);
        let ended = if foreign { case.open((2, 0), &[at(10), at(15)]) } else { case.seal((2, 0)) };
        assert_eq!(ended, [Action::Ended(Ended::Deposed)]);
    }
}

/// Promotes to epoch 2 up to its Open, of blocks behind LSN 10 up to 15.
fn opening() -> Case {
    let mut case = Case::new(2, at(15), 10);
    case.tell(Event::Begin);
    case.open((1, 0), &[at(0)]);
    case.nothing((1, 1));
    case.put((1, 1), PutOutcome::Stored);
    assert_eq!(case.found(Some(at(10))), [put_open(10, 15)]);
    case
}

#[test]
fn unknown_outcomes_are_repeated_identically_and_then_read_back() {
    let mut case = opening();
    assert_eq!(case.put((2, 0), PutOutcome::Unknown), []);
    let deadline = case.machine.deadline().unwrap();
    assert_eq!(case.tell(Event::Tick), [], "not before the pause is over");
    case.machine.step(deadline, Event::Tick, &mut case.out);
    assert_eq!(case.out, [put_open(10, 15)], "C2: the same again");
    case.out.clear();
    assert_eq!(case.machine.deadline(), None);
    assert_eq!(case.put((2, 0), PutOutcome::Exists), [get(2, 0)]);
    let facts = object(ObjectKind::Open, (2, 0), NODE, &[at(10), at(15)]);
    assert_eq!(case.got((2, 0), GetAnswer::Object(facts)), [opened(10, 15, 1)]);
}

#[test]
fn an_unknown_seal_is_never_taken_for_stored() {
    let mut case = Case::new(2, at(15), 10);
    case.tell(Event::Begin);
    assert_eq!(case.got((1, 0), GetAnswer::Unknown), []);
    let deadline = case.machine.deadline().unwrap();
    case.machine.step(deadline, Event::Tick, &mut case.out);
    assert_eq!(std::mem::take(&mut case.out), [get(1, 0)]);
    case.open((1, 0), &[at(0)]);
    case.nothing((1, 1));
    assert_eq!(case.put((1, 1), PutOutcome::Unknown), []);
    let deadline = case.machine.deadline().unwrap();
    case.machine.step(deadline, Event::Tick, &mut case.out);
    assert_eq!(std::mem::take(&mut case.out), [put_seal(1, 1)], "P3");
}

#[test]
fn a_damaged_object_is_read_again_a_few_times() {
    let mut case = Case::new(2, at(15), 10);
    case.tell(Event::Begin);
    let error = ChainError::BodyChecksum;
    for _ in 1..5 {
        assert_eq!(case.got((1, 0), GetAnswer::Unusable(error)), []);
        let deadline = case.machine.deadline().unwrap();
        case.machine.step(deadline, Event::Tick, &mut case.out);
        assert_eq!(std::mem::take(&mut case.out), [get(1, 0)]);
    }
    let (epoch, seq) = (LeaseEpoch(1), Seq(0));
    let failure = Failure::Unusable { shard: SHARD, epoch, seq, error };
    let ended = case.got((1, 0), GetAnswer::Unusable(error));
    assert_eq!(ended, [Action::Ended(Ended::Failed(failure))]);
}

/// An unreadable log is not a different one: taking it for that would cut acknowledged blocks.
#[test]
fn p3_nothing_is_cut_because_the_own_log_cannot_be_read() {
    let mut case = Case::new(2, strange(30, 2), 10);
    case.tell(Event::Begin);
    case.open((1, 0), &[at(0)]);
    case.batch((1, 1), &[at(10), at(20)]);
    let failure = Failure::LogUnreadable { shard: SHARD };
    assert_eq!(case.tell(Event::LogUnreadable), [Action::Ended(Ended::Failed(failure))]);
    assert_eq!(case.found(None), []);
}

#[test]
fn p6_a_lost_lease_ends_it() {
    let mut case = opening();
    assert_eq!(case.tell(Event::LeaseLost), [Action::Ended(Ended::Deposed)]);
    assert_eq!(case.put((2, 0), PutOutcome::Stored), [], "P5: too late");
    assert_eq!(case.tell(Event::LeaseLost), []);
}

#[test]
fn p5_a_commit_mark_inside_a_block_falls_back_to_the_chain() {
    let mut case = Case::new(2, at(15), 11);
    case.tell(Event::Begin);
    case.open((1, 0), &[at(0)]);
    case.nothing((1, 1));
    case.put((1, 1), PutOutcome::Stored);
    assert_eq!(case.found(None), [put_open(0, 15)], "lower is allowed");
}
