//! Why a frame's body is not the message its kind promises. The frame itself was whole: the
//! connection can go on.

use duolog_engine::bytes::TooShort;

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
pub(super) fn short(message: &'static str) -> impl Fn(TooShort) -> BodyError {
    move |TooShort| BodyError::TooShort(message)
}

/// Refuses bytes behind the end of `message`.
pub(super) const fn ends(message: &'static str, rest: &[u8]) -> Result<(), BodyError> {
    match rest.len() {
        0 => Ok(()),
        count => Err(BodyError::TrailingBytes { message, count }),
    }
}

/// `bytes` as text, or which text is not UTF-8.
pub(super) fn text<'a>(field: &'static str, bytes: &'a [u8]) -> Result<&'a str, BodyError> {
    std::str::from_utf8(bytes).map_err(|_| BodyError::NotUtf8(field))
}
