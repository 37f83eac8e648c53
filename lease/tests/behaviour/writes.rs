//! Writes of the lease whose answers are lost, doubtful or late (L2, L4, L10). Cases 1.1 to 1.8.

use duolog_lease::action::Action;
use duolog_lease::event::{Condition, Event, ReadResult, Version, WriteOutcome};
use duolog_lease::ids::{ETag, LeaseEpoch};
use duolog_lease::in_sync::InSync;
use duolog_lease::status::Status;

use crate::pair::{A, B, node_id};
use crate::single::Single;

const PROMOTING: Status = Status::Promoting { epoch: LeaseEpoch(5) };

/// What the store holds when the writer looks.
#[derive(Clone, Copy, Debug)]
enum Holds {
    Own,
    Unchanged,
    Others,
    OthersAfterOwn,
    Failed,
}

fn holds(node: &Single, what: Holds) -> ReadResult {
    let mut own = node.written_version();
    let found = match what {
        Holds::Own => own,
        Holds::Unchanged => node.version(A, 4, 0),
        Holds::Others => node.version(B, 5, 30_000),
        Holds::OthersAfterOwn => {
            let mut others = node.version(B, 6, 30_000);
            others.document.recent = others.document.recent.after(own.document.token);
            own = others;
            own
        }
        Holds::Failed => return ReadResult::Failed,
    };
    ReadResult::Found(found)
}

/// L4, every pair of answer and read-back of a challenge: won, undecided or lost. Broken if a lost
/// answer loses a reign, or a conflict of the own repetition does.
#[test]
fn a_challenge_is_decided_by_the_own_token() {
    let rows = [
        (WriteOutcome::Unknown, Holds::Own, "reign_won"),
        (WriteOutcome::Conflict, Holds::Own, "reign_won"),
        (WriteOutcome::Unknown, Holds::Unchanged, "repeats"),
        (WriteOutcome::Conflict, Holds::Unchanged, "repeats"),
        (WriteOutcome::Unknown, Holds::Others, "challenge_lost"),
        (WriteOutcome::Conflict, Holds::Others, "challenge_lost"),
        (WriteOutcome::Unknown, Holds::OthersAfterOwn, "challenge_overwritten"),
        (WriteOutcome::Unknown, Holds::Failed, "looks again"),
    ];
    for (outcome, held, expected) in rows {
        let mut node = Single::challenging();
        node.run(100);
        node.written(outcome.clone());
        let result = holds(&node, held);
        node.read(result);
        let row = format!("{outcome:?} {held:?}");
        match expected {
            "repeats" => {
                let actions = node.wake();
                assert!(matches!(actions[0], Action::WriteLease { .. }), "{row}");
                assert_eq!(node.writes[0], node.writes[1], "identical: {row}");
                let encoded = node.writes.iter().map(|(_, document)| document.encode());
                let encoded: Vec<_> = encoded.collect();
                assert_eq!(encoded[0], encoded[1], "to the byte: {row}");
            }
            "looks again" => {
                let actions = node.wake();
                assert!(matches!(actions[0], Action::ReadLease { .. }), "{row}");
            }
            report => assert_eq!(node.reported(report), 1, "{row}"),
        }
        let won = expected == "reign_won";
        assert_eq!(node.status() == PROMOTING, won, "{row}");
    }
}

/// The first attempt landed, its answer was lost, the repetition met a conflict.
/// The lease counts from before the first attempt left.
#[test]
fn a_lease_counts_from_before_the_first_attempt_left() {
    let mut node = Single::challenging();
    let sent = node.at;
    node.run(1000);
    node.written(WriteOutcome::Unknown);
    let result = holds(&node, Holds::Unchanged);
    node.read(result);
    node.wake();
    node.run(500);
    node.written(WriteOutcome::Conflict);
    let result = holds(&node, Holds::Own);
    node.read(result);
    node.step(Event::PromisePersisted { epoch: LeaseEpoch(5) });
    node.step(Event::PromotionFinished { epoch: LeaseEpoch(5) });
    let grant = node.machine.grant().expect("leads");
    assert_eq!(grant.serve_until.0 - (node.now().mono.0 - node.at), sent + 30_000 - 500);
}

