//! Why a frame's body is not the message its kind promises. The frame itself was whole: the
//! connection can go on.

use std::fmt;
use std::io::Write as _;

use duolog_engine::bytes::{Cursor, TooShort};

use crate::limits::ERROR_TEXT_MAX_BYTES;

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The body ends before the message does.
    #[error("the {0} ends too early")]
    TooShort(&'static str),
    /// Bytes are left over.
    #[error("{count} bytes too many behind the {message}")]
    TrailingBytes {
        /// The message.
        message: &'static str,
        /// How many.
        count: usize,
    },
    /// Reserved bytes are not zero: a newer client asks for something this version cannot do.
    #[error("reserved bytes of the {0} are not 0")]
    Reserved(&'static str),
    /// The first frame does not begin like a hello.
    #[error("the hello does not begin with the magic DUOLOG\\0\\0: is this a Duolog client?")]
    Magic,
    /// Stream names are 1..=255 bytes.
    #[error("stream name of {0} bytes: names are 1 to 255 bytes")]
    NameLength(usize),
    /// Event types are 1..=255 bytes.
    #[error("event type of {0} bytes: types are 1 to 255 bytes")]
    TypeLength(usize),
    /// Texts are UTF-8.
    #[error("{0} is not UTF-8")]
    NotUtf8(&'static str),
    /// A number that has no meaning in this version.
    #[error("{field} has the unknown value {value}")]
    UnknownValue {
        /// The field.
        field: &'static str,
        /// The number.
        value: u64,
    },
    /// Over a limit of this message.
    #[error("{field} of {size} bytes is over the limit of {limit}")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Bytes.
        size: usize,
        /// Bytes.
        limit: usize,
    },
    /// A page announces another number of records than it holds.
    #[error("the page announces {announced} records and holds {found}")]
    RecordCount {
        /// As announced.
        announced: u32,
        /// As found.
        found: u32,
    },
    /// Bytes of a page are not an event record.
    #[error("a record of the page: {0}")]
    Record(#[from] duolog_engine::record::RecordError),
    /// A page holds a record that is not an event.
    #[error("the page holds a record that is not an event")]
    NotAnEvent,
}

/// Names the message in "too short".
pub(crate) fn short(message: &'static str) -> impl Fn(TooShort) -> BodyError {
    move |TooShort| BodyError::TooShort(message)
}

/// Refuses bytes behind the end of `message`.
pub(crate) const fn ends(message: &'static str, rest: &[u8]) -> Result<(), BodyError> {
    match rest.len() {
        0 => Ok(()),
        count => Err(BodyError::TrailingBytes { message, count }),
    }
}

/// `bytes` as text, or which text is not UTF-8.
pub(crate) fn text<'a>(field: &'static str, bytes: &'a [u8]) -> Result<&'a str, BodyError> {
    std::str::from_utf8(bytes).map_err(|_| BodyError::NotUtf8(field))
}

/// Appends the length as `u32`, then the text for people, cut at [`ERROR_TEXT_MAX_BYTES`].
pub(crate) fn put_text(out: &mut Vec<u8>, text: impl fmt::Display) {
    out.extend_from_slice(&[0; 4]);
    let start = out.len();
    // A Vec takes every write; only a Display that refuses to print itself could fail.
    if write!(out, "{text}").is_err() {
        out.truncate(start);
    }
    let length = cut_at_character(&out[start..], ERROR_TEXT_MAX_BYTES);
    out.truncate(start + length);
    out[start - 4..start].copy_from_slice(&(length as u32).to_le_bytes());
}

/// The bytes that [`put_text`] wrote; see [`text`] for their form.
pub(crate) fn take_text<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], TooShort> {
    let length = cursor.u32()?;
    cursor.take(length as usize)
}

/// The longest length up to `max` that does not split a character of `text`.
fn cut_at_character(text: &[u8], max: usize) -> usize {
    if text.len() <= max {
        return text.len();
    }
    let continues = |index: &usize| text[*index] & 0xc0 == 0x80;
    (0..=max).rev().find(|index| !continues(index)).unwrap_or(0)
}
