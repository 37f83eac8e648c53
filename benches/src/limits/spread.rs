//! The median of several rounds, with the range they lie in.

use serde::Serialize;

/// Median, smallest and largest of the rounds' values; all `null` without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Middle value; the mean of the two middle ones for an even number.
    pub median: Option<f64>,
    /// Smallest.
    pub min: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
}

impl Spread {
    /// Of `values`, those that are finite numbers.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = Option<f64>>) -> Self {
        let mut sorted: Vec<f64> =
            values.into_iter().flatten().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() {
            0 => None,
            odd if odd % 2 == 1 => Some(sorted[middle]),
            _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
        };
        let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
        Self {
            median: median.map(rounded),
            min: sorted.first().copied().map(rounded),
            max: sorted.last().copied().map(rounded),
        }
    }

    /// `median (min–max)` with `digits` decimals.
    #[must_use]
    pub fn to_text(&self, digits: usize) -> String {
        match (self.median, self.min, self.max) {
            (Some(median), Some(min), Some(max)) => {
                format!("{median:.digits$} ({min:.digits$}–{max:.digits$})")
            }
            _ => "-".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_and_nothing_gives_nothing() {
        let of = |values: &[f64]| Spread::of(values.iter().copied().map(Some)).median;
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(Spread::of([None, Some(f64::NAN), Some(f64::INFINITY)]), Spread::default());
        assert_eq!(Spread::default().to_text(1), "-");
        assert_eq!(Spread::of([Some(1.0), Some(2.0), Some(9.0)]).to_text(1), "2.0 (1.0–9.0)");
    }
}
