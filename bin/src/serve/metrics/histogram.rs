//! Durations by size: one thread records, any thread reads.
//!
//! The bounds are ten to a decade, from 10 us to 10 s. 10 us is less than a request over the
//! loopback takes without a disk; 10 s is more than any wait that is not an outage. A bucket is at
//! most a third wider than the one before begins, so that a percentile read from it is off by some
//! 15 % at worst, on NVMe (tens of microseconds) as well as while the bucket has the second copy
//! (tens of milliseconds).

use duolog_engine::ids::MonoUs;

use super::number::Number;

/// Upper bounds of the buckets, inclusive, microseconds. One bucket more is for what is longer.
pub const BOUNDS_US: [u32; 61] = bounds();
const BUCKETS: usize = BOUNDS_US.len() + 1;

const fn bounds() -> [u32; 61] {
    // Tenths of a power of ten.
    let steps = [10, 12, 15, 20, 25, 30, 40, 50, 60, 80];
    let mut bounds = [0; 61];
    let mut power = 1;
    let mut at = 0;
    while at < bounds.len() {
        bounds[at] = steps[at % steps.len()] * power;
        at += 1;
        if at.is_multiple_of(steps.len()) {
            power *= 10;
        }
    }
    bounds
}

/// See the module.
#[derive(Debug)]
pub struct Histogram {
    buckets: [Number; BUCKETS],
    sum_us: Number,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| Number::default()), sum_us: Number::default() }
    }
}

fn bucket_of(duration_us: u64) -> usize {
    BOUNDS_US.partition_point(|bound| u64::from(*bound) < duration_us)
}

impl Histogram {
    /// Records `count` durations from `since` to `until`; 0 if the clock's readings crossed.
    pub fn record(&self, since: MonoUs, until: MonoUs, count: u64) {
        let duration_us = until.0.saturating_sub(since.0);
        self.buckets[bucket_of(duration_us)].add(count);
        self.sum_us.add(duration_us * count);
    }

    /// Adds what was recorded so far to `reading`.
    pub fn add_to(&self, reading: &mut HistogramReading) {
        for (sum, bucket) in reading.buckets.iter_mut().zip(&self.buckets) {
            *sum += bucket.get();
        }
        reading.sum_us += self.sum_us.get();
    }
}

/// What was recorded, of one histogram or of several of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramReading {
    buckets: [u64; BUCKETS],
    /// All durations together, microseconds.
    pub sum_us: u64,
}

impl Default for HistogramReading {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], sum_us: 0 }
    }
}

impl HistogramReading {
    /// How many durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The buckets: upper bound in microseconds, none for the last, and how many fell into it.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u32>, u64)> + '_ {
        let bounds = BOUNDS_US.into_iter().map(Some).chain(std::iter::once(None));
        bounds.zip(self.buckets.iter().copied())
    }

    /// The duration below which `per_mille` of a thousand lie, in microseconds, as if those of a
    /// bucket were spread evenly over it; `None` when there are none. What is beyond the last
    /// bound counts as that bound.
    #[must_use]
    pub fn quantile_us(&self, per_mille: u64) -> Option<u64> {
        let count = self.count();
        let rank = (count * per_mille).div_ceil(1000).max(1);
        let (mut below, mut lower) = (0, 0);
        for (bound, inside) in self.buckets() {
            let Some(bound) = bound else { break };
            if inside > 0 && below + inside >= rank {
                let width = u64::from(bound - lower);
                return Some(u64::from(lower) + width * (rank - below) / inside);
            }
            (below, lower) = (below + inside, bound);
        }
        (count > 0).then_some(u64::from(lower))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_go_from_10_us_to_10_s_in_small_steps() {
        assert_eq!(BOUNDS_US[..12], [10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120]);
        assert_eq!(BOUNDS_US[60], 10_000_000);
        for pair in BOUNDS_US.windows(2) {
            assert!(
                pair[0] < pair[1] && u64::from(pair[1]) * 3 <= u64::from(pair[0]) * 4,
                "{pair:?}"
            );
        }
    }

    #[test]
    fn a_duration_falls_into_the_first_bucket_that_is_not_below_it() {
        let mut durations: Vec<u64> = vec![0, 1, 10_000_001, u64::MAX];
        for bound in BOUNDS_US {
            durations.extend([u64::from(bound) - 1, u64::from(bound), u64::from(bound) + 1]);
        }
        for duration in durations {
            let searched = BOUNDS_US.iter().position(|bound| duration <= u64::from(*bound));
            assert_eq!(bucket_of(duration), searched.unwrap_or(61), "{duration} us");
        }
    }

    fn recorded(durations: &[(u64, u64)]) -> HistogramReading {
        let histogram = Histogram::default();
        for (duration, count) in durations {
            histogram.record(MonoUs(7), MonoUs(7 + duration), *count);
        }
        let mut reading = HistogramReading::default();
        histogram.add_to(&mut reading);
        reading
    }

    #[test]
    fn counts_and_sums_are_exact() {
        let mut reading = recorded(&[(11, 3), (200, 1), (60_000_000, 2)]);
        assert_eq!((reading.count(), reading.sum_us), (6, 120_000_233));
        let filled: Vec<_> = reading.buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(Some(12), 3), (Some(200), 1), (None, 2)]);
        let crossed = Histogram::default();
        crossed.record(MonoUs(9), MonoUs(4), 1);
        crossed.add_to(&mut reading);
        assert_eq!((reading.count(), reading.sum_us), (7, 120_000_233));
    }

    #[test]
    fn quantiles_are_as_near_as_the_buckets_are_wide() {
        assert_eq!(recorded(&[]).quantile_us(500), None);
        assert_eq!(recorded(&[(60_000_000, 1)]).quantile_us(500), Some(10_000_000));
        let spread: Vec<(u64, u64)> = (1..=20_000).map(|duration| (duration, 1)).collect();
        let reading = recorded(&spread);
        for (per_mille, true_us) in [(1, 20), (500, 10_000), (990, 19_800), (999, 19_980)] {
            let found = reading.quantile_us(per_mille).expect("there are some");
            assert!(found.abs_diff(true_us) * 100 <= true_us * 15, "{per_mille}: {found}");
        }
        let all = recorded(&[(100, 1000)]);
        assert_eq!(all.quantile_us(1000), Some(100));
    }
}
