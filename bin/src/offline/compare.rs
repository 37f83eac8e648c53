//! `duolog verify DIR --compare OTHER`: whether the logs of two stopped nodes of one pair are the
//! same bytes, block by block, and where they part.
//!
//! Blocks carry the hash of everything before them, so equal hashes at one LSN mean equal logs up
//! to it. Both logs are read at the same time and compared as they come, in bounded memory. Logs
//! may part in what was never committed; below a commit mark of either they may not (R4, R5).

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};

use duolog_engine::disk::mark;
use duolog_engine::disk::shard_dir::ShardDir;
use duolog_engine::ids::{Lsn, ShardId};
use serde_json::{Value as Json, json};

use crate::datadir::{self, DataDirError, Identity};
use crate::exit::{Exit, Failure};
use crate::offline::chain::{BlockSeen, Spot};
use crate::offline::shard::{self, ShardReport};
use crate::output::Output;

/// Blocks that one log may be read ahead of the other.
const AHEAD_MAX: usize = 1024;

/// How the logs of one shard lie to one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The same blocks.
    Equal,
    /// One ends where the other goes on; what the shorter one lacks was never committed.
    Prefix,
    /// The same, but the longer one says that some of the rest is committed.
    Behind,
    /// They go on differently, in what was never committed.
    PartedTail(Fork),
    /// They go on differently where one of them says that it is committed.
    Contradiction(Fork),
}

/// Where two logs part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    /// The first block that differs, in the first directory.
    pub first: Spot,
    /// The first block that differs, in the second.
    pub second: Spot,
}

/// The logs of one shard, held against one another.
#[derive(Debug)]
pub struct Comparison {
    /// The shard.
    pub shard: ShardId,
    /// The last LSN up to which they are the same bytes.
    pub common: Lsn,
    /// See [`Relation`].
    pub relation: Relation,
    /// The last LSN of each.
    pub ends: [Lsn; 2],
    /// What each says to be committed.
    pub marks: [Lsn; 2],
    /// One of them is damaged.
    pub damaged: [bool; 2],
}

impl Comparison {
    fn is_wrong(&self) -> bool {
        matches!(self.relation, Relation::Contradiction(_)) || self.damaged.contains(&true)
    }

    fn word(&self) -> &'static str {
        match self.relation {
            Relation::Equal => "equal",
            Relation::Prefix => "prefix",
            Relation::Behind => "behind",
            Relation::PartedTail(_) => "parted_tail",
            Relation::Contradiction(_) => "contradiction",
        }
    }
}

/// Compares all shards and prints one summary per shard.
pub fn run(dirs: [&Path; 2], json: bool, mut output: Output) -> Result<Exit, Failure> {
    let refused = |error: DataDirError| Failure::new(error.exit(), error);
    let mut identities = Vec::new();
    let mut locks = Vec::new();
    for dir in dirs {
        let identity = Identity::read(dir).map_err(refused)?.ok_or_else(|| {
            let text = format!("{} is no data directory: it has no identity.json", dir.display());
            Failure::new(Exit::Usage, text)
        })?;
        identities.push(identity);
        locks.push(datadir::lock_for_reading(dir).map_err(refused)?);
    }
    let (first, second) = (&identities[0], &identities[1]);
    let same = first.cluster() == second.cluster() && first.shard_count == second.shard_count;
    if !same {
        let text = format!(
            "the directories do not belong to one pair: cluster {} with {} shards, and cluster {} \
             with {} shards",
            first.cluster_id, first.shard_count, second.cluster_id, second.shard_count
        );
        return Err(Failure::new(Exit::DataDirMismatch, text));
    }
    let mut comparisons = Vec::new();
    for number in 0..first.shard_count {
        let shard = ShardId(number);
        let compared = compare(dirs, first, shard);
        comparisons.push(compared.map_err(|error| {
            let text = format!("cannot read shard {shard} of both directories: {error}");
            Failure::new(Exit::LocalIo, text)
        })?);
    }
    let wrong = comparisons.iter().any(Comparison::is_wrong);
    if json {
        let shards: Vec<Json> = comparisons.iter().map(document).collect();
        output.json(&json!({ "ok": !wrong, "shards": shards }))?;
    } else {
        let lines: String = comparisons.iter().map(|found| line(found, dirs)).collect();
        output.text(&lines)?;
    }
    output.flush()?;
    Ok(if wrong { Exit::CheckFailed } else { Exit::Ok })
}

