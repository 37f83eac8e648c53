//! What a failover is explained from: event logs of nodes and the lease object.

use crate::journal::Entry;

/// One node's event log.
#[derive(Clone, Debug, Default)]
pub struct NodeLog {
    /// Its id; empty if it has none yet.
    pub node: String,
    /// How people call it: its address, or the directory that the log was read from.
    pub name: String,
    /// The node itself gave the log, just now.
    pub answers: bool,
    /// In their order.
    pub entries: Vec<Entry>,
    /// There were older entries.
    pub left_out: bool,
}

/// What could not be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// An address, a directory, a node.
    pub what: String,
    /// Why.
    pub reason: String,
}

/// The lease object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Who reigns.
    pub leader: String,
    /// Its reign.
    pub epoch: u64,
    /// The writer's clock when it wrote, ms since 1970.
    pub acquired_ms: u64,
    /// When the lease runs out by that clock.
    pub expires_ms: u64,
}

/// Everything together.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// At most two nodes' logs, of different nodes.
    pub logs: Vec<NodeLog>,
    /// What is not among them.
    pub missing: Vec<Missing>,
    /// The lease, or why it is not included.
    pub lease: Option<Result<Lease, String>>,
}

impl Evidence {
    /// How people call a node.
    #[must_use]
    pub fn name(&self, node: &str) -> String {
        let known = self.logs.iter().find(|log| log.node == node);
        known.map_or_else(|| format!("node {node}"), |log| log.name.clone())
    }

    /// How far the clock of the second log's node is ahead of the first one's, ms, as the nodes
    /// measured it last; `None` if they did not, or there is no second log.
    #[must_use]
    pub fn skew_ms(&self) -> Option<i64> {
        let [one, other] = self.logs.as_slice() else { return None };
        let newest = |log: &NodeLog| {
            let mut newest = log.entries.iter().rev();
            newest.find_map(|entry| Some((entry.at_ms, entry.facts.get("skew_ms")?.as_i64()?)))
        };
        match (newest(one), newest(other)) {
            (Some((at, skew)), Some((other_at, _))) if at >= other_at => Some(skew),
            (_, Some((_, skew))) => Some(-skew),
            (Some((_, skew)), None) => Some(skew),
            (None, None) => None,
        }
    }
}
