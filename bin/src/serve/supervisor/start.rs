//! Tells the manager how a start goes, from a thread of its own: whoever starts the node is busy
//! with it, and may wait for a bucket or read logs for minutes.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam::channel::{RecvTimeoutError, Sender, bounded};

use super::socket::Socket;
use super::word::Word;
use crate::serve::life::{Life, Phase};

/// How often something is said.
const EVERY: Duration = Duration::from_secs(1);
/// How much longer the start may take, from each of those moments. It is said unconditionally: a
/// disk that does not answer would not let the process end either, and the status shows that
/// nothing moves.
const EXTENSION: Duration = Duration::from_secs(60);

/// Where a node finds out which cluster it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In its own directory: it serves alone.
    Disk,
    /// In the bucket.
    Bucket,
}

/// See the module.
#[derive(Debug)]
pub struct Start {
    end: Sender<()>,
    thread: Option<JoinHandle<Socket>>,
}

impl Start {
    /// Begins to tell.
    pub fn begin(mut socket: Socket, life: Arc<Life>, cluster: Place) -> io::Result<Self> {
        let (end, ended) = bounded(1);
        let thread = std::thread::Builder::new().name("start".to_owned());
        let thread = thread.spawn(move || {
            while socket.is_open() {
                socket
                    .say(&[Word::ExtendTimeout(EXTENSION), Word::Status(describe(&life, cluster))]);
                if ended.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            socket
        })?;
        Ok(Self { end, thread: Some(thread) })
    }

    /// The shards run: the manager is told by others from now on.
    #[must_use]
    pub fn end(mut self) -> Socket {
        self.join().unwrap_or_default()
    }

    fn join(&mut self) -> Option<Socket> {
        // Without a manager the thread has ended already.
        let _ = self.end.send(());
        self.thread.take()?.join().ok()
    }
}

impl Drop for Start {
    /// The start has failed: nothing may be told behind the reason.
    fn drop(&mut self) {
        self.join();
    }
}

fn describe(life: &Life, cluster: Place) -> String {
    match (life.phase(), cluster) {
        (Phase::Joining, Place::Disk) => "looking at machine and disk".to_owned(),
        (Phase::Joining, Place::Bucket) => "looking for the cluster in the bucket".to_owned(),
        (Phase::Recovering, _) => {
            let shards = || life.shards.iter().map(|shard| shard.read());
            let done = shards().filter(|shard| shard.done).count();
            let mib = |bytes: u64| bytes >> 20;
            let read = mib(shards().map(|shard| shard.scanned_bytes).sum());
            let total = mib(shards().map(|shard| shard.total_bytes).sum());
            let count = life.shards.len();
            format!("recovering: {done} of {count} shards, {read} of at most {total} MiB read")
        }
        _ => "starting the shards".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_tells_what_it_is_at() {
        let life = Life::new(2);
        assert_eq!(describe(&life, Place::Disk), "looking at machine and disk");
        assert_eq!(describe(&life, Place::Bucket), "looking for the cluster in the bucket");
        life.enter(Phase::Recovering);
        life.shards[1].finish();
        let recovering = "recovering: 1 of 2 shards, 0 of at most 0 MiB read";
        assert_eq!(describe(&life, Place::Disk), recovering);
        life.enter(Phase::Opening);
        assert_eq!(describe(&life, Place::Disk), "starting the shards");
    }
}
