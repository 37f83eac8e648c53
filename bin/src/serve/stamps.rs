//! The newest stamp of any event that is committed in any shard of this node (invariant O1). The
//! one word that the shards of a node share: each raises it when it commits, and reads it when
//! appends come.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use duolog_engine::ids::Hlc;

/// See the module.
#[derive(Debug, Default)]
pub struct NewestStamp(AtomicU64);

impl NewestStamp {
    /// The newest of these.
    pub fn of(stamps: impl Iterator<Item = Hlc>) -> Arc<Self> {
        let newest = Self::default();
        stamps.for_each(|stamp| newest.raise(stamp));
        Arc::new(newest)
    }

    /// An event with this stamp is committed. To be called before anybody can hear of it.
    pub fn raise(&self, stamp: Hlc) {
        // Most calls bring nothing new: a look costs less than a locked instruction.
        if self.0.load(Ordering::Relaxed) < stamp.0 {
            self.0.fetch_max(stamp.0, Ordering::Release);
        }
    }

    /// The newest stamp.
    #[must_use]
    pub fn read(&self) -> Hlc {
        Hlc(self.0.load(Ordering::Acquire))
    }
}
