//! Who belongs to a pair, and nodes that do not fit.

use std::time::Duration;

use duolog_net::wire::Copies;
use duolog_tests::pair::{Pair, PairOptions, Timing};
use duolog_tests::process::{pause, quiet};
use serde_json::json;

/// Promised: a third node is not admitted to a complete pair. `replace` puts a blank node in a dead
/// one's place, under load; while the old member answers it is refused.
/// Provoked: a third node beside a healthy pair; then kill -9 of the follower, whose disk is given
/// up, and the command.
/// Broken: three nodes in one pair, a replacement while the old member lives, a newcomer that is
/// not admitted or lacks an acknowledged append.
#[test]
fn a_blank_node_takes_a_dead_ones_place_only_by_command() {
    let _alone = quiet();
    let mut pair = Pair::found(PairOptions { timing: Timing::Calm, ..PairOptions::default() });
    let newcomer = pair.add();
    pair.members = [0, newcomer];
    let crowd = pair.crowd();
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 300);
    let dead = pair.status(1).expect("the follower answers").node();
    pair.start(newcomer);
    let id = pair.status(newcomer).expect("the newcomer answers").node();
    pause(Duration::from_secs(3));
    let members = pair.status(0).expect("the leader answers").members();
    assert!(!members.contains(&id) && members.contains(&dead), "{members:?}");
    let replace = json!({ "command": "replace", "dead": dead, "newcomer": id });
    let refused = pair.order(0, &replace).expect_err("the old member lives");
    assert!(refused.contains("still acks heartbeats"), "{refused}");
    pair.kill(1);
    pair.until_acked_by(&crowd, Copies::ThisDiskAndS3, 100);
    let stranger = json!({ "command": "replace", "dead": id, "newcomer": dead });
    assert!(pair.order(0, &stranger).is_err(), "it is not a member");
    // Nobody else can be meant.
    let replace = json!({ "command": "replace", "dead": dead });
    let told = pair.until("the replacement is accepted", |pair| pair.order(0, &replace).ok());
    assert!(told.contains(&id), "{told} names {id}");
    pair.until_acked_by(&crowd, Copies::ThisDiskAndPeer, 200);
    let members = pair.status(0).expect("the leader answers").members();
    assert!(members.contains(&id) && !members.contains(&dead), "{members:?}");
    let ledger = crowd.finish();
    pair.reckon(&ledger);
}

/// Promised: a node with another number of shards is refused at its start, with both numbers and
/// the setting.
/// Provoked: the second node is started with two shards instead of one.
/// Broken: a node that runs, or a text that does not help.
#[test]
fn a_node_with_another_number_of_shards_is_refused() {
    let _alone = quiet();
    let mut pair = Pair::unfounded(PairOptions::default());
    pair.start(0);
    pair.until_leads(0);
    let ended = pair.options[1].clone().shards(2).start_refused();
    assert_eq!(ended.code, Some(11), "DataDirMismatch: {ended:?}");
    let words = ended.words();
    for part in ["1 shards", "say 2", "shards.count"] {
        assert!(words.contains(part), "{words}");
    }
}

/// Promised: a node with another segment size is not admitted, and both nodes say why.
/// Provoked: the second node is started with larger segments.
/// Broken: a pair whose nodes put blocks at different places, or a silent refusal.
#[test]
fn a_node_with_another_segment_size_is_refused_by_its_peer() {
    let _alone = quiet();
    let mut pair = Pair::unfounded(PairOptions::default());
    pair.start(0);
    pair.until_leads(0);
    pair.options[1] = pair.options[1].clone().flag("log-segment-size-bytes", "4MiB");
    pair.start(1);
    for node in [0, 1] {
        pair.until("the node says why", |pair| {
            pair.has_logged(node, "set log.segment_size_bytes alike").then_some(())
        });
    }
    let members = pair.status(0).expect("the leader answers").members();
    assert_eq!(members.len(), 1, "{members:?}");
}
