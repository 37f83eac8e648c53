//! Bringing a shard's machine up from its files, before its thread starts.

use std::path::Path;

use duolog_engine::block::{BLOCK_HEADER_BYTES, BlockHeader};
use duolog_engine::disk::blank::blank_behind;
use duolog_engine::disk::index_store::{DamagedRun, IndexFiles, OpenedIndex};
use duolog_engine::disk::mark::MarkFile;
use duolog_engine::disk::shard_dir::{DirSource, ShardDir};
use duolog_engine::ids::{Generation, Place, ShardId};
use duolog_engine::recovery::{
    Checkpoint, Damage, Ending, LogIdentity, LogSource, Proof, RecoverError, ScanEnd, empty_log,
    recover,
};
use duolog_engine::segment::{LogEnd, SegmentHeader};
use duolog_engine::shard::{Shard, ShardConfig};
use duolog_engine::waymarks::Waymarks;

use super::progress::{Counted, Progress};
use super::repair::{self, Gap, Lender, Patience};
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
    /// Its saved indexes.
    pub indexes: IndexFiles,
}

/// Damaged indexes and gaps in the log that are mended one by one at a start, at most. Each costs a
/// read of the log's tail; one is rare.
const REPAIRS_MAX: usize = 64;

/// Recovers one shard. What is missing in the log of a node of a pair comes from `lender`.
pub fn open(
    data_dir: &Path,
    config: ShardConfig,
    lender: Option<&Lender>,
    progress: &Progress,
) -> Result<RecoveredShard, Failure> {
    let dir = ShardDir::new(data_dir, config.shard);
    let mut doubts = true;
    for _ in 0..REPAIRS_MAX {
        match open_once(data_dir, config, doubts, progress)? {
            Opened::Shard(shard) => {
                progress.finish();
                return Ok(*shard);
            }
            Opened::Repaired => {}
            Opened::Damaged(damage, gap) => mend(&dir, &config, lender, &damage, &gap)?,
            Opened::Doubted(damage, gap) => doubts = dispel(&dir, &config, lender, &damage, &gap),
        }
    }
    let text = format!("shard {} is found damaged again and again", config.shard);
    Err(Failure::new(Exit::DataDirUnusable, text))
}

/// Asks the other node for blocks that may have been lost; false if it does not give them.
fn dispel(
    dir: &ShardDir,
    config: &ShardConfig,
    lender: Option<&Lender>,
    damage: &Damage,
    gap: &Gap,
) -> bool {
    let Some(lender) = lender else { return false };
    let Damage { first, last, .. } = damage;
    let shard = config.shard.0;
    let outcome = repair::repair(lender, dir, config, gap, Patience::Doubted);
    match &outcome {
        Ok(end) => tracing::warn!(
            event = "log_repaired",
            shard,
            first = first.0,
            last = end.0,
            "the tail was torn where a later block says it was committed; it came back from the \
             other node",
        ),
        Err(error) => tracing::warn!(
            event = "tail_cut", shard, first = first.0, last = last.0, %error,
            "the tail is torn where a later block says it was committed, and the other node does \
             not give it back: either it was on its way here when this node stopped, or the disk \
             has lost what it had acknowledged",
        ),
    }
    outcome.is_ok()
}

fn mend(
    dir: &ShardDir,
    config: &ShardConfig,
    lender: Option<&Lender>,
    damage: &Damage,
    gap: &Gap,
) -> Result<(), Failure> {
    let shard = config.shard;
    let Some(lender) = lender else {
        let advice = "restore the data directory from a backup";
        return Err(damaged(dir, shard, damage, advice));
    };
    let Damage { first, last, place, .. } = damage;
    tracing::warn!(
        event = "log_damaged",
        shard = shard.0,
        first = first.0,
        last = last.0,
        segment = place.generation.0,
        "fetching the events that are missing from the other node",
    );
    match repair::repair(lender, dir, config, gap, Patience::Missing) {
        Ok(end) => {
            tracing::warn!(
                event = "log_repaired",
                shard = shard.0,
                first = first.0,
                last = end.0,
                "events came back from the other node",
            );
            Ok(())
        }
        Err(error) => {
            let advice = format!(
                "see that the other node runs and leads, then start this one again; or keep the \
                 directory aside, start with an empty one and let `duolog node replace` admit it. \
                 The events did not come from the other node, because: {error}"
            );
            Err(damaged(dir, shard, damage, &advice))
        }
    }
}

