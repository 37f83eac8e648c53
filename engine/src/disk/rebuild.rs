//! A log that is cut and read anew while the node runs: the machine that had the longer log goes on
//! answering reads, the one that is made here takes its place. Blocking; for the thread that saves
//! indexes, so that no index is saved by two at once.

use std::io;

use super::cut::{CutError, CutLog, cut};
use super::index_store::{IndexFiles, OpenedIndex};
use super::shard_dir::{DirSource, ShardDir};
use crate::ids::Lsn;
use crate::recovery::{Checkpoint, LogIdentity, RecoverError, Recovered, empty_log, recover};
use crate::segment::LogEnd;
use crate::shard::ShardConfig;

/// What is known of the log from the machine that has it.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// See [`CutLog`].
    pub log: CutLog,
    /// The newest mark.
    pub mark: Option<LogEnd>,
    /// Spreads idempotency keys; see [`crate::index::keys::KeyWindow`].
    pub key_seed: u64,
}

/// A log read anew.
#[derive(Debug)]
pub struct Rebuilt {
    /// For [`crate::shard::Shard::new`].
    pub recovered: Recovered,
    /// The saved indexes. They take the place of those opened before.
    pub files: IndexFiles,
}

/// Why it did not work.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// The cut.
    #[error(transparent)]
    Cut(#[from] CutError),
    /// The reading.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// Setting files aside.
    #[error("reading the log anew: {0}")]
    Io(#[from] io::Error),
}

/// Cuts the log behind the event `at` and recovers it. What the old machine has asked for is over
/// and nothing is begun: writes, marks, saves of indexes, preparations of segments. The segments
/// prepared for it are set aside; the new machine asks for its own.
pub fn cut_and_recover(
    dir: &ShardDir,
    config: &ShardConfig,
    known: &Known,
    at: Lsn,
) -> Result<Rebuilt, RebuildError> {
    cut(dir, &known.log, at)?;
    let identity = LogIdentity { cluster: config.cluster, shard: config.shard };
    let (window, seed) = (config.idempotency_window, known.key_seed);
    let opened = IndexFiles::open(dir.clone(), config.cluster, config.shard, window, seed);
    let OpenedIndex { mut files, keys, flushed, end, .. } = opened;
    let end = end.unwrap_or_else(|| empty_log(identity));
    let checkpoint = Checkpoint { flushed, end, mark: known.mark, keys };
    let mut source = DirSource::new(dir.clone());
    let recovered = recover(config, &mut source, checkpoint, &mut files)?;
    dir.set_aside_beyond(recovered.start.newest)?;
    Ok(Rebuilt { recovered, files })
}
