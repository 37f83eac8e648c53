//! What a session is told when it is made.

use duolog_engine::ids::{ClusterId, NodeId, ShardId};

use crate::limits::{
    CONNECTION_BYTES_MAX_DEFAULT, CONNECTION_REQUESTS_MAX_DEFAULT,
    CONNECTION_UNSENT_MAX_BYTES_DEFAULT, FRAME_BODY_MAX_BYTES_DEFAULT,
};

/// What a session has to know about its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The cluster.
    pub cluster: ClusterId,
    /// This node.
    pub node: NodeId,
    /// Shards of the cluster, at least 1.
    pub shard_count: u32,
    /// The shard whose thread serves this connection.
    pub shard: ShardId,
    /// Largest frame body taken: [`crate::limits::frame_body_max_bytes`].
    pub frame_body_max_bytes: usize,
    /// `limits.connection_in_flight`, at least 1.
    pub requests_max: u32,
    /// Bytes of requests in flight: at least one largest frame body and one largest page.
    pub bytes_max: u32,
    /// Bytes of answers that the socket has not taken, above which nothing more is read.
    pub unsent_max_bytes: usize,
}

impl Default for Settings {
    /// One shard, no identity, default limits: for tests.
    fn default() -> Self {
        Self {
            cluster: ClusterId(0),
            node: NodeId(0),
            shard_count: 1,
            shard: ShardId(0),
            frame_body_max_bytes: FRAME_BODY_MAX_BYTES_DEFAULT,
            requests_max: CONNECTION_REQUESTS_MAX_DEFAULT,
            bytes_max: CONNECTION_BYTES_MAX_DEFAULT,
            unsent_max_bytes: CONNECTION_UNSENT_MAX_BYTES_DEFAULT,
        }
    }
}
