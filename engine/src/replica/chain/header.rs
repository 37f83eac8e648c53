//! The header of a chain object: whose it is, where it belongs, and what its body holds.

use super::{ObjectId, ObjectPlace, Seq};
use crate::block::BLOCK_HEADER_BYTES;
use crate::bytes::{Cursor, TooShort};
use crate::ids::{ClusterId, LeaseEpoch, Lsn, NodeId, ShardId};
use crate::replica::BlockEnd;
use crate::replica::limits::{CHAIN_BODY_MAX_BYTES, CHAIN_OBJECT_MAX_BYTES};

/// Header size, bytes. A Seal and an Open without blocks are nothing but a header.
pub const CHAIN_HEADER_BYTES: usize = 160;
/// First bytes of every chain object.
pub const CHAIN_MAGIC: [u8; 8] = *b"DLOGCHN1";
const VERSION: u16 = 1;
const CHECKED_FROM: usize = 16;
const RESERVED_BYTES: usize = 20;
const PACKED: u8 = 1;
/// A byte of packed input never makes more output than this.
const PACKING_RATIO_MAX: u64 = 255;

/// What an object is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    /// Seq 0: where the reign began. Until it is stored the reign's leader takes no writes (P5).
    Open = 1,
    /// Blocks of the reign, uploaded while the follower was away.
    Batch = 2,
    /// The end: objects behind it do not exist for anybody (P3).
    Seal = 3,
}

/// Whether a body is stored as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packing {
    /// As it is.
    Plain,
    /// As one LZ4 block.
    Lz4,
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectHeader {
    /// Where it belongs.
    pub id: ObjectId,
    /// What it is for.
    pub kind: ObjectKind,
    /// Who wrote it.
    pub node: NodeId,
    /// In which reign it was written: the chain's own; of a Seal the promoted node's.
    pub reign: LeaseEpoch,
    /// The block end that the first block continues. Zeros in a Seal.
    pub base: BlockEnd,
    /// LSN of the last event; the base's in an Open without blocks, 0 in a Seal.
    pub last_lsn: Lsn,
    /// Number of blocks.
    pub block_count: u32,
    /// How the body is stored.
    pub packing: Packing,
    /// Length of the body as it is stored, bytes.
    pub stored_bytes: u32,
    /// Length of the blocks, bytes.
    pub body_bytes: u32,
    /// crc32c of the body as it is stored.
    pub body_checksum: u32,
}

/// Why bytes are not the chain object that belongs there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// Fewer bytes than it says.
    #[error("chain object is cut short")]
    TooShort,
    /// More bytes than it says.
    #[error("chain object has {0} bytes too many")]
    TooLong(usize),
    /// Something else.
    #[error("not a chain object")]
    NoMagic,
    /// Newer than this program.
    #[error("chain object version {0} is newer than this program: update this node")]
    Version(u16),
    /// The header is damaged.
    #[error("chain object's header checksum is wrong")]
    HeaderChecksum,
    /// The body is damaged.
    #[error("chain object's body checksum is wrong")]
    BodyChecksum,
    /// Another place or another cluster.
    #[error("chain object {0} lies at another place or belongs to another cluster")]
    Misplaced(ObjectPlace),
    /// Values that no writer makes.
    #[error("chain object's field {0} has an impossible value")]
    Malformed(&'static str),
    /// The body does not unpack to the length that the header gives.
    #[error("chain object's body cannot be unpacked")]
    Packing,
    /// A block inside.
    #[error("chain object's block behind LSN {after}: {error}")]
    Block {
        /// Last LSN before it.
        after: Lsn,
        /// What is wrong with it.
        error: crate::block::BlockError,
    },
    /// A block that is whole but does not continue the one before.
    #[error("chain object's block behind LSN {0} does not continue what is before it")]
    Link(Lsn),
    /// More than an object may hold.
    #[error("chain object of {bytes} bytes is over the limit of {max}")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        max: u64,
    },
}

impl From<TooShort> for ChainError {
    fn from(_: TooShort) -> Self {
        Self::TooShort
    }
}

