//! Pages of event records. The records lie in a page exactly as in the log, each padded to 8 bytes.
//!
//! A server writes a page in place: [`StreamPage::begin`] or [`LogPage::begin`], then records by
//! [`OpenPage::push`] (or by appending bytes to the buffer and [`OpenPage::pushed`]), then the
//! tail, which is only known at the end.

use duolog_engine::bytes::Cursor;
use duolog_engine::ids::{Lsn, Revision};
use duolog_engine::record::{EventRecord, RECORD_ALIGN_BYTES, Record};

use super::body::{BodyError, ends, short};
use super::frame::{FrameKind, OpenFrame};

const STREAM: &str = "stream page";
const LOG: &str = "log page";
const STREAM_FIXED_BYTES: usize = 32;
const LOG_FIXED_BYTES: usize = 24;

/// What a stream page says about the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamTail {
    /// Next revision to ask for in this direction; means nothing at the end.
    pub next: Revision,
    /// Number of the stream's committed events when the page was made; 0 = no such stream.
    pub stream_next: Revision,
    /// The shard's committed LSN when the page was made.
    pub committed: Lsn,
    /// Nothing further in this direction now.
    pub end: bool,
}

/// What a log page says about the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogTail {
    /// Next LSN to ask for.
    pub next: Lsn,
    /// The shard's committed LSN when the page was made.
    pub committed: Lsn,
    /// Nothing further now.
    pub end: bool,
}

/// A page being written at the end of a buffer.
#[derive(Debug)]
#[must_use = "a page without finish_…() has no length and no checksum"]
pub struct OpenPage {
    frame: OpenFrame,
    fixed_bytes: usize,
    record_count: u32,
}

impl OpenPage {
    pub(super) fn begin(
        out: &mut Vec<u8>,
        kind: FrameKind,
        correlation: u64,
        fixed_bytes: usize,
    ) -> Self {
        let frame = OpenFrame::begin(out, kind, correlation);
        out.resize(out.len() + fixed_bytes, 0);
        Self { frame, fixed_bytes, record_count: 0 }
    }

    /// Adds one record; padding is added when `record` comes without.
    pub fn push(&mut self, out: &mut Vec<u8>, record: &[u8]) {
        out.extend_from_slice(record);
        self.pad(out);
        self.record_count += 1;
    }

    /// Says that the caller has appended `record_count` padded records to the buffer itself.
    pub fn pushed(&mut self, out: &mut Vec<u8>, record_count: u32) {
        self.pad(out);
        self.record_count += record_count;
    }

    // Padding counts from the page's start: other frames before it have any length.
    fn pad(&self, out: &mut Vec<u8>) {
        let record_bytes = self.record_bytes(out);
        let padding = record_bytes.next_multiple_of(RECORD_ALIGN_BYTES) - record_bytes;
        out.resize(out.len() + padding, 0);
    }

    /// Bytes of records so far.
    #[must_use]
    pub const fn record_bytes(&self, out: &[u8]) -> usize {
        out.len() - self.frame.body_start() - self.fixed_bytes
    }

    /// Records so far.
    #[must_use]
    pub const fn record_count(&self) -> u32 {
        self.record_count
    }

    /// Takes the page back, for an error in its place.
    pub fn abandon(self, out: &mut Vec<u8>) {
        self.frame.abandon(out);
    }

