//! Saved indexes.
use std::path::PathBuf;
use std::sync::Arc;

use duolog_engine::ids::ShardId;
use duolog_engine::index::lookup::Run;
use duolog_engine::shard::Sealed;

/// All saved indexes of a shard.
#[derive(Clone, Debug, Default)]
pub struct SavedIndexes {
    /// Oldest first.
    pub runs: Vec<Arc<Run>>,
    pub dir: PathBuf,
}

impl SavedIndexes {
    pub fn path(&self, run: &Run) -> PathBuf {
        let scope = &run.header().scope;
        self.dir.join(format!("run-{:010}-{:010}.idx", scope.first.0, scope.last.0))
    }
}

/// Work for the index thread.
#[derive(Debug)]
pub enum IndexJob {
    Save(ShardId, Arc<Sealed>),
}
