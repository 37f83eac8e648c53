//! The first look at the lease, after a start (L1, L2, L9).

use duolog_lease::document::DocumentError;
use duolog_lease::event::{Event, Hello, ReadResult, Refusal};
use duolog_lease::ids::{ClusterId, LeaseEpoch};
use duolog_lease::report::{Cause, What};
use duolog_lease::status::{FenceReason, Status};

use crate::pair::{A, B, CLUSTER, Note, Pair, STORE_MS, node_id};
use crate::single::Single;

/// L1: no lease: epoch 1, in_sync = self, and two racing creators make one leader.
#[test]
fn of_two_creators_one_leads_and_the_other_joins() {
    let mut pair = Pair::new();
    pair.start(A);
    pair.start(B);
    pair.run(2000);
    assert_eq!(pair.status(A), Status::Leader { epoch: LeaseEpoch(1) });
    assert_eq!(pair.status(B), Status::Follower { leader: node_id(A), epoch: LeaseEpoch(1) });
    assert!(pair.document().in_sync.contains(node_id(B)), "admitted without being asked (M0)");
    assert!(pair.reports(B).contains(&"challenge_lost"));
}

/// L2: a restarted leader that finds its own lease begins a new reign, and at once.
#[test]
fn a_restarted_leader_takes_the_next_epoch_at_once() {
    let mut pair = Pair::healthy();
    pair.kill(A);
    pair.run(10);
    pair.start(A);
    let started = pair.at;
    pair.run(3000);
    assert_eq!(pair.status(A), Status::Leader { epoch: LeaseEpoch(2) });
    assert_eq!(pair.first(A, &Note::What(What::Leads)), Some(started + 2 * STORE_MS));
    assert_eq!(pair.status(B), Status::Follower { leader: node_id(A), epoch: LeaseEpoch(2) });
}

/// L9: both were down; the first one up finds the other's expired lease and waits for a heartbeat.
#[test]
fn a_restarted_node_listens_before_it_takes_an_expired_lease() {
    let mut pair = Pair::healthy();
    pair.kill(A);
    pair.kill(B);
    pair.run(60_000);
    pair.start(B);
    let found = pair.at + STORE_MS;
    pair.run(5000);
    let challenges = pair.first(B, &Note::What(What::Challenges(Cause::Expired)));
    assert_eq!(challenges, Some(found + 1500 + STORE_MS));
    assert_eq!(pair.status(B), Status::Leader { epoch: LeaseEpoch(2) });
}

/// L9: the leader lives on heartbeats, so its lease object looks expired; its follower restarts.
#[test]
fn a_restarted_follower_hears_its_leader_and_does_not_challenge() {
    let mut pair = Pair::healthy();
    pair.kill(B);
    pair.run(100);
    pair.start(B);
    pair.run(10_000);
    assert_eq!(pair.times(B, &Note::Write), [0; 0]);
    assert_eq!(pair.status(B), Status::Follower { leader: node_id(A), epoch: LeaseEpoch(1) });
}

/// L9 beyond its letter: the lease that a restarted follower finds is still valid, but ends before
/// the leader's grant that rests on the ack of its earlier run. Broken if it challenges before.
#[test]
fn a_restarted_follower_waits_for_the_end_of_an_ack_it_has_forgotten() {
    let mut pair = Pair::healthy();
    pair.give(A, Event::RenewalWanted { epoch: LeaseEpoch(1) });
    let renewed = pair.at;
    pair.run(29_500);
    let acked = pair.last(A, &Note::HeartbeatAcked).expect("healthy");
    assert_eq!(acked, renewed + 29_500, "its grant reaches 1000 further, the lease object 500");
    pair.cut();
    pair.kill(B);
    pair.start(B);
    pair.run(3000);
    assert_eq!(pair.times(B, &Note::Write), [0; 0]);
    assert_eq!(pair.first(A, &Note::Write), Some(renewed));
    assert_eq!(pair.status(A), Status::Leader { epoch: LeaseEpoch(1) });
}

/// Unreadable, newer or foreign is never "no lease". Broken by any write.
#[test]
fn an_unusable_lease_is_never_no_lease() {
    for error in [
        DocumentError::Unreadable { why: "EOF".into() },
        DocumentError::Newer { found: 2 },
        DocumentError::Foreign { found: ClusterId(1), expected: CLUSTER },
        DocumentError::TooLong { size_bytes: 1 << 20 },
    ] {
        let mut node = Single::booting(0);
        for _ in 0..5 {
            node.read(ReadResult::Unusable(error.clone()));
            assert_eq!(node.status(), Status::Fenced(FenceReason::LeaseUnusable));
            node.wake();
        }
        let reports = node.reported("lease_unusable");
        assert_eq!((reports, node.writes.len()), (1, 0), "{error}");
    }
}

