//! The index thread: saves the indexes of sealed segments, merges saved ones, and rebuilds those
//! whose files turn out to be damaged.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, bounded};
use duolog_engine::disk::index_store::{DamagedRun, IndexFiles};
use duolog_engine::ids::{Generation, ShardId};
use duolog_engine::index::catalog::RunFile;
use duolog_engine::index::lookup::Run;
use duolog_engine::shard::{Sealed, ShardConfig};

use super::cluster::message::ToShard;
use super::inbox::{Inbox, Message};
use super::rebuild::{CutJob, rebuild};

/// Jobs that wait, at most. A shard that fills segments faster than they can be indexed has its
/// tails wait here, each in memory: the bound is far above what a disk can fill meanwhile.
const JOBS_MAX: usize = 4096;
/// Pause before a save that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// All saved indexes of a shard, as its thread needs them.
#[derive(Clone, Debug, Default)]
pub struct SavedIndexes {
    /// Oldest first.
    pub runs: Vec<Arc<Run>>,
    dir: PathBuf,
}

impl SavedIndexes {
    /// What `files` has now.
    #[must_use]
    pub fn of(files: &IndexFiles) -> Self {
        Self { runs: files.runs(), dir: files.dir().to_owned() }
    }

    /// The file of a run.
    #[must_use]
    pub fn path(&self, run: &Run) -> PathBuf {
        let (scope, counts) = (&run.header().scope, &run.header().counts);
        let (first, last) = (scope.first, scope.last);
        let (stream_count, posting_count) = (counts.streams, counts.postings);
        self.dir.join(RunFile { first, last, stream_count, posting_count }.name())
    }
}

/// Work for the index thread.
#[derive(Debug)]
pub enum IndexJob {
    /// Save this segment's index; answered by [`Message::Index`].
    Save(ShardId, Arc<Sealed>),
    /// Rebuild the damaged index of these segments; answered by [`Message::Merged`] when done.
    Repair(ShardId, Generation, Generation),
    /// Cut the log and recover it; answered by [`ToShard::Rebuilt`].
    Cut(ShardId, CutJob),
    /// Nothing more comes.
    End,
}

/// What the thread has of a shard.
#[derive(Debug)]
pub struct ShardIndex {
    /// Its saved indexes.
    pub files: IndexFiles,
    /// Its settings.
    pub config: ShardConfig,
    /// Where answers go.
    pub inbox: Arc<Inbox>,
}

/// Starts the thread. `shards`: in order.
pub fn start(
    shards: Vec<ShardIndex>,
    ended: Arc<AtomicBool>,
) -> io::Result<(Sender<IndexJob>, JoinHandle<()>)> {
    let (sender, receiver) = bounded(JOBS_MAX);
    let thread = std::thread::Builder::new().name("index".to_owned());
    let thread = thread.spawn(move || run(shards, &receiver, &ended))?;
    Ok((sender, thread))
}

fn run(mut shards: Vec<ShardIndex>, jobs: &Receiver<IndexJob>, ended: &AtomicBool) {
    for job in jobs {
        match job {
            IndexJob::Save(shard, sealed) => {
                let ShardIndex { files, inbox, .. } = &mut shards[shard.0 as usize];
                save(files, inbox, &sealed, ended);
            }
            IndexJob::Repair(shard, first, last) => {
                repair(&mut shards[shard.0 as usize], first, last);
            }
            IndexJob::Cut(shard, job) => {
                let ShardIndex { files, config, inbox } = &mut shards[shard.0 as usize];
                let rebuilt = Box::new(rebuild(files, config, &job));
                inbox.send_waiting(Message::Pair(ToShard::Rebuilt(rebuilt)));
            }
            IndexJob::End => return,
        }
        // Saves first: a tail that waits takes memory, a merge only makes reads cheaper.
        while jobs.is_empty() && !ended.load(Ordering::Relaxed) && maintain(&mut shards) {}
    }
}

/// Saves; on an error (a full disk) again and again: the log goes on meanwhile, the index of the
/// segment stays in memory, and a restart would rebuild it.
fn save(files: &mut IndexFiles, inbox: &Inbox, sealed: &Arc<Sealed>, ended: &AtomicBool) {
    let generation = sealed.generation;
    while let Err(error) = files.add(sealed) {
        tracing::warn!(%generation, %error, event = "index_not_saved");
        if ended.load(Ordering::Relaxed) {
            return;
        }
        #[expect(clippy::disallowed_methods, reason = "a background thread that may wait")]
        std::thread::sleep(RETRY);
    }
    inbox.send_waiting(Message::Index { generation, indexes: SavedIndexes::of(files) });
}

fn maintain(shards: &mut [ShardIndex]) -> bool {
    let mut merged = false;
    for shard in shards {
        match shard.files.maintain() {
            Ok(true) => {
                let indexes = SavedIndexes::of(&shard.files);
                shard.inbox.send_waiting(Message::Merged { indexes });
                merged = true;
            }
            Ok(false) => {}
            Err(error) => match DamagedRun::of(&error) {
                Some(damaged) => merged |= repair(shard, damaged.first, damaged.last),
                None => tracing::warn!(%error, event = "indexes_not_merged"),
            },
        }
    }
    merged
}

/// Rebuilds a damaged index; whether that worked. After a failure it stays as it is: who needs it
/// is told, and asks again.
fn repair(shard: &mut ShardIndex, first: Generation, last: Generation) -> bool {
    let ShardIndex { files, config, inbox } = shard;
    let shard = config.shard;
    match files.repair(first, last, config) {
        Ok(()) => {
            tracing::warn!(%shard, %first, %last, event = "index_rebuilt", "it was damaged");
            inbox.send_waiting(Message::Merged { indexes: SavedIndexes::of(files) });
            true
        }
        Err(error) => {
            tracing::error!(%shard, %first, %last, %error, event = "index_not_rebuilt");
            false
        }
    }
}
