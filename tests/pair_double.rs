//! Two things that go wrong at once.

use std::time::Duration;

use duolog_net::wire::Copies;
use duolog_s3dev::{Fault, Rule};
use duolog_tests::pair::{Pair, PairOptions};
use duolog_tests::process::log_files::{blocks, flip};
use duolog_tests::process::{pause, quiet};

/// Promised: both nodes may die at once; whichever comes back first leads with everything that was
/// acknowledged, alone by the chain, and the other one joins it.
/// Provoked: kill -9 of both under load; the old leader first, then the old follower first.
/// Broken: an acknowledged append missing or doubled; a node that waits for the other for ever.
#[test]
fn both_nodes_may_die_at_once_and_return_in_any_order() {
    let _alone = quiet();
    let mut pair = Pair::found(PairOptions::default());
    let crowd = pair.crowd();
    for leader_first in [true, false] {
        pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 200);
        let leader = pair.leader();
        let follower = pair.other(leader);
        pair.kill(leader);
        pair.kill(follower);
        let (first, second) = if leader_first { (leader, follower) } else { (follower, leader) };
        pair.start(first);
        pair.until_leads(first);
        pair.until_acked_by(&crowd, Copies::ThisDiskAndS3, 100);
        pair.start(second);
        pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 100);
    }
    let ledger = crowd.finish();
    pair.reckon(&ledger);
}

/// Promised: a disk that loses, with the power, a block that it had called durable costs nothing
/// (D4) as long as the other node has it: the node fetches it before it may lead again.
/// Provoked: kill -9 of both under load, a block destroyed a few before the end of the leader's
/// log, behind its mark; the old leader comes back a moment before the other node.
/// Broken: the old leader takes the hole for a torn tail, leads without what was acknowledged
/// behind it, and has the other node cut that, too.
#[test]
fn a_block_that_the_disk_lost_comes_back_before_its_node_leads() {
    let _alone = quiet();
    let mut pair = Pair::found(PairOptions::default());
    let crowd = pair.crowd();
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 300);
    let leader = pair.leader();
    let follower = pair.other(leader);
    pair.kill(leader);
    pair.kill(follower);
    let dir = pair.options[leader].dir.clone();
    let blocks = blocks(&dir, 0);
    let hit = &blocks[blocks.len() - 8];
    flip(&hit.path, hit.middle());
    pair.launch(leader);
    pause(Duration::from_millis(700));
    pair.launch(follower);
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 100);
    assert_eq!(pair.logged(leader, "log_repaired"), 1, "{}", pair.story());
    let ledger = crowd.finish();
    pair.reckon(&ledger);
}

/// Kills the leader, lets the follower win the lease and get stuck before it opens its reign, kills
/// it too; `first` then comes back first.
fn successor_dies_before_it_opens(fault: Fault, first: usize) {
    let mut pair = Pair::found(PairOptions::default());
    let crowd = pair.crowd();
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 200);
    pair.s3.faults().order(Rule { method: Some("PUT"), ..Rule::always(fault) }.on("/chain/"));
    pair.kill(0);
    pair.until("the follower wins the lease", |pair| {
        (pair.logged(1, "reign_won") > 0).then_some(())
    });
    pause(Duration::from_millis(300));
    assert_eq!(pair.logged(1, "leads"), 0, "it cannot have opened its reign");
    pair.kill(1);
    pair.s3.faults().clear();
    pair.start(first);
    pair.until_leads(first);
    pair.until_acked(&crowd, 100);
    pair.start(1 - first);
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 100);
    let ledger = crowd.finish();
    pair.reckon(&ledger);
}

/// Promised: a successor that dies before it has opened its reign takes nothing with it; its reign
/// is sealed by the next one, and either node may be the next.
/// Provoked: the follower wins the lease while nothing can be stored in its chain, and is killed.
/// Broken: an acknowledged append missing or doubled, a pair that never leads again.
#[test]
fn a_successor_that_dies_before_it_opens_loses_nothing_and_comes_back() {
    let _alone = quiet();
    successor_dies_before_it_opens(Fault::DropRequest, 1);
}

/// The same, but what the dead successor wrote has arrived although nobody told it, and the old
/// leader comes back first.
#[test]
fn a_successor_whose_opening_arrived_unseen_is_no_obstacle_to_the_old_leader() {
    let _alone = quiet();
    successor_dies_before_it_opens(Fault::DropReply, 0);
}

/// Promised: what a dead leader had on its disk alone, acknowledged by nobody, is cut when it comes
/// back as follower.
/// Provoked: the follower is killed and the chain takes nothing, so that the leader's newest blocks
/// are on one disk; then the leader is killed too and the follower goes on without them.
/// Broken: a log that keeps the tail, a node that refuses to follow, an append lost or doubled.
#[test]
fn a_tail_that_only_the_dead_leader_had_is_cut_when_it_returns() {
    let _alone = quiet();
    let mut pair = Pair::found(PairOptions::default());
    let crowd = pair.crowd();
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 200);
    let chain = Rule { method: Some("PUT"), ..Rule::always(Fault::DropRequest) }.on("/chain/");
    pair.s3.faults().order(chain);
    pair.kill(1);
    pair.until("the leader writes what nobody else has", |pair| {
        let shards = pair.status(0)?.shards();
        shards.iter().all(|(end, committed, _)| end > committed).then_some(())
    });
    // Long enough for the blocks to be on the leader's disk.
    pause(Duration::from_millis(300));
    pair.kill(0);
    pair.s3.faults().clear();
    pair.start(1);
    pair.until_leads(1);
    pair.until_acked_by(&crowd, Copies::ThisDiskAndS3, 100);
    pair.start(0);
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 100);
    assert!(pair.logged(0, "log_cut") > 0, "there was a tail to cut\n{}", pair.story());
    let ledger = crowd.finish();
    pair.reckon(&ledger);
}
