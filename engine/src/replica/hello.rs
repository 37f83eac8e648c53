//! Where the follower's log parts from the leader's (rule R3).
//!
//! A reign has one writer, and every block names its whole past by hash. So two logs that both have
//! blocks of one reign are equal up to the shorter one's last block of it, and behind the newest
//! reign that both have, nothing is common.

use crate::ids::{LeaseEpoch, Lsn};
use crate::replica::EpochEnd;
use crate::segment::LogEnd;

/// What a leader's hello says of its log as it was at promotion; fixed for the reign.
#[derive(Clone, Copy, Debug)]
pub struct HelloLog<'a> {
    /// The reign.
    pub epoch: LeaseEpoch,
    /// The log's end.
    pub end: LogEnd,
    /// The newest reigns that were over in it, oldest first, without the end's.
    pub marks: &'a [EpochEnd],
    /// All reigns of that log are named.
    pub complete: bool,
}

/// What the follower has to do before it takes blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    /// Its log is the beginning of the leader's.
    Keep,
    /// Its log is, up to here; the rest has to be cut.
    CutAfter {
        /// The last event to keep; 0 for none.
        lsn: Lsn,
    },
    /// Neither list of reigns reaches back to one that both logs have.
    TooOld,
    /// Both logs end one reign at one LSN with different blocks: that cannot be.
    Impossible {
        /// The reign.
        epoch: LeaseEpoch,
        /// The LSN.
        lsn: Lsn,
    },
}

/// Compares the own log with a leader's. `marks` are the own reigns that are over, oldest first;
/// `complete` says that none is missing.
#[must_use]
pub fn fork(marks: &[EpochEnd], complete: bool, end: &LogEnd, leader: &HelloLog<'_>) -> Fork {
    // A log that has blocks of this reign was fitted to it before it took them (R3).
    if end.lsn == Lsn(0) || end.epoch == leader.epoch {
        return Fork::Keep;
    }
    let theirs = |epoch| with_end(leader.marks, &leader.end).find(|mark| mark.epoch == epoch);
    let common = with_end(marks, end).find_map(|own| Some((own, theirs(own.epoch)?)));
    let kept = match common {
        Some((own, their)) if own.lsn == their.lsn && own.hash != their.hash => {
            return Fork::Impossible { epoch: own.epoch, lsn: own.lsn };
        }
        Some((own, their)) => own.lsn.min(their.lsn),
        None if complete && leader.complete => Lsn(0),
        None => return Fork::TooOld,
    };
    if kept == end.lsn { Fork::Keep } else { Fork::CutAfter { lsn: kept } }
}

/// The last blocks of all reigns, newest first.
fn with_end(marks: &[EpochEnd], end: &LogEnd) -> impl Iterator<Item = EpochEnd> {
    let last = EpochEnd { epoch: end.epoch, lsn: end.lsn, hash: end.hash };
    let last = (end.lsn > Lsn(0)).then_some(last);
    last.into_iter().chain(marks.iter().rev().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Hlc;

    /// A log as its reigns: epoch and last LSN. `other` marks hashes of another history.
    struct Log(Vec<EpochEnd>);

    impl Log {
        fn new(reigns: &[(u64, u64)]) -> Self {
            let mark = |(epoch, lsn): &(u64, u64)| EpochEnd {
                epoch: LeaseEpoch(*epoch),
                lsn: Lsn(*lsn),
                hash: [(*epoch * 16 + *lsn) as u8; 32],
            };
            Self(reigns.iter().map(mark).collect())
        }

        fn split(&self) -> (&[EpochEnd], LogEnd) {
            let none = LogEnd { lsn: Lsn(0), hash: [0; 32], hlc: Hlc(0), epoch: LeaseEpoch(0) };
            match self.0.split_last() {
                Some((last, marks)) => {
                    (marks, LogEnd { lsn: last.lsn, hash: last.hash, epoch: last.epoch, ..none })
                }
                None => (&[], none),
            }
        }
    }

    fn decide(own: &[(u64, u64)], theirs: &[(u64, u64)], epoch: u64) -> Fork {
        let (own, theirs) = (Log::new(own), Log::new(theirs));
        let (marks, end) = own.split();
        let (their_marks, their_end) = theirs.split();
        let epoch = LeaseEpoch(epoch);
        let leader = HelloLog { epoch, end: their_end, marks: their_marks, complete: true };
        fork(marks, true, &end, &leader)
    }

    fn cut(lsn: u64) -> Fork {
        Fork::CutAfter { lsn: Lsn(lsn) }
    }

    /// R3: exactly what is not in the leader's prefix is cut.
    #[test]
    fn a_follower_keeps_the_common_prefix_and_no_more() {
        type Reigns = &'static [(u64, u64)];
        let rows: &[(Reigns, Reigns, Fork)] = &[
            (&[], &[(1, 5)], Fork::Keep),
            (&[(1, 5)], &[(1, 5)], Fork::Keep),
            (&[(1, 3)], &[(1, 5)], Fork::Keep),
            (&[(1, 3)], &[(1, 5), (2, 9)], Fork::Keep),
            (&[(1, 7)], &[(1, 5)], cut(5)),
            (&[(1, 7)], &[(1, 5), (2, 9)], cut(5)),
            (&[(1, 5), (2, 7)], &[(1, 5), (3, 9)], cut(5)),
            (&[(1, 3), (2, 7)], &[(1, 5), (3, 9)], cut(3)),
            (&[(1, 5), (2, 7)], &[(1, 5), (2, 6), (4, 9)], cut(6)),
            (&[(2, 7)], &[(1, 5)], cut(0)),
            (&[(2, 7)], &[], cut(0)),
        ];
        for (own, theirs, expected) in rows {
            assert_eq!(decide(own, theirs, 9), *expected, "{own:?} and {theirs:?}");
        }
    }

    /// R3: a late or repeated hello cannot shorten a log that follows its reign already.
    #[test]
    fn blocks_of_the_hellos_own_reign_are_never_cut() {
        assert_eq!(decide(&[(1, 5), (9, 12)], &[(1, 5)], 9), Fork::Keep);
    }

    #[test]
    fn lists_that_do_not_reach_back_far_enough_decide_nothing() {
        let (own, theirs) = (Log::new(&[(2, 7)]), Log::new(&[(4, 5)]));
        let ((marks, end), (their_marks, their_end)) = (own.split(), theirs.split());
        for (own_complete, complete) in [(false, true), (true, false), (false, false)] {
            let epoch = LeaseEpoch(9);
            let leader = HelloLog { epoch, end: their_end, marks: their_marks, complete };
            assert_eq!(fork(marks, own_complete, &end, &leader), Fork::TooOld);
        }
    }

    #[test]
    fn two_histories_of_one_reign_are_an_alarm() {
        let log = Log::new(&[(1, 5)]);
        let (_, end) = log.split();
        let their_end = LogEnd { hash: [9; 32], ..end };
        let epoch = LeaseEpoch(2);
        let leader = HelloLog { epoch, end: their_end, marks: &[], complete: true };
        let expected = Fork::Impossible { epoch: LeaseEpoch(1), lsn: Lsn(5) };
        assert_eq!(fork(&[], true, &end, &leader), expected);
    }
}