/// A lease that vanished is not created anew by a node that has promised an epoch.
#[test]
fn a_vanished_lease_is_not_created_anew() {
    let mut node = Single::booting(4);
    node.read(ReadResult::Absent);
    assert_eq!(node.status(), Status::Fenced(FenceReason::LeaseVanished));
    assert_eq!(node.writes.len(), 0);
    // A blank node creates it: there is nothing it could contradict.
    let mut node = Single::booting(0);
    node.read(ReadResult::Absent);
    assert_eq!(node.writes.len(), 1);
}

/// A lease older than the promise: a bucket put back in time. Neither followed nor taken.
#[test]
fn a_lease_behind_the_promise_is_neither_followed_nor_taken() {
    let mut node = Single::booting(5);
    let version = node.version(B, 4, -60_000);
    node.read(ReadResult::Found(version));
    assert_eq!(node.status(), Status::Fenced(FenceReason::LeaseBehindPromise));
    assert_eq!(node.writes.len(), 0);
}

/// The same answer, but the promise was made while it was under way: it is merely old.
#[test]
fn an_answer_older_than_a_promise_is_read_again() {
    let mut node = Single::booting(4);
    node.hello(B, 5);
    node.step(Event::PromisePersisted { epoch: LeaseEpoch(5) });
    let version = node.version(B, 4, -60_000);
    node.read(ReadResult::Found(version));
    assert_eq!(
        node.status(),
        Status::CatchingUp { leader: Some(node_id(B)), epoch: LeaseEpoch(5) }
    );
    assert_eq!(node.reported("lease_behind_promise"), 0);
}

/// M4, section 2: whom a booting node accepts without the store.
#[test]
fn a_hello_counts_from_the_promised_epoch_on() {
    for (epoch, accepted) in [(3, false), (4, true), (5, true)] {
        let mut node = Single::booting(4);
        node.hello(B, epoch);
        node.step(Event::PromisePersisted { epoch: LeaseEpoch(epoch.max(4)) });
        let following = node.machine.following();
        assert_eq!(following.is_some(), accepted, "epoch {epoch}");
        let refused = node.refusals.contains(&Refusal::Promised(LeaseEpoch(4)));
        assert_eq!(refused, !accepted, "epoch {epoch}");
    }
}

/// An address that leads to itself, or to another cluster.
#[test]
fn a_node_follows_neither_itself_nor_another_cluster() {
    for (from, cluster) in [(node_id(A), CLUSTER), (node_id(B), ClusterId(1))] {
        let mut node = Single::booting(0);
        node.step(Event::HelloReceived(Hello { from, cluster, epoch: LeaseEpoch(3) }));
        assert_eq!(node.machine.following(), None);
        assert_eq!(node.refusals, [Refusal::Foreign]);
        assert_eq!(node.reported("foreign"), 1);
    }
}

/// The document's own duration counts, not this node's setting.
#[test]
fn a_longer_lease_of_the_other_is_respected() {
    let mut node = Single::booting(4);
    node.run(10_000);
    let version = node.version(B, 4, 100_000);
    node.read(ReadResult::Found(version.clone()));
    for _ in 0..3 {
        // It looks every 30 s in case something changes, and waits.
        node.wake();
        node.read(ReadResult::Found(version.clone()));
        assert_eq!(node.writes.len(), 0);
    }
    node.wake();
    node.read(ReadResult::Found(version));
    assert_eq!((node.at, node.writes.len()), (110_000, 1));
}

/// The store says that this node's clock is off; it then judges by its own
/// stop-watch, and a lease that keeps changing is never taken.
#[test]
fn a_skewed_clock_takes_no_lease_that_keeps_changing() {
    let mut node = Single::booting(4);
    node.step(Event::SkewSeen { difference_ms: 600_000 });
    assert_eq!(node.reported("clock_skew"), 1);
    node.run(2000);
    for renewal in 0..10 {
        let mut version = node.version(B, 4, -600_000);
        version.document.token.0 += renewal;
        node.read(ReadResult::Found(version));
        assert_eq!(node.writes.len(), 0, "renewal {renewal}");
        node.wake();
    }
    let version = node.version(B, 4, -600_000);
    for writes in [0, 0, 1] {
        node.read(ReadResult::Found(version.clone()));
        assert_eq!(node.writes.len(), writes, "not before it stood unchanged for its whole length");
        if writes == 0 {
            node.wake();
        }
    }
}
