//! Axes of charts: where a value lies, and which values have a mark. Pure numbers.

/// How values are spread over an axis.
#[derive(Clone, Copy, Debug)]
enum Scale {
    /// Evenly from zero.
    Linear { max: f64 },
    /// Each factor of ten takes the same room.
    Log { min: f64, max: f64 },
    /// Percent, each further nine takes the same room.
    Nines { nines: f64 },
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Axis {
    scale: Scale,
    /// Values with a mark, and what stands there.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From zero to a round number at or above `max`, with up to `marks` marks above zero.
    #[must_use]
    pub fn linear(max: f64, marks: usize, write: fn(f64) -> String) -> Self {
        let max = if max > 0.0 && max.is_finite() { max } else { 1.0 };
        let step = round_up(max / marks.max(1) as f64);
        let count = (max / step - 1e-9).ceil().max(1.0);
        let ticks = (0..=count as u32).map(|number| f64::from(number) * step);
        let ticks = ticks.map(|value| (value, write(value))).collect();
        Self { scale: Scale::Linear { max: step * count }, ticks }
    }

    /// From zero to exactly `end`, with marks at round numbers.
    #[must_use]
    pub fn exact(end: f64, marks: usize, write: fn(f64) -> String) -> Self {
        let mut axis = Self::linear(end, marks, write);
        if let Scale::Linear { max } = &mut axis.scale
            && end > 0.0
        {
            *max = end;
            axis.ticks.retain(|(value, _)| *value <= end * (1.0 + 1e-9));
        }
        axis
    }

    /// Around the positive ones of `values`, to the next 1, 2 or 5 on both sides.
    #[must_use]
    pub fn log(values: impl Iterator<Item = f64>, write: fn(f64) -> String) -> Self {
        let positive = values.filter(|value| *value > 0.0 && value.is_finite());
        let (low, high) = positive
            .fold((f64::MAX, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if high == 0.0 { (1.5, 9.0) } else { (low, high) };
        let min = round_down(low * 0.999);
        let max = round_up(high * 1.001).max(min * 5.0);
        let decades = (max / min).log10();
        // Three marks for each decade as long as they have room.
        let heads: &[f64] = if decades <= 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let mut ticks = Vec::new();
        let mut decade = 10_f64.powf(min.log10().floor());
        while decade <= max * 1.001 {
            let values = heads.iter().map(|head| head * decade);
            let inside = values.filter(|value| *value >= min * 0.999 && *value <= max * 1.001);
            ticks.extend(inside.map(|value| (value, write(value))));
            decade *= 10.0;
        }
        Self { scale: Scale::Log { min, max }, ticks }
    }

    /// Percent from 0 to as many nines as one of `samples` operations shows.
    #[must_use]
    pub fn nines(samples: u64) -> Self {
        let nines = (samples.max(10) as f64).log10();
        let marks = (0..=nines.floor() as i32).map(|count| {
            let percent = 100.0 - 100.0 / 10_f64.powi(count);
            let text = match count {
                0 => "0 %".to_owned(),
                1 => "90 %".to_owned(),
                2 => "99 %".to_owned(),
                more => format!("99.{} %", "9".repeat(more as usize - 2)),
            };
            (percent, text)
        });
        Self { scale: Scale::Nines { nines }, ticks: marks.collect() }
    }

    /// Where a value lies, 0 to 1; values beyond an end lie at it.
    #[must_use]
    pub fn place(&self, value: f64) -> f64 {
        let place = match self.scale {
            Scale::Linear { max } => value / max,
            Scale::Log { min, max } => (value.max(min) / min).log10() / (max / min).log10(),
            Scale::Nines { nines } => {
                let beyond = (1.0 - value / 100.0).max(1e-12);
                -beyond.log10() / nines
            }
        };
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// The next 1, 2 or 5 times a power of ten at or above a positive value.
fn round_up(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|head| head * decade);
    steps.into_iter().find(|step| *step >= value * (1.0 - 1e-9)).unwrap_or(10.0 * decade)
}

fn round_down(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let steps = [5.0, 2.0, 1.0].map(|head| head * decade);
    steps.into_iter().find(|step| *step <= value * (1.0 + 1e-9)).unwrap_or(decade)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(value: f64) -> String {
        format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
    }

    fn marks(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn linear_axes_begin_at_zero_and_end_above_the_largest_value() {
        let axis = Axis::linear(43_210.0, 5, plain);
        assert_eq!(marks(&axis), ["0", "10000", "20000", "30000", "40000", "50000"]);
        assert!((axis.place(25_000.0) - 0.5).abs() < 1e-9);
        assert_eq!(marks(&Axis::linear(0.0, 2, plain)), ["0", "0.5", "1"]);
        let exact = Axis::exact(45.0, 5, plain);
        assert_eq!(marks(&exact), ["0", "10", "20", "30", "40"]);
        assert!((exact.place(45.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn logarithmic_axes_give_each_decade_the_same_room() {
        let axis = Axis::log([0.0, 130.0, 900.0].into_iter(), plain);
        assert_eq!(marks(&axis), ["100", "200", "500", "1000"]);
        assert!((axis.place(316.227_766) - 0.5).abs() < 1e-6);
        assert_eq!((axis.place(0.0), axis.place(1e9)), (0.0, 1.0));
        let wide = Axis::log([3.0, 70_000.0].into_iter(), plain);
        assert_eq!(marks(&wide), ["10", "100", "1000", "10000", "100000"]);
        assert_eq!(marks(&Axis::log(std::iter::empty(), plain)), ["1", "2", "5", "10"]);
    }

    #[test]
    fn every_further_nine_takes_the_same_room() {
        let axis = Axis::nines(10_000);
        assert_eq!(marks(&axis), ["0 %", "90 %", "99 %", "99.9 %", "99.99 %"]);
        for (percent, place) in [(0.0, 0.0), (90.0, 0.25), (99.0, 0.5), (99.99, 1.0), (100.0, 1.0)]
        {
            assert!((axis.place(percent) - place).abs() < 1e-6, "{percent}");
        }
    }
}
