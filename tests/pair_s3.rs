//! The bucket: silent, away, or not telling what it did.

use std::time::Duration;

use duolog_net::wire::Copies;
use duolog_s3dev::{Answer, Fault, Rule, Seen};
use duolog_tests::pair::{Pair, PairOptions, Role, Timing};
use duolog_tests::process::{Crowd, pause, quiet};

fn calm() -> PairOptions {
    PairOptions { timing: Timing::Calm, ..PairOptions::default() }
}

fn epochs(pair: &Pair) -> Vec<u64> {
    [0, 1].iter().filter_map(|node| pair.status(*node)).map(|status| status.epoch()).collect()
}

/// Promised: a healthy pair asks the bucket nothing, under load too.
/// Provoked: load for longer than the S3 lease.
/// Broken: a single request.
#[test]
fn a_healthy_pair_sends_no_request_to_s3() {
    let _alone = quiet();
    let pair = Pair::found(calm());
    let crowd = pair.crowd();
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 100);
    // What founding and joining left to do.
    pause(Duration::from_secs(3));
    let _ = pair.s3.faults().take_seen();
    pause(Duration::from_secs(7));
    let seen = pair.s3.faults().take_seen();
    let ledger = crowd.finish();
    let told: Vec<String> = seen.iter().map(|s| format!("{} {}", s.method, s.target)).collect();
    assert!(told.is_empty(), "{told:#?}\n{}", pair.story());
    assert!(ledger.acked_count() > 500, "{} appends tell nothing", ledger.acked_count());
    pair.reckon(&ledger);
}

/// Promised: while only the bucket is away nothing changes for clients.
/// Provoked: the store's port is closed for longer than the S3 lease, under load.
/// Broken: another leader, an acknowledgement that did not come by the wire, appends that stop.
#[test]
fn an_outage_of_s3_alone_changes_nothing_for_clients() {
    let _alone = quiet();
    let pair = Pair::found(calm());
    let crowd = pair.crowd();
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 100);
    let before = epochs(&pair);
    let by_s3 = crowd.acked_by(Copies::ThisDiskAndS3);
    pair.s3.faults().outage(true);
    for _ in 0..8 {
        pause(Duration::from_secs(1));
        pair.until_acked(&crowd, 20);
    }
    assert_eq!(epochs(&pair), before, "nobody took over\n{}", pair.story());
    assert_eq!(crowd.acked_by(Copies::ThisDiskAndS3), by_s3, "the wire acknowledges");
    assert_eq!(pair.logged(0, "lease_ran_out"), 0, "{}", pair.story());
    pair.s3.faults().outage(false);
    let ledger = crowd.finish();
    pair.reckon(&ledger);
}

/// Waits until the leader has fenced itself; nothing is acknowledged from then on.
fn until_silent(pair: &Pair, crowd: &Crowd) {
    pair.until("the leader fences itself", |pair| {
        (pair.status(0)?.role() == Role::Other).then_some(())
    });
    let acked = crowd.acked();
    pause(Duration::from_secs(2));
    assert_eq!(crowd.acked(), acked, "acknowledged without a second copy\n{}", pair.story());
}

/// Promised: with bucket and follower away nothing is acknowledged and the leader fences when its
/// lease runs out; it goes on by itself when either returns. A follower that has been a member
/// before starts without the bucket.
/// Provoked: kill -9 of the follower and an outage at once; first the bucket returns, then, after
/// another outage, the follower.
/// Broken: an acknowledgement with one copy; a leader that stays silent, or needs a restart; a
/// follower that does not start; an append lost or doubled.
#[test]
fn without_s3_and_follower_the_leader_waits_and_goes_on_when_either_returns() {
    let _alone = quiet();
    let mut pair = Pair::found(PairOptions::default());
    let crowd = pair.crowd();
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 200);
    pair.s3.faults().outage(true);
    pair.kill(1);
    until_silent(&pair, &crowd);
    pair.s3.faults().outage(false);
    pair.until_acked_by(&crowd, Copies::ThisDiskAndS3, 100);
    pair.s3.faults().outage(true);
    until_silent(&pair, &crowd);
    pair.start(1);
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 100);
    assert_eq!(pair.logged(0, "deposed"), 0, "it led all the time\n{}", pair.story());
    pair.s3.faults().outage(false);
    let ledger = crowd.finish();
    pair.reckon(&ledger);
}

/// Promised (M4): a follower restarts and follows again while the bucket is away.
/// Provoked: an outage, then SIGTERM and start of the follower under load.
/// Broken: a start that waits for the bucket; acknowledgements that do not come back to the wire.
#[test]
fn a_follower_restarts_while_s3_is_away() {
    let _alone = quiet();
    let mut pair = Pair::found(calm());
    let crowd = pair.crowd();
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 100);
    pair.s3.faults().outage(true);
    pair.stop(1);
    pair.start(1);
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 100);
    pair.s3.faults().outage(false);
    let ledger = crowd.finish();
    pair.reckon(&ledger);
}

