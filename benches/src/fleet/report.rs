//! How the workers of a fleet did their shares.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::generator::tally::Tally;

/// Stands beside the report of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetReport {
    /// In the order in which they were given.
    pub workers: Vec<WorkerReport>,
    /// How far apart the workers' windows may lie, us: the time it took to send the go to all of
    /// them and half of the longest round trip. Exact if paths are equally long both ways.
    pub start_skew_us: f64,
}

/// One worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// As it was given.
    pub worker: String,
    /// Generator threads.
    pub threads: u32,
    /// Its part of the run's.
    pub acked: u64,
    /// Its part of the run's.
    pub errors: u64,
    /// Of the control connection, before the load, us.
    pub round_trip_us: f64,
}

impl FleetReport {
    /// `tallies` are those of all threads, in order; every worker has as many.
    #[must_use]
    pub fn new(
        workers: &[String],
        round_trips_ns: impl Iterator<Item = u64>,
        sending_ns: u64,
        tallies: &[Tally],
    ) -> Self {
        let microseconds = |ns: u64| (ns as f64 / 100.0).round() / 10.0;
        let round_trips_ns: Vec<u64> = round_trips_ns.collect();
        let longest_ns = round_trips_ns.iter().max().copied().unwrap_or(0);
        let threads = (tallies.len() / workers.len()).max(1);
        let shares = tallies.chunks(threads).zip(workers).zip(&round_trips_ns);
        let workers = shares.map(|((share, worker), round_trip_ns)| WorkerReport {
            worker: worker.clone(),
            threads: share.len() as u32,
            acked: share.iter().map(|tally| tally.acked).sum(),
            errors: share.iter().flat_map(|tally| tally.errors.values()).sum(),
            round_trip_us: microseconds(*round_trip_ns),
        });
        Self {
            workers: workers.collect(),
            start_skew_us: microseconds(sending_ns + longest_ns / 2),
        }
    }

    /// Lines for people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for worker in &self.workers {
            let WorkerReport { worker, threads, acked, errors, round_trip_us } = worker;
            let _ = writeln!(
                text,
                "  worker      {worker}: {threads} threads, {acked} acked, {errors} errors, \
                 round trip {round_trip_us:.1} us"
            );
        }
        let skew = self.start_skew_us;
        let _ = writeln!(text, "  start skew  {skew:>12.1} us at most between two workers");
        text
    }
}
