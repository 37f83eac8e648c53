//! The four settings that decide when a node stops, challenges and renews. Checked together: each
//! is fine alone, but only some combinations leave room for a renewal before the fence.

use alloc::vec::Vec;
use core::fmt;

use thiserror::Error;

use crate::limits::{RESTART_WAIT_MS_MAX, RETRY_MS_MAX, RETRY_MS_MIN, TIMING_MS_MAX};

/// Flag of [`TimingValues::heartbeat_interval_ms`].
pub const HEARTBEAT_INTERVAL_FLAG: &str = "--heartbeat-interval-ms";
/// Flag of [`TimingValues::heartbeat_lease_duration_ms`].
pub const HEARTBEAT_LEASE_FLAG: &str = "--heartbeat-lease-duration-ms";
/// Flag of [`TimingValues::max_clock_drift_ms`].
pub const MAX_CLOCK_DRIFT_FLAG: &str = "--max-clock-drift-ms";
/// Flag of [`TimingValues::s3_lease_duration_ms`].
pub const S3_LEASE_FLAG: &str = "--s3-lease-duration-ms";

/// The settings as given. Both nodes must have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimingValues {
    /// Pause between two heartbeats of the leader, ms (L5).
    pub heartbeat_interval_ms: u64,
    /// How long a heartbeat carries the lease, ms (L5).
    pub heartbeat_lease_duration_ms: u64,
    /// How far the wall clocks of the two nodes may lie apart, ms (L6, L8).
    pub max_clock_drift_ms: u64,
    /// How long a write of the lease document carries the lease, ms (L7).
    pub s3_lease_duration_ms: u64,
}

impl Default for TimingValues {
    fn default() -> Self {
        Self {
            heartbeat_interval_ms: 500,
            heartbeat_lease_duration_ms: 1500,
            max_clock_drift_ms: 500,
            s3_lease_duration_ms: 30_000,
        }
    }
}

/// Checked settings, and the pauses between retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timings {
    values: TimingValues,
    retry_ms_min: u64,
    retry_ms_max: u64,
}

impl Default for Timings {
    fn default() -> Self {
        let values = TimingValues::default();
        Self { values, retry_ms_min: RETRY_MS_MIN, retry_ms_max: RETRY_MS_MAX }
    }
}

impl Timings {
    /// Checks the settings and their relations, all of them.
    ///
    /// # Errors
    /// Every broken rule, in one error.
    pub fn new(values: TimingValues) -> Result<Self, TimingsError> {
        let problems = problems(values);
        if problems.is_empty() {
            Ok(Self { values, ..Self::default() })
        } else {
            Err(TimingsError { problems })
        }
    }

    /// The same with retries every `ms`: for tests whose clock counts in single steps.
    #[must_use]
    pub fn with_retry_ms(self, ms: u64) -> Self {
        Self { retry_ms_min: ms, retry_ms_max: ms, ..self }
    }

    /// The settings as given.
    #[must_use]
    pub const fn values(&self) -> TimingValues {
        self.values
    }

    /// Pause between two heartbeats, ms.
    #[must_use]
    pub const fn heartbeat_interval_ms(&self) -> u64 {
        self.values.heartbeat_interval_ms
    }

    /// After this a heartbeat without an ack counts as failed, ms: half an interval, so that the
    /// other half is left for the renewal before the fence falls.
    #[must_use]
    pub const fn ack_patience_ms(&self) -> u64 {
        self.values.heartbeat_interval_ms.div_ceil(2)
    }

    /// How long a heartbeat carries the lease, ms.
    #[must_use]
    pub const fn heartbeat_lease_ms(&self) -> u64 {
        self.values.heartbeat_lease_duration_ms
    }

    /// How far the two wall clocks may lie apart, and how long before the end of its lease the
    /// leader stops, ms.
    #[must_use]
    pub const fn drift_ms(&self) -> u64 {
        self.values.max_clock_drift_ms
    }

    /// How long a write of the lease document carries the lease, ms.
    #[must_use]
    pub const fn s3_lease_ms(&self) -> u64 {
        self.values.s3_lease_duration_ms
    }

