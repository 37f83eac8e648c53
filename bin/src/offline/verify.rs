//! `duolog verify DIR`: every checksum and every hash link of every shard, without a server.

use std::path::{Path, PathBuf};

use clap::Args;
use duolog_engine::disk::mark;
use duolog_engine::disk::shard_dir::ShardDir;
use duolog_engine::ids::ShardId;
use serde_json::{Value as Json, json};

use crate::datadir::{self, Identity};
use crate::exit::{Exit, Failure};
use crate::offline::chain::hex;
use crate::offline::compare;
use crate::offline::shard::{self, ShardReport};
use crate::output::Output;

/// Examples and rules for `--help`.
pub const HELP: &str = "\
Examples:
  duolog verify ./data
  duolog verify ./data --json | jq '.shards[] | select(.damage != [])'
  duolog verify ./one --compare ./other      # the logs of both nodes of a pair, block by block

Stop the server first: a directory in use is refused. A torn tail (blocks that were being
written when the node stopped, never acknowledged) is no damage: the next start cuts it off.
Exit code 0: every block is whole and linked; 1: committed events are damaged or missing, or two
logs that are compared contradict each other in what is committed.";

/// `duolog verify`
#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// The data directory.
    pub dir: PathBuf,
    /// Compares the log with that of the pair's other node: equal, one ahead, or where they part.
    #[arg(long, value_name = "OTHER")]
    pub compare: Option<PathBuf>,
    /// Machine-readable output.
    #[arg(long)]
    pub json: bool,
}

/// Reads the whole directory and prints one summary per shard.
pub fn run(arguments: &VerifyArgs, mut output: Output) -> Result<Exit, Failure> {
    let dir = &arguments.dir;
    if let Some(other) = &arguments.compare {
        return compare::run([dir, other], arguments.json, output);
    }
    let refused = |error: datadir::DataDirError| Failure::new(error.exit(), error);
    let identity = Identity::read(dir).map_err(refused)?.ok_or_else(|| {
        let text = format!("{} is no data directory: it has no identity.json", dir.display());
        Failure::new(Exit::Usage, text)
    })?;
    let _lock = datadir::lock_for_reading(dir).map_err(refused)?;
    let mut reports = Vec::new();
    for number in 0..identity.shard_count {
        reports.push(read_shard(dir, &identity, ShardId(number))?);
    }
    if arguments.json {
        output.json(&document(&identity, &reports))?;
    } else {
        output.text(&table(&identity, &reports))?;
    }
    output.flush()?;
    Ok(if damaged(&reports) { Exit::CheckFailed } else { Exit::Ok })
}

fn read_shard(dir: &Path, identity: &Identity, shard: ShardId) -> Result<ShardReport, Failure> {
    let dir = ShardDir::new(dir, shard);
    // A damaged mark proves nothing; only a whole one does.
    let report = mark::read(&dir.mark()).and_then(|mark| {
        shard::verify(dir.path(), identity.cluster(), shard, mark.map(|end| end.lsn))
    });
    report.map_err(|error| {
        Failure::new(Exit::LocalIo, format!("cannot read {}: {error}", dir.path().display()))
    })
}

fn damaged(reports: &[ShardReport]) -> bool {
    reports.iter().any(|report| !report.verdict.damage.is_empty())
}

fn table(identity: &Identity, reports: &[ShardReport]) -> String {
    let mut out = format!(
        "cluster {}, node {}, {} shards\n",
        identity.cluster_id, identity.node_id, identity.shard_count
    );
    for ShardReport { shard, segments, prepared, verdict } in reports {
        let (tally, last) = (&verdict.tally, verdict.end.lsn);
        out.push_str(&format!(
            "shard {shard}: {} events, LSN {}-{last}, {} blocks, {} bytes, \
             {segments} segments (+{prepared} prepared), last hash {:.16}\n",
            tally.events,
            tally.first_lsn,
            tally.blocks,
            tally.bytes,
            hex(&verdict.end.hash),
        ));
        if verdict.torn {
            out.push_str(&format!(
                "  torn tail behind LSN {last}: {} whole blocks, never acknowledged\n",
                verdict.strays
            ));
        }
        for damage in &verdict.damage {
            out.push_str(&format!(
                "  DAMAGE  LSN {}-{}: {} at byte {}: {}\n",
                damage.first, damage.last, damage.spot.file, damage.spot.offset, damage.reason
            ));
        }
    }
    let verdict = if damaged(reports) { "damaged" } else { "whole" };
    out.push_str(&format!("the log is {verdict}\n"));
    out
}

fn document(identity: &Identity, reports: &[ShardReport]) -> Json {
    let shards = reports.iter().map(|ShardReport { shard, segments, prepared, verdict }| {
        let damage = verdict.damage.iter().map(|damage| {
            json!({
                "first_lsn": damage.first.get(),
                "last_lsn": damage.last.get(),
                "file": damage.spot.file,
                "offset": damage.spot.offset,
                "reason": damage.reason,
            })
        });
        json!({
            "shard": shard.get(),
            "segments": segments,
            "prepared": prepared,
            "blocks": verdict.tally.blocks,
            "events": verdict.tally.events,
            "bytes": verdict.tally.bytes,
            "first_lsn": verdict.tally.first_lsn.get(),
            "last_lsn": verdict.end.lsn.get(),
            "last_hash": hex(&verdict.end.hash),
            "torn_tail": verdict.torn,
            "torn_blocks": verdict.strays,
            "damage": damage.collect::<Vec<_>>(),
        })
    });
    json!({
        "ok": !damaged(reports),
        "identity": identity,
        "shards": shards.collect::<Vec<_>>(),
    })
}
