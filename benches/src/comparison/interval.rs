//! The ratio of paired values with its confidence interval. Pure numbers.
//!
//! Times and rates differ by factors, not by sums, so the logarithms of the ratios are averaged:
//! their mean has Student's distribution around the true one. Twice as fast and half as fast cancel
//! out.

/// 97.5 % quantiles of Student's distribution for 1 to 30 degrees of freedom (NIST/SEMATECH
/// e-Handbook of Statistical Methods, 1.3.6.7.2).
const QUANTILES: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The same of the normal distribution, which Student's approaches.
const NORMAL: f64 = 1.959_964;

/// What pairs of values say about the ratio of the second to the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Geometric mean of the first values.
    pub base: f64,
    /// Geometric mean of the second ones.
    pub with: f64,
    /// `with` over `base`.
    pub ratio: f64,
    /// Where the true ratio lies with 95 % confidence. One pair has no interval: how much runs
    /// differ from each other cannot be seen in one.
    pub interval: Option<(f64, f64)>,
}

impl Ratio {
    /// Of pairs of positive numbers; `None` if there is no pair, or a number is not positive.
    #[must_use]
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let good = |value: f64| value > 0.0 && value.is_finite();
        if pairs.is_empty() || !pairs.iter().all(|(base, with)| good(*base) && good(*with)) {
            return None;
        }
        let count = pairs.len() as f64;
        let mean = |value: fn(&(f64, f64)) -> f64| pairs.iter().map(value).sum::<f64>() / count;
        let (base, with) = (mean(|pair| pair.0.ln()).exp(), mean(|pair| pair.1.ln()).exp());
        let center = mean(|(base, with)| (with / base).ln());
        let interval = (pairs.len() > 1).then(|| {
            let squares = pairs.iter().map(|(base, with)| ((with / base).ln() - center).powi(2));
            let deviation = (squares.sum::<f64>() / (count - 1.0)).sqrt();
            let reach = quantile(pairs.len() - 1) * deviation / count.sqrt();
            ((center - reach).exp(), (center + reach).exp())
        });
        Some(Self { base, with, ratio: center.exp(), interval })
    }
}

/// The 97.5 % quantile of Student's distribution.
fn quantile(freedom: usize) -> f64 {
    if let Some(known) = freedom.checked_sub(1).and_then(|index| QUANTILES.get(index)) {
        return *known;
    }
    // Cornish-Fisher expansion (Abramowitz and Stegun, 26.7.5); exact to 0.001 from here on.
    let (z, n) = (NORMAL, freedom as f64);
    z + (z.powi(3) + z) / (4.0 * n)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, wanted: f64) -> bool {
        (found - wanted).abs() < 1e-4 * wanted.abs().max(1.0)
    }

    /// Logarithms of the ratios 0.1, 0.2, 0.3: mean 0.2, deviation 0.1, and with two degrees of
    /// freedom the interval is 0.2 ± 4.303 × 0.1 / √3.
    #[test]
    fn an_interval_is_students() {
        let pairs = [0.1_f64, 0.2, 0.3].map(|log| (50.0, 50.0 * log.exp()));
        let ratio = Ratio::of(&pairs).unwrap();
        assert!(close(ratio.ratio, 0.2_f64.exp()), "{ratio:?}");
        assert!(close(ratio.base, 50.0) && close(ratio.with, 50.0 * 0.2_f64.exp()), "{ratio:?}");
        let (low, high) = ratio.interval.unwrap();
        let reach = 0.248_434;
        assert!(close(low, (0.2_f64 - reach).exp()), "{low}");
        assert!(close(high, (0.2_f64 + reach).exp()), "{high}");
    }

    /// What both runs of a pair share (a slow hour) does not widen the interval.
    #[test]
    fn pairs_cancel_what_they_share() {
        let steady = [(100.0, 110.0), (200.0, 220.0), (50.0, 55.0)];
        let (low, high) = Ratio::of(&steady).unwrap().interval.unwrap();
        assert!(close(low, 1.1) && close(high, 1.1), "{low} {high}");
    }

    /// Broken if one pair pretends to a certainty, or if a missing figure becomes a number.
    #[test]
    fn one_pair_has_no_interval_and_nothing_has_no_ratio() {
        let one = Ratio::of(&[(2.0, 3.0)]).unwrap();
        assert_eq!((one.ratio.round(), one.interval), (2.0, None));
        assert_eq!(Ratio::of(&[]), None);
        assert_eq!(Ratio::of(&[(1.0, 0.0), (1.0, 1.0)]), None);
        assert_eq!(Ratio::of(&[(f64::NAN, 1.0)]), None);
    }

    #[test]
    fn quantiles_go_over_into_the_normal_distributions() {
        for (freedom, wanted) in
            [(1, 12.706), (4, 2.776), (30, 2.042), (40, 2.021), (60, 2.000), (120, 1.980)]
        {
            assert!((quantile(freedom) - wanted).abs() < 0.001, "{freedom}: {}", quantile(freedom));
        }
        assert!((quantile(100_000) - NORMAL).abs() < 0.001);
    }
}
