//! Walking a log from a known point to its end, and telling what kind of end that is.
//!
//! The end is where no block continues the hash link. Three kinds (invariant D4):
//! *clean*: nothing behind it; *torn*: blocks behind it that were in flight when the node stopped,
//! none of them proof of anything; *damaged*: a later whole block whose commit mark lies beyond the
//! end, or a durable mark that does: something that was acknowledged is missing. A segment file
//! that is missing before a later one, or has another size than it was made with, is damage too:
//! nobody can say what it held.

use super::{LogSource, RecoverError};
use crate::block::{BLOCK_HEADER_BYTES, BLOCK_MAGIC, Block, BlockHeader};
use crate::bytes::align_up;
use crate::ids::{ClusterId, Generation, Lsn, Place, ShardId};
use crate::limits::SEGMENT_SIZE_BYTES_MIN;
use crate::segment::{LogEnd, SegmentHeader};

/// Read size, bytes: long enough for the disk, short enough for 64 shards at once.
const WINDOW_BYTES: usize = 1 << 20;

/// Which log.
#[derive(Clone, Copy, Debug)]
pub struct LogIdentity {
    /// The cluster.
    pub cluster: ClusterId,
    /// The shard.
    pub shard: ShardId,
}

/// How a log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nothing lies behind the end.
    Clean,
    /// Blocks that were being written when the node stopped; not acknowledged, cut off.
    Torn {
        /// Whole blocks behind the end.
        blocks: u32,
    },
    /// Acknowledged events are missing.
    Damaged(Damage),
}

/// How it is known that events are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A later block or the mark says that they were committed.
    Committed,
    /// A segment file is missing or was cut: they may have been committed, and others behind them.
    FileLost,
}

/// Which events are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// First missing LSN.
    pub first: Lsn,
    /// Last LSN known to be missing.
    pub last: Lsn,
    /// Where the first missing block should be.
    pub place: Place,
    /// How that is known.
    pub proof: Proof,
}

/// Where a scan stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanEnd {
    /// The last good block's end.
    pub end: LogEnd,
    /// Where the next block goes; generation 0 in an empty log.
    pub place: Place,
    /// Size and alignment with which the segment of `place` was made, bytes; 0 if there is none.
    pub size_bytes: u32,
    /// See `size_bytes`.
    pub align_bytes: u32,
    /// What lies behind.
    pub ending: Ending,
}

/// Where a scan starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanStart {
    /// First segment to read.
    pub generation: Generation,
    /// The end of the log before that segment.
    pub end: LogEnd,
}

/// What a scan reports on its way.
#[derive(Debug)]
pub enum Found<'a, 'b> {
    /// A good block.
    Block(Place, &'b Block<'a>),
    /// The segment is complete: the log goes on in the next one.
    Rotated(Generation, LogEnd),
}

/// Reads a log.
#[derive(Debug)]
pub struct Scan<'s, S> {
    source: &'s mut S,
    identity: LogIdentity,
    window: Vec<u8>,
    window_place: Place,
}

impl<'s, S: LogSource> Scan<'s, S> {
    /// A scan of the log in `source`.
    pub fn new(source: &'s mut S, identity: LogIdentity) -> Self {
        Self { source, identity, window: Vec::new(), window_place: Place::default() }
    }

    /// Walks from `start` to the end. `mark` is an end known to have been committed.
    pub fn run(
        &mut self,
        start: ScanStart,
        mark: Option<LogEnd>,
        found: &mut dyn FnMut(Found<'_, '_>) -> Result<(), RecoverError>,
    ) -> Result<ScanEnd, RecoverError> {
        let mut end = start.end;
        let mut place = Place { generation: Generation(start.generation.0 - 1), offset: 0 };
        let mut generation = start.generation;
        let (mut size_bytes, mut align_bytes) = (0, 0);
        while let Some(header) = self.segment(generation, &end)? {
            if generation > start.generation {
                found(Found::Rotated(place.generation, end))?;
            }
            place = Place { generation, offset: header.align_bytes };
            (size_bytes, align_bytes) = (header.size_bytes, header.align_bytes);
            self.blocks(&header, &mut place, &mut end, found)?;
            generation = generation.next();
        }
        let behind = if place.generation < start.generation {
            Place { generation: start.generation, offset: 0 }
        } else {
            place
        };
        let ending = self.ending(behind, &end, mark)?;
        Ok(ScanEnd { end, place, size_bytes, align_bytes, ending })
    }

    /// The header of a segment that continues `end`; `None` if there is none.
    fn segment(
        &mut self,
        generation: Generation,
        end: &LogEnd,
    ) -> Result<Option<SegmentHeader>, RecoverError> {
        let page = self.bytes(Place { generation, offset: 0 }, 512)?;
        let Ok(header) = SegmentHeader::decode(page) else { return Ok(None) };
        let own = header.generation == generation && self.owns(&header)?;
        Ok((own && header.base.lsn == end.lsn && header.base.hash == end.hash).then_some(header))
    }

    fn owns(&self, header: &SegmentHeader) -> Result<bool, RecoverError> {
        if header.cluster != self.identity.cluster {
            let (found, own) = (header.cluster, self.identity.cluster);
            return Err(RecoverError::OtherCluster { found, own });
        }
        Ok(header.shard == self.identity.shard)
    }

