//! What a node counts for its operators, and how it tells them. docs/METRICS.md describes each
//! number.
//!
//! Shards and the control count into plain atomics of their own (one writer, no lock); whoever
//! asks reads them. Nobody decides by them.

mod blocks;
mod histogram;
mod node;
mod number;
mod page;
mod reading;
mod shard;
mod sources;
pub mod status;
mod text;

pub use blocks::Blocks;
pub use node::{NodeMetrics, Standing};
pub use number::Number;
pub use shard::ShardMetrics;
pub use sources::Sources;
pub use text::{CONTENT_TYPE, render};
