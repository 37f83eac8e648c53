//! A histogram of latencies: nanoseconds with three significant digits, up to 120 s.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

const LOWEST_NS: u64 = 100;
const HIGHEST_NS: u64 = 120_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// Latencies of one load.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    max_ns: u64,
}

/// What is kept of them, microseconds. `None` where nothing was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyFigures {
    /// Number of latencies.
    pub samples: u64,
    pub p50_us: Option<f64>,
    pub p90_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub p99_9_us: Option<f64>,
    /// Exact.
    pub max_us: Option<f64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS)
            .expect("the bounds above are valid");
        Self { histogram, max_ns: 0 }
    }
}

impl Latencies {
    /// Counts one; those over 120 s enter the top bucket.
    pub fn record(&mut self, value_ns: u64) {
        self.max_ns = self.max_ns.max(value_ns);
        self.histogram.saturating_record(value_ns);
    }

    /// The figures.
    #[must_use]
    pub fn figures(&self) -> LatencyFigures {
        let samples = self.histogram.len();
        let some =
            |ns: u64| (samples > 0).then(|| (ns.min(self.max_ns) as f64 / 100.0).round() / 10.0);
        let at = |percent: f64| some(self.histogram.value_at_quantile(percent / 100.0));
        LatencyFigures {
            samples,
            p50_us: at(50.0),
            p90_us: at(90.0),
            p99_us: at(99.0),
            p99_9_us: at(99.9),
            max_us: some(self.max_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Percentiles are those of the population, to the histogram's resolution. Broken if any
    /// differs from the value at its rank by more than a bucket.
    #[test]
    fn percentiles_are_exact_to_the_resolution() {
        let mut latencies = Latencies::default();
        (1..=100_000_u64).for_each(|value| latencies.record(value * 1000));
        let figures = latencies.figures();
        let wanted = [50_000.0, 90_000.0, 99_000.0, 99_900.0, 100_000.0];
        let found =
            [figures.p50_us, figures.p90_us, figures.p99_us, figures.p99_9_us, figures.max_us];
        for (found, wanted) in found.into_iter().zip(wanted) {
            let found = found.unwrap();
            assert!((found - wanted).abs() <= wanted / 1000.0 + 0.1, "{found}, not {wanted}");
        }
        assert_eq!(figures.samples, 100_000);
        assert_eq!(Latencies::default().figures(), LatencyFigures::default());
    }
}
