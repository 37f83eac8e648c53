//! L1, R5: epochs, promises and commit marks only grow.

use duolog_engine::ids::LeaseEpoch;
use duolog_lease::document::Document;

use crate::simulator::node::CLUSTER;
use crate::simulator::world::World;

impl World {
    /// L1: the lease was replaced by this.
    pub(super) fn check_lease_grows(&mut self, body: &[u8]) {
        let document = Document::decode(body, CLUSTER).expect("L4: the lease can be read");
        let before = self.ledger.epoch;
        assert!(document.epoch >= before, "L1: {} after {before}", document.epoch);
        self.ledger.epoch = document.epoch;
    }

    /// L1: a promise reaches the disk.
    pub fn check_promise_grows(&self, node: usize, epoch: LeaseEpoch) {
        assert!(epoch >= self.nodes[node].promised, "L1: promises only grow");
    }

    /// R5: a node's commit mark moves.
    pub(super) fn check_mark_grows(&mut self, node: usize) {
        let end = self.process(node).shard.committed().lsn;
        let before = self.nodes[node].committed;
        assert!(end >= before, "R5: the commit mark goes back from {before} to {end}");
        self.nodes[node].committed = end;
    }
}
