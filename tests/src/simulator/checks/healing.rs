//! H1: when faults end, one node leads, the other follows, and both have one log.

use duolog_engine::shard::Role;
use duolog_lease::ids::{Now, WallMs};

use crate::simulator::world::World;

impl World {
    /// What lacks for one to lead, the other to follow, and both to have everything.
    pub fn ailment(&mut self) -> Option<String> {
        for node in [0, 1] {
            if self.nodes[node].process.is_none() {
                return Some(format!("node {} does not run", node + 1));
            }
        }
        let now = [0, 1].map(|node: usize| self.nodes[node].now(self.now_us).mono.ms());
        let Some(leader) = [0, 1].into_iter().find(|node| {
            let process = self.nodes[*node].process.as_ref().expect("it runs");
            matches!(process.shard.role(), Role::Leader { .. })
                && process.grant.is_some_and(|grant| grant.admits(now[*node]))
        }) else {
            let phases = [0, 1].map(|node: usize| {
                let process = self.nodes[node].process.as_ref().expect("it runs");
                let lease_now = Now { mono: now[node], wall: WallMs(0) };
                (process.lease.status(lease_now), process.shard.role())
            });
            return Some(format!("nobody leads: {phases:?}"));
        };
        let [own, other] = [leader, 1 - leader].map(|node| {
            let shard = &self.nodes[node].process.as_ref().expect("it runs").shard;
            (shard.end(), shard.committed(), shard.role())
        });
        if own.0 != other.0 || own.0 != own.1 || other.0 != other.1 {
            return Some(format!("node {} leads; {own:?} and {other:?}", leader + 1));
        }
        let Some(members) = self.nodes[leader].process.as_ref().expect("it runs").members else {
            return Some("no members".to_owned());
        };
        if members.1.is_some() || members.0.other(self.nodes[leader].id).is_none() {
            return Some(format!("the members are {members:?}"));
        }
        None
    }
}
