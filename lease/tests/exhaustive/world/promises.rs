//! What must be true of every state and every step.

use duolog_lease::event::{Condition, WriteOutcome};
use duolog_lease::ids::{LeaseEpoch, Token};

use super::super::bounds::Bounds;
use super::{MONO, NAMES, World, index_of, run_id};

impl World {
    /// The promise that is broken here, if one is.
    pub fn broken(&self, bounds: &Bounds) -> Option<String> {
        self.violation.clone().or_else(|| self.broken_reigns()).or_else(|| {
            let two = bounds.timed && (0..2).all(|node| self.serves(node));
            two.then(|| "two grants are valid at once (L8, L9)".into())
        })
    }

    fn serves(&self, node: usize) -> bool {
        let machine = self.nodes[node].machine.as_ref();
        machine.and_then(|machine| machine.grant()).is_some_and(|grant| grant.serves(MONO))
    }

    fn broken_reigns(&self) -> Option<String> {
        let reign = |node: usize| self.nodes[node].machine.as_ref()?.reign();
        if reign(0).is_some() && reign(0) == reign(1) {
            return Some("two nodes reign at one epoch (L2)".into());
        }
        (0..2).find_map(|node| self.broken_members(node))
    }

    /// While the lease is this reign's, its shards count by the set in it (M2).
    fn broken_members(&self, node: usize) -> Option<String> {
        let it = &self.nodes[node];
        let reign = it.machine.as_ref()?.reign()?;
        let document = &self.store.version.as_ref()?.document;
        let (in_sync, proposal) = it.members?;
        let own = document.epoch == reign && document.token.is_of(run_id(node, it.runs));
        let counted = document.in_sync == in_sync || Some(document.in_sync) == proposal;
        (own && !counted)
            .then(|| format!("{} counts by another set than the lease's (M2)", NAMES[node]))
    }

    /// Called after each step: a node that has entered a reign is the only one who ever did.
    pub(super) fn watch_reign(&mut self, node: usize) {
        let it = &self.nodes[node];
        let Some(machine) = &it.machine else {
            return;
        };
        let Some(epoch) = machine.reign() else {
            return;
        };
        if epoch == it.last_reign {
            return;
        }
        let acked = match (it.challenge, machine.lease()) {
            (Some((token, acked)), Some(version)) => acked && version.document.token == token,
            _ => false,
        };
        if acked {
            self.fail(format!("{} acked after it had challenged, and won (L3)", NAMES[node]));
        }
        if epoch < self.nodes[node].last_reign {
            self.fail(format!("{} reigns at a lower epoch than before (L2)", NAMES[node]));
        }
        let who = (u8::from(node == 1), self.nodes[node].runs);
        self.nodes[node].last_reign = epoch;
        if enter(&mut self.entered, epoch, who) {
            self.fail(format!("epoch {epoch} is entered twice (L2)"));
        }
    }

    pub(super) fn watch_open(&mut self, node: usize, epoch: LeaseEpoch) {
        let who = (u8::from(node == 1), self.nodes[node].runs);
        if enter(&mut self.opened, epoch, who) {
            self.fail(format!("epoch {epoch} is opened twice (L2)"));
        }
    }

    /// Called before a write of the lease leaves.
    pub(super) fn watch_challenge(&mut self, node: usize, write: Token) {
        let it = &mut self.nodes[node];
        let challenges = it.machine.as_ref().is_some_and(|machine| machine.reign().is_none());
        if !challenges {
            return;
        }
        if it.challenge.is_none_or(|(token, _)| token != write) {
            it.challenge = Some((write, false));
        }
        if it.shards.is_some() {
            self.fail(format!("{} challenges while its shards may ack (L3)", NAMES[node]));
        }
    }

    /// Lets a write reach the store.
    pub(super) fn land(&mut self, index: usize) {
        let before = self.store.version.clone();
        let flight = &self.flights[index];
        let (condition, document) = (flight.condition.clone(), flight.document.clone());
        let outcome = self.store.write(&condition, &document);
        let stored = matches!(outcome, WriteOutcome::Stored { .. });
        self.flights[index].outcome = Some(outcome);
        if !stored {
            return;
        }
        let Some(before) = before.map(|version| version.document) else {
            assert_eq!(condition, Condition::Absent, "the store keeps its conditions");
            return;
        };
        let raised = document.epoch.0.saturating_sub(before.epoch.0);
        let same = before.token.0 >> 32 == document.token.0 >> 32;
        if document.epoch < before.epoch || raised > 1 {
            self.fail("the epoch in the lease does not grow by one (L2)");
        }
        if raised == 0 && !same {
            self.fail("the reign changes without a higher epoch (L2)");
        }
        if !before.in_sync.contains(document.leader) {
            let name = NAMES[index_of(document.leader)];
            self.fail(format!("{name} takes the lease without being in in_sync (L3)"));
        }
    }
}

fn enter(list: &mut [Option<(u8, u8)>; 8], epoch: LeaseEpoch, who: (u8, u8)) -> bool {
    let slot = &mut list[usize::try_from(epoch.0).expect("small") % 8];
    let twice = slot.is_some_and(|other| other != who);
    *slot = Some(who);
    twice
}
