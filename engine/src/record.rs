//! Records: what a block's body consists of. An *event record* stands for itself (name, type,
//! position, checksum), so that a reader can fetch one from the middle of a block. An *append
//! record* precedes the events of an append that carried an idempotency key or a fencing token.
//!
//! Byte tables: FORMAT.md. Every record starts at a multiple of 8; lengths exclude that padding.

use crate::bytes::{Cursor, TooShort, align_up};
use crate::ids::{Hlc, IdempotencyKey, LeaseEpoch, Lsn, Revision, StreamId};

/// Fixed part of both kinds of record, bytes.
pub const RECORD_FIXED_BYTES: usize = 64;
/// Fixed part of an append record, bytes.
pub const RECORD_APPEND_BYTES: usize = 72;
/// One stream's entry in an append record, bytes.
pub const RECORD_STREAM_BYTES: usize = 32;
/// Records start at multiples of this.
pub const RECORD_ALIGN_BYTES: usize = 8;

const KIND_AT: usize = 48;
const KIND_APPEND: u8 = 1;
const KIND_EVENT: u8 = 2;
const FLAG_KEY: u8 = 1;
const FLAG_FENCING: u8 = 2;

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The slice ends before the record does.
    #[error("record is cut short")]
    TooShort,
    /// The checksum does not fit the bytes.
    #[error("record checksum {found:#010x} instead of {stored:#010x}")]
    Checksum {
        /// As stored.
        stored: u32,
        /// As computed.
        found: u32,
    },
    /// Lengths, kinds or texts that no writer makes.
    #[error("record field {0} has an impossible value")]
    Malformed(&'static str),
}

impl From<TooShort> for RecordError {
    fn from(_: TooShort) -> Self {
        Self::TooShort
    }
}

/// An event in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRecord<'a> {
    /// Position in the shard's log.
    pub lsn: Lsn,
    /// Position in the stream.
    pub revision: Revision,
    /// Stamp of the block; its wall part is the event's server timestamp.
    pub hlc: Hlc,
    /// Identity chosen by the client.
    pub id: u128,
    /// Stream name.
    pub stream: &'a str,
    /// Event type.
    pub kind: &'a str,
    /// Metadata.
    pub metadata: &'a [u8],
    /// Payload.
    pub data: &'a [u8],
}

/// What one stream got from an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRange {
    /// The stream.
    pub stream: StreamId,
    /// Revision of its first event in this append.
    pub first: Revision,
    /// Number of its events in this append, at least 1.
    pub event_count: u32,
}

/// The record before the events of an append with a key or a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendRecord<'a> {
    /// LSN of the append's first event.
    pub first_lsn: Lsn,
    /// The client's key.
    pub key: Option<IdempotencyKey>,
    /// See `AppendView::fingerprint`: tells a retry from a reuse of the key.
    pub fingerprint: u64,
    /// The client's fencing token; applies to every stream of the append.
    pub fencing_token: Option<u64>,
    /// Number of events that follow and belong to this append.
    pub event_count: u32,
    /// Stamp of the block.
    pub hlc: Hlc,
    /// Reign of the block.
    pub epoch: LeaseEpoch,
    streams: &'a [u8],
}

impl AppendRecord<'_> {
    /// What each stream got, in the request's order.
    pub fn streams(&self) -> impl Iterator<Item = StreamRange> + '_ {
        self.streams.chunks_exact(RECORD_STREAM_BYTES).map(|entry| {
            let mut cursor = Cursor::new(entry);
            let mut next = || -> Result<StreamRange, TooShort> {
                Ok(StreamRange {
                    stream: StreamId(cursor.u128()?),
                    first: Revision(cursor.u64()?),
                    event_count: cursor.u32()?,
                })
            };
            next().expect("an entry is 32 bytes long")
        })
    }
}

/// Either kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// An append with a key or token; its events follow.
    Append(AppendRecord<'a>),
    /// An event.
    Event(EventRecord<'a>),
}

impl<'a> Record<'a> {
    /// Length of the record at the start of `bytes`, without padding, as far as its first 8 bytes
    /// tell; `None` when there are fewer. For a reader who has to fetch the rest.
    #[must_use]
    pub fn length(bytes: &[u8]) -> Option<usize> {
        let length = bytes.get(4..8)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*length) as usize)
    }

    /// Decodes the record at the start of `bytes` and tells how many bytes it takes with padding
    /// (which may lie behind the end of `bytes`).
    pub fn decode(bytes: &'a [u8]) -> Result<(Self, usize), RecordError> {
        let length = Self::length(bytes).ok_or(RecordError::TooShort)?;
        if length < RECORD_FIXED_BYTES {
            return Err(RecordError::Malformed("length"));
        }
        let bytes = bytes.get(..length).ok_or(RecordError::TooShort)?;
        let mut cursor = Cursor::new(bytes);
        let stored = cursor.u32()?;
        let found = crc32c::crc32c(&bytes[4..]);
        if stored != found {
            return Err(RecordError::Checksum { stored, found });
        }
        let padded = align_up(length as u64, RECORD_ALIGN_BYTES as u64)
            .ok_or(RecordError::Malformed("length"))? as usize;
        let _length = cursor.u32()?;
        let record = match bytes[KIND_AT] {
            KIND_APPEND => Record::Append(decode_append(cursor)?),
            KIND_EVENT => Record::Event(decode_event(cursor)?),
            _ => return Err(RecordError::Malformed("kind")),
        };
        Ok((record, padded))
    }
}

