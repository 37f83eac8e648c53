//! The simulator of one shard: real machine, real recovery, real codecs over a simulated disk, from
//! one seed. Checks panic with the id of the broken promise (docs/INVARIANTS.md).

mod answers;
pub mod chance;
pub mod digest;
pub mod disk;
pub mod index;
pub mod ledger;
mod perform;
pub mod plan;
mod readers;
mod restart;
pub mod work;
pub mod world;
