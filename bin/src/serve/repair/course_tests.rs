use duolog_engine::block::{BLOCK_HEADER_BYTES, BlockSeal, genesis, seal};
use duolog_engine::ids::{ClusterId, Hlc, LeaseEpoch};

use super::*;

const SHAPE: Shape = Shape { size_bytes: 32 << 10, align_bytes: 4096 };
const SHARD: ShardId = ShardId(1);

/// Blocks of three events each, as one log.
struct Log {
    end: LogEnd,
    blocks: Vec<(Vec<u8>, LogEnd)>,
}

fn empty() -> LogEnd {
    let hash = genesis(ClusterId(5), SHARD);
    LogEnd { lsn: Lsn(0), hash, hlc: Hlc(0), epoch: LeaseEpoch(0) }
}

impl Log {
    fn new() -> Self {
        Self { end: empty(), blocks: Vec::new() }
    }

    fn push(&mut self, generation: u32, body_bytes: usize) -> &mut Self {
        let mut bytes = vec![0; BLOCK_HEADER_BYTES];
        bytes.resize(BLOCK_HEADER_BYTES + body_bytes, self.blocks.len() as u8);
        let what = BlockSeal {
            shard: SHARD,
            generation: Generation(generation),
            epoch: LeaseEpoch(2),
            first_lsn: self.end.lsn.next(),
            event_count: 3,
            hlc: Hlc(self.end.hlc.0 + 1),
            commit_mark: Lsn(0),
            previous_hash: self.end.hash,
        };
        let hash = seal(&mut bytes, &what);
        let lsn = Lsn(self.end.lsn.0 + 3);
        self.end = LogEnd { lsn, hash, hlc: what.hlc, epoch: what.epoch };
        self.blocks.push((bytes, self.end));
        self
    }

    fn bytes(&self, number: usize) -> &[u8] {
        &self.blocks[number].0
    }

    /// The log's end behind a block.
    fn end(&self, number: usize) -> LogEnd {
        self.blocks[number].1
    }

    fn known(&self, number: usize) -> Option<(Lsn, BlockHash)> {
        let end = self.end(number);
        Some((end.lsn, end.hash))
    }
}

fn at(generation: u32, offset: u32) -> Place {
    Place { generation: Generation(generation), offset }
}

fn take(course: &mut Course, bytes: &[u8]) -> Result<Put, Misfit> {
    course.take(bytes, &mut |_, _| SHAPE)
}

fn put(place: Place, base: Option<LogEnd>) -> Result<Put, Misfit> {
    Ok(Put { place, shape: SHAPE, base })
}

/// Four blocks in segment 1, two in segment 2.
fn six() -> Log {
    let mut log = Log::new();
    log.push(1, 800).push(1, 8000).push(1, 80).push(1, 4096 - 160).push(2, 8).push(2, 8);
    log
}

#[test]
fn blocks_go_where_they_were_in_the_segment_and_then_into_the_next_one() {
    let log = six();
    let gap = Gap { end: log.end(0), place: at(1, 8192), known: log.known(4), joins: true };
    let mut course = Course::new(gap, SHARD, SHAPE);
    assert_eq!(take(&mut course, log.bytes(1)), put(at(1, 8192), None));
    assert_eq!(take(&mut course, log.bytes(2)), put(at(1, 16384), None), "8160 bytes, padded");
    assert_eq!(take(&mut course, log.bytes(3)), put(at(1, 20480), None));
    assert!(!course.joined());
    assert_eq!(take(&mut course, log.bytes(4)), put(at(2, 4096), Some(log.end(3))));
    assert!(course.joined() && course.filled());
    assert_eq!(course.end(), log.end(4));
}

#[test]
fn a_lost_first_segment_begins_with_the_empty_log() {
    let log = six();
    let gap = Gap { end: empty(), place: Place::default(), known: log.known(3), joins: true };
    let mut course = Course::new(gap, SHARD, SHAPE);
    assert_eq!(take(&mut course, log.bytes(0)), put(at(1, 4096), Some(empty())));
    assert_eq!(take(&mut course, log.bytes(1)), put(at(1, 8192), None));
}

