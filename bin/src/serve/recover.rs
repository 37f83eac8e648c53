//! Bringing a shard's machine up from its files, before its thread starts.

use std::path::Path;

use duolog_engine::disk::mark::MarkFile;
use duolog_engine::disk::shard_dir::{DirSource, ShardDir};
use duolog_engine::ids::{Generation, ShardId, StreamId};
use duolog_engine::index::keys::KeyWindow;
use duolog_engine::recovery::{
    Checkpoint, Damage, Ending, IndexStore, LogIdentity, LogSource, RecoverError, empty_log,
    recover,
};
use duolog_engine::segment::SegmentHeader;
use duolog_engine::shard::{Sealed, Shard, ShardConfig, StoredHead};

use super::uring::LogMap;
use crate::exit::{Exit, Failure};

/// A shard ready to be started.
#[derive(Debug)]
pub struct RecoveredShard {
    /// The machine.
    pub machine: Shard,
    /// Its directory.
    pub dir: ShardDir,
    /// Its mark file.
    pub mark: MarkFile,
    /// Where its segments begin.
    pub log_map: LogMap,
}

/// Recovers one shard.
pub fn open(data_dir: &Path, config: ShardConfig) -> Result<RecoveredShard, Failure> {
    let shard = config.shard;
    let dir = ShardDir::new(data_dir, shard);
    let failed = |error: &dyn std::fmt::Display| {
        let text =
            format!("shard {shard} in {} cannot be recovered: {error}", dir.path().display());
        Failure::new(Exit::DataDirUnusable, text)
    };
    dir.create().map_err(|error| failed(&error))?;
    let (mark, marked) = MarkFile::open(&dir.mark()).map_err(|error| failed(&error))?;
    let identity = LogIdentity { cluster: config.cluster, shard };
    let checkpoint = Checkpoint {
        flushed: Generation(0),
        end: empty_log(identity),
        mark: marked,
        keys: KeyWindow::new(config.idempotency_window, 0),
    };
    let mut source = DirSource::new(dir.clone());
    let recovered = recover(&config, &mut source, checkpoint, &mut NoIndex);
    let recovered = recovered.map_err(|error| match error {
        RecoverError::OtherCluster { .. } => Failure::new(Exit::DataDirMismatch, error),
        other => failed(&other),
    })?;
    let end = recovered.scan.end;
    tracing::info!(
        event = "recovered", shard = shard.0, lsn = end.lsn.0, segment = recovered.scan.place.generation.0,
        blocks = recovered.blocks, events = recovered.events, ending = ?recovered.scan.ending,
    );
    if let Ending::Damaged(damage) = recovered.scan.ending {
        return Err(damaged(&dir, shard, &damage));
    }
    dir.set_aside_beyond(recovered.start.newest).map_err(|error| failed(&error))?;
    let log_map = log_map(&mut source, recovered.start.newest).map_err(|error| failed(&error))?;
    let machine = Shard::new(config, recovered.start);
    Ok(RecoveredShard { machine, dir, mark, log_map })
}

fn damaged(dir: &ShardDir, shard: ShardId, damage: &Damage) -> Failure {
    let text = format!(
        "the log of shard {shard} in {} is damaged: acknowledged events with LSN {} to {} are \
         missing or unreadable (segment {}, offset {}). The node does not start, because it would \
         go on as if they had never been. Run `duolog verify` for the whole picture and restore \
         the data directory from a backup",
        dir.path().display(),
        damage.first,
        damage.last,
        damage.place.generation,
        damage.place.offset
    );
    Failure::new(Exit::LogDamaged, text)
}

fn log_map(source: &mut DirSource, newest: Generation) -> std::io::Result<LogMap> {
    let mut map = LogMap::default();
    for (generation, _) in source.segments()? {
        let mut page = [0; 512];
        source.read(generation, 0, &mut page)?;
        if generation <= newest
            && let Ok(header) = SegmentHeader::decode(&page)
        {
            map.segment(generation, header.base.lsn);
        }
    }
    Ok(map)
}

struct NoIndex;

impl IndexStore for NoIndex {
    fn save(&mut self, _: Sealed) -> std::io::Result<()> {
        Ok(())
    }

    fn head(&mut self, _: StreamId) -> std::io::Result<Option<StoredHead>> {
        Ok(None)
    }
}
