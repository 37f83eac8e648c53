//! A follower: which blocks it takes, when it says so, and what its readers see.

use super::leader::{EPOCH, PEER, lead, leader, pair_config};
use super::*;
use crate::ids::LeaseEpoch;

fn follower(epoch: LeaseEpoch) -> Bench {
    let mut bench = Bench::new(pair_config(PEER));
    assert_eq!(bench.step(Event::Follow { epoch }), []);
    assert_eq!(bench.shard.role(), Role::Follower { epoch: Some(epoch) });
    bench
}

/// A leader with `count` appends in blocks of their own, and the blocks.
fn blocks(count: u64) -> (Bench, Vec<Vec<u8>>) {
    let mut bench = leader();
    let mut blocks = Vec::new();
    for lsn in 1..=count {
        bench.append(&format!("stream-{}", lsn % 3));
        blocks.push(bench.shard.in_memory_block(Lsn(lsn)).unwrap().to_vec());
        bench.written(lsn);
        bench.acked(PEER, EPOCH.0, lsn);
        bench.prepare();
    }
    (bench, blocks)
}

impl Bench {
    fn receive(&mut self, epoch: LeaseEpoch, block: &[u8]) -> Vec<Action> {
        self.step(Event::Received { epoch, block })
    }

    fn refusal(&mut self, epoch: LeaseEpoch, block: &[u8]) -> BlockRefused {
        let before = (self.shard.end(), self.shard.durable());
        let told = self.shard.check_block(epoch, block).unwrap_err();
        let actions = self.receive(epoch, block);
        assert_eq!(actions, [Action::BlockRefused { reason: told }]);
        assert_eq!((self.shard.end(), self.shard.durable()), before, "nothing has changed");
        told
    }
}

fn durable(epoch: LeaseEpoch, lsn: u64) -> Action {
    Action::Durable { epoch, lsn: Lsn(lsn) }
}

/// Rules R2, R5: the follower acks what is durable, not before; its readers see what the leader has
/// committed, as far as it is durable here.
#[test]
fn a_follower_acks_after_its_sync_and_shows_what_is_committed() {
    let (leader, blocks) = blocks(3);
    let mut bench = follower(EPOCH);
    assert_eq!(bench.receive(EPOCH, &blocks[0]), []);
    assert_eq!(bench.receive(EPOCH, &blocks[1]), []);
    assert!(bench.shard.wants_flush());
    let actions = bench.step(Event::Flush);
    let [Action::Write { first_lsn: Lsn(1), blocks: 2, place, header: Some(_) }] = actions[..]
    else {
        panic!("{actions:?}")
    };
    assert_eq!(place, Place { generation: Generation(1), offset: 4096 });
    let parts: Vec<&[u8]> = bench.shard.write_parts(Lsn(1), 2).collect();
    assert_eq!(parts, [&blocks[0][..], &blocks[1][..]], "the very bytes that came");
    let mark = |lsn| Event::CommitMark { epoch: EPOCH, lsn: Lsn(lsn) };
    assert_eq!(bench.step(mark(3)), [], "R5: nothing is durable here");
    let committed = Action::Committed { lsn: Lsn(2) };
    assert_eq!(bench.written(1), [durable(EPOCH, 2), committed]);
    bench.receive(EPOCH, &blocks[2]);
    bench.step(Event::Flush);
    assert_eq!(bench.written(3), [durable(EPOCH, 3), Action::Committed { lsn: Lsn(3) }]);
    assert_eq!(bench.shard.committed(), leader.shard.committed());
    assert_eq!(bench.shard.committed_place(), leader.shard.committed_place());
    assert_eq!(bench.shard.stream_end(id("stream-1")), StreamEnd::Known(Revision(1)));
    let (late, actions) = bench.ask(&any("stream-1"));
    assert_eq!(answers(&actions), [(late.0, Err(Refusal::NotLeader))]);
}

