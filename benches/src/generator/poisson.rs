//! A Poisson process: arrivals whose intervals are exponential, as those of many clients that do
//! not know of each other. The sum of independent processes is one of their summed rate, so each
//! worker draws its own.

use super::clock::Mixer;

/// Keeps these draws apart from the choice of streams, which starts from the same run id.
const SALT: u64 = 0x706f_6973_736f_6e21;
/// The draws are multiples of this below 1: all that a double holds exactly.
const STEP: f64 = 1.0 / (1_u64 << 53) as f64;

/// One worker's arrivals.
#[derive(Clone, Debug)]
pub struct Poisson {
    mean_gap_ns: f64,
    /// A double is exact to 1/64 ns for a day.
    at_ns: f64,
    mixer: Mixer,
}

impl Poisson {
    /// Arrivals at `rate_per_s` on average. The same seed and worker give the same arrivals.
    #[must_use]
    pub fn new(rate_per_s: f64, seed: u64, worker: u32) -> Self {
        // Neighbouring seeds of the mixer give overlapping sequences one step apart; a mixed one
        // starts each worker elsewhere.
        let mut seeds = Mixer::new(seed ^ SALT ^ (u64::from(worker) << 32));
        let mixer = Mixer::new(seeds.next_number());
        Self { mean_gap_ns: 1e9 / rate_per_s, at_ns: 0.0, mixer }
    }

    /// When the next arrival is due, ns after the beginning.
    pub fn next_ns(&mut self) -> u64 {
        let below_one = (self.mixer.next_number() >> 11) as f64 * STEP;
        self.at_ns -= (1.0 - below_one).ln() * self.mean_gap_ns;
        self.at_ns as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 200_000;

    fn gaps(seed: u64, worker: u32) -> Vec<f64> {
        let mut poisson = Poisson::new(1000.0, seed, worker);
        let mut before = 0;
        std::iter::repeat_with(|| {
            let at = poisson.next_ns();
            (at - std::mem::replace(&mut before, at)) as f64
        })
        .take(COUNT)
        .collect()
    }

    fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        (mean, variance.sqrt())
    }

    /// Intervals have the wanted mean and a coefficient of variation of 1, and a share of 1/e of
    /// them is longer than the mean. Broken if they are uniform (0.58) or constant (0).
    #[test]
    fn intervals_are_exponential() {
        let gaps = gaps(7, 0);
        let (mean, deviation) = mean_and_deviation(&gaps);
        assert!((mean / 1e6 - 1.0).abs() < 0.01, "mean {mean} ns");
        assert!((deviation / mean - 1.0).abs() < 0.02, "variation {}", deviation / mean);
        let long = gaps.iter().filter(|gap| **gap > 1e6).count() as f64 / COUNT as f64;
        assert!((long - (-1.0_f64).exp()).abs() < 0.005, "{long} are longer than the mean");
    }

    /// Counts in intervals of equal length have a variance equal to their mean.
    #[test]
    fn counts_vary_as_much_as_they_are_large() {
        let mut poisson = Poisson::new(1000.0, 9, 3);
        let mut counts = vec![0_f64; 4000];
        loop {
            let slot = usize::try_from(poisson.next_ns() / 20_000_000).unwrap();
            let Some(count) = counts.get_mut(slot) else { break };
            *count += 1.0;
        }
        let (mean, deviation) = mean_and_deviation(&counts);
        assert!((mean - 20.0).abs() < 0.5, "mean {mean}");
        assert!((deviation.powi(2) / mean - 1.0).abs() < 0.1, "variance {}", deviation.powi(2));
    }

    /// One seed, one timetable; workers have theirs. Broken if a run cannot be repeated, or if two
    /// workers arrive in step (their processes would not be independent).
    #[test]
    fn a_seed_gives_one_timetable_and_workers_differ() {
        assert_eq!(gaps(7, 0), gaps(7, 0));
        let (one, other) = (gaps(7, 0), gaps(7, 1));
        let ((mean, deviation), (other_mean, other_deviation)) =
            (mean_and_deviation(&one), mean_and_deviation(&other));
        for shift in 0..3 {
            let products = one.iter().zip(&other[shift..]);
            let covariance = products.map(|(a, b)| (a - mean) * (b - other_mean)).sum::<f64>();
            let correlation = covariance / (COUNT as f64 * deviation * other_deviation);
            assert!(correlation.abs() < 0.02, "shift {shift}: {correlation}");
        }
        assert_ne!(gaps(7, 0), gaps(8, 0));
    }
}
