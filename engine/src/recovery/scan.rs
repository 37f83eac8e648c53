//! Walking a log from a known point to its end. The end is where no block continues the hash link;
//! what kind of end that is tells `ending`.

use super::ending::{Behind, Damage, Ending};
use super::{LogSource, RecoverError};
use crate::block::{BLOCK_HEADER_BYTES, BLOCK_MAGIC, Block, BlockError, BlockHeader};
use crate::bytes::align_up;
use crate::ids::{ClusterId, Generation, Hlc, Place, ShardId};
use crate::limits::{BLOCK_ALIGN_BYTES, SEGMENT_SIZE_BYTES_MIN};
use crate::segment::{LogEnd, SegmentError, SegmentHeader};

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
    /// No block behind the end has a later stamp.
    pub newest_stamp: Hlc,
    /// What lies behind.
    pub ending: Ending,
    /// In a pair, with a torn end: what is missing if a later block is right that it was committed.
    /// The other node may have committed it without this one, so it is no proof; but if it was
    /// here once, this node has acknowledged it.
    pub doubt: Option<Damage>,
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
    /// A good block: where it is, and where the next one goes.
    Block(Place, &'b Block<'a>, Place),
    /// The segment is complete: the log goes on in the next one.
    Rotated(Generation, LogEnd),
}

/// Reads a log.
#[derive(Debug)]
pub struct Scan<'s, S> {
    source: &'s mut S,
    identity: LogIdentity,
    blocks_prove: bool,
    window: Vec<u8>,
    window_place: Place,
}

impl<'s, S: LogSource> Scan<'s, S> {
    /// A scan of the log in `source`.
    pub fn new(source: &'s mut S, identity: LogIdentity) -> Self {
        let (window, window_place) = (Vec::new(), Place::default());
        Self { source, identity, blocks_prove: true, window, window_place }
    }

    /// The log is that of a node in a pair: the commit mark of a later block is no proof that what
    /// is missing was ever on this disk; only the own mark is (D4).
    #[must_use]
    pub const fn in_pair(mut self, pair: bool) -> Self {
        self.blocks_prove = !pair;
        self
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
        let (mut size_bytes, mut align_bytes) = (0, 0);
        let mut generation = start.generation;
        while let Some(header) = self.segment(generation, &end)? {
            if generation > start.generation {
                found(Found::Rotated(place.generation, end))?;
            }
            (size_bytes, align_bytes) = (header.size_bytes, header.align_bytes);
            place = Place { generation, offset: align_bytes };
            self.blocks(&header, &mut place, &mut end, found)?;
            generation = generation.next();
        }
        let behind = self.behind(place, start.generation, &end, mark)?;
        let newest_stamp = behind.newest_stamp();
        let first = place.generation.max(start.generation);
        let (ending, doubt) = (behind.ending(first, place)?, behind.doubt(first, place));
        let doubt = doubt.filter(|_| matches!(ending, Ending::Torn { .. }));
        Ok(ScanEnd { end, place, size_bytes, align_bytes, newest_stamp, ending, doubt })
    }

    /// The header of a segment that continues `end`; `None` if there is none.
    fn segment(
        &mut self,
        generation: Generation,
        end: &LogEnd,
    ) -> Result<Option<SegmentHeader>, RecoverError> {
        let header = self.segment_header(generation)?;
        let follows = |base: &LogEnd| base.lsn == end.lsn && base.hash == end.hash;
        Ok(header.filter(|header| follows(&header.base)))
    }