    /// Age of the confirmed lease document from which a leader without follower renews, ms.
    #[must_use]
    pub const fn renew_age_ms(&self) -> u64 {
        self.values.s3_lease_duration_ms / 2
    }

    /// How long a restarted node listens before it takes the other's expired lease, ms (L9).
    #[must_use]
    pub const fn restart_wait_ms(&self) -> u64 {
        let lease = self.values.heartbeat_lease_duration_ms;
        if lease < RESTART_WAIT_MS_MAX { lease } else { RESTART_WAIT_MS_MAX }
    }

    /// First pause after a call to the store that settled nothing, ms.
    #[must_use]
    pub const fn retry_ms_min(&self) -> u64 {
        self.retry_ms_min
    }

    /// The pause that follows one of `ms`, ms.
    #[must_use]
    pub const fn retry_ms_after(&self, ms: u64) -> u64 {
        let doubled = ms.saturating_mul(2);
        if doubled < self.retry_ms_max { doubled } else { self.retry_ms_max }
    }
}

fn problems(values: TimingValues) -> Vec<TimingProblem> {
    let TimingValues {
        heartbeat_interval_ms: interval,
        heartbeat_lease_duration_ms: lease,
        max_clock_drift_ms: drift,
        s3_lease_duration_ms: s3_lease,
    } = values;
    let mut problems = Vec::new();
    let ranges = [
        (HEARTBEAT_INTERVAL_FLAG, interval),
        (HEARTBEAT_LEASE_FLAG, lease),
        (MAX_CLOCK_DRIFT_FLAG, drift),
        (S3_LEASE_FLAG, s3_lease),
    ];
    for (flag, ms) in ranges {
        if !(1..=TIMING_MS_MAX).contains(&ms) {
            problems.push(TimingProblem::OutOfRange { flag, ms });
        }
    }
    if !problems.is_empty() {
        return problems; // relations of nonsense are noise
    }
    if lease < 2 * interval + drift {
        problems.push(TimingProblem::NoRoomForRenewal { lease, interval, drift });
    }
    if lease > RESTART_WAIT_MS_MAX + drift {
        problems.push(TimingProblem::OutlivesRestart { lease, drift });
    }
    if s3_lease < 2 * lease {
        problems.push(TimingProblem::S3LeaseTooShort { s3_lease, lease });
    }
    if s3_lease < 4 * drift {
        problems.push(TimingProblem::DriftEatsS3Lease { s3_lease, drift });
    }
    problems
}

/// A broken rule among the settings. All numbers are milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimingProblem {
    /// Zero, or more than an hour.
    OutOfRange {
        /// The setting.
        flag: &'static str,
        /// Its value.
        ms: u64,
    },
    /// The first failed heartbeat leaves one interval after the last good one and counts as failed
    /// half an interval later; the fence falls at lease - drift after the last good one. Another
    /// half interval must lie between for the renewal (L7, L8).
    NoRoomForRenewal {
        /// Heartbeat lease.
        lease: u64,
        /// Heartbeat interval.
        interval: u64,
        /// Clock drift.
        drift: u64,
    },
    /// A node that acked a heartbeat and restarted has forgotten it, waits at most
    /// [`RESTART_WAIT_MS_MAX`] and challenges; the leader may count on that ack for lease - drift.
    OutlivesRestart {
        /// Heartbeat lease.
        lease: u64,
        /// Clock drift.
        drift: u64,
    },
    /// Elections over the store must be the slow way: half of the lease is the time to renew it.
    S3LeaseTooShort {
        /// Lease of the document.
        s3_lease: u64,
        /// Heartbeat lease.
        lease: u64,
    },
    /// A leader alone renews at half of the lease; the fence must lie well behind.
    DriftEatsS3Lease {
        /// Lease of the document.
        s3_lease: u64,
        /// Clock drift.
        drift: u64,
    },
}

