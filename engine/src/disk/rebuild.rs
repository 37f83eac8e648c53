//! A log that is cut and read anew while the node runs: the machine that had the longer log goes on
//! answering reads, the one that is made here takes its place. Blocking; for the thread that saves
//! indexes, so that no index is saved by two at once.

use std::io;

use super::blank::blank_behind;
use super::cut::{Cut, CutError, cut};
use super::index_store::{IndexFiles, OpenedIndex};
use super::mark;
use super::shard_dir::{DirSource, ShardDir};
use crate::recovery::{Checkpoint, LogIdentity, RecoverError, Recovered, empty_log, recover};
use crate::shard::ShardConfig;

/// A log read anew.
#[derive(Debug)]
pub struct Rebuilt {
    /// For [`crate::shard::Shard::new`].
    pub recovered: Recovered,
    /// The saved indexes. They take the place of those opened before.
    pub files: IndexFiles,
}

/// Why it did not work.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// The cut.
    #[error(transparent)]
    Cut(#[from] CutError),
    /// The reading.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// Setting files aside.
    #[error("reading the log anew: {0}")]
    Io(#[from] io::Error),
}

/// Cuts the log and recovers it. What the old machine has asked for is over and nothing is begun:
/// writes, marks, saves of indexes, preparations of segments. The segments prepared for it are set
/// aside; the new machine asks for its own. `key_seed` spreads idempotency keys; see
/// [`crate::index::keys::KeyWindow`].
pub fn cut_and_recover(
    dir: &ShardDir,
    config: &ShardConfig,
    what: Cut,
    key_seed: u64,
) -> Result<Rebuilt, RebuildError> {
    let identity = LogIdentity { cluster: config.cluster, shard: config.shard };
    cut(dir, identity, config.layout.align_bytes, what)?;
    let window = config.idempotency_window;
    let opened = IndexFiles::open(dir.clone(), config.cluster, config.shard, window, key_seed);
    let OpenedIndex { mut files, keys, flushed, end, .. } = opened;
    let end = end.unwrap_or_else(|| empty_log(identity));
    let mark = mark::read(&dir.mark())?;
    let checkpoint = Checkpoint { flushed, end, mark, keys };
    let mut source = DirSource::new(dir.clone());
    let recovered = recover(config, &mut source, checkpoint, &mut files)?;
    dir.set_aside_beyond(recovered.start.newest)?;
    blank_behind(dir, recovered.scan.place, config.layout.align_bytes)?;
    Ok(Rebuilt { recovered, files })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::cut::tests::Node;
    use crate::ids::Lsn;
    use crate::shard::tests::leader::EPOCH;
    use crate::shard::{Event, Role, Shard};

    /// Rule R3: the shard goes on from a cut log as if the rest had never been. Broken if heads,
    /// keys or indexes remember what was cut.
    #[test]
    fn a_machine_made_from_a_cut_log_knows_nothing_of_the_rest() {
        let mut node = Node::leading();
        node.append(17);
        node.ack(4);
        let (at, committed) = (Lsn(10), node.bench.shard.committed().lsn);
        let config = *node.bench.shard.config();
        let rebuilt = cut_and_recover(&node.dir, &config, Cut { at, committed }, 7).unwrap();
        let end = rebuilt.recovered.scan.end;
        assert_eq!(end.lsn, at);
        let known = rebuilt.recovered.start.committed.end.lsn;
        assert!(known <= committed, "nothing counts as committed that was not");
        let flushed = rebuilt.files.runs().last().map(|run| run.header().scope.state.lsn);
        assert!(flushed.is_none_or(|lsn| lsn <= committed), "D7: {flushed:?}");
        let mut shard = Shard::new(config, rebuilt.recovered.start);
        shard.set_runs(rebuilt.files.runs());
        assert_eq!((shard.end(), shard.durable()), (end, end));
        assert_eq!(shard.role(), Role::Follower { epoch: None });
        let now = node.bench.now;
        let mut out = crate::shard::Actions::default();
        shard.step(now, Event::Follow { epoch: EPOCH }, &mut out);
        // The block that was cut is taken again: it continues the log, revisions and all.
        let block = node.bench.shard.in_memory_block(Lsn(11)).unwrap();
        let received = Event::Received { epoch: EPOCH, block };
        shard.step(now, received, &mut out);
        assert_eq!(shard.end().lsn, Lsn(11), "{:?}", out.list);
    }
}
