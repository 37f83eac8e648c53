//! R2: no two different blocks are committed at one LSN.

use duolog_engine::shard::Role;

use crate::simulator::world::World;

impl World {
    /// What a leader commits is what everybody commits there.
    pub(super) fn check_one_history(&mut self, node: usize) {
        let process = self.process(node);
        let end = process.shard.committed();
        let leads = matches!(process.shard.role(), Role::Leader { .. });
        let known = self.ledger.committed.get(&end.lsn).copied();
        let same = known.is_none_or(|hash| hash == end.hash);
        assert!(same, "R2: two blocks are committed at LSN {}", end.lsn);
        if leads {
            self.ledger.committed.insert(end.lsn, end.hash);
        }
    }
}