impl ObjectHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; CHAIN_HEADER_BYTES] {
        debug_assert_eq!(self.check(), Ok(()), "{self:?}");
        let mut out = [0; CHAIN_HEADER_BYTES];
        let mut put = |at: usize, value: &[u8]| out[at..at + value.len()].copy_from_slice(value);
        let place = self.id.place;
        put(0, &CHAIN_MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(10, &(CHAIN_HEADER_BYTES as u16).to_le_bytes());
        put(16, &self.id.cluster.0.to_le_bytes());
        put(32, &self.node.0.to_le_bytes());
        put(48, &place.shard.0.to_le_bytes());
        put(52, &place.seq.0.to_le_bytes());
        put(56, &place.epoch.0.to_le_bytes());
        put(64, &self.reign.0.to_le_bytes());
        put(72, &self.base.lsn.0.to_le_bytes());
        put(80, &self.base.hash);
        put(112, &self.last_lsn.0.to_le_bytes());
        put(120, &self.block_count.to_le_bytes());
        put(124, &[self.kind as u8, if self.packing == Packing::Lz4 { PACKED } else { 0 }]);
        put(128, &self.stored_bytes.to_le_bytes());
        put(132, &self.body_bytes.to_le_bytes());
        put(136, &self.body_checksum.to_le_bytes());
        let checksum = crc32c::crc32c(&out[CHECKED_FROM..]);
        out[12..16].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Decodes and checks the header at the start of `bytes`; the body is not looked at.
    pub fn decode(bytes: &[u8]) -> Result<Self, ChainError> {
        let bytes = bytes.first_chunk::<CHAIN_HEADER_BYTES>().ok_or(ChainError::TooShort)?;
        if bytes[..8] != CHAIN_MAGIC {
            return Err(ChainError::NoMagic);
        }
        let mut cursor = Cursor::new(&bytes[8..]);
        let (version, header_length) = (cursor.u16()?, cursor.u16()?);
        if cursor.u32()? != crc32c::crc32c(&bytes[CHECKED_FROM..]) {
            return Err(ChainError::HeaderChecksum);
        }
        // Version and length lie before the checked bytes: their values are checked themselves.
        if version != VERSION {
            return Err(ChainError::Version(version));
        }
        if usize::from(header_length) != CHAIN_HEADER_BYTES {
            return Err(ChainError::Malformed("header length"));
        }
        let (cluster, node) = (ClusterId(cursor.u128()?), NodeId(cursor.u128()?));
        let (shard, seq) = (ShardId(cursor.u32()?), Seq(cursor.u32()?));
        let place = ObjectPlace { shard, epoch: LeaseEpoch(cursor.u64()?), seq };
        let reign = LeaseEpoch(cursor.u64()?);
        let base = BlockEnd { lsn: Lsn(cursor.u64()?), hash: cursor.hash()? };
        let (last_lsn, block_count) = (Lsn(cursor.u64()?), cursor.u32()?);
        let kind = match cursor.u8()? {
            1 => ObjectKind::Open,
            2 => ObjectKind::Batch,
            3 => ObjectKind::Seal,
            _ => return Err(ChainError::Malformed("kind")),
        };
        let packing = match cursor.u8()? {
            0 => Packing::Plain,
            PACKED => Packing::Lz4,
            _ => return Err(ChainError::Malformed("flags")),
        };
        if cursor.u16()? != 0 {
            return Err(ChainError::Malformed("reserved"));
        }
        let header = Self {
            id: ObjectId { cluster, place },
            kind,
            node,
            reign,
            base,
            last_lsn,
            block_count,
            packing,
            stored_bytes: cursor.u32()?,
            body_bytes: cursor.u32()?,
            body_checksum: cursor.u32()?,
        };
        if cursor.take(RESERVED_BYTES)?.iter().any(|byte| *byte != 0) {
            return Err(ChainError::Malformed("reserved"));
        }
        header.check()?;
        Ok(header)
    }

    /// Whether a writer could have made it.
    fn check(&self) -> Result<(), ChainError> {
        let place = self.id.place;
        if place.epoch == LeaseEpoch::NONE || self.base.lsn.0 == u64::MAX {
            return Err(ChainError::Malformed("number"));
        }
        let own = self.reign == place.epoch;
        let right_place = match self.kind {
            ObjectKind::Open => own && place.seq == Seq::OPEN,
            ObjectKind::Batch => own && place.seq != Seq::OPEN && self.block_count > 0,
            ObjectKind::Seal => {
                let empty = Self::empty(self.id, self.kind, self.node, self.reign);
                self.reign > place.epoch && *self == empty
            }
        };
        if !right_place {
            return Err(ChainError::Malformed("kind"));
        }
        // Each block has an event, and more bytes than its header.
        let events = self.last_lsn.0.checked_sub(self.base.lsn.0);
        let blocks = u64::from(self.block_count);
        if self.kind != ObjectKind::Seal
            && events.is_none_or(|events| events < blocks || (events > 0) != (blocks > 0))
        {
            return Err(ChainError::Malformed("last LSN"));
        }
        let (stored, body) = (u64::from(self.stored_bytes), u64::from(self.body_bytes));
        if body < blocks * BLOCK_HEADER_BYTES as u64 || (body > 0) != (blocks > 0) {
            return Err(ChainError::Malformed("block count"));
        }
        let lengths = match self.packing {
            Packing::Plain => stored == body,
            // Packed only if it gains something. Nothing large is made room for on the strength
            // of a length alone.
            Packing::Lz4 => stored < body && body <= stored * PACKING_RATIO_MAX,
        };
        if !lengths
            || body > CHAIN_BODY_MAX_BYTES as u64
            || stored > (CHAIN_OBJECT_MAX_BYTES - CHAIN_HEADER_BYTES) as u64
        {
            return Err(ChainError::Malformed("body length"));
        }
        Ok(())
    }

    /// A header without any content: all that a Seal may be.
    const fn empty(id: ObjectId, kind: ObjectKind, node: NodeId, reign: LeaseEpoch) -> Self {
        Self {
            id,
            kind,
            node,
            reign,
            base: BlockEnd { lsn: Lsn(0), hash: [0; 32] },
            last_lsn: Lsn(0),
            block_count: 0,
            packing: Packing::Plain,
            stored_bytes: 0,
            body_bytes: 0,
            body_checksum: 0,
        }
    }

    /// A Seal's header at `id`, put there by `node` in its reign `reign`.
    #[must_use]
    pub fn seal(id: ObjectId, node: NodeId, reign: LeaseEpoch) -> Self {
        assert!(reign > id.place.epoch, "P3: only chains of older reigns are sealed");
        Self::empty(id, ObjectKind::Seal, node, reign)
    }
}
