//! What a node says about itself, by the protocol's admin request.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value as Json;

use crate::process::{Answer, Wire};

/// How long a node may take to answer: a stopped one never does.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It leads.
    Leader,
    /// It follows.
    Follower,
    /// Anything between.
    Other,
}

/// A node's status.
#[derive(Clone, Debug)]
pub struct Status(pub Json);

/// Asks the node at `address` something; nothing if it does not answer.
#[must_use]
pub fn ask(address: SocketAddr, request: &Json) -> Option<Answer> {
    let (mut wire, _) = Wire::connect_within(address, None, PATIENCE).ok()?;
    wire.admin(&request.to_string()).ok()
}

impl Status {
    /// The status of the node at `address`; nothing if it does not answer.
    #[must_use]
    pub fn of(address: SocketAddr) -> Option<Self> {
        match ask(address, &serde_json::json!({ "command": "status" }))? {
            Answer::Admin(text) => Some(Self(serde_json::from_str(&text).ok()?)),
            _ => None,
        }
    }

    /// What it is.
    #[must_use]
    pub fn role(&self) -> Role {
        match self.0["role"].as_str() {
            Some("leader") => Role::Leader,
            Some("follower") => Role::Follower,
            _ => Role::Other,
        }
    }

    /// Its epoch.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.0["epoch"].as_u64().unwrap_or(0)
    }

    /// Its node id.
    #[must_use]
    pub fn node(&self) -> String {
        self.0["node"].as_str().unwrap_or("").to_owned()
    }

    /// The members as it knows them.
    #[must_use]
    pub fn members(&self) -> Vec<String> {
        let members = self.0["in_sync"].as_array();
        members.into_iter().flatten().filter_map(Json::as_str).map(str::to_owned).collect()
    }

    /// Whether appends are acknowledged by the other node.
    #[must_use]
    pub fn acks_by_peer(&self) -> bool {
        self.0["acks_go_to"] == "peer"
    }

    /// Requests of this process to S3 so far.
    #[must_use]
    pub fn s3_requests(&self) -> u64 {
        self.0["s3_requests"].as_u64().unwrap_or(0)
    }

    /// (end, committed, lag) of every shard.
    #[must_use]
    pub fn shards(&self) -> Vec<(u64, u64, u64)> {
        let number = |shard: &Json, name: &str| shard[name].as_u64().unwrap_or(u64::MAX);
        let shards = self.0["shards"].as_array().into_iter().flatten();
        shards.map(|s| (number(s, "lsn"), number(s, "committed"), number(s, "lag"))).collect()
    }

    /// Whether it has seen a change of this kind.
    #[must_use]
    pub fn has_seen(&self, event: &str) -> bool {
        let mut changes = self.0["failovers"].as_array().into_iter().flatten();
        changes.any(|change| change["event"] == event)
    }
}