impl fmt::Display for TimingProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OutOfRange { flag, ms } => {
                write!(f, "{flag} is {ms}: give 1 to {TIMING_MS_MAX} milliseconds")
            }
            Self::NoRoomForRenewal { lease, interval, drift } => write!(
                f,
                "{HEARTBEAT_LEASE_FLAG} is {lease}: give at least {} (twice \
                 {HEARTBEAT_INTERVAL_FLAG} {interval} plus {MAX_CLOCK_DRIFT_FLAG} {drift}), else \
                 the leader fences before it can renew",
                2 * interval + drift
            ),
            Self::OutlivesRestart { lease, drift } => write!(
                f,
                "{HEARTBEAT_LEASE_FLAG} is {lease}: give at most {} ({RESTART_WAIT_MS_MAX} plus \
                 {MAX_CLOCK_DRIFT_FLAG} {drift}), else a restarted follower can take over while \
                 the leader still counts on its last heartbeat",
                RESTART_WAIT_MS_MAX + drift
            ),
            Self::S3LeaseTooShort { s3_lease, lease } => write!(
                f,
                "{S3_LEASE_FLAG} is {s3_lease}: give at least {} (twice {HEARTBEAT_LEASE_FLAG} \
                 {lease})",
                2 * lease
            ),
            Self::DriftEatsS3Lease { s3_lease, drift } => write!(
                f,
                "{S3_LEASE_FLAG} is {s3_lease}: give at least {} (four times \
                 {MAX_CLOCK_DRIFT_FLAG} {drift})",
                4 * drift
            ),
        }
    }
}

/// Every broken rule among the settings.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", Listed(problems))]
pub struct TimingsError {
    /// At least one.
    pub problems: Vec<TimingProblem>,
}

struct Listed<'a>(&'a [TimingProblem]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "; " };
            write!(f, "{comma}{problem}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(interval: u64, lease: u64, drift: u64, s3_lease: u64) -> TimingValues {
        TimingValues {
            heartbeat_interval_ms: interval,
            heartbeat_lease_duration_ms: lease,
            max_clock_drift_ms: drift,
            s3_lease_duration_ms: s3_lease,
        }
    }

    #[test]
    fn the_defaults_hold_all_relations() {
        assert_eq!(Timings::new(TimingValues::default()), Ok(Timings::default()));
        assert_eq!(TimingValues::default(), values(500, 1500, 500, 30_000));
    }

    #[test]
    fn each_relation_is_checked_at_its_edge() {
        let cases = [
            (values(500, 1500, 500, 30_000), vec![]),
            (
                values(500, 1499, 500, 30_000),
                vec![TimingProblem::NoRoomForRenewal { lease: 1499, interval: 500, drift: 500 }],
            ),
            (values(500, 5500, 500, 30_000), vec![]),
            (
                values(500, 5501, 500, 30_000),
                vec![TimingProblem::OutlivesRestart { lease: 5501, drift: 500 }],
            ),
            (values(500, 1500, 500, 3000), vec![]),
            (
                values(500, 1500, 500, 2999),
                vec![TimingProblem::S3LeaseTooShort { s3_lease: 2999, lease: 1500 }],
            ),
            (values(1, 1000, 998, 3992), vec![]),
            (
                values(1, 1000, 998, 3991),
                vec![TimingProblem::DriftEatsS3Lease { s3_lease: 3991, drift: 998 }],
            ),
        ];
        for (values, problems) in cases {
            let found = Timings::new(values).err().map_or_else(Vec::new, |error| error.problems);
            assert_eq!(found, problems, "{values:?}");
        }
    }

    #[test]
    fn all_mistakes_are_told_at_once_with_the_flags() {
        let error = Timings::new(values(0, 3_600_001, 500, 30_000)).expect_err("two of range");
        assert_eq!(error.problems.len(), 2);
        let error = Timings::new(values(1000, 1400, 500, 2000)).expect_err("two relations");
        let text = error.to_string();
        for part in [
            "--heartbeat-lease-duration-ms is 1400: give at least 2500",
            "--heartbeat-interval-ms 1000",
            "--max-clock-drift-ms 500",
            "; --s3-lease-duration-ms is 2000: give at least 2800",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn retries_double_up_to_the_limit() {
        let timings = Timings::default();
        let mut pauses = vec![timings.retry_ms_min()];
        for index in 0..7 {
            pauses.push(timings.retry_ms_after(pauses[index]));
        }
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
    }
}
