//! The server: shards on their executors.

use crate::datadir;
use crate::exit::{Exit, Failure};
use crate::probe;
use crate::settings::Settings;

/// Serves until a signal ends it.
pub fn run(settings: &Settings) -> Result<Exit, Failure> {
    let direct = probe::boot(settings)?;
    let dir = settings.data_dir()?;
    let refused = |error: datadir::DataDirError| Failure::new(error.exit(), error);
    let _lock = datadir::lock(dir).map_err(refused)?;
    let origin = settings.origin("shards.count");
    let identity = datadir::identify(dir, settings.shards.count, &origin).map_err(refused)?;
    tracing::info!(cluster = ?identity.cluster(), node = ?identity.node(), "identity");
    announce(settings, direct.offset_align_bytes);
    Err(Failure::new(Exit::Internal, "the server is not built yet"))
}

fn announce(settings: &Settings, align_bytes: u32) {
    let Settings { shards, log, limits, memory, .. } = settings;
    tracing::info!(
        data_dir = ?settings.data_dir,
        standalone = settings.standalone,
        client = %settings.listen.client,
        shards = shards.count,
        cpus = ?shards.cpus,
        align_bytes,
        segment_size_bytes = log.segment_size_bytes,
        blocks_in_flight = log.blocks_in_flight,
        idempotency_window = log.idempotency_window,
        event_max_bytes = limits.event_max_bytes,
        connection_in_flight = limits.connection_in_flight,
        shard_in_flight = limits.shard_in_flight,
        hot_streams = memory.hot_streams,
        recent_blocks_bytes = memory.recent_blocks_bytes,
        watchdog_bound_ms = settings.watchdog.bound_ms,
        "settings"
    );
}
