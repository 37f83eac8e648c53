//! CloudEvents 1.0 in their JSON form (structured mode), both ways.
//!
//! `type` is the event's type and `data` its data; all other attributes are kept, with their exact
//! text, as the metadata `{"cloudevents":{…}}`, and come back from there. An event that was not
//! appended as a CloudEvent gets the attributes that there must be from its place in the log. Where
//! an event lies is told by extension attributes that begin with `duolog`; in an append they are
//! not part of the event.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duolog_net::client::{Event, RecordedEvent, ShardId, Uuid};
use serde_json::value::{RawValue, to_raw_value};

use super::payload::{self, Shown};
use crate::timestamp::rfc3339;

/// Attributes by name, each with its JSON text.
pub type Attributes = BTreeMap<String, Box<RawValue>>;

/// The namespace of event ids that follow from `source` and `id`.
const NAMESPACE: Uuid = Uuid::from_u128(0x6a1f_0c52_92b7_4d0e_8a61_f3a2_5c47_1e90);
/// The member of the metadata that holds the attributes.
const MEMBER: &str = "cloudevents";
/// How the attributes begin that tell where an event lies.
const PLACE: &str = "duolog";

/// The event of an append, or what is wrong with it.
pub fn event(mut given: Attributes) -> Result<Event, String> {
    // An attribute that is null is not there; data may be null.
    given.retain(|name, value| name == "data" || value.get() != "null");
    given.retain(|name, _| !name.starts_with(PLACE));
    let data = given.remove("data");
    let data_base64 = given.remove("data_base64");
    for (name, value) in &given {
        check(name, value)?;
    }
    let text = |name: &str| -> Result<String, String> {
        let value = given.get(name).ok_or_else(|| format!("the attribute {name} is missing"))?;
        let text: String = serde_json::from_str(value.get())
            .map_err(|_| format!("the attribute {name} must be a string"))?;
        if text.is_empty() { Err(format!("the attribute {name} is empty")) } else { Ok(text) }
    };
    let (version, source, id, kind) =
        (text("specversion")?, text("source")?, text("id")?, text("type")?);
    super::event::check_type(&kind)?;
    if version != "1.0" {
        return Err(format!("specversion {version:?}: this is 1.0"));
    }
    let is_json = !given.contains_key("datacontenttype") || json_type(&text("datacontenttype")?);
    let data = match (data, data_base64) {
        (Some(_), Some(_)) => return Err("give data or data_base64, not both".to_owned()),
        (None, Some(base64)) => {
            let base64: Option<String> = serde_json::from_str(base64.get()).ok();
            let bytes = base64.and_then(|base64| STANDARD.decode(base64).ok());
            bytes.ok_or("data_base64 is not base64 with padding")?
        }
        (Some(data), None) if !is_json && data.get().starts_with('"') => {
            let text: Result<String, _> = serde_json::from_str(data.get());
            text.map_err(|error| format!("data: {error}"))?.into_bytes()
        }
        (Some(data), None) => payload::compact(data.get()),
        (None, None) => Vec::new(),
    };
    given.remove("type");
    let metadata = to_raw_value(&BTreeMap::from([(MEMBER, &given)]));
    let metadata = metadata.map_err(|error| error.to_string())?;
    let id = own_id(&id).unwrap_or_else(|| {
        Uuid::new_v5(&NAMESPACE, format!("{}\n{id}", source.escape_default()).as_bytes())
    });
    Ok(Event::new(kind, data).metadata(metadata.get()).id(id))
}

/// A UUID in its usual form is the event's id as it is.
fn own_id(id: &str) -> Option<Uuid> {
    Uuid::parse_str(id).ok().filter(|uuid| uuid.to_string() == id)
}

