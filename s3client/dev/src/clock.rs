//! The server's clock, and dates as headers and answers have them.

use std::time::SystemTime;

/// This machine's wall clock, milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "a server tells the time; this is its edge")]
pub(crate) fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Year, month and day of a day since 1970, by counting from the first of March.
fn civil(day: i64) -> (i64, i64, i64) {
    let from_march = day + 719_468;
    let (era, of_era) = (from_march.div_euclid(146_097), from_march.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, of_month)
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
pub(crate) fn http_date(at_ms: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = at_ms.div_euclid(1000);
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, of_month) = civil(day);
    let weekday = DAYS[usize::try_from(day.rem_euclid(7)).unwrap_or_default()];
    let month = MONTHS[usize::try_from(month - 1).unwrap_or_default() % 12];
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{weekday}, {of_month:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT")
}

/// `20130524T000000Z` as milliseconds since 1970.
pub(crate) fn parse_amz(text: &str) -> Option<i64> {
    if text.len() != 16 || !text.is_ascii() {
        return None;
    }
    let number = |from: usize, to: usize| text[from..to].parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let second = (number(9, 11)? * 60 + number(11, 13)?) * 60 + number(13, 15)?;
    // The day is found by asking for its date: the guess is at most a few days off.
    let guess = (year - 1970) * 365 + (year - 1969) / 4 + (month - 1) * 30 + day;
    let day = (guess - 10..guess + 20).find(|at| civil(*at) == (year, month, day))?;
    Some((day * 86_400 + second) * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_come_out_as_servers_write_them() {
        assert_eq!(http_date(784_111_777_000), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(951_782_400_000), "Tue, 29 Feb 2000 00:00:00 GMT");
    }

    #[test]
    fn the_dates_of_signatures_are_read() {
        assert_eq!(parse_amz("20130524T000000Z"), Some(1_369_353_600_000));
        assert_eq!(parse_amz("20991231T235959Z"), Some(4_102_444_799_000));
        for day in [0, 59, 60, 364, 365, 10_957, 20_000, 40_000] {
            let (year, month, of_month) = civil(day);
            let text = format!("{year}{month:02}{of_month:02}T010203Z");
            assert_eq!(parse_amz(&text), Some((day * 86_400 + 3_723) * 1000), "{text}");
        }
        for text in ["", "2013-05-24T00:00", "20131324T000000Z", "20130230T000000Z"] {
            assert_eq!(parse_amz(text), None, "{text}");
        }
    }
}
