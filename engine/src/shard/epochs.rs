//! Where the reigns in this log end: enough to find the place where two logs part (rule R3).

use crate::ids::LeaseEpoch;
pub use crate::replica::EpochEnd;
use crate::segment::LogEnd;

/// Reigns whose end is known, at most; older ones are forgotten. A pair that fails over once a day
/// parts within the newest two; who has missed more copies the log anew.
pub const EPOCH_MARKS_MAX: usize = 64;

/// The newest reigns of a log that are over, oldest first. The reign of the log's end is not among
/// them; the end itself is its mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochMarks(Vec<EpochEnd>);

impl EpochMarks {
    /// The marks, oldest first.
    #[must_use]
    pub fn as_slice(&self) -> &[EpochEnd] {
        &self.0
    }

    /// A block of the reign `epoch` follows `end`.
    pub fn follow(&mut self, end: &LogEnd, epoch: LeaseEpoch) {
        if end.epoch == epoch || end.lsn.0 == 0 {
            return;
        }
        debug_assert!(self.0.last().is_none_or(|last| last.lsn < end.lsn));
        if self.0.len() >= EPOCH_MARKS_MAX {
            self.0.remove(0);
        }
        self.0.push(EpochEnd { epoch: end.epoch, lsn: end.lsn, hash: end.hash });
    }

    /// Puts older marks before these, as far as there is room.
    pub fn precede(&mut self, older: &[EpochEnd]) {
        let room = EPOCH_MARKS_MAX.saturating_sub(self.0.len()).min(older.len());
        self.0.splice(0..0, older[older.len() - room..].iter().copied());
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
    }

    #[test]
    fn older_marks_fill_the_room_that_is_left() {
        let mark = |epoch| EpochEnd { epoch: LeaseEpoch(epoch), lsn: Lsn(epoch), hash: [0; 32] };
        let older: Vec<EpochEnd> = (1..=70).map(mark).collect();
        let mut marks = EpochMarks(vec![mark(71), mark(72)]);
        marks.precede(&older);
        let epochs: Vec<u64> = marks.as_slice().iter().map(|mark| mark.epoch.0).collect();
        assert_eq!(epochs, (9..=72).collect::<Vec<u64>>());
    }
}