fn check(name: &str, value: &RawValue) -> Result<(), String> {
    let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if name.is_empty() || !name.bytes().all(lower) {
        return Err(format!("attribute {name:?}: names are lower-case letters and digits"));
    }
    let text = value.get();
    let simple = match text.as_bytes().first() {
        Some(b'{' | b'[') => false,
        Some(b'"' | b't' | b'f') => true,
        _ => text.parse().is_ok_and(whole),
    };
    let what = "attributes are strings, booleans or whole numbers of 32 bits";
    if simple { Ok(()) } else { Err(format!("attribute {name:?}: {what}")) }
}

/// Whether a number is whole and has 32 bits; 7.0 is 7 in JSON.
fn whole(number: f64) -> bool {
    number.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number)
}

/// Whether data of this media type is JSON.
fn json_type(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let subtype = essence.split_once('/').map_or("", |(_, subtype)| subtype);
    subtype == "json" || subtype.ends_with("+json")
}

/// A stored event as a CloudEvent. `source` is for events that were not appended as one.
#[must_use]
pub fn shown(event: RecordedEvent, shard: Option<ShardId>, source: &str) -> Attributes {
    let text = |text: &str| to_raw_value(text).expect("a string is JSON");
    let kept = kept(&event.metadata);
    let own = kept.is_some();
    let mut shown = kept.unwrap_or_else(|| {
        let mut made = Attributes::new();
        made.insert("specversion".to_owned(), text("1.0"));
        made.insert("source".to_owned(), text(source));
        made.insert("id".to_owned(), text(&event.id.to_string()));
        made.insert("time".to_owned(), text(&rfc3339(event.timestamp_ms)));
        made
    });
    shown.insert("type".to_owned(), text(&event.kind));
    put_data(&mut shown, &event.data, own);
    let mut place = |name: &str, value: String| {
        shown.insert(format!("{PLACE}{name}"), text(&value));
    };
    place("stream", event.stream);
    place("revision", event.revision.0.to_string());
    place("lsn", event.lsn.0.to_string());
    place("hlc", event.hlc.get().to_string());
    if let Some(shard) = shard {
        place("shard", shard.0.to_string());
    }
    if !own && !event.metadata.is_empty() {
        place("metadata", STANDARD.encode(&event.metadata));
    }
    shown
}

/// The attributes that an append has left in the metadata.
fn kept(metadata: &[u8]) -> Option<Attributes> {
    let mut members: BTreeMap<String, Attributes> = serde_json::from_slice(metadata).ok()?;
    let kept = members.remove(MEMBER)?;
    let whole = ["specversion", "source", "id"].iter().all(|name| kept.contains_key(*name));
    (members.is_empty() && whole).then_some(kept)
}

