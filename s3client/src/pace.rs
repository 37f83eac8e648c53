//! How long to wait between attempts, and when to give up. Pure.
//!
//! Promise: pauses grow, differ between clients, obey the server within a limit, and end with the
//! time that was allowed.

use std::time::Duration;

use crate::limits::{PAUSE_MS_MAX, PAUSE_MS_MIN};

/// Pauses of one call.
#[derive(Debug)]
pub(crate) struct Pace {
    next_ms: u64,
    /// For all attempts and pauses together; `None` for ever.
    allowed: Option<Duration>,
}

impl Pace {
    pub(crate) const fn new(allowed: Option<Duration>) -> Self {
        Self { next_ms: PAUSE_MS_MIN, allowed }
    }

    /// The pause after an attempt that failed `elapsed` after the call began; `None` to give up.
    /// At least what the server asked for (`at_least`), else between half and the whole of twice
    /// the pause before, up to [`PAUSE_MS_MAX`].
    pub(crate) fn next(
        &mut self,
        elapsed: Duration,
        at_least: Option<Duration>,
        chance: u64,
    ) -> Option<Duration> {
        let half_us = self.next_ms * 500;
        let own = Duration::from_micros(half_us + chance % (half_us + 1));
        self.next_ms = (self.next_ms * 2).min(PAUSE_MS_MAX);
        // A server that is asked again at the very moment it named gets everybody at once.
        let pause = at_least.map_or(own, |asked| asked + own);
        match self.allowed {
            Some(allowed) if elapsed + pause >= allowed => None,
            _ => Some(pause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Duration = Duration::ZERO;

    #[test]
    fn pauses_double_up_to_the_limit_and_vary_by_half() {
        let (mut short, mut long) = (Pace::new(None), Pace::new(None));
        for full_ms in [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            let full = Duration::from_millis(full_ms);
            assert_eq!(short.next(NONE, None, 0), Some(full / 2));
            assert_eq!(long.next(NONE, None, full_ms * 500), Some(full));
        }
    }

    #[test]
    fn the_server_is_obeyed() {
        let asked = Duration::from_secs(7);
        let pause = Pace::new(None).next(NONE, Some(asked), 0).unwrap();
        assert!(pause > asked && pause < asked + Duration::from_millis(51), "{pause:?}");
    }

    #[test]
    fn a_pause_that_would_end_too_late_is_not_begun() {
        let allowed = Some(Duration::from_secs(10));
        let second = Duration::from_secs(1);
        assert!(Pace::new(allowed).next(9 * second, None, 0).is_some());
        assert_eq!(Pace::new(allowed).next(10 * second, None, 0), None);
        assert_eq!(Pace::new(allowed).next(second, Some(9 * second), 0), None);
        assert_eq!(Pace::new(Some(NONE)).next(NONE, None, 0), None);
    }

    /// Without a limit it goes on, for ever (s3.retry_max_duration_secs is not set).
    #[test]
    fn without_a_limit_nobody_gives_up() {
        let mut pace = Pace::new(None);
        assert!(
            (0..1000).all(|hour| pace.next(Duration::from_secs(3600 * hour), None, hour).is_some())
        );
    }
}
