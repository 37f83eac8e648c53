//! The error frame: a code with numbers for programs, a text for people.

use std::fmt;

use duolog_engine::append::{AppendError, Expect};
use duolog_engine::bytes::{Cursor, TooShort};
use duolog_engine::ids::{LeaseEpoch, Revision};

use super::body::{BodyError, ends, put_text, short, take_text, text};
use super::frame::{FrameKind, OpenFrame};
use super::standing::address_length;

const MESSAGE: &str = "error";
const NO_STREAM_INDEX: u16 = u16::MAX;
const STREAM_EXISTS: u64 = u64::MAX;

/// What went wrong. The numbers are the wire's; WIRE.md tells what `a` and `b` mean for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum ErrorCode {
    /// Not a frame of this protocol; the connection is closed.
    BadFrame = 1,
    /// No version in common; the connection is closed.
    UnsupportedVersion = 2,
    /// The request's bytes are wrong: names, counts, types.
    BadRequest = 3,
    /// An event, append or frame over the limit.
    TooLarge = 4,
    /// Expected revision not met.
    Conflict = 5,
    /// Fencing token below the stream's.
    Fenced = 6,
    /// A limit on requests in flight; nothing was done.
    Busy = 7,
    /// The idempotency key came before with another request.
    KeyReused = 8,
    /// Streams of one append live in several shards.
    CrossShard = 9,
    /// No space for the next segment; reads go on.
    DiskFull = 10,
    /// The append's outcome is not known.
    Unknown = 11,
    /// The node is stopping; nothing was done.
    ShuttingDown = 12,
    /// The log cannot give these events.
    Damaged = 13,
    /// Another node leads.
    NotLeader = 14,
    /// An operator's request cannot be carried out as things are; nothing was done.
    Refused = 15,
    /// The subscriber took nothing for too long; its subscription is over.
    CutOff = 16,
}

impl ErrorCode {
    /// Every code, in the order of the numbers.
    pub const ALL: [Self; 16] = [
        Self::BadFrame,
        Self::UnsupportedVersion,
        Self::BadRequest,
        Self::TooLarge,
        Self::Conflict,
        Self::Fenced,
        Self::Busy,
        Self::KeyReused,
        Self::CrossShard,
        Self::DiskFull,
        Self::Unknown,
        Self::ShuttingDown,
        Self::Damaged,
        Self::NotLeader,
        Self::Refused,
        Self::CutOff,
    ];

    /// The wire's number.
    #[must_use]
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// The code with this number.
    #[must_use]
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

/// An error about to be sent: everything but its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an error is sent by encode()"]
pub struct ErrorFrame {
    /// What went wrong.
    pub code: ErrorCode,
    /// Index of the stream in the request that caused it.
    pub stream_index: Option<u16>,
    /// When to ask again, milliseconds; 0 = no promise.
    pub retry_after_ms: u32,
    /// First number, per code.
    pub a: u64,
    /// Second number, per code.
    pub b: u64,
}

impl ErrorFrame {
    /// An error without numbers.
    pub const fn new(code: ErrorCode) -> Self {
        Self { code, stream_index: None, retry_after_ms: 0, a: 0, b: 0 }
    }

    /// Sets the two numbers.
    pub const fn numbers(mut self, a: u64, b: u64) -> Self {
        (self.a, self.b) = (a, b);
        self
    }

    /// Names the stream by its index in the request.
    pub const fn stream(mut self, index: u16) -> Self {
        self.stream_index = Some(index);
        self
    }

    /// Says when to ask again.
    pub const fn retry_after_ms(mut self, milliseconds: u32) -> Self {
        self.retry_after_ms = milliseconds;
        self
    }

    /// Another node leads, or none does: `epoch` is the newest reign known. See
    /// [`ErrorFrame::encode_with`].
    pub const fn not_leader(epoch: LeaseEpoch) -> Self {
        Self::new(ErrorCode::NotLeader).numbers(epoch.0, 0)
    }

