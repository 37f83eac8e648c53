//! When a leader stops and when its follower challenges: one row per case, times in milliseconds
//! after the last heartbeat that was acked.

use duolog_lease::grant::UploadPermit;
use duolog_lease::ids::{LeaseEpoch, MonoMs};
use duolog_lease::report::What;
use duolog_lease::status::{FenceReason, Status};

use crate::pair::{A, B, Note, Pair, STORE_MS, node_id};

/// What happens right after the ack.
#[derive(Clone, Copy, Debug)]
enum Fault {
    LeaderDies,
    LinkCut,
    HeartbeatsLost,
    AcksLost,
    LinkAndStoreCut,
}

#[derive(Debug)]
struct Row {
    fault: Fault,
    /// The follower's wall clock minus the leader's.
    ahead_ms: i64,
    /// The leader writes the lease.
    renews: Option<u64>,
    /// The leader stops serving.
    stops: Option<u64>,
    /// The follower looks at the lease.
    looks: Option<u64>,
    /// The follower serves at the next epoch.
    takes_over: Option<u64>,
}

const ROWS: &[Row] = &[
    Row {
        fault: Fault::LeaderDies,
        ahead_ms: 0,
        renews: None,
        stops: Some(1000),
        looks: Some(1500),
        takes_over: Some(1500 + 2 * STORE_MS),
    },
    // Clocks inside the drift: never before the old leader has stopped.
    Row {
        fault: Fault::LeaderDies,
        ahead_ms: 500,
        renews: None,
        stops: Some(1000),
        looks: Some(1000),
        takes_over: Some(1000 + 2 * STORE_MS),
    },
    Row {
        fault: Fault::LeaderDies,
        ahead_ms: -500,
        renews: None,
        stops: Some(1000),
        looks: Some(2000),
        takes_over: Some(2000 + 2 * STORE_MS),
    },
    // The first missed heartbeat renews at once; the follower finds the lease valid.
    Row {
        fault: Fault::LinkCut,
        ahead_ms: 0,
        renews: Some(750),
        stops: None,
        looks: Some(1500),
        takes_over: None,
    },
    Row {
        fault: Fault::HeartbeatsLost,
        ahead_ms: 0,
        renews: Some(750),
        stops: None,
        looks: Some(1500),
        takes_over: None,
    },
    // The follower still hears its leader: it has no reason to look.
    Row {
        fault: Fault::AcksLost,
        ahead_ms: 0,
        renews: Some(750),
        stops: None,
        looks: None,
        takes_over: None,
    },
    // Nothing can carry the lease: it stops, and nobody can take over.
    Row {
        fault: Fault::LinkAndStoreCut,
        ahead_ms: 0,
        renews: Some(750),
        stops: Some(1000),
        looks: Some(1500),
        takes_over: None,
    },
];

fn inflict(pair: &mut Pair, fault: Fault) {
    match fault {
        Fault::LeaderDies => pair.kill(A),
        Fault::LinkCut => pair.cut(),
        Fault::HeartbeatsLost => pair.link_up[A] = false,
        Fault::AcksLost => pair.link_up[B] = false,
        Fault::LinkAndStoreCut => {
            pair.cut();
            pair.store_up = [false, false];
        }
    }
}

/// L5, L7, L8, L9: provoked by one fault per row; broken if any time is off by a millisecond.
#[test]
fn leader_and_follower_act_at_the_times_of_the_protocol() {
    for row in ROWS {
        let mut pair = Pair::healthy();
        pair.wall_ahead[B] = row.ahead_ms;
        pair.run(500); // one heartbeat with these clocks
        let acked = pair.at;
        assert_eq!(pair.last(A, &Note::HeartbeatAcked), Some(acked), "{row:?}");
        let granted = pair.serves_until(A).map(|at| at - acked);
        assert_eq!(granted, Some(1000), "{row:?}");
        pair.notes.clear();
        inflict(&mut pair, row.fault);
        pair.run(5000);
        let after = |at: Option<u64>| at.map(|at| at - acked);
        assert_eq!(after(pair.first(A, &Note::Write)), row.renews, "renews {row:?}");
        assert_eq!(after(pair.first(B, &Note::Look)), row.looks, "looks {row:?}");
        let leads = pair.first(B, &Note::What(What::Leads));
        assert_eq!(after(leads), row.takes_over, "takes over {row:?}");
        let stops = match row.fault {
            Fault::LeaderDies => granted,
            _ => after(pair.first(A, &Note::Fence)),
        };
        assert_eq!(stops, row.stops, "stops {row:?}");
    }
}

