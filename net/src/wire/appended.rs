//! The receipt of an append.

use duolog_engine::bytes::{Cursor, TooShort};
use duolog_engine::ids::{Hlc, LeaseEpoch, Lsn, Revision, ShardId};

use super::body::{BodyError, short};
use super::frame::{FrameKind, OpenFrame};

const MESSAGE: &str = "receipt";
const SPAN_BYTES: usize = 16;

/// Where an acknowledged append is stored. The numbers are the wire's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Copies {
    /// On this node's disk.
    ThisDisk = 1,
    /// On this node's disk and on the peer's.
    ThisDiskAndPeer = 2,
    /// On this node's disk and in S3.
    ThisDiskAndS3 = 3,
}

impl Copies {
    /// The wire's number.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The value with this number.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::ThisDisk),
            2 => Some(Self::ThisDiskAndPeer),
            3 => Some(Self::ThisDiskAndS3),
            _ => None,
        }
    }
}

/// What one stream got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSpan {
    /// Revision of its first event in this append.
    pub first: Revision,
    /// Number of its events in this append, at least 1.
    pub event_count: u32,
}

impl StreamSpan {
    /// Revision of its last event in this append.
    #[must_use]
    pub const fn last(&self) -> Revision {
        Revision(self.first.0.saturating_add(self.event_count.saturating_sub(1) as u64))
    }
}

/// A receipt without its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// LSN of the first event.
    pub first_lsn: Lsn,
    /// LSN of the last event.
    pub last_lsn: Lsn,
    /// HLC of the block.
    pub hlc: Hlc,
    /// 0 on a standalone node.
    pub epoch: LeaseEpoch,
    /// The shard of all its streams.
    pub shard: ShardId,
    /// Where the events are stored.
    pub copies: Copies,
    /// True: the answer to an earlier append with this key.
    pub replayed: bool,
}

impl Appended {
    /// Appends the frame. `spans`: the streams with events, in the request's order, at most 256.
    pub fn encode(
        &self,
        out: &mut Vec<u8>,
        correlation: u64,
        spans: impl IntoIterator<Item = StreamSpan>,
    ) {
        let frame = OpenFrame::begin(out, FrameKind::Appended, correlation);
        out.extend_from_slice(&self.first_lsn.0.to_le_bytes());
        out.extend_from_slice(&self.last_lsn.0.to_le_bytes());
        out.extend_from_slice(&self.hlc.0.to_le_bytes());
        out.extend_from_slice(&self.epoch.0.to_le_bytes());
        out.extend_from_slice(&self.shard.0.to_le_bytes());
        out.extend_from_slice(&[self.copies.code(), u8::from(self.replayed)]);
        let count_at = out.len();
        out.extend_from_slice(&[0; 2]);
        let mut count = 0_u16;
        for span in spans {
            out.extend_from_slice(&span.first.0.to_le_bytes());
            out.extend_from_slice(&span.event_count.to_le_bytes());
            out.extend_from_slice(&[0; 4]);
            count = count.checked_add(1).expect("an append has at most 256 streams");
        }
        out[count_at..count_at + 2].copy_from_slice(&count.to_le_bytes());
        frame.finish(out);
    }
}

/// A receipt in a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendedView<'a> {
    /// Everything but the streams.
    pub head: Appended,
    spans: &'a [u8],
}

impl<'a> AppendedView<'a> {
    /// Decodes a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        let mut cursor = Cursor::new(body);
        let mut read = || {
            let positions = (Lsn(cursor.u64()?), Lsn(cursor.u64()?));
            let clock = (Hlc(cursor.u64()?), LeaseEpoch(cursor.u64()?), ShardId(cursor.u32()?));
            Ok((positions, clock, cursor.u8()?, cursor.u8()?, cursor.u16()?))
        };
        let ((first_lsn, last_lsn), (hlc, epoch, shard), copies, replayed, count) =
            read().map_err(short(MESSAGE))?;
        let unknown = |field, value: u8| BodyError::UnknownValue { field, value: value.into() };
        let copies = Copies::from_code(copies).ok_or_else(|| unknown("copies", copies))?;
        let replayed = match replayed {
            0 => false,
            1 => true,
            other => return Err(unknown("replayed", other)),
        };
        let spans = cursor.take(usize::from(count) * SPAN_BYTES).map_err(short(MESSAGE))?;
        super::body::ends(MESSAGE, cursor.rest())?;
        let head = Appended { first_lsn, last_lsn, hlc, epoch, shard, copies, replayed };
        Ok(Self { head, spans })
    }

    /// The streams with events, in the request's order.
    pub fn spans(&self) -> impl ExactSizeIterator<Item = StreamSpan> + use<'a> {
        self.spans.chunks_exact(SPAN_BYTES).map(|entry| {
            let mut cursor = Cursor::new(entry);
            let mut next = || -> Result<StreamSpan, TooShort> {
                Ok(StreamSpan { first: Revision(cursor.u64()?), event_count: cursor.u32()? })
            };
            next().expect("an entry is 16 bytes long")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Appended {
        Appended {
            first_lsn: Lsn(10),
            last_lsn: Lsn(14),
            hlc: Hlc(77),
            epoch: LeaseEpoch(0),
            shard: ShardId(2),
            copies: Copies::ThisDisk,
            replayed: true,
        }
    }

    #[test]
    fn layout_is_that_of_the_table() {
        let mut out = Vec::new();
        let span = StreamSpan { first: Revision(5), event_count: 5 };
        head().encode(&mut out, 1, [span]);
        let body = &out[24..];
        assert_eq!(body.len(), 56);
        assert_eq!(body[32..40], [2, 0, 0, 0, 1, 1, 1, 0]);
        assert_eq!(body[40..], [5, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        let view = AppendedView::decode(body).unwrap();
        assert_eq!(view.head, head());
        assert_eq!(view.spans().collect::<Vec<_>>(), [span]);
        assert_eq!(span.last(), Revision(9));
    }

    #[test]
    fn every_shorter_or_longer_body_is_refused() {
        let mut out = Vec::new();
        head().encode(&mut out, 1, [StreamSpan { first: Revision(5), event_count: 1 }]);
        out.push(0);
        let body = &out[24..];
        for end in 0..body.len() - 1 {
            assert_eq!(AppendedView::decode(&body[..end]), Err(BodyError::TooShort("receipt")));
        }
        let trailing = BodyError::TrailingBytes { message: "receipt", count: 1 };
        assert_eq!(AppendedView::decode(body), Err(trailing));
    }
}
