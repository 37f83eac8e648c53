//! The time line that everything in one test process shares.

use std::sync::OnceLock;

use super::patience::Stopwatch;

/// From when a client sent something to when it had the answer, on [`moment_us`]'s time line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Before the first byte of the first try left.
    pub sent_us: u64,
    /// After the answer was read.
    pub answered_us: u64,
}

/// Microseconds since this was asked first in this process.
#[must_use]
pub fn moment_us() -> u64 {
    static START: OnceLock<Stopwatch> = OnceLock::new();
    let elapsed = START.get_or_init(Stopwatch::start).elapsed();
    u64::try_from(elapsed.as_micros()).expect("no test runs for ages")
}
