//! Logs on a real disk, cut and read anew.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use super::*;
use crate::disk::prepare::prepare;
use crate::ids::{LeaseEpoch, StreamId};
use crate::index::keys::KeyWindow;
use crate::recovery::{Checkpoint, Ending, IndexStore, Recovered, empty_log, recover};
use crate::shard::tests::Bench;
use crate::shard::tests::leader::{EPOCH, OWN, PEER, lead, pair_config};
use crate::shard::{Action, Event, Sealed, ShardConfig, StoredHead};

struct NoIndex;

impl IndexStore for NoIndex {
    fn save(&mut self, _: &Sealed) -> io::Result<()> {
        Err(io::Error::other("saved later"))
    }

    fn head(&mut self, _: StreamId) -> io::Result<Option<StoredHead>> {
        Ok(None)
    }
}

/// A leader whose log is on a disk.
pub(crate) struct Node {
    pub(crate) dir: ShardDir,
    pub(crate) bench: Bench,
    _files: tempfile::TempDir,
}

fn config() -> ShardConfig {
    pair_config(OWN)
}

fn identity() -> LogIdentity {
    LogIdentity { cluster: config().cluster, shard: config().shard }
}

impl Node {
    pub(crate) fn leading() -> Self {
        let files = tempfile::tempdir().unwrap();
        let dir = ShardDir::new(files.path(), config().shard);
        dir.create().unwrap();
        for generation in [1, 2] {
            prepare(&dir, config().layout, Generation(generation)).unwrap();
        }
        let mut bench = Bench::new(config());
        lead(&mut bench, EPOCH);
        Self { dir, bench, _files: files }
    }

    pub(crate) fn ack(&mut self, lsn: u64) {
        self.bench.step(Event::PeerAcked { node: PEER, epoch: EPOCH, lsn: Lsn(lsn) });
        assert_eq!(self.bench.shard.committed().lsn, Lsn(lsn));
    }

    fn cut(&self, at: u64) -> Result<Boundary, CutError> {
        let committed = self.bench.shard.committed().lsn;
        cut(&self.dir, identity(), 4096, Cut { at: Lsn(at), committed })
    }

    /// Appends `count` events, each in a block of its own of three pages, and writes them.
    pub(crate) fn append(&mut self, count: u64) {
        for _ in 0..count {
            let data = [7; 2 * 4096];
            let ask = crate::shard::tests::ask();
            let ask = ask.data("a", crate::append::Expect::Any, &data);
            let (_, actions) = self.bench.ask(&ask);
            for action in actions {
                let Action::Write { first_lsn, place, header, .. } = action else { continue };
                let path = self.dir.segment(place.generation);
                let file = OpenOptions::new().write(true).open(path).unwrap();
                if let Some(header) = header {
                    let mut page = vec![0; 4096];
                    header.encode(&mut page);
                    file.write_all_at(&page, 0).unwrap();
                }
                let block = self.bench.shard.in_memory_block(first_lsn).unwrap();
                file.write_all_at(block, u64::from(place.offset)).unwrap();
                self.bench.step(Event::BlockWritten { first_lsn });
            }
            if let Some(generation) = self.bench.wanted() {
                prepare(&self.dir, config().layout, generation).unwrap();
                self.bench.prepare();
            }
        }
    }

    fn recover(&self) -> Recovered {
        let end = empty_log(identity());
        let keys = KeyWindow::new(10, 0);
        let checkpoint = Checkpoint { flushed: Generation(0), end, mark: None, keys };
        let mut source = DirSource::new(self.dir.clone());
        recover(&config(), &mut source, checkpoint, &mut NoIndex).unwrap()
    }
}

