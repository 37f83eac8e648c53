//! The result of a run as one document that says itself where it comes from. Pure data: everything
//! that a report or a comparison shows is in here.

use serde::{Deserialize, Serialize};

use super::cost::{ServerCost, digits};
use super::host::Host;
use super::line::ServerStatus;
use super::probe::Probes;
use super::storage::Storage;
use super::sweep_note::SweepNote;
use super::warning::Warning;
use crate::fleet::FleetReport;
use crate::generator::latency::Latencies;
use crate::generator::report::Report;
use crate::generator::time_line::TimeLine;

/// The form of this document. Grows when a member is removed or changes its meaning.
pub const SCHEMA_VERSION: u32 = 1;

/// See the module's text. Numbers that do not exist are `null`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// When the first connection was opened, UTC.
    pub started_at: String,
    /// When everything was measured, UTC.
    pub ended_at: String,
    /// The command line.
    pub command: Vec<String>,
    /// The generator's program.
    pub program: Build,
    /// The server that was asked, if it tells.
    pub server: Option<Server>,
    /// The generator's machine.
    pub host: Host,
    /// Where the server's data lie, with `--dir`.
    pub storage: Option<Storage>,
    /// Disk and network, before and after.
    pub probes: Probes,
    /// What speaks against the figures.
    pub warnings: Vec<Warning>,
    /// What was asked for and what was counted.
    pub report: Report,
    /// What it cost the server.
    pub server_cost: ServerCost,
    /// The distribution of the latencies.
    pub percentiles: Vec<Percentile>,
    /// How it went over time.
    pub time_line: TimeLineNote,
    /// Latency over throughput: one point, or those of a sweep in the order of their load.
    pub curve: Vec<CurvePoint>,
    /// The sweep, if this is the run at its knee.
    pub sweep: Option<SweepNote>,
    /// How each worker did, if the load came from several.
    pub fleet: Option<FleetReport>,
}

/// A program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Build {
    pub version: String,
    /// `unknown` if it was built without git; ends in `-modified` if sources differed from it.
    pub commit: String,
}

/// The server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it; see docs/OPERATIONS.md, \"Status\"")]
pub struct Server {
    pub node: Option<String>,
    pub role: Option<String>,
    pub version: Option<String>,
    pub commit: Option<String>,
    pub shards: usize,
}

/// How many of all operations took how long at most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// 0 to 100.
    pub percent: f64,
    /// Microseconds.
    pub latency_us: f64,
}

/// A [`TimeLine`] in plain numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeLineNote {
    /// Length of each point, seconds; the last one ends with the window.
    pub interval_s: f64,
    /// In order.
    pub points: Vec<TimePoint>,
}

/// One interval. A completion belongs to the interval in which its answer came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct TimePoint {
    /// Start, seconds since the window began.
    pub at_s: f64,
    pub acked: u64,
    pub throughput_per_s: f64,
    pub errors: u64,
    /// At most 1.6 % too large, like `p99_us`.
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub max_us: Option<f64>,
}

/// One load of a sweep, or the whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct CurvePoint {
    /// What stands beside the point.
    pub label: String,
    /// The load that was wanted; `null` in a closed loop.
    pub rate_per_s: Option<u64>,
    pub throughput_per_s: f64,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub p99_9_us: Option<f64>,
    pub max_us: Option<f64>,
    pub errors: u64,
    pub saturated: bool,
    pub client_limited: bool,
}

impl CurvePoint {
    /// The point of a run.
    #[must_use]
    pub fn of(label: impl Into<String>, report: &Report) -> Self {
        let latency = &report.latency_us;
        Self {
            label: label.into(),
            rate_per_s: report.settings.rate_per_s,
            throughput_per_s: report.throughput_per_s,
            p50_us: latency.p50,
            p99_us: latency.p99,
            p99_9_us: latency.p99_9,
            max_us: latency.max,
            errors: report.errors,
            saturated: report.open_loop.as_ref().is_some_and(|open| open.saturated),
            client_limited: report.client.client_limited,
        }
    }
}

impl From<&ServerStatus> for Server {
    fn from(status: &ServerStatus) -> Self {
        Self {
            node: status.node.clone(),
            role: status.role.clone(),
            version: status.version.clone(),
            commit: status.commit.clone(),
            shards: status.shards.len(),
        }
    }
}

impl From<&TimeLine> for TimeLineNote {
    fn from(line: &TimeLine) -> Self {
        let us = |ns: u64| (ns as f64 / 100.0).round() / 10.0;
        let points = line.spans().zip(&line.points).map(|((at_s, span_s), point)| {
            let latencies = &point.latencies;
            let percentile = |percent| latencies.percentile_ns(percent).map(us);
            TimePoint {
                at_s: (at_s * 1000.0).round() / 1000.0,
                acked: point.acked,
                throughput_per_s: digits(point.acked as f64 / span_s),
                errors: point.errors,
                p50_us: percentile(50.0),
                p99_us: percentile(99.0),
                max_us: (point.acked > 0).then(|| us(latencies.max_ns())),
            }
        });
        Self { interval_s: line.interval_ns as f64 / 1e9, points: points.collect() }
    }
}

/// The distribution: nine steps for each further nine, as far as there are operations beyond, and
/// the maximum.
#[must_use]
pub fn percentiles(latencies: &Latencies) -> Vec<Percentile> {
    let (mut list, mut scale) = (Vec::new(), 1.0);
    let row = |percent: f64| {
        // Sums of decimal fractions have long tails.
        let percent = (percent * 1e9).round() / 1e9;
        latencies.percentile_us(percent).map(|latency_us| Percentile { percent, latency_us })
    };
    while scale * latencies.count() as f64 >= 1.0 {
        let steps = (2..=10).rev().map(|tenth| scale * f64::from(tenth) / 10.0);
        let beyond = steps.filter(|share| share * latencies.count() as f64 >= 1.0);
        list.extend(beyond.filter_map(|share| row(100.0 - share * 100.0)));
        scale /= 10.0;
    }
    list.extend(latencies.max_us().map(|latency_us| Percentile { percent: 100.0, latency_us }));
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table goes as far as the operations do. Broken if a percentile stands there beyond which
    /// nothing was measured, or if the nines are not in it.
    #[test]
    fn percentiles_end_where_operations_do() {
        let mut latencies = Latencies::default();
        (1..=1000_u64).for_each(|value| latencies.record(value * 1_000_000));
        let list = percentiles(&latencies);
        assert!(list.windows(2).all(|pair| pair[0].percent < pair[1].percent));
        assert!(list.windows(2).all(|pair| pair[0].latency_us <= pair[1].latency_us));
        for percent in [0.0, 50.0, 90.0, 99.0, 99.8, 99.9, 100.0] {
            assert!(list.iter().any(|row| row.percent == percent), "{percent} is missing");
        }
        assert!(!list.iter().any(|row| row.percent > 99.9 && row.percent < 100.0), "{list:?}");
        assert_eq!(list.last().unwrap().latency_us, 1_000_000.0);
        assert!(percentiles(&Latencies::default()).is_empty());
    }
}
