//! Where `/metrics` reads from, whenever somebody asks.

use std::path::PathBuf;
use std::sync::Arc;

use super::reading::{Disk, PairReading, Reading, ShardPart};
use super::shard::stages;
use crate::datadir::Identity;
use crate::serve::clock::Clock;
use crate::serve::cluster::PairSettings;
use crate::serve::inbox::Inbox;
use crate::serve::vitals::Vitals;

/// See the module.
#[derive(Debug)]
pub struct Sources {
    inboxes: Arc<[Arc<Inbox>]>,
    pair: Option<Arc<PairSettings>>,
    data_dir: PathBuf,
    cluster: String,
    node: String,
    started_ms: u64,
}

impl Sources {
    /// Of a node that starts now; `pair` is none on a standalone one.
    #[must_use]
    pub fn new(
        inboxes: Arc<[Arc<Inbox>]>,
        pair: Option<Arc<PairSettings>>,
        data_dir: PathBuf,
        identity: &Identity,
    ) -> Self {
        let (cluster, node) = (identity.cluster_id.to_string(), identity.node_id.to_string());
        let started_ms = Clock.now().wall.0;
        Self { inboxes, pair, data_dir, cluster, node, started_ms }
    }

    /// Everything, now. Looks at files of `/proc` and at the data directory's file system.
    #[must_use]
    pub fn read(&self) -> Reading {
        let shards = self.inboxes.iter().map(|inbox| ShardPart {
            log: inbox.gauge.read(),
            counts: inbox.metrics.read(),
            pokes: inbox.pokes.get(),
            rescues: inbox.rescues.get(),
        });
        let role = match self.pair {
            Some(_) => self.inboxes[0].node.role().name(),
            None => "standalone",
        };
        Reading {
            cluster: self.cluster.clone(),
            node: self.node.clone(),
            role,
            pair: self.pair.as_deref().map(pair),
            shards: shards.collect(),
            stages: stages(self.inboxes.iter().map(|inbox| &inbox.metrics)),
            vitals: Vitals::now(),
            started_ms: self.started_ms,
            disk: self.disk(),
        }
    }

    fn disk(&self) -> Option<Disk> {
        let told = rustix::fs::statvfs(&self.data_dir).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(told.f_frsize);
        Some(Disk { free: bytes(told.f_bavail), size: bytes(told.f_blocks) })
    }
}

fn pair(settings: &PairSettings) -> PairReading {
    let node = settings.metrics.read();
    let now_ms = Clock.mono().ms().0;
    let lease_remaining_ms = node.standing.serve_until_ms.saturating_sub(now_ms);
    let (s3, s3_skew_ms) = (settings.store.requests(), settings.store.skew_ms());
    PairReading { node, lease_remaining_ms, s3_skew_ms, s3 }
}