/// Reads one shard's log in both directories.
pub fn compare(dirs: [&Path; 2], identity: &Identity, shard: ShardId) -> io::Result<Comparison> {
    std::thread::scope(|scope| {
        let [first, second] = dirs.map(|dir| {
            let (told, blocks) = sync_channel(AHEAD_MAX);
            let read = move || {
                let dir = ShardDir::new(dir, shard);
                let mark = mark::read(&dir.mark())?.map(|end| end.lsn);
                let report =
                    shard::verify_told(dir.path(), identity.cluster(), shard, mark, Some(told));
                Ok::<_, io::Error>((report?, mark.unwrap_or_default()))
            };
            (scope.spawn(read), blocks)
        });
        let (common, fork) = walk(&first.1, &second.1);
        drop((first.1, second.1));
        let panicked = |_| io::Error::other("the reader panicked");
        let first = first.0.join().map_err(panicked)??;
        let second = second.0.join().map_err(panicked)??;
        Ok(judge(shard, common, fork, [first, second]))
    })
}

/// Goes through both logs up to the first block that differs or the end of one.
fn walk(first: &Receiver<BlockSeen>, second: &Receiver<BlockSeen>) -> (Lsn, Option<Fork>) {
    let mut common = Lsn(0);
    loop {
        // An error means that the log has ended.
        match (first.recv().ok(), second.recv().ok()) {
            (Some(one), Some(other)) if one.is_same(&other) => common = one.last,
            (Some(one), Some(other)) => {
                return (common, Some(Fork { first: one.spot, second: other.spot }));
            }
            _ => return (common, None),
        }
    }
}

fn judge(
    shard: ShardId,
    common: Lsn,
    fork: Option<Fork>,
    read: [(ShardReport, Lsn); 2],
) -> Comparison {
    let damaged = [0, 1].map(|side: usize| !read[side].0.verdict.damage.is_empty());
    let ends = [0, 1].map(|side: usize| read[side].0.verdict.end.lsn);
    let marks = [0, 1].map(|side: usize| {
        let (report, mark) = &read[side];
        report.verdict.tally.commit_mark.max(*mark)
    });
    let committed_past_common = marks[0].max(marks[1]) > common;
    let relation = match fork {
        Some(fork) if committed_past_common => Relation::Contradiction(fork),
        Some(fork) => Relation::PartedTail(fork),
        None if ends[0] == ends[1] => Relation::Equal,
        None if committed_past_common => Relation::Behind,
        None => Relation::Prefix,
    };
    Comparison { shard, common, relation, ends, marks, damaged }
}

fn line(found: &Comparison, dirs: [&Path; 2]) -> String {
    let Comparison { shard, common, relation, ends, marks, damaged } = found;
    let [end_one, end_two] = ends;
    let mut out = match relation {
        Relation::Equal => format!("shard {shard}: equal up to LSN {common}, the end of both\n"),
        Relation::Prefix => format!(
            "shard {shard}: equal up to LSN {common}; they end at {end_one} and {end_two}, the \
             rest was never committed\n"
        ),
        Relation::Behind => format!(
            "shard {shard}: equal up to LSN {common}; they end at {end_one} and {end_two}, and \
             events up to {} are committed: the shorter one has not caught up\n",
            marks[0].max(marks[1])
        ),
        Relation::PartedTail(fork) => format!(
            "shard {shard}: equal up to LSN {common}; behind it they part ({}), in what was never \
             committed: the follower cuts its tail when it meets the leader\n",
            told(fork, dirs)
        ),
        Relation::Contradiction(fork) => format!(
            "shard {shard}: CONTRADICTION behind LSN {common} ({}) although events up to {} and {} \
             are committed\n",
            told(fork, dirs),
            marks[0],
            marks[1]
        ),
    };
    for (damaged, dir) in damaged.iter().zip(dirs) {
        if *damaged {
            out.push_str(&format!("  DAMAGE  see `duolog verify {}`\n", dir.display()));
        }
    }
    out
}

fn told(fork: &Fork, dirs: [&Path; 2]) -> String {
    let place = |dir: &Path, spot: &Spot| {
        format!("{} at byte {}", dir.join(&spot.file).display(), spot.offset)
    };
    format!("{}; {}", place(dirs[0], &fork.first), place(dirs[1], &fork.second))
}