/// Promised (L4): a write of the lease whose reply is lost is recognised by reading it back: no
/// reign is skipped and none is held by two.
/// Provoked: replies of lease writes lost, or replaced by 503 and 409 although they were applied,
/// at the founding and at a takeover.
/// Broken: a node that does not lead, an epoch that jumps, an append lost or doubled.
#[test]
fn a_lost_reply_of_a_lease_write_is_settled_by_reading_it_back() {
    let _alone = quiet();
    let faults = [
        Fault::DropReply,
        Fault::ApplyAndAnswer(Answer::error(503, "SlowDown")),
        Fault::ApplyAndAnswer(Answer::error(409, "ConditionalRequestConflict")),
    ];
    for fault in faults {
        let mut pair = Pair::unfounded(PairOptions::default());
        let lost = Rule::once("PUT", fault.clone()).on("/cluster/lease.json");
        pair.s3.faults().order(lost.clone());
        pair.start(0);
        let founded = pair.until_leads(0).epoch();
        assert_eq!(founded, 1, "{fault:?}: the first reign\n{}", pair.story());
        pair.start(1);
        assert_eq!(pair.healed(), 0);
        let crowd = pair.crowd();
        pair.until_acked(&crowd, 100);
        pair.s3.faults().order(lost);
        pair.kill(0);
        let taken = pair.until_leads(1).epoch();
        assert_eq!(taken, founded + 1, "{fault:?}: one reign later\n{}", pair.story());
        pair.until_acked(&crowd, 50);
        pair.start(0);
        pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 50);
        let ledger = crowd.finish();
        pair.reckon(&ledger);
    }
}

/// Promised: a bucket that is slow, refuses for a while or cuts connections delays a takeover and
/// loses nothing.
/// Provoked: a takeover while the store answers 503 a dozen times, applies writes late, cuts
/// replies short and delays everything.
/// Broken: a node that gives up, an append lost or doubled.
#[test]
fn a_takeover_gets_through_a_store_that_stumbles() {
    let _alone = quiet();
    let mut pair = Pair::found(PairOptions::default());
    let crowd = pair.crowd();
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 100);
    let busy = Fault::Answer(Answer::error(503, "SlowDown"));
    let late = Fault::ApplyLate(Duration::from_millis(400));
    let faults = pair.s3.faults();
    faults.order(Rule::once("PUT", late).on("/chain/").times(2));
    faults.order(Rule::once("GET", Fault::CutBody).times(3));
    faults.order(Rule::always(busy).after(4).times(12));
    faults.order(Rule::always(Fault::Delay(Duration::from_millis(60))).times(60));
    pair.kill(0);
    pair.until_leads(1);
    pair.until_acked_by(&crowd, Copies::ThisDiskAndS3, 100);
    pair.s3.faults().cut_connections();
    pair.start(0);
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 100);
    let ledger = crowd.finish();
    pair.reckon(&ledger);
}

/// Promised: how long a fallback lasted does not make the next failover slower: the follower was
/// told what is stored of the chain, and does not read it.
/// Provoked: the follower away for two hundred appends and more, back again, the leader killed.
/// Broken: Batches of that time are read by the node that is promoted.
#[test]
fn a_long_fallback_is_not_read_again_by_the_next_leader() {
    let _alone = quiet();
    let mut pair = Pair::found(calm());
    let crowd = pair.crowd();
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 100);
    let (leader, follower) = (pair.leader(), pair.other(pair.leader()));
    pair.kill(follower);
    let is_batch = |seen: &Seen| seen.target.contains("/chain/") && !seen.target.ends_with("0000");
    let sent = |pair: &Pair, method| {
        let seen = pair.s3.faults().take_seen();
        seen.iter().filter(|seen| seen.method == method && is_batch(seen)).count()
    };
    pair.until_acked_by(&crowd, Copies::ThisDiskAndS3, 200);
    pair.start(follower);
    assert_eq!(pair.healed_under_load(), leader, "{}", pair.story());
    pair.until_acked(&crowd, 20);
    let stored = sent(&pair, "PUT");
    assert!(stored > 20, "{stored} Batches tell nothing");
    pair.kill(leader);
    pair.until_leads(follower);
    pair.until_acked(&crowd, 20);
    let read = sent(&pair, "GET");
    assert!(read < 3, "{read} of {stored} Batches were read\n{}", pair.story());
    let ledger = crowd.finish();
    pair.start(leader);
    pair.reckon(&ledger);
}
