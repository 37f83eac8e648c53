//! R5: a follower shows nothing that no leader has committed.

use duolog_engine::ids::Lsn;
use duolog_engine::shard::Role;

use crate::simulator::world::World;

impl World {
    /// What a node shows to readers.
    pub(super) fn check_shown(&mut self, node: usize) {
        let process = self.process(node);
        let shown = process.shard.committed().lsn;
        if matches!(process.shard.role(), Role::Leader { .. }) {
            return;
        }
        let newest = self.ledger.committed.last_key_value().map_or(Lsn(0), |(lsn, _)| *lsn);
        assert!(shown <= newest, "R5: node {} shows {shown}, {newest} is committed", node + 1);
    }
}
