//! How sizes are written on a command line.

/// `100`, `1KiB`, `64KiB`, `2MiB`; bytes.
pub(super) fn parse_size_bytes(text: &str) -> Result<u32, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let bytes_per_unit: u32 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "kB" => 1000,
        "MB" => 1_000_000,
        _ => return Err(format!("{unit:?} is no unit: write 100, 1KiB, 64KiB or 1MiB")),
    };
    let number: u32 =
        number.parse().map_err(|_| format!("{text:?} is no size: write 100, 1KiB or 64KiB"))?;
    number.checked_mul(bytes_per_unit).ok_or_else(|| format!("{text} is over 4 GiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_numbers_are_bytes_and_units_are_exact() {
        for (text, bytes) in [
            ("0", 0),
            ("100", 100),
            ("100B", 100),
            ("1KiB", 1024),
            ("64KiB", 65_536),
            ("1kB", 1000),
            ("2MiB", 2 << 20),
            ("3MB", 3_000_000),
        ] {
            assert_eq!(parse_size_bytes(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "KiB", "-1", "1.5KiB", "1 KiB", "1kib", "1G", "4096MiB", "5000000000"] {
            assert!(parse_size_bytes(wrong).is_err(), "{wrong:?}");
        }
    }
}
