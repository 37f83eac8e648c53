//! Logs made for tests, block by block, with the real encoders.

use std::fs;
use std::path::{Path, PathBuf};

use duolog_engine::block::{BLOCK_HEADER_BYTES, BlockSeal, seal};
use duolog_engine::ids::{Generation, Hlc, Lsn, Revision, ShardId};
use duolog_engine::record::{EventParts, encode_event};
use duolog_engine::recovery::{LogIdentity, empty_log};
use duolog_engine::segment::{LogEnd, SegmentHeader};

use crate::datadir::{Identity, identify};

pub const SEGMENT_BYTES: usize = 64 << 10;
const ALIGN: usize = 4096;

/// A data directory with one shard and a log that is written block by block.
pub struct Sample {
    pub dir: tempfile::TempDir,
    pub identity: Identity,
    pub end: LogEnd,
    generation: Generation,
    bytes: Vec<u8>,
    /// Where the next block goes.
    pub offset: usize,
}

impl Sample {
    /// An empty log whose first segment is in use.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let identity = identify(dir.path(), 1, "default", None).unwrap();
        fs::create_dir(dir.path().join("shard-000")).unwrap();
        let end = empty_log(LogIdentity { cluster: identity.cluster(), shard: ShardId(0) });
        let generation = Generation(0);
        let mut sample = Self { dir, identity, end, generation, bytes: Vec::new(), offset: 0 };
        sample.rotate(vec![0; SEGMENT_BYTES]);
        sample
    }

    /// The same log in another directory, as the other node of a pair has it.
    pub fn twin(&self) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::copy(self.path().join("identity.json"), dir.path().join("identity.json")).unwrap();
        fs::create_dir(dir.path().join("shard-000")).unwrap();
        let twin = Self {
            dir,
            identity: self.identity,
            end: self.end,
            generation: self.generation,
            bytes: self.bytes.clone(),
            offset: self.offset,
        };
        for generation in 1..=self.generation.get() {
            fs::copy(self.file(generation), twin.file(generation)).unwrap();
        }
        twin
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn shard_dir(&self) -> PathBuf {
        self.path().join("shard-000")
    }

    pub fn file(&self, generation: u32) -> PathBuf {
        self.shard_dir().join(format!("seg-{generation:08}.log"))
    }

    /// Goes on in a new segment made from `bytes` (zeros, or a used file).
    pub fn rotate(&mut self, bytes: Vec<u8>) {
        self.generation = self.generation.next();
        self.bytes = bytes;
        let header = SegmentHeader {
            cluster: self.identity.cluster(),
            shard: ShardId(0),
            generation: self.generation,
            size_bytes: SEGMENT_BYTES as u32,
            align_bytes: ALIGN as u32,
            base: self.end,
        };
        self.bytes[..ALIGN].fill(0);
        header.encode(&mut self.bytes[..ALIGN]);
        self.offset = ALIGN;
        self.save();
    }

    /// Writes a block of `events` events; everything up to `mark` was committed when it closed.
    /// Returns its offset.
    pub fn block(&mut self, events: u32, mark: u64) -> usize {
        let block = self.make(events, mark);
        self.put(&block)
    }

    /// A block that continues the log, without writing it. The log's end moves on.
    pub fn make(&mut self, events: u32, mark: u64) -> Vec<u8> {
        let hlc = Hlc(self.end.hlc.0 + 65_536);
        let mut block = vec![0; BLOCK_HEADER_BYTES];
        let mut body = Vec::new();
        for index in 0..events {
            let lsn = self.end.lsn.plus(u64::from(index) + 1);
            let parts = EventParts {
                lsn,
                revision: Revision(lsn.0 - 1),
                hlc,
                id: u128::from(lsn.0),
                stream: b"s",
                type_length: 1,
                metadata_length: 0,
                body: b"t{\"a\":1}",
            };
            encode_event(&mut body, &parts);
        }
        block.extend_from_slice(&body);
        let what = BlockSeal {
            shard: ShardId(0),
            generation: self.generation,
            epoch: self.end.epoch,
            first_lsn: self.end.lsn.next(),
            event_count: events,
            hlc,
            commit_mark: Lsn(mark),
            previous_hash: self.end.hash,
        };
        let hash = seal(&mut block, &what);
        let lsn = self.end.lsn.plus(u64::from(events));
        self.end = LogEnd { lsn, hash, hlc, epoch: self.end.epoch };
        block
    }

    /// Writes `block` at the next place, as it is.
    pub fn put(&mut self, block: &[u8]) -> usize {
        let offset = self.offset;
        self.bytes[offset..offset + block.len()].copy_from_slice(block);
        self.offset = (offset + block.len()).next_multiple_of(ALIGN);
        self.save();
        offset
    }

    fn save(&self) {
        fs::write(self.file(self.generation.get()), &self.bytes).unwrap();
    }

    /// Turns over one bit of a segment file.
    pub fn rot(&self, generation: u32, offset: usize) {
        let mut bytes = fs::read(self.file(generation)).unwrap();
        bytes[offset] ^= 1;
        fs::write(self.file(generation), bytes).unwrap();
    }

    /// The bytes of a segment file.
    pub fn read(&self, generation: u32) -> Vec<u8> {
        fs::read(self.file(generation)).unwrap()
    }
}
