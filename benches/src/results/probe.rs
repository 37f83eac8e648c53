//! What disk and network can do at their plainest, before and after the load: a disk that changed
//! its mind in between makes a result worth less, and shows.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::line::Line;
use crate::generator::latency::Latencies;
use crate::limits::raw;

/// Writes of a disk probe: about a tenth of a second on a disk of data centres.
const WRITES: u32 = 500;
/// Pings of a network probe.
const PINGS: u32 = 500;
/// Medians that differ by more than this share have changed.
const CHANGED_SHARE: f64 = 0.25;

/// One look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Median, us.
    pub p50_us: f64,
    /// 99th percentile, us.
    pub p99_us: f64,
    /// Number of operations.
    pub samples: u64,
}

/// Two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BeforeAfter {
    /// Before the warm-up.
    pub before: Option<Probe>,
    /// When the last answer was in.
    pub after: Option<Probe>,
}

/// What was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probes {
    /// Raw writes of 4 KiB with `O_DIRECT` and `O_DSYNC` beside the server's data; `null` without
    /// `--dir`.
    pub disk_write: Option<BeforeAfter>,
    /// Pings of 256 bytes, answered by the server, on a connection of their own.
    pub round_trip: BeforeAfter,
}

impl Probe {
    /// Writes in `dir`.
    pub fn disk(dir: &Path) -> io::Result<Self> {
        let latencies = raw::durable_writes(dir, WRITES)?;
        Self::of(&latencies).ok_or_else(|| io::Error::other("nothing was written"))
    }

    /// Pings; `None` when the server does not answer.
    #[must_use]
    pub fn network(line: &mut Line) -> Option<Self> {
        line.round_trips(PINGS).ok().as_ref().and_then(Self::of)
    }

    fn of(latencies: &Latencies) -> Option<Self> {
        let p50_us = latencies.percentile_us(50.0)?;
        let p99_us = latencies.percentile_us(99.0)?;
        Some(Self { p50_us, p99_us, samples: latencies.count() })
    }
}

impl BeforeAfter {
    /// The medians, if they differ by more than a quarter of the smaller one.
    #[must_use]
    pub fn changed(&self) -> Option<(f64, f64)> {
        let (before, after) = (self.before?.p50_us, self.after?.p50_us);
        let far = before.max(after) > before.min(after) * (1.0 + CHANGED_SHARE);
        far.then_some((before, after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(before: f64, after: f64) -> BeforeAfter {
        let probe = |p50_us| Some(Probe { p50_us, p99_us: 1000.0, samples: 1 });
        BeforeAfter { before: probe(before), after: probe(after) }
    }

    #[test]
    fn a_quarter_is_a_change_in_either_direction() {
        assert_eq!(looks(100.0, 125.0).changed(), None);
        assert_eq!(looks(100.0, 126.0).changed(), Some((100.0, 126.0)));
        assert_eq!(looks(126.0, 100.0).changed(), Some((126.0, 100.0)));
        let half = BeforeAfter { after: None, ..looks(1.0, 9.0) };
        assert_eq!(half.changed(), None, "one look shows no change");
    }

    #[test]
    fn a_disk_is_looked_at_and_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let probe = Probe::disk(dir.path()).unwrap();
        assert!(probe.p50_us > 0.0 && probe.p99_us >= probe.p50_us, "{probe:?}");
        assert_eq!(probe.samples, u64::from(WRITES));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
