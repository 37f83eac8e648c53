//! A disk that is lost or has decayed, and the blank node that takes its place.

use duolog_engine::ids::{Generation, NodeId, Place};
use duolog_lease::document::Document;
use duolog_lease::event::{Event as LeaseEvent, Force, Replace};
use duolog_lease::in_sync::InSync;

use super::faults::Fault;
use super::node::{CLUSTER, LAYOUT};
use super::plan::{Mistake, Profile};
use super::store::Key;
use super::world::{Due, World};

/// How often the operator tries to have a node replaced, us.
const OPERATOR_US: u64 = 500_000;

impl World {
    fn members(&self) -> Option<InSync> {
        let body = self.bucket.get(Key::Lease)?;
        Document::decode(body, CLUSTER).ok().map(|document| document.in_sync)
    }

    /// A node goes down, and its disk is lost or decays. A pair survives one of two disks, once
    /// there are two: it happens once in a run. Not with arbitrary clocks: a lease that was written
    /// by a clock an hour ahead would have to be waited for that long.
    pub fn lose(&mut self, node: usize) {
        let both = self.members().is_some_and(|members| {
            [0, 1].into_iter().all(|node: usize| members.contains(self.nodes[node].id))
        });
        let bounded = self.plan.profile == Profile::Bounded;
        if !both || !bounded || self.lost || self.nodes[node].process.is_none() {
            return;
        }
        (self.lost, self.gone) = (true, Some(node));
        let lasts = self.chance.between(50, 6_000);
        self.begin(Fault::Down(node), lasts);
        if self.chance.percent(30) {
            self.replace(node);
        } else {
            self.decay(node);
        }
    }

    /// Something below the mark on the disk is not what was written.
    fn decay(&mut self, node: usize) {
        let state = &self.nodes[node];
        let behind = state.mark.and_then(|mark| state.boundary_at(mark.lsn)).map(|at| at.behind);
        self.nodes[node].rotten = true;
        let Some(behind) = behind else { return };
        let newest = behind.generation.0 as usize;
        let generation = Generation(1 + self.chance.index(newest) as u32);
        let Some(size) = self.nodes[node].disk.size_of(generation) else { return };
        let last = generation == behind.generation;
        let limit = if last { behind.offset } else { size as u32 };
        if limit == 0 {
            return;
        }
        let place = Place { generation, offset: self.chance.index(limit as usize) as u32 };
        let bit = self.chance.below(8) as u8;
        if self.chance.percent(50) {
            self.saw("a bit of a disk turns over");
            self.nodes[node].disk.flip_bit(place, bit);
        } else {
            let align = LAYOUT.align_bytes;
            let to = Place { offset: place.offset / align * align, ..place };
            let from = Place {
                offset: self.chance.below(u64::from(limit / align)) as u32 * align,
                ..place
            };
            self.nodes[node].disk.misdirect(from, to, align as usize);
            self.saw("a write goes to another place");
        }
    }

    /// D4: a node whose log has lost what was committed does not start (exit code 16); the operator
    /// puts a blank one in its place.
    pub fn look_for_damage(&mut self, node: usize) {
        let ignored = self.makes(Mistake::DamageIsCut);
        if self.nodes[node].rotten && self.nodes[node].is_damaged() && !ignored {
            self.saw("damage keeps a node from starting");
            self.replace(node);
        } else if self.nodes[node].rotten {
            self.gone = None;
        }
        self.nodes[node].rotten &= ignored;
    }

    /// A blank node comes in the place of this one, whose process has ended.
    fn replace(&mut self, node: usize) {
        let dead = self.nodes[node].id;
        self.note(node, || "is lost; a blank one comes in its place".to_owned());
        self.nodes[node].wipe(&self.plan, node);
        self.after(OPERATOR_US, Due::Operator(node, dead));
    }

    /// M3: the operator names the newcomer until it is a member.
    pub fn operator(&mut self, node: usize, dead: NodeId) {
        let newcomer = self.nodes[node].id;
        if self.members().is_some_and(|members| members.contains(newcomer)) {
            self.gone = None;
            return self.saw("a node is replaced");
        }
        let other = 1 - node;
        let stopped = self.nodes[other].frozen_until(self.now_us).is_some();
        if self.nodes[other].process.is_some() && !stopped {
            let replace = Replace { dead, newcomer, force: Force::No };
            self.lease_step(other, LeaseEvent::ReplaceRequested(replace));
        }
        self.after(OPERATOR_US, Due::Operator(node, dead));
    }
}