    /// The fixed part; `fixed_bytes` tells which kind of page the caller takes it for.
    pub(super) fn fixed<'a>(&self, out: &'a mut [u8], fixed_bytes: usize) -> &'a mut [u8] {
        assert_eq!(self.fixed_bytes, fixed_bytes, "a page is closed as what it was begun");
        let start = self.frame.body_start();
        &mut out[start..start + self.fixed_bytes]
    }

    pub(super) fn close(self, out: &mut [u8]) {
        self.frame.finish(out);
    }

    /// Closes a page begun by [`StreamPage::begin`].
    pub fn finish_stream(self, out: &mut [u8], tail: &StreamTail) {
        let fixed = self.fixed(out, STREAM_FIXED_BYTES);
        fixed[..8].copy_from_slice(&tail.next.0.to_le_bytes());
        fixed[8..16].copy_from_slice(&tail.stream_next.0.to_le_bytes());
        fixed[16..24].copy_from_slice(&tail.committed.0.to_le_bytes());
        fixed[24] = u8::from(tail.end);
        fixed[28..].copy_from_slice(&self.record_count.to_le_bytes());
        self.frame.finish(out);
    }

    /// Closes a page begun by [`LogPage::begin`].
    pub fn finish_log(self, out: &mut [u8], tail: &LogTail) {
        let fixed = self.fixed(out, LOG_FIXED_BYTES);
        fixed[..8].copy_from_slice(&tail.next.0.to_le_bytes());
        fixed[8..16].copy_from_slice(&tail.committed.0.to_le_bytes());
        fixed[16] = u8::from(tail.end);
        fixed[20..].copy_from_slice(&self.record_count.to_le_bytes());
        self.frame.finish(out);
    }
}

/// The records of a received page. Walked twice at no cost; each step checks one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordsView<'a> {
    rest: &'a [u8],
    announced: u32,
    found: u32,
}

impl<'a> RecordsView<'a> {
    pub(super) const fn new(announced: u32, bytes: &'a [u8]) -> Self {
        Self { rest: bytes, announced, found: 0 }
    }

    /// Number of records the page announces; untrusted, so never a reason to allocate.
    #[must_use]
    pub const fn announced(&self) -> u32 {
        self.announced
    }

    /// Bytes of records.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.rest
    }

    fn step(&mut self) -> Result<EventRecord<'a>, BodyError> {
        if self.found == self.announced {
            ends("last record", self.rest)?;
        }
        let (record, used) = Record::decode(self.rest)?;
        let Record::Event(event) = record else { return Err(BodyError::NotAnEvent) };
        self.rest = self.rest.get(used..).ok_or(BodyError::TooShort("last record"))?;
        self.found += 1;
        Ok(event)
    }
}

impl<'a> Iterator for RecordsView<'a> {
    type Item = Result<EventRecord<'a>, BodyError>;

    /// The next record; after an error there is none.
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            let (announced, found) = (self.announced, self.found);
            self.announced = found;
            return (announced != found)
                .then_some(Err(BodyError::RecordCount { announced, found }));
        }
        let event = self.step();
        if event.is_err() {
            (self.rest, self.announced) = (&[], self.found);
        }
        Some(event)
    }
}

pub(super) fn end_flag(value: u8) -> Result<bool, BodyError> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(BodyError::UnknownValue { field: "end of page", value: other.into() }),
    }
}

/// A received page of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPage<'a> {
    /// Where to go on, and what was known then.
    pub tail: StreamTail,
    /// The records in the order of reading.
    pub records: RecordsView<'a>,
}

impl<'a> StreamPage<'a> {
    /// Begins a page in `out`; [`OpenPage::finish_stream`] closes it.
    pub fn begin(out: &mut Vec<u8>, correlation: u64) -> OpenPage {
        OpenPage::begin(out, FrameKind::StreamPage, correlation, STREAM_FIXED_BYTES)
    }

    /// Decodes a body's fixed part; the records are checked as they are walked.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        let mut cursor = Cursor::new(body);
        let mut read = || {
            let positions = (Revision(cursor.u64()?), Revision(cursor.u64()?), Lsn(cursor.u64()?));
            let end = cursor.u8()?;
            cursor.take(3)?;
            Ok((positions, end, cursor.u32()?))
        };
        let ((next, stream_next, committed), end, count) = read().map_err(short(STREAM))?;
        let tail = StreamTail { next, stream_next, committed, end: end_flag(end)? };
        Ok(Self { tail, records: RecordsView::new(count, cursor.rest()) })
    }
}

/// A received page of a shard's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPage<'a> {
    /// Where to go on, and what was known then.
    pub tail: LogTail,
    /// The records in the order of the log.
    pub records: RecordsView<'a>,
}

impl<'a> LogPage<'a> {
    /// Begins a page in `out`; [`OpenPage::finish_log`] closes it.
    pub fn begin(out: &mut Vec<u8>, correlation: u64) -> OpenPage {
        OpenPage::begin(out, FrameKind::LogPage, correlation, LOG_FIXED_BYTES)
    }

