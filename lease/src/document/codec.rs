//! JSON of the lease, one field per line so that people can read it with any S3 tool.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Document, DocumentError, FORMAT, RecentTokens};
use crate::ids::{ClusterId, LeaseEpoch, NodeId, Token, WallMs, parse_uuid};
use crate::in_sync::InSync;
use crate::limits::{IN_SYNC_MAX, RECENT_TOKENS_READ_MAX};

pub(super) fn encode(document: &Document) -> Vec<u8> {
    let quoted = |text: String| format!("\"{text}\"");
    let list = |items: Vec<String>| format!("[{}]", items.join(", "));
    let in_sync = document.in_sync.members().map(|node| quoted(node.to_string())).collect();
    let recent = document.recent.as_slice().iter().map(|token| quoted(token.to_string())).collect();
    let known = [
        ("format", FORMAT.to_string()),
        ("cluster", quoted(document.cluster.to_string())),
        ("leader", quoted(document.leader.to_string())),
        ("lease_epoch", document.epoch.to_string()),
        ("in_sync", list(in_sync)),
        ("acquired_unix_ms", document.acquired.to_string()),
        ("expires_unix_ms", document.expires.to_string()),
        ("token", quoted(document.token.to_string())),
        ("recent_tokens", list(recent)),
    ];
    let known = known.iter().map(|(name, value)| (*name, value.as_str()));
    let unknown = document.unknown.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let mut text = String::from("{");
    for (index, (name, value)) in known.chain(unknown).enumerate() {
        let name = serde_json::to_string(name).expect("a string is always JSON");
        text.push_str(if index == 0 { "\n  " } else { ",\n  " });
        text.push_str(&format!("{name}: {value}"));
    }
    text.push_str("\n}\n");
    text.into_bytes()
}

pub(super) fn decode(bytes: &[u8], cluster: ClusterId) -> Result<Document, DocumentError> {
    let mut fields: Fields =
        serde_json::from_slice(bytes).map_err(|error| unreadable(error.to_string()))?;
    let format: u64 = fields.take("format")?;
    if format > FORMAT {
        return Err(DocumentError::Newer { found: format });
    }
    if format != FORMAT {
        return Err(unreadable(format!("format {format} never existed")));
    }
    let found = ClusterId(fields.take_uuid("cluster")?);
    if found != cluster {
        return Err(DocumentError::Foreign { found, expected: cluster });
    }
    let document = Document {
        cluster,
        leader: NodeId(fields.take_uuid("leader")?),
        epoch: LeaseEpoch(fields.take("lease_epoch")?),
        in_sync: fields.take_in_sync()?,
        acquired: WallMs(fields.take("acquired_unix_ms")?),
        expires: WallMs(fields.take("expires_unix_ms")?),
        token: fields.take_token()?,
        recent: fields.take_recent()?,
        unknown: fields.into_unknown(),
    };
    check(&document)?;
    Ok(document)
}

fn check(document: &Document) -> Result<(), DocumentError> {
    if document.epoch == LeaseEpoch::NONE {
        return Err(unreadable("lease_epoch is 0".to_owned()));
    }
    if document.expires <= document.acquired {
        return Err(unreadable("expires_unix_ms is not after acquired_unix_ms".to_owned()));
    }
    if !document.in_sync.contains(document.leader) {
        return Err(unreadable("the leader is not in in_sync".to_owned()));
    }
    Ok(())
}

fn unreadable(why: String) -> DocumentError {
    DocumentError::Unreadable { why }
}

/// The outer object: every name once, every value as its text.
struct Fields(BTreeMap<String, Box<RawValue>>);

impl Fields {
    fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, DocumentError> {
        let raw = self.0.remove(name).ok_or_else(|| unreadable(format!("no field {name}")))?;
        serde_json::from_str(raw.get()).map_err(|error| unreadable(format!("{name}: {error}")))
    }

    fn take_uuid(&mut self, name: &str) -> Result<u128, DocumentError> {
        uuid(name, &self.take::<String>(name)?)
    }

    fn take_in_sync(&mut self) -> Result<InSync, DocumentError> {
        let texts: Vec<String> = self.take("in_sync")?;
        let mut nodes = Vec::new();
        for text in texts.iter().take(IN_SYNC_MAX + 1) {
            nodes.push(NodeId(uuid("in_sync", text)?));
        }
        match nodes[..] {
            [node] => Ok(InSync::alone(node)),
            [first, second] if first != second => Ok(InSync::pair(first, second)),
            _ => Err(unreadable("in_sync does not name one node or two".to_owned())),
        }
    }

    fn take_token(&mut self) -> Result<Token, DocumentError> {
        token("token", &self.take::<String>("token")?)
    }

    fn take_recent(&mut self) -> Result<RecentTokens, DocumentError> {
        let texts: Vec<String> = self.take("recent_tokens")?;
        if texts.len() > RECENT_TOKENS_READ_MAX {
            return Err(unreadable(format!("recent_tokens has {} entries", texts.len())));
        }
        let mut tokens = Vec::new();
        for text in &texts {
            tokens.push(token("recent_tokens", text)?);
        }
        Ok(RecentTokens::new(&tokens))
    }

    fn into_unknown(self) -> BTreeMap<String, String> {
        self.0.into_iter().map(|(name, raw)| (name, raw.get().to_owned())).collect()
    }
}

fn uuid(name: &str, text: &str) -> Result<u128, DocumentError> {
    parse_uuid(text).ok_or_else(|| unreadable(format!("{name}: {text:?} is no UUID")))
}

fn token(name: &str, text: &str) -> Result<Token, DocumentError> {
    Token::parse(text).ok_or_else(|| unreadable(format!("{name}: {text:?} is no token")))
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the lease, a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
            match fields.entry(name) {
                // Readers disagree about which of two counts, so neither does.
                Entry::Occupied(entry) => {
                    return Err(A::Error::custom(format!("{} stands there twice", entry.key())));
                }
                Entry::Vacant(entry) => entry.insert(value),
            };
        }
        Ok(Fields(fields))
    }
}