/// Rule R5: without a mark nothing is committed, however durable; the mark in a later block's
/// header serves as well.
#[test]
fn a_follower_shows_nothing_that_is_not_known_to_be_committed() {
    let (_, blocks) = blocks(2);
    let mut bench = follower(EPOCH);
    bench.receive(EPOCH, &blocks[0]);
    bench.step(Event::Flush);
    assert_eq!(bench.written(1), [durable(EPOCH, 1)]);
    assert_eq!(bench.shard.stream_end(id("stream-1")), StreamEnd::Known(Revision(0)));
    let stale = Event::CommitMark { epoch: LeaseEpoch(9), lsn: Lsn(1) };
    assert_eq!(bench.step(stale), [], "R5: another reign's mark");
    assert_eq!(bench.receive(EPOCH, &blocks[1]), [Action::Committed { lsn: Lsn(1) }]);
    assert_eq!(bench.shard.stream_end(id("stream-1")), StreamEnd::Known(Revision(1)));
}

/// Rule R5: what one leader has said of blocks that never came counts for no other leader's.
#[test]
fn a_mark_beyond_the_log_does_not_outlive_its_leader() {
    let (_, blocks) = blocks(2);
    let mut bench = follower(EPOCH);
    bench.receive(EPOCH, &blocks[0]);
    bench.step(Event::Flush);
    bench.step(Event::CommitMark { epoch: EPOCH, lsn: Lsn(9) });
    assert_eq!(bench.written(1), [durable(EPOCH, 1), Action::Committed { lsn: Lsn(1) }]);
    let next = LeaseEpoch(2);
    bench.step(Event::StopFollowing);
    bench.step(Event::Follow { epoch: next });
    bench.receive(next, &blocks[1]);
    bench.step(Event::Flush);
    assert_eq!(bench.written(2), [durable(next, 2)], "R5: this leader has not committed it");
}

/// Rule L3: from the challenge on no ack leaves, not even for a write that is under way.
#[test]
fn a_challenger_acks_nothing_any_more() {
    let (_, blocks) = blocks(2);
    let mut bench = follower(EPOCH);
    bench.receive(EPOCH, &blocks[0]);
    bench.step(Event::Flush);
    assert_eq!(bench.step(Event::StopFollowing), []);
    assert_eq!(bench.written(1), [], "L3: it has stopped following");
    let refused = bench.refusal(EPOCH, &blocks[1]);
    assert_eq!(refused, BlockRefused::NotFollowed { given: EPOCH, followed: None });
    assert_eq!(bench.shard.durable().lsn, Lsn(1));
    // Its challenge did not land: it may follow again.
    bench.step(Event::Follow { epoch: EPOCH });
    bench.receive(EPOCH, &blocks[1]);
    bench.step(Event::Flush);
    assert_eq!(bench.written(2)[0], durable(EPOCH, 2));
}

/// Rules R1, R3: blocks are taken at exactly the epoch that is followed, in order, whole, and only
/// if they continue the log.
#[test]
fn blocks_that_do_not_continue_the_log_are_refused() {
    let (_, blocks) = blocks(3);
    let mut bench = follower(LeaseEpoch(2));
    let older = bench.refusal(EPOCH, &blocks[0]);
    let followed = Some(LeaseEpoch(2));
    assert_eq!(older, BlockRefused::NotFollowed { given: EPOCH, followed });
    let gap = bench.refusal(LeaseEpoch(2), &blocks[1]);
    assert_eq!(gap, BlockRefused::Gap { first: Lsn(2), end: Lsn(0) });
    let mut damaged = blocks[0].clone();
    *damaged.last_mut().unwrap() ^= 1;
    let refused = bench.refusal(LeaseEpoch(2), &damaged);
    assert!(matches!(refused, BlockRefused::Damaged(_)), "{refused}");
    assert_eq!(bench.receive(LeaseEpoch(2), &blocks[0]), [], "an earlier reign's block");
    let known = bench.refusal(LeaseEpoch(2), &blocks[0]);
    assert_eq!(known, BlockRefused::Known { last: Lsn(1), end: Lsn(1) });
    let mut other = leader();
    for stream in ["x", "y"] {
        other.append(stream);
    }
    let fork = other.shard.in_memory_block(Lsn(2)).unwrap().to_vec();
    assert_eq!(bench.refusal(LeaseEpoch(2), &fork), BlockRefused::Fork { first: Lsn(2) });
    // A lower reign is not followed any more.
    bench.step(Event::Follow { epoch: EPOCH });
    assert_eq!(bench.shard.role(), Role::Follower { epoch: followed });
}

