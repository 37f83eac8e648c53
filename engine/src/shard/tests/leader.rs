//! Appends of a node in a pair: what has to be true before they are acknowledged.

use duolog_lease::grant::{Admission, Grant};
use duolog_lease::in_sync::InSync;

use super::*;
use crate::ids::{LeaseEpoch, MonoMs, NodeId};
use crate::replica::EpochEnd;

pub(crate) const OWN: NodeId = NodeId(1);
pub(crate) const PEER: NodeId = NodeId(2);
pub(crate) const EPOCH: LeaseEpoch = LeaseEpoch(1);

pub(crate) fn pair_config(own: NodeId) -> ShardConfig {
    let mut config = config();
    config.pair = Some(own);
    config.block_target_bytes = 1;
    config
}

/// Leave to serve for the next second.
pub(crate) fn grant(epoch: LeaseEpoch) -> Grant {
    Grant {
        epoch,
        serve_until: MonoMs(1_000),
        admission: Admission::Open,
        renewal_from: MonoMs(15_000),
        upload_until: MonoMs(30_000),
    }
}

/// Makes the shard on a bench the leader of a pair.
pub(crate) fn lead(bench: &mut Bench, epoch: LeaseEpoch) {
    let in_sync = InSync::pair(OWN, PEER);
    bench.step(Event::Members { in_sync, proposal: None });
    assert_eq!(bench.step(Event::Promote { epoch }), []);
    bench.step(Event::Opened { epoch });
    bench.step(Event::Grant(Some(grant(epoch))));
    assert_eq!(bench.shard.role(), Role::Leader { epoch });
}

pub(crate) fn leader() -> Bench {
    let mut bench = Bench::new(pair_config(OWN));
    lead(&mut bench, EPOCH);
    bench
}

impl Bench {
    /// Appends one event; its block is closed and handed to the disk.
    pub(crate) fn append(&mut self, stream: &str) -> RequestId {
        let (to, actions) = self.ask(&any(stream));
        assert_eq!(actions.iter().filter_map(write_of).count(), 1, "{actions:?}");
        to
    }

    pub(crate) fn acked(&mut self, node: NodeId, epoch: u64, lsn: u64) -> Vec<Action> {
        self.step(Event::PeerAcked { node, epoch: LeaseEpoch(epoch), lsn: Lsn(lsn) })
    }
}

/// Rule R2: an append is acknowledged when it is on this disk and covered, whichever comes last.
/// Broken if one of the two is enough, or if an ack of another reign counts.
#[test]
fn an_append_is_answered_when_it_is_durable_here_and_covered() {
    let mut bench = leader();
    let first = bench.append("a");
    let second = bench.append("b");
    assert_eq!(bench.written(1), [], "R2: one copy is not two");
    assert_eq!(bench.acked(PEER, 2, 9), [], "R2: an ack of another reign");
    assert_eq!(bench.acked(NodeId(3), 1, 9), [], "R2: an ack of a stranger");
    let actions = bench.acked(PEER, 1, 2);
    assert_eq!(answers(&actions), [(first.0, Ok(1))], "R2: the second is not on this disk");
    assert_eq!(actions.last(), Some(&Action::Committed { lsn: Lsn(1) }));
    let actions = bench.written(2);
    assert_eq!(answers(&actions), [(second.0, Ok(2))]);
    let Action::Reply { outcome: Outcome::Appended(receipt), .. } = &actions[0] else { panic!() };
    assert_eq!((receipt.epoch, receipt.copies), (EPOCH, Copies::Peer));
}

