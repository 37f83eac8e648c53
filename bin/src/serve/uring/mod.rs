//! The drivers on the shards' own threads: sockets, disk, inbox. They move bytes and decide
//! nothing.

mod accept;
mod appends;
mod asked;
mod connection;
mod counting;
mod executor;
mod fetch;
mod freshness;
mod inbox_loop;
mod log_read;
mod log_walk;
mod notify;
mod order;
mod pair;
mod shard_loop;
mod stream_read;
mod subscribe;
mod sweep;

pub use executor::{ControlSetup, ShardSetup, spawn};
pub use log_walk::LogMap;
pub use shard_loop::Parts;
