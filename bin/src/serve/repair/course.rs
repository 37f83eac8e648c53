//! Which blocks fill a gap in a log, and where each one goes. Decides, and touches nothing.

use duolog_engine::block::{Block, BlockError, BlockHash, BlockHeader};
use duolog_engine::ids::{Generation, Lsn, Place, ShardId};
use duolog_engine::segment::LogEnd;

/// What is missing in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The end of what is whole before it.
    pub end: LogEnd,
    /// Where the next block goes, if it is still in this segment; offset 0 when it is not.
    pub place: Place,
    /// A block that is known to end at this LSN with this hash.
    pub known: Option<(Lsn, BlockHash)>,
    /// The log is whole behind the known block. If not, everything committed has to come back,
    /// because nothing here tells how much was there.
    pub joins: bool,
}

/// Size and alignment of a segment, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Of its file.
    pub size_bytes: u32,
    /// Of its blocks.
    pub align_bytes: u32,
}

/// Why a block does not belong into the gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// It is damaged.
    #[error("the block behind LSN {after}: {error}")]
    Damaged {
        /// End of the log so far.
        after: Lsn,
        /// What is wrong.
        error: BlockError,
    },
    /// It is another shard's.
    #[error("a block of shard {0}")]
    Shard(ShardId),
    /// It does not continue the log.
    #[error("the block with LSN {first} does not continue this log behind LSN {after}")]
    Link {
        /// End of the log so far.
        after: Lsn,
        /// Its first LSN.
        first: Lsn,
    },
    /// It belongs into a segment that does not come next.
    #[error("the block with LSN {first} lies in segment {found}, not in {place} or the next one")]
    Segment {
        /// Its first LSN.
        first: Lsn,
        /// Its segment.
        found: Generation,
        /// Where the log ends so far.
        place: Generation,
    },
    /// The segment has no room for it.
    #[error("the block with LSN {first} does not fit into segment {segment} of {size_bytes} bytes")]
    Room {
        /// Its first LSN.
        first: Lsn,
        /// Its segment.
        segment: Generation,
        /// The segment's size.
        size_bytes: u32,
    },
    /// The other node's log is another one.
    #[error("the logs contradict each other at LSN {0}")]
    Contradicts(Lsn),
}

/// Where a block is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    /// Where.
    pub place: Place,
    /// Its segment's.
    pub shape: Shape,
    /// The segment begins with it: where the log stands then.
    pub base: Option<LogEnd>,
}

/// How far a gap is filled.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    gap: Gap,
    shard: ShardId,
    end: LogEnd,
    place: Place,
    shape: Shape,
}

impl Course {
    /// Nothing is filled yet. `shape` is that of the segment of the gap's place.
    #[must_use]
    pub const fn new(gap: Gap, shard: ShardId, shape: Shape) -> Self {
        Self { gap, shard, end: gap.end, place: gap.place, shape }
    }

    /// The end of the log so far.
    #[must_use]
    pub const fn end(&self) -> LogEnd {
        self.end
    }

    /// Whether nothing more is needed.
    #[must_use]
    pub fn joined(&self) -> bool {
        self.gap.joins && self.gap.known.is_none_or(|(lsn, _)| self.end.lsn >= lsn)
    }

    /// Whether the gap is filled by what is committed at the other node, of which there is no more.
    #[must_use]
    pub fn filled(&self) -> bool {
        let (end, gap) = (self.end.lsn, &self.gap);
        gap.known.map_or(end > gap.end.lsn, |(lsn, _)| end >= lsn)
    }

    /// Checks the next block. `shape` says how an existing segment was made, or how one is to be
    /// made, that begins where the log ends so far.
    pub fn take(
        &mut self,
        bytes: &[u8],
        shape: &mut dyn FnMut(Generation, &LogEnd) -> Shape,
    ) -> Result<Put, Misfit> {
        let after = self.end.lsn;
        let block = Block::decode(bytes).map_err(|error| Misfit::Damaged { after, error })?;
        let header = block.header;
        let first = header.first_lsn;
        if header.shard != self.shard {
            return Err(Misfit::Shard(header.shard));
        }
        // D1: what follows by hash is this log and no other.
        if first != after.next() || header.previous_hash != self.end.hash {
            return Err(Misfit::Link { after, first });
        }
        if let Some((lsn, hash)) = self.gap.known
            && lsn >= first
            && lsn <= header.last_lsn()
            && (lsn, hash) != (header.last_lsn(), header.hash)
        {
            return Err(Misfit::Contradicts(lsn));
        }
        self.put(&header, shape)
    }

    fn put(
        &mut self,
        header: &BlockHeader,
        shape: &mut dyn FnMut(Generation, &LogEnd) -> Shape,
    ) -> Result<Put, Misfit> {
        let first = header.first_lsn;
        let Place { generation, offset } = self.place;
        let same = header.generation == generation && offset > 0;
        if !same && header.generation != generation.next() {
            let (found, place) = (header.generation, generation);
            return Err(Misfit::Segment { first, found, place });
        }
        let (place, shape, base) = if same {
            (self.place, self.shape, None)
        } else {
            let shape = shape(header.generation, &self.end);
            let place = Place { generation: header.generation, offset: shape.align_bytes };
            (place, shape, Some(self.end))
        };
        let align = u64::from(shape.align_bytes);
        let behind = (u64::from(place.offset) + header.length() as u64).next_multiple_of(align);
        let behind = u32::try_from(behind).ok().filter(|behind| *behind <= shape.size_bytes);
        let Some(offset) = behind else {
            let (segment, size_bytes) = (place.generation, shape.size_bytes);
            return Err(Misfit::Room { first, segment, size_bytes });
        };
        self.place = Place { offset, ..place };
        self.shape = shape;
        let (lsn, hash) = (header.last_lsn(), header.hash);
        self.end = LogEnd { lsn, hash, hlc: header.hlc, epoch: header.epoch };
        Ok(Put { place, shape, base })
    }
}

#[cfg(test)]
#[path = "course_tests.rs"]
mod tests;
