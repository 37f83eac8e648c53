//! The scenarios. What each has to show stands in its steps: a step that waits for something fails
//! the scenario when it does not come.

mod clients;
mod ends;
mod machines;
mod network;
mod store;

use duolog_net::wire::Copies;

use crate::scenario::End::{self, Node};
use crate::scenario::Step::Wait;
use crate::scenario::Who::{Follower, Leader};
use crate::scenario::{Scenario, Step};

/// Longer than the lease by heartbeats, ms: 1500, and 500 for the clocks.
const PAST_LEASE: Step = Wait(2_500, 4_000);
/// Longer than the lease by S3, ms: 4000, and the clocks.
const PAST_S3_LEASE: Step = Wait(6_000, 8_000);
/// What a node says of a disk without space.
const NO_SPACE: &str = "segment_not_prepared";
/// More than any number of elections that a scenario may have.
const MANY: u64 = 100;
const HOUR_MS: i64 = 3_600_000;
/// Beyond the drift of 500 ms that the settings allow.
const SKEW_MS: i64 = 2_500;

const L: End = Node(Leader);
const F: End = Node(Follower);
const S: End = End::Store;
/// Acknowledged by the other node.
const P: Copies = Copies::ThisDiskAndPeer;
/// Acknowledged by the chain in the bucket.
const C: Copies = Copies::ThisDiskAndS3;

/// All of them, in the order of their telling.
pub fn all() -> impl Iterator<Item = &'static Scenario> {
    let parts = [ends::ALL, network::ALL, store::ALL, machines::ALL, clients::ALL];
    parts.into_iter().flatten()
}

/// The scenario of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Scenario> {
    all().find(|scenario| scenario.name == name)
}
