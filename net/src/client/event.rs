//! Events as a caller gives them and as they come back.

use duolog_engine::ids::{Hlc, Lsn, Revision};
use duolog_engine::record::EventRecord;
use uuid::Uuid;

/// An event to append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub(super) id: Option<Uuid>,
    pub(super) kind: String,
    pub(super) metadata: Vec<u8>,
    pub(super) data: Vec<u8>,
}

impl Event {
    /// An event of the type `kind` (1..=255 bytes of UTF-8) with a payload.
    #[must_use]
    pub fn new(kind: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        Self { id: None, kind: kind.into(), metadata: Vec::new(), data: data.into() }
    }

    /// Bytes beside the payload, for whoever handles the event.
    #[must_use]
    pub fn metadata(mut self, metadata: impl Into<Vec<u8>>) -> Self {
        self.metadata = metadata.into();
        self
    }

    /// The event's identity. Without it, an append with an idempotency key derives ids from the
    /// key, so that a repeated append is the same append; one without a key gets random ids.
    /// Ids are stored and given back; the server does not compare them.
    #[must_use]
    pub const fn id(mut self, id: Uuid) -> Self {
        self.id = Some(id);
        self
    }
}

/// An event as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedEvent {
    /// The stream.
    pub stream: String,
    /// Position in the stream, from 0.
    pub revision: Revision,
    /// Position in the shard's log, from 1.
    pub lsn: Lsn,
    /// Hybrid logical clock stamp: orders events of different shards.
    pub hlc: Hlc,
    /// The server's clock when it was stored, milliseconds since 1970.
    pub timestamp_ms: u64,
    /// Identity.
    pub id: Uuid,
    /// Type.
    pub kind: String,
    /// Metadata.
    pub metadata: Vec<u8>,
    /// Payload.
    pub data: Vec<u8>,
}

impl From<EventRecord<'_>> for RecordedEvent {
    fn from(record: EventRecord<'_>) -> Self {
        Self {
            stream: record.stream.to_owned(),
            revision: record.revision,
            lsn: record.lsn,
            hlc: record.hlc,
            timestamp_ms: record.hlc.wall_ms(),
            id: Uuid::from_u128(record.id),
            kind: record.kind.to_owned(),
            metadata: record.metadata.to_vec(),
            data: record.data.to_vec(),
        }
    }
}
