//! Section 10: what happens while the store is away.

use duolog_lease::ids::LeaseEpoch;
use duolog_lease::report::What;
use duolog_lease::status::Status;

use crate::pair::{A, B, Note, Pair, STORE_LIMIT_MS, STORE_MS, node_id};

const LEADER_1: Status = Status::Leader { epoch: LeaseEpoch(1) };

/// The store alone: nothing changes. Broken by any fence, any election, any call.
#[test]
fn the_store_alone_is_not_missed() {
    let mut pair = Pair::healthy();
    pair.store_up = [false, false];
    pair.run(600_000);
    assert_eq!(pair.status(A), LEADER_1);
    assert_eq!(pair.status(B), Status::Follower { leader: node_id(A), epoch: LeaseEpoch(1) });
    assert_eq!(pair.times(A, &Note::Fence), [0; 0]);
    assert_eq!(pair.store_calls(), 0);
}

/// What comes back first.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Back {
    Store,
    Link,
}

/// Store and follower: the leader stops when its lease ends and goes on by itself, at the same
/// epoch, when either returns.
#[test]
fn store_and_follower_away_stop_the_leader_until_either_returns() {
    for back in [Back::Store, Back::Link] {
        let mut pair = Pair::healthy();
        let acked = pair.at;
        pair.cut();
        pair.store_up = [false, false];
        pair.run(60_000);
        assert_eq!(pair.times(A, &Note::Fence), [acked + 1000], "{back:?}");
        assert!(matches!(pair.status(A), Status::Fenced(_)), "{back:?}");
        assert!(!matches!(pair.status(B), Status::Leader { .. }), "{back:?}");
        let returned = pair.at;
        match back {
            Back::Store => pair.store_up = [true, true],
            Back::Link => pair.mend(),
        }
        pair.run(10_000);
        let resumed = |pair: &Pair, node| pair.first(node, &Note::What(What::LeaseResumed));
        let served = match back {
            // The first of the two to reach the store: the lease object has run out as well.
            Back::Store => {
                let leads = pair.first(B, &Note::What(What::Leads));
                let leading = [A, B].map(|node| matches!(pair.status(node), Status::Leader { .. }));
                assert_eq!(leading.iter().filter(|leads| **leads).count(), 1);
                resumed(&pair, A).or(leads).expect("one of them")
            }
            Back::Link => {
                assert_eq!(pair.status(A), LEADER_1);
                resumed(&pair, A).expect("the old leader")
            }
        };
        let wait_max = match back {
            // The longest pause, a call under way, two looks and a write.
            Back::Store => 2000 + STORE_LIMIT_MS + 4 * STORE_MS,
            Back::Link => 500,
        };
        assert!(served <= returned + wait_max, "{back:?}: {}", served - returned);
    }
}

/// The same, but the follower is dead: the leader itself goes on, at the same epoch.
#[test]
fn a_leader_alone_goes_on_when_the_store_returns() {
    let mut pair = Pair::healthy();
    pair.kill(B);
    pair.store_up = [false, false];
    pair.run(60_000);
    assert!(matches!(pair.status(A), Status::Fenced(_)));
    pair.store_up = [true, true];
    pair.run(3000);
    assert_eq!(pair.status(A), LEADER_1);
}

/// Elections wait for the store, patiently: at most one call every second or two.
#[test]
fn an_election_waits_for_the_store() {
    let mut pair = Pair::healthy();
    pair.store_up = [false, false];
    pair.kill(A);
    pair.run(600_000);
    assert_eq!(pair.times(B, &Note::Write), [0; 0]);
    let looks = pair.times(B, &Note::Look).len();
    assert!((300..=700).contains(&looks), "{looks} calls in ten minutes");
    let returned = pair.at;
    pair.store_up = [true, true];
    pair.run(10_000);
    let leads = pair.first(B, &Note::What(What::Leads)).expect("leads");
    assert!(leads <= returned + 2000 + STORE_LIMIT_MS + 3 * STORE_MS, "{}", leads - returned);
}

