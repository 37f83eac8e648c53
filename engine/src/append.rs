//! The append request in its byte form (WIRE.md, "Append"): built by clients, viewed without
//! copying by sessions and by the shard machine.
//!
//! [`AppendView::parse`] checks everything that can be checked without knowing any stream; what it
//! returns can be walked without further errors.

use crate::bytes::{Cursor, TooShort};
use crate::ids::{IdempotencyKey, Revision};
use crate::limits::{
    APPEND_EVENTS_MAX, APPEND_OVERHEAD_MAX_BYTES, APPEND_STREAMS_MAX, EVENT_TYPE_MAX_BYTES,
    STREAM_NAME_MAX_BYTES,
};

const FLAG_KEY: u16 = 1;
const FLAG_FENCING: u16 = 2;
const FIXED_BYTES: usize = 32;

/// What a stream must look like for an append to be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Anything.
    Any,
    /// The stream has no event yet.
    NoStream,
    /// The stream has at least one event.
    StreamExists,
    /// The stream's last event has this revision.
    Exact(Revision),
}

impl Expect {
    const fn code(self) -> (u8, u64) {
        match self {
            Self::Any => (0, 0),
            Self::NoStream => (1, 0),
            Self::StreamExists => (2, 0),
            Self::Exact(revision) => (3, revision.0),
        }
    }

    fn from_code(code: u8, revision: u64) -> Option<Self> {
        match code {
            0 => Some(Self::Any),
            1 => Some(Self::NoStream),
            2 => Some(Self::StreamExists),
            3 => Some(Self::Exact(Revision(revision))),
            _ => None,
        }
    }

    /// Whether a stream whose next event would get revision `next` satisfies this.
    #[must_use]
    pub fn holds(self, next: Revision) -> bool {
        match self {
            Self::Any => true,
            Self::NoStream => next.0 == 0,
            Self::StreamExists => next.0 > 0,
            Self::Exact(last) => last.0.checked_add(1) == Some(next.0),
        }
    }
}

/// One event as a client gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventView<'a> {
    /// Identity chosen by the client; not used for deduplication.
    pub id: u128,
    /// Type, 1..=255 bytes of UTF-8 (checked when the request was parsed, not again at each walk).
    pub kind: &'a [u8],
    /// Metadata.
    pub metadata: &'a [u8],
    /// Payload.
    pub data: &'a [u8],
    /// Type, metadata and data as they lie together in the request and in the log.
    pub body: &'a [u8],
}

/// One stream of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamView<'a> {
    /// Name, 1..=255 bytes of UTF-8 (checked when the request was parsed, not again at each walk).
    pub name: &'a [u8],
    /// Condition.
    pub expect: Expect,
    /// Events for this stream; 0 makes it a check-only stream.
    pub event_count: u32,
}

/// Why a request was refused before any stream was looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The bytes end before the request does.
    #[error("the request ends too early")]
    TooShort,
    /// Bytes are left over behind the last event.
    #[error("{0} bytes too many behind the last event")]
    TrailingBytes(usize),
    /// A flag this version does not know.
    #[error("unknown append flags {0:#06x}")]
    UnknownFlags(u16),
    /// Bytes that this version leaves at 0.
    #[error("a reserved byte is not 0: it belongs to a later version of the protocol")]
    Reserved,
    /// A condition this version does not know.
    #[error("unknown expectation code {0}")]
    UnknownExpectation(u8),
    /// Stream names are 1..=255 bytes.
    #[error("stream name of {0} bytes: names are 1 to 255 bytes")]
    NameLength(usize),
    /// Stream names and event types are UTF-8.
    #[error("{0} is not UTF-8")]
    NotUtf8(&'static str),
    /// Event types are 1..=255 bytes.
    #[error("event type of {0} bytes: types are 1 to 255 bytes")]
    TypeLength(usize),
    /// Nothing to append.
    #[error("the append has no events")]
    NoEvents,
    /// Too many events.
    #[error("{0} events in one append: the limit is 65536")]
    TooManyEvents(u32),
    /// Too many streams, or none.
    #[error("{0} streams in one append: the limit is 1 to 256")]
    StreamCount(u16),
    /// The event counts of the streams do not add up to the request's.
    #[error("streams announce {streams} events, the request {request}")]
    CountMismatch {
        /// Sum over streams.
        streams: u64,
        /// The request's own count.
        request: u32,
    },
    /// One stream named twice.
    #[error("stream {0:?} is named twice")]
    DuplicateStream(String),
    /// An event over `limits.event_max_bytes`.
    #[error("event of {size} bytes is over the limit of {limit} (limits.event_max_bytes)")]
    EventTooLarge {
        /// Type + metadata + data, bytes.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// All events together over `limits.event_max_bytes`.
    #[error("append of {size} bytes is over the limit of {limit} (limits.event_max_bytes + 1 MiB)")]
    AppendTooLarge {
        /// Whole request, bytes.
        size: u64,
        /// The limit.
        limit: u64,
    },
}

impl From<TooShort> for AppendError {
    fn from(_: TooShort) -> Self {
        Self::TooShort
    }
}

/// A request that has been checked; walks over the caller's bytes.
#[derive(Clone, Copy, Debug)]
pub struct AppendView<'a> {
    bytes: &'a [u8],
    stream_count: u16,
    event_count: u32,
    key: Option<IdempotencyKey>,
    fencing_token: Option<u64>,
    events_offset: usize,
}

