//! Waiting with limits, the clock of the tests, and room for tests that need the machine alone.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Pause between two looks of [`until`].
const LOOK: Duration = Duration::from_millis(5);

/// Measures real time.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "real processes live in real time")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Sleeps.
#[expect(clippy::disallowed_methods, reason = "real processes live in real time")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Looks again and again until `look` finds something; panics with `what` after `limit`.
pub fn until<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let watch = Stopwatch::start();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(watch.elapsed() < limit, "waited {limit:?} for this: {what}");
        pause(LOOK);
    }
}

/// Holds off the other tests of this program that ask for it: figures and time bounds mean little
/// when several of them share two cores.
pub fn quiet() -> MutexGuard<'static, ()> {
    static QUIET: Mutex<()> = Mutex::new(());
    QUIET.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says, past the test runner's capture, that a test could not be run here.
pub fn skip(test: &str, reason: &str) {
    // Nobody to tell is no reason to fail.
    let _ = writeln!(io::stderr(), "skipped: {test}: {reason}");
}
