//! The parts of this crate that run on the shards' runtime.

pub mod connection;
pub mod skeleton;
