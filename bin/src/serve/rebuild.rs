//! A shard whose log was cut, recovered anew while the old machine still serves readers.

use duolog_engine::disk::cut::Cut;
use duolog_engine::disk::index_store::IndexFiles;
use duolog_engine::disk::rebuild::cut_and_recover;
use duolog_engine::disk::shard_dir::DirSource;
use duolog_engine::ids::Lsn;
use duolog_engine::recovery::Recovered;
use duolog_engine::segment::LogEnd;
use duolog_engine::shard::{Shard, ShardConfig};

use super::index::SavedIndexes;
use super::recover::{key_seed, log_map};
use super::uring::LogMap;

/// What is to be cut, as the old machine knows its log.
#[derive(Clone, Copy, Debug)]
pub struct CutJob {
    /// The last event to keep.
    pub keep: Lsn,
    /// The end of what is committed.
    pub committed: LogEnd,
}

/// The outcome of a cut.
#[derive(Debug)]
pub struct Rebuilt {
    /// The last event to keep.
    pub keep: Lsn,
    /// The new machine, or why there is none: the log is as it was, or cut and to be recovered at
    /// the next start.
    pub result: Result<RebuiltShard, String>,
}

/// What takes the old machine's place.
#[derive(Debug)]
pub struct RebuiltShard {
    /// The machine.
    pub machine: Shard,
    /// Where its segments begin.
    pub log_map: LogMap,
    /// Its saved indexes.
    pub indexes: SavedIndexes,
}

/// Cuts and recovers. For the thread that saves indexes; `files` are replaced.
pub fn rebuild(files: &mut IndexFiles, config: &ShardConfig, job: &CutJob) -> Rebuilt {
    let result = try_rebuild(files, config, job);
    Rebuilt { keep: job.keep, result }
}

fn try_rebuild(
    files: &mut IndexFiles,
    config: &ShardConfig,
    job: &CutJob,
) -> Result<RebuiltShard, String> {
    let dir = files.shard_dir().clone();
    let CutJob { keep, committed } = *job;
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let cut = Cut { at: keep, committed: committed.lsn };
    let rebuilt = cut_and_recover(&dir, config, cut, key_seed()).map_err(|error| text(&error))?;
    let Recovered { start, waymarks, .. } = rebuilt.recovered;
    let log_map = log_map(&mut DirSource::new(dir), start.newest, waymarks);
    let log_map = log_map.map_err(|error| text(&error))?;
    let mut machine = Shard::new(*config, start);
    machine.set_runs(rebuilt.files.runs());
    *files = rebuilt.files;
    Ok(RebuiltShard { machine, log_map, indexes: SavedIndexes::of(files) })
}
