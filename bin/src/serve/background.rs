//! The background threads: one makes segment files and writes marks, one saves and merges indexes.
//! They may block; the shards may not. Answers go into the shards' inboxes.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam::channel::{Receiver, Sender, bounded};
use duolog_engine::disk::mark::MarkFile;
use duolog_engine::disk::prepare;
use duolog_engine::disk::shard_dir::ShardDir;
use duolog_engine::ids::{Generation, LeaseEpoch, ShardId};
use duolog_engine::segment::LogEnd;
use duolog_engine::shard::Layout;

use super::cluster::message::{ToControl, ToShard};
use super::cluster::promise::PromiseFile;
use super::inbox::{Inbox, Message};
use super::journal::Journal;
use crate::exit::Exit;

/// Jobs that wait, at most: per shard at most one segment, one mark and a few indexes.
const JOBS_MAX: usize = 4096;

/// Work for the file thread.
#[derive(Debug)]
pub enum FileJob {
    /// Make the file of this segment; answered by [`Message::Segment`].
    Prepare(ShardId, Generation),
    /// Write this mark; not answered.
    Mark(ShardId, LogEnd),
    /// Write this mark; answered by [`ToShard::Marked`], also if that failed.
    MarkFirst(ShardId, LogEnd),
    /// Put this promise on disk; answered by [`ToControl::Promised`].
    Promise(LeaseEpoch),
    /// Nothing more comes.
    End,
}

/// What the file thread knows of a shard.
#[derive(Debug)]
pub struct ShardFiles {
    /// Its directory.
    pub dir: ShardDir,
    /// Its sizes.
    pub layout: Layout,
    /// Its mark file.
    pub mark: MarkFile,
    /// Where answers go.
    pub inbox: Arc<Inbox>,
}

impl ShardFiles {
    /// Of the shard in `dir`.
    #[must_use]
    pub fn new(dir: &ShardDir, layout: Layout, mark: MarkFile, inbox: &Arc<Inbox>) -> Self {
        Self { dir: dir.clone(), layout, mark, inbox: Arc::clone(inbox) }
    }
}

/// Starts the thread that makes segment files and writes marks.
pub fn start_files(
    shards: Vec<ShardFiles>,
    promise: PromiseFile,
    journal: Journal,
) -> io::Result<(Sender<FileJob>, JoinHandle<()>)> {
    let (sender, receiver) = bounded(JOBS_MAX);
    let thread = std::thread::Builder::new().name("files".to_owned());
    let thread = thread.spawn(move || run_files(shards, &promise, &journal, &receiver))?;
    Ok((sender, thread))
}

fn run_files(
    mut shards: Vec<ShardFiles>,
    promise: &PromiseFile,
    journal: &Journal,
    jobs: &Receiver<FileJob>,
) {
    for job in jobs {
        match job {
            FileJob::Prepare(shard, generation) => {
                let files = &shards[shard.0 as usize];
                let result = prepare::prepare(&files.dir, files.layout, generation);
                if let Err(error) = &result {
                    tracing::warn!(%shard, %generation, %error, event = "segment_not_prepared");
                }
                files.inbox.send_waiting(Message::Segment { generation, result });
            }
            FileJob::Mark(shard, end) => mark(&mut shards[shard.0 as usize], shard, &end),
            FileJob::MarkFirst(shard, end) => {
                let files = &mut shards[shard.0 as usize];
                mark(files, shard, &end);
                files.inbox.send_waiting(Message::Pair(ToShard::Marked));
            }
            FileJob::Promise(epoch) => {
                if let Err(error) = promise.write(epoch) {
                    tracing::error!(
                        event = "promise_not_written", epoch = epoch.0, %error,
                        "a promise that is not on disk could be broken; the node stops",
                    );
                    journal.stop(Exit::WriteFailed, "a promise could not be written");
                    std::process::exit(i32::from(Exit::WriteFailed.code()));
                }
                shards[0].inbox.send_waiting(Message::Control(ToControl::Promised(epoch)));
            }
            FileJob::End => return,
        }
    }
}

/// A mark is a courtesy to a later recovery: without it that one knows less.
fn mark(files: &mut ShardFiles, shard: ShardId, end: &LogEnd) {
    if let Err(error) = files.mark.write(end) {
        tracing::warn!(%shard, lsn = %end.lsn, %error, event = "mark_not_written");
    }
}