fn decode_event(mut cursor: Cursor<'_>) -> Result<EventRecord<'_>, RecordError> {
    let lsn = Lsn(cursor.u64()?);
    let revision = Revision(cursor.u64()?);
    let hlc = Hlc(cursor.u64()?);
    let id = cursor.u128()?;
    let _kind = cursor.u8()?;
    let name_length = usize::from(cursor.u8()?);
    let type_length = usize::from(cursor.u8()?);
    let _flags = cursor.u8()?;
    let metadata_length = cursor.u32()? as usize;
    let data_length = cursor.u32()? as usize;
    let _reserved = cursor.u32()?;
    let name = cursor.take(name_length)?;
    let kind = cursor.take(type_length)?;
    let metadata = cursor.take(metadata_length)?;
    let data = cursor.take(data_length)?;
    if !cursor.rest().is_empty() {
        return Err(RecordError::Malformed("length"));
    }
    let stream = std::str::from_utf8(name).map_err(|_| RecordError::Malformed("stream name"))?;
    let kind = std::str::from_utf8(kind).map_err(|_| RecordError::Malformed("event type"))?;
    Ok(EventRecord { lsn, revision, hlc, id, stream, kind, metadata, data })
}

fn decode_append(mut cursor: Cursor<'_>) -> Result<AppendRecord<'_>, RecordError> {
    let first_lsn = Lsn(cursor.u64()?);
    let key = cursor.u128()?;
    let fingerprint = cursor.u64()?;
    let fencing_token = cursor.u64()?;
    let _kind = cursor.u8()?;
    let flags = cursor.u8()?;
    let stream_count = usize::from(cursor.u16()?);
    let event_count = cursor.u32()?;
    let hlc = Hlc(cursor.u64()?);
    let epoch = LeaseEpoch(cursor.u64()?);
    let streams = cursor.rest();
    if streams.len() != stream_count * RECORD_STREAM_BYTES {
        return Err(RecordError::Malformed("stream count"));
    }
    Ok(AppendRecord {
        first_lsn,
        key: (flags & FLAG_KEY != 0).then_some(IdempotencyKey(key)),
        fingerprint,
        fencing_token: (flags & FLAG_FENCING != 0).then_some(fencing_token),
        event_count,
        hlc,
        epoch,
        streams,
    })
}

/// What stands at the front of an event record, for whoever looks for streams in a block that was
/// checked as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance<'a> {
    /// Position in the shard's log.
    pub lsn: Lsn,
    /// Stream name.
    pub stream: &'a [u8],
}

/// Looks at the record at the start of `bytes` without checking it: what it is about, if it is an
/// event, and how many bytes it takes with padding. `None` where no record can be.
#[must_use]
pub fn glance(bytes: &[u8]) -> Option<(Option<Glance<'_>>, usize)> {
    let fixed = bytes.first_chunk::<RECORD_FIXED_BYTES>()?;
    let length = u32::from_le_bytes(*fixed[4..].first_chunk()?) as usize;
    let padded = length.checked_next_multiple_of(RECORD_ALIGN_BYTES)?;
    if length < RECORD_FIXED_BYTES {
        return None;
    }
    if fixed[KIND_AT] != KIND_EVENT {
        return Some((None, padded));
    }
    let lsn = Lsn(u64::from_le_bytes(*fixed[8..].first_chunk()?));
    let name = RECORD_FIXED_BYTES..RECORD_FIXED_BYTES + usize::from(fixed[KIND_AT + 1]);
    Some((Some(Glance { lsn, stream: bytes.get(name)? }), padded))
}

/// Length of an event record, without padding: name and body (type, metadata, data), bytes.
#[must_use]
pub const fn event_record_bytes(name_length: usize, body_length: usize) -> usize {
    RECORD_FIXED_BYTES + name_length + body_length
}

/// Length of an append record about `stream_count` streams; a multiple of 8.
#[must_use]
pub const fn append_record_bytes(stream_count: usize) -> usize {
    RECORD_APPEND_BYTES + stream_count * RECORD_STREAM_BYTES
}

/// What an event record is made of; `body` is type, metadata and data in one piece.
#[derive(Clone, Copy, Debug)]
pub struct EventParts<'a> {
    /// Position in the shard's log.
    pub lsn: Lsn,
    /// Position in the stream.
    pub revision: Revision,
    /// Stamp of the block.
    pub hlc: Hlc,
    /// Identity chosen by the client.
    pub id: u128,
    /// Stream name, 1..=255 bytes of UTF-8.
    pub stream: &'a [u8],
    /// Length of the type at the start of `body`, 1..=255.
    pub type_length: u8,
    /// Length of the metadata behind the type.
    pub metadata_length: u32,
    /// Type, metadata, data.
    pub body: &'a [u8],
}

