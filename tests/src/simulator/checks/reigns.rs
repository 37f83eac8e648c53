//! L1, L3, L8: who acts at an epoch has promised it, who challenges acks nobody, and one grant at
//! most serves at a time as long as clocks are bounded.

use duolog_engine::ids::LeaseEpoch;
use duolog_engine::shard::Receipt;

use crate::simulator::plan::Profile;
use crate::simulator::world::World;

impl World {
    /// After every step of a lease machine.
    pub fn check_lease(&mut self, node: usize) {
        let process = self.process(node);
        let (promised, _) = process.lease.promised();
        if let Some(reign) = process.lease.reign() {
            assert!(promised >= reign, "L3: it leads {reign} and has promised {promised}");
        }
        if self.plan.profile == Profile::Bounded {
            let two = [0, 1].into_iter().all(|node| self.serves(node));
            assert!(!two, "L8: two grants are valid at once");
        }
    }

    /// Whether the lease machine lets this node serve, by the node's own clock.
    pub(super) fn serves(&self, node: usize) -> bool {
        let now = self.nodes[node].now(self.now_us).mono.ms();
        let process = self.nodes[node].process.as_ref();
        process.and_then(|process| process.lease.grant()).is_some_and(|grant| grant.serves(now))
    }

    /// L8: an answer leaves under the shard's grant, which may hear late that it was withdrawn.
    pub(super) fn check_ack_granted(&mut self, node: usize, receipt: &Receipt) {
        let now = self.nodes[node].now(self.now_us).mono.ms();
        let grant = self.process(node).grant;
        let serves = grant.is_some_and(|grant| grant.serves(now));
        assert!(serves, "L8: LSN {} is acked without a grant", receipt.last_lsn);
    }

    /// L1: nobody acts at an epoch that its disk has not promised.
    pub fn check_promised(&mut self, node: usize, epoch: LeaseEpoch) {
        let promised = self.nodes[node].promised;
        assert!(promised >= epoch, "L1: it acts at epoch {epoch}, its disk says {promised}");
    }

    /// L3: from a challenge on nothing is acked for a leader before it.
    pub fn check_not_challenging(&mut self, node: usize, epoch: LeaseEpoch) {
        let challenge = self.process(node).challenge;
        let older = challenge.is_none_or(|challenge| challenge <= epoch);
        assert!(older, "L3: it challenges for {challenge:?} and acks at epoch {epoch}");
    }
}
