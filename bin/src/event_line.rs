//! An event as one line: JSON for machines, a sentence for people. Payloads stay what they are:
//! JSON is embedded as JSON (numbers with all their digits), text as text, anything else as base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duolog_engine::ids::ShardId;
use duolog_engine::record::EventRecord;
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::exit::{Exit, Failure};
use crate::timestamp::rfc3339;

/// Bytes in the form that shows them best.
#[derive(Debug)]
pub enum Payload<'a> {
    /// One JSON value, on one line.
    Json(Box<RawValue>),
    /// Text.
    Text(&'a str),
    /// Neither.
    Base64(String),
}

impl<'a> Payload<'a> {
    /// Looks at `bytes`.
    #[must_use]
    pub fn of(bytes: &'a [u8]) -> Self {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Self::Base64(STANDARD.encode(bytes));
        };
        // Line feeds stand between JSON tokens only (inside strings they are escaped), so a space
        // says the same and keeps the line whole.
        let line = text.trim().replace(['\n', '\r'], " ");
        match RawValue::from_string(line) {
            Ok(json) => Self::Json(json),
            Err(_) => Self::Text(text),
        }
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Json(json) => json.get().to_owned(),
            Self::Text(text) => text.escape_debug().to_string(),
            Self::Base64(text) => format!("base64:{text}"),
        }
    }

    fn parts(&self) -> (Option<&RawValue>, Option<&str>, Option<&str>) {
        match self {
            Self::Json(json) => (Some(json), None, None),
            Self::Text(text) => (None, Some(text), None),
            Self::Base64(text) => (None, None, Some(text)),
        }
    }
}

/// The JSON form. Exactly one of the three forms of the data is there; of the metadata at most one.
#[derive(Serialize)]
struct EventJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<&'a str>,
    shard: u32,
    lsn: u64,
    stream: &'a str,
    revision: u64,
    r#type: &'a str,
    id: Uuid,
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_base64: Option<&'a str>,
}

/// One JSON document without a line feed.
pub fn json(shard: ShardId, event: &EventRecord<'_>) -> Result<String, Failure> {
    document(None, shard, event)
}

/// The same with the event's position in a subscription.
pub fn json_at(shard: ShardId, event: &EventRecord<'_>, position: &str) -> Result<String, Failure> {
    document(Some(position), shard, event)
}

fn document(
    position: Option<&str>,
    shard: ShardId,
    event: &EventRecord<'_>,
) -> Result<String, Failure> {
    let payload = Payload::of(event.data);
    let (data, data_text, data_base64) = payload.parts();
    let about = Payload::of(event.metadata);
    let (metadata, metadata_text, metadata_base64) =
        if event.metadata.is_empty() { (None, None, None) } else { about.parts() };
    let line = EventJson {
        position,
        shard: shard.get(),
        lsn: event.lsn.get(),
        stream: event.stream,
        revision: event.revision.get(),
        r#type: event.kind,
        id: Uuid::from_u128(event.id),
        time: rfc3339(event.hlc.wall_ms()),
        data,
        data_text,
        data_base64,
        metadata,
        metadata_text,
        metadata_base64,
    };
    serde_json::to_string(&line).map_err(|error| Failure::new(Exit::Internal, error))
}

/// One line for people: position, stream, type, time, data.
#[must_use]
pub fn human(event: &EventRecord<'_>) -> String {
    let about = if event.metadata.is_empty() {
        String::new()
    } else {
        format!("  metadata {}", Payload::of(event.metadata).text())
    };
    format!(
        "{}@{}  {}  {}  {}{about}",
        event.revision,
        event.stream,
        event.kind,
        rfc3339(event.hlc.wall_ms()),
        Payload::of(event.data).text(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use duolog_engine::ids::{Hlc, Lsn, Revision};

    fn event<'a>(data: &'a [u8], metadata: &'a [u8]) -> EventRecord<'a> {
        EventRecord {
            lsn: Lsn(7),
            revision: Revision(3),
            hlc: Hlc(1_000_000_000_000 << 16),
            id: 1,
            stream: "order-1",
            kind: "Placed",
            metadata,
            data,
        }
    }

    fn line(data: &[u8], metadata: &[u8]) -> serde_json::Value {
        let line = json(ShardId(2), &event(data, metadata)).unwrap();
        assert!(!line.contains('\n'), "{line}");
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn json_text_and_bytes_are_told_apart() {
        let found = line(b"{\"a\":\n1}", b"");
        assert_eq!(found["data"]["a"], 1);
        assert_eq!(found["stream"], "order-1");
        assert_eq!(found["time"], "2001-09-09T01:46:40.000Z");
        assert_eq!(found["id"], "00000000-0000-0000-0000-000000000001");
        assert!(found.get("metadata").is_none() && found.get("data_text").is_none());
        assert_eq!(line("ä b".as_bytes(), b"x")["data_text"], "ä b");
        assert_eq!(line(b"", b"x")["metadata_text"], "x");
        assert_eq!(line(b"", b"")["data_text"], "");
        assert_eq!(line(&[0xff, 0], b"{}")["data_base64"], "/wA=");
    }

    #[test]
    fn numbers_keep_all_their_digits() {
        let data = b"{\"n\":12345678901234567890123,\"f\":1.10}";
        let line = json(ShardId(0), &event(data, b"")).unwrap();
        assert!(line.contains("12345678901234567890123,\"f\":1.10"), "{line}");
    }

    #[test]
    fn people_get_one_line_whatever_the_text_holds() {
        let line = human(&event(b"two\nlines", &[0xff]));
        assert!(line.starts_with("3@order-1  Placed  2001-09-09T01:46:40.000Z  two\\nlines"));
        assert!(line.ends_with("metadata base64:/w=="), "{line}");
    }
}
