//! Bytes as members of a JSON document, and back, without loss.
//!
//! An event's data and metadata are bytes. In JSON they are one of three members, or none: `data`
//! (a JSON value, whose text is the bytes), `data_text` (a string whose UTF-8 is the bytes),
//! `data_base64`. Which one is there says what the bytes are; no member at all means no bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Bytes as they are shown.
#[derive(Debug)]
pub enum Shown {
    /// No bytes.
    Nothing,
    /// A JSON text, exactly as stored.
    Json(Box<RawValue>),
    /// UTF-8 that is no JSON text.
    Text(String),
    /// Anything else.
    Base64(String),
}

impl Shown {
    /// Looks at `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Self::Base64(STANDARD.encode(bytes));
        };
        if text.is_empty() {
            return Self::Nothing;
        }
        // Blanks around it would be lost in a document: then it is text.
        let whole = !text.starts_with(blank) && !text.ends_with(blank);
        match RawValue::from_string(text.to_owned()) {
            Ok(json) if whole => Self::Json(json),
            _ => Self::Text(text.to_owned()),
        }
    }

    /// The three members, at most one of them there.
    #[must_use]
    pub fn members(self) -> (Option<Box<RawValue>>, Option<String>, Option<String>) {
        match self {
            Self::Nothing => (None, None, None),
            Self::Json(json) => (Some(json), None, None),
            Self::Text(text) => (None, Some(text), None),
            Self::Base64(text) => (None, None, Some(text)),
        }
    }
}

const fn blank(char: char) -> bool {
    matches!(char, ' ' | '\t' | '\n' | '\r')
}

/// The bytes that the members `name`, `name_text` and `name_base64` stand for.
pub fn bytes(
    name: &str,
    json: Option<&RawValue>,
    text: Option<String>,
    base64: Option<String>,
) -> Result<Vec<u8>, String> {
    match (json, text, base64) {
        (None, None, None) => Ok(Vec::new()),
        (Some(json), None, None) => Ok(compact(json.get())),
        (None, Some(text), None) => Ok(text.into_bytes()),
        (None, None, Some(text)) => STANDARD
            .decode(&text)
            .map_err(|error| format!("{name}_base64 is not base64 with padding: {error}")),
        _ => Err(format!("give at most one of {name}, {name}_text and {name}_base64")),
    }
}

/// A JSON text without the blanks between its tokens: every digit and every escape stays.
#[must_use]
pub fn compact(json: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    let (mut inside, mut escaped) = (false, false);
    for byte in json.bytes() {
        if !inside && blank(char::from(byte)) {
            continue;
        }
        inside = match byte {
            b'"' if !escaped => !inside,
            _ => inside,
        };
        escaped = inside && byte == b'\\' && !escaped;
        out.push(byte);
    }
    out
}

/// For a member that may be `null`, which is a value like any other.
pub fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows the bytes, then takes what is shown for a request: the same bytes again, unless they
    /// are JSON with blanks, which only lose these.
    fn there_and_back(bytes: &[u8]) -> Vec<u8> {
        let (json, text, base64) = Shown::of(bytes).members();
        super::bytes("data", json.as_deref(), text, base64).unwrap()
    }

    #[test]
    fn bytes_come_back_as_they_were() {
        let kept: [&[u8]; 12] = [
            b"",
            b"null",
            b"{\"a\":[1,2.50,1e400],\"a\":\"\\u00e4 \\\" \"}",
            b"123456789012345678901234567890",
            b"plain text",
            b" {} ",
            b"{}\n",
            b"\xef\xbb\xbf{}",
            b"\xff\x00\x01",
            b"\"\"",
            b"\x00",
            "\u{e4}".as_bytes(),
        ];
        for bytes in kept {
            assert_eq!(there_and_back(bytes), bytes, "{bytes:?}");
        }
        assert_eq!(there_and_back(b"{\"a\": [1,\n 2]}"), b"{\"a\":[1,2]}");
    }

    #[test]
    fn what_is_shown_tells_what_it_is() {
        assert!(matches!(Shown::of(b""), Shown::Nothing));
        assert!(matches!(Shown::of(b"[ 1]"), Shown::Json(json) if json.get() == "[ 1]"));
        assert!(matches!(Shown::of(b" 1"), Shown::Text(text) if text == " 1"));
        assert!(matches!(Shown::of(b"NaN"), Shown::Text(_)));
        assert!(matches!(Shown::of(b"\xff"), Shown::Base64(text) if text == "/w=="));
    }

    #[test]
    fn one_form_at_a_time() {
        let text = || Some(String::new());
        assert!(bytes("data", None, text(), text()).unwrap_err().contains("data_base64"));
        assert!(bytes("data", None, None, Some("?".to_owned())).is_err());
    }
}
