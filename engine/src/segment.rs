//! A segment: one log file of a shard. Its first block-sized page is the segment header, written
//! together with the first block; the rest is blocks at aligned offsets, then zeros or leftovers.
//!
//! Files are prepared ahead: written through once with zeros, because a durable write into space
//! that was written before costs half of one that was only allocated (measured, see FORMAT.md).

use crate::block::BlockHash;
use crate::bytes::{Cursor, TooShort};
use crate::ids::{ClusterId, Generation, Hlc, LeaseEpoch, Lsn, ShardId};
use crate::limits::BLOCK_ALIGN_BYTES;

/// Bytes of the header that carry something; the rest of its page is zero.
pub const SEGMENT_HEADER_BYTES: usize = 128;
/// First bytes of every segment in use.
pub const SEGMENT_MAGIC: [u8; 8] = *b"DLOGSEG1";
const VERSION: u16 = 1;
const CHECKED_FROM: usize = 16;

/// The end of a log: what the next block has to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// Last LSN, 0 in an empty log.
    pub lsn: Lsn,
    /// Hash of the last block, the genesis hash in an empty log.
    pub hash: BlockHash,
    /// Stamp of the last block.
    pub hlc: Hlc,
    /// Reign of the last block.
    pub epoch: LeaseEpoch,
}

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The cluster.
    pub cluster: ClusterId,
    /// The shard.
    pub shard: ShardId,
    /// Which segment of the shard this is.
    pub generation: Generation,
    /// Size of the file, bytes.
    pub size_bytes: u32,
    /// Alignment of its blocks, bytes.
    pub align_bytes: u32,
    /// Where the log stood when this segment began.
    pub base: LogEnd,
}

/// Why a file's first page is not a segment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// Fewer bytes than a header.
    #[error("segment header is cut short")]
    TooShort,
    /// Not in use, or something else.
    #[error("no segment header")]
    NoMagic,
    /// Damaged.
    #[error("segment header checksum is wrong")]
    Checksum,
    /// Newer than this program.
    #[error("segment version {0} is newer than this program")]
    Version(u16),
    /// Values that no writer makes.
    #[error("segment header field {0} has an impossible value")]
    Malformed(&'static str),
}

impl From<TooShort> for SegmentError {
    fn from(_: TooShort) -> Self {
        Self::TooShort
    }
}

impl SegmentHeader {
    /// Writes the header to the start of `page`, whose other bytes must be zero.
    pub fn encode(&self, page: &mut [u8]) {
        let out = &mut page[..SEGMENT_HEADER_BYTES];
        let mut put = |at: usize, value: &[u8]| out[at..at + value.len()].copy_from_slice(value);
        put(0, &SEGMENT_MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(16, &self.cluster.0.to_le_bytes());
        put(32, &self.shard.0.to_le_bytes());
        put(36, &self.generation.0.to_le_bytes());
        put(40, &self.size_bytes.to_le_bytes());
        put(44, &self.align_bytes.to_le_bytes());
        put(48, &self.base.lsn.0.to_le_bytes());
        put(56, &self.base.hlc.0.to_le_bytes());
        put(64, &self.base.epoch.0.to_le_bytes());
        put(72, &self.base.hash);
        let checksum = crc32c::crc32c(&out[CHECKED_FROM..]);
        out[12..16].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Decodes and checks the header at the start of `page`.
    pub fn decode(page: &[u8]) -> Result<Self, SegmentError> {
        let bytes = page.get(..SEGMENT_HEADER_BYTES).ok_or(SegmentError::TooShort)?;
        if bytes[..8] != SEGMENT_MAGIC {
            return Err(SegmentError::NoMagic);
        }
        let mut cursor = Cursor::new(&bytes[8..]);
        let version = cursor.u16()?;
        let reserved = cursor.u16()?;
        if cursor.u32()? != crc32c::crc32c(&bytes[CHECKED_FROM..]) {
            return Err(SegmentError::Checksum);
        }
        if version != VERSION {
            return Err(SegmentError::Version(version));
        }
        // It lies before the checked bytes.
        if reserved != 0 {
            return Err(SegmentError::Checksum);
        }
        let cluster = ClusterId(cursor.u128()?);
        let shard = ShardId(cursor.u32()?);
        let generation = Generation(cursor.u32()?);
        let size_bytes = cursor.u32()?;
        let align_bytes = cursor.u32()?;
        let lsn = Lsn(cursor.u64()?);
        let hlc = Hlc(cursor.u64()?);
        let epoch = LeaseEpoch(cursor.u64()?);
        let base = LogEnd { lsn, hash: cursor.hash()?, hlc, epoch };
        if generation.0 == 0 || lsn.0 == u64::MAX {
            return Err(SegmentError::Malformed("number"));
        }
        if !align_bytes.is_power_of_two() || !align_bytes.is_multiple_of(BLOCK_ALIGN_BYTES) {
            return Err(SegmentError::Malformed("alignment"));
        }
        if size_bytes <= align_bytes {
            return Err(SegmentError::Malformed("size"));
        }
        Ok(Self { cluster, shard, generation, size_bytes, align_bytes, base })
    }
}
