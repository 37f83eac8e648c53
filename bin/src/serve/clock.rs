//! The one place where the server reads clocks.

use std::time::{SystemTime, UNIX_EPOCH};

use duolog_engine::ids::{MonoUs, Now, WallMs};
use rustix::time::{ClockId, clock_gettime};

/// The clocks of this machine; the same for all threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// Both readings. A wall clock before 1970 reads 0: stamps then follow the log's own.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the driver's clock")]
    pub fn now(self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall = wall.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        Now { mono: self.mono(), wall: WallMs(wall) }
    }

    /// Time since the machine started, suspended or not: a lease runs out while a machine sleeps.
    #[must_use]
    pub fn mono(self) -> MonoUs {
        let since = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(since.tv_sec).unwrap_or(0);
        MonoUs(seconds * 1_000_000 + u64::try_from(since.tv_nsec).unwrap_or(0) / 1000)
    }
}
