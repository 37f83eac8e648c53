//! Walks through the bytes of one segment file: whole blocks in their places, and the gaps between
//! them. Decides nothing about what a gap means; `verify` and `inspect` do.

use duolog_engine::block::{BLOCK_MAGIC, Block, BlockError, BlockHeader};
use duolog_engine::bytes::align_up;
use duolog_engine::ids::{Generation, ShardId};
use duolog_engine::limits::BLOCK_ALIGN_BYTES;
use duolog_engine::segment::SegmentHeader;

/// What lies at a place in a segment.
#[derive(Clone, Debug)]
pub enum Piece<'a> {
    /// A whole block of this segment.
    Block {
        /// Bytes from the start of the file.
        offset: usize,
        /// The block.
        block: Block<'a>,
    },
    /// No whole block of this segment until the next one (or the end of the file).
    Gap {
        /// Bytes from the start of the file.
        offset: usize,
        /// What the bytes at `offset` are instead.
        reason: Reason,
    },
}

/// Why no block of this segment stands at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Zeros: never written.
    #[error("never written")]
    Empty,
    /// The file ends here.
    #[error("the file is full")]
    EndOfFile,
    /// A block that an earlier use of the file left behind.
    #[error("left over from segment {0}")]
    Leftover(Generation),
    /// A block of another shard.
    #[error("a block of shard {0}")]
    OtherShard(ShardId),
    /// Not a whole block.
    #[error("{0}")]
    Broken(BlockError),
}

/// The pieces of a segment, in order. Blocks follow one another at multiples of the alignment;
/// after a gap the walk goes on at the next whole block, wherever that stands.
#[derive(Debug)]
pub struct Walk<'a> {
    bytes: &'a [u8],
    generation: Generation,
    shard: ShardId,
    align: usize,
    at: usize,
    in_gap: bool,
}

impl<'a> Walk<'a> {
    /// A walk through `bytes`, a file whose header is `header`.
    #[must_use]
    pub fn new(bytes: &'a [u8], header: &SegmentHeader) -> Self {
        // A header with a right checksum and a wrong alignment was never written by this program.
        let align = (header.align_bytes.max(BLOCK_ALIGN_BYTES)) as usize;
        let (generation, shard) = (header.generation, header.shard);
        Self { bytes, generation, shard, align, at: align, in_gap: false }
    }

    fn look(&self, offset: usize) -> Result<Block<'a>, Reason> {
        let rest = self.bytes.get(offset..).filter(|rest| !rest.is_empty());
        let rest = rest.ok_or(Reason::EndOfFile)?;
        if rest.iter().take(BLOCK_MAGIC.len()).all(|byte| *byte == 0) {
            return Err(Reason::Empty);
        }
        let header = BlockHeader::decode(rest).map_err(Reason::Broken)?;
        if header.generation != self.generation {
            return Err(Reason::Leftover(header.generation));
        }
        if header.shard != self.shard {
            return Err(Reason::OtherShard(header.shard));
        }
        Block::decode(rest).map_err(Reason::Broken)
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        while self.at <= self.bytes.len() {
            let offset = self.at;
            match self.look(offset) {
                Ok(block) => {
                    let end = align_up((offset + block.header.length()) as u64, self.align as u64);
                    self.at = usize::try_from(end?).ok()?;
                    self.in_gap = false;
                    return Some(Piece::Block { offset, block });
                }
                Err(reason) => {
                    let first = !std::mem::replace(&mut self.in_gap, true);
                    self.at = offset.checked_add(self.align)?;
                    if first {
                        return Some(Piece::Gap { offset, reason });
                    }
                }
            }
        }
        None
    }
}
