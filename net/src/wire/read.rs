//! The two read requests.

use duolog_engine::bytes::Cursor;
use duolog_engine::ids::{Lsn, Revision, ShardId};

use super::body::{BodyError, ends, short, text};
use super::frame::{FrameKind, OpenFrame};
use crate::limits::{PAGE_BYTES_DEFAULT, PAGE_MAX_BYTES};

const STREAM: &str = "read of a stream";
const LOG: &str = "read of a log";

/// Which way a stream is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Direction {
    /// Towards higher revisions.
    #[default]
    Forwards = 0,
    /// Towards revision 0.
    Backwards = 1,
}

/// How fresh the answer must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Consistency {
    /// Everything acknowledged before the request is seen.
    #[default]
    Linearizable = 0,
    /// Whatever the node has committed.
    Any = 1,
    /// As linearizable, whatever the clocks do: the leader asks its follower, or the bucket.
    Confirmed = 2,
}

impl Consistency {
    const fn decode(code: u8) -> Result<Self, BodyError> {
        match code {
            0 => Ok(Self::Linearizable),
            1 => Ok(Self::Any),
            2 => Ok(Self::Confirmed),
            other => Err(BodyError::UnknownValue { field: "consistency", value: other as u64 }),
        }
    }
}

/// A request for a page of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadStream<'a> {
    /// Revision to start from, inclusive. [`ReadStream::END`]: backwards from the end.
    pub from: Revision,
    /// Events at most; 0 = as many as fit.
    pub events_max: u32,
    /// Bytes of records at most; see [`ReadStream::page_bytes`].
    pub bytes_max: u32,
    /// Which way.
    pub direction: Direction,
    /// How fresh.
    pub consistency: Consistency,
    /// Name, 1..=255 bytes.
    pub stream: &'a str,
    /// Only events of this type, 1..=255 bytes.
    pub kind: Option<&'a str>,
}

/// 0 stands for the default, more than the largest page for the largest page.
const fn page_bytes(bytes_max: u32) -> u32 {
    match bytes_max {
        0 => PAGE_BYTES_DEFAULT,
        bytes if bytes > PAGE_MAX_BYTES => PAGE_MAX_BYTES,
        bytes => bytes,
    }
}

impl<'a> ReadStream<'a> {
    /// "From the end", for reading backwards.
    pub const END: Revision = Revision(u64::MAX);

    /// All events of `stream` forwards from revision 0.
    #[must_use]
    pub const fn new(stream: &'a str) -> Self {
        Self {
            from: Revision(0),
            events_max: 0,
            bytes_max: 0,
            direction: Direction::Forwards,
            consistency: Consistency::Linearizable,
            stream,
            kind: None,
        }
    }

    /// Bytes of records that the page may have; one larger event still comes alone.
    #[must_use]
    pub const fn page_bytes(&self) -> u32 {
        page_bytes(self.bytes_max)
    }

    /// Appends the frame. Names and types over 255 bytes are refused; nothing is written then.
    pub fn encode(&self, out: &mut Vec<u8>, correlation: u64) -> Result<(), BodyError> {
        let name_length = match u8::try_from(self.stream.len()) {
            Ok(length) if length > 0 => length,
            _ => return Err(BodyError::NameLength(self.stream.len())),
        };
        let type_length = match self.kind.map(|kind| u8::try_from(kind.len())) {
            None => 0,
            Some(Ok(length)) if length > 0 => length,
            Some(_) => return Err(BodyError::TypeLength(self.kind.map_or(0, str::len))),
        };
        let frame = OpenFrame::begin(out, FrameKind::ReadStream, correlation);
        out.extend_from_slice(&self.from.0.to_le_bytes());
        out.extend_from_slice(&self.events_max.to_le_bytes());
        out.extend_from_slice(&self.bytes_max.to_le_bytes());
        let (direction, consistency) = (self.direction as u8, self.consistency as u8);
        out.extend_from_slice(&[direction, name_length, type_length, consistency]);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(self.stream.as_bytes());
        out.extend_from_slice(self.kind.unwrap_or_default().as_bytes());
        frame.finish(out);
        Ok(())
    }

    /// Decodes a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        let mut cursor = Cursor::new(body);
        let mut read = || {
            let page = (Revision(cursor.u64()?), cursor.u32()?, cursor.u32()?);
            let codes = (cursor.u8()?, usize::from(cursor.u8()?), usize::from(cursor.u8()?));
            Ok((page, codes, cursor.u8()?, cursor.u32()?))
        };
        let ((from, events_max, bytes_max), (direction, name, kind), consistency, reserved) =
            read().map_err(short(STREAM))?;
        let unknown = |field, value: u8| BodyError::UnknownValue { field, value: value.into() };
        let direction = match direction {
            0 => Direction::Forwards,
            1 => Direction::Backwards,
            other => return Err(unknown("direction", other)),
        };
        let consistency = Consistency::decode(consistency)?;
        if reserved != 0 {
            return Err(BodyError::Reserved(STREAM));
        }
        if name == 0 {
            return Err(BodyError::NameLength(0));
        }
        let stream = text("stream name", cursor.take(name).map_err(short(STREAM))?)?;
        let kind_text = text("event type", cursor.take(kind).map_err(short(STREAM))?)?;
        ends(STREAM, cursor.rest())?;
        let kind = (kind > 0).then_some(kind_text);
        Ok(Self { from, events_max, bytes_max, direction, consistency, stream, kind })
    }
}