/// What follows a restarted cluster's newest reign does not come from a future one.
#[test]
fn a_block_of_a_reign_that_is_not_over_is_refused() {
    let mut new = leader();
    new.step(Event::Demote);
    lead(&mut new, LeaseEpoch(5));
    new.append("a");
    let block = new.shard.in_memory_block(Lsn(1)).unwrap().to_vec();
    let mut bench = follower(LeaseEpoch(4));
    let refused = bench.refusal(LeaseEpoch(4), &block);
    assert_eq!(refused, BlockRefused::Epoch { epoch: LeaseEpoch(5) });
    bench.step(Event::Promote { epoch: LeaseEpoch(5) });
    let refused = bench.refusal(LeaseEpoch(5), &block);
    assert_eq!(refused, BlockRefused::Epoch { epoch: LeaseEpoch(5) }, "its own reign is new");
    bench.step(Event::Promote { epoch: LeaseEpoch(6) });
    assert_eq!(bench.receive(LeaseEpoch(6), &block), [], "a chain's block");
    bench.step(Event::Flush);
    assert_eq!(bench.written(1), [], "L3: nobody is told");
    assert_eq!(
        bench.step(Event::Opened { epoch: LeaseEpoch(6) })[0],
        Action::Committed { lsn: Lsn(1) }
    );
}

