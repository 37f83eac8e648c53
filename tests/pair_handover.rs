//! Leadership that moves because somebody asked for it.

use std::time::Duration;

use duolog_net::wire::Copies;
use duolog_tests::pair::{Pair, PairOptions, Timing};
use duolog_tests::process::{pause, quiet};

fn calm() -> PairOptions {
    PairOptions { timing: Timing::Calm, ..PairOptions::default() }
}

/// Promised: `handoff` moves the lead to the other node without waiting for a lease to run out, and
/// no append is lost or doubled.
/// Provoked: the admin command under load, there and back again.
/// Broken: a lead that does not move, or only by a lease that ran out; an append lost or doubled.
#[test]
fn a_handoff_under_load_loses_and_doubles_nothing() {
    let _alone = quiet();
    let pair = Pair::found(calm());
    let crowd = pair.crowd();
    for _ in 0..2 {
        pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 300);
        let old = pair.healed_under_load();
        let successor = pair.other(old);
        pair.hand_over(old);
        pair.until_leads(successor);
        pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 300);
        assert!(pair.has_logged(successor, "the leader has resigned"), "{}", pair.story());
    }
    let ledger = crowd.finish();
    pair.reckon(&ledger);
}

/// Promised: a leader that is asked to stop hands over first, and ends with exit code 0.
/// Provoked: SIGTERM for the leader under load; it is started again.
/// Broken: a takeover by a lease that ran out, another exit code, an append lost or doubled.
#[test]
fn a_leader_that_is_stopped_hands_over_first() {
    let _alone = quiet();
    let mut pair = Pair::found(calm());
    let crowd = pair.crowd();
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 300);
    pair.stop(0);
    pair.until_leads(1);
    assert!(pair.has_logged(1, "the leader has resigned"), "{}", pair.story());
    pair.until_acked_by(&crowd, Copies::ThisDiskAndS3, 100);
    pair.start(0);
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 300);
    let ledger = crowd.finish();
    pair.reckon(&ledger);
}

/// Promised: a leader that is stopped right after its follower has come back hands over to it.
/// Provoked: the follower is stopped and started under load; SIGTERM for the leader when it has the
/// connection, which is before the first heartbeat is acknowledged.
/// Broken: a takeover by a lease that ran out, an append lost or doubled.
#[test]
fn a_leader_that_is_stopped_right_after_a_join_hands_over() {
    let _alone = quiet();
    let mut pair = Pair::found(calm());
    let crowd = pair.crowd();
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 100);
    pair.stop(1);
    pair.until_acked_by(&crowd, Copies::ThisDiskAndS3, 100);
    let before = pair.logged(0, "follower_connected");
    pair.start(1);
    pair.until("the follower is connected", |pair| {
        (pair.logged(0, "follower_connected") > before).then_some(())
    });
    pair.stop(0);
    pair.until_leads(1);
    assert!(pair.has_logged(1, "the leader has resigned"), "{}", pair.story());
    pair.until_acked_by(&crowd, Copies::ThisDiskAndS3, 100);
    pair.start(0);
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 100);
    let ledger = crowd.finish();
    pair.reckon(&ledger);
}

/// Promised: both nodes can be restarted one after the other while clients write.
/// Provoked: SIGTERM and start, the follower first, then the leader, then the other way round.
/// Broken: an append lost or doubled, a pair that is not whole afterwards.
#[test]
fn a_rolling_restart_under_load_loses_nothing() {
    let _alone = quiet();
    let mut pair = Pair::found(calm());
    let crowd = pair.crowd();
    for leader_first in [false, true] {
        for step in [false, true] {
            pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 100);
            let leader = pair.healed_under_load();
            let number = if leader_first != step { leader } else { pair.other(leader) };
            pair.stop(number);
            pair.start(number);
        }
    }
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 100);
    let ledger = crowd.finish();
    pair.reckon(&ledger);
}

/// Promised: a handover that cannot drain is called off, and the leader takes appends again in the
/// same reign.
/// Provoked: no second copy can be had when the handover begins: the bucket is away and the
/// follower stands still; after it was called off the bucket returns.
/// Broken: a leader that holds the lease and takes no append, another reign, an append lost or
/// doubled.
#[test]
fn a_handover_that_is_called_off_leaves_a_leader_that_serves() {
    let _alone = quiet();
    let pair = Pair::found(calm());
    let crowd = pair.crowd();
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 100);
    let epoch = pair.until_leads(0).epoch();
    pair.s3.faults().outage(true);
    pair.freeze(1, true);
    // Appends that nothing can cover are under way; no heartbeat is missed yet.
    pause(Duration::from_millis(20));
    pair.hand_over(0);
    pair.until("the handover is called off", |pair| {
        (pair.logged(0, "handover_cancelled") > 0).then_some(())
    });
    pair.s3.faults().outage(false);
    pair.until_acked_by(&crowd, Copies::ThisDiskAndS3, 100);
    assert_eq!(pair.until_leads(0).epoch(), epoch, "{}", pair.story());
    pair.freeze(1, false);
    let ledger = crowd.finish();
    pair.reckon(&ledger);
}