/// Rule R2: blocks commit in the order of the log, also when the chain has a later one first.
#[test]
fn the_chain_covers_when_the_peer_is_away() {
    let mut bench = leader();
    let first = bench.append("a");
    let second = bench.append("b");
    assert_eq!(bench.written(2), []);
    let stored = |epoch, lsn| Event::ChainStored { epoch: LeaseEpoch(epoch), lsn: Lsn(lsn) };
    assert_eq!(bench.step(stored(2, 2)), [], "R2: another reign's chain");
    assert_eq!(bench.step(stored(1, 2)), [], "R2: the first is not on this disk");
    let actions = bench.written(1);
    assert_eq!(answers(&actions), [(first.0, Ok(1)), (second.0, Ok(2))]);
    let Action::Reply { outcome: Outcome::Appended(receipt), .. } = &actions[0] else { panic!() };
    assert_eq!(receipt.copies, Copies::Chain);
    assert_eq!(bench.shard.covered(), Lsn(2));
}

/// Rule L8: nothing is acknowledged or admitted without a grant that holds at that moment; a newer
/// one lets what waited go on.
#[test]
fn nothing_is_acknowledged_when_the_grant_has_run_out() {
    let mut bench = leader();
    let first = bench.append("a");
    bench.acked(PEER, 1, 1);
    bench.now.mono = MonoUs(999_999);
    let second = bench.append("b");
    bench.now.mono = MonoUs(1_000_000);
    assert_eq!(bench.written(1), [], "L8: the grant has run out");
    let (late, actions) = bench.ask(&any("c"));
    assert_eq!(answers(&actions), [(late.0, Err(Refusal::NotLeader))]);
    let renewed = Grant { serve_until: MonoMs(2_000), ..grant(EPOCH) };
    let other = Grant { epoch: LeaseEpoch(2), ..renewed };
    assert_eq!(bench.step(Event::Grant(Some(other))), [], "L8: a grant for another reign");
    let actions = bench.step(Event::Grant(Some(renewed)));
    assert_eq!(answers(&actions), [(first.0, Ok(1))]);
    assert_eq!(bench.step(Event::Grant(None)), []);
    assert_eq!(bench.acked(PEER, 1, 2), []);
    assert_eq!(bench.written(2), [], "L8: the grant was taken back");
    let closed = Grant { admission: Admission::Closed, ..renewed };
    let actions = bench.step(Event::Grant(Some(closed)));
    assert_eq!(answers(&actions), [(second.0, Ok(2))], "what is in flight may be acknowledged");
    let (late, actions) = bench.ask(&any("c"));
    assert_eq!(answers(&actions), [(late.0, Err(Refusal::NotLeader))]);
}

/// Rule L8: an append that waited for a cold head meets the grant again before it enters.
#[test]
fn a_parked_append_does_not_enter_without_a_grant() {
    let mut bench = leader();
    bench.make_cold(&["a"]);
    let (to, actions) = bench.ask(&any("a"));
    assert_eq!(actions, [Action::LoadHead { stream: id("a") }]);
    bench.now.mono = MonoUs(1_000_000);
    assert_eq!(answers(&bench.loaded("a")), [(to.0, Err(Refusal::NotLeader))]);
    assert_eq!(bench.shard.in_flight(), 0);
}

/// Blocks that wait for their second copy do not keep the disk from the next ones: a round trip to
/// the store is long.
#[test]
fn uncovered_blocks_do_not_fill_the_window() {
    let mut bench = leader();
    let count = 10 * bench.shard.config().blocks_in_flight_max as u64;
    for lsn in 1..=count {
        bench.append("a");
        assert_eq!(bench.written(lsn), []);
        bench.prepare();
    }
    assert_eq!(answers(&bench.acked(PEER, 1, count)).len() as u64, count);
}

