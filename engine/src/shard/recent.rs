//! Committed blocks that are still in memory, for readers at the end of the log and for retries: a
//! ring of bytes, reserved at the start and touched as it fills; the newest overwrite the oldest.

use std::collections::VecDeque;

use crate::ids::{Lsn, Place};

/// One block is assumed for so many bytes when room for their list is reserved. Smaller blocks
/// leave a part of the ring unused.
const BLOCK_BYTES: usize = 512;

#[derive(Clone, Copy, Debug)]
struct Kept {
    place: Place,
    first_lsn: Lsn,
    start: usize,
    length: usize,
}

#[derive(Debug)]
pub(super) struct Recent {
    ring: Vec<u8>,
    max_bytes: usize,
    /// In the order of the log, which is their order around the ring.
    blocks: VecDeque<Kept>,
    blocks_max: usize,
    /// Behind the newest.
    next: usize,
}

impl Recent {
    pub(super) fn new(max_bytes: usize) -> Self {
        let blocks_max = max_bytes / BLOCK_BYTES + 1;
        let (ring, blocks) = (Vec::with_capacity(max_bytes), VecDeque::with_capacity(blocks_max));
        Self { ring, max_bytes, blocks, blocks_max, next: 0 }
    }

    /// Keeps a copy of a committed block in the place of the oldest ones. A block larger than the
    /// whole ring is not kept.
    // A9: copied into memory reserved at the start.
    pub(super) fn keep(&mut self, place: Place, first_lsn: Lsn, bytes: &[u8]) {
        debug_assert!(self.blocks.back().is_none_or(|last| last.place < place));
        let length = bytes.len();
        if length > self.max_bytes {
            return;
        }
        let wraps = self.next + length > self.max_bytes;
        let start = if wraps { 0 } else { self.next };
        let end = start + length;
        while let Some(oldest) = self.blocks.front() {
            // Those between the newest and the ring's end are older than those at its beginning.
            let passed = wraps && oldest.start >= self.next;
            let hit = start <= oldest.start && oldest.start < end;
            if !passed && !hit && self.blocks.len() < self.blocks_max {
                break;
            }
            self.blocks.pop_front();
        }
        if self.ring.len() < end {
            self.ring.resize(end, 0);
        }
        self.ring[start..end].copy_from_slice(bytes);
        self.blocks.push_back(Kept { place, first_lsn, start, length });
        self.next = end;
    }

    /// The bytes from `place` to the end of its block, when the block is here.
    pub(super) fn bytes_at(&self, place: Place) -> Option<&[u8]> {
        let behind = self.blocks.partition_point(|block| block.place <= place);
        let Kept { place: first, start, length, .. } = *self.blocks.get(behind.checked_sub(1)?)?;
        if first.generation != place.generation {
            return None;
        }
        let block = &self.ring[start..start + length];
        block.get((place.offset - first.offset) as usize..).filter(|bytes| !bytes.is_empty())
    }

    /// The block that begins with this LSN, when it is here.
    pub(super) fn block(&self, first_lsn: Lsn) -> Option<&[u8]> {
        let at = self.blocks.partition_point(|block| block.first_lsn < first_lsn);
        let found = self.blocks.get(at).filter(|block| block.first_lsn == first_lsn);
        found.map(|Kept { start, length, .. }| &self.ring[*start..*start + *length])
    }

    /// The newest block that begins with this LSN or before it, when it is here.
    pub(super) fn block_up_to(&self, lsn: Lsn) -> Option<&[u8]> {
        let behind = self.blocks.partition_point(|block| block.first_lsn <= lsn);
        let Kept { start, length, .. } = *self.blocks.get(behind.checked_sub(1)?)?;
        Some(&self.ring[start..start + length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Generation;
    use proptest::prelude::*;

    fn place(offset: u32) -> Place {
        Place { generation: Generation(1), offset }
    }

    proptest! {
        /// Whatever is found is right, the newest blocks that fit are found, and no memory is
        /// taken beyond the bound.
        #[test]
        fn the_newest_blocks_are_found_byte_for_byte(
            max_bytes in 0_usize..5_000,
            lengths in proptest::collection::vec(1_usize..1_500, 1..200),
        ) {
            let mut recent = Recent::new(max_bytes);
            let reserved = recent.ring.capacity();
            let mut kept: Vec<(u32, Vec<u8>)> = Vec::new();
            let mut offset = 4096;
            for (number, length) in lengths.into_iter().enumerate() {
                let bytes = vec![number as u8; length];
                recent.keep(place(offset), Lsn(number as u64 + 1), &bytes);
                kept.push((offset, bytes));
                offset += (length as u32).next_multiple_of(4096);
                prop_assert_eq!(recent.ring.capacity(), reserved);
                let mut newer = 0;
                for (age, (offset, bytes)) in kept.iter().rev().enumerate() {
                    newer += bytes.len();
                    let found = recent.bytes_at(place(*offset));
                    prop_assert!(found.is_none_or(|found| found == &bytes[..]));
                    let lsn = Lsn((kept.len() - age) as u64);
                    prop_assert_eq!(recent.block(lsn), found);
                    prop_assert!(found.is_none() || recent.block_up_to(lsn) == found);
                    // The ring's end and the block hit last may waste a block's length each.
                    let fits = newer + 2 * 1_500 <= max_bytes && age < recent.blocks_max;
                    prop_assert!(found.is_some() || !fits, "block {age} of {max_bytes} is gone");
                    let last = place(*offset + bytes.len() as u32 - 1);
                    prop_assert!(recent.bytes_at(last).is_none_or(|found| found.len() == 1));
                    let behind = place(*offset + bytes.len() as u32);
                    prop_assert_eq!(recent.bytes_at(behind), None);
                }
            }
        }
    }

    #[test]
    fn another_segments_place_is_not_found() {
        let mut recent = Recent::new(1_000);
        recent.keep(place(4096), Lsn(1), &[1; 100]);
        let other = Place { generation: Generation(2), offset: 4096 };
        assert_eq!(recent.bytes_at(other), None);
        assert_eq!(recent.bytes_at(place(0)), None);
    }

    #[test]
    fn small_blocks_do_not_take_memory_without_bound() {
        let mut recent = Recent::new(10_000);
        let reserved = recent.blocks.capacity();
        for number in 0..1_000 {
            recent.keep(place(number * 4096), Lsn(u64::from(number)), &[1; 8]);
        }
        assert_eq!(recent.blocks.capacity(), reserved);
        assert!(recent.bytes_at(place(999 * 4096)).is_some());
    }
}
