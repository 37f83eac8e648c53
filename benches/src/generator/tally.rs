//! What a worker counts, and within which window.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::clock::ThreadUse;
use super::latency::Latencies;
use super::time_line::TimeLine;

/// The moments of a run, ns on its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Load begins.
    pub load_ns: u64,
    /// Counting begins.
    pub start_ns: u64,
    /// Counting ends.
    pub end_ns: u64,
}

impl Window {
    /// Whether a moment is counted.
    #[must_use]
    pub fn contains(&self, at_ns: u64) -> bool {
        (self.start_ns..self.end_ns).contains(&at_ns)
    }
}

/// What a load has left behind.
#[derive(Clone, Debug)]
pub struct Measured {
    /// When it was, ns of the clock of whoever ran it: two loads of one clock can be told apart.
    pub window: Window,
    /// One of each thread.
    pub tallies: Vec<Tally>,
}

/// What one worker counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Successful answers within the window.
    pub acked: u64,
    /// Of these, reads.
    pub acked_reads: u64,
    /// Events that were read or appended within the window, those of unfinished replays too.
    pub events: u64,
    /// Bytes of event pages within the window.
    pub page_bytes: u64,
    /// Latencies of successful operations that started in the window.
    pub latencies: Latencies,
    /// Mixed load: of these, the reads'. Empty otherwise.
    pub read_latencies: Latencies,
    /// Mixed load: of these, the appends'. Empty otherwise.
    pub append_latencies: Latencies,
    /// Times from the sending to a refusal, of operations that started in the window: how quickly
    /// the server says no, however late a saturated generator asked.
    pub refusals: Latencies,
    /// Hot load: conflicts within the window, each of which was tried again.
    pub retries: u64,
    /// Requests in flight on each connection: what was asked for, or less if the server grants less
    /// to a closed loop.
    pub in_flight_max: u32,
    /// Refusals, losses and answers that are none within the window, by name.
    pub errors: BTreeMap<String, u64>,
    /// Operations that started in the window and were not answered by the end of the drain,
    /// those of connections that broke behind the window too.
    pub unanswered: u64,
    /// Connections that broke at any time, also outside the window.
    pub connections_lost: u64,
    /// Open loop: operations due in the window.
    pub scheduled: u64,
    /// Open loop: those of them that were sent.
    pub sent: u64,
    /// Open loop: those of them that were sent late.
    pub late: u64,
    /// Open loop: due but not sent at the end of the window.
    pub backlog_at_end: u64,
    /// Open loop: largest delay between schedule and sending, ns.
    pub lag_max_ns: u64,
    /// The thread's consumption within the window.
    pub thread_use: ThreadUse,
    /// `acked` and errors by the time of the answer, with their latencies.
    pub time_line: TimeLine,
}

impl Tally {
    /// Counts `count` errors of one kind.
    pub fn count_error(&mut self, name: &str, count: u64) {
        // Past the first of its kind an error costs no allocation.
        match self.errors.get_mut(name) {
            Some(counted) => *counted += count,
            None => drop(self.errors.insert(name.to_owned(), count)),
        }
    }
}
