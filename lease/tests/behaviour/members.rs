//! Who belongs to the pair (M0 to M3).

use duolog_lease::action::Action;
use duolog_lease::event::{Event, Force, ReadResult, Replace, WriteOutcome};
use duolog_lease::ids::{ETag, LeaseEpoch, NodeId};
use duolog_lease::in_sync::InSync;
use duolog_lease::report::{MemberRefusal, What};
use duolog_lease::status::Status;

use crate::pair::{A, B, Note, Pair, node_id};
use crate::single::Single;

const EPOCH: LeaseEpoch = LeaseEpoch(5);
const NEWCOMER: NodeId = NodeId(0xf);

/// A leads alone at epoch 5.
fn alone() -> Single {
    let mut node = Single::booting(4);
    let mut version = node.version(A, 4, 0);
    version.document.in_sync = InSync::alone(node_id(A));
    node.read(ReadResult::Found(version));
    node.written(WriteOutcome::Stored { etag: ETag::new("\"5\"") });
    node.step(Event::PromisePersisted { epoch: EPOCH });
    node.step(Event::PromotionFinished { epoch: EPOCH });
    node
}

/// M0, M2: both sets count before the write leaves, and until it is known to be stored.
#[test]
fn a_newcomer_is_admitted_by_one_write_and_both_sets_count_meanwhile() {
    let mut node = alone();
    let (me, pair) = (InSync::alone(node_id(A)), InSync::pair(node_id(A), node_id(B)));
    let writes = node.writes.len();
    let actions = node.step(Event::FollowerCaughtUp { node: node_id(B), epoch: EPOCH });
    assert_eq!(actions[0], Action::MembershipChanged { in_sync: me, proposal: Some(pair) });
    assert_eq!(node.writes.len(), writes, "not before all shards count by both");
    node.step(Event::ProposalCovered { epoch: EPOCH });
    let (_, document) = node.writes.last().expect("written");
    assert_eq!((document.in_sync, document.epoch), (pair, EPOCH), "at the same epoch");
    node.written(WriteOutcome::Unknown);
    assert_eq!(node.machine.members(), Some((me, Some(pair))), "unknown: both");
    let version = node.written_version();
    let actions = node.read(ReadResult::Found(version));
    assert!(actions.contains(&Action::MembershipChanged { in_sync: pair, proposal: None }));
    assert_eq!(node.machine.members(), Some((pair, None)));
}

/// M1: a learner's acks do not extend the lease; a member's do.
#[test]
fn only_a_member_s_heartbeat_acks_extend_the_lease() {
    let mut node = alone();
    let sent = node.now().mono;
    let until = |node: &Single| node.machine.grant().expect("leads").serve_until;
    let before = until(&node);
    node.run(29_400);
    node.step(Event::Tick);
    let sent_late = node.now().mono;
    node.ack(sent);
    node.ack(sent_late);
    assert_eq!(until(&node), before);
    let mut node = Single::leading();
    let before = until(&node);
    node.run(29_400);
    node.step(Event::Tick);
    let sent_late = node.now().mono;
    node.ack(sent_late);
    assert_eq!(until(&node), before.plus(29_400 + 1000 - 29_500));
}

/// M2: while a change is unknown, both sets must carry the lease: nobody else's ack will do.
#[test]
fn no_ack_counts_while_a_swap_is_undecided() {
    let mut node = swap_written();
    node.run(400);
    node.step(Event::Tick);
    let sent = node.now().mono;
    let before = node.machine.grant().expect("leads").serve_until;
    for from in [node_id(B), NEWCOMER] {
        node.step(Event::HeartbeatAcked { from, epoch: EPOCH, sent });
        assert_eq!(node.machine.grant().expect("leads").serve_until, before);
    }
}

fn swap_written() -> Single {
    let mut node = Single::leading();
    let replace = Replace { dead: node_id(B), newcomer: NEWCOMER, force: Force::No };
    node.step(Event::ReplaceRequested(replace));
    assert_eq!(node.machine.admits(NEWCOMER), Ok(()));
    node.step(Event::FollowerCaughtUp { node: NEWCOMER, epoch: EPOCH });
    node.step(Event::ProposalCovered { epoch: EPOCH });
    let (_, document) = node.writes.last().expect("written");
    assert_eq!(document.in_sync, InSync::pair(node_id(A), NEWCOMER), "a swap is one write (M3)");
    node
}

