//! The order of events over all shards of a node (invariant O1).

use std::collections::VecDeque;

use proptest::proptest;

use super::*;
use crate::ids::NodeId;
use crate::segment::LogEnd;

/// Several shards with clocks of their own, and what they were heard to say.
struct Node {
    shards: Vec<Member>,
    /// The newest stamp of any committed event.
    newest: Hlc,
}

struct Member {
    bench: Bench,
    /// Blocks at the disk.
    writing: VecDeque<Lsn>,
    /// For each event that was admitted: the newest stamp that anybody could have seen before.
    seen: VecDeque<Hlc>,
    /// What was promised.
    settled: Hlc,
}

fn config_of(shard: u32) -> ShardConfig {
    ShardConfig { shard: ShardId(shard), blocks_in_flight_max: 2, ..config() }
}

impl Node {
    fn new(count: u32) -> Self {
        let member = |shard| Member {
            bench: Bench::new(config_of(shard)),
            writing: VecDeque::new(),
            seen: VecDeque::new(),
            settled: Hlc(0),
        };
        Self { shards: (0..count).map(member).collect(), newest: Hlc(0) }
    }

    fn append(&mut self, at: usize) {
        let member = &mut self.shards[at];
        member.bench.shard.note_newest(self.newest);
        let (_, actions) = member.bench.ask(&any("a"));
        assert!(answers(&actions).is_empty(), "it is admitted");
        member.seen.push_back(self.newest);
        self.note(at, &actions);
    }

    fn flush(&mut self, at: usize) {
        let actions = self.shards[at].bench.step(Event::Flush);
        self.note(at, &actions);
    }

    fn note(&mut self, at: usize, actions: &[Action]) {
        for action in actions {
            if let Action::Write { first_lsn, .. } = action {
                self.shards[at].writing.push_back(*first_lsn);
            }
        }
        self.shards[at].bench.prepare();
    }

    /// The oldest write ends: what commits is held against what was seen and promised before.
    fn write_ends(&mut self, at: usize) {
        let member = &mut self.shards[at];
        let Some(first_lsn) = member.writing.pop_front() else { return };
        let before = member.bench.shard.committed().lsn;
        let actions = member.bench.step(Event::BlockWritten { first_lsn });
        let committed = member.bench.shard.committed();
        for _ in before.0..committed.lsn.0 {
            let seen = member.seen.pop_front().expect("it was admitted");
            assert!(committed.hlc > seen, "O1: {committed:?} was appended when {seen:?} was seen");
        }
        if committed.lsn > before {
            let settled = member.settled;
            assert!(committed.hlc > settled, "O1: {committed:?} although {settled:?} was settled");
        }
        self.newest = self.newest.max(committed.hlc);
        self.note(at, &actions);
    }

    fn settle(&mut self, at: usize) {
        let newest = self.newest;
        let member = &mut self.shards[at];
        let settled = member.bench.shard.settle_stamps(newest);
        let idle = member.seen.is_empty();
        assert!(settled >= member.settled, "it never goes back while the node leads");
        assert!(!idle || settled >= newest, "a shard without work settles everything committed");
        member.settled = settled;
    }

    /// The process ends and starts with what is committed, all clocks anew; what was promised
    /// holds.
    fn restart(&mut self, wall: u64) {
        self.newest = Hlc(0);
        for (shard, member) in (0..).zip(&mut self.shards) {
            let end: LogEnd = member.bench.shard.committed();
            let config = config_of(shard);
            let mut start = ShardStart::empty(&config, 0);
            (start.end, start.newest_stamp) = (end, end.hlc);
            start.committed.end = end;
            start.newest = Generation(member.bench.shard.segments.generation().0 + 4);
            let now = Now { mono: MonoUs(0), wall: WallMs(wall) };
            member.bench = Bench::start(config, start, now);
            (member.writing, member.seen) = (VecDeque::new(), VecDeque::new());
            self.newest = self.newest.max(end.hlc);
        }
    }
}

proptest! {
    /// Promise O1, for any interleaving of appends, writes, questions and restarts, with wall
    /// clocks that do what they like.
    /// Broken: an event that is not behind all that was committed when its append came, or that
    /// comes although its stamp was settled.
    #[test]
    fn later_events_have_later_stamps_whatever_shard_and_clock(
        deeds in proptest::collection::vec((0_u8..12, 0_usize..3, 0_u64..5), 1..200),
    ) {
        let mut node = Node::new(3);
        for (deed, at, wall) in deeds {
            node.shards[at].bench.now.wall = WallMs(1_000 + wall);
            match deed {
                0..4 => node.append(at),
                4..6 => node.flush(at),
                6..9 => node.write_ends(at),
                9..11 => node.settle(at),
                _ => node.restart(900 + wall),
            }
        }
    }
}

/// Promise O1: a block that was opened before another shard's event was committed takes no append
/// that comes later. Provoked by the smallest such case; broken if both land in one block.
#[test]
fn an_open_block_that_was_outrun_is_closed() {
    let mut bench = Bench::new(config());
    bench.quiet(&any("a"));
    let stamp = Hlc((5_000 << 16) + 3);
    bench.shard.note_newest(stamp);
    let (_, actions) = bench.ask(&any("b"));
    assert!(matches!(actions[..], [Action::Write { first_lsn: Lsn(1), .. }]), "{actions:?}");
    bench.written(1);
    assert!(bench.shard.committed().hlc < stamp);
    bench.commit();
    assert!(bench.shard.committed().hlc > stamp);
}

/// A follower passes on what its leader has promised, once it has what was committed then.
#[test]
fn a_follower_settles_what_its_leader_has_settled() {
    let pair = ShardConfig { pair: Some(NodeId(2)), ..config() };
    let mut bench = Bench::new(pair);
    let epoch = LeaseEpoch(4);
    bench.step(Event::Follow { epoch });
    assert_eq!(bench.shard.settle_stamps(Hlc(900)), Hlc(0), "it promises nothing of its own");
    bench.shard.hear_settled(epoch, Lsn(1), Hlc(700));
    assert_eq!(bench.shard.settle_stamps(Hlc(900)), Hlc(0), "LSN 1 is not committed here");
    bench.shard.hear_settled(LeaseEpoch(3), Lsn(0), Hlc(800));
    assert_eq!(bench.shard.settle_stamps(Hlc(900)), Hlc(0), "it follows another reign");
    bench.shard.hear_settled(epoch, Lsn(0), Hlc(800));
    assert_eq!(bench.shard.settle_stamps(Hlc(900)), Hlc(800));
}

/// Promise O1: an append that waits for its stream's head is stamped above what was settled
/// meanwhile. Provoked by a cold stream; broken if the promise is forgotten.
#[test]
fn a_parked_append_keeps_to_what_was_settled_meanwhile() {
    let mut bench = Bench::new(config());
    bench.make_cold(&["cold"]);
    let (_, actions) = bench.ask(&any("cold"));
    assert!(matches!(actions[..], [Action::LoadHead { .. }]), "{actions:?}");
    let stamp = Hlc(5_000 << 16);
    assert_eq!(bench.shard.settle_stamps(stamp), stamp, "nothing is uncommitted");
    bench.loaded("cold");
    bench.commit();
    assert!(bench.shard.committed().hlc > stamp);
}
