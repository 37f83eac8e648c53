//! A coarse map of the newest part of a log: where a block begins, one for every MiB. Blocks do not
//! know where those before them begin, so whoever looks for an LSN walks there from a known block;
//! from the segment's beginning that is a read of up to a whole segment.
//!
//! Promotions look for such an LSN while clients wait (rule P2: the base of the newest reign).

use std::collections::VecDeque;

use crate::ids::{Generation, Lsn, Place};

/// Distance of two waymarks of one segment, at least, bytes: what a disk reads in about a
/// millisecond.
const WAYMARK_EVERY_BYTES: u32 = 1 << 20;
/// Waymarks kept: 4 GiB of the log, in 100 KiB of memory. What is older is walked to from the
/// beginning of its segment.
const WAYMARKS_MAX: usize = 4096;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Waymarks {
    /// First LSN of a block and its place, in the order of the log.
    marks: VecDeque<(Lsn, Place)>,
}

impl Waymarks {
    /// A block that begins with the event `first` lies at `place`, behind everything noted before.
    pub fn note(&mut self, first: Lsn, place: Place) {
        if let Some((_, last)) = self.marks.back() {
            debug_assert!(*last <= place, "a log only grows");
            let near = place.offset.saturating_sub(last.offset) < WAYMARK_EVERY_BYTES;
            if last.generation == place.generation && near {
                return;
            }
        }
        if self.marks.len() >= WAYMARKS_MAX {
            self.marks.pop_front();
        }
        self.marks.push_back((first, place));
    }

    /// The last block noted that begins at `lsn` or before: its first LSN and its place.
    #[must_use]
    pub fn before(&self, lsn: Lsn) -> Option<(Lsn, Place)> {
        let behind = self.marks.partition_point(|(first, _)| *first <= lsn);
        self.marks.get(behind.checked_sub(1)?).copied()
    }

    /// Those of one segment, in order.
    pub fn of_segment(&self, generation: Generation) -> impl Iterator<Item = (Lsn, Place)> {
        let from = self.marks.partition_point(|(_, place)| place.generation < generation);
        let to = self.marks.partition_point(|(_, place)| place.generation <= generation);
        self.marks.range(from..to).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(generation: u32, offset: u32) -> Place {
        Place { generation: Generation(generation), offset }
    }

    #[test]
    fn a_walk_begins_less_than_a_mib_before_what_is_looked_for() {
        let mut waymarks = Waymarks::default();
        assert_eq!(waymarks.before(Lsn(1)), None);
        let step = 12 << 10;
        let blocks: Vec<(Lsn, Place)> = (1..=3)
            .flat_map(|generation| (0..500).map(move |number| (generation, number)))
            .map(|(generation, number)| {
                let first = u64::from((generation - 1) * 500 + number) * 10 + 1;
                (Lsn(first), place(generation, 4096 + number * step))
            })
            .collect();
        for (first, place) in &blocks {
            waymarks.note(*first, *place);
        }
        for (first, place) in &blocks {
            for lsn in [*first, Lsn(first.0 + 9)] {
                let (known, at) = waymarks.before(lsn).unwrap();
                assert!(blocks.contains(&(known, at)) && known <= lsn);
                assert_eq!(at.generation, place.generation, "each segment has its first block");
                assert!(place.offset - at.offset < WAYMARK_EVERY_BYTES + step);
            }
        }
        assert!(waymarks.marks.len() < 20, "one for every MiB: {}", waymarks.marks.len());
    }

    #[test]
    fn the_newest_are_kept() {
        let mut waymarks = Waymarks::default();
        for number in 0..2 * WAYMARKS_MAX as u32 {
            waymarks.note(Lsn(u64::from(number) + 1), place(number, 0));
        }
        assert_eq!(waymarks.marks.len(), WAYMARKS_MAX);
        assert_eq!(waymarks.before(Lsn(WAYMARKS_MAX as u64)), None, "forgotten");
        assert!(waymarks.before(Lsn(WAYMARKS_MAX as u64 + 1)).is_some());
    }
}
