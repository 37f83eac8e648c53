//! A piece of a subscription: events in order, and what they leave open. The records lie in it as
//! in a page of a read.

use duolog_engine::bytes::Cursor;
use duolog_engine::ids::{Hlc, Lsn};

use super::body::{BodyError, short};
use super::frame::FrameKind;
use super::page::{OpenPage, RecordsView, end_flag};

const EVENTS: &str = "piece of a subscription";
pub(super) const EVENTS_FIXED_BYTES: usize = 32;

/// What a piece says about the subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventsTail {
    /// The revision or LSN with which the subscription goes on: everything before was sent, or is
    /// none of its events.
    pub next: u64,
    /// The shard's committed LSN when the piece was made.
    pub committed: Lsn,
    /// When caught up: every event of the shard that comes later has a higher stamp. Else 0.
    pub settled: Hlc,
    /// Everything committed was sent when the piece was made.
    pub caught_up: bool,
}

/// A received piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Events<'a> {
    /// Where it leads.
    pub tail: EventsTail,
    /// The events; each is checked as they are walked.
    pub records: RecordsView<'a>,
}

impl<'a> Events<'a> {
    /// Begins a piece in `out`; [`OpenPage::finish_events`] closes it.
    pub fn begin(out: &mut Vec<u8>, correlation: u64) -> OpenPage {
        OpenPage::begin(out, FrameKind::Events, correlation, EVENTS_FIXED_BYTES)
    }

    /// Decodes a body's fixed part.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        let mut cursor = Cursor::new(body);
        let mut read = || {
            let places = (cursor.u64()?, Lsn(cursor.u64()?), Hlc(cursor.u64()?));
            let caught_up = cursor.u8()?;
            cursor.take(3)?;
            Ok((places, caught_up, cursor.u32()?))
        };
        let ((next, committed, settled), caught_up, count) = read().map_err(short(EVENTS))?;
        let tail = EventsTail { next, committed, settled, caught_up: end_flag(caught_up)? };
        Ok(Self { tail, records: RecordsView::new(count, cursor.rest()) })
    }
}

impl OpenPage {
    /// Closes a piece begun by [`Events::begin`].
    pub fn finish_events(self, out: &mut [u8], tail: &EventsTail) {
        let count = self.record_count();
        let fixed = self.fixed(out, EVENTS_FIXED_BYTES);
        fixed[..8].copy_from_slice(&tail.next.to_le_bytes());
        fixed[8..16].copy_from_slice(&tail.committed.0.to_le_bytes());
        fixed[16..24].copy_from_slice(&tail.settled.0.to_le_bytes());
        fixed[24] = u8::from(tail.caught_up);
        fixed[28..32].copy_from_slice(&count.to_le_bytes());
        self.close(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_that_of_the_table() {
        let mut out = vec![1];
        let tail =
            EventsTail { next: 5, committed: Lsn(9), settled: Hlc(0x1_0002), caught_up: true };
        Events::begin(&mut out, 4).finish_events(&mut out, &tail);
        let body = &out[1 + 24..];
        assert_eq!(body[..16], [5, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(body[16..], [2, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        let events = Events::decode(body).unwrap();
        assert_eq!((events.tail, events.records.announced()), (tail, 0));
    }
}
