//! Load from several processes or hosts: `duolog bench worker` waits for a coordinator and applies
//! its share of a run, `duolog bench run --workers …` is that coordinator.
//!
//! A share is a range of the run's generator threads. Everything else follows from a thread's
//! number in the whole run, as it does within one process: its connections, the streams that these
//! own, its arrivals. So nothing is rounded, no stream has two owners, and a run on four workers
//! of one thread sends what one process with four threads would send.
//!
//! Clocks of two hosts are never compared: each worker counts from the moment at which the go
//! arrived.

mod coordinator;
mod link;
mod message;
mod report;
mod roster;
mod service;
pub mod token;

pub use coordinator::{Fleet, OBSERVER_PATIENCE};
pub use message::{PROTOCOL, Version};
pub use report::{FleetReport, WorkerReport};
pub use service::{ServiceSettings, serve};
pub use token::Token;

use crate::generator::SettingsError;

/// Most workers of a fleet.
pub const WORKERS_MAX: usize = 64;

/// Why a fleet gave no result, or a worker ended. `worker` is its address as it was given.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// Settings out of range.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Too few or too many.
    #[error("--workers names {count} workers: give 1 to {WORKERS_MAX}, each once")]
    Count {
        /// As given.
        count: usize,
    },
    /// The address is none.
    #[error("{worker:?} is no address: {reason}")]
    Address {
        /// As given.
        worker: String,
        /// Why.
        reason: String,
    },
    /// Without a token everybody who reaches the port could send load to anywhere.
    #[error(
        "--listen {listen} is reachable from other hosts: give a --token, \
         and the same to `bench run`"
    )]
    OpenToAll {
        /// As given.
        listen: String,
    },
    /// The port cannot be had, or a thread.
    #[error("cannot listen on {listen}: {reason}")]
    Listen {
        /// As given.
        listen: String,
        /// Why.
        reason: String,
    },
    /// No connection.
    #[error("cannot connect to worker {worker}: {reason}; is `duolog bench worker` running there?")]
    Connect {
        /// Which.
        worker: String,
        /// Why.
        reason: String,
    },
    /// Figures of different versions would not add up.
    #[error("worker {worker} is {theirs}, this is {ours}: use the same program on both")]
    Versions {
        /// Which.
        worker: String,
        /// Its version.
        theirs: Box<Version>,
        /// This program's.
        ours: Box<Version>,
    },
    /// It asks for a token and none was given.
    #[error("worker {worker} wants a token: give --token or DUOLOG_BENCH_TOKEN")]
    TokenWanted {
        /// Which.
        worker: String,
    },
    /// It does not work for this coordinator.
    #[error("worker {worker} refused: {reason}")]
    Refused {
        /// Which.
        worker: String,
        /// Why.
        reason: String,
    },
    /// The connection ended.
    #[error("lost worker {worker}: {reason}; there is no result")]
    Lost {
        /// Which.
        worker: String,
        /// Why.
        reason: String,
    },
    /// It may be lost.
    #[error("worker {worker} said nothing for {after_s} s; there is no result")]
    Silent {
        /// Which.
        worker: String,
        /// The limit.
        after_s: u64,
    },
    /// It is alive, but its load does not end.
    #[error("worker {worker} did not hand in its figures in time; there is no result")]
    Late {
        /// Which.
        worker: String,
    },
    /// It said what makes no sense now.
    #[error("worker {worker} said {what:?} out of turn; there is no result")]
    OutOfTurn {
        /// Which.
        worker: String,
        /// What it said.
        what: &'static str,
    },
    /// Its part of the run failed.
    #[error("worker {worker}: {reason}")]
    Run {
        /// Which.
        worker: String,
        /// It could not reach the server.
        unreachable: bool,
        /// Why.
        reason: String,
    },
}

impl FleetError {
    /// Whether the command line is at fault.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Settings(_)
                | Self::Count { .. }
                | Self::Address { .. }
                | Self::OpenToAll { .. }
                | Self::TokenWanted { .. }
        )
    }

    /// Whether a worker or, from a worker, the server could not be reached.
    #[must_use]
    pub const fn is_unreachable(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Run { unreachable: true, .. })
    }
}
