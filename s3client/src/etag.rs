//! ETags and the form in which a store wants them in If-Match.
//!
//! Promise: a weak ETag never becomes a condition, and the text of an ETag is never changed except
//! by the form that the probe has proved for the store.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::ETAG_BYTES_MAX;

/// The version of an object, in the very characters in which the server gave it.
#[derive(Clone)]
pub struct ETag(String);

/// Why a text is no ETag that can be sent back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ETagError {
    /// Empty, too long or with characters that no header may have.
    #[error(
        "the store sent the ETag {text:?}, which cannot be sent back in If-Match \
         (1 to {ETAG_BYTES_MAX} visible ASCII characters are expected)"
    )]
    Unusable {
        /// Its beginning.
        text: String,
    },
    /// A weak ETag says "about the same", which is not enough for compare-and-swap.
    #[error(
        "the store, or a proxy before it, sent the weak ETag {text}; compare-and-swap needs a \
         strong one: turn off whatever rewrites answers between this node and the store"
    )]
    Weak {
        /// As sent.
        text: String,
    },
}

impl ETag {
    /// Takes an ETag from an answer.
    pub fn new(text: impl Into<String>) -> Result<Self, ETagError> {
        let text = text.into();
        let usable = (1..=ETAG_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        if usable {
            Ok(Self(text))
        } else {
            Err(ETagError::Unusable { text: text.chars().take(64).collect() })
        }
    }

    /// As the server gave it, quotes included.
    #[must_use]
    pub fn as_given(&self) -> &str {
        &self.0
    }

    /// Whether it starts with `W/`.
    #[must_use]
    pub fn is_weak(&self) -> bool {
        self.0.starts_with("W/")
    }

    /// Without quotes and without the mark of weakness.
    fn opaque(&self) -> &str {
        let text = self.0.strip_prefix("W/").unwrap_or(&self.0);
        text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
    }
}

/// Quotes do not count: some servers send them in one answer and not in the next.
impl PartialEq for ETag {
    fn eq(&self, other: &Self) -> bool {
        self.is_weak() == other.is_weak() && self.opaque() == other.opaque()
    }
}

impl Eq for ETag {}

impl fmt::Debug for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ETag({})", self.0)
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How If-Match is written for one store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum IfMatchForm {
    /// Exactly as the server gave the ETag: right for every store that follows the rules.
    #[default]
    AsGiven = 0,
    /// With quotes, however it was given.
    Quoted = 1,
    /// Without quotes, however it was given: Ceph RGW compares it so.
    Unquoted = 2,
}

impl IfMatchForm {
    /// All forms, in the order in which the probe tries them.
    pub const ALL: [Self; 3] = [Self::AsGiven, Self::Quoted, Self::Unquoted];

    /// The value of If-Match for `etag`.
    pub fn write(self, etag: &ETag) -> Result<String, ETagError> {
        if etag.is_weak() {
            return Err(ETagError::Weak { text: etag.0.clone() });
        }
        Ok(match self {
            Self::AsGiven => etag.0.clone(),
            Self::Quoted => format!("\"{}\"", etag.opaque()),
            Self::Unquoted => etag.opaque().to_owned(),
        })
    }

    /// Its number, for keeping it in an atomic.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The form with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|form| form.number() == number)
    }
}

impl fmt::Display for IfMatchForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AsGiven => "as-given",
            Self::Quoted => "quoted",
            Self::Unquoted => "unquoted",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn etag(text: &str) -> ETag {
        ETag::new(text).unwrap()
    }

    #[test]
    fn an_etag_is_echoed_exactly_as_the_server_gave_it() {
        for text in ["\"abc\"", "abc", "\"a-7\""] {
            assert_eq!(IfMatchForm::AsGiven.write(&etag(text)), Ok(text.to_owned()));
        }
    }

    #[test]
    fn a_pinned_form_holds_for_both_ways_of_giving_it() {
        for text in ["\"abc\"", "abc"] {
            assert_eq!(IfMatchForm::Quoted.write(&etag(text)), Ok("\"abc\"".to_owned()));
            assert_eq!(IfMatchForm::Unquoted.write(&etag(text)), Ok("abc".to_owned()));
        }
    }

    #[test]
    fn a_weak_etag_never_becomes_a_condition() {
        for form in IfMatchForm::ALL {
            let refused = form.write(&etag("W/\"abc\""));
            assert_eq!(refused, Err(ETagError::Weak { text: "W/\"abc\"".to_owned() }));
        }
    }

    #[test]
    fn quotes_do_not_make_two_versions_but_weakness_does() {
        assert_eq!(etag("abc"), etag("\"abc\""));
        assert_ne!(etag("W/\"abc\""), etag("\"abc\""));
        assert_ne!(etag("abd"), etag("abc"));
        assert_eq!(etag("\""), etag("\""));
    }

    #[test]
    fn text_that_no_header_may_carry_is_refused() {
        for text in ["", "a b", "a\r\nb", "\u{e9}", &"x".repeat(257)] {
            assert!(ETag::new(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn forms_keep_their_numbers() {
        for form in IfMatchForm::ALL {
            assert_eq!(IfMatchForm::from_number(form.number()), Some(form));
        }
        assert_eq!(IfMatchForm::from_number(3), None);
    }
}
