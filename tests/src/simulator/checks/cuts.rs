//! R4: nobody cuts what it has committed, or what anybody was told and it has.

use duolog_engine::ids::Lsn;

use crate::simulator::world::World;

impl World {
    /// A node is about to cut its log behind `lsn`.
    pub fn check_cut(&mut self, node: usize, lsn: Lsn) {
        let committed = self.process(node).shard.committed().lsn;
        assert!(lsn >= committed, "R4: node {} cuts to {lsn}, {committed} is committed", node + 1);
        if let Some(acked) = self.ledger.acked.filter(|acked| acked.lsn > lsn) {
            let has = self.nodes[node].has(acked);
            assert!(!has, "R4: node {} cuts {} that was acknowledged", node + 1, acked.lsn);
        }
        self.note(node, || format!("cuts its log behind LSN {lsn}"));
    }
}