/// Undecided for so long that the document would be old when it lands: begin anew, with a new one.
#[test]
fn an_undecided_challenge_is_repeated_only_while_it_is_young() {
    let mut node = Single::challenging();
    for _ in 0..200 {
        node.written(WriteOutcome::Unknown);
        let result = holds(&node, Holds::Unchanged);
        node.read(result);
        let actions = node.wake();
        if matches!(actions[0], Action::ReadLease { .. }) {
            break;
        }
    }
    assert!((15_000..18_000).contains(&node.at), "given up at {}", node.at);
    let first = node.writes[0].1.token;
    assert!(
        node.writes.iter().all(|(_, document)| document.token == first),
        "identical until then"
    );
    let version = node.version(A, 4, 0);
    node.read(ReadResult::Found(version));
    let (condition, document) = node.writes.last().expect("a new challenge");
    assert_ne!(document.token, first);
    assert_eq!(document.epoch, LeaseEpoch(5));
    assert_eq!(*condition, Condition::Matches(ETag::new("\"4\"")));
}

/// L4: a challenge that was given up lands late: that reign never opens, its epoch is passed over.
#[test]
fn a_late_landing_is_a_reign_that_never_opens() {
    let mut node = Single::booting(4);
    for _ in 0..2 {
        let version = node.version(B, 4, -1);
        node.read(ReadResult::Found(version));
        if node.writes.is_empty() {
            node.wake();
        }
    }
    assert_eq!(node.writes.len(), 1);
    // The leader is alive after all; the answer never comes.
    node.heartbeat(B, 4);
    assert_eq!(node.status(), Status::Fenced(duolog_lease::status::FenceReason::Challenging));
    node.run(1500);
    node.heartbeat(B, 4);
    assert_eq!(node.reported("challenge_given_up"), 1);
    node.run(10);
    node.heartbeat(B, 4);
    assert_eq!(node.machine.following(), Some((node_id(B), LeaseEpoch(4))));
    // Now the answer comes: too late.
    let late = node.writes[0].1.clone();
    let call = node.call.take().expect("never answered");
    node.step(Event::LeaseWritten {
        call,
        outcome: WriteOutcome::Stored { etag: ETag::new("\"late\"") },
        jitter: 0,
    });
    assert_eq!(node.machine.following(), Some((node_id(B), LeaseEpoch(4))), "it follows on");
    // The leader falls silent; the lease turns out to be this node's own.
    node.wake();
    node.read(ReadResult::Found(Version { etag: ETag::new("\"late\""), document: late }));
    node.step(Event::FollowingStopped);
    let (_, document) = node.writes.last().expect("challenges again");
    assert_eq!(document.epoch, LeaseEpoch(6), "5 never opens");
}

/// L10: what a running leader makes of a failed renewal.
#[test]
fn a_renewal_is_decided_by_the_own_token_too() {
    let rows = [
        (WriteOutcome::Unknown, Holds::Own, true),
        (WriteOutcome::Conflict, Holds::Own, true),
        (WriteOutcome::Unknown, Holds::Failed, true),
        (WriteOutcome::Conflict, Holds::Others, false),
        (WriteOutcome::Unknown, Holds::OthersAfterOwn, false),
    ];
    for (outcome, held, leads) in rows {
        let mut node = Single::leading();
        while node.writes.len() < 2 {
            node.wake();
        }
        assert_eq!(node.at, 15_001, "alone: when less than half remains");
        node.written(outcome.clone());
        let mut result = holds(&node, held);
        if let ReadResult::Found(version) = &mut result
            && version.document.leader == node_id(B)
        {
            version.document.epoch = LeaseEpoch(6);
        }
        let actions = node.read(result);
        let row = format!("{outcome:?} {held:?}");
        assert_eq!(node.status() == Status::Leader { epoch: LeaseEpoch(5) }, leads, "{row}");
        if !leads {
            assert_eq!(actions[0], Action::GrantChanged(None), "withdrawn first: {row}");
            assert!(matches!(actions[1], Action::Fence(_)), "{row}");
            assert_eq!(node.reported("deposed"), 1, "{row}");
        }
    }
}

