//! Times of events as people and other programs read them (RFC 3339, UTC).

/// `1785000000123` milliseconds since 1970 become `2026-07-25T17:20:00.123Z`.
#[must_use]
pub fn rfc3339(wall_ms: u64) -> String {
    let (seconds, milliseconds) = (wall_ms / 1000, wall_ms % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

/// Year, month and day of a day number, 0 = 1970-01-01. Counts from a 1st of March, so that the
/// leap day is the last of its year; 146,097 days are 400 years.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_TO_1970: u64 = 719_468;
    let days = days + DAYS_TO_1970;
    let (era, in_era) = (days / 146_097, days % 146_097);
    let leaps = in_era / 1460 - in_era / 36_524 + in_era / 146_096;
    let year_of_era = (in_era - leaps) / 365;
    let year_start = 365 * year_of_era + year_of_era / 4 - year_of_era / 100;
    let day_of_year = in_era - year_start;
    // Months from March alternate 31 and 30 days in fives: 153 days.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year_of_era;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_782_399_999), "2000-02-28T23:59:59.999Z");
        assert_eq!(rfc3339(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(rfc3339(1_000_000_000_000), "2001-09-09T01:46:40.000Z");
        assert_eq!(rfc3339(4_102_444_800_000), "2100-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
    }

    /// Each day follows the one before: same month and next day, or the first of the next month.
    #[test]
    fn days_count_up_without_gaps() {
        for day in 0..200_000 {
            let (before, after) = (date(day), date(day + 1));
            let next_day = (before.0, before.1, before.2 + 1);
            let next_month = (before.0 + before.1 / 12, before.1 % 12 + 1, 1);
            assert!(after == next_day || after == next_month, "{before:?} {after:?}");
            assert!(before.2 >= 28 || after == next_day, "{before:?}");
        }
    }
}
