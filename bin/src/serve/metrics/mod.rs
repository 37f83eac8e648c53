//! What a node counts for its operators, and how it tells them. docs/METRICS.md describes each
//! number.
//!
//! Shards and the control count into plain atomics of their own (one writer, no lock); whoever
//! asks reads them. Nobody decides by them.

mod blocks;
mod histogram;
mod number;
mod shard;
pub mod status;

pub use blocks::Blocks;
pub use number::Number;
pub use shard::ShardMetrics;
