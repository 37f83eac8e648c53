//! Two candidates over the embedded store, with and without faults: real lease machines, the real
//! client, one wire between them. The same runs against real servers are in `s3_real.rs`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

#[path = "s3/candidate.rs"]
mod candidate;
#[path = "s3/election.rs"]
mod election;
#[path = "s3/embedded.rs"]
mod embedded;
#[path = "s3/journal.rs"]
mod journal;

use std::time::Duration;

use duolog_lease::grant::{Admission, Grant};
use duolog_lease::ids::{LeaseEpoch, MonoMs, NodeId};
use duolog_s3client::Outcome;
use duolog_s3dev::{Answer, Fault, Rule};
use journal::Journal;

#[tokio::test]
async fn two_candidates_share_one_lease_through_a_life() {
    let server = embedded::server();
    election::life_of_a_pair(&embedded::client(&server), "life").await;
}

#[tokio::test]
async fn two_first_starts_at_one_moment_make_one_leader() {
    let server = embedded::server();
    election::first_leaders(&embedded::client(&server), "first", 20).await;
}

/// Answers are lost, writes land late, the store is busy: the same life, the same promises. Two of
/// three writes of the lease are struck, and some reads.
#[tokio::test]
async fn a_bad_line_to_the_store_changes_no_promise() {
    let server = embedded::server();
    let late = Fault::ApplyLate(Duration::from_millis(300));
    let faults = [
        Fault::DropReply,
        Fault::Answer(Answer::error(409, "ConditionalRequestConflict")),
        late,
        Fault::Answer(Answer::error(503, "SlowDown")),
        Fault::ApplyAndAnswer(Answer::error(500, "InternalError")),
        Fault::DropRequest,
    ];
    const STRIKES: u32 = 60;
    for (strike, fault) in (0..STRIKES).zip(faults.iter().cycle()) {
        // A request that is let pass counts for all rules, one that is struck only for the first.
        let passing = 1 + strike / 2;
        server.faults().order(Rule::once("PUT", fault.clone()).after(passing).on("lease.json"));
    }
    for fault in [Fault::CutBody, Fault::Answer(Answer::error(500, "InternalError"))] {
        server.faults().order(Rule::once("GET", fault).after(2).times(3).on("lease.json"));
    }
    let client = embedded::client(&server);
    election::life_of_a_pair(&client, "bad").await;
    let bad = [Outcome::NoAnswer, Outcome::TryAgain, Outcome::Throttled, Outcome::Failed];
    let rows = client.counts();
    let struck = rows.rows().filter(|row| bad.contains(&row.outcome));
    let struck: u64 = struck.map(|row| row.count).sum();
    assert!(struck >= 10, "{struck} strikes are too few to mean anything");
}

fn grant(epoch: u64, until: u64) -> Option<Grant> {
    let until = MonoMs(until);
    let (renewal_from, upload_until, admission) = (until, until, Admission::Open);
    let epoch = LeaseEpoch(epoch);
    Some(Grant { epoch, serve_until: until, admission, renewal_from, upload_until })
}

fn journal(changes: &[(u128, u64, Option<Grant>)]) -> Journal {
    let journal = Journal::default();
    for (node, at, grant) in changes {
        journal.grant(NodeId(*node), MonoMs(*at), *grant);
    }
    journal
}

#[test]
fn reigns_one_after_the_other_are_counted() {
    let fine = [(1, 0, grant(1, 100)), (1, 50, grant(1, 150)), (2, 150, grant(2, 200))];
    assert_eq!(journal(&fine).hold(), 2);
    let withdrawn = [(1, 0, grant(1, 100)), (1, 50, None), (2, 60, grant(2, 200))];
    assert_eq!(journal(&withdrawn).hold(), 2);
}

#[test]
#[should_panic(expected = "two leaders")]
fn two_leaders_of_one_epoch_are_found() {
    journal(&[(1, 0, grant(1, 10)), (2, 20, grant(1, 30))]).hold();
}

#[test]
#[should_panic(expected = "serve at once")]
fn two_nodes_with_leave_at_one_moment_are_found() {
    journal(&[(1, 0, grant(1, 100)), (2, 99, grant(2, 200))]).hold();
}

#[test]
#[should_panic(expected = "out of order")]
fn an_epoch_that_goes_back_is_found() {
    journal(&[(1, 0, grant(2, 10)), (2, 20, grant(1, 30))]).hold();
}
