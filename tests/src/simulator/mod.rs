//! The simulator of the pair: lease machine, shard, recovery, promotion, uploader, collector and
//! the codec of the peer protocol as they are, in two nodes over a simulated network, store, disks
//! and clocks. One seed decides everything.
//!
//! What stands between the machines here does what the drivers of the program do
//! (`bin/src/serve/uring/pair`), message by message. Checks panic with the id of the broken promise
//! (docs/INVARIANTS.md).

mod checks;
mod clients;
mod clock;
mod collecting;
mod connections;
mod contest;
mod control;
mod faults;
mod following;
mod leading;
mod losing;
mod member;
mod network;
mod node;
pub mod plan;
mod promoting;
mod sessions;
mod shard;
mod store;
mod tail;
mod trace;
mod uploading;
mod world;

use std::collections::BTreeMap;

use plan::Plan;
use world::World;

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// Equal runs have equal digests.
    pub digest: u64,
    /// Situations and how often they came up.
    pub seen: BTreeMap<&'static str, u64>,
    /// Simulated time, ms.
    pub simulated_ms: u64,
}

/// Runs a plan to its end: faults for the plan's time, then everything has to heal. Panics when a
/// promise is broken.
#[must_use]
pub fn run(plan: Plan) -> Outcome {
    let mut world = World::new(plan);
    world.run();
    Outcome { digest: world.digest.value(), simulated_ms: world.now_us / 1000, seen: world.seen }
}