enum Opened {
    Shard(Box<RecoveredShard>),
    /// A saved index was damaged and has been rebuilt: begin anew.
    Repaired,
    /// Events are missing.
    Damaged(Damage, Gap),
    /// Events may be missing.
    Doubted(Damage, Gap),
}

fn open_once(
    data_dir: &Path,
    config: ShardConfig,
    doubts: bool,
    progress: &Progress,
) -> Result<Opened, Failure> {
    let shard = config.shard;
    let dir = ShardDir::new(data_dir, shard);
    let failed = |error: &dyn std::fmt::Display| {
        let text =
            format!("shard {shard} in {} cannot be recovered: {error}", dir.path().display());
        Failure::new(Exit::DataDirUnusable, text)
    };
    let failed_io = |error: std::io::Error| failed(&error);
    dir.create().map_err(failed_io)?;
    let (mark, marked) = MarkFile::open(&dir.mark()).map_err(failed_io)?;
    let identity = LogIdentity { cluster: config.cluster, shard };
    let opened =
        IndexFiles::open(dir.clone(), config.cluster, shard, config.idempotency_window, key_seed());
    let OpenedIndex { mut files, keys, flushed, end, rebuild } = opened;
    if let Some(reason) = rebuild {
        tracing::warn!(event = "index_rebuild", shard = shard.0, reason, "reading the whole log");
    }
    let end = end.unwrap_or_else(|| empty_log(identity));
    let mut source = DirSource::new(dir.clone());
    if let Some((damage, gap)) = missing(&mut source, flushed, &end, identity).map_err(failed_io)? {
        return Ok(Opened::Damaged(damage, gap));
    }
    let checkpoint = Checkpoint { flushed, end, mark: marked, keys };
    let mut counted = Counted::new(&mut source, progress);
    let recovered = match recover(&config, &mut counted, checkpoint, &mut files) {
        Ok(recovered) => recovered,
        Err(error @ RecoverError::OtherCluster { .. }) => {
            return Err(Failure::new(Exit::DataDirMismatch, error));
        }
        Err(RecoverError::Io(error)) => {
            let Some(damaged) = DamagedRun::of(&error) else { return Err(failed_io(error)) };
            tracing::warn!(event = "index_rebuild", shard = shard.0, reason = %damaged);
            files.repair(damaged.first, damaged.last, &config).map_err(failed_io)?;
            return Ok(Opened::Repaired);
        }
        Err(other) => return Err(failed(&other)),
    };
    let end = recovered.scan.end;
    tracing::info!(
        event = "recovered", shard = shard.0, lsn = end.lsn.0,
        segment = recovered.scan.place.generation.0,
        blocks = recovered.blocks, events = recovered.events, ending = ?recovered.scan.ending,
    );
    if let Some(error) = recovered.save_error {
        let count = recovered.start.unsaved.len();
        tracing::warn!(event = "index_not_saved", shard = shard.0, count, %error);
    }
    if let Some(damage) = recovered.scan.doubt.filter(|_| doubts) {
        return Ok(Opened::Doubted(damage, gap(&recovered.scan, &damage, None)));
    }
    if let Ending::Damaged(damage) = recovered.scan.ending {
        return Ok(Opened::Damaged(damage, gap(&recovered.scan, &damage, marked)));
    }
    dir.set_aside_beyond(recovered.start.newest).map_err(failed_io)?;
    if config.pair.is_some() {
        let align_bytes = config.layout.align_bytes;
        blank_behind(&dir, recovered.scan.place, align_bytes).map_err(failed_io)?;
    }
    let log_map = log_map(&mut source, recovered.start.newest, recovered.waymarks);
    let log_map = log_map.map_err(failed_io)?;
    let mut machine = Shard::new(config, recovered.start);
    machine.set_runs(files.runs());
    Ok(Opened::Shard(Box::new(RecoveredShard { machine, dir, mark, log_map, indexes: files })))
}

/// What is to be fetched: up to where the log goes on, else at least up to the mark.
fn gap(scan: &ScanEnd, damage: &Damage, marked: Option<LogEnd>) -> Gap {
    let (end, place) = (scan.end, scan.place);
    let known = damage.last_hash.map(|hash| (damage.last, hash));
    let joins = known.is_some();
    let marked = marked.filter(|mark| mark.lsn > end.lsn).map(|mark| (mark.lsn, mark.hash));
    Gap { end, place, known: known.or(marked), joins }
}

