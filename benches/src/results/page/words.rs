//! Numbers and texts as people read them in a page.

use std::fmt::Write as _;

/// Text as HTML and SVG want it, in elements and in attributes.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() && c != '\n' && c != '\t' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// Microseconds with the unit that fits.
#[must_use]
pub fn latency(us: f64) -> String {
    match us {
        us if us < 999.5 => format!("{} µs", three(us)),
        us if us < 999_500.0 => format!("{} ms", three(us / 1e3)),
        us => format!("{} s", three(us / 1e6)),
    }
}

/// A rate, without its unit.
#[must_use]
pub fn rate(per_s: f64) -> String {
    match per_s {
        rate if rate < 999.5 => three(rate),
        rate if rate < 999_500.0 => format!("{} k", three(rate / 1e3)),
        rate => format!("{} M", three(rate / 1e6)),
    }
}

/// Seconds, for an axis.
#[must_use]
pub fn seconds(s: f64) -> String {
    format!("{} s", three(s))
}

/// A count with its thousands apart.
#[must_use]
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Bytes in binary units.
#[must_use]
pub fn bytes(value: u64) -> String {
    let (mut number, mut unit) = (value as f64, "B");
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if number < 1024.0 {
            break;
        }
        (number, unit) = (number / 1024.0, larger);
    }
    format!("{} {unit}", three(number))
}

/// Three significant digits without zeros at the end.
#[must_use]
pub fn three(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { 2 - value.abs().log10().floor() as i32 };
    let mut text = String::new();
    let places = digits.clamp(0, 6) as usize;
    write!(text, "{value:.places$}").expect("a String takes all text");
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_taken_for_markup() {
        assert_eq!(
            escape("<b a=\"x\" c='y'>&\u{1}"),
            "&lt;b a=&quot;x&quot; c=&#39;y&#39;&gt;&amp;\u{fffd}"
        );
    }

    #[test]
    fn numbers_have_three_digits_and_a_unit_that_fits() {
        for (us, text) in
            [(0.0, "0 µs"), (87.66, "87.7 µs"), (999.9, "1 ms"), (1234.0, "1.23 ms"), (5e6, "5 s")]
        {
            assert_eq!(latency(us), text);
        }
        assert_eq!((rate(0.25), rate(123_456.0)), ("0.25".to_owned(), "123 k".to_owned()));
        assert_eq!((bytes(512), bytes(3 << 29)), ("512 B".to_owned(), "1.5 GiB".to_owned()));
        assert_eq!(
            (count(999), count(1_234_567)),
            ("999".into(), "1\u{202f}234\u{202f}567".into())
        );
        assert_eq!((three(0.000_123_4), three(100.0)), ("0.000123".into(), "100".into()));
    }
}
