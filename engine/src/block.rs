//! A block: one group commit, byte for byte the same on this disk, on the peer's and in S3.
//! 160 bytes of header, then records (FORMAT.md, "Block"). Promises D1 (a block names its whole
//! past by hash) and D2 (no damaged block is taken for a whole one).

use crate::bytes::{Cursor, TooShort};
use crate::ids::{ClusterId, Generation, Hlc, LeaseEpoch, Lsn, ShardId};
use crate::limits::BLOCK_BODY_MAX_BYTES;
use crate::record::{Record, RecordError};

/// Header size, bytes.
pub const BLOCK_HEADER_BYTES: usize = 160;
/// First bytes of every block.
pub const BLOCK_MAGIC: [u8; 8] = *b"DLOGBLK1";
const VERSION: u16 = 1;
const CHECKED_FROM: usize = 16;
const HASHED_TO: usize = 128;

/// A block's BLAKE3 hash.
pub type BlockHash = [u8; 32];

/// The hash that the first block of a shard names as its predecessor: it binds the shard's whole
/// log to its cluster and shard number.
#[must_use]
pub fn genesis(cluster: ClusterId, shard: ShardId) -> BlockHash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"duolog genesis 1");
    hasher.update(&cluster.0.to_le_bytes());
    hasher.update(&shard.0.to_le_bytes());
    *hasher.finalize().as_bytes()
}

/// A block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// crc32c of the body.
    pub body_checksum: u32,
    /// Body length, bytes, a multiple of 8.
    pub body_length: u32,
    /// The shard.
    pub shard: ShardId,
    /// The segment it was written into.
    pub generation: Generation,
    /// The reign that wrote it.
    pub epoch: LeaseEpoch,
    /// LSN of its first event.
    pub first_lsn: Lsn,
    /// Number of events, at least 1.
    pub event_count: u32,
    /// Stamp, above the predecessor's.
    pub hlc: Hlc,
    /// Everything up to here was committed when the block was closed: a lower bound.
    pub commit_mark: Lsn,
    /// Hash of the block before.
    pub previous_hash: BlockHash,
    /// Hash of this block.
    pub hash: BlockHash,
}

