//! The edge to time: the monotonic clock of a run, waiting, what a thread has consumed.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since a common start; steps of the wall clock do not touch it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that reads zero now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the generator measures real time")]
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Nanoseconds since the start.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        nanoseconds(self.origin.elapsed())
    }

    /// Whether more than `limit` has passed since the start.
    #[must_use]
    pub fn is_past(&self, limit: Duration) -> bool {
        self.origin.elapsed() > limit
    }
}

/// A duration in nanoseconds; those of a benchmark fit by far.
#[must_use]
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}

/// Waits. Not for a thread that measures.
#[expect(clippy::disallowed_methods, reason = "the benchmark waits for its servers")]
pub fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// Seconds since 1970, for the date of a result.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a result says when it was taken")]
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// `2026-01-31 09:05 UTC` of a number of seconds since 1970.
#[must_use]
pub fn date_text(unix_seconds: u64) -> String {
    let (days, second_of_day) = (unix_seconds / 86_400, unix_seconds % 86_400);
    // Days are counted from 1 March of year 0, so that the leap day is a year's last.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (second_of_day / 3600, second_of_day % 3600 / 60);
    format!("{year:04}-{month:02}-{day_of_month:02} {hour:02}:{minute:02} UTC")
}

/// What the calling thread has consumed so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadUse {
    /// Processor time, ns.
    pub cpu_ns: u64,
    /// Time it was ready to run and had to wait for a processor, ns; 0 where the kernel does not
    /// tell.
    pub waited_ns: u64,
}

impl ThreadUse {
    /// Until now.
    #[must_use]
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let cpu_ns = seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0);
        let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
        let waited = told.and_then(|text| text.split_whitespace().nth(1)?.parse().ok());
        Self { cpu_ns, waited_ns: waited.unwrap_or(0) }
    }

    /// What was consumed since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            waited_ns: self.waited_ns.saturating_sub(earlier.waited_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dates around leap days and a year's end. Broken if a day is off.
    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date_text(0), "1970-01-01 00:00 UTC");
        assert_eq!(date_text(951_782_399), "2000-02-28 23:59 UTC");
        assert_eq!(date_text(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date_text(1_735_689_599), "2024-12-31 23:59 UTC");
        assert_eq!(date_text(1_772_323_200), "2026-03-01 00:00 UTC");
    }
}