    /// Decodes a body's fixed part; the records are checked as they are walked.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        let mut cursor = Cursor::new(body);
        let mut read = || {
            let positions = (Lsn(cursor.u64()?), Lsn(cursor.u64()?));
            let end = cursor.u8()?;
            cursor.take(3)?;
            Ok((positions, end, cursor.u32()?))
        };
        let ((next, committed), end, count) = read().map_err(short(LOG))?;
        let tail = LogTail { next, committed, end: end_flag(end)? };
        Ok(Self { tail, records: RecordsView::new(count, cursor.rest()) })
    }
}

#[cfg(test)]
mod tests {
    use duolog_engine::ids::Hlc;
    use duolog_engine::record::{EventParts, encode_event};

    use super::*;

    fn record(revision: u64, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let body = [b"t", data].concat();
        encode_event(
            &mut out,
            &EventParts {
                lsn: Lsn(revision + 1),
                revision: Revision(revision),
                hlc: Hlc(1 << 16),
                id: 9,
                stream: b"s",
                type_length: 1,
                metadata_length: 0,
                body: &body,
            },
        );
        out
    }

    fn tail() -> StreamTail {
        StreamTail { next: Revision(2), stream_next: Revision(5), committed: Lsn(8), end: false }
    }

    fn body(count: u32, records: &[u8]) -> Vec<u8> {
        let mut out = vec![1, 2, 3];
        let mut page = StreamPage::begin(&mut out, 4);
        out.extend_from_slice(records);
        page.pushed(&mut out, count);
        page.finish_stream(&mut out, &tail());
        out.split_off(3 + 24)
    }

    #[test]
    fn records_are_padded_whatever_lies_before_the_page() {
        for before in 0..9 {
            let mut out = vec![0xaa; before];
            let mut page = StreamPage::begin(&mut out, 4);
            let first = record(0, b"12345");
            page.push(&mut out, &first[..Record::length(&first).unwrap()]);
            page.push(&mut out, &record(1, b"1"));
            assert_eq!((page.record_count(), page.record_bytes(&out) % 8), (2, 0));
            page.finish_stream(&mut out, &tail());
            let view = StreamPage::decode(&out[before + 24..]).unwrap();
            assert_eq!(view.tail, tail());
            let events: Result<Vec<_>, _> = view.records.collect();
            let events = events.unwrap();
            assert_eq!(events.len(), 2);
            assert_eq!((events[0].data, events[1].revision), (&b"12345"[..], Revision(1)));
        }
    }

    #[test]
    fn a_page_with_wrong_counts_or_bytes_ends_in_one_error() {
        let records = [record(0, b"a"), record(1, b"b")].concat();
        let outcome = |count, bytes: &[u8]| {
            let body = body(count, bytes);
            let page = StreamPage::decode(&body).unwrap();
            let got: Vec<_> = page.records.take(9).collect();
            (got.len(), got.iter().filter_map(|item| item.err()).collect::<Vec<_>>())
        };
        assert_eq!(outcome(2, &records), (2, vec![]));
        let lacking = BodyError::RecordCount { announced: 3, found: 2 };
        assert_eq!(outcome(3, &records), (3, vec![lacking]));
        let surplus = BodyError::TrailingBytes { message: "last record", count: records.len() / 2 };
        assert_eq!(outcome(1, &records), (2, vec![surplus]));
        let (count, errors) = outcome(2, &records[..records.len() - 8]);
        assert_eq!((count, errors.len()), (2, 1));
        assert_eq!(outcome(0, &[]), (0, vec![]));
    }

    #[test]
    fn a_log_page_has_its_own_tail() {
        let mut out = Vec::new();
        let mut page = LogPage::begin(&mut out, 4);
        page.push(&mut out, &record(0, b"a"));
        let tail = LogTail { next: Lsn(2), committed: Lsn(7), end: true };
        page.finish_log(&mut out, &tail);
        let view = LogPage::decode(&out[24..]).unwrap();
        assert_eq!((view.tail, view.records.count()), (tail, 1));
        assert_eq!(out[24 + 16..48], [1, 0, 0, 0, 1, 0, 0, 0]);
    }
}
