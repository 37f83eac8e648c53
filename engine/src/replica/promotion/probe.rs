//! Where the own log and a chain object part: the last of the object's block ends that the own log
//! contains. A hash names a block's whole past, so "contained" never comes back after a miss, and
//! halving finds it.

use crate::ids::Lsn;
use crate::replica::BlockEnd;

/// A search under way.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    /// The object's base, then the end of each of its blocks.
    points: Vec<BlockEnd>,
    /// How many of them are known to be contained in the own log.
    contained: usize,
    /// From here on they are known not to be.
    missing: usize,
    /// The one being asked for.
    at: usize,
}

/// What a search knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It needs to know whether a block of the own log ends at this LSN, and its hash.
    Ask(Lsn),
    /// The logs agree up to this point of the object, counted from its base (0).
    Fork(usize),
    /// Not even the base is contained.
    Disjoint,
}

impl Probe {
    /// A search among `points` (base first) in a log that ends at `own_end` and is known to contain
    /// the block ends `known`.
    pub(super) fn new(points: Vec<BlockEnd>, own_end: BlockEnd, known: &[BlockEnd]) -> Self {
        assert!(!points.is_empty(), "an object has a base");
        let missing = points.partition_point(|point| point.lsn <= own_end.lsn);
        let mut probe = Self { points, contained: 0, missing, at: 0 };
        for known in known.iter().chain([&own_end]) {
            probe.learn(known.lsn, Some(*known));
        }
        // Most often everything is contained: the newest is asked for first.
        probe.at = probe.missing.saturating_sub(1);
        probe
    }

    /// Takes in that the block of the own log that ends at `lsn` is `found`.
    pub(super) fn learn(&mut self, lsn: Lsn, found: Option<BlockEnd>) {
        let Ok(at) = self.points.binary_search_by_key(&lsn, |point| point.lsn) else { return };
        if found == Some(self.points[at]) {
            self.contained = self.contained.max(at + 1);
        } else {
            self.missing = self.missing.min(at);
        }
        self.at = self.contained + self.missing.saturating_sub(self.contained) / 2;
    }

    /// Takes in the answer to what [`Probe::verdict`] asks for.
    pub(super) fn answer(&mut self, found: Option<BlockEnd>) {
        if let Verdict::Ask(lsn) = self.verdict() {
            self.learn(lsn, found);
        }
    }

    /// What to do next.
    pub(super) fn verdict(&self) -> Verdict {
        if self.contained < self.missing {
            Verdict::Ask(self.points[self.at].lsn)
        } else if self.contained == 0 {
            Verdict::Disjoint
        } else {
            Verdict::Fork(self.contained - 1)
        }
    }

    /// The object's base, then the end of each of its blocks.
    pub(super) fn points(&self) -> &[BlockEnd] {
        &self.points
    }

    /// The last point.
    pub(super) fn last(&self) -> BlockEnd {
        *self.points.last().expect("new() has checked that there is one")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(lsn: u64, log: u8) -> BlockEnd {
        BlockEnd { lsn: Lsn(lsn), hash: [log; 32] }
    }

    /// Own log: blocks end at every LSN up to `own`, and are of log 1 up to `fork`, then of log 2.
    fn search(points: &[u64], fork: u64, own: u64) -> (Verdict, usize) {
        let of_own = |lsn: u64| end(lsn, if lsn <= fork { 1 } else { 2 });
        let points = points.iter().map(|lsn| end(*lsn, 1)).collect();
        let mut probe = Probe::new(points, of_own(own), &[end(0, 1)]);
        for asked in 0..64 {
            match probe.verdict() {
                Verdict::Ask(lsn) => {
                    assert!(lsn.0 < own && lsn.0 > 0, "no question whose answer is known: {lsn}");
                    probe.learn(lsn, Some(of_own(lsn.0)));
                }
                verdict => return (verdict, asked),
            }
        }
        panic!("the search does not end");
    }

    #[test]
    fn the_fork_is_found_wherever_it_is() {
        let points: Vec<u64> = (10..=200).step_by(5).collect();
        for own in 0..220 {
            for fork in 0..=own {
                let expected = match points.iter().filter(|point| **point <= fork).count() {
                    0 => Verdict::Disjoint,
                    count => Verdict::Fork(count - 1),
                };
                let (verdict, asked) = search(&points, fork, own);
                assert_eq!(verdict, expected, "fork {fork}, own end {own}");
                assert!(asked <= 8, "{asked} questions for {} points", points.len());
            }
        }
    }

    #[test]
    fn nothing_is_asked_when_the_ends_are_equal() {
        assert_eq!(search(&[0, 7, 9], 9, 9), (Verdict::Fork(2), 0));
        assert_eq!(search(&[0, 7, 9], 0, 0), (Verdict::Fork(0), 0));
        assert_eq!(search(&[7, 9], 3, 3), (Verdict::Disjoint, 0));
    }

    #[test]
    fn a_block_that_ends_elsewhere_is_no_agreement() {
        let mut probe = Probe::new(vec![end(5, 1), end(9, 1)], end(20, 2), &[end(0, 1)]);
        probe.learn(Lsn(9), None);
        assert_eq!(probe.verdict(), Verdict::Ask(Lsn(5)));
        probe.learn(Lsn(5), None);
        assert_eq!(probe.verdict(), Verdict::Disjoint);
    }
}