    /// A conflict of the stream at `index`: `next` is the revision its next event would get.
    /// Revisions from 2^64-2 on, which no stream reaches, look like "stream exists".
    pub const fn conflict(index: u16, expected: Expect, next: Revision) -> Self {
        let a = match expected {
            // A stream with no expectation has no conflict; "stream exists" is the nearest.
            Expect::Any | Expect::StreamExists => STREAM_EXISTS,
            Expect::NoStream => 0,
            Expect::Exact(revision) => revision.0.saturating_add(1),
        };
        Self::new(ErrorCode::Conflict).numbers(a, next.0).stream(index)
    }

    /// Appends the frame. `text` says what happened, with which values, what to do; it is written
    /// straight into `out` (`format_args!`) and cut at [`ERROR_TEXT_MAX_BYTES`].
    pub fn encode(&self, out: &mut Vec<u8>, correlation: u64, text: impl fmt::Display) {
        self.encode_with(out, correlation, text, "");
    }

    /// [`ErrorFrame::encode`] for [`ErrorCode::NotLeader`] by a node that knows who leads: `leader`
    /// is the address for clients, at most 255 bytes; empty if not known.
    pub fn encode_with(
        &self,
        out: &mut Vec<u8>,
        correlation: u64,
        text: impl fmt::Display,
        leader: &str,
    ) {
        let frame = OpenFrame::begin(out, FrameKind::Error, correlation);
        out.extend_from_slice(&self.code.code().to_le_bytes());
        out.extend_from_slice(&self.stream_index.unwrap_or(NO_STREAM_INDEX).to_le_bytes());
        out.extend_from_slice(&self.retry_after_ms.to_le_bytes());
        out.extend_from_slice(&self.a.to_le_bytes());
        out.extend_from_slice(&self.b.to_le_bytes());
        put_text(out, text);
        if self.code == ErrorCode::NotLeader {
            out.push(address_length(leader));
            out.extend_from_slice(leader.as_bytes());
        }
        frame.finish(out);
    }
}

impl From<&AppendError> for ErrorFrame {
    /// The code and numbers for an append that `AppendView::parse` refused; its text is the
    /// error's own.
    fn from(error: &AppendError) -> Self {
        match *error {
            AppendError::EventTooLarge { size, limit }
            | AppendError::AppendTooLarge { size, limit } => {
                Self::new(ErrorCode::TooLarge).numbers(size, limit)
            }
            _ => Self::new(ErrorCode::BadRequest),
        }
    }
}

/// A received error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorView<'a> {
    /// The number of the code; see [`ErrorView::code`].
    pub code_number: u16,
    /// Index of the stream in the request that caused it.
    pub stream_index: Option<u16>,
    /// When to ask again, milliseconds; 0 = no promise.
    pub retry_after_ms: u32,
    /// First number, per code.
    pub a: u64,
    /// Second number, per code.
    pub b: u64,
    /// What happened, with which values, what to do.
    pub text: &'a str,
    /// Where clients reach the leader; empty unless the code is [`ErrorCode::NotLeader`] and the
    /// node knows it.
    pub leader: &'a str,
}

