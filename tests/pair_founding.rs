//! The first minutes of a pair: founding, joining, and what a follower does for clients.

use duolog_engine::append::Expect;
use duolog_engine::ids::{Lsn, ShardId};
use duolog_net::wire::{Consistency, Copies, ErrorCode, NodeRole, ReadLog, ReadStream};
use duolog_tests::pair::{Pair, PairOptions, Timing};
use duolog_tests::process::{Operation, Wire, quiet};

/// Promised: two blank nodes that start at one moment become one cluster with one leader, and what
/// either acknowledges is on both.
/// Provoked: both are started at once on an empty bucket; load begins at once too.
/// Broken: two clusters, two leaders, a node that does not join, an acknowledged append missing.
#[test]
fn two_blank_nodes_that_start_together_become_one_pair() {
    let _alone = quiet();
    let mut pair = Pair::unfounded(PairOptions::default());
    pair.launch(0);
    pair.launch(1);
    let crowd = pair.crowd();
    pair.until_acked(&crowd, 200);
    let leader = pair.healed();
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 200);
    let ledger = crowd.finish();
    let clusters = [0, 1].map(|node| pair.status(node).map(|status| status.0["cluster"].clone()));
    assert_eq!(clusters[0], clusters[1], "one cluster");
    let epochs = [0, 1].map(|node| pair.status(node).map(|status| status.epoch()));
    assert_eq!(epochs[0], epochs[1], "one reign, led by node {leader}");
    pair.reckon(&ledger);
}

/// Promised: a founder alone acknowledges by the chain in S3; a second node joins under load
/// without anybody's word, is admitted, and from then on acknowledgements come over the wire.
/// Provoked: one node under load; the other is started later.
/// Broken: no acknowledgement while alone, one with fewer than two copies, a second node that is
/// not admitted, a lost append.
#[test]
fn a_second_node_joins_under_load_and_takes_over_the_acks() {
    let _alone = quiet();
    let mut pair = Pair::unfounded(PairOptions::default());
    pair.start(0);
    let crowd = pair.crowd();
    pair.until_acked_by(&crowd, Copies::ThisDiskAndS3, 300);
    assert_eq!(crowd.acked_by(Copies::ThisDiskAndPeer), 0, "there is no peer");
    pair.start(1);
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 300);
    assert_eq!(crowd.acked_by(Copies::ThisDisk), 0, "one copy is none");
    let ledger = crowd.finish();
    pair.reckon(&ledger);
}

/// Promised: a follower answers reads of consistency `any` with committed events and sends appends
/// and linearizable reads to the leader, by its address.
/// Provoked: one append at the leader, then everything at the follower.
/// Broken: a follower that takes an append, reads as if it led, or names no leader.
#[test]
fn a_follower_serves_any_reads_and_sends_the_rest_to_the_leader() {
    let _alone = quiet();
    let pair = Pair::found(PairOptions { timing: Timing::Calm, ..PairOptions::default() });
    let address = |number: usize| pair.options[number].address;
    let mut leader = Wire::connect(address(0)).expect("the leader takes clients");
    let operation = Operation::single(7 << 32, "orders", Expect::NoStream, b"first");
    let receipt = leader.append(&operation.request()).receipt();
    assert_eq!(receipt.head.copies, Copies::ThisDiskAndPeer);
    let (mut follower, accepted) =
        Wire::connect_to(address(1), None).expect("the follower takes clients");
    assert_eq!(accepted.role, NodeRole::Follower);
    let mut read = ReadStream::new("orders");
    read.consistency = Consistency::Any;
    // Readers lag by less than a heartbeat.
    pair.until("the follower shows the event", |_| {
        let events = follower.try_page(&read).ok()?.events;
        (events.len() == 1 && events[0].data == b"first").then_some(())
    });
    let refused = follower.append(&operation.request()).refused();
    let told = (refused.code, refused.leader.as_str());
    assert_eq!(told, (ErrorCode::NotLeader, address(0).to_string().as_str()));
    let shard = ShardId(0);
    let consistency = Consistency::Linearizable;
    let mut log = ReadLog { from: Lsn(1), shard, events_max: 0, bytes_max: 0, consistency };
    for consistency in [Consistency::Linearizable, Consistency::Confirmed] {
        (read.consistency, log.consistency) = (consistency, consistency);
        for log_too in [false, true] {
            let asked = if log_too { follower.send_log(&log) } else { follower.send_read(&read) };
            let asked = asked.expect("it is sent");
            let (answered, answer) = follower.receive().expect("it is answered");
            assert_eq!((answered, answer.refused().code), (asked, ErrorCode::NotLeader));
        }
    }
    assert_eq!(follower.log_as(0, 1, Consistency::Any), leader.log(ShardId(0).0, 1));
}