#[test]
fn without_a_join_the_gap_stays_open_until_the_other_node_has_no_more() {
    let log = six();
    let gap = Gap { end: log.end(0), place: at(1, 8192), known: log.known(2), joins: false };
    let mut course = Course::new(gap, SHARD, SHAPE);
    take(&mut course, log.bytes(1)).unwrap();
    assert!(!course.filled(), "the mark says that more was committed");
    take(&mut course, log.bytes(2)).unwrap();
    assert!(course.filled() && !course.joined());
    take(&mut course, log.bytes(3)).unwrap();
    let unmarked = Gap { known: None, ..gap };
    let mut course = Course::new(unmarked, SHARD, SHAPE);
    assert!(!course.filled(), "nothing has come");
    take(&mut course, log.bytes(1)).unwrap();
    assert!(course.filled() && !course.joined());
}

#[test]
fn a_block_that_does_not_link_is_refused() {
    let log = six();
    let mut other = Log::new();
    other.push(1, 808).push(1, 8000);
    let gap = Gap { end: log.end(0), place: at(1, 8192), known: log.known(2), joins: true };
    let mut course = Course::new(gap, SHARD, SHAPE);
    let link = |first| Err(Misfit::Link { after: Lsn(3), first: Lsn(first) });
    assert_eq!(take(&mut course, other.bytes(1)), link(4), "the hash of the block before differs");
    assert_eq!(take(&mut course, log.bytes(2)), link(7), "one is left out");
    assert_eq!(take(&mut course, log.bytes(0)), link(1), "it is there already");
    assert_eq!(course.end(), log.end(0), "nothing was taken");
}

#[test]
fn a_damaged_block_and_one_of_another_shard_are_refused() {
    let log = six();
    let gap = Gap { end: log.end(0), place: at(1, 8192), known: log.known(2), joins: true };
    let mut bytes = log.bytes(1).to_vec();
    bytes[200] ^= 1;
    let error = BlockError::BodyChecksum;
    let damaged = Err(Misfit::Damaged { after: Lsn(3), error });
    assert_eq!(take(&mut Course::new(gap, SHARD, SHAPE), &bytes), damaged);
    let mut elsewhere = Course::new(gap, ShardId(0), SHAPE);
    assert_eq!(take(&mut elsewhere, log.bytes(1)), Err(Misfit::Shard(SHARD)));
}

#[test]
fn a_block_of_a_segment_that_does_not_come_next_is_refused() {
    let mut log = Log::new();
    log.push(2, 8).push(4, 8);
    let segment = |found, place| {
        let (found, place) = (Generation(found), Generation(place));
        Misfit::Segment { first: Lsn(4), found, place }
    };
    for (place, refused) in [
        (at(2, 8192), Some(segment(4, 2))),
        (at(5, 8192), Some(segment(4, 5))),
        // Nothing of segment 4 is there: its first block cannot be in the middle of it.
        (at(4, 0), Some(segment(4, 4))),
        (at(3, 8192), None),
    ] {
        let gap = Gap { end: log.end(0), place, known: log.known(1), joins: true };
        let mut course = Course::new(gap, SHARD, SHAPE);
        assert_eq!(take(&mut course, log.bytes(1)).err(), refused, "{place:?}");
    }
}

#[test]
fn a_block_stays_inside_its_segment() {
    let mut log = Log::new();
    log.push(1, 8).push(1, 4096 - 160).push(1, 8);
    let gap = Gap { end: log.end(0), place: at(1, 28 << 10), known: log.known(2), joins: true };
    let mut course = Course::new(gap, SHARD, SHAPE);
    assert_eq!(take(&mut course, log.bytes(1)), put(at(1, 28 << 10), None), "it fits exactly");
    let (segment, size_bytes) = (Generation(1), 32 << 10);
    let room = Err(Misfit::Room { first: Lsn(7), segment, size_bytes });
    assert_eq!(take(&mut course, log.bytes(2)), room);
}

#[test]
fn a_row_that_does_not_end_as_the_block_behind_it_says_is_refused() {
    let log = six();
    let (lsn, hash) = log.known(2).unwrap();
    for joins in [true, false] {
        for known in [(lsn, [7; 32]), (Lsn(lsn.0 - 1), hash)] {
            let gap = Gap { end: log.end(0), place: at(1, 8192), known: Some(known), joins };
            let mut course = Course::new(gap, SHARD, SHAPE);
            take(&mut course, log.bytes(1)).unwrap();
            let refused = Err(Misfit::Contradicts(known.0));
            assert_eq!(take(&mut course, log.bytes(2)), refused);
            assert!(!course.joined() && !course.filled());
        }
    }
}