/// A renewal given up because heartbeats carry the lease again lands after all: the next one meets
/// a conflict, finds an older token of its own reign, and goes on from there.
#[test]
fn an_earlier_renewal_that_lands_late_deposes_nobody() {
    let mut node = Single::leading();
    while node.writes.len() < 2 {
        node.wake();
    }
    let first = node.written_version();
    let unchanged = Version { etag: ETag::new("\"5\""), document: node.writes[0].1.clone() };
    // Undecided until its content is old: a new document goes out.
    while node.writes.last().map(|(_, document)| document.token) == Some(first.document.token) {
        match (node.call, node.call_writes) {
            (Some(_), true) => node.written(WriteOutcome::Unknown),
            (Some(_), false) => node.read(ReadResult::Found(unchanged.clone())),
            (None, _) => node.wake(),
        };
        assert!(node.at < 40_000);
    }
    node.written(WriteOutcome::Conflict);
    node.read(ReadResult::Found(Version { etag: ETag::new("\"late\""), ..first }));
    assert_eq!(node.machine.reign(), Some(LeaseEpoch(5)));
    let (condition, _) = node.writes.last().expect("goes on from there");
    assert_eq!(*condition, Condition::Matches(ETag::new("\"late\"")));
    node.written(WriteOutcome::Stored { etag: ETag::new("\"6\"") });
    assert_eq!(node.status(), Status::Leader { epoch: LeaseEpoch(5) });
}

/// L2, L7: a renewal keeps the epoch, the members and unknown fields, and refreshes the rest.
#[test]
fn a_renewal_rewrites_only_times_and_token() {
    let mut node = Single::booting(4);
    let mut version = node.version(A, 4, 0);
    version.document.unknown.insert("zone".into(), "{\"a\": 1}".into());
    let before = version.document.clone();
    node.read(ReadResult::Found(version));
    node.written(WriteOutcome::Stored { etag: ETag::new("\"5\"") });
    node.step(Event::PromisePersisted { epoch: LeaseEpoch(5) });
    while node.writes.len() < 2 {
        node.wake();
    }
    let ((_, first), (condition, second)) = (&node.writes[0], &node.writes[1]);
    assert_eq!(*condition, Condition::Matches(ETag::new("\"5\"")));
    assert_eq!((first.epoch, second.epoch), (LeaseEpoch(5), LeaseEpoch(5)));
    assert_eq!(second.in_sync, InSync::pair(node_id(A), node_id(B)));
    assert_eq!(second.unknown, before.unknown);
    assert_eq!(second.recent.as_slice(), [first.token, before.token]);
    assert_eq!(second.expires.since(second.acquired), 30_000);
    assert!(second.acquired > first.acquired);
}

/// Section 2 (a): the promise is on disk before promotion begins.
#[test]
fn promotion_waits_for_the_promise() {
    let mut node = Single::challenging();
    let actions = node.written(WriteOutcome::Stored { etag: ETag::new("\"5\"") });
    assert!(actions.contains(&Action::PersistPromise { epoch: LeaseEpoch(5) }));
    let starts = |actions: &[Action]| {
        actions.iter().any(|action| matches!(action, Action::StartPromotion { .. }))
    };
    assert!(!starts(&actions));
    assert!(node.machine.grant().is_none());
    let actions = node.step(Event::PromisePersisted { epoch: LeaseEpoch(5) });
    assert!(starts(&actions));
    assert!(node.machine.grant().is_none(), "promoting serves nobody");
}

/// P6: a promotion longer than a lease keeps the lease; losing it ends the promotion.
#[test]
fn a_long_promotion_renews_and_a_lost_lease_ends_it() {
    let mut node = Single::challenging();
    node.written(WriteOutcome::Stored { etag: ETag::new("\"5\"") });
    node.step(Event::PromisePersisted { epoch: LeaseEpoch(5) });
    for renewal in 1..4 {
        node.wake();
        assert_eq!(node.at, renewal * 15_001);
        node.written(WriteOutcome::Stored { etag: ETag::new("\"5\"") });
        assert_eq!(node.status(), PROMOTING);
    }
    node.wake();
    node.written(WriteOutcome::Conflict);
    let version = node.version(B, 6, 30_000);
    node.read(ReadResult::Found(version));
    assert_eq!(
        node.status(),
        Status::CatchingUp { leader: Some(node_id(B)), epoch: LeaseEpoch(6) }
    );
    node.step(Event::PromotionFinished { epoch: LeaseEpoch(5) });
    assert!(node.machine.grant().is_none(), "it finishes in vain");
}