/// Why bytes are not a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// The slice ends before the block does.
    #[error("block is cut short")]
    TooShort,
    /// The first bytes are something else; zeros mean "never written".
    #[error("no block starts here")]
    NoMagic,
    /// A version this program does not know.
    #[error("block version {0} is newer than this program")]
    Version(u16),
    /// The header is damaged.
    #[error("block header checksum is wrong")]
    HeaderChecksum,
    /// The body is damaged.
    #[error("block body checksum is wrong")]
    BodyChecksum,
    /// Header and body do not give the stored hash.
    #[error("block hash is wrong")]
    Hash,
    /// Values that no writer makes.
    #[error("block field {0} has an impossible value")]
    Malformed(&'static str),
    /// A record inside.
    #[error("in a block: {0}")]
    Record(#[from] RecordError),
}

impl From<TooShort> for BlockError {
    fn from(_: TooShort) -> Self {
        Self::TooShort
    }
}

impl BlockHeader {
    /// LSN of the last event.
    #[must_use]
    pub fn last_lsn(&self) -> Lsn {
        Lsn(self.first_lsn.0 + u64::from(self.event_count) - 1)
    }

    /// Header and body, bytes.
    #[must_use]
    pub const fn length(&self) -> usize {
        BLOCK_HEADER_BYTES + self.body_length as usize
    }

    /// Decodes and checks the header at the start of `bytes`. The body is not looked at.
    pub fn decode(bytes: &[u8]) -> Result<Self, BlockError> {
        let bytes = bytes.first_chunk::<BLOCK_HEADER_BYTES>().ok_or(BlockError::TooShort)?;
        if bytes[..8] != BLOCK_MAGIC {
            return Err(BlockError::NoMagic);
        }
        let mut cursor = Cursor::new(&bytes[8..]);
        let version = cursor.u16()?;
        let header_length = cursor.u16()?;
        if cursor.u32()? != crc32c::crc32c(&bytes[CHECKED_FROM..]) {
            return Err(BlockError::HeaderChecksum);
        }
        if version != VERSION {
            return Err(BlockError::Version(version));
        }
        // Version and length lie before the checked bytes, so their values are checked themselves.
        if usize::from(header_length) != BLOCK_HEADER_BYTES {
            return Err(BlockError::Malformed("header length"));
        }
        let header = Self {
            body_checksum: cursor.u32()?,
            body_length: cursor.u32()?,
            shard: ShardId(cursor.u32()?),
            generation: Generation(cursor.u32()?),
            epoch: LeaseEpoch(cursor.u64()?),
            first_lsn: Lsn(cursor.u64()?),
            event_count: cursor.u32()?,
            hlc: {
                let _reserved = cursor.u32()?;
                Hlc(cursor.u64()?)
            },
            commit_mark: Lsn(cursor.u64()?),
            previous_hash: {
                let _reserved = cursor.take(24)?;
                cursor.hash()?
            },
            hash: cursor.hash()?,
        };
        if header.body_length as usize > BLOCK_BODY_MAX_BYTES {
            return Err(BlockError::Malformed("body length"));
        }
        if header.event_count == 0 || header.first_lsn.0 == 0 {
            return Err(BlockError::Malformed("event count"));
        }
        if header.first_lsn.0.checked_add(u64::from(header.event_count)).is_none() {
            return Err(BlockError::Malformed("first LSN"));
        }
        Ok(header)
    }

    fn encode_unhashed(&self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut out = [0; BLOCK_HEADER_BYTES];
        let mut put = |at: usize, value: &[u8]| out[at..at + value.len()].copy_from_slice(value);
        put(0, &BLOCK_MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(10, &(BLOCK_HEADER_BYTES as u16).to_le_bytes());
        put(16, &self.body_checksum.to_le_bytes());
        put(20, &self.body_length.to_le_bytes());
        put(24, &self.shard.0.to_le_bytes());
        put(28, &self.generation.0.to_le_bytes());
        put(32, &self.epoch.0.to_le_bytes());
        put(40, &self.first_lsn.0.to_le_bytes());
        put(48, &self.event_count.to_le_bytes());
        put(56, &self.hlc.0.to_le_bytes());
        put(64, &self.commit_mark.0.to_le_bytes());
        put(96, &self.previous_hash);
        out
    }
}

/// What the writer decides about a block; lengths, checksums and hash follow from the body.
#[derive(Clone, Copy, Debug)]
pub struct BlockSeal {
    /// The shard.
    pub shard: ShardId,
    /// The segment it goes into.
    pub generation: Generation,
    /// The reign.
    pub epoch: LeaseEpoch,
    /// LSN of the first event.
    pub first_lsn: Lsn,
    /// Number of events.
    pub event_count: u32,
    /// Stamp.
    pub hlc: Hlc,
    /// Known committed.
    pub commit_mark: Lsn,
    /// Hash of the block before.
    pub previous_hash: BlockHash,
}

/// Fills in the header of `block`: [`BLOCK_HEADER_BYTES`] of room, then the body.
pub fn seal(block: &mut [u8], what: &BlockSeal) -> BlockHash {
    let (room, body) =
        block.split_at_mut_checked(BLOCK_HEADER_BYTES).expect("a block has room for its header");
    assert!(body.len() <= BLOCK_BODY_MAX_BYTES, "a block's body stays below its limit");
    assert!(what.event_count > 0, "an empty block is never closed");
    let header = BlockHeader {
        body_checksum: crc32c::crc32c(body),
        body_length: body.len() as u32,
        shard: what.shard,
        generation: what.generation,
        epoch: what.epoch,
        first_lsn: what.first_lsn,
        event_count: what.event_count,
        hlc: what.hlc,
        commit_mark: what.commit_mark,
        previous_hash: what.previous_hash,
        hash: [0; 32],
    };
    let mut bytes = header.encode_unhashed();
    let hash = hash_of(&bytes, body);
    bytes[HASHED_TO..].copy_from_slice(&hash);
    let checksum = crc32c::crc32c(&bytes[CHECKED_FROM..]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    room.copy_from_slice(&bytes);
    hash
}

fn hash_of(header: &[u8; BLOCK_HEADER_BYTES], body: &[u8]) -> BlockHash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&header[CHECKED_FROM..HASHED_TO]);
    hasher.update(body);
    *hasher.finalize().as_bytes()
}

/// A whole, checked block.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// Its header.
    pub header: BlockHeader,
    /// Its records.
    pub body: &'a [u8],
}

impl<'a> Block<'a> {
    /// Decodes the block at the start of `bytes` and checks header, body and hash; not the link to
    /// the block before, which only the reader of that one can check.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, BlockError> {
        let header = BlockHeader::decode(bytes)?;
        let whole = bytes.get(..header.length()).ok_or(BlockError::TooShort)?;
        let (head, body) = whole.split_at(BLOCK_HEADER_BYTES);
        if crc32c::crc32c(body) != header.body_checksum {
            return Err(BlockError::BodyChecksum);
        }
        let head = head.first_chunk().ok_or(BlockError::TooShort)?;
        // D1, D2: the hash binds the block and its past.
        if hash_of(head, body) != header.hash {
            return Err(BlockError::Hash);
        }
        Ok(Self { header, body })
    }

    /// The records with their byte offsets from the start of the block.
    pub fn records(
        &self,
    ) -> impl Iterator<Item = Result<(u32, Record<'a>), RecordError>> + use<'a> {
        let body = self.body;
        let mut at = 0;
        std::iter::from_fn(move || {
            let rest = body.get(at..).filter(|rest| !rest.is_empty())?;
            match Record::decode(rest) {
                Ok((record, taken)) => {
                    let offset = (BLOCK_HEADER_BYTES + at) as u32;
                    at += taken;
                    Some(Ok((offset, record)))
                }
                Err(error) => {
                    at = usize::MAX;
                    Some(Err(error))
                }
            }
        })
    }
}
