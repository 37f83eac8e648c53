//! Committed blocks that are still in memory, for readers; and the buffers of those that are not,
//! for the next blocks. Bounded in bytes.

use std::collections::VecDeque;

use super::assembly::Assembly;
use crate::ids::Place;

/// Buffers kept for reuse, at most; more are in use only in bursts.
const SPARE_MAX: usize = 16;
/// A larger buffer is not kept: it held one huge append.
const SPARE_MAX_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Recent {
    blocks: VecDeque<Assembly>,
    size_bytes: usize,
    max_bytes: usize,
    spare: Vec<Assembly>,
}

impl Recent {
    pub(super) fn new(max_bytes: usize) -> Self {
        let blocks = VecDeque::with_capacity(1024);
        Self { blocks, size_bytes: 0, max_bytes, spare: Vec::with_capacity(SPARE_MAX) }
    }

    /// A buffer for the next block.
    pub(super) fn take_buffer(&mut self) -> Assembly {
        self.spare.pop().unwrap_or_else(Assembly::new)
    }

    /// Keeps a committed block, and gives up the oldest ones that no longer fit.
    pub(super) fn keep(&mut self, block: Assembly) {
        debug_assert!(self.blocks.back().is_none_or(|last| last.place < block.place));
        self.size_bytes += block.bytes.capacity();
        self.blocks.push_back(block);
        while self.size_bytes > self.max_bytes {
            let Some(old) = self.blocks.pop_front() else { break };
            self.size_bytes -= old.bytes.capacity();
            if self.spare.len() < SPARE_MAX && old.bytes.capacity() <= SPARE_MAX_BYTES {
                self.spare.push(old);
            }
        }
    }

    /// The bytes from `place` to the end of its block, when the block is here.
    pub(super) fn bytes_at(&self, place: Place) -> Option<&[u8]> {
        let behind = self.blocks.partition_point(|block| block.place <= place);
        let block = self.blocks.get(behind.checked_sub(1)?)?;
        if block.place.generation != place.generation {
            return None;
        }
        block.bytes.get((place.offset - block.place.offset) as usize..).filter(|b| !b.is_empty())
    }
}