/// L7: a healthy pair needs no store. Broken by a single call in ten minutes.
#[test]
fn heartbeats_carry_the_lease_without_any_call_to_the_store() {
    let mut pair = Pair::healthy();
    pair.run(600_000);
    assert_eq!(pair.store_calls(), 0);
    assert_eq!(pair.reports(A), [""; 0]);
    assert_eq!(pair.reports(B), [""; 0]);
    assert!(matches!(pair.status(B), Status::Follower { .. }));
}

/// L7: alone, the leader writes once per half lease, and never fences.
#[test]
fn without_its_follower_the_leader_renews_when_less_than_half_remains() {
    let mut pair = Pair::healthy();
    pair.kill(B);
    pair.run(100_000);
    let writes = pair.times(A, &Note::Write);
    let pauses: Vec<u64> = writes.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses, [15_001; 6]);
    assert_eq!(pair.times(A, &Note::Fence), [0; 0]);
    // It comes back: the writes end, and nothing else changes.
    pair.start(B);
    pair.run(1000);
    pair.notes.clear();
    pair.run(60_000);
    assert_eq!(pair.store_calls(), 0);
    assert_eq!(pair.status(A), Status::Leader { epoch: LeaseEpoch(1) });
}

/// L7: a renewal that hangs holds up no heartbeat: the follower that returns meanwhile carries on.
#[test]
fn a_hanging_renewal_delays_no_heartbeat() {
    let mut pair = Pair::healthy();
    pair.store_up = [false, false];
    pair.cut();
    pair.run(900); // overdue at 750
    pair.mend();
    pair.run(10_000);
    assert_eq!(pair.times(A, &Note::Fence), [pair.at - 9900], "at 1000 exactly");
    let acks = pair.times(A, &Note::HeartbeatAcked);
    assert_eq!(acks.first(), Some(&(pair.at - 9900)), "the very next heartbeat");
    assert!(acks.windows(2).all(|pair| pair[1] - pair[0] == 500));
    assert_eq!(pair.status(A), Status::Leader { epoch: LeaseEpoch(1) });
}

/// L5, L8: the lease is counted from before the heartbeat left, on a slow link too.
#[test]
fn a_slow_link_shortens_the_lease_by_its_round_trip() {
    let mut pair = Pair::healthy();
    pair.link_ms = 100;
    pair.run(500);
    let sent = pair.at;
    pair.run(200);
    assert_eq!(pair.last(A, &Note::HeartbeatAcked), Some(sent + 200));
    assert_eq!(pair.serves_until(A), Some(sent + 1000));
    pair.notes.clear();
    pair.kill(A);
    pair.run(5000);
    assert_eq!(pair.first(B, &Note::Look), Some(sent + 1500), "the leader's time, not the receipt");
}

/// L9, cold: the leader had renewed and dies; its follower waits for the expiry in the document.
#[test]
fn a_renewed_lease_holds_the_follower_until_it_expires() {
    let mut pair = Pair::healthy();
    let acked = pair.at;
    pair.cut();
    pair.run(1200);
    pair.kill(A);
    pair.run(60_000);
    let renewed = acked + 750;
    let leads = pair.first(B, &Note::What(What::Leads));
    assert_eq!(leads, Some(renewed + 30_000 + 2 * STORE_MS));
    assert_eq!(pair.times(B, &Note::Look), [acked + 1500, renewed + 30_000]);
}

