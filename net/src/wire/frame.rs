//! The frame: a 24-byte header, then the body. A frame that is not there yet and bytes that can
//! never become a frame are different answers ([`Decoded::NeedMore`], [`FrameError`]).

use duolog_engine::append::AppendBuilder;
use duolog_engine::bytes::{Cursor, TooShort};

use crate::limits::FRAME_HEADER_BYTES;

/// What a frame carries. The numbers are the wire's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum FrameKind {
    /// First frame of a client.
    Hello = 1,
    /// The server's answer to it.
    HelloAccepted = 2,
    /// An append.
    Append = 3,
    /// Its receipt.
    Appended = 4,
    /// A request for a page of a stream.
    ReadStream = 5,
    /// That page.
    StreamPage = 6,
    /// A request for a page of a shard's log.
    ReadLog = 7,
    /// That page.
    LogPage = 8,
    /// A sign of life is asked for.
    Ping = 9,
    /// And given.
    Pong = 10,
    /// A refusal, or the news that an outcome is not known.
    Error = 11,
    /// A request of an operator.
    Admin = 12,
    /// Its answer.
    AdminAnswer = 13,
    /// What the node is now; the server sends it unasked.
    Standing = 14,
    /// A request to be sent a stream's or a log's events, those that are there and those to come.
    Subscribe = 15,
    /// Some of them.
    Events = 16,
    /// The subscriber has taken bytes of events.
    Taken = 17,
    /// The subscriber asks to hear when nothing up to a stamp can come any more.
    Settle = 18,
    /// A subscription is to end, or has ended.
    Unsubscribe = 19,
}

impl FrameKind {
    /// Every kind, in the order of the numbers.
    pub const ALL: [Self; 19] = [
        Self::Hello,
        Self::HelloAccepted,
        Self::Append,
        Self::Appended,
        Self::ReadStream,
        Self::StreamPage,
        Self::ReadLog,
        Self::LogPage,
        Self::Ping,
        Self::Pong,
        Self::Error,
        Self::Admin,
        Self::AdminAnswer,
        Self::Standing,
        Self::Subscribe,
        Self::Events,
        Self::Taken,
        Self::Settle,
        Self::Unsubscribe,
    ];

    /// The wire's number.
    #[must_use]
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// The kind with this number.
    #[must_use]
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

/// Why bytes can never become a frame. The connection they came from is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Reserved bytes are not zero.
    #[error("reserved header bytes are {value:#x} instead of 0: not a frame of this protocol")]
    Reserved {
        /// Bytes 10..16 as a number.
        value: u64,
        /// As the header tells.
        correlation: u64,
    },
    /// No such kind.
    #[error("unknown frame kind {kind}: this version knows 1 to 19")]
    UnknownKind {
        /// The number.
        kind: u16,
        /// As the header tells.
        correlation: u64,
    },
    /// The announced body is over the limit; known from the header alone.
    #[error("frame body of {length} bytes is over the limit of {limit}")]
    TooLong {
        /// Announced, bytes.
        length: u64,
        /// The limit, bytes.
        limit: u64,
        /// As the header tells.
        correlation: u64,
    },
    /// The checksum does not fit the bytes.
    #[error("frame checksum is {found:#010x}, the header says {stored:#010x}")]
    Checksum {
        /// As stored.
        stored: u32,
        /// As computed.
        found: u32,
        /// As the header tells (it may be what is damaged).
        correlation: u64,
    },
}

impl FrameError {
    /// The frame's correlation id as far as it is known.
    #[must_use]
    pub const fn correlation(&self) -> u64 {
        match self {
            Self::Reserved { correlation, .. }
            | Self::UnknownKind { correlation, .. }
            | Self::TooLong { correlation, .. }
            | Self::Checksum { correlation, .. } => *correlation,
        }
    }
}

/// What the front of a slice holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<T> {
    /// A whole one.
    Complete {
        /// It.
        value: T,
        /// Bytes it takes at the front of the slice.
        used: usize,
    },
    /// The beginning of one; at least so many bytes (1 or more) are lacking.
    NeedMore(usize),
}

