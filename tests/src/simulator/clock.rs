//! A node's clocks: a monotonic one with a zero and a rate of its own, and a wall clock that is off
//! and may be set.

use duolog_engine::ids::{MonoUs, Now, WallMs};

/// Wall time at the beginning of every run, ms since 1970.
pub const WALL_MS: u64 = 1_800_000_000_000;
const MILLION: u64 = 1_000_000;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// True time and the clock's reading when the rate was set last, microseconds.
    since: (u64, u64),
    /// Parts per million; a million is true.
    rate: u64,
    /// What the wall clock is ahead, ms.
    ahead_ms: i64,
}

impl Clock {
    /// A true clock whose zero is `zero_us` ago.
    pub const fn new(zero_us: u64) -> Self {
        Self { since: (0, zero_us), rate: MILLION, ahead_ms: 0 }
    }

    /// What it shows at the true time `at_us`.
    pub fn read(&self, at_us: u64) -> Now {
        let mono = self.since.1 + at_us.saturating_sub(self.since.0) * self.rate / MILLION;
        let wall = (WALL_MS + at_us / 1000).saturating_add_signed(self.ahead_ms);
        Now { mono: MonoUs(mono), wall: WallMs(wall) }
    }

    /// The first true time at which it shows `mono_us` or more.
    pub fn true_time(&self, mono_us: u64, at_us: u64) -> u64 {
        let rest = mono_us.saturating_sub(self.since.1) * MILLION;
        at_us.max(self.since.0 + rest.div_ceil(self.rate))
    }

    /// From `at_us` on the monotonic clock runs at `rate` parts per million of the true one.
    pub fn set_rate(&mut self, at_us: u64, rate: u64) {
        self.since = (at_us, self.read(at_us).mono.0);
        self.rate = rate;
    }

    /// From `at_us` on the monotonic clock stands still, until `until_us`.
    pub fn stop(&mut self, at_us: u64, until_us: u64) {
        self.since = (until_us, self.read(at_us).mono.0);
    }

    /// Somebody sets the wall clock.
    pub const fn set_wall(&mut self, ahead_ms: i64) {
        self.ahead_ms = ahead_ms;
    }
}