impl<'a> AppendView<'a> {
    /// Checks `bytes` completely. `event_max_bytes` bounds one event; a request may be
    /// [`APPEND_OVERHEAD_MAX_BYTES`] larger.
    pub fn parse(bytes: &'a [u8], event_max_bytes: usize) -> Result<Self, AppendError> {
        let limit = event_max_bytes + APPEND_OVERHEAD_MAX_BYTES;
        if bytes.len() > limit {
            let size = bytes.len() as u64;
            return Err(AppendError::AppendTooLarge { size, limit: limit as u64 });
        }
        let mut cursor = Cursor::new(bytes);
        let flags = cursor.u16()?;
        if flags & !(FLAG_KEY | FLAG_FENCING) != 0 {
            return Err(AppendError::UnknownFlags(flags));
        }
        let stream_count = cursor.u16()?;
        let event_count = cursor.u32()?;
        let key = cursor.u128()?;
        let fencing_token = cursor.u64()?;
        if stream_count == 0 || usize::from(stream_count) > APPEND_STREAMS_MAX {
            return Err(AppendError::StreamCount(stream_count));
        }
        if event_count == 0 {
            return Err(AppendError::NoEvents);
        }
        if event_count as usize > APPEND_EVENTS_MAX {
            return Err(AppendError::TooManyEvents(event_count));
        }
        let mut announced = 0_u64;
        for _ in 0..stream_count {
            let stream = parse_stream(&mut cursor)?;
            check_utf8(stream.name, "stream name")?;
            announced += u64::from(stream.event_count);
        }
        if announced != u64::from(event_count) {
            return Err(AppendError::CountMismatch { streams: announced, request: event_count });
        }
        let events_offset = bytes.len() - cursor.rest().len();
        for _ in 0..event_count {
            let event = parse_event(&mut cursor)?;
            check_utf8(event.kind, "event type")?;
            if event.body.len() > event_max_bytes {
                let (size, limit) = (event.body.len() as u64, event_max_bytes as u64);
                return Err(AppendError::EventTooLarge { size, limit });
            }
        }
        if !cursor.rest().is_empty() {
            return Err(AppendError::TrailingBytes(cursor.rest().len()));
        }
        let view = Self {
            bytes,
            stream_count,
            event_count,
            key: (flags & FLAG_KEY != 0).then_some(IdempotencyKey(key)),
            fencing_token: (flags & FLAG_FENCING != 0).then_some(fencing_token),
            events_offset,
        };
        view.refuse_twins()?;
        Ok(view)
    }

    fn refuse_twins(&self) -> Result<(), AppendError> {
        // At most 256 streams, nearly always one: comparing all pairs needs no memory.
        for (index, stream) in self.streams().enumerate().skip(1) {
            if self.streams().take(index).any(|earlier| earlier.name == stream.name) {
                let name = String::from_utf8_lossy(stream.name).into_owned();
                return Err(AppendError::DuplicateStream(name));
            }
        }
        Ok(())
    }

