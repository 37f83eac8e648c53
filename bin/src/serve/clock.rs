//! The one place where the server reads clocks.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use duolog_engine::ids::{MonoUs, Now, WallMs};

/// A clock that all threads of a node share.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the driver's clock")]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Both readings. A wall clock before 1970 reads 0: stamps then follow the log's own.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the driver's clock")]
    pub fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall = wall.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        Now { mono: self.mono(), wall: WallMs(wall) }
    }

    /// Time since the start.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the driver's clock")]
    pub fn mono(&self) -> MonoUs {
        let since = Instant::now().saturating_duration_since(self.start);
        MonoUs(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }
}