impl<'a> ErrorView<'a> {
    /// Decodes a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        let mut cursor = Cursor::new(body);
        let mut read = || {
            let (code_number, index) = (cursor.u16()?, cursor.u16()?);
            let (retry_after_ms, a, b) = (cursor.u32()?, cursor.u64()?, cursor.u64()?);
            Ok((code_number, index, retry_after_ms, (a, b), take_text(&mut cursor)?))
        };
        let (code_number, index, retry_after_ms, (a, b), said) = read().map_err(short(MESSAGE))?;
        let said = text("error text", said)?;
        let mut leader = "";
        if code_number == ErrorCode::NotLeader.code() {
            let mut read = || -> Result<_, TooShort> {
                let length = cursor.u8()?;
                cursor.take(length.into())
            };
            leader = text("leader's address", read().map_err(short(MESSAGE))?)?;
        }
        ends(MESSAGE, cursor.rest())?;
        let stream_index = (index != NO_STREAM_INDEX).then_some(index);
        Ok(Self { code_number, stream_index, retry_after_ms, a, b, text: said, leader })
    }

    /// The code, if this version knows it.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        ErrorCode::from_code(self.code_number)
    }

    /// What a conflict says: what was expected, and the stream's last revision (`None`: no stream).
    #[must_use]
    pub const fn conflict(&self) -> (Expect, Option<Revision>) {
        let expected = match self.a {
            0 => Expect::NoStream,
            STREAM_EXISTS => Expect::StreamExists,
            next => Expect::Exact(Revision(next - 1)),
        };
        let actual = match self.b {
            0 => None,
            next => Some(Revision(next - 1)),
        };
        (expected, actual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::ERROR_TEXT_MAX_BYTES;

    fn body(error: &ErrorFrame, text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        error.encode(&mut out, 0, text);
        out.split_off(24)
    }

    #[test]
    fn codes_and_numbers_go_both_ways() {
        for (index, code) in ErrorCode::ALL.iter().enumerate() {
            assert_eq!(usize::from(code.code()), index + 1);
            assert_eq!(ErrorCode::from_code(code.code()), Some(*code));
        }
        assert_eq!((ErrorCode::from_code(0), ErrorCode::from_code(17)), (None, None));
    }

    #[test]
    fn layout_is_that_of_the_table() {
        let error = ErrorFrame::new(ErrorCode::Busy).numbers(1, 2).stream(3).retry_after_ms(4);
        let bytes = body(&error, "no");
        assert_eq!(bytes[..8], [7, 0, 3, 0, 4, 0, 0, 0]);
        assert_eq!(bytes[8..28], [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(&bytes[28..], b"no");
        assert_eq!(body(&ErrorFrame::new(ErrorCode::Busy), "")[2..4], [0xff; 2]);
    }

    #[test]
    fn conflicts_keep_what_was_expected_and_what_is() {
        let cases = [
            (Expect::NoStream, 3, Some(2)),
            (Expect::StreamExists, 0, None),
            (Expect::Exact(Revision(0)), 0, None),
            (Expect::Exact(Revision(7)), 1, Some(0)),
        ];
        for (expected, next, actual) in cases {
            let bytes = body(&ErrorFrame::conflict(0, expected, Revision(next)), "");
            let view = ErrorView::decode(&bytes).unwrap();
            assert_eq!(view.conflict(), (expected, actual.map(Revision)));
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let long = "ä".repeat(ERROR_TEXT_MAX_BYTES);
        let bytes = body(&ErrorFrame::new(ErrorCode::Busy), &format!("x{long}"));
        let view = ErrorView::decode(&bytes).unwrap();
        assert_eq!(view.text.len(), ERROR_TEXT_MAX_BYTES - 1);
        assert!(view.text.ends_with('ä'));
    }

    #[test]
    fn only_not_leader_carries_an_address() {
        let told = |error: ErrorFrame| {
            let mut out = Vec::new();
            error.encode_with(&mut out, 0, "no", "a:1");
            out.split_off(24 + 28)
        };
        assert_eq!(told(ErrorFrame::not_leader(LeaseEpoch(7))), b"no\x03a:1");
        assert_eq!(told(ErrorFrame::new(ErrorCode::Busy)), b"no");
        let bytes = body(&ErrorFrame::not_leader(LeaseEpoch(7)), "x");
        assert_eq!(bytes[28..], [b'x', 0]);
        assert_eq!(ErrorView::decode(&bytes[..29]), Err(BodyError::TooShort("error")));
    }

    #[test]
    fn a_code_of_a_later_version_still_has_its_text() {
        let mut bytes = body(&ErrorFrame::new(ErrorCode::Busy), "later");
        bytes[0] = 99;
        let view = ErrorView::decode(&bytes).unwrap();
        assert_eq!((view.code(), view.code_number, view.text), (None, 99, "later"));
    }
}
