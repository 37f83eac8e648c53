//! Events as JSON documents: what an append gives, and what a read shows.

use duolog_net::client::{Event, RecordedEvent, ShardId, Uuid};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::payload::{self, Shown};
use crate::timestamp::rfc3339;

/// The body of an append.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Append {
    /// In order; at least one.
    #[schema(min_items = 1, max_items = 65536)]
    pub events: Vec<GivenEvent>,
}

/// An event to append. At most one of the members `data`, `data_text` and `data_base64` is there,
/// and of those of the metadata.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GivenEvent {
    /// Made up if it is not given.
    id: Option<Uuid>,
    /// 1 to 255 bytes of UTF-8.
    #[schema(min_length = 1)]
    r#type: String,
    /// Any JSON value.
    #[serde(default, deserialize_with = "payload::given")]
    #[schema(value_type = serde_json::Value)]
    data: Option<Box<RawValue>>,
    data_text: Option<String>,
    data_base64: Option<String>,
    /// Any JSON value.
    #[serde(default, deserialize_with = "payload::given")]
    #[schema(value_type = serde_json::Value)]
    metadata: Option<Box<RawValue>>,
    metadata_text: Option<String>,
    metadata_base64: Option<String>,
}

impl GivenEvent {
    /// The event, or what is wrong with it.
    pub fn event(self) -> Result<Event, String> {
        check_type(&self.r#type)?;
        let data = self.data.as_deref();
        let data = payload::bytes("data", data, self.data_text, self.data_base64)?;
        let metadata = self.metadata.as_deref();
        let metadata =
            payload::bytes("metadata", metadata, self.metadata_text, self.metadata_base64)?;
        let event = Event::new(self.r#type, data).metadata(metadata);
        Ok(match self.id {
            Some(id) => event.id(id),
            None => event,
        })
    }
}

/// Whether an event can have this type.
pub fn check_type(kind: &str) -> Result<(), String> {
    match kind.len() {
        1..=255 => Ok(()),
        other => Err(format!("type of {other} bytes: 1 to 255 are allowed")),
    }
}

/// A stored event.
#[derive(Debug, Serialize, ToSchema)]
pub struct ShownEvent {
    stream: String,
    revision: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<u32>,
    lsn: u64,
    /// Orders events of different shards; a number of 64 bits in digits.
    hlc: String,
    time: String,
    id: Uuid,
    r#type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value, required = false)]
    data: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value, required = false)]
    metadata: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_base64: Option<String>,
}

impl ShownEvent {
    /// An event as a read of a stream or of `shard`'s log gave it.
    #[must_use]
    pub fn of(event: RecordedEvent, shard: Option<ShardId>) -> Self {
        let (data, data_text, data_base64) = Shown::of(&event.data).members();
        let (metadata, metadata_text, metadata_base64) = Shown::of(&event.metadata).members();
        Self {
            stream: event.stream,
            revision: event.revision.0,
            shard: shard.map(|shard| shard.0),
            lsn: event.lsn.0,
            hlc: event.hlc.get().to_string(),
            time: rfc3339(event.timestamp_ms),
            id: event.id,
            r#type: event.kind,
            data,
            data_text,
            data_base64,
            metadata,
            metadata_text,
            metadata_base64,
        }
    }
}
