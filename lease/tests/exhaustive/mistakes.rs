//! Each rule is broken once; each time a promise must fail within the stated bounds.

use duolog_lease::rules::Mistake;

use super::bounds::Bounds;
use super::search::{Outcome, search};

struct Row {
    mistake: Mistake,
    bounds: Bounds,
    /// Part of the broken promise's text.
    breaks: &'static str,
}

/// More states than any of the counterexamples needs.
const STATES_MAX: usize = 3_000_000;

const fn row(mistake: Mistake, bounds: Bounds, breaks: &'static str) -> Row {
    Row { mistake, bounds, breaks }
}

const TWO_GRANTS: &str = "two grants are valid at once";
const TWICE: &str = "(L2)";

fn rows() -> Vec<Row> {
    use Mistake::*;
    let pair = Bounds::untimed_pair();
    let late = Bounds::untimed_late_writes();
    let slow = Bounds::untimed_slow_disks();
    let alone = Bounds::untimed_membership();
    let warm = Bounds::untimed_warm();
    let timed = Bounds::timed(0);
    let restart = Bounds::timed_restart();
    // These need one epoch, or one crash, more than is explored in full.
    let slow_warm = Bounds { slow_disks: true, ..warm };
    let warm_restart = Bounds { crashes_max: 1, ..warm };
    let handover = Bounds::timed_handover();
    vec![
        row(RestartKeepsEpoch, pair, "the reign changes without a higher epoch"),
        row(EpochNotRaised, pair, "the reign changes without a higher epoch"),
        row(AckWhileChallenging, warm, "acked after it had challenged"),
        row(StopNotAwaited, slow_warm, "while its shards may ack"),
        row(StopForgotten, timed, "does not follow after all faults stopped"),
        row(OutsiderChallenges, alone, "without being in in_sync"),
        row(ConflictMeansLost, pair, "takes its own lease for lost"),
        row(UnknownMeansWon, late, TWICE),
        row(TokensNotCompared, late, TWICE),
        row(GivenUpLeads, warm, "acked after it had challenged"),
        row(OwnLeaseNeverWaits, restart.wider(), TWO_GRANTS),
        row(LeaseFromAck, timed, TWO_GRANTS),
        row(LeaseFromAnswer, timed, TWO_GRANTS),
        row(NoFenceMargin, Bounds::timed(1), TWO_GRANTS),
        row(S3ExpiryIgnored, timed, TWO_GRANTS),
        row(RestartWaitSkipped, restart, TWO_GRANTS),
        row(WaitOnlyIfFoundExpired, restart, TWO_GRANTS),
        row(ConflictIgnored, timed, TWO_GRANTS),
        row(ResignEpochUnchecked, handover.wider(), TWO_GRANTS),
        row(ServeAfterResign, handover, "serves although it has resigned"),
        row(OutsiderAckCounts, alone, "outside of in_sync extends the lease"),
        row(ProposalUncounted, alone, "counts by another set"),
        row(PromiseUnchecked, warm_restart, "below its promise"),
        row(PromiseNotAwaited, slow, "before that is on disk"),
    ]
}

/// Every planted mistake is found, with a trace of a few dozen steps at most.
#[test]
fn every_mistake_breaks_a_promise() {
    let mut missed = Vec::new();
    for Row { mistake, bounds, breaks } in rows() {
        match search(&bounds, Some(mistake), STATES_MAX) {
            Outcome::Broken { what, states, trace } if what.contains(breaks) => {
                println!("{mistake:?}: {what}, {} steps, {states} states", trace.len());
                if std::env::var_os("DUOLOG_EXHAUSTIVE_TRACES").is_some() {
                    println!("{}", Outcome::Broken { what, states, trace });
                }
            }
            other => missed.push(format!("{mistake:?}: expected {breaks:?}, got {other}")),
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