/// Appends an event record, padded, to `out`, which must end at a multiple of 8.
pub fn encode_event(out: &mut Vec<u8>, parts: &EventParts<'_>) {
    let start = out.len();
    debug_assert!(start.is_multiple_of(RECORD_ALIGN_BYTES));
    let name_length = u8::try_from(parts.stream.len()).expect("admission checked the name");
    let length = event_record_bytes(parts.stream.len(), parts.body.len());
    let before_data = usize::from(parts.type_length) + parts.metadata_length as usize;
    let data_length = parts.body.len() - before_data;
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(length as u32).to_le_bytes());
    out.extend_from_slice(&parts.lsn.0.to_le_bytes());
    out.extend_from_slice(&parts.revision.0.to_le_bytes());
    out.extend_from_slice(&parts.hlc.0.to_le_bytes());
    out.extend_from_slice(&parts.id.to_le_bytes());
    out.extend_from_slice(&[KIND_EVENT, name_length, parts.type_length, 0]);
    out.extend_from_slice(&parts.metadata_length.to_le_bytes());
    out.extend_from_slice(&(data_length as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(parts.stream);
    out.extend_from_slice(parts.body);
    finish(out, start);
}

/// What an append record is made of.
#[derive(Clone, Copy, Debug)]
pub struct AppendParts<'a> {
    /// LSN of the append's first event.
    pub first_lsn: Lsn,
    /// The client's key.
    pub key: Option<IdempotencyKey>,
    /// See [`AppendRecord::fingerprint`].
    pub fingerprint: u64,
    /// The client's fencing token.
    pub fencing_token: Option<u64>,
    /// Number of events that follow.
    pub event_count: u32,
    /// Stamp of the block.
    pub hlc: Hlc,
    /// Reign of the block.
    pub epoch: LeaseEpoch,
    /// What each stream got.
    pub streams: &'a [StreamRange],
}

/// Appends an append record, padded, to `out`, which must end at a multiple of 8.
pub fn encode_append(out: &mut Vec<u8>, parts: &AppendParts<'_>) {
    let start = out.len();
    debug_assert!(start.is_multiple_of(RECORD_ALIGN_BYTES));
    let length = append_record_bytes(parts.streams.len());
    let flags = if parts.key.is_some() { FLAG_KEY } else { 0 }
        | if parts.fencing_token.is_some() { FLAG_FENCING } else { 0 };
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(length as u32).to_le_bytes());
    out.extend_from_slice(&parts.first_lsn.0.to_le_bytes());
    out.extend_from_slice(&parts.key.map_or(0, |key| key.0).to_le_bytes());
    out.extend_from_slice(&parts.fingerprint.to_le_bytes());
    out.extend_from_slice(&parts.fencing_token.unwrap_or(0).to_le_bytes());
    out.extend_from_slice(&[KIND_APPEND, flags]);
    out.extend_from_slice(&(parts.streams.len() as u16).to_le_bytes());
    out.extend_from_slice(&parts.event_count.to_le_bytes());
    out.extend_from_slice(&parts.hlc.0.to_le_bytes());
    out.extend_from_slice(&parts.epoch.0.to_le_bytes());
    for range in parts.streams {
        out.extend_from_slice(&range.stream.0.to_le_bytes());
        out.extend_from_slice(&range.first.0.to_le_bytes());
        out.extend_from_slice(&range.event_count.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
    }
    finish(out, start);
}

fn finish(out: &mut Vec<u8>, start: usize) {
    let checksum = crc32c::crc32c(&out[start + 4..]);
    out[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
    let padded = out.len().next_multiple_of(RECORD_ALIGN_BYTES);
    out.resize(padded, 0);
}