/// The store goes away in the middle of an election, after the challenge has left; the leader turns
/// out to be alive: the follower gives up and follows, and the leader goes on (L4).
#[test]
fn a_challenge_without_an_answer_is_given_up_for_a_living_leader() {
    let mut pair = Pair::healthy();
    let acked = pair.at;
    pair.cut();
    pair.store_up[A] = false; // it cannot renew
    pair.run(1500 + STORE_MS);
    assert_eq!(pair.times(B, &Note::Write), [acked + 1500 + STORE_MS]);
    pair.store_up[B] = false; // the write never arrives
    pair.mend();
    pair.run(5000);
    assert!(pair.reports(B).contains(&"challenge_given_up"));
    assert_eq!(pair.status(A), LEADER_1);
    assert_eq!(pair.status(B), Status::Follower { leader: node_id(A), epoch: LeaseEpoch(1) });
    assert_eq!(pair.document().epoch, LeaseEpoch(1));
}

/// M4: a node boots as follower without the store.
#[test]
fn a_node_boots_as_follower_without_the_store() {
    let mut pair = Pair::healthy();
    pair.store_up = [false, false];
    pair.kill(B);
    pair.run(100);
    pair.start(B);
    pair.run(600);
    assert_eq!(pair.status(B), Status::Follower { leader: node_id(A), epoch: LeaseEpoch(1) });
    pair.run(60_000);
    assert_eq!(pair.times(A, &Note::Fence), [0; 0]);
}

/// What is away besides the store.
#[derive(Clone, Copy, Debug)]
enum Away {
    Nothing,
    Link,
    Follower,
    Leader,
    Both,
}

/// Section 10, row by row, times in milliseconds after the last acked heartbeat.
#[derive(Debug)]
struct Row {
    away: Away,
    /// The leader fences.
    fences: Option<u64>,
    /// Who serves ten seconds after the store alone has returned, and at which epoch; the rest
    /// stays away.
    serves: (usize, u64),
}

const ROWS: &[Row] = &[
    // Heartbeats carry the lease, nothing changes.
    Row { away: Away::Nothing, fences: None, serves: (A, 1) },
    // Nothing can be covered: it fences. Whoever asks first when the store is back has the lease,
    // which has run out meanwhile; with these pauses it is the follower.
    Row { away: Away::Link, fences: Some(1000), serves: (B, 2) },
    // Nobody else asks: it goes on by itself, at its epoch.
    Row { away: Away::Follower, fences: Some(1000), serves: (A, 1) },
    // The election waits for the store.
    Row { away: Away::Leader, fences: None, serves: (B, 2) },
    // Both restart without the store: nobody serves until it is back; A was the leader.
    Row { away: Away::Both, fences: None, serves: (A, 2) },
];

/// Broken by a fence at another time, an election without the store, or a pair that needs help.
#[test]
fn without_the_store_each_fault_ends_as_the_protocol_says() {
    for row in ROWS {
        let mut pair = Pair::healthy();
        let acked = pair.at;
        pair.store_up = [false, false];
        match row.away {
            Away::Nothing => {}
            Away::Link => pair.cut(),
            Away::Follower => pair.kill(B),
            Away::Leader => pair.kill(A),
            Away::Both => {
                for node in [A, B] {
                    pair.kill(node);
                    pair.start(node);
                }
            }
        }
        pair.run(60_000);
        let fenced = pair.first(A, &Note::Fence).map(|at| at - acked);
        assert_eq!(fenced, row.fences, "{row:?}");
        assert_eq!(pair.document().epoch, LeaseEpoch(1), "{row:?}");
        let runs = |node: usize| pair.machines[node].is_some();
        let served = [A, B].map(|node| runs(node) && pair.status(node) == LEADER_1);
        assert_eq!(served, [matches!(row.away, Away::Nothing), false], "{row:?}");
        pair.store_up = [true, true];
        pair.run(10_000);
        let (node, epoch) = row.serves;
        assert_eq!(pair.status(node), Status::Leader { epoch: LeaseEpoch(epoch) }, "{row:?}");
        assert!(pair.machines[1 - node].is_none() || pair.grant(1 - node).is_none(), "{row:?}");
    }
}
