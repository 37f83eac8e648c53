//! Everything a run found out, as it is kept in `results.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::latency::LatencyFigures;

/// The version of this form.
pub const SCHEMA: u32 = 1;

/// A run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// When it began, seconds since 1970.
    pub began_unix_s: u64,
    /// How long it took, seconds.
    pub took_s: u64,
    /// The commit of the Duolog that was measured.
    pub commit: String,
    /// A short run that only tries everything once.
    pub quick: bool,
    /// What was measured on.
    pub machine: Machine,
    /// How.
    pub plan: Plan,
    /// Flushes per second of the device while nothing was measured.
    pub idle_flushes_per_s: f64,
    /// What was measured, in the order of the tables.
    pub systems: Vec<SystemResult>,
    /// Every load, in the order in which they ran.
    pub loads: Vec<LoadResult>,
    /// What did not work.
    pub failures: Vec<Failure>,
}

/// The machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub memory_gib: f64,
    pub kernel: String,
    pub file_system: String,
    pub device: String,
    /// As the device says: `write back` needs flushes.
    pub write_cache: String,
}

/// How it was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Turns of each system.
    pub repetitions: u32,
    /// Connections of the loads of each turn, one append in flight on each.
    pub connections: Vec<u32>,
    /// Measured time of each load, seconds.
    pub duration_s: f64,
    /// Load before it, seconds.
    pub warm_up_s: f64,
    /// Size of each event, bytes.
    pub event_size_bytes: usize,
    /// Streams.
    pub streams: u32,
    /// The core of the servers.
    pub server_cpu: u32,
    /// The core of the generator.
    pub generator_cpu: u32,
}

/// A system.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SystemResult {
    /// Its short name.
    pub id: String,
    /// Its name in tables.
    pub title: String,
    /// `single`, `pair` or `relaxed`.
    pub group: String,
    /// What the program says.
    pub version: String,
    /// In words.
    pub settings: String,
    /// The command lines; `DIR` stands for the run's directory.
    pub commands: Vec<String>,
}

/// One load on one system.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadResult {
    /// The system's short name.
    pub system: String,
    /// Which turn, from 0.
    pub repetition: u32,
    /// Connections.
    pub connections: u32,
    /// Acknowledged appends per second of the window.
    pub throughput_per_s: f64,
    /// Acknowledged within the window.
    pub acked: u64,
    /// Acknowledged with warm-up and drain.
    pub acked_in_all: u64,
    /// Latencies.
    pub latency: LatencyFigures,
    /// Refusals and losses by name.
    pub errors: BTreeMap<String, u64>,
    /// Appends without an answer.
    pub unanswered: u64,
    /// Flushes of the device from the first append to the last answer, by whomever.
    pub flushes_counted: f64,
    /// Those that would have happened without the load, from their rate just before it.
    pub flushes_idle: f64,
    /// Processor time of the servers in the same time, seconds.
    pub server_cpu_s: f64,
    /// Memory of the servers behind the load, MiB.
    pub server_memory_mib: f64,
    /// The generator's processor time in the window, percent of a core.
    pub client_cpu_percent: f64,
    /// The generator's time of waiting for a core, percent.
    pub client_wait_percent: f64,
    /// The generator was busy or waiting for more than 95 % of the window.
    pub client_limited: bool,
    /// User time of other programs meanwhile, percent of a core.
    pub foreign_cpu_percent: f64,
}

impl LoadResult {
    /// Flushes that the load caused.
    fn flushes(&self) -> f64 {
        (self.flushes_counted - self.flushes_idle).max(0.0)
    }

    /// Flushes of the load per acknowledged append. `None` without one.
    #[must_use]
    pub fn flushes_per_ack(&self) -> Option<f64> {
        (self.acked_in_all > 0).then(|| self.flushes() / self.acked_in_all as f64)
    }

    /// All flushes per acknowledged append: no fewer than those of the load. `None` without one.
    #[must_use]
    pub fn flushes_per_ack_at_most(&self) -> Option<f64> {
        (self.acked_in_all > 0).then(|| self.flushes_counted / self.acked_in_all as f64)
    }

    /// Acknowledged appends per flush of the load. `None` without a flush.
    #[must_use]
    pub fn acks_per_flush(&self) -> Option<f64> {
        (self.flushes() >= 1.0).then(|| self.acked_in_all as f64 / self.flushes())
    }

    /// Seconds of processor time of the servers per million appends.
    #[must_use]
    pub fn cpu_s_per_million(&self) -> Option<f64> {
        (self.acked_in_all > 0).then(|| self.server_cpu_s * 1e6 / self.acked_in_all as f64)
    }
}

/// Something that did not work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// The system's short name.
    pub system: String,
    /// Its turn; `None`: it was not set up at all.
    pub repetition: Option<u32>,
    /// Why.
    pub reason: String,
}