    /// The idempotency key, if the client gave one.
    #[must_use]
    pub const fn key(&self) -> Option<IdempotencyKey> {
        self.key
    }

    /// The fencing token, if the client gave one.
    #[must_use]
    pub const fn fencing_token(&self) -> Option<u64> {
        self.fencing_token
    }

    /// Number of streams, 1..=256.
    #[must_use]
    pub const fn stream_count(&self) -> u16 {
        self.stream_count
    }

    /// Number of events, 1..=65536.
    #[must_use]
    pub const fn event_count(&self) -> u32 {
        self.event_count
    }

    /// The request's bytes.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Tells a retry from another request with the same key: 64 bits of BLAKE3 over the streams'
    /// names and the events' types, metadata and data. Event ids, expectations and the fencing
    /// token are left out: a client that builds its request anew for a retry may choose them anew.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = blake3::Hasher::new();
        for stream in self.streams() {
            hasher.update(&[stream.name.len() as u8]);
            hasher.update(stream.name);
            hasher.update(&stream.event_count.to_le_bytes());
        }
        for event in self.events() {
            hasher.update(&(event.kind.len() as u64).to_le_bytes());
            hasher.update(&(event.metadata.len() as u64).to_le_bytes());
            hasher.update(&(event.data.len() as u64).to_le_bytes());
            hasher.update(event.body);
        }
        let hash = hasher.finalize();
        let (first, _) = hash.as_bytes().split_first_chunk().expect("a hash has 32 bytes");
        u64::from_le_bytes(*first)
    }

    /// The streams in the client's order.
    pub fn streams(&self) -> impl Iterator<Item = StreamView<'a>> + use<'a> {
        let mut cursor = Cursor::new(&self.bytes[FIXED_BYTES..]);
        (0..self.stream_count)
            .map(move |_| parse_stream(&mut cursor).expect("parse() walked these streams"))
    }

    /// The events, stream by stream.
    pub fn events(&self) -> impl Iterator<Item = EventView<'a>> + use<'a> {
        let mut cursor = Cursor::new(&self.bytes[self.events_offset..]);
        (0..self.event_count)
            .map(move |_| parse_event(&mut cursor).expect("parse() walked these events"))
    }
}

fn check_utf8(text: &[u8], what: &'static str) -> Result<(), AppendError> {
    // Nearly every name and type is ASCII, which is cheaper to see.
    if text.is_ascii() || std::str::from_utf8(text).is_ok() {
        return Ok(());
    }
    Err(AppendError::NotUtf8(what))
}

fn parse_stream<'a>(cursor: &mut Cursor<'a>) -> Result<StreamView<'a>, AppendError> {
    let code = cursor.u8()?;
    let name_length = usize::from(cursor.u8()?);
    let reserved = cursor.u16()?;
    let event_count = cursor.u32()?;
    let revision = cursor.u64()?;
    if reserved != 0 {
        return Err(AppendError::Reserved);
    }
    if name_length == 0 {
        return Err(AppendError::NameLength(name_length));
    }
    let name = cursor.take(name_length)?;
    let expect = Expect::from_code(code, revision).ok_or(AppendError::UnknownExpectation(code))?;
    Ok(StreamView { name, expect, event_count })
}

fn parse_event<'a>(cursor: &mut Cursor<'a>) -> Result<EventView<'a>, AppendError> {
    let id = cursor.u128()?;
    let type_length = usize::from(cursor.u8()?);
    let reserved = cursor.take(3)?;
    let metadata_length = cursor.u32()? as usize;
    let data_length = cursor.u32()? as usize;
    if reserved != [0; 3] {
        return Err(AppendError::Reserved);
    }
    if type_length == 0 {
        return Err(AppendError::TypeLength(type_length));
    }
    let length = type_length
        .checked_add(metadata_length)
        .and_then(|sum| sum.checked_add(data_length))
        .ok_or(AppendError::TooShort)?;
    let body = cursor.take(length)?;
    let (kind, rest) = body.split_at(type_length);
    let (metadata, data) = rest.split_at(metadata_length);
    Ok(EventView { id, kind, metadata, data, body })
}