    fn blocks(
        &mut self,
        segment: &SegmentHeader,
        place: &mut Place,
        end: &mut LogEnd,
        found: &mut dyn FnMut(Found<'_, '_>) -> Result<(), RecoverError>,
    ) -> Result<(), RecoverError> {
        while let Some(header) = self.header(*place)? {
            let room = u64::from(segment.size_bytes).saturating_sub(u64::from(place.offset));
            let continues = header.generation == segment.generation
                && header.shard == self.identity.shard
                && header.first_lsn == end.lsn.next()
                && header.previous_hash == end.hash
                && header.length() as u64 <= room;
            if !continues {
                return Ok(());
            }
            let bytes = self.bytes(*place, header.length())?;
            let Ok(block) = Block::decode(bytes) else { return Ok(()) };
            found(Found::Block(*place, &block))?;
            let BlockHeader { hash, hlc, epoch, .. } = header;
            *end = LogEnd { lsn: header.last_lsn(), hash, hlc, epoch };
            let next = u64::from(place.offset) + header.length() as u64;
            let next = align_up(next, u64::from(segment.align_bytes));
            let Some(offset) = next.and_then(|next| u32::try_from(next).ok()) else {
                return Ok(());
            };
            place.offset = offset;
        }
        Ok(())
    }

    fn header(&mut self, place: Place) -> Result<Option<BlockHeader>, RecoverError> {
        let bytes = self.bytes(place, BLOCK_HEADER_BYTES)?;
        Ok(BlockHeader::decode(bytes).ok())
    }

    /// Looks for whole blocks behind the end, and for proof among them.
    fn ending(
        &mut self,
        place: Place,
        end: &LogEnd,
        mark: Option<LogEnd>,
    ) -> Result<Ending, RecoverError> {
        let mut blocks = 0;
        let mut proof = mark.map_or(Lsn(0), |mark| mark.lsn);
        let mut first_behind = None;
        let (mut expected, mut file_lost) = (place.generation, false);
        for (generation, size_bytes) in self.source.segments()? {
            if generation < place.generation {
                continue;
            }
            file_lost |= generation != expected || self.is_cut(generation, size_bytes)?;
            expected = generation.next();
            let start = if generation == place.generation { place.offset } else { 0 };
            let mut at = Place { generation, offset: start };
            while u64::from(at.offset) + BLOCK_HEADER_BYTES as u64 <= size_bytes {
                if let Some(header) = self.stray(at, end)? {
                    blocks += 1;
                    proof = proof.max(header.commit_mark);
                    first_behind.get_or_insert(header.first_lsn);
                }
                // Every alignment in use is a multiple of this one.
                let Some(offset) = at.offset.checked_add(crate::limits::BLOCK_ALIGN_BYTES) else {
                    break;
                };
                at.offset = offset;
            }
        }
        let committed = proof > end.lsn;
        if committed || file_lost {
            let first = end.lsn.next();
            let behind = first_behind.map_or(proof, |lsn: Lsn| Lsn(lsn.0.saturating_sub(1)));
            let last = behind.max(first);
            let proof = if committed { Proof::Committed } else { Proof::FileLost };
            return Ok(Ending::Damaged(Damage { first, last, place, proof }));
        }
        Ok(if blocks == 0 { Ending::Clean } else { Ending::Torn { blocks } })
    }

    /// Whether a file has another size than the segment in it was made with. Prepared files have
    /// no header of their own yet, but never less than the smallest size.
    fn is_cut(&mut self, generation: Generation, size_bytes: u64) -> Result<bool, RecoverError> {
        let page = self.bytes(Place { generation, offset: 0 }, 512)?;
        let made = match SegmentHeader::decode(page) {
            Ok(header) if header.generation == generation => u64::from(header.size_bytes),
            _ => return Ok(size_bytes < u64::from(SEGMENT_SIZE_BYTES_MIN)),
        };
        Ok(size_bytes != made)
    }

    /// A whole block of this log's segment at `place` that lies behind the end.
    fn stray(&mut self, place: Place, end: &LogEnd) -> Result<Option<BlockHeader>, RecoverError> {
        let shard = self.identity.shard;
        let bytes = self.bytes(place, BLOCK_HEADER_BYTES)?;
        if !bytes.starts_with(&BLOCK_MAGIC) {
            return Ok(None);
        }
        let Some(header) = self.header(place)? else { return Ok(None) };
        let own = header.generation == place.generation && header.shard == shard;
        if !own || header.first_lsn <= end.lsn {
            return Ok(None);
        }
        let bytes = self.bytes(place, header.length())?;
        Ok(Block::decode(bytes).is_ok().then_some(header))
    }

    /// `length` bytes from `place`, fewer at the end of the file.
    fn bytes(&mut self, place: Place, length: usize) -> Result<&[u8], RecoverError> {
        let inside = place.generation == self.window_place.generation
            && place.offset >= self.window_place.offset
            && (place.offset - self.window_place.offset) as usize + length <= self.window.len();
        if !inside {
            self.window.resize(WINDOW_BYTES.max(length), 0);
            self.window_place = place;
            let offset = u64::from(place.offset);
            let read = self.source.read(place.generation, offset, &mut self.window)?;
            self.window.truncate(read);
        }
        let at = (place.offset - self.window_place.offset) as usize;
        let rest = &self.window[at.min(self.window.len())..];
        Ok(&rest[..length.min(rest.len())])
    }
}
