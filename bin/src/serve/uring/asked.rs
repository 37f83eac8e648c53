//! A request that waits for its answer, and where the answer goes.

use std::rc::Rc;

use duolog_engine::ids::{MonoUs, ShardId};
use duolog_engine::shard::RequestId;
use duolog_net::session::Ticket;

use super::connection::Connection;

/// A request without an answer.
#[derive(Debug)]
pub(super) struct Asked {
    pub origin: Origin,
    /// When a shard took it from its socket.
    pub arrived: MonoUs,
}

/// Where a request came from.
#[derive(Debug)]
pub(super) enum Origin {
    /// A connection of this shard.
    Local(Rc<Connection>, Ticket),
    /// Another shard's connection.
    Foreign { from: ShardId, id: RequestId, correlation: u64 },
}