/// Builds a request. Streams first, in order; each `stream` call is followed by its events.
#[derive(Clone, Debug, Default)]
pub struct AppendBuilder {
    key: Option<IdempotencyKey>,
    fencing_token: Option<u64>,
    streams: Vec<u8>,
    stream_count: u16,
    count_at: usize,
    events: Vec<u8>,
    event_count: u32,
}

impl AppendBuilder {
    /// An empty request.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the idempotency key.
    pub fn key(&mut self, key: IdempotencyKey) -> &mut Self {
        self.key = Some(key);
        self
    }

    /// Sets the fencing token.
    pub fn fencing_token(&mut self, token: u64) -> &mut Self {
        self.fencing_token = Some(token);
        self
    }

    /// Starts a stream; the events that follow belong to it. Without events it is check-only.
    pub fn stream(&mut self, name: &str, expect: Expect) -> Result<&mut Self, AppendError> {
        let length = u8::try_from(name.len()).ok().filter(|length| *length > 0);
        let length = length.ok_or(AppendError::NameLength(name.len()))?;
        debug_assert!(name.len() <= STREAM_NAME_MAX_BYTES);
        let (code, revision) = expect.code();
        self.streams.extend_from_slice(&[code, length, 0, 0]);
        self.count_at = self.streams.len();
        self.streams.extend_from_slice(&0_u32.to_le_bytes());
        self.streams.extend_from_slice(&revision.to_le_bytes());
        self.streams.extend_from_slice(name.as_bytes());
        self.stream_count =
            self.stream_count.checked_add(1).ok_or(AppendError::StreamCount(u16::MAX))?;
        Ok(self)
    }

    /// Adds an event to the stream started last.
    pub fn event(
        &mut self,
        id: u128,
        kind: &str,
        metadata: &[u8],
        data: &[u8],
    ) -> Result<&mut Self, AppendError> {
        if self.stream_count == 0 {
            return Err(AppendError::StreamCount(0));
        }
        let type_length = u8::try_from(kind.len()).ok().filter(|length| *length > 0);
        let type_length = type_length.ok_or(AppendError::TypeLength(kind.len()))?;
        debug_assert!(kind.len() <= EVENT_TYPE_MAX_BYTES);
        let too_large = |size: usize| AppendError::EventTooLarge {
            size: size as u64,
            limit: u64::from(u32::MAX),
        };
        let metadata_length =
            u32::try_from(metadata.len()).map_err(|_| too_large(metadata.len()))?;
        let data_length = u32::try_from(data.len()).map_err(|_| too_large(data.len()))?;
        self.events.extend_from_slice(&id.to_le_bytes());
        self.events.extend_from_slice(&[type_length, 0, 0, 0]);
        self.events.extend_from_slice(&metadata_length.to_le_bytes());
        self.events.extend_from_slice(&data_length.to_le_bytes());
        self.events.extend_from_slice(kind.as_bytes());
        self.events.extend_from_slice(metadata);
        self.events.extend_from_slice(data);
        self.event_count =
            self.event_count.checked_add(1).ok_or(AppendError::TooManyEvents(u32::MAX))?;
        let count = &mut self.streams[self.count_at..self.count_at + 4];
        let value = u32::from_le_bytes([count[0], count[1], count[2], count[3]]) + 1;
        count.copy_from_slice(&value.to_le_bytes());
        Ok(self)
    }

    /// The request's bytes, appended to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut flags = 0;
        flags |= if self.key.is_some() { FLAG_KEY } else { 0 };
        flags |= if self.fencing_token.is_some() { FLAG_FENCING } else { 0 };
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(&self.stream_count.to_le_bytes());
        out.extend_from_slice(&self.event_count.to_le_bytes());
        out.extend_from_slice(&self.key.map_or(0, |key| key.0).to_le_bytes());
        out.extend_from_slice(&self.fencing_token.unwrap_or(0).to_le_bytes());
        out.extend_from_slice(&self.streams);
        out.extend_from_slice(&self.events);
    }
}