fn document(found: &Comparison) -> Json {
    let spot = |spot: &Spot| json!({ "file": spot.file, "offset": spot.offset });
    let fork = match &found.relation {
        Relation::PartedTail(fork) | Relation::Contradiction(fork) => {
            json!([spot(&fork.first), spot(&fork.second)])
        }
        _ => Json::Null,
    };
    json!({
        "shard": found.shard.get(),
        "relation": found.word(),
        "common_lsn": found.common.get(),
        "last_lsn": found.ends.map(Lsn::get),
        "committed_lsn": found.marks.map(Lsn::get),
        "damaged": found.damaged,
        "fork": fork,
    })
}

#[cfg(test)]
mod tests {
    use duolog_engine::block::BlockHash;

    use super::*;
    use crate::offline::sample::Sample;

    /// Two copies of one log of five events.
    fn twins() -> [Sample; 2] {
        let mut first = Sample::new();
        first.block(2, 0);
        first.block(3, 2);
        let second = first.twin();
        [first, second]
    }

    fn compared(pair: &[Sample; 2]) -> Comparison {
        let dirs = [pair[0].path(), pair[1].path()];
        compare(dirs, &pair[0].identity, ShardId(0)).expect("the samples can be read")
    }

    fn exit(pair: &[Sample; 2]) -> Exit {
        let output = Output::to(std::io::sink());
        run([pair[0].path(), pair[1].path()], false, output).expect("both are directories")
    }

    #[test]
    fn equal_logs_are_equal() {
        let pair = twins();
        let found = compared(&pair);
        assert_eq!((found.relation, found.common), (Relation::Equal, Lsn(5)));
        assert_eq!(exit(&pair), Exit::Ok);
    }

    #[test]
    fn a_shorter_log_is_a_prefix_until_the_rest_is_committed() {
        let mut pair = twins();
        pair[1].block(1, 5);
        let found = compared(&pair);
        assert_eq!((found.relation, found.ends), (Relation::Prefix, [Lsn(5), Lsn(6)]));
        pair[1].block(1, 6);
        let found = compared(&pair);
        assert_eq!((found.relation, found.marks), (Relation::Behind, [Lsn(2), Lsn(6)]));
        assert_eq!(exit(&pair), Exit::Ok);
    }

    /// Different blocks behind LSN 5: fine while neither says that they are committed.
    #[test]
    fn logs_may_part_only_above_both_commit_marks() {
        let mut pair = twins();
        let first = pair[0].block(1, 5) as u64;
        pair[1].block(2, 5);
        let found = compared(&pair);
        let Relation::PartedTail(fork) = &found.relation else { panic!("{found:?}") };
        assert_eq!((fork.first.offset, found.common), (first, Lsn(5)));
        assert_eq!(exit(&pair), Exit::Ok);
        pair[0].block(1, 6);
        let found = compared(&pair);
        assert!(matches!(found.relation, Relation::Contradiction(_)), "{found:?}");
        assert_eq!(exit(&pair), Exit::CheckFailed);
    }

    #[test]
    fn damage_fails_the_comparison() {
        let mut pair = twins();
        let place = pair[0].block(1, 5);
        pair[0].block(1, 6);
        pair[0].block(1, 7);
        pair[0].rot(1, place + 170);
        let found = compared(&pair);
        assert_eq!(found.damaged, [true, false], "{found:?}");
        assert_eq!(exit(&pair), Exit::CheckFailed);
    }

    #[test]
    fn directories_of_two_clusters_are_refused() {
        let pair = [Sample::new(), Sample::new()];
        let output = Output::to(std::io::sink());
        let refused = run([pair[0].path(), pair[1].path()], true, output);
        assert_eq!(refused.map_err(|failure| failure.exit), Err(Exit::DataDirMismatch));
    }

    #[test]
    fn blocks_of_one_length_and_other_content_differ() {
        let block = |hash: BlockHash| {
            let spot = Spot { file: String::new(), offset: 0 };
            BlockSeen { first: Lsn(1), last: Lsn(2), hash, spot }
        };
        let (one, other) = (Sample::new().end.hash, twins()[0].end.hash);
        assert!(block(one).is_same(&block(one)) && !block(one).is_same(&block(other)));
    }
}
