//! Taking the end off a log, durably: what lies behind the place where it parts from the leader's
//! or a chain's (rules R3, P3). Blocking.
//!
//! Safe at every moment of a crash: the last goes first, so what is left is always the beginning of
//! the old log and nothing that was committed is touched. A cut that was interrupted is done again.

use std::io;

use super::blank::blank_behind;
use super::mark;
use super::shard_dir::{DirSource, ShardDir};
use crate::ids::{Generation, Lsn};
use crate::recovery::{LogIdentity, LogSource, RecoverError, block_end_at};
use crate::shard::Boundary;

/// What is to be cut.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Last event to keep; 0 for none. A block ends with it.
    pub at: Lsn,
    /// The last event that the shard's machine knows to be committed.
    pub committed: Lsn,
}

/// Why a log was not cut.
#[derive(Debug, thiserror::Error)]
pub enum CutError {
    /// R4: what this node has acknowledged would be lost. Somebody's log is wrong; stop, and ask a
    /// human.
    #[error(
        "the log is to be cut behind LSN {at}, but everything up to {committed} is committed: this \
         node or the other one has lost events; stop both and compare their logs"
    )]
    BelowCommitted {
        /// Last LSN to keep.
        at: Lsn,
        /// Last committed LSN.
        committed: Lsn,
    },
    /// No block ends there.
    #[error("the log is to be cut behind LSN {at}, where no block of it ends")]
    NoBlock {
        /// Last LSN to keep.
        at: Lsn,
    },
    /// The files cannot be read.
    #[error("cutting the log: {0}")]
    Log(#[from] RecoverError),
    /// The files cannot be written.
    #[error("cutting the log: {0}")]
    Io(#[from] io::Error),
}

/// Makes the log end where the cut is; that end. Nothing may be under way to the disk, and nobody
/// writes meanwhile.
pub fn cut(
    dir: &ShardDir,
    identity: LogIdentity,
    align_bytes: u32,
    cut: Cut,
) -> Result<Boundary, CutError> {
    // R4: an alarm, not an action. The mark may know of an earlier life's commits.
    let Cut { at, committed } = cut;
    let marked = mark::read(&dir.mark())?.map_or(Lsn(0), |end| end.lsn);
    let committed = committed.max(marked);
    if at < committed {
        return Err(CutError::BelowCommitted { at, committed });
    }
    // Files that were prepared and not used have no header, so the newest one may be any.
    let newest = dir.segments()?.last().map_or(Generation(0), |(generation, _)| *generation);
    let mut source = DirSource::new(dir.clone());
    let found = block_end_at(&mut source, identity, newest, at)?;
    let kept = found.ok_or(CutError::NoBlock { at })?;
    source.settle(kept.behind.generation)?;
    dir.set_aside_beyond(kept.behind.generation)?;
    blank_behind(dir, kept.behind, align_bytes)?;
    Ok(kept)
}

#[cfg(test)]
pub(crate) mod tests;