/// A frame's header, checked except for the checksum, which covers the body too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Length of the body, bytes.
    pub length: u32,
    /// crc32c over bytes 8..24 of the header, then the body.
    pub checksum: u32,
    /// What the body is.
    pub kind: FrameKind,
    /// Chosen by the client, repeated in the answer.
    pub correlation: u64,
}

/// A whole frame whose checksum fits. The body has not been looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What the body is.
    pub kind: FrameKind,
    /// Chosen by the client, repeated in the answer.
    pub correlation: u64,
    /// The message.
    pub body: &'a [u8],
}

/// Decodes the header at the front of `bytes`. `body_max_bytes` bounds the announced length.
pub fn decode_header(
    bytes: &[u8],
    body_max_bytes: usize,
) -> Result<Decoded<FrameHeader>, FrameError> {
    let Ok((length, checksum, kind, reserved, correlation)) = header_fields(bytes) else {
        return Ok(Decoded::NeedMore(FRAME_HEADER_BYTES - bytes.len()));
    };
    if reserved != 0 {
        return Err(FrameError::Reserved { value: reserved, correlation });
    }
    let kind = FrameKind::from_code(kind).ok_or(FrameError::UnknownKind { kind, correlation })?;
    if length as usize > body_max_bytes {
        let (length, limit) = (u64::from(length), body_max_bytes as u64);
        return Err(FrameError::TooLong { length, limit, correlation });
    }
    let value = FrameHeader { length, checksum, kind, correlation };
    Ok(Decoded::Complete { value, used: FRAME_HEADER_BYTES })
}

fn header_fields(bytes: &[u8]) -> Result<(u32, u32, u16, u64, u64), TooShort> {
    let mut cursor = Cursor::new(bytes);
    let length = cursor.u32()?;
    let checksum = cursor.u32()?;
    let kind = cursor.u16()?;
    let reserved = u64::from(cursor.u16()?) << 32 | u64::from(cursor.u32()?);
    let correlation = cursor.u64()?;
    Ok((length, checksum, kind, reserved, correlation))
}

/// Decodes the frame at the front of `bytes` and checks its checksum.
pub fn decode_frame(bytes: &[u8], body_max_bytes: usize) -> Result<Decoded<Frame<'_>>, FrameError> {
    let header = match decode_header(bytes, body_max_bytes)? {
        Decoded::Complete { value, .. } => value,
        Decoded::NeedMore(lacking) => return Ok(Decoded::NeedMore(lacking)),
    };
    let used = FRAME_HEADER_BYTES + header.length as usize;
    let Some(whole) = bytes.get(..used) else {
        return Ok(Decoded::NeedMore(used - bytes.len()));
    };
    // Header bytes 8..24 and the body lie next to each other.
    let found = crc32c::crc32c(&whole[8..]);
    let FrameHeader { checksum: stored, kind, correlation, .. } = header;
    if found != stored {
        return Err(FrameError::Checksum { stored, found, correlation });
    }
    let value = Frame { kind, correlation, body: &whole[FRAME_HEADER_BYTES..] };
    Ok(Decoded::Complete { value, used })
}

/// A frame being written at the end of a buffer: [`OpenFrame::begin`], then the body's bytes are
/// appended by whoever knows them, then [`OpenFrame::finish`] fills in length and checksum.
#[derive(Debug)]
#[must_use = "a frame without finish() has no length and no checksum"]
pub struct OpenFrame {
    start: usize,
}

impl OpenFrame {
    /// Writes the header with length and checksum still open.
    pub fn begin(out: &mut Vec<u8>, kind: FrameKind, correlation: u64) -> Self {
        let start = out.len();
        let mut header = [0; FRAME_HEADER_BYTES];
        header[8..10].copy_from_slice(&kind.code().to_le_bytes());
        header[16..].copy_from_slice(&correlation.to_le_bytes());
        out.extend_from_slice(&header);
        Self { start }
    }

    /// Where the body starts in the buffer.
    #[must_use]
    pub const fn body_start(&self) -> usize {
        self.start + FRAME_HEADER_BYTES
    }