/// M0: a third node is told why.
#[test]
fn a_third_node_is_refused_unless_it_was_named() {
    let mut node = Single::leading();
    assert_eq!(node.machine.admits(node_id(B)), Ok(()));
    assert_eq!(node.machine.admits(NEWCOMER), Err(MemberRefusal::ThirdNode));
    node.step(Event::FollowerCaughtUp { node: NEWCOMER, epoch: EPOCH });
    let refusal = MemberRefusal::ThirdNode;
    assert!(node.reports.contains(&What::MemberRefused { node: NEWCOMER, refusal }));
    assert_eq!(node.writes.len(), 1);
}

/// M3: what `node replace` refuses, and when force helps.
#[test]
fn a_replacement_is_refused_for_a_reason() {
    let rows = [
        (false, node_id(B), NEWCOMER, Force::No, None),
        (true, node_id(B), NEWCOMER, Force::No, Some(MemberRefusal::Reachable)),
        (true, node_id(B), NEWCOMER, Force::Yes, None),
        (false, NEWCOMER, NEWCOMER, Force::Yes, Some(MemberRefusal::NotMember)),
        (false, node_id(B), node_id(B), Force::Yes, Some(MemberRefusal::NotMember)),
        (false, node_id(A), NEWCOMER, Force::Yes, Some(MemberRefusal::NotMember)),
    ];
    for (reachable, dead, newcomer, force, expected) in rows {
        let mut node = Single::leading();
        if reachable {
            let sent = node.now().mono;
            node.ack(sent);
        }
        node.step(Event::ReplaceRequested(Replace { dead, newcomer, force }));
        let refused = node.reports.iter().find_map(|what| match what {
            What::MemberRefused { refusal, .. } => Some(*refusal),
            _ => None,
        });
        assert_eq!(refused, expected, "{reachable} {dead} {newcomer} {force:?}");
    }
}

/// A newcomer that leaves before the write is forgotten; after it the write must be decided.
#[test]
fn a_newcomer_that_leaves_early_is_forgotten() {
    let mut node = alone();
    node.step(Event::FollowerCaughtUp { node: node_id(B), epoch: EPOCH });
    node.step(Event::FollowerLost { node: node_id(B) });
    node.step(Event::ProposalCovered { epoch: EPOCH });
    assert_eq!(node.machine.members(), Some((InSync::alone(node_id(A)), None)));
    assert_eq!(node.writes.len(), 1);
    node.step(Event::FollowerCaughtUp { node: node_id(B), epoch: EPOCH });
    node.step(Event::ProposalCovered { epoch: EPOCH });
    node.step(Event::FollowerLost { node: node_id(B) });
    let proposal = InSync::pair(node_id(A), node_id(B));
    assert_eq!(node.machine.members(), Some((InSync::alone(node_id(A)), Some(proposal))));
}

/// L3: who is not in `in_sync` never challenges, however long the lease has run out.
#[test]
fn a_node_outside_the_pair_never_challenges() {
    let mut node = Single::booting(4);
    for _ in 0..5 {
        let mut version = node.version(B, 4, -60_000);
        version.document.in_sync = InSync::alone(node_id(B));
        node.read(ReadResult::Found(version));
        node.wake();
    }
    assert_eq!(node.writes.len(), 0);
    assert!(node.reported("not_member") >= 1);
}

/// M0 end to end: the second node joins, then the first dies and the second takes over.
#[test]
fn a_second_node_joins_and_can_take_over() {
    let mut pair = Pair::new();
    pair.start(A);
    pair.run(60_000);
    assert!(pair.document().in_sync.is_alone());
    pair.start(B);
    pair.run(2000);
    assert!(pair.document().in_sync.contains(node_id(B)));
    pair.kill(A);
    pair.run(60_000);
    assert_eq!(pair.status(B), Status::Leader { epoch: LeaseEpoch(2) });
    assert!(pair.first(B, &Note::What(What::ReignWon)).is_some());
}