/// Rules R3, R4: a log is cut at any end of a block down to what is committed, over several
/// segments, and no further. Each cut is also what a crash in the middle of a larger one leaves.
/// Broken if anything else is missing, or left.
#[test]
fn a_log_is_cut_block_by_block_down_to_what_is_committed() {
    let mut node = Node::leading();
    node.append(17);
    node.ack(4);
    let newest = node.bench.shard.active_generation().unwrap();
    assert!(newest >= Generation(3), "the log has several segments");
    for at in (4..=17).rev() {
        let mut source = DirSource::new(node.dir.clone());
        let found = block_end_at(&mut source, identity(), newest, Lsn(at)).unwrap().unwrap();
        let kept = node.cut(at).unwrap();
        assert_eq!((kept, kept.end.lsn), (found, Lsn(at)));
        let recovered = node.recover();
        assert_eq!(recovered.scan.end, kept.end, "R3: it ends where it was cut");
        assert_eq!(recovered.scan.ending, Ending::Clean, "nothing is left behind it");
        assert!(recovered.start.committed.end.lsn <= Lsn(4));
        let again = node.cut(at).unwrap();
        assert_eq!(again, kept, "a cut may be done again");
    }
    let below = node.cut(3);
    assert!(
        matches!(below, Err(CutError::BelowCommitted { at: Lsn(3), committed: Lsn(4) })),
        "R4: {below:?}"
    );
    // The mark of an earlier life counts as well.
    let (mut marks, _) = mark::MarkFile::open(&node.dir.mark()).unwrap();
    marks.write(&node.bench.shard.committed()).unwrap();
    let below = cut(&node.dir, identity(), 4096, Cut { at: Lsn(3), committed: Lsn(0) });
    assert!(matches!(below, Err(CutError::BelowCommitted { .. })), "R4: {below:?}");
    let beyond = node.cut(5);
    assert!(matches!(beyond, Err(CutError::NoBlock { at: Lsn(5) })), "{beyond:?}");
}

/// A cut in the middle of a log leaves nothing that a later block could bring back.
#[test]
fn nothing_that_was_cut_comes_back_with_a_later_block() {
    let mut node = Node::leading();
    node.append(4);
    let block = node.bench.shard.in_memory_block(Lsn(3)).unwrap().to_vec();
    let kept = node.cut(2).unwrap();
    // The very same block comes from another node.
    let path = node.dir.segment(kept.behind.generation);
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&block, u64::from(kept.behind.offset)).unwrap();
    assert_eq!(node.recover().scan.end.lsn, Lsn(3));
}

/// An empty log and ends inside of blocks.
#[test]
fn ends_of_blocks_are_found_and_only_those() {
    let mut node = Node::leading();
    node.append(12);
    node.bench.step(Event::Demote);
    lead(&mut node.bench, LeaseEpoch(7));
    node.append(8);
    let newest = node.bench.shard.active_generation().unwrap();
    let identity = identity();
    let mut source = DirSource::new(node.dir.clone());
    let mut find = |lsn| block_end_at(&mut source, identity, newest, Lsn(lsn)).unwrap();
    assert_eq!(find(0).unwrap().end, empty_log(identity));
    assert_eq!(find(20).unwrap().end, node.bench.shard.end());
    assert_eq!(find(21), None);
    assert_eq!(find(12).unwrap().end.epoch, EPOCH);
    assert_eq!(find(13).unwrap().end.epoch, LeaseEpoch(7));
    let marks = node.recover().start.epochs;
    assert_eq!(marks.as_slice(), node.bench.shard.epoch_marks());
    assert_eq!(marks.as_slice()[0].lsn, Lsn(12));
    assert!(marks.is_complete());
    // The same from the headers of segments, as if their indexes were saved.
    let end = find(20).unwrap().end;
    let keys = KeyWindow::new(10, 0);
    let checkpoint = Checkpoint { flushed: newest, end, mark: None, keys };
    let recovered = recover(&config(), &mut source, checkpoint, &mut NoIndex).unwrap();
    assert_eq!(recovered.start.epochs, marks);
    assert_eq!(recovered.blocks, 0);
}