/// Catch-up at disk speed: what waits is written in one piece, up to the next segment; blocks lie
/// where the leader put them, also when the follower's segment is not ready yet.
#[test]
fn waiting_blocks_are_joined_and_lie_where_the_leader_put_them() {
    let (leader, blocks) = blocks(20);
    let mut bench = follower(EPOCH);
    for block in &blocks[..15] {
        bench.receive(EPOCH, block);
    }
    let actions = bench.step(Event::Flush);
    let writes: Vec<(u64, u32, u32)> = actions
        .iter()
        .map(|action| match action {
            Action::Write { first_lsn, blocks, place, .. } => {
                (first_lsn.0, *blocks, place.generation.0)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(writes, [(1, 15, 1)], "a segment of 64 KiB has room for 15 blocks");
    for block in &blocks[15..] {
        bench.receive(EPOCH, block);
    }
    let actions = bench.step(Event::Flush);
    assert!(matches!(
        actions[..],
        [Action::Write { first_lsn: Lsn(16), blocks: 5, header: Some(_), .. }]
    ));
    bench.written(16);
    assert_eq!(bench.shard.durable().lsn, Lsn(0), "A1: the first write is not durable");
    assert_eq!(bench.written(1)[0], durable(EPOCH, 20));
    assert_eq!(bench.shard.end(), leader.shard.end());
}

#[test]
fn a_segment_that_is_not_ready_holds_its_blocks_back() {
    let (_, blocks) = blocks(50);
    let mut bench = follower(EPOCH);
    for block in &blocks {
        bench.receive(EPOCH, block);
    }
    let writes = |actions: &[Action]| actions.iter().filter_map(write_of).collect::<Vec<_>>();
    let actions = bench.step(Event::Flush);
    // The blocks of three segments are more than small writes, so all that is ready goes.
    assert_eq!(writes(&actions), [Lsn(1), Lsn(16)]);
    bench.written(1);
    bench.written(16);
    assert_eq!(bench.shard.durable().lsn, Lsn(30));
    assert_eq!(writes(&bench.ready(3)), [Lsn(31)]);
    assert_eq!(writes(&bench.ready(4)), [Lsn(46)]);
}

/// A7 across a failover: the highest fencing token of a cold stream is looked up before its index
/// is saved and before anybody may append to it.
#[test]
fn a_cold_streams_token_is_looked_up_while_blocks_go_on() {
    let mut old = leader();
    old.append("cold");
    let first = old.shard.in_memory_block(Lsn(1)).unwrap().to_vec();
    old.append("cold");
    let second = old.shard.in_memory_block(Lsn(2)).unwrap().to_vec();
    let mut bench = follower(EPOCH);
    bench.receive(EPOCH, &first);
    bench.step(Event::Flush);
    bench.written(1);
    // Its first event is in a saved index, its head forgotten.
    bench.make_cold(&["cold"]);
    bench.shard.heads.clear();
    bench.shard.tail.clear(Generation(1));
    let load = Action::LoadHead { stream: id("cold") };
    assert_eq!(bench.receive(EPOCH, &second)[0], load);
    assert!(!bench.shard.unsettled.allows(Generation(1)), "D7: its index waits");
    bench.step(Event::Flush);
    bench.written(2);
    let failed = Event::HeadLoaded { stream: id("cold"), head: Err(LoadFailed) };
    assert_eq!(bench.step(failed), []);
    assert_eq!(bench.step(Event::Tick)[0], load, "it is tried again");
    lead(&mut bench, LeaseEpoch(2));
    let (fenced, actions) = bench.ask(&any("cold").token(4));
    assert_eq!(actions, [], "it waits for the look-up under way");
    let head = Ok(Some(StoredHead { next: Revision(1), fencing_token: 9 }));
    let actions = bench.step(Event::HeadLoaded { stream: id("cold"), head });
    let refusal = Refusal::Fenced { stream_index: 0, given: 4, highest: 9 };
    assert_eq!(answers(&actions), [(fenced.0, Err(refusal))]);
    let span = bench.shard.tail.span(id("cold")).unwrap();
    assert_eq!((span.first, span.fencing_token), (Revision(1), 9), "A7: the index has it too");
    assert!(bench.shard.unsettled.allows(Generation(1)));
    let head = bench.shard.heads.get(id("cold")).unwrap();
    assert_eq!(head.next_revision, Revision(2));
}

/// D7, A7: the index of a segment with a stream whose token is being looked up is not saved before
/// the token has come.
#[test]
fn an_index_waits_for_the_tokens_of_its_streams() {
    let mut old = leader();
    let mut blocks = Vec::new();
    for (lsn, stream) in (1..=16).zip(["cold", "cold"].into_iter().chain(["warm"].repeat(14))) {
        old.append(stream);
        blocks.push(old.shard.in_memory_block(Lsn(lsn)).unwrap().to_vec());
        old.written(lsn);
        old.prepare();
    }
    let mut bench = follower(EPOCH);
    bench.receive(EPOCH, &blocks[0]);
    bench.step(Event::Flush);
    bench.written(1);
    bench.make_cold(&["cold"]);
    bench.shard.heads.clear();
    bench.shard.tail.clear(Generation(1));
    for block in &blocks[1..] {
        bench.receive(EPOCH, block);
    }
    bench.step(Event::Flush);
    bench.written(2);
    bench.written(16);
    let committed = bench.step(Event::CommitMark { epoch: EPOCH, lsn: Lsn(16) });
    assert_eq!(committed, [Action::Committed { lsn: Lsn(16) }], "D7: its index waits");
    let save = Action::SaveIndex { generation: Generation(1) };
    let head = Ok(Some(StoredHead { next: Revision(1), fencing_token: 9 }));
    let actions = bench.step(Event::HeadLoaded { stream: id("cold"), head });
    assert_eq!(actions, [save]);
    let sealed = bench.shard.sealed(Generation(1)).unwrap();
    assert_eq!(sealed.tail.span(id("cold")).unwrap().fencing_token, 9);
}
