//! Object keys, and how they are written into a URL.
//!
//! Promise: [`encode`] leaves only the unreserved characters of RFC 3986 as they are, so that the
//! bytes on the wire are the bytes that are signed, whatever is between the two.

use std::fmt;

use crate::limits::KEY_BYTES_MAX;

/// The name of an object: 1 to 1024 bytes of UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(String);

/// Why a text is no usable key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Nothing.
    #[error("an object key may not be empty")]
    Empty,
    /// Too long for S3.
    #[error("the object key {start:?}... has {len} bytes, at most {KEY_BYTES_MAX} are allowed")]
    TooLong {
        /// Its first characters.
        start: String,
        /// Bytes of UTF-8.
        len: usize,
    },
    /// HTTP libraries and proxies fold `.` and `..` between slashes; such a key would be signed as
    /// one object and sent as another.
    #[error(
        "the object key {key:?} has a part that is only \".\" or \"..\"; \
         such parts are lost on the way to the server: use another prefix (s3.subfolder)"
    )]
    DotPart {
        /// The key.
        key: String,
    },
}

impl ObjectKey {
    /// Checks a key.
    pub fn new(text: impl Into<String>) -> Result<Self, KeyError> {
        let text = text.into();
        if text.is_empty() {
            return Err(KeyError::Empty);
        }
        if text.len() > KEY_BYTES_MAX {
            let start = text.chars().take(40).collect();
            return Err(KeyError::TooLong { start, len: text.len() });
        }
        if text.split('/').any(|part| part == "." || part == "..") {
            return Err(KeyError::DotPart { key: text });
        }
        Ok(Self(text))
    }

    /// The key as it is.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which characters stay beside the unreserved ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A path: slashes stay.
    Path,
    /// A query: nothing else stays; a space becomes `%20`, a plus sign `%2B`.
    Query,
}

/// Percent-encodes `text`, byte by byte, with upper-case digits, as signature version 4 wants it.
#[must_use]
pub fn encode(text: &str, place: Place) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(text.len() + text.len() / 4);
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'.' | b'_' | b'~')
            || (byte == b'/' && place == Place::Path);
        if plain {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(DIGITS[usize::from(byte >> 4)]));
            out.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
    out
}

/// Takes back the encoding of a listing with `encoding-type=url`. Servers write a space as `+` or
/// as `%20`, and a plus sign as `%2B`, so a bare `+` is a space. `None` if it is no such text.
#[must_use]
pub fn decode_listed(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                bytes.push(u8::try_from(high * 16 + low).ok()?);
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn awkward_characters_are_encoded_once() {
        let path = encode("a b+c%25d \u{e9}/C++ notes/2024+01", Place::Path);
        assert_eq!(path, "a%20b%2Bc%2525d%20%C3%A9/C%2B%2B%20notes/2024%2B01");
        assert_eq!(encode("a/b&c=d", Place::Query), "a%2Fb%26c%3Dd");
        assert_eq!(encode("-._~Az09", Place::Query), "-._~Az09");
    }

    #[test]
    fn keys_that_would_change_on_the_way_are_refused() {
        for key in ["..", ".", "a/../b", "./a", "a/.."] {
            assert!(matches!(ObjectKey::new(key), Err(KeyError::DotPart { .. })), "{key}");
        }
        for key in ["...", "a..b", ".a/b.", "a//b", "/a", "a/"] {
            assert!(ObjectKey::new(key).is_ok(), "{key}");
        }
        assert_eq!(ObjectKey::new(""), Err(KeyError::Empty));
        assert!(ObjectKey::new("k".repeat(1024)).is_ok());
        assert!(matches!(
            ObjectKey::new("\u{e9}".repeat(513)),
            Err(KeyError::TooLong { len: 1026, .. })
        ));
    }

    #[test]
    fn both_ways_of_listing_a_space_are_understood() {
        assert_eq!(decode_listed("a+b%20c%2Bd%2520"), Some("a b c+d%20".to_owned()));
        for broken in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(decode_listed(broken), None, "{broken}");
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_can_be_decoded(text in any::<String>()) {
            prop_assert_eq!(decode_listed(&encode(&text, Place::Query)), Some(text.clone()));
            prop_assert_eq!(decode_listed(&encode(&text, Place::Path)), Some(text));
        }
    }
}
