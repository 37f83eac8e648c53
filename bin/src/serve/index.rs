//! Saved indexes.
use duolog_engine::index::lookup::Run;
use std::sync::Arc;

/// All saved indexes of a shard.
#[derive(Clone, Debug, Default)]
pub struct SavedIndexes {
    /// Oldest first.
    pub runs: Vec<Arc<Run>>,
}