/// Rule L10: a leader that was deposed answers everybody at once, keeps its log as it is, and takes
/// nothing back.
#[test]
fn a_deposed_leader_answers_unknown_and_keeps_its_tail() {
    let mut config = pair_config(OWN);
    config.block_target_bytes = 1 << 10;
    let mut bench = Bench::new(config);
    lead(&mut bench, EPOCH);
    let closed = bench.quiet(&any("a"));
    let writes = bench.step(Event::Flush);
    assert_eq!(writes.iter().filter_map(write_of).count(), 1);
    let open = bench.quiet(&ask().event("b", Expect::NoStream));
    let conflict = bench.quiet(&ask().event("b", Expect::NoStream));
    bench.make_cold(&["c"]);
    let (parked, _) = bench.ask(&any("c"));
    let actions = bench.step(Event::Demote);
    let expected = [
        (closed.0, Err(Refusal::Unknown)),
        (open.0, Err(Refusal::Unknown)),
        (conflict.0, Err(Refusal::NotLeader)),
        (parked.0, Err(Refusal::NotLeader)),
    ];
    assert_eq!(answers(&actions), expected);
    assert_eq!(bench.shard.role(), Role::Follower { epoch: None });
    assert_eq!((bench.shard.in_flight(), bench.shard.end().lsn), (0, Lsn(2)));
    assert_eq!(bench.acked(PEER, 1, 2), [], "R2: it leads no longer");
    let actions = bench.written(1);
    assert_eq!(actions.iter().filter_map(write_of).collect::<Vec<_>>(), [], "{actions:?}");
    assert_eq!(bench.step(Event::Grant(Some(grant(EPOCH)))), []);
    bench.written(2);
    assert_eq!((bench.shard.durable().lsn, bench.shard.committed().lsn), (Lsn(2), Lsn(0)));
    let (late, actions) = bench.ask(&any("a"));
    assert_eq!(answers(&actions), [(late.0, Err(Refusal::NotLeader))]);
    assert_eq!(bench.loaded("c"), []);
}

/// Rule P5: with its Open stored the new leader's log is committed, and the next block is its own.
#[test]
fn an_open_commits_the_log_and_own_blocks_follow() {
    let mut bench = leader();
    bench.append("a");
    bench.written(1);
    bench.step(Event::Demote);
    let epoch = LeaseEpoch(4);
    assert_eq!(bench.step(Event::Opened { epoch }), [], "P5: nobody promotes it");
    bench.step(Event::Promote { epoch });
    assert_eq!(bench.step(Event::Opened { epoch: LeaseEpoch(3) }), []);
    let (early, actions) = bench.ask(&any("a"));
    assert_eq!(answers(&actions), [(early.0, Err(Refusal::NotLeader))]);
    assert_eq!(bench.step(Event::Opened { epoch }), [Action::Committed { lsn: Lsn(1) }]);
    bench.step(Event::Grant(Some(grant(epoch))));
    bench.append("a");
    assert_eq!(bench.shard.end().epoch, epoch);
    let first = bench.shard.committed();
    assert_eq!(bench.shard.epoch_marks(), [EpochEnd::of(&first)]);
    bench.written(2);
    assert_eq!(answers(&bench.acked(PEER, 1, 2)), [], "R2: an ack of the reign before");
    assert_eq!(answers(&bench.acked(PEER, 4, 2)).len(), 1);
}

/// Rule L11: a drained leader follows without being built anew, and leads again after that.
#[test]
fn a_drained_leader_follows_and_may_lead_again() {
    let mut bench = leader();
    let last = bench.append("a");
    assert_eq!(bench.step(Event::Drain), []);
    bench.written(1);
    let actions = bench.acked(PEER, 1, 1);
    assert_eq!(answers(&actions), [(last.0, Ok(1))]);
    assert_eq!(actions.last(), Some(&Action::Drained));
    let (late, actions) = bench.ask(&any("a"));
    assert_eq!(answers(&actions), [(late.0, Err(Refusal::ShuttingDown))]);
    bench.step(Event::Resume);
    bench.append("a");
    bench.written(2);
    bench.step(Event::Drain);
    assert_eq!(bench.acked(PEER, 1, 2).last(), Some(&Action::Drained));
    bench.step(Event::Follow { epoch: LeaseEpoch(2) });
    assert_eq!(bench.shard.role(), Role::Follower { epoch: Some(LeaseEpoch(2)) });
    let (late, actions) = bench.ask(&any("a"));
    assert_eq!(answers(&actions), [(late.0, Err(Refusal::NotLeader))]);
    lead(&mut bench, LeaseEpoch(3));
    bench.append("a");
}
