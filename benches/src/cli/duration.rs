//! How durations are written on a command line.

use std::time::Duration;

/// `30s`, `500ms`, `2m`; fractions like `1.5s` too.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds_per_unit = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("{text:?} has no unit: write 500ms, 30s or 2m")),
    };
    let number: f64 = number.parse().map_err(|_| format!("{number:?} is no number"))?;
    Duration::try_from_secs_f64(number * seconds_per_unit)
        .map_err(|_| format!("{text:?} is no duration: write 500ms, 30s or 2m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit_and_a_sign_that_makes_sense() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "5", "s", "-1s", "1e999s", "NaNs", "5 s", "5d"] {
            assert!(parse_duration(wrong).is_err(), "{wrong:?}");
        }
    }
}
