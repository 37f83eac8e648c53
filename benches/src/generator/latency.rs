//! A histogram of latencies: recorded in nanoseconds with three significant digits, 1 us to 120 s.
//! Longer ones are counted as over range, enter the top bucket and keep their exact maximum.

use hdrhistogram::Histogram;

const LOWEST_NS: u64 = 100;
const HIGHEST_NS: u64 = 120_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// Latencies of one population.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    over_range: u64,
    min_ns: u64,
    max_ns: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS)
            .expect("the bounds above are valid");
        Self { histogram, over_range: 0, min_ns: u64::MAX, max_ns: 0 }
    }
}

impl Latencies {
    /// Counts one value.
    pub fn record(&mut self, value_ns: u64) {
        if value_ns > HIGHEST_NS {
            self.over_range += 1;
        }
        self.min_ns = self.min_ns.min(value_ns);
        self.max_ns = self.max_ns.max(value_ns);
        self.histogram.saturating_record(value_ns);
    }

    /// Takes over everything `other` counted: percentiles of several workers come from the union
    /// of their values, never from their percentiles.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("both histograms have the same bounds");
        self.over_range += other.over_range;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Values above 120 s.
    #[must_use]
    pub const fn over_range(&self) -> u64 {
        self.over_range
    }

    /// The value below or at which `percent` (0..=100) of all values lie, us. `None` when empty.
    #[must_use]
    pub fn percentile_us(&self, percent: f64) -> Option<f64> {
        if self.histogram.is_empty() {
            return None;
        }
        let value_ns = self.histogram.value_at_quantile(percent / 100.0);
        // A bucket's upper end may lie beyond the values that were recorded.
        Some(microseconds(value_ns.max(self.min_ns).min(self.max_ns).min(HIGHEST_NS)))
    }

    /// Smallest value, us. `None` when empty.
    #[must_use]
    pub fn min_us(&self) -> Option<f64> {
        (!self.histogram.is_empty()).then(|| microseconds(self.min_ns))
    }

    /// Largest value, us, exact also over range. `None` when empty.
    #[must_use]
    pub fn max_us(&self) -> Option<f64> {
        (!self.histogram.is_empty()).then(|| microseconds(self.max_ns))
    }

    /// Arithmetic mean, us. `None` when empty.
    #[must_use]
    pub fn mean_us(&self) -> Option<f64> {
        (!self.histogram.is_empty()).then(|| tenths(self.histogram.mean() / 1000.0))
    }
}

fn microseconds(value_ns: u64) -> f64 {
    tenths(value_ns as f64 / 1000.0)
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: Option<f64>, wanted: f64) -> bool {
        // Three significant digits: a bucket is at most 1/1000 of its value wide.
        found.is_some_and(|found| (found - wanted).abs() <= wanted / 1000.0 + 0.1)
    }

    /// Percentiles are percentiles (99.9 is not cut to 99, 50 is not read as 0.5), exact to the
    /// histogram's resolution. Broken if any differs from the value at its rank.
    #[test]
    fn percentiles_are_exact_to_the_resolution() {
        let mut latencies = Latencies::default();
        for value in 1..=100_000_u64 {
            latencies.record(value * 1000);
        }
        for (percent, wanted) in [
            (50.0, 50_000.0),
            (90.0, 90_000.0),
            (99.0, 99_000.0),
            (99.9, 99_900.0),
            (99.99, 99_990.0),
        ] {
            let found = latencies.percentile_us(percent);
            assert!(close(found, wanted), "p{percent}: {found:?}");
        }
        assert_eq!(latencies.max_us(), Some(100_000.0));
        assert_eq!(latencies.min_us(), Some(1.0));
        assert_eq!(latencies.count(), 100_000);
    }

    /// Workers' percentiles come from the merged population. Broken if the slow worker's few
    /// values show at p95, or are missing at p99.5.
    #[test]
    fn percentiles_of_workers_come_from_the_union() {
        let (mut fast, mut slow) = (Latencies::default(), Latencies::default());
        (0..1000).for_each(|_| fast.record(10_000_000));
        (0..10).for_each(|_| slow.record(2_000_000_000));
        fast.merge(&slow);
        assert!(close(fast.percentile_us(95.0), 10_000.0));
        assert!(close(fast.percentile_us(99.5), 2_000_000.0));
        assert_eq!(fast.count(), 1010);
    }

    /// A value above the range is neither dropped nor hidden.
    #[test]
    fn values_over_the_range_are_counted_and_shown() {
        let mut latencies = Latencies::default();
        latencies.record(300_000_000_000);
        assert_eq!(latencies.over_range(), 1);
        assert_eq!(latencies.count(), 1);
        assert_eq!(latencies.max_us(), Some(300_000_000.0));
        assert_eq!(latencies.percentile_us(50.0), Some(120_000_000.0));
    }

    /// An empty population has no numbers at all: not the largest integer, not NaN.
    #[test]
    fn nothing_recorded_gives_nothing() {
        let latencies = Latencies::default();
        assert_eq!(latencies.percentile_us(99.0), None);
        assert_eq!(latencies.min_us(), None);
        assert_eq!(latencies.max_us(), None);
        assert_eq!(latencies.mean_us(), None);
    }
}
