//! Where the blocks of a shard's log lie, and a walk over them.

use std::collections::HashMap;

use duolog_engine::block::{BLOCK_HEADER_BYTES, BlockHeader};
use duolog_engine::bytes::align_up;
use duolog_engine::ids::{Generation, Hlc, Lsn, Place};
use duolog_engine::segment::LogEnd;
use duolog_engine::waymarks::Waymarks;

use super::fetch::{FetchError, RecordFetch};
use super::shard_loop::ShardLoop;

/// Where pages that were served ended, for the reader who comes back for the next one.
const HINTS_MAX: usize = 1024;
/// Read ahead while walking, bytes.
const AHEAD_BYTES: usize = 256 << 10;

/// Where the segments begin, and where recent pages ended.
#[derive(Debug, Default)]
pub struct LogMap {
    /// Segment, and the LSN and stamp before its first, in order.
    segments: Vec<(Generation, Lsn, Hlc)>,
    waymarks: Waymarks,
    /// By the LSN asked for next: a block's place and its first LSN.
    hints: HashMap<Lsn, (Place, Lsn)>,
}

impl LogMap {
    /// Without segments.
    pub fn new(waymarks: Waymarks) -> Self {
        Self { waymarks, ..Self::default() }
    }

    /// Notes a segment: it begins behind `base`.
    pub fn segment(&mut self, generation: Generation, base: &LogEnd) {
        debug_assert!(self.segments.last().is_none_or(|(last, ..)| *last < generation));
        self.segments.push((generation, base.lsn, base.hlc));
    }

    /// Notes that the block that begins with `first` goes to `place`, behind all others.
    pub(super) fn block(&mut self, first: Lsn, place: Place) {
        self.waymarks.note(first, place);
    }

    /// Where a walk to `lsn` begins, and the next LSN there.
    pub(super) fn start(&self, lsn: Lsn, align_bytes: u32) -> Option<(Place, Lsn)> {
        if let Some(hint) = self.hints.get(&lsn) {
            return Some(*hint);
        }
        let behind = self.segments.partition_point(|(_, base, _)| *base < lsn);
        let (generation, base, _) = self.segments.get(behind.checked_sub(1)?)?;
        if let Some((first, place)) = self.waymarks.before(lsn).filter(|(first, _)| first > base) {
            return Some((place, first));
        }
        Some((Place { generation: *generation, offset: align_bytes }, base.next()))
    }

    pub(super) fn next_segment(&self, generation: Generation) -> Option<(Generation, Lsn)> {
        let behind = self.segments.partition_point(|(known, ..)| *known <= generation);
        self.segments.get(behind).map(|(generation, base, _)| (*generation, *base))
    }

    /// Blocks from which one with the stamp `bound` can be walked to, in order, the first LSN with
    /// each: the beginning of the last segment that begins before the stamp, and waymarks in it.
    pub(super) fn ways_to_stamp(&self, bound: Hlc, align_bytes: u32) -> Vec<(Lsn, Place)> {
        let behind = self.segments.partition_point(|(.., stamp)| *stamp < bound);
        let Some((generation, base, _)) = self.segments.get(behind.saturating_sub(1)) else {
            return Vec::new();
        };
        let start = (base.next(), Place { generation: *generation, offset: align_bytes });
        let marks = self.waymarks.of_segment(*generation).filter(|(_, place)| *place > start.1);
        std::iter::once(start).chain(marks).collect()
    }

    pub(super) fn hint(&mut self, lsn: Lsn, place: Place, first_lsn: Lsn) {
        if self.hints.len() >= HINTS_MAX {
            self.hints.clear();
        }
        self.hints.insert(lsn, (place, first_lsn));
    }
}

/// Goes from block to block, in memory as far as they are there.
#[derive(Debug)]
pub(super) struct LogWalk {
    place: Place,
    /// The next block's first LSN.
    lsn: Lsn,
    fetch: RecordFetch,
    block: Vec<u8>,
}

impl LogWalk {
    /// Begins at or before the block that has `lsn`, which is committed.
    pub(super) fn to(shard: &ShardLoop, lsn: Lsn) -> Result<Self, FetchError> {
        let layout = shard.shard.borrow().config().layout;
        let start = shard.log_map.borrow().start(lsn, layout.align_bytes);
        let missing = || FetchError::Io(std::io::Error::other("no segment has this LSN"));
        let (place, lsn) = start.ok_or_else(missing)?;
        Ok(Self::at(place, lsn))
    }

    /// Begins at the block at `place`, which begins with `lsn`.
    pub(super) fn at(place: Place, lsn: Lsn) -> Self {
        Self { place, lsn, fetch: RecordFetch::default(), block: Vec::new() }
    }

    /// Where the block that was loaded lies.
    pub(super) const fn place(&self) -> Place {
        self.place
    }

    /// Its bytes, if it reached what was wanted.
    pub(super) fn block(&self) -> &[u8] {
        &self.block
    }

    /// The next block's header. Its bytes are loaded too unless it ends before `wanted`.
    pub(super) async fn load(
        &mut self,
        shard: &ShardLoop,
        wanted: Lsn,
    ) -> Result<BlockHeader, FetchError> {
        let following = shard.log_map.borrow().next_segment(self.place.generation);
        if let Some((generation, base)) = following.filter(|(_, base)| *base < self.lsn) {
            // The segment ends here, whatever lies behind: what a crash cut off may be left there,
            // with the very LSN that is looked for.
            if base.next() != self.lsn {
                return Err(FetchError::Misplaced(self.place));
            }
            let offset = shard.shard.borrow().config().layout.align_bytes;
            self.place = Place { generation, offset };
        }
        let Self { place, lsn, fetch, block } = self;
        load_block(shard, fetch, *place, *lsn, wanted, block).await
    }

    /// Goes on behind the block with this header.
    pub(super) fn pass(
        &mut self,
        shard: &ShardLoop,
        header: &BlockHeader,
    ) -> Result<(), FetchError> {
        let align_bytes = u64::from(shard.shard.borrow().config().layout.align_bytes);
        let end = align_up(u64::from(self.place.offset) + header.length() as u64, align_bytes);
        let end = end.and_then(|end| end.try_into().ok());
        self.place.offset = end.ok_or(FetchError::Misplaced(self.place))?;
        self.lsn = header.last_lsn().next();
        Ok(())
    }
}

/// Reads the block at `place` into `block` (nothing, if it ends before `wanted`); its header.
async fn load_block(
    shard: &ShardLoop,
    fetch: &mut RecordFetch,
    place: Place,
    lsn: Lsn,
    wanted: Lsn,
    block: &mut Vec<u8>,
) -> Result<BlockHeader, FetchError> {
    block.clear();
    if let Some(bytes) = shard.shard.borrow().recent(place) {
        block.extend_from_slice(bytes);
        return BlockHeader::decode(block).map_err(|_| FetchError::Misplaced(place));
    }
    let bytes = fetch.bytes(shard, place, BLOCK_HEADER_BYTES, AHEAD_BYTES).await?;
    let header = match BlockHeader::decode(bytes) {
        Ok(header) if header.first_lsn == lsn => header,
        Ok(_) | Err(_) => return Err(FetchError::Misplaced(place)),
    };
    if header.last_lsn() >= wanted {
        let bytes = fetch.bytes(shard, place, header.length(), AHEAD_BYTES).await?;
        let whole = bytes.get(..header.length()).ok_or(FetchError::Misplaced(place))?;
        block.extend_from_slice(whole);
    }
    Ok(header)
}
