//! What a node of a pair makes before its shards start.

use std::path::Path;
use std::sync::Arc;

use duolog_engine::ids::LeaseEpoch;
use duolog_engine::shard::Layout;
use duolog_lease::ids::RunId;
use duolog_lease::machine::Identity as LeaseIdentity;

use super::PairSettings;
use super::join::{self, Joined};
use super::promise::PromiseFile;
use super::store::{self, Runner};
use crate::datadir::Identity;
use crate::exit::{Exit, Failure};
use crate::serve::metrics::NodeMetrics;
use crate::serve::repair::Lender;
use crate::settings::Settings;

/// See the module.
#[derive(Debug)]
pub struct PairBoot {
    /// What every shard knows.
    pub settings: Arc<PairSettings>,
    /// The side thread's part.
    pub runner: Runner,
    /// The epoch on disk.
    pub promised: LeaseEpoch,
    /// Where a damaged log gets its blocks back from.
    pub lender: Lender,
}

impl PairBoot {
    /// Joins the cluster of the bucket, or founds one.
    pub fn prepare(
        settings: &Settings,
        path: &Path,
        align_bytes: u32,
    ) -> Result<(Identity, Self), Failure> {
        let timings = settings.cluster.timings();
        let timings = timings.map_err(|error| Failure::new(Exit::Usage, error))?;
        let Joined { identity, is_new, client, keys } = join::join(settings, path)?;
        let promised = PromiseFile::new(path).read();
        let promised =
            promised.map_err(|error| Failure::new(Exit::DataDirMismatch, error.to_string()))?;
        let (store, runner) = store::channel(client.clone());
        let count = settings.shards.count;
        let advertised = |name: &Option<String>, listen: std::net::SocketAddr| {
            name.clone().unwrap_or_else(|| listen.to_string())
        };
        let cluster = &settings.cluster;
        let pair = PairSettings {
            identity: LeaseIdentity {
                node: identity.node(),
                cluster: identity.cluster(),
                run: run_id(),
            },
            timings,
            keys,
            store,
            shard_count: count,
            layout: Layout { segment_size_bytes: settings.log.segment_size_bytes, align_bytes },
            client_address: advertised(&cluster.advertise_client, settings.listen.client),
            peer_address: advertised(&cluster.advertise_peer, cluster.listen_peer),
            replication_delay_ms: cluster.replication_delay_ms,
            metrics: NodeMetrics::default(),
            data_dir: path.to_owned(),
            is_new,
        };
        let settings = Arc::new(pair);
        let lender = Lender { settings: Arc::clone(&settings), client: client.once(), promised };
        Ok((identity, Self { settings, runner, promised, lender }))
    }
}

#[expect(clippy::disallowed_methods, reason = "a random number at the edge, once per start")]
fn run_id() -> RunId {
    RunId::new(uuid::Uuid::new_v4().as_u128())
}
