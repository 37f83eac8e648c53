//! How many requests went out and how they ended: what metrics show and what a store bills.
//!
//! Promise: every attempt is counted once, in the moment it ends, also one whose caller has left.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::answer::Kind;
use crate::client::lane::Lane;
use crate::request::Operation;
use crate::transport::Failure;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Done.
    Done,
    /// No such object (404); of a write under If-Match also that it is gone.
    Missing,
    /// The condition did not hold (412).
    Conflict,
    /// Another write was under way (409).
    TryAgain,
    /// Too many requests (429, 503).
    Throttled,
    /// Refused for good, or until something is corrected: permission, signature, time, region.
    Refused,
    /// The server failed, or its answer made no sense.
    Failed,
    /// It may have arrived; no whole answer came.
    NoAnswer,
    /// It may have arrived; the caller did not wait for the answer.
    Abandoned,
    /// No connection: it did not leave.
    NotSent,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Done,
        Self::Missing,
        Self::Conflict,
        Self::TryAgain,
        Self::Throttled,
        Self::Refused,
        Self::Failed,
        Self::NoAnswer,
        Self::Abandoned,
        Self::NotSent,
    ];

    /// Name for metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Missing => "missing",
            Self::Conflict => "conflict",
            Self::TryAgain => "try_again",
            Self::Throttled => "throttled",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::NoAnswer => "no_answer",
            Self::Abandoned => "abandoned",
            Self::NotSent => "not_sent",
        }
    }

    pub(super) const fn of_failure(failure: &Failure) -> Self {
        match failure {
            Failure::NotSent(_) => Self::NotSent,
            Failure::NoAnswer(_) => Self::NoAnswer,
        }
    }

    pub(super) fn of_answer<T>(answer: Result<T, Kind>) -> Self {
        match answer {
            Ok(_) => Self::Done,
            Err(Kind::NoSuchKey) => Self::Missing,
            Err(Kind::PreconditionFailed) => Self::Conflict,
            Err(Kind::TryAgain) => Self::TryAgain,
            Err(Kind::Throttled) => Self::Throttled,
            Err(Kind::Server | Kind::Slow | Kind::Malformed) => Self::Failed,
            Err(_) => Self::Refused,
        }
    }
}

const OPERATIONS: usize = Operation::ALL.len();
const OUTCOMES: usize = Outcome::ALL.len();
const CELLS: usize = Lane::ALL.len() * OPERATIONS * OUTCOMES;

const fn cell(lane: Lane, operation: Operation, outcome: Outcome) -> usize {
    (lane as usize * OPERATIONS + operation as usize) * OUTCOMES + outcome as usize
}

/// Counts of one lane, operation and outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The lane.
    pub lane: Lane,
    /// What was asked.
    pub operation: Operation,
    /// How it ended.
    pub outcome: Outcome,
    /// So often.
    pub count: u64,
}

/// A look at the counts since the client was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts([u64; CELLS]);

impl Counts {
    /// One of them.
    #[must_use]
    pub const fn of(&self, lane: Lane, operation: Operation, outcome: Outcome) -> u64 {
        self.0[cell(lane, operation, outcome)]
    }

    /// All of them, zeros too, so that a metric exists before it is needed.
    pub fn rows(&self) -> impl Iterator<Item = Count> + '_ {
        let triples = Lane::ALL.into_iter().flat_map(|lane| {
            let of_lane = move |operation| {
                Outcome::ALL.into_iter().map(move |outcome| (lane, operation, outcome))
            };
            Operation::ALL.into_iter().flat_map(of_lane)
        });
        triples.map(|(lane, operation, outcome)| Count {
            lane,
            operation,
            outcome,
            count: self.of(lane, operation, outcome),
        })
    }

    /// Requests that left, or may have: what the store bills.
    #[must_use]
    pub fn sent(&self) -> u64 {
        let left = self.rows().filter(|row| row.outcome != Outcome::NotSent);
        left.map(|row| row.count).sum()
    }
}

#[derive(Debug)]
pub(super) struct Counters([AtomicU64; CELLS]);

impl Default for Counters {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; CELLS])
    }
}

impl Counters {
    pub(super) fn read(&self) -> Counts {
        Counts(std::array::from_fn(|cell| self.0[cell].load(Ordering::Relaxed)))
    }

    /// A request leaves.
    pub(super) const fn begin(&self, lane: Lane, operation: Operation) -> Tally<'_> {
        Tally { counters: self, lane, operation, outcome: Outcome::Abandoned }
    }
}

/// A request under way; counted when it ends, one way or the other.
#[derive(Debug)]
pub(super) struct Tally<'a> {
    counters: &'a Counters,
    lane: Lane,
    operation: Operation,
    outcome: Outcome,
}

impl Tally<'_> {
    /// It ended so.
    pub(super) fn end(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        let cell = cell(self.lane, self.operation, self.outcome);
        self.counters.0[cell].fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_one_row_and_its_own() {
        let counters = Counters::default();
        for row in counters.read().rows() {
            counters.begin(row.lane, row.operation).end(row.outcome);
        }
        let counts = counters.read();
        assert_eq!(counts.rows().count(), CELLS);
        assert!(counts.rows().all(|row| row.count == 1), "{counts:?}");
        let not_sent = Lane::ALL.len() * OPERATIONS;
        assert_eq!(counts.sent(), (CELLS - not_sent) as u64);
    }

    #[test]
    fn a_request_whose_caller_has_left_is_counted() {
        let counters = Counters::default();
        drop(counters.begin(Lane::Bulk, Operation::Put));
        let counts = counters.read();
        assert_eq!(counts.of(Lane::Bulk, Operation::Put, Outcome::Abandoned), 1);
        assert_eq!(counts.sent(), 1);
    }
}