fn damaged(dir: &ShardDir, shard: ShardId, damage: &Damage, advice: &str) -> Failure {
    let Damage { first, last, place, proof, .. } = damage;
    let missing = match proof {
        Proof::Committed => format!(
            "acknowledged events with LSN {first} to {last} are missing or unreadable (segment \
             {}, offset {})",
            place.generation, place.offset
        ),
        Proof::FileLost => format!(
            "a segment file behind segment {}, offset {} is missing or was cut short; events with \
             LSN {first} to {last} and perhaps later ones are missing",
            place.generation, place.offset
        ),
    };
    let text = format!(
        "the log of shard {shard} in {} is damaged: {missing}. The node does not start, because \
         it would go on as if they had never been. Run `duolog verify` for the whole picture, and \
         {advice}",
        dir.path().display(),
    );
    Failure::new(Exit::LogDamaged, text)
}

pub(super) fn log_map(
    source: &mut DirSource,
    newest: Generation,
    waymarks: Waymarks,
) -> std::io::Result<LogMap> {
    let mut map = LogMap::new(waymarks);
    for (generation, _) in source.segments()? {
        if generation <= newest
            && let Some(header) = header(source, generation)?
        {
            map.segment(generation, &header.base);
        }
    }
    Ok(map)
}

/// Looks whether the segments whose index is saved are all there: their end was acknowledged.
fn missing(
    source: &mut DirSource,
    flushed: Generation,
    end: &LogEnd,
    identity: LogIdentity,
) -> std::io::Result<Option<(Damage, Gap)>> {
    let found = source.segments()?;
    let mut before = None;
    let mut gap: Option<(Generation, LogEnd, Place)> = None;
    for generation in (1..=flushed.0).map(Generation) {
        let there = found.binary_search_by_key(&generation, |(known, _)| *known);
        let size = there.map_or(0, |index| found[index].1);
        let header = header(source, generation)?;
        let whole = header.filter(|header| {
            header.generation == generation && u64::from(header.size_bytes) == size
        });
        match (whole, gap) {
            (Some(header), Some(gap)) => return Ok(Some(damage(gap, &header.base))),
            (Some(header), None) => before = Some(header),
            (None, None) => {
                let nothing = (empty_log(identity), Place::default());
                let (end, place) = before.map_or(Ok(nothing), |header| walk(source, &header))?;
                gap = Some((generation, end, place));
            }
            (None, Some(_)) => {}
        }
    }
    Ok(gap.map(|gap| damage(gap, end)))
}

/// The events between the end of what is there and `next`, where the log is whole again.
fn damage((generation, end, place): (Generation, LogEnd, Place), next: &LogEnd) -> (Damage, Gap) {
    let (first, last, last_hash) = (end.lsn.next(), next.lsn, Some(next.hash));
    let at = Place { generation, offset: 0 };
    let damage = Damage { first, last, place: at, proof: Proof::Committed, last_hash };
    (damage, Gap { end, place, known: Some((next.lsn, next.hash)), joins: true })
}

/// The end of a segment and the place behind it, as far as its blocks' headers lead.
fn walk(source: &mut DirSource, segment: &SegmentHeader) -> std::io::Result<(LogEnd, Place)> {
    let (generation, align_bytes) = (segment.generation, segment.align_bytes);
    let (mut end, mut place) = (segment.base, Place { generation, offset: align_bytes });
    loop {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        let read = source.read(generation, u64::from(place.offset), &mut bytes)?;
        let header = match BlockHeader::decode(&bytes[..read]) {
            Ok(header) if header.previous_hash == end.hash => header,
            _ => return Ok((end, place)),
        };
        let behind = u64::from(place.offset) + header.length() as u64;
        let behind = behind.next_multiple_of(u64::from(align_bytes));
        let Ok(offset) = u32::try_from(behind) else { return Ok((end, place)) };
        place.offset = offset;
        let (lsn, hash) = (header.last_lsn(), header.hash);
        end = LogEnd { lsn, hash, hlc: header.hlc, epoch: header.epoch };
    }
}

fn header(
    source: &mut DirSource,
    generation: Generation,
) -> std::io::Result<Option<SegmentHeader>> {
    let mut page = [0; 512];
    let read = source.read(generation, 0, &mut page)?;
    Ok(SegmentHeader::decode(&page[..read]).ok())
}

/// Spreads the idempotency keys of clients over the window's table in a way nobody can foresee.
#[expect(clippy::disallowed_methods, reason = "a random number at the edge")]
pub(super) fn key_seed() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}
