//! The load generator: closed and open loops over the wire protocol, on plain epoll, so that it
//! costs less than the server it measures.

mod answer;
pub mod clock;
mod connection;
pub mod crew;
mod failure;
pub mod latency;
pub mod observer;
mod opening;
mod poisson;
pub mod report;
mod requests;
mod schedule;
pub mod settings;
pub mod sketch;
mod streams;
pub mod tally;
pub mod time_line;
mod worker;
pub mod workload;

use clock::Clock;
use crew::{Crew, Stop};
pub use failure::{RunError, WorkerError};
pub use observer::Observer;
pub use report::Report;
pub use settings::{Settings, SettingsError};
pub use tally::{Measured, Tally, Window};
pub use workload::{Arrivals, Expectation, ReadMode, StreamOrder, Workload};

/// The load starts this long after the last connection opened, so that all threads start at once.
const HEAD_START_NS: u64 = 2_000_000;

/// Runs the load and reports. Takes `warm_up + duration` after all connections are open, and up
/// to `drain` more for answers that are still out.
pub fn run(settings: &Settings) -> Result<Report, RunError> {
    Ok(Report::new(settings, &measure(settings)?))
}

/// Runs the load as [`run`] does; what each thread counted. Tallies of several runs under the same
/// settings may be reported together.
pub fn measure(settings: &Settings) -> Result<Vec<Tally>, RunError> {
    let clock = Clock::start();
    let crew = Crew::open(settings, 0..settings.threads, clock, &Stop::default())?;
    Ok(crew.run(clock.now_ns() + HEAD_START_NS))
}

/// The same; `observer` is told of the window, which is one of `clock`, on this thread.
pub fn measure_watched(
    settings: &Settings,
    clock: Clock,
    observer: &mut dyn Observer,
) -> Result<Measured, RunError> {
    let crew = Crew::open(settings, 0..settings.threads, clock, &Stop::default())?;
    let load_ns = clock.now_ns() + HEAD_START_NS;
    Ok(crew.run_watched(load_ns, clock, observer))
}
