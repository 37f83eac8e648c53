//! Nodes that die without a word.

use duolog_net::wire::Copies;
use duolog_tests::pair::{Pair, PairOptions};
use duolog_tests::process::quiet;

/// Promised: when the leader dies the follower takes over with everything that was acknowledged;
/// the old leader comes back, cuts what it alone had, and follows.
/// Provoked: kill -9 under load, twice, each time the node that leads.
/// Broken: an acknowledged append missing, moved or doubled on either node; logs that differ; a
/// pair that does not become whole again.
#[test]
fn acked_appends_survive_the_leaders_death() {
    let _alone = quiet();
    let mut pair = Pair::found(PairOptions::default());
    let crowd = pair.crowd();
    for round in 0..2 {
        pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 400);
        let old = pair.leader();
        pair.kill(old);
        pair.until_leads(pair.other(old));
        pair.until_acked_by(&crowd, Copies::ThisDiskAndS3, 100);
        pair.start(old);
        pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 100);
        println!("round {round}: node {old} is back");
    }
    let ledger = crowd.finish();
    pair.reckon(&ledger);
}

/// Promised: when the follower dies appends go on, acknowledged by the chain in S3; when it is back
/// it catches up and acknowledgements come over the wire again.
/// Provoked: kill -9 of the follower under load; it stays away for some hundred appends.
/// Broken: an append that fails, one copy called enough, a failover, acks that stay with S3.
#[test]
fn appends_go_on_through_s3_while_the_follower_is_away() {
    let _alone = quiet();
    let mut pair = Pair::found(PairOptions::default());
    let crowd = pair.crowd();
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 300);
    let epoch = pair.status(0).expect("the leader answers").epoch();
    pair.kill(1);
    pair.until_acked_by(&crowd, Copies::ThisDiskAndS3, 500);
    pair.start(1);
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 300);
    let ledger = crowd.finish();
    assert_eq!(crowd_epochs(&pair), vec![epoch; 2], "nobody took over\n{}", pair.story());
    pair.reckon(&ledger);
}

/// Promised: the same for every shard of several, each with its own log, chain and connection.
/// Provoked: two shards under load; kill -9 of the leader, a handover back, kill -9 of the
/// follower.
/// Broken: an acknowledged append missing or doubled in either shard; half an append.
#[test]
fn every_shard_of_a_pair_fails_over_by_itself() {
    let _alone = quiet();
    let mut pair = Pair::found(PairOptions { shards: 2, ..PairOptions::default() });
    let crowd = pair.crowd();
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 300);
    pair.kill(0);
    pair.until_leads(1);
    pair.until_acked_by(&crowd, Copies::ThisDiskAndS3, 200);
    pair.start(0);
    let leader = pair.healed_under_load();
    pair.hand_over(leader);
    let leader = pair.other(leader);
    pair.until_leads(leader);
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 100);
    let follower = pair.other(leader);
    pair.kill(follower);
    pair.until_acked_by(&crowd, Copies::ThisDiskAndS3, 200);
    pair.start(follower);
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 200);
    let ledger = crowd.finish();
    pair.reckon(&ledger);
}

fn crowd_epochs(pair: &Pair) -> Vec<u64> {
    [0, 1].iter().filter_map(|node| pair.status(*node)).map(|status| status.epoch()).collect()
}
