//! The chain's uploads step by step: whole action lists for each rule.

use duolog_lease::grant::Admission;

use super::*;

struct Case {
    machine: Uploader,
    now: MonoMs,
    out: Vec<Action>,
}

fn grant(epoch: u64, renewal_from: u64) -> Grant {
    Grant {
        epoch: LeaseEpoch(epoch),
        serve_until: MonoMs(u64::MAX),
        admission: Admission::Open,
        renewal_from: MonoMs(renewal_from),
        upload_until: MonoMs(renewal_from + 1000),
    }
}

impl Case {
    /// The chain of epoch 3 behind an Open that ends at LSN 10, with a grant and no delay.
    fn new() -> Self {
        Self::with(0, 2)
    }

    fn with(delay_ms: u64, in_flight_max: usize) -> Self {
        let config =
            UploaderConfig { epoch: LeaseEpoch(3), delay_ms, in_flight_max, batch_bytes: 1000 };
        let machine = Uploader::new(config, Lsn(10));
        let mut case = Self { machine, now: MonoMs(0), out: Vec::new() };
        assert_eq!(case.tell(Event::Grant(Some(grant(3, 10_000)))), []);
        case
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        self.machine.step(self.now, event, &mut self.out);
        std::mem::take(&mut self.out)
    }

    fn closed(&mut self, last: u64, bytes: u64) -> Vec<Action> {
        self.tell(Event::Closed { last_lsn: Lsn(last), bytes })
    }

    fn committed(&mut self, lsn: u64) -> Vec<Action> {
        self.tell(Event::Committed { lsn: Lsn(lsn) })
    }

    fn put(&mut self, seq: u32, outcome: PutOutcome) -> Vec<Action> {
        self.tell(Event::Put { seq: Seq(seq), outcome })
    }

    fn found(&mut self, seq: u32, found: Found) -> Vec<Action> {
        self.tell(Event::ReadBack { seq: Seq(seq), found: Some(found) })
    }

    fn tick(&mut self, at: u64) -> Vec<Action> {
        self.now = MonoMs(at);
        self.tell(Event::Tick)
    }
}

fn upload(seq: u32, first: u64, last: u64) -> Action {
    Action::Upload { seq: Seq(seq), range: LsnRange { first: Lsn(first), last: Lsn(last) } }
}

fn release(seq: u32) -> Action {
    Action::Release { seq: Seq(seq) }
}

fn stored(lsn: u64) -> Action {
    Action::ChainStored { lsn: Lsn(lsn) }
}

#[test]
fn r2_an_object_counts_when_all_lower_ones_are_stored() {
    let mut case = Case::new();
    assert_eq!(case.closed(12, 100), [upload(1, 11, 12)]);
    assert_eq!(case.closed(14, 100), [upload(2, 13, 14)]);
    assert_eq!(case.closed(15, 100), [], "two are under way");
    assert_eq!(case.closed(16, 100), []);
    assert_eq!(case.put(2, PutOutcome::Stored), [release(2)]);
    let next = case.put(1, PutOutcome::Stored);
    assert_eq!(next, [release(1), stored(14), upload(3, 15, 16)], "what waited goes together");
    assert_eq!(case.put(1, PutOutcome::Stored), [], "told twice");
    assert_eq!(case.put(3, PutOutcome::Stored), [release(3), stored(16)]);
}

#[test]
fn c4_nothing_is_uploaded_while_the_follower_covers() {
    let mut case = Case::new();
    assert_eq!(case.tell(Event::Wire(Wire::Covers)), []);
    assert_eq!(case.closed(12, 100), [], "C4: the chain does not grow");
    assert_eq!(case.closed(14, 100), []);
    assert_eq!(case.machine.deadline(), None);
    assert_eq!(case.committed(12), []);
    assert_eq!(case.tell(Event::Wire(Wire::Away)), [upload(1, 13, 14)], "C1: behind the mark");
    assert_eq!(case.tell(Event::Wire(Wire::Covers)), []);
    assert_eq!(case.closed(20, 5000), []);
    assert_eq!(case.committed(20), []);
    assert_eq!(case.put(1, PutOutcome::Stored), [release(1), stored(14)]);
    assert_eq!(case.tell(Event::Wire(Wire::Away)), []);
    assert_eq!(case.closed(21, 10), [upload(2, 21, 21)], "C1: both ways in one epoch");
    assert_eq!(case.machine.length(), (2, 110));
}

#[test]
fn c1_a_batch_begins_behind_the_chain_when_that_is_later() {
    let mut case = Case::new();
    assert_eq!(case.closed(12, 100), [upload(1, 11, 12)]);
    assert_eq!(case.committed(10), []);
    assert_eq!(case.closed(13, 100), [upload(2, 13, 13)]);
}

