//! Whole chain objects: a header, then the blocks, unpadded, byte for byte as they are on disk.
//!
//! Checked on both sides: the writer looks at every block before it uploads it, the reader before
//! it applies it. Promises D1 and D2 hold for them as for the log.

use super::ObjectId;
use super::header::{CHAIN_HEADER_BYTES, ChainError, ObjectHeader, ObjectKind, Packing};
use crate::block::{Block, BlockHeader};
use crate::ids::{LeaseEpoch, Lsn, NodeId};
use crate::replica::BlockEnd;
use crate::replica::limits::{CHAIN_BODY_MAX_BYTES, CHAIN_OBJECT_MAX_BYTES};

/// What the writer of an Open or a Batch says about it.
#[derive(Clone, Copy, Debug)]
pub struct ObjectParts {
    /// Where it will be.
    pub id: ObjectId,
    /// Open or Batch.
    pub kind: ObjectKind,
    /// Who writes it.
    pub node: NodeId,
    /// The block end that the first block continues.
    pub base: BlockEnd,
}

/// Encodes an Open or a Batch into `out` (which is emptied first). Each item of `blocks` begins
/// with a block and may be longer: what is behind the block (padding) is left out. The body is
/// packed if `packing` says so and that makes it smaller.
///
/// Returns the header that was written. Fails on a block that is damaged or does not continue the
/// one before, and on more bytes than an object may have; `out` is then of no use.
pub fn encode<'a>(
    parts: &ObjectParts,
    blocks: impl IntoIterator<Item = &'a [u8]>,
    packing: Packing,
    out: &mut Vec<u8>,
) -> Result<ObjectHeader, ChainError> {
    assert!(parts.kind != ObjectKind::Seal, "a Seal has no blocks");
    out.clear();
    out.resize(CHAIN_HEADER_BYTES, 0);
    let mut walk = Walk::new(parts.id, parts.kind, parts.base);
    for bytes in blocks {
        let header = walk.step(bytes)?;
        let grown = out.len() - CHAIN_HEADER_BYTES + header.length();
        if grown > CHAIN_BODY_MAX_BYTES {
            return Err(too_large(grown, CHAIN_BODY_MAX_BYTES));
        }
        out.extend_from_slice(&bytes[..header.length()]);
    }
    let body_bytes = out.len() - CHAIN_HEADER_BYTES;
    let mut used = Packing::Plain;
    if packing == Packing::Lz4 {
        let packed = lz4_flex::block::compress(&out[CHAIN_HEADER_BYTES..]);
        if packed.len() < body_bytes {
            out.truncate(CHAIN_HEADER_BYTES);
            out.extend_from_slice(&packed);
            used = Packing::Lz4;
        }
    }
    if out.len() > CHAIN_OBJECT_MAX_BYTES {
        return Err(too_large(out.len(), CHAIN_OBJECT_MAX_BYTES));
    }
    let header = ObjectHeader {
        id: parts.id,
        kind: parts.kind,
        node: parts.node,
        reign: parts.id.place.epoch,
        base: parts.base,
        last_lsn: walk.end.lsn,
        block_count: walk.count,
        packing: used,
        stored_bytes: (out.len() - CHAIN_HEADER_BYTES) as u32,
        body_bytes: body_bytes as u32,
        body_checksum: crc32c::crc32c(&out[CHAIN_HEADER_BYTES..]),
    };
    if header.kind == ObjectKind::Batch && header.block_count == 0 {
        return Err(ChainError::Malformed("block count"));
    }
    out[..CHAIN_HEADER_BYTES].copy_from_slice(&header.encode());
    Ok(header)
}

fn too_large(bytes: usize, max: usize) -> ChainError {
    ChainError::TooLarge { bytes: bytes as u64, max: max as u64 }
}

/// Encodes a Seal at `id`, put there by `node` in its reign `reign`, into `out` (which is emptied
/// first).
pub fn encode_seal(id: ObjectId, node: NodeId, reign: LeaseEpoch, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&ObjectHeader::seal(id, node, reign).encode());
}

/// A whole, checked object.
#[derive(Clone, Copy, Debug)]
pub struct Object<'a> {
    /// Its header.
    pub header: ObjectHeader,
    body: &'a [u8],
}

