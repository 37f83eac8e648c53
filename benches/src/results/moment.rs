//! Moments of the calendar, in UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Now, on the wall clock.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a result says when it was measured")]
pub fn now() -> SystemTime {
    SystemTime::now()
}

/// `2026-07-25T17:20:00Z`; a moment before 1970 counts as 1970.
#[must_use]
pub fn rfc3339(moment: SystemTime) -> String {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let (year, month, day) = date(since / 86_400);
    let (hour, minute, second) = (since / 3600 % 24, since / 60 % 60, since % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The date so many days after 1970-01-01 in the Gregorian calendar.
fn date(mut days: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    while days >= days_of_year(year) {
        days -= days_of_year(year);
        year += 1;
    }
    let february = days_of_year(year) - 337;
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

const fn days_of_year(year: u64) -> u64 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    if leap { 366 } else { 365 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds and dates as `date -u -d @N` tells them.
    #[test]
    fn moments_have_their_date() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_785_000_000, "2026-07-25T17:20:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
