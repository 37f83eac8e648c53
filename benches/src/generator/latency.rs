//! A histogram of latencies: recorded in nanoseconds with three significant digits, 1 us to 120 s.
//! Longer ones are counted as over range, enter the top bucket and keep their exact maximum.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use serde::{Deserialize, Serialize};

const LOWEST_NS: u64 = 100;
const HIGHEST_NS: u64 = 120_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// Latencies of one population.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "LatenciesText", try_from = "LatenciesText")]
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

    /// The histogram itself, in ns.
    #[must_use]
    pub const fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
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

/// The form in JSON: nothing is rounded, so that populations of several machines merge as those of
/// several threads do.
#[derive(Serialize, Deserialize)]
struct LatenciesText {
    /// The histogram of nanoseconds: HdrHistogram's V2 encoding, as base64 text.
    hdr_v2_base64: String,
    over_range: u64,
    /// The largest integer when empty.
    min_ns: u64,
    max_ns: u64,
}

/// A text that is no population of latencies.
#[derive(Debug, thiserror::Error)]
enum LatenciesTextError {
    #[error("the histogram is no base64 text: {0}")]
    Base64(#[from] base64::DecodeError),
    #[error("the histogram cannot be decoded: {0}")]
    Histogram(String),
    /// It could not be merged with those made here.
    #[error("the histogram has other bounds than {LOWEST_NS} to {HIGHEST_NS} ns, 3 digits")]
    Bounds,
}

impl From<Latencies> for LatenciesText {
    fn from(latencies: Latencies) -> Self {
        let Latencies { histogram, over_range, min_ns, max_ns } = latencies;
        let mut bytes = Vec::new();
        V2Serializer::new()
            .serialize(&histogram, &mut bytes)
            .expect("a Vec takes all bytes, and counts are below 2^63");
        Self { hdr_v2_base64: STANDARD.encode(bytes), over_range, min_ns, max_ns }
    }
}

impl TryFrom<LatenciesText> for Latencies {
    type Error = LatenciesTextError;

    fn try_from(text: LatenciesText) -> Result<Self, LatenciesTextError> {
        let bytes = STANDARD.decode(text.hdr_v2_base64)?;
        let histogram: Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| LatenciesTextError::Histogram(error.to_string()))?;
        if (histogram.low(), histogram.high(), histogram.sigfig())
            != (LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS)
        {
            return Err(LatenciesTextError::Bounds);
        }
        let LatenciesText { over_range, min_ns, max_ns, .. } = text;
        Ok(Self { histogram, over_range, min_ns, max_ns })
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

    /// What goes from one machine to another as text is the same population afterwards, down to
    /// the values beyond the range. Broken if anything is rounded, or if merging what was read
    /// back differs from merging the original.
    #[test]
    fn a_population_survives_its_text() {
        let mut all = Latencies::default();
        for latencies in [Latencies::default(), {
            let mut some = Latencies::default();
            (1..5000_u64).for_each(|number| some.record(number * number * 977));
            some.record(1);
            some.record(300_000_000_000);
            some
        }] {
            let text = serde_json::to_string(&latencies).unwrap();
            let back: Latencies = serde_json::from_str(&text).unwrap();
            assert_eq!(back, latencies);
            all.merge(&back);
        }
        assert_eq!((all.count(), all.over_range()), (5001, 1));
    }

    /// Text from elsewhere is refused with a reason. Broken if a histogram gets in that merging
    /// would fail on.
    #[test]
    fn text_that_is_no_population_of_this_kind_is_refused() {
        let mut bytes = Vec::new();
        let other = Histogram::<u64>::new_with_bounds(1, 1000, 2).unwrap();
        V2Serializer::new().serialize(&other, &mut bytes).unwrap();
        let refused = |base64: &str| {
            let value = serde_json::json!({
                "hdr_v2_base64": base64, "over_range": 0, "min_ns": 1, "max_ns": 1
            });
            serde_json::from_value::<Latencies>(value).unwrap_err().to_string()
        };
        assert!(refused(&STANDARD.encode(&bytes)).contains("other bounds"));
        assert!(refused(&STANDARD.encode(&bytes[..9])).contains("cannot be decoded"));
        assert!(refused("!").contains("no base64"));
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
