//! What kind of end a log has. Three kinds (invariant D4): *clean*: nothing behind it; *torn*:
//! blocks behind it that were in flight when the node stopped, none of them proof of anything;
//! *damaged*: a later whole block whose commit mark lies beyond the end, or a durable mark that
//! does: something that was acknowledged is missing.

use super::RecoverError;
use crate::block::{BlockHash, BlockHeader};
use crate::ids::{Generation, Hlc, Lsn, Place};
use crate::segment::LogEnd;

/// How a log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nothing lies behind the end.
    Clean,
    /// Blocks that were being written when the node stopped; not acknowledged, cut off.
    Torn {
        /// Whole blocks behind the end.
        blocks: u32,
    },
    /// Acknowledged events are missing.
    Damaged(Damage),
}

/// How it is known that events are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A later block or the mark says that they were committed.
    Committed,
    /// A segment file is missing or was cut: they may have been committed, and others behind them.
    FileLost,
}

/// Which events are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// First missing LSN.
    pub first: Lsn,
    /// Last LSN known to be missing.
    pub last: Lsn,
    /// Where the first missing block should be.
    pub place: Place,
    /// How that is known.
    pub proof: Proof,
    /// The hash of the block that ends with `last`, as the block behind it names it. `None` when no
    /// such block is there: then later events may be missing, too.
    pub last_hash: Option<BlockHash>,
}

/// How a row of blocks begins.
#[derive(Clone, Copy, Debug)]
struct RowStart {
    first: Lsn,
    previous_hash: BlockHash,
}

/// What lies behind the end of a log, gathered in the order of the files.
#[derive(Debug)]
pub(super) struct Behind {
    end: LogEnd,
    mark: Option<LogEnd>,
    /// Whether commit marks of later blocks are proof. On a node of a pair they are not: they say
    /// what the leader knew, and blocks are written there in any order.
    blocks_prove: bool,
    blocks: u32,
    newest_stamp: Hlc,
    /// Blocks that follow each other by hash without a gap, and the hash of the last.
    row: Option<(RowStart, BlockHash)>,
    /// The highest LSN that is known to have been committed, and the row of blocks that ends with
    /// whoever says so, if it is there.
    proof: Option<(Lsn, Option<RowStart>)>,
    /// The same of commit marks that prove nothing.
    doubt: Option<(Lsn, Option<RowStart>)>,
    /// A file is missing or was cut.
    file_lost: bool,
    /// First place where a newer program has written.
    newer: Option<(Place, u16)>,
}

impl Behind {
    /// Nothing seen yet behind `end`. `mark` is an end known to have been committed.
    pub(super) fn new(end: LogEnd, mark: Option<LogEnd>, blocks_prove: bool) -> Self {
        let proof = mark.filter(|mark| mark.lsn > end.lsn).map(|mark| (mark.lsn, None));
        let (blocks, newest_stamp, row, newer) = (0, end.hlc, None, None);
        let (doubt, file_lost) = (None, false);
        Self { end, mark, blocks_prove, blocks, newest_stamp, row, proof, doubt, file_lost, newer }
    }

    /// A whole block of this log.
    pub(super) fn block(&mut self, header: &BlockHeader) {
        self.blocks += 1;
        self.newest_stamp = self.newest_stamp.max(header.hlc);
        let (first, previous_hash) = (header.first_lsn, header.previous_hash);
        let (row, _) = self
            .row
            .filter(|(_, last)| *last == header.previous_hash)
            .unwrap_or((RowStart { first, previous_hash }, header.hash));
        self.row = Some((row, header.hash));
        // D4: a commit mark beyond the end is proof, or a reason to doubt.
        let told = if self.blocks_prove { &mut self.proof } else { &mut self.doubt };
        if header.commit_mark > told.map_or(self.end.lsn, |(lsn, _)| lsn) {
            *told = Some((header.commit_mark, Some(row)));
        }
        let known = self.proof.map_or(self.end.lsn, |(lsn, _)| lsn);
        if self.mark.is_some_and(|mark| mark.lsn == known && mark.hash == header.hash) {
            self.proof = Some((known, Some(row)));
        }
    }

    /// A segment file is missing or was cut.
    pub(super) fn lost_file(&mut self) {
        self.file_lost = true;
    }

    /// Something that only a newer program can read.
    pub(super) fn newer(&mut self, place: Place, version: u16) {
        self.newer.get_or_insert((place, version));
    }

    /// See [`super::ScanEnd`].
    pub(super) const fn newest_stamp(&self) -> Hlc {
        self.newest_stamp
    }

    /// The kind of end. The log ends at `place`; `first` is the first segment that was looked at.
    pub(super) fn ending(&self, first: Generation, place: Place) -> Result<Ending, RecoverError> {
        match self.proof {
            Some((lsn, row)) => Ok(Ending::Damaged(self.missing(lsn, row, first, place))),
            None if self.file_lost => {
                let missing = self.missing(self.end.lsn.next(), None, first, place);
                Ok(Ending::Damaged(Damage { proof: Proof::FileLost, ..missing }))
            }
            None => self.undamaged(),
        }
    }

    /// What would be missing if commit marks of later blocks were to be believed, where they are
    /// not.
    pub(super) fn doubt(&self, first: Generation, place: Place) -> Option<Damage> {
        self.doubt.map(|(lsn, row)| self.missing(lsn, row, first, place))
    }

    /// What is missing, if everything up to `lsn` was committed.
    fn missing(&self, lsn: Lsn, row: Option<RowStart>, first: Generation, place: Place) -> Damage {
        let missing = self.end.lsn.next();
        let (last, last_hash) = match row {
            // A block with proof names its past by hash, so the row of blocks that ends with it
            // belongs to this log: missing is what comes before the row. When nothing does, the
            // segment's header is missing, and with it all of its events.
            Some(row) if row.first > missing => (Lsn(row.first.0 - 1), Some(row.previous_hash)),
            _ => (lsn, None),
        };
        let begun = place.generation >= first;
        let place = if begun { place } else { Place { generation: first, offset: 0 } };
        Damage { first: missing, last, place, proof: Proof::Committed, last_hash }
    }

    fn undamaged(&self) -> Result<Ending, RecoverError> {
        match self.newer {
            Some((place, version)) => Err(RecoverError::Newer { place, version }),
            None if self.blocks == 0 => Ok(Ending::Clean),
            None => Ok(Ending::Torn { blocks: self.blocks }),
        }
    }
}
