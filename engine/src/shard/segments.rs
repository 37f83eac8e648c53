//! Where the next block goes: the active segment, what is left of it, and the segments prepared
//! ahead. Knows nothing of files.

use super::ShardConfig;
use super::follow::Fit;
use crate::block::BLOCK_HEADER_BYTES;
use crate::bytes::align_up;
use crate::ids::{ClusterId, Generation, Place, ShardId};
use crate::limits::BLOCK_BODY_MAX_BYTES;
use crate::segment::{LogEnd, SegmentHeader};

/// Segments kept ready beyond the active one: one to move into, one in preparation while a burst
/// fills it.
pub const SEGMENTS_AHEAD: u32 = 2;

/// Sizes that every segment of a shard shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// File size, bytes.
    pub segment_size_bytes: u32,
    /// Blocks start at multiples of this; the segment header takes the first.
    pub align_bytes: u32,
}

impl Layout {
    /// Largest block, header included, that a fresh segment takes.
    #[must_use]
    pub const fn block_max_bytes(&self) -> usize {
        let room = (self.segment_size_bytes - self.align_bytes) as usize;
        let largest = BLOCK_HEADER_BYTES + BLOCK_BODY_MAX_BYTES;
        if room < largest { room } else { largest }
    }
}

/// The segment being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Active {
    /// Its number.
    pub generation: Generation,
    /// Where the next block starts.
    pub offset: u32,
    /// Set until the first block is written: the header goes with it.
    pub header_pending: Option<LogEnd>,
}

/// The machine's view of its segment files.
#[derive(Debug)]
pub struct Segments {
    cluster: ClusterId,
    shard: ShardId,
    layout: Layout,
    active: Option<Active>,
    newest: Generation,
    /// The files of all segments up to here are ready. A follower may be ahead of it: its leader
    /// says where blocks go, and their writes wait.
    ready: Generation,
    preparing: bool,
    refused: bool,
}

impl Segments {
    /// Starts where recovery ended: `newest` is the newest segment in use (0 in an empty log),
    /// `active` is it unless it is complete and saved.
    #[must_use]
    pub fn new(config: &ShardConfig, newest: Generation, active: Option<Active>) -> Self {
        assert!(
            active.is_none_or(|active| active.generation == newest),
            "the active is the newest"
        );
        let (cluster, shard, layout) = (config.cluster, config.shard, config.layout);
        let (ready, preparing, refused) = (newest, false, false);
        Self { cluster, shard, layout, active, newest, ready, preparing, refused }
    }

    /// Whether a segment is being written (it has an index to be sealed).
    #[must_use]
    pub const fn has_active(&self) -> bool {
        self.active.is_some()
    }

    /// Number of the segment that the next block goes into; 0 before the first.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.newest
    }

    /// Bytes that a block may take in the active segment, header included.
    #[must_use]
    pub fn room(&self) -> usize {
        // A segment of another size than the settings' may end behind it.
        let size_bytes = self.layout.segment_size_bytes;
        self.active.map_or(0, |active| size_bytes.saturating_sub(active.offset) as usize)
    }

    /// Where the next block starts. Only while there is an active segment.
    #[must_use]
    pub fn next_place(&self) -> Place {
        let active = self.active.expect("a block opens only in an active segment");
        Place { generation: active.generation, offset: active.offset }
    }

    /// Whether a prepared segment waits.
    #[must_use]
    pub fn can_rotate(&self) -> bool {
        self.ready > self.newest
    }

    /// Whether the file of this segment can be written into.
    #[must_use]
    pub fn is_ready(&self, generation: Generation) -> bool {
        generation <= self.ready
    }

    /// Where a block of `generation` goes that was made elsewhere; `None` if it does not follow.
    #[must_use]
    pub fn fit(&self, generation: Generation, length: usize) -> Option<Fit> {
        if generation == self.newest {
            return (length <= self.room()).then_some(Fit::Here);
        }
        let next = self.newest.0.checked_add(1) == Some(generation.0);
        (next && length <= self.layout.block_max_bytes()).then_some(Fit::Next)
    }

    /// Whether the last attempt to prepare a segment found no space.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        self.refused
    }

    /// Moves to the next segment. `base` is the end of the log so far.
    pub fn rotate(&mut self, base: LogEnd) {
        self.newest = self.newest.next();
        self.active = Some(Active {
            generation: self.newest,
            offset: self.layout.align_bytes,
            header_pending: Some(base),
        });
    }

    /// Assigns the place of a block of `length` bytes and moves on behind it.
    pub fn place_block(&mut self, length: usize) -> (Place, Option<SegmentHeader>) {
        assert!(
            length >= BLOCK_HEADER_BYTES && length <= self.room(),
            "D6: block fits its segment"
        );
        let place = self.next_place();
        let behind = self.behind(place, length);
        let active = self.active.as_mut().expect("next_place() found it");
        active.offset = behind.offset;
        let header = active.header_pending.take().map(|base| SegmentHeader {
            cluster: self.cluster,
            shard: self.shard,
            generation: active.generation,
            size_bytes: self.layout.segment_size_bytes,
            align_bytes: self.layout.align_bytes,
            base,
        });
        (place, header)
    }

    /// Where the block behind one of `length` bytes at `place` begins.
    #[must_use]
    pub fn behind(&self, place: Place, length: usize) -> Place {
        let end = u64::from(place.offset) + length as u64;
        let end = align_up(end, u64::from(self.layout.align_bytes));
        // A segment is at most 2 GiB and a multiple of the alignment, so the rounded end fits.
        let offset = end.and_then(|end| u32::try_from(end).ok()).expect("end lies in the file");
        Place { generation: place.generation, offset }
    }

    /// The generation to prepare now, if more are wanted and none is being prepared.
    pub fn want(&mut self) -> Option<Generation> {
        if self.preparing || self.ready >= self.newest.plus(SEGMENTS_AHEAD) {
            return None;
        }
        self.preparing = true;
        Some(self.ready.next())
    }

    /// A segment has been prepared.
    pub fn ready(&mut self, generation: Generation) {
        assert_eq!(generation, self.ready.next(), "segments come in order");
        self.ready = generation;
        self.preparing = false;
        self.refused = false;
    }

    /// There was no space; the driver goes on trying.
    pub fn refuse(&mut self) {
        self.refused = true;
    }
}
