//! The cluster's objects: their keys, and what a node says of itself.

use duolog_engine::ids::NodeId;
use duolog_lease::ids::parse_uuid;
use duolog_lease::machine::Identity;
use duolog_s3client::key::{KeyError, ObjectKey};
use serde::{Deserialize, Serialize};

/// The folder below the subfolder that holds everything.
const FOLDER: &str = "cluster/";

/// Where a cluster's objects lie.
#[derive(Clone, Debug)]
pub struct Keys {
    base: String,
}

impl Keys {
    /// Below `subfolder`, which is empty or ends with a slash.
    pub fn new(subfolder: &str) -> Result<Self, KeyError> {
        let keys = Self { base: format!("{subfolder}{FOLDER}") };
        // The longest one: all others are good too.
        ObjectKey::new(keys.under("chain/00000/00000000000000000000/0000000000"))?;
        Ok(keys)
    }

    /// The lease.
    #[must_use]
    pub fn lease(&self) -> ObjectKey {
        self.key("lease.json")
    }

    /// What a node says of itself.
    #[must_use]
    pub fn node(&self, node: NodeId) -> ObjectKey {
        self.key(&format!("nodes/{node}.json"))
    }

    /// What the nodes' keys begin with.
    #[must_use]
    pub fn nodes(&self) -> String {
        self.under("nodes/")
    }

    /// The key of `path` below the cluster's folder.
    #[must_use]
    pub fn key(&self, path: &str) -> ObjectKey {
        ObjectKey::new(self.under(path)).expect("checked when the subfolder was")
    }

    /// The text of that key, or the beginning of some.
    #[must_use]
    pub fn under(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

/// `nodes/<node id>.json`, written by its node at every start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDocument {
    /// Version of this document.
    pub format: u32,
    /// The cluster.
    pub cluster: String,
    /// The node.
    pub node: String,
    /// Where clients reach it.
    pub client: String,
    /// Where the other node reaches it.
    pub peer: String,
    /// Version of its program.
    pub version: String,
    /// Number of its shards.
    pub shard_count: u32,
    /// When it started, ms since 1970.
    pub started_ms: u64,
}

/// The version of the document.
pub const NODE_FORMAT: u32 = 1;

impl NodeDocument {
    /// The body to store.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("texts and numbers make JSON")
    }

    /// Reads a body; later versions may have more fields.
    #[must_use]
    pub fn decode(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    /// The node's identity.
    #[must_use]
    pub fn id(&self) -> Option<NodeId> {
        parse_uuid(&self.node).map(NodeId)
    }

    /// The node's identity, if it is another one of the same cluster.
    #[must_use]
    pub fn other(&self, own: &Identity) -> Option<NodeId> {
        let same = self.cluster == own.cluster.to_string();
        self.id().filter(|node| same && *node != own.node)
    }
}

/// An id that the body of a lease names, whichever cluster's it is and whatever else it holds.
#[must_use]
pub fn id_in_lease(body: &[u8], field: &str) -> Option<u128> {
    let document: serde_json::Value = serde_json::from_slice(body).ok()?;
    parse_uuid(document.get(field)?.as_str()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lie_below_the_subfolder_and_a_node_document_survives_a_round_trip() {
        let keys = Keys::new("a/b/").unwrap();
        assert_eq!(keys.lease().as_str(), "a/b/cluster/lease.json");
        assert_eq!(Keys::new("").unwrap().lease().as_str(), "cluster/lease.json");
        let document = NodeDocument {
            format: NODE_FORMAT,
            cluster: "c".into(),
            node: NodeId(7).to_string(),
            client: "h:1".into(),
            peer: "h:2".into(),
            version: "0".into(),
            shard_count: 2,
            started_ms: 5,
        };
        let again = NodeDocument::decode(&document.encode()).unwrap();
        assert_eq!(again, document);
        assert_eq!(again.id(), Some(NodeId(7)));
        assert!(keys.node(NodeId(7)).as_str().starts_with(&keys.nodes()));
    }
}
