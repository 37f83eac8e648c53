//! Giving the reign away on purpose (L11).

use duolog_lease::action::Action;
use duolog_lease::event::{Event, ReadResult, WriteOutcome};
use duolog_lease::grant::Admission;
use duolog_lease::ids::{ETag, LeaseEpoch};
use duolog_lease::report::{Cause, What};
use duolog_lease::status::{FenceReason, Status};

use crate::pair::{A, B, Note, Pair, STORE_MS, node_id};
use crate::single::Single;

/// The pause of writes is two calls to the store.
#[test]
fn a_handover_takes_two_calls_to_the_store() {
    let mut pair = Pair::healthy();
    let asked = pair.at;
    pair.give(A, Event::ResignRequested);
    pair.run(3000);
    assert_eq!(pair.first(B, &Note::What(What::Leads)), Some(asked + 2 * STORE_MS));
    assert_eq!(
        pair.first(B, &Note::What(What::Challenges(Cause::Resigned))),
        Some(asked + STORE_MS)
    );
    assert_eq!(pair.status(B), Status::Leader { epoch: LeaseEpoch(2) });
    assert_eq!(pair.status(A), Status::Follower { leader: node_id(B), epoch: LeaseEpoch(2) });
    assert_eq!(pair.reports(A)[..2], ["handover_started", "handover_done"]);
}

/// Nobody to hand over to: it goes on.
#[test]
fn without_a_reachable_follower_a_handover_is_refused() {
    let mut pair = Pair::healthy();
    pair.kill(B);
    pair.run(3000);
    pair.give(A, Event::ResignRequested);
    assert!(pair.reports(A).contains(&"handover_refused"));
    assert_eq!(pair.status(A), Status::Leader { epoch: LeaseEpoch(1) });
}

/// The `Resign` is lost. The old leader stays closed, asks the lease, and takes
/// a new reign when it has not moved.
#[test]
fn an_unanswered_handover_ends_in_a_new_reign() {
    let mut pair = Pair::healthy();
    let asked = pair.at;
    pair.cut();
    pair.give(A, Event::ResignRequested);
    pair.run(1499);
    assert_eq!(pair.status(A), Status::Fenced(FenceReason::Resigned));
    assert!(pair.grant(A).is_none());
    pair.mend();
    pair.run(2000);
    let leads = pair.times(A, &Note::What(What::Leads));
    let leads_b = pair.times(B, &Note::What(What::Leads));
    assert_eq!(leads.len() + leads_b.len(), 1, "one of them took it");
    assert!(leads.first().or(leads_b.first()) >= Some(&(asked + 1500)));
    assert_eq!(pair.document().epoch, LeaseEpoch(2));
}

/// The order of a handover, action by action.
#[test]
fn a_leader_drains_withdraws_its_grant_and_only_then_resigns() {
    let mut node = Single::leading();
    let sent = node.now().mono;
    node.ack(sent);
    let actions = node.step(Event::ResignRequested);
    let closed = node.machine.grant().expect("what is in flight may be acked");
    assert_eq!(closed.admission, Admission::Closed);
    assert!(actions.contains(&Action::GrantChanged(Some(closed))));
    assert!(actions.contains(&Action::Drain { epoch: LeaseEpoch(5) }));
    let actions = node.step(Event::Drained { epoch: LeaseEpoch(5) });
    assert_eq!(
        actions[..3],
        [
            Action::GrantChanged(None),
            Action::Fence(FenceReason::Resigned),
            Action::Resign { epoch: LeaseEpoch(5) },
        ]
    );
    // For good: neither acks nor renewals bring it back.
    node.run(100);
    node.ack(sent);
    assert!(node.machine.grant().is_none());
}

/// What is in flight does not commit: the handover is called off, nothing was lost.
#[test]
fn a_handover_that_cannot_drain_is_called_off() {
    let mut node = Single::leading();
    let sent = node.now().mono;
    node.ack(sent);
    node.step(Event::ResignRequested);
    node.run(1500);
    node.step(Event::Tick);
    assert_eq!(node.reported("handover_cancelled"), 1);
    assert_eq!(node.machine.grant().map(|grant| grant.admission), Some(Admission::Open));
    let actions = node.step(Event::Drained { epoch: LeaseEpoch(5) });
    let resigns = actions.iter().any(|action| matches!(action, Action::Resign { .. }));
    assert!(!resigns, "too late");
}

/// L11: only a `Resign` for exactly the epoch in the lease counts.
#[test]
fn a_resign_counts_for_exactly_the_epoch_in_the_lease() {
    for (resigned, lease, takes) in [(4, 4, true), (4, 5, false), (3, 4, false), (5, 4, false)] {
        let mut node = Single::booting(4);
        let version = node.version(B, 4, 30_000);
        node.read(ReadResult::Found(version));
        let (from, epoch) = (node_id(B), LeaseEpoch(resigned));
        node.step(Event::ResignReceived { from, epoch });
        if node.call.is_some() {
            let version = node.version(B, lease, 30_000);
            node.read(ReadResult::Found(version));
        }
        assert_eq!(node.writes.len(), usize::from(takes), "resigned {resigned}, lease {lease}");
    }
}

