//! Where the reigns in this log end: enough to find the place where two logs part (rule R3).

use crate::ids::LeaseEpoch;
pub use crate::replica::EpochEnd;
use crate::segment::LogEnd;

/// Reigns whose end is known, at most; older ones are forgotten. A pair that fails over once a day
/// parts within the newest two; who has missed more copies the log anew.
pub const EPOCH_MARKS_MAX: usize = 64;

/// The newest reigns of a log that are over, oldest first. The reign of the log's end is not among
/// them; the end itself is its mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochMarks {
    marks: Vec<EpochEnd>,
    complete: bool,
}

impl Default for EpochMarks {
    fn default() -> Self {
        Self { marks: Vec::new(), complete: true }
    }
}

impl EpochMarks {
    /// The marks, oldest first.
    #[must_use]
    pub fn as_slice(&self) -> &[EpochEnd] {
        &self.marks
    }

    /// Whether no reign is missing.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.complete
    }

    /// A block of the reign `epoch` follows `end`.
    pub fn follow(&mut self, end: &LogEnd, epoch: LeaseEpoch) {
        if end.epoch == epoch || end.lsn.0 == 0 {
            return;
        }
        debug_assert!(self.marks.last().is_none_or(|last| last.lsn < end.lsn));
        if self.marks.len() >= EPOCH_MARKS_MAX {
            self.marks.remove(0);
            self.complete = false;
        }
        self.marks.push(EpochEnd::of(end));
    }

    /// Puts the marks of what comes before this part of the log before these, as far as there is
    /// room; whether there was room for all.
    pub fn precede(&mut self, older: &Self) -> bool {
        let room = (EPOCH_MARKS_MAX - self.marks.len()).min(older.marks.len());
        let fits = room == older.marks.len();
        self.complete = self.complete && older.complete && fits;
        self.marks.splice(0..0, older.marks[older.marks.len() - room..].iter().copied());
        fits
    }

    /// The marks before these are not known.
    pub const fn begin_unknown(&mut self) {
        self.complete = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Hlc, Lsn};

    fn end(epoch: u64, lsn: u64) -> LogEnd {
        LogEnd { lsn: Lsn(lsn), hash: [lsn as u8; 32], hlc: Hlc(lsn), epoch: LeaseEpoch(epoch) }
    }

    #[test]
    fn a_mark_is_set_where_the_epoch_changes_and_the_newest_are_kept() {
        let mut marks = EpochMarks::default();
        marks.follow(&end(0, 0), LeaseEpoch(1));
        marks.follow(&end(1, 5), LeaseEpoch(1));
        assert_eq!(marks.as_slice(), []);
        for epoch in 1..=100 {
            marks.follow(&end(epoch, epoch * 10), LeaseEpoch(epoch + 1));
        }
        let epochs: Vec<u64> = marks.as_slice().iter().map(|mark| mark.epoch.0).collect();
        assert_eq!(epochs, (37..=100).collect::<Vec<u64>>());
        assert!(!marks.is_complete());
    }

    #[test]
    fn older_marks_fill_the_room_that_is_left() {
        let of = |epochs: std::ops::RangeInclusive<u64>| {
            let mark = |epoch| EpochEnd::of(&end(epoch, epoch));
            EpochMarks { marks: epochs.map(mark).collect(), complete: true }
        };
        let mut marks = of(71..=72);
        assert!(marks.precede(&of(61..=70)) && marks.is_complete());
        assert!(!marks.precede(&of(1..=60)) && !marks.is_complete());
        let epochs: Vec<u64> = marks.as_slice().iter().map(|mark| mark.epoch.0).collect();
        assert_eq!(epochs, (9..=72).collect::<Vec<u64>>());
    }
}