/// L6: provoked by a clock that runs away under a healthy follower. Broken if it goes on acking, or
/// takes the lease of a leader that lives.
#[test]
fn a_clock_beyond_the_drift_fences_the_follower_and_takes_no_lease() {
    let mut pair = Pair::healthy();
    pair.wall_ahead[B] = 600_000;
    pair.run(600);
    let difference_ms = 600_000;
    assert_eq!(pair.status(B), Status::Fenced(FenceReason::ClockDrift { difference_ms }));
    assert_eq!(pair.times(B, &Note::Fence).len(), 1);
    let drift = Note::What(What::ClockDrift { other: node_id(A), difference_ms });
    assert_eq!(pair.times(B, &drift).len(), 1);
    // By its wall clock every lease has run out long ago.
    pair.run(300_000);
    assert_eq!(pair.times(B, &Note::Write), [0; 0]);
    assert_eq!(pair.times(A, &Note::Fence), [0; 0]);
    assert_eq!(pair.status(A), Status::Leader { epoch: LeaseEpoch(1) });
    // The leader dies: the lease must stand unchanged for its whole length first.
    let died = pair.at;
    let last_write = pair.last(A, &Note::Write).expect("it renewed");
    pair.kill(A);
    pair.run(120_000);
    let leads = pair.first(B, &Note::What(What::Leads)).expect("in the end");
    assert!(leads >= last_write + 30_500, "{leads} {last_write}");
    assert!(leads <= died + 2 * 30_500 + 1000, "{leads} {died}");
}

/// L6: the clock comes back, and so does the follower, without any election.
#[test]
fn a_mended_clock_ends_the_fence() {
    let mut pair = Pair::healthy();
    pair.wall_ahead[B] = -501;
    pair.run(600);
    assert!(matches!(pair.status(B), Status::Fenced(_)));
    pair.wall_ahead[B] = -500;
    pair.run(500);
    assert_eq!(pair.status(B), Status::Follower { leader: node_id(A), epoch: LeaseEpoch(1) });
    assert_eq!(pair.times(B, &Note::Look), [0; 0]);
}

/// Rule C3 with the default lease: age of the confirmed lease, and what an upload may do.
#[test]
fn an_upload_needs_a_young_lease_and_asks_past_half() {
    let mut pair = Pair::healthy();
    let permit = |pair: &Pair, confirmed: u64, age: u64| {
        let grant = pair.grant(A).expect("leads");
        let now = pair.now(A).mono;
        grant.upload(MonoMs(now.0 - pair.at + confirmed + age))
    };
    // In a healthy pair the lease object is old: wait until the failed heartbeat has renewed it.
    assert_eq!(permit(&pair, pair.at, 0), UploadPermit::WaitForRenewal);
    pair.cut();
    pair.run(750 + STORE_MS);
    let confirmed = pair.first(A, &Note::Write).expect("renewed at once");
    for (age, expected) in [
        (STORE_MS, UploadPermit::Go),
        (15_000, UploadPermit::Go),
        (15_001, UploadPermit::GoAndAskRenewal),
        (29_999, UploadPermit::GoAndAskRenewal),
        (30_000, UploadPermit::WaitForRenewal),
    ] {
        assert_eq!(permit(&pair, confirmed, age), expected, "age {age}");
    }
}

/// Rule C3: the follower is back and copies while acks still go through the chain: an upload's
/// wish renews although heartbeats are acked, but not before half.
#[test]
fn an_upload_may_ask_for_a_renewal_although_heartbeats_are_acked() {
    let mut pair = Pair::healthy();
    pair.give(A, duolog_lease::event::Event::RenewalWanted { epoch: LeaseEpoch(1) });
    pair.run(STORE_MS);
    assert_eq!(pair.times(A, &Note::Write).len(), 1, "the lease object was two minutes old");
    pair.notes.clear();
    pair.give(A, duolog_lease::event::Event::RenewalWanted { epoch: LeaseEpoch(1) });
    pair.run(14_000);
    assert_eq!(pair.times(A, &Note::Write), [0; 0]);
    pair.run(2000);
    assert_eq!(pair.times(A, &Note::Write).len(), 1, "once it was past half");
}
