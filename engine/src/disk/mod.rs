//! A shard's files. [`shard_dir`] and what it uses are blocking and run before the shards start,
//! in offline tools and on the background threads; `uring` is what the shards' own threads use.

pub mod aligned;
pub mod blank;
pub mod cut;
#[cfg(feature = "uring")]
pub mod index_store;
pub mod mark;
pub mod prepare;
#[cfg(feature = "uring")]
pub mod rebuild;
pub mod shard_dir;
#[cfg(feature = "uring")]
pub mod uring;
