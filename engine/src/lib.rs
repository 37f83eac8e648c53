//! The log: blocks, segments, recovery, the shard machine, its index and its reads.
//!
//! Everything that decides is a pure machine; drivers live under `disk/uring` and in the program.

pub mod append;
pub mod block;
pub mod bytes;
pub mod disk;
pub mod fuzz;
pub mod ids;
pub mod index;
pub mod limits;
pub mod record;
pub mod recovery;
pub mod replica;
pub mod route;
pub mod segment;
pub mod shard;
pub mod waymarks;
