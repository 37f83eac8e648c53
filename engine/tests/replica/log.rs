//! A shard's log as a list of real blocks, some of them not yet durable.

use std::rc::Rc;

use duolog_engine::block::{BLOCK_HEADER_BYTES, BlockHeader, BlockSeal, genesis, seal};
use duolog_engine::ids::{ClusterId, Generation, Hlc, LeaseEpoch, Lsn, ShardId};
use duolog_engine::replica::{BlockEnd, EpochEnd};
use duolog_engine::segment::LogEnd;

pub const CLUSTER: ClusterId = ClusterId(7);
pub const SHARD: ShardId = ShardId(0);

#[derive(Clone, Debug)]
pub struct LogBlock {
    pub bytes: Rc<[u8]>,
    pub previous: BlockEnd,
    pub end: LogEnd,
}

impl LogBlock {
    /// Takes a block in that was received.
    pub fn of(bytes: &[u8]) -> Self {
        let header = BlockHeader::decode(bytes).unwrap();
        let (lsn, hash, hlc) = (header.last_lsn(), header.hash, header.hlc);
        let previous = BlockEnd { lsn: Lsn(header.first_lsn.0 - 1), hash: header.previous_hash };
        Self { bytes: bytes.into(), previous, end: LogEnd { lsn, hash, hlc, epoch: header.epoch } }
    }

    /// A new block behind `end`; `salt` makes it unlike every other one.
    pub fn new(end: &LogEnd, epoch: u64, event_count: u32, salt: u64) -> Self {
        let mut bytes = vec![0; BLOCK_HEADER_BYTES];
        bytes.extend_from_slice(&salt.to_le_bytes());
        let what = BlockSeal {
            shard: SHARD,
            generation: Generation(1),
            epoch: LeaseEpoch(epoch),
            first_lsn: end.lsn.next(),
            event_count,
            hlc: Hlc(end.hlc.0 + 1),
            commit_mark: Lsn(0),
            previous_hash: end.hash,
        };
        seal(&mut bytes, &what);
        Self::of(&bytes)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Log {
    pub blocks: Vec<LogBlock>,
    pub durable: usize,
}

impl Log {
    pub fn end(&self) -> LogEnd {
        self.end_of(self.blocks.len())
    }

    pub fn durable_end(&self) -> LogEnd {
        self.end_of(self.durable)
    }

    fn end_of(&self, count: usize) -> LogEnd {
        let hash = genesis(CLUSTER, SHARD);
        let empty = LogEnd { lsn: Lsn(0), hash, hlc: Hlc(0), epoch: LeaseEpoch(0) };
        count.checked_sub(1).map_or(empty, |last| self.blocks[last].end)
    }

    /// How many blocks end at or below `lsn`.
    pub fn count(&self, lsn: Lsn) -> usize {
        self.blocks.partition_point(|block| block.end.lsn <= lsn)
    }

    pub fn end_at(&self, lsn: Lsn) -> Option<BlockEnd> {
        let end = BlockEnd::of(&self.end_of(self.count(lsn)));
        (end.lsn == lsn).then_some(end)
    }

    pub fn contains(&self, end: BlockEnd) -> bool {
        self.end_at(end.lsn) == Some(end)
    }

    pub fn ends(&self) -> Vec<BlockEnd> {
        self.blocks.iter().map(|block| BlockEnd::of(&block.end)).collect()
    }

    /// The last blocks of the reigns that are over.
    pub fn marks(&self) -> Vec<EpochEnd> {
        let pairs = self.blocks.windows(2);
        let over = pairs.filter(|pair| pair[0].end.epoch != pair[1].end.epoch);
        over.map(|pair| EpochEnd::of(&pair[0].end)).collect()
    }

    pub fn push(&mut self, block: LogBlock) {
        assert_eq!(block.previous, BlockEnd::of(&self.end()), "R1: a block continues the log");
        self.blocks.push(block);
    }

    pub fn cut(&mut self, lsn: Lsn) {
        self.blocks.truncate(self.count(lsn));
        self.durable = self.durable.min(self.blocks.len());
    }

    /// The bytes of the blocks behind `after` up to `last`.
    pub fn slices(&self, after: Lsn, last: Lsn) -> impl Iterator<Item = &[u8]> {
        let range = self.count(after)..self.count(last);
        self.blocks[range].iter().map(|block| &*block.bytes)
    }
}