impl<'a> Object<'a> {
    /// Decodes the object at `id` and checks everything: that it belongs there, both checksums,
    /// every block, and the links between them. `room` takes the body if it has to be unpacked.
    pub fn decode(
        bytes: &'a [u8],
        id: ObjectId,
        room: &'a mut Vec<u8>,
    ) -> Result<Self, ChainError> {
        let header = ObjectHeader::decode(bytes)?;
        if header.id != id {
            return Err(ChainError::Misplaced(header.id.place));
        }
        let stored = &bytes[CHAIN_HEADER_BYTES..];
        match stored.len().checked_sub(header.stored_bytes as usize) {
            None => return Err(ChainError::TooShort),
            Some(0) => {}
            Some(more) => return Err(ChainError::TooLong(more)),
        }
        if crc32c::crc32c(stored) != header.body_checksum {
            return Err(ChainError::BodyChecksum);
        }
        let body = match header.packing {
            Packing::Plain => stored,
            Packing::Lz4 => unpack(stored, header.body_bytes as usize, room)?,
        };
        let object = Self { header, body };
        object.check_blocks()?;
        Ok(object)
    }

    fn check_blocks(&self) -> Result<(), ChainError> {
        let header = &self.header;
        let mut walk = Walk::new(header.id, header.kind, header.base);
        let mut rest = self.body;
        while !rest.is_empty() {
            let block = walk.step(rest)?;
            rest = &rest[block.length()..];
        }
        if (walk.end.lsn, walk.count) != (header.last_lsn, header.block_count) {
            return Err(ChainError::Malformed("last LSN"));
        }
        Ok(())
    }

    /// The blocks in order, each with its header.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockHeader, &'a [u8])> + use<'a> {
        let mut rest = self.body;
        std::iter::from_fn(move || {
            // decode() has checked that the body is whole blocks; an empty rest is no block.
            let header = BlockHeader::decode(rest).ok()?;
            let (block, behind) = rest.split_at_checked(header.length())?;
            rest = behind;
            Some((header, block))
        })
    }

    /// Where the blocks end, in order.
    pub fn ends(&self) -> impl Iterator<Item = BlockEnd> + use<'a> {
        self.blocks().map(|(header, _)| BlockEnd { lsn: header.last_lsn(), hash: header.hash })
    }
}

fn unpack<'a>(
    stored: &[u8],
    body_bytes: usize,
    room: &'a mut Vec<u8>,
) -> Result<&'a [u8], ChainError> {
    room.clear();
    room.resize(body_bytes, 0);
    match lz4_flex::block::decompress_into(stored, room) {
        Ok(length) if length == body_bytes => Ok(room),
        _ => Err(ChainError::Packing),
    }
}

/// Goes from block to block and checks that each continues the one before.
struct Walk {
    id: ObjectId,
    kind: ObjectKind,
    end: BlockEnd,
    epoch: LeaseEpoch,
    count: u32,
}

impl Walk {
    fn new(id: ObjectId, kind: ObjectKind, base: BlockEnd) -> Self {
        Self { id, kind, end: base, epoch: LeaseEpoch(0), count: 0 }
    }

    fn step(&mut self, bytes: &[u8]) -> Result<BlockHeader, ChainError> {
        let after = self.end.lsn;
        let block = Block::decode(bytes).map_err(|error| ChainError::Block { after, error })?;
        let header = block.header;
        let newest = match self.kind {
            // P5: when an Open is written its reign has no block yet.
            ObjectKind::Open => header.epoch < self.id.place.epoch,
            ObjectKind::Batch | ObjectKind::Seal => header.epoch <= self.id.place.epoch,
        };
        // D1: the link binds the block to the whole log before it.
        let linked = header.previous_hash == self.end.hash
            && header.first_lsn.0 == after.0 + 1
            && header.shard == self.id.place.shard
            && header.epoch >= self.epoch;
        if !linked || !newest {
            return Err(ChainError::Link(after));
        }
        self.end = BlockEnd { lsn: header.last_lsn(), hash: header.hash };
        (self.epoch, self.count) = (header.epoch, self.count + 1);
        Ok(header)
    }
}

/// What was found where a PUT was refused, or its outcome is not known (C2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// The very bytes that were to be put there.
    Own,
    /// A Seal: a successor has ended the chain.
    Seal,
    /// Anything else.
    Other,
}

impl Found {
    /// Compares what was `sent` with what a GET `found` (`None`: no such object).
    #[must_use]
    pub fn of(sent: &[u8], found: Option<&[u8]>) -> Self {
        match found {
            None => Self::Nothing,
            Some(found) if found == sent => Self::Own,
            Some(found) => match ObjectHeader::decode(found) {
                Ok(header) if header.kind == ObjectKind::Seal => Self::Seal,
                _ => Self::Other,
            },
        }
    }
}

/// LSNs that a Batch or Open covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LsnRange {
    /// The first.
    pub first: Lsn,
    /// The last.
    pub last: Lsn,
}