#[test]
fn c2_an_unknown_outcome_is_repeated_for_ever() {
    let mut case = Case::new();
    assert_eq!(case.closed(12, 100), [upload(1, 11, 12)]);
    assert_eq!(case.committed(12), [], "the wire was faster");
    assert_eq!(case.tell(Event::Wire(Wire::Covers)), []);
    for _ in 0..20 {
        assert_eq!(case.put(1, PutOutcome::Unknown), []);
        let at = case.machine.deadline().unwrap();
        assert_eq!(case.tick(at.0 - 1), []);
        assert_eq!(case.tick(at.0), [Action::Repeat { seq: Seq(1) }]);
        assert_eq!(case.tick(at.0), [], "once");
    }
    assert_eq!(case.put(1, PutOutcome::Exists), [Action::ReadBack { seq: Seq(1) }]);
    assert_eq!(case.tell(Event::ReadBack { seq: Seq(1), found: None }), []);
    let at = case.machine.deadline().unwrap();
    assert_eq!(case.tick(at.0), [Action::ReadBack { seq: Seq(1) }]);
    case.now = MonoMs(0);
    assert_eq!(case.found(1, Found::Own), [release(1), stored(12)]);
}

#[test]
fn c2_a_seal_or_anything_else_means_deposed() {
    for found in [Found::Seal, Found::Other] {
        let mut case = Case::new();
        case.closed(12, 100);
        assert_eq!(case.put(1, PutOutcome::Exists), [Action::ReadBack { seq: Seq(1) }]);
        assert_eq!(case.found(1, found), [Action::Deposed { seq: Seq(1), found }]);
        assert_eq!(case.put(1, PutOutcome::Stored), [], "L10: nothing counts any more");
        assert_eq!(case.tell(Event::Closed { last_lsn: Lsn(13), bytes: 1 }), []);
    }
}

#[test]
fn a_refused_object_that_is_not_there_is_sent_again() {
    let mut case = Case::new();
    case.closed(12, 100);
    case.put(1, PutOutcome::Exists);
    assert_eq!(case.found(1, Found::Nothing), []);
    let at = case.machine.deadline().unwrap();
    assert_eq!(case.tick(at.0), [Action::Repeat { seq: Seq(1) }]);
}

#[test]
fn c3_past_half_its_age_a_lease_is_renewed_and_past_it_uploads_wait() {
    let mut case = Case::new();
    case.now = MonoMs(9_999);
    assert_eq!(case.closed(12, 100), [upload(1, 11, 12)]);
    case.now = MonoMs(10_000);
    assert_eq!(case.closed(13, 100), [Action::AskRenewal, upload(2, 13, 13)]);
    case.now = MonoMs(11_000);
    assert_eq!(case.put(1, PutOutcome::Stored), [release(1)], "C3: it does not count yet");
    assert_eq!(case.closed(14, 100), []);
    assert_eq!(case.machine.deadline(), None, "only a grant helps");
    let renewed = case.tell(Event::Grant(Some(grant(3, 40_000))));
    assert_eq!(renewed, [stored(12), upload(3, 14, 14)]);
}

/// A block that waited for company must not wait for ever for a lease that nobody renews.
#[test]
fn c3_a_block_that_waits_asks_for_the_renewal_it_will_need() {
    let mut case = Case::with(50, 2);
    case.now = MonoMs(10_990);
    assert_eq!(case.closed(12, 100), []);
    assert_eq!(case.machine.deadline(), Some(MonoMs(11_040)));
    assert_eq!(case.tick(11_040), [Action::AskRenewal]);
    assert_eq!(case.machine.deadline(), None);
    assert_eq!(case.tell(Event::Grant(Some(grant(3, 40_000)))), [upload(1, 11, 12)]);
}

#[test]
fn c3_without_a_grant_of_this_reign_nothing_counts() {
    for other in [None, Some(grant(4, 40_000))] {
        let mut case = Case::new();
        assert_eq!(case.closed(12, 100), [upload(1, 11, 12)]);
        assert_eq!(case.tell(Event::Grant(other)), []);
        assert_eq!(case.put(1, PutOutcome::Stored), [release(1)]);
        assert_eq!(case.closed(13, 100), []);
    }
}

#[test]
fn blocks_wait_for_company_as_long_as_the_delay_allows() {
    let mut case = Case::with(50, 2);
    assert_eq!(case.closed(12, 100), []);
    assert_eq!(case.machine.deadline(), Some(MonoMs(50)));
    case.now = MonoMs(30);
    assert_eq!(case.closed(13, 100), []);
    assert_eq!(case.tick(49), []);
    assert_eq!(case.tick(50), [upload(1, 11, 13)]);
    assert_eq!(case.closed(14, 999), []);
    assert_eq!(case.closed(15, 1), [upload(2, 14, 15)], "it is full");
    assert_eq!(case.closed(16, 5000), []);
    assert_eq!(case.machine.deadline(), None, "no room: an answer helps, not the time");
    let next = case.put(1, PutOutcome::Stored);
    assert_eq!(next, [release(1), stored(13), upload(3, 16, 16)]);
}

#[test]
fn a_batch_has_a_size() {
    let mut case = Case::with(0, 1);
    assert_eq!(case.closed(11, 10), [upload(1, 11, 11)]);
    for lsn in 12..20 {
        assert_eq!(case.closed(lsn, 400), []);
    }
    assert_eq!(case.put(1, PutOutcome::Stored), [release(1), stored(11), upload(2, 12, 14)]);
    assert_eq!(case.put(2, PutOutcome::Stored), [release(2), stored(14), upload(3, 15, 17)]);
    assert_eq!(case.put(3, PutOutcome::Stored), [release(3), stored(17), upload(4, 18, 19)]);
}
