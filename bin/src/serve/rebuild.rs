//! A shard whose log was cut, recovered anew while the old machine still serves readers.

use duolog_engine::ids::{Lsn, ShardId};
use duolog_engine::shard::Shard;

use super::index::SavedIndexes;
use super::uring::LogMap;

/// The outcome of a cut.
#[derive(Debug)]
pub struct Rebuilt {
    /// The shard.
    pub shard: ShardId,
    /// The last event kept.
    pub kept: Lsn,
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