    /// Closes the frame: everything behind the header is its body.
    ///
    /// Panics when the buffer was cut in between or the body has 4 GiB: both are the caller's slip.
    pub fn finish(self, out: &mut [u8]) {
        let body_bytes = out.len().checked_sub(self.body_start()).expect("begin() wrote a header");
        let length =
            u32::try_from(body_bytes).expect("bodies are bounded by limits far below 4 GiB");
        let frame = &mut out[self.start..];
        let checksum = crc32c::crc32c(&frame[8..]);
        frame[..4].copy_from_slice(&length.to_le_bytes());
        frame[4..8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Takes the frame back: the buffer ends where it ended before [`OpenFrame::begin`].
    pub fn abandon(self, out: &mut Vec<u8>) {
        out.truncate(self.start);
    }
}

/// Appends a whole frame with a body that lies ready.
pub fn encode_frame(out: &mut Vec<u8>, kind: FrameKind, correlation: u64, body: &[u8]) {
    let frame = OpenFrame::begin(out, kind, correlation);
    out.extend_from_slice(body);
    frame.finish(out);
}

/// Appends an [`FrameKind::Append`] frame.
pub fn encode_append(out: &mut Vec<u8>, correlation: u64, append: &AppendBuilder) {
    let frame = OpenFrame::begin(out, FrameKind::Append, correlation);
    append.encode(out);
    frame.finish(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1 << 20;

    fn sample() -> Vec<u8> {
        let mut out = Vec::new();
        encode_frame(&mut out, FrameKind::Ping, 0x1122_3344_5566_7788, b"hello");
        out
    }

    #[test]
    fn layout_is_that_of_the_table() {
        let bytes = sample();
        assert_eq!(bytes.len(), 29);
        assert_eq!(bytes[..4], [5, 0, 0, 0]);
        assert_eq!(bytes[4..8], crc32c::crc32c(&bytes[8..]).to_le_bytes());
        assert_eq!(bytes[8..16], [9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..24], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        assert_eq!(&bytes[24..], b"hello");
    }

    #[test]
    fn kinds_and_numbers_go_both_ways() {
        for (index, kind) in FrameKind::ALL.iter().enumerate() {
            assert_eq!(usize::from(kind.code()), index + 1);
            assert_eq!(FrameKind::from_code(kind.code()), Some(*kind));
        }
        assert_eq!(FrameKind::from_code(0), None);
        assert_eq!(FrameKind::from_code(20), None);
    }

    #[test]
    fn a_beginning_asks_for_exactly_what_is_known_to_be_lacking() {
        let bytes = sample();
        for end in 0..bytes.len() {
            let lacking = if end < 24 { 24 - end } else { bytes.len() - end };
            assert_eq!(decode_frame(&bytes[..end], LIMIT), Ok(Decoded::NeedMore(lacking)));
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = sample();
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let got = decode_frame(&bad, LIMIT);
            // A longer length looks like a frame that is not there yet; all else is an error.
            let longer =
                bit < 32 && bad[..4] > bytes[..4] && matches!(got, Ok(Decoded::NeedMore(_)));
            assert!(got.is_err() || longer, "bit {bit}: {got:?}");
        }
    }

    #[test]
    fn oversized_is_known_from_the_header_alone() {
        let mut bytes = sample();
        bytes.truncate(FRAME_HEADER_BYTES);
        assert_eq!(
            decode_header(&bytes, 4).unwrap_err(),
            FrameError::TooLong { length: 5, limit: 4, correlation: 0x1122_3344_5566_7788 }
        );
        assert!(decode_header(&bytes, 5).is_ok());
    }

    #[test]
    fn frames_batch_in_one_buffer_and_can_be_taken_back() {
        let mut out = sample();
        let open = OpenFrame::begin(&mut out, FrameKind::Pong, 2);
        out.extend_from_slice(b"never");
        open.abandon(&mut out);
        encode_frame(&mut out, FrameKind::Pong, 3, b"");
        let Ok(Decoded::Complete { value, used }) = decode_frame(&out, LIMIT) else { panic!() };
        assert_eq!(value.body, b"hello");
        let Ok(Decoded::Complete { value, used: rest }) = decode_frame(&out[used..], LIMIT) else {
            panic!()
        };
        assert_eq!((value.correlation, value.body, used + rest), (3, &b""[..], out.len()));
    }
}
