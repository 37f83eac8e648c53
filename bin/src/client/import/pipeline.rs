//! Many appends in flight without changing the order inside any stream.
//!
//! The library may send an append again, after others that were sent later. So of each stream at
//! most one append is under way; the next one waits until it is durable. Streams overtake each
//! other freely.

use std::collections::{HashMap, VecDeque};

use duolog_net::client::{Client, Error, Event, Receipt, Uuid};
use tokio::task::JoinSet;

use crate::client::import::mapping::Target;
use crate::client::import::progress::Prefix;

/// Appends that wait or are under way, bytes: bounds the memory of an import.
const PENDING_MAX_BYTES: usize = 64 << 20;

/// A line on its way.
#[derive(Debug)]
pub struct Job {
    /// Its number.
    pub line: u64,
    /// Stream and type.
    pub target: Target,
    /// Its key.
    pub key: Uuid,
    /// The event's data.
    pub data: Vec<u8>,
}

/// A line that arrived, or not.
#[derive(Debug)]
pub struct Done {
    /// Its number.
    pub line: u64,
    stream: String,
    bytes: usize,
    /// What the server said.
    pub outcome: Result<Receipt, Error>,
}

/// Appends under way.
#[derive(Debug)]
pub struct Pipeline {
    client: Client,
    pending_max: usize,
    pending: usize,
    pending_bytes: usize,
    tasks: JoinSet<Done>,
    /// Streams with an append under way, and what waits behind it.
    streams: HashMap<String, VecDeque<Job>>,
}

impl Pipeline {
    /// At most `pending_max` lines at a time.
    #[must_use]
    pub fn new(client: Client, pending_max: usize) -> Self {
        let (tasks, streams) = (JoinSet::new(), HashMap::new());
        Self { client, pending_max, pending: 0, pending_bytes: 0, tasks, streams }
    }

    /// Whether another line may come.
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.pending < self.pending_max && self.pending_bytes < PENDING_MAX_BYTES
    }

    /// Sends a line, or lets it wait for the one before it in its stream.
    pub fn push(&mut self, job: Job) {
        self.pending += 1;
        self.pending_bytes += job.data.len();
        if let Some(waiting) = self.streams.get_mut(&job.target.stream) {
            waiting.push_back(job);
            return;
        }
        self.streams.insert(job.target.stream.clone(), VecDeque::new());
        self.start(job);
    }

    fn start(&mut self, job: Job) {
        let Job { line, target, key, data } = job;
        let bytes = data.len();
        let call = self.client.append(&target.stream).event(Event::new(target.kind, data));
        let call = call.idempotency_key(key);
        self.tasks.spawn(async move {
            Done { line, stream: target.stream, bytes, outcome: call.send().await }
        });
    }

    /// The next line that is done; `None` when nothing is under way. After one that failed, nothing
    /// that waits is sent any more. Does not lose anything when it is dropped while it waits.
    pub async fn next(&mut self) -> Option<Done> {
        let done = self.tasks.join_next().await?.expect("a task ends the process if it panics");
        self.pending -= 1;
        self.pending_bytes -= done.bytes;
        if done.outcome.is_err() {
            // What comes behind a line that is missing would be out of order.
            self.stop();
        }
        let waiting = self.streams.get_mut(&done.stream).expect("its append was under way");
        match waiting.pop_front() {
            Some(job) => self.start(job),
            None => {
                self.streams.remove(&done.stream);
            }
        }
        Some(done)
    }

    /// Drops what waits, so that only what was sent has still to be heard of.
    pub fn stop(&mut self) {
        for waiting in self.streams.values_mut() {
            for job in waiting.drain(..) {
                self.pending -= 1;
                self.pending_bytes -= job.data.len();
            }
        }
    }
}

/// Which lines are done, and up to where without a gap.
#[derive(Debug, Default)]
pub struct Frontier {
    /// Everything before is done.
    done: Prefix,
    lines: VecDeque<(Prefix, bool)>,
}

impl Frontier {
    /// Begins behind `done`.
    #[must_use]
    pub const fn new(done: Prefix) -> Self {
        Self { done, lines: VecDeque::new() }
    }

    /// A line comes, in order.
    pub fn open(&mut self, prefix: Prefix) {
        self.lines.push_back((prefix, false));
    }

    /// The line with this number is done.
    pub fn close(&mut self, line: u64) {
        let index = usize::try_from(line - self.done.lines - 1).expect("pending lines are few");
        self.lines[index].1 = true;
        while let Some((prefix, true)) = self.lines.front() {
            self.done = *prefix;
            self.lines.pop_front();
        }
    }

    /// Up to where everything is done.
    #[must_use]
    pub const fn done(&self) -> Prefix {
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frontier_waits_for_the_slowest_line() {
        let mut prefix = Prefix::default().plus(b"skipped");
        let mut frontier = Frontier::new(prefix);
        let mut all = Vec::new();
        for text in [b"a", b"b", b"c", b"d"] {
            prefix = prefix.plus(text);
            all.push(prefix);
            frontier.open(prefix);
        }
        frontier.close(3);
        frontier.close(4);
        assert_eq!(frontier.done().lines, 1);
        frontier.close(2);
        assert_eq!(frontier.done(), all[2]);
        frontier.close(5);
        assert_eq!(frontier.done(), all[3]);
    }
}