/// G3: a new reign on itself, without anybody else.
#[test]
fn a_leader_may_begin_a_new_reign_on_itself() {
    let mut node = Single::leading();
    node.step(Event::NewReignRequested);
    let actions = node.step(Event::Drained { epoch: LeaseEpoch(5) });
    assert_eq!(actions[0], Action::GrantChanged(None));
    let mut version = node.written_version();
    version.etag = ETag::new("\"5\"");
    node.read(ReadResult::Found(version));
    assert_eq!(node.writes.last().map(|(_, document)| document.epoch), Some(LeaseEpoch(6)));
    node.written(WriteOutcome::Stored { etag: ETag::new("\"6\"") });
    node.step(Event::PromisePersisted { epoch: LeaseEpoch(6) });
    node.step(Event::PromotionFinished { epoch: LeaseEpoch(6) });
    assert_eq!(node.status(), Status::Leader { epoch: LeaseEpoch(6) });
}

/// P2: a leader that lacks acknowledged events never leads again in this run, and lets the other
/// have the lease without waiting for its end.
#[test]
fn a_gap_found_in_promotion_hands_the_lease_to_the_other() {
    let mut pair = Pair::healthy();
    pair.promotes = false;
    pair.kill(A);
    pair.run(1600);
    assert_eq!(pair.status(B), Status::Promoting { epoch: LeaseEpoch(2) });
    pair.start(A);
    pair.run(1000);
    pair.promotes = true;
    let failed = pair.at;
    pair.give(
        B,
        Event::PromotionFailed {
            epoch: LeaseEpoch(2),
            failure: duolog_lease::event::PromotionFailure::Gap,
        },
    );
    pair.run(5000);
    let leads = pair.first(A, &Note::What(What::Leads));
    assert_eq!(leads, Some(failed + 2 * STORE_MS));
    assert_eq!(pair.status(B), Status::Follower { leader: node_id(A), epoch: LeaseEpoch(3) });
    // And when that leader dies, it does not try again.
    pair.kill(A);
    pair.run(60_000);
    assert!(pair.reports(B).contains(&"cannot_lead"));
    assert!(!matches!(pair.status(B), Status::Leader { .. } | Status::Promoting { .. }));
}

/// What goes wrong right after a handover was asked for.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    ResignLost,
    FollowerDies,
    LeaderDies,
    StoreDown,
    StoreDownForFollower,
}

/// Times in milliseconds after the request; who serves, and at which epoch.
#[derive(Debug)]
struct Row {
    fault: Fault,
    /// The next leader, when it serves; `None`: nobody within five seconds.
    next: Option<(usize, u64)>,
}

const ROWS: &[Row] = &[
    Row { fault: Fault::None, next: Some((B, 2 * STORE_MS)) },
    // The follower's heartbeat lease and the leader's patience end together, 1500 ms after the ack;
    // the lease in the bucket is long past its end, and A is the first to look.
    Row { fault: Fault::ResignLost, next: Some((A, 1500 + 2 * STORE_MS)) },
    Row { fault: Fault::FollowerDies, next: Some((A, 1500 + 2 * STORE_MS)) },
    // It has resigned already: the follower need not wait.
    Row { fault: Fault::LeaderDies, next: Some((B, 2 * STORE_MS)) },
    // Elections wait for the store, also this one.
    Row { fault: Fault::StoreDown, next: None },
    Row { fault: Fault::StoreDownForFollower, next: Some((A, 1500 + 2 * STORE_MS)) },
];

/// L11: one fault per row, right after the request; broken if anybody serves at another moment, or
/// if the old leader serves again at its epoch.
#[test]
fn a_handover_ends_at_the_times_of_the_protocol() {
    for row in ROWS {
        let mut pair = Pair::healthy();
        let asked = pair.at;
        match row.fault {
            Fault::ResignLost => pair.cut(),
            Fault::FollowerDies => pair.kill(B),
            Fault::StoreDown => pair.store_up = [false, false],
            Fault::StoreDownForFollower => pair.store_up[B] = false,
            Fault::None | Fault::LeaderDies => {}
        }
        pair.give(A, Event::ResignRequested);
        pair.run(1);
        assert!(pair.grant(A).is_none(), "{row:?}");
        if matches!(row.fault, Fault::LeaderDies) {
            pair.kill(A);
        }
        pair.run(4999);
        let leads = |node: usize| pair.first(node, &Note::What(What::Leads));
        let first = [A, B].into_iter().filter_map(|node| Some((node, leads(node)? - asked)));
        assert_eq!(first.min_by_key(|(_, at)| *at), row.next, "{row:?}");
        let over = usize::from(!matches!(row.fault, Fault::LeaderDies));
        assert_eq!(pair.times(A, &Note::Over).len(), over, "the shards are told once: {row:?}");
        let epoch = if row.next.is_some() { 2 } else { 1 };
        assert_eq!(pair.document().epoch, LeaseEpoch(epoch), "{row:?}");
    }
}
