//! A coarse histogram of latencies, small enough for every point of a time line: 64 buckets for
//! each doubling, so that a value is known to 1.6 %, from 1 us to 137 s.

use serde::{Deserialize, Serialize};

/// Buckets of each doubling, as a power of two.
const FRACTION_BITS: u32 = 6;
/// Values below 2^10 ns share the first bucket.
const LOWEST_EXPONENT: u32 = 10;
/// Values from 2^37 ns (137 s) on share the last one.
const HIGHEST_EXPONENT: u32 = 37;
const BUCKETS: usize = ((HIGHEST_EXPONENT - LOWEST_EXPONENT) << FRACTION_BITS) as usize;

/// One that is being filled; recording allocates nothing.
#[derive(Clone, Debug)]
pub struct Sketch {
    counts: Box<[u32]>,
    count: u64,
    max_ns: u64,
}

/// One that is full: the buckets with values only, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outline {
    buckets: Vec<(u16, u32)>,
    max_ns: u64,
}

impl Default for Sketch {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into_boxed_slice(), count: 0, max_ns: 0 }
    }
}

impl Sketch {
    /// Counts one value.
    pub fn record(&mut self, value_ns: u64) {
        let count = &mut self.counts[bucket(value_ns)];
        *count = count.saturating_add(1);
        self.count += 1;
        self.max_ns = self.max_ns.max(value_ns);
    }

    /// What was counted; begins anew.
    pub fn take(&mut self) -> Outline {
        let mut buckets = Vec::new();
        if self.count > 0 {
            for (index, count) in (0_u16..).zip(&mut self.counts) {
                if *count > 0 {
                    buckets.push((index, std::mem::take(count)));
                }
            }
        }
        self.count = 0;
        Outline { buckets, max_ns: std::mem::take(&mut self.max_ns) }
    }
}

impl Outline {
    /// Takes over everything `other` counted.
    pub fn merge(&mut self, other: &Self) {
        let mut merged = Vec::with_capacity(self.buckets.len().max(other.buckets.len()));
        let (mut ours, mut theirs) = (self.buckets.iter().peekable(), other.buckets.iter());
        let mut their = theirs.next();
        while let Some(&(index, count)) = their {
            match ours.next_if(|(our, _)| *our <= index) {
                Some(&(our, sum)) if our == index => {
                    merged.push((our, sum.saturating_add(count)));
                    their = theirs.next();
                }
                Some(&smaller) => merged.push(smaller),
                None => {
                    merged.push((index, count));
                    their = theirs.next();
                }
            }
        }
        merged.extend(ours);
        self.buckets = merged;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    /// The largest value, exact, ns; 0 when empty.
    #[must_use]
    pub const fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The value at or below which `percent` (0..=100) of all values lie, at most 1.6 % too large,
    /// ns. `None` when empty.
    #[must_use]
    pub fn percentile_ns(&self, percent: f64) -> Option<u64> {
        let wanted = (percent / 100.0 * self.count() as f64).ceil().max(1.0) as u64;
        let mut sum = 0;
        let found = self.buckets.iter().find(|(_, count)| {
            sum += u64::from(*count);
            sum >= wanted
        });
        found.map(|(index, _)| upper_ns(*index).min(self.max_ns))
    }
}

fn bucket(value_ns: u64) -> usize {
    let value = value_ns.clamp(1 << LOWEST_EXPONENT, (1 << HIGHEST_EXPONENT) - 1);
    let exponent = value.ilog2();
    let fraction = (value >> (exponent - FRACTION_BITS)) & ((1 << FRACTION_BITS) - 1);
    (((exponent - LOWEST_EXPONENT) << FRACTION_BITS) as u64 + fraction) as usize
}

/// The largest value of a bucket, ns. The last one has no end.
fn upper_ns(index: u16) -> u64 {
    if usize::from(index) + 1 >= BUCKETS {
        return u64::MAX;
    }
    let next = u32::from(index) + 1;
    let exponent = LOWEST_EXPONENT + (next >> FRACTION_BITS);
    let fraction = u64::from(next & ((1 << FRACTION_BITS) - 1));
    (((1 << FRACTION_BITS) + fraction) << (exponent - FRACTION_BITS)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Buckets follow each other without a gap. Broken if a value lies above its bucket's end, or
    /// the end is more than 1.6 % above it.
    #[test]
    fn every_value_is_known_to_1_6_percent() {
        let mut value = 1024_u64;
        while value < 130_000_000_000 {
            let upper = upper_ns(bucket(value) as u16);
            assert!(upper >= value, "{value} in a bucket that ends at {upper}");
            assert!((upper - value) as f64 <= value as f64 / 64.0, "{value}: {upper}");
            value += value / 1000 + 1;
        }
        assert_eq!((bucket(0), bucket(1023)), (0, 0));
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_at_their_rank_and_the_maximum_is_exact() {
        let mut sketch = Sketch::default();
        (1..=1000_u64).for_each(|value| sketch.record(value * 10_000));
        let outline = sketch.take();
        for (percent, wanted) in [(50.0, 5_000_000.0), (99.0, 9_900_000.0), (0.0, 10_000.0)] {
            let found = outline.percentile_ns(percent).unwrap() as f64;
            assert!((wanted..=wanted * 1.0161).contains(&found), "p{percent}: {found}");
        }
        assert_eq!(
            (outline.percentile_ns(100.0), outline.max_ns()),
            (Some(10_000_000), 10_000_000)
        );
        assert_eq!(sketch.take(), Outline::default(), "it begins anew");
        assert_eq!(Outline::default().percentile_ns(50.0), None);
    }

    /// Several threads' points are the union of their values. Broken if the order of merging shows.
    #[test]
    fn outlines_merge_to_the_union() {
        let (mut all, mut odd, mut even) =
            (Sketch::default(), Sketch::default(), Sketch::default());
        for value in 0..5000_u64 {
            let value_ns = (value * value * 977) % 90_000_000;
            all.record(value_ns);
            if value % 2 == 0 { even.record(value_ns) } else { odd.record(value_ns) }
        }
        let (all, odd, even) = (all.take(), odd.take(), even.take());
        let (mut one, mut other) = (odd.clone(), even.clone());
        one.merge(&even);
        other.merge(&odd);
        assert_eq!((&one, &other), (&all, &all));
        assert_eq!(all.count(), 5000);
    }
}