    /// The header that this shard has written into a segment; `None` if there is none.
    pub(crate) fn segment_header(
        &mut self,
        generation: Generation,
    ) -> Result<Option<SegmentHeader>, RecoverError> {
        let page = self.bytes(Place { generation, offset: 0 }, 512)?;
        let Ok(header) = SegmentHeader::decode(page) else { return Ok(None) };
        let own = header.generation == generation && self.owns(&header)?;
        Ok(own.then_some(header))
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
            if !self.continues(segment, *place, end, &header) {
                return Ok(());
            }
            let bytes = self.bytes(*place, header.length())?;
            let Ok(block) = Block::decode(bytes) else { return Ok(()) };
            let Some(behind) = behind_block(segment, *place, &header) else { return Ok(()) };
            found(Found::Block(*place, &block, behind))?;
            let BlockHeader { hash, hlc, epoch, .. } = header;
            *end = LogEnd { lsn: header.last_lsn(), hash, hlc, epoch };
            *place = behind;
        }
        Ok(())
    }

    /// Whether a block at `place` is the log's next one, as far as its header shows.
    pub(super) fn continues(
        &self,
        segment: &SegmentHeader,
        place: Place,
        end: &LogEnd,
        header: &BlockHeader,
    ) -> bool {
        let room = u64::from(segment.size_bytes).saturating_sub(u64::from(place.offset));
        header.generation == segment.generation
            && header.shard == self.identity.shard
            && header.first_lsn == end.lsn.next()
            && header.previous_hash == end.hash
            && header.length() as u64 <= room
    }

    pub(super) fn header(&mut self, place: Place) -> Result<Option<BlockHeader>, RecoverError> {
        let bytes = self.bytes(place, BLOCK_HEADER_BYTES)?;
        Ok(BlockHeader::decode(bytes).ok())
    }

    /// Looks at everything behind the end of the log at `place`, in segments from `first` on.
    fn behind(
        &mut self,
        place: Place,
        first: Generation,
        end: &LogEnd,
        mark: Option<LogEnd>,
    ) -> Result<Behind, RecoverError> {
        let mut behind = Behind::new(*end, mark, self.blocks_prove);
        let mut expected = place.generation.max(first);
        for (generation, size_bytes) in self.source.segments()? {
            if generation < expected {
                continue;
            }
            if generation != expected || self.is_cut(generation, size_bytes)? {
                behind.lost_file();
            }
            expected = generation.next();
            let offset = if generation == place.generation { place.offset } else { 0 };
            let mut at = Place { generation, offset };
            if at.offset == 0 {
                let page = self.bytes(at, 512)?;
                if let Err(SegmentError::Version(version)) = SegmentHeader::decode(page) {
                    behind.newer(at, version);
                }
            }
            while u64::from(at.offset) + BLOCK_HEADER_BYTES as u64 <= size_bytes {
                let length = self.stray(at, end, &mut behind)?;
                // Every alignment in use is a multiple of this one. What lies inside a block is
                // its clients' data and may look like anything.
                let next = u64::from(at.offset) + (length as u64).max(1);
                let next = align_up(next, u64::from(BLOCK_ALIGN_BYTES));
                let Some(offset) = next.and_then(|next| u32::try_from(next).ok()) else { break };
                at.offset = offset;
            }
        }
        Ok(behind)
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

    /// Looks for a block of this segment behind the end of the log; its length if there is one.
    fn stray(
        &mut self,
        place: Place,
        end: &LogEnd,
        behind: &mut Behind,
    ) -> Result<usize, RecoverError> {
        let shard = self.identity.shard;
        let bytes = self.bytes(place, BLOCK_HEADER_BYTES)?;
        if !bytes.starts_with(&BLOCK_MAGIC) {
            return Ok(0);
        }
        let header = match BlockHeader::decode(bytes) {
            Ok(header) if header.generation == place.generation && header.shard == shard => header,
            Err(BlockError::Version(version)) => {
                behind.newer(place, version);
                return Ok(0);
            }
            _ => return Ok(0),
        };
        let length = header.length();
        if header.first_lsn <= end.lsn {
            return Ok(0);
        }
        let whole = Block::decode(self.bytes(place, length)?).is_ok();
        if whole {
            behind.block(&header);
        }
        let torn = header.previous_hash == end.hash && header.first_lsn == end.lsn.next();
        Ok(if whole || torn { length } else { 0 })
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

/// Where the block behind the one at `place` begins. It ends inside its segment.
pub(super) fn behind_block(
    segment: &SegmentHeader,
    place: Place,
    header: &BlockHeader,
) -> Option<Place> {
    let next = u64::from(place.offset) + header.length() as u64;
    let next = align_up(next, u64::from(segment.align_bytes))?;
    Some(Place { offset: u32::try_from(next).ok()?, ..place })
}