/// A request for a page of a shard's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLog {
    /// LSN to start from, inclusive; 1 = the beginning.
    pub from: Lsn,
    /// The shard.
    pub shard: ShardId,
    /// Events at most; 0 = as many as fit.
    pub events_max: u32,
    /// Bytes of records at most; see [`ReadLog::page_bytes`].
    pub bytes_max: u32,
    /// How fresh.
    pub consistency: Consistency,
}

impl ReadLog {
    /// Bytes of records that the page may have; one larger event still comes alone.
    #[must_use]
    pub const fn page_bytes(&self) -> u32 {
        page_bytes(self.bytes_max)
    }

    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>, correlation: u64) {
        let frame = OpenFrame::begin(out, FrameKind::ReadLog, correlation);
        out.extend_from_slice(&self.from.0.to_le_bytes());
        out.extend_from_slice(&self.shard.0.to_le_bytes());
        out.extend_from_slice(&self.events_max.to_le_bytes());
        out.extend_from_slice(&self.bytes_max.to_le_bytes());
        out.extend_from_slice(&[self.consistency as u8, 0, 0, 0]);
        frame.finish(out);
    }

    /// Decodes a body.
    pub fn decode(body: &[u8]) -> Result<Self, BodyError> {
        let mut cursor = Cursor::new(body);
        let mut read = || {
            let request = Self {
                from: Lsn(cursor.u64()?),
                shard: ShardId(cursor.u32()?),
                events_max: cursor.u32()?,
                bytes_max: cursor.u32()?,
                consistency: Consistency::Linearizable,
            };
            Ok((request, cursor.u8()?, cursor.take(3)?))
        };
        let (request, consistency, reserved) = read().map_err(short(LOG))?;
        if reserved != [0; 3] {
            return Err(BodyError::Reserved(LOG));
        }
        ends(LOG, cursor.rest())?;
        Ok(Self { consistency: Consistency::decode(consistency)?, ..request })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(request: &ReadStream<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        request.encode(&mut out, 0).unwrap();
        out.split_off(24)
    }

    #[test]
    fn layout_is_that_of_the_table() {
        let request = ReadStream {
            from: ReadStream::END,
            events_max: 7,
            bytes_max: 9,
            direction: Direction::Backwards,
            consistency: Consistency::Any,
            stream: "ab",
            kind: Some("xyz"),
        };
        let bytes = body(&request);
        assert_eq!(bytes[..8], [0xff; 8]);
        assert_eq!(bytes[8..24], [7, 0, 0, 0, 9, 0, 0, 0, 1, 2, 3, 1, 0, 0, 0, 0]);
        assert_eq!(&bytes[24..], b"abxyz");
        assert_eq!(ReadStream::decode(&bytes), Ok(request));
    }

    #[test]
    fn wrong_fields_are_named() {
        let good = body(&ReadStream::new("a"));
        let with = |index: usize, value: u8| {
            let mut bad = good.clone();
            bad[index] = value;
            ReadStream::decode(&bad).unwrap_err().to_string()
        };
        assert_eq!(with(16, 2), "direction has the unknown value 2");
        assert_eq!(with(19, 9), "consistency has the unknown value 9");
        assert_eq!(with(20, 1), "reserved bytes of the read of a stream are not 0");
        assert_eq!(with(17, 0), "stream name of 0 bytes: names are 1 to 255 bytes");
        assert_eq!(with(17, 2), "the read of a stream ends too early");
        assert_eq!(with(24, 0xff), "stream name is not UTF-8");
        let mut long = good.clone();
        long.push(0);
        let error = ReadStream::decode(&long).unwrap_err().to_string();
        assert_eq!(error, "1 bytes too many behind the read of a stream");
    }

    #[test]
    fn names_that_do_not_fit_are_not_encoded() {
        let (long, mut out) = ("x".repeat(256), Vec::new());
        let refused = ReadStream::new(&long).encode(&mut out, 0);
        assert_eq!(refused, Err(BodyError::NameLength(256)));
        let refused = ReadStream { kind: Some(""), ..ReadStream::new("a") }.encode(&mut out, 0);
        assert_eq!(refused, Err(BodyError::TypeLength(0)));
        assert!(out.is_empty());
    }

    #[test]
    fn page_size_has_a_default_and_an_upper_bound() {
        let with = |bytes_max| ReadStream { bytes_max, ..ReadStream::new("a") }.page_bytes();
        assert_eq!((with(0), with(1), with(u32::MAX)), (1 << 20, 1, 4 << 20));
    }
}
