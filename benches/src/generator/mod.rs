//! The load generator: closed and open loops over the wire protocol, on plain epoll, so that it
//! costs less than the server it measures.

mod answer;
pub mod clock;
mod connection;
pub mod latency;
pub mod report;
mod schedule;
pub mod settings;
pub mod tally;
mod worker;
mod workload;

use std::sync::mpsc;
use std::thread;

use clock::Clock;
pub use report::Report;
pub use settings::{Expectation, Settings, SettingsError, Workload};
pub use tally::{Tally, Window};
use worker::Worker;
pub use worker::WorkerError;

/// The load starts this long after the last connection opened, so that all threads start at once.
const HEAD_START_NS: u64 = 2_000_000;

/// Why a run gave no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Settings out of range.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Connections could not be opened, or the system refused something.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// A generator thread could not be started.
    #[error("cannot start a generator thread: {0}")]
    Thread(std::io::Error),
}

/// Runs the load and reports. Takes `warm_up + duration` after all connections are open, and up
/// to `drain` more for answers that are still out.
pub fn run(settings: &Settings) -> Result<Report, RunError> {
    Ok(Report::new(settings, &measure(settings)?))
}

/// Runs the load as [`run`] does; what each thread counted. Tallies of several runs under the same
/// settings may be reported together.
pub fn measure(settings: &Settings) -> Result<Vec<Tally>, RunError> {
    settings.check()?;
    let clock = Clock::start();
    let mut workers = Vec::new();
    for index in 0..settings.threads {
        let settings = settings.clone();
        let (opened, wait_opened) = mpsc::sync_channel(1);
        let (go, wait_go) = mpsc::sync_channel::<Window>(1);
        let work = move || -> Option<Tally> {
            let worker = match Worker::open(&settings, index, clock) {
                Ok(worker) => worker,
                Err(error) => {
                    let _ = opened.send(Err(error));
                    return None;
                }
            };
            opened.send(Ok(())).ok()?;
            Some(worker.run(wait_go.recv().ok()?))
        };
        let name = format!("bench-{index}");
        let handle = thread::Builder::new().name(name).spawn(work).map_err(RunError::Thread)?;
        workers.push((handle, wait_opened, go));
    }
    for (_, wait_opened, _) in &workers {
        wait_opened.recv().expect("a worker reports once before it ends")?;
    }
    let load_ns = clock.now_ns() + HEAD_START_NS;
    let nanoseconds = |duration: std::time::Duration| {
        u64::try_from(duration.as_nanos()).expect("settings bound durations by a day")
    };
    let start_ns = load_ns + nanoseconds(settings.warm_up);
    let window = Window { load_ns, start_ns, end_ns: start_ns + nanoseconds(settings.duration) };
    let mut tallies = Vec::new();
    for (handle, _, go) in workers {
        // A worker that is gone shows in the join below.
        let _ = go.send(window);
        tallies.push(handle);
    }
    Ok(tallies.into_iter().filter_map(|handle| handle.join().ok().flatten()).collect())
}