fn put_data(shown: &mut Attributes, data: &[u8], own: bool) {
    let text = |text: &str| to_raw_value(text).expect("a string is JSON");
    let media_type = shown.get("datacontenttype");
    let media_type: Option<String> =
        media_type.and_then(|value| serde_json::from_str(value.get()).ok());
    let is_json = media_type.as_deref().is_none_or(json_type);
    let (name, value, kind) = match Shown::of(data) {
        Shown::Nothing => return,
        Shown::Json(json) if is_json => ("data", json, "application/json"),
        // What is no JSON comes as a string, if its type says so; text that looks like JSON, too.
        Shown::Json(json) if own => ("data", text(json.get()), ""),
        Shown::Text(string) if !is_json || !own => ("data", text(&string), "text/plain"),
        Shown::Json(_) | Shown::Text(_) => ("data_base64", text(&STANDARD.encode(data)), ""),
        Shown::Base64(base64) => ("data_base64", text(&base64), "application/octet-stream"),
    };
    shown.insert(name.to_owned(), value);
    if !own {
        shown.insert("datacontenttype".to_owned(), text(kind));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use duolog_net::client::{Hlc, Lsn, Revision};

    fn given(text: &str) -> Attributes {
        serde_json::from_str(text).unwrap()
    }

    fn stored(kind: &str, metadata: &[u8], data: &[u8]) -> RecordedEvent {
        RecordedEvent {
            stream: "s".to_owned(),
            revision: Revision(4),
            lsn: Lsn(9),
            hlc: Hlc(1 << 20),
            timestamp_ms: 16,
            id: Uuid::from_u128(7),
            kind: kind.to_owned(),
            metadata: metadata.to_vec(),
            data: data.to_vec(),
        }
    }

    /// What a CloudEvent said comes back, each attribute with its exact text.
    #[test]
    fn a_cloud_event_comes_back_as_it_was() {
        let cases = [
            (r#""data":{"a":1.50}"#, &br#"{"a":1.50}"#[..]),
            (r#""data":"x""#, br#""x""#),
            (r#""data":null"#, b"null"),
            (r#""datacontenttype":"text/plain","data":"x y""#, b"x y"),
            (r#""datacontenttype":"text/plain","data":"12""#, b"12"),
            (r#""data_base64":"/w==""#, b"\xff"),
            (r#""datacontenttype":"text/csv","data_base64":"/w==""#, b"\xff"),
            (r#""subject":"é\u00e9","ext1":true,"ext2":-5,"ext3":7.0"#, b""),
        ];
        for (rest, data) in cases {
            let fixed = r#""specversion":"1.0","id":"A-1","source":"/x","type":"t""#;
            let before = format!("{{{fixed},{rest}}}");
            let attributes = given(&before);
            let metadata = {
                let mut kept = given(&before);
                kept.retain(|name, _| !matches!(&**name, "type" | "data" | "data_base64"));
                serde_json::to_vec(&BTreeMap::from([(MEMBER, kept)])).unwrap()
            };
            let expected = Event::new("t", data).metadata(metadata.clone());
            let id = Uuid::new_v5(&NAMESPACE, b"/x\nA-1");
            assert_eq!(event(attributes), Ok(expected.id(id)), "{rest}");
            let mut after = shown(stored("t", &metadata, data), None, "/other");
            after.retain(|name, _| !name.starts_with(PLACE));
            let text = |attributes: &Attributes| serde_json::to_string(attributes).unwrap();
            assert_eq!(text(&after), text(&given(&before)));
        }
    }

    #[test]
    fn other_events_get_what_a_cloud_event_must_have() {
        let event = shown(stored("t", b"plain", b"{}"), Some(ShardId(3)), "/v1/streams/s");
        let text = serde_json::to_string(&event).unwrap();
        let expected = concat!(
            r#"{"data":{},"datacontenttype":"application/json","duologhlc":"1048576","#,
            r#""duologlsn":"9","duologmetadata":"cGxhaW4=","duologrevision":"4","#,
            r#""duologshard":"3","duologstream":"s","id":"00000000-0000-0000-0000-000000000007","#,
            r#""source":"/v1/streams/s","specversion":"1.0","time":"1970-01-01T00:00:00.016Z","#,
            r#""type":"t"}"#
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn mistakes_are_named() {
        let fixed = r#""specversion":"1.0","source":"/x","type":"t""#;
        for (rest, word) in [
            ("", "id is missing"),
            (r#","id":"""#, "id is empty"),
            (r#","id":1"#, "must be a string"),
            (r#","id":null"#, "id is missing"),
            (r#","id":"1","Big":1"#, "lower-case"),
            (r#","id":"1","ext":{}"#, "strings, booleans"),
            (r#","id":"1","ext":1.5"#, "strings, booleans"),
            (r#","id":"1","ext":2147483648"#, "strings, booleans"),
            (r#","id":"1","data":1,"data_base64":"""#, "not both"),
            (r#","id":"1","data_base64":"?""#, "not base64"),
        ] {
            let error = event(given(&format!("{{{fixed}{rest}}}"))).unwrap_err();
            assert!(error.contains(word), "{rest}: {error}");
        }
        let old = given(r#"{"specversion":"0.3","id":"1","source":"/x","type":"t"}"#);
        assert!(event(old).unwrap_err().contains("1.0"));
    }
}
