//! Dates of HTTP headers and of credential documents, as milliseconds since 1970.
//!
//! Promise: no text panics or overflows; what is no date is `None`.

/// Days from 1970-01-01 to a date of the proleptic Gregorian calendar. Counts years from March, so
/// that the leap day is a year's last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let before_year = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 719,468 days lie between 0000-03-01 and 1970-01-01.
    before_year + (153 * month + 2) / 5 + day - 1 - 719_468
}

fn digits(text: &str, max: i64) -> Option<i64> {
    let right = (1..=6).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if right { text.parse().ok()? } else { return None };
    (number <= max).then_some(number)
}

fn clock(text: &str) -> Option<i64> {
    let mut parts = text.split(':');
    let (hour, minute) = (digits(parts.next()?, 23)?, digits(parts.next()?, 59)?);
    let second = digits(parts.next()?, 60)?;
    parts.next().is_none().then_some((hour * 60 + minute) * 60 + second)
}

fn joined(year: i64, month: i64, day: i64, clock: i64) -> Option<i64> {
    let right = (1..=12).contains(&month) && (1..=31).contains(&day);
    right.then(|| (days(year, month, day) * 86_400 + clock) * 1000)
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, the one form that servers send (RFC 9110, 5.6.7).
#[must_use]
pub fn parse_http(text: &str) -> Option<i64> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let mut parts = text.trim().split(' ');
    let weekday = parts.next()?;
    let day = digits(parts.next()?, 31)?;
    let month = parts.next().filter(|month| month.len() == 3)?;
    let month = MONTHS.find(month).filter(|at| at % 3 == 0)? / 3 + 1;
    let year = digits(parts.next()?, 9999)?;
    let clock = clock(parts.next()?)?;
    let right = weekday.ends_with(',') && parts.next() == Some("GMT") && parts.next().is_none();
    if right { joined(year, i64::try_from(month).ok()?, day, clock) } else { None }
}

/// `2026-04-14T08:49:37Z`, with or without a fraction or an offset (RFC 3339), years up to 999999.
#[must_use]
pub fn parse_iso(text: &str) -> Option<i64> {
    let (date, time) = text.trim().split_once(['T', 't', ' '])?;
    let mut parts = date.split('-');
    let (year, month) = (digits(parts.next()?, 999_999)?, digits(parts.next()?, 12)?);
    let day = parts.next().and_then(|day| digits(day, 31)).filter(|_| parts.next().is_none())?;
    let (time, offset_secs) = match time.find(['Z', 'z', '+', '-']) {
        Some(at) if matches!(&time[at..], "Z" | "z") => (&time[..at], 0),
        Some(at) => {
            let (hours, minutes) = time[at + 1..].split_once(':')?;
            let secs = (digits(hours, 23)? * 60 + digits(minutes, 59)?) * 60;
            (&time[..at], if time[at..].starts_with('-') { -secs } else { secs })
        }
        None => (time, 0),
    };
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let right = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let millis =
        if right { format!("{fraction:0<3}")[..3].parse::<i64>().ok()? } else { return None };
    Some(joined(year, month, day, clock(time)? - offset_secs)? + millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_moments() {
        assert_eq!(parse_http("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777_000));
        assert_eq!(parse_http("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(parse_iso("1994-11-06T08:49:37Z"), Some(784_111_777_000));
        assert_eq!(parse_iso("1994-11-06T09:49:37.25+01:00"), Some(784_111_777_250));
        assert_eq!(parse_iso("2000-02-29T00:00:00Z"), Some(951_782_400_000));
        assert_eq!(parse_iso("1969-12-31T23:59:59Z"), Some(-1000));
    }

    #[test]
    fn absurd_years_are_far_away_and_no_accident() {
        assert_eq!(parse_iso("9999-12-31T23:59:59Z"), Some(253_402_300_799_000));
        assert!(parse_iso("99999-01-01T00:00:00Z") > parse_iso("9999-12-31T23:59:59Z"));
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "soon",
            "2026-13-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01",
            "2026-01-01T25:00:00Z",
            "9999999-01-01T00:00:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+1",
            "-2026-01-01T00:00:00Z",
            "2026-01-01-01T00:00:00Z",
        ] {
            assert_eq!(parse_iso(text), None, "{text}");
        }
        for text in ["Sun, 06 anN 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49 GMT", "0"] {
            assert_eq!(parse_http(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>(), dated in "[0-9TZ:.+ -]{0,40}") {
            let _ = (parse_http(&text), parse_iso(&text), parse_iso(&dated), parse_http(&dated));
        }

        #[test]
        fn days_follow_each_other(day in -1_000_000_i64..4_000_000) {
            // Counting a year by its days comes to the same as the formula.
            let year = 1970 + day.div_euclid(366);
            let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
            let length = days(year + 1, 1, 1) - days(year, 1, 1);
            prop_assert_eq!(length, if leap { 366 } else { 365 });
        }
    }
}
