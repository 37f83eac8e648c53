//! R2, D3, P5, A5: what is acknowledged is on two disks, or on one and in the chain; every later
//! leader has it, and both nodes in the end.

use duolog_engine::block::BlockHeader;
use duolog_engine::ids::{LeaseEpoch, Lsn};
use duolog_engine::replica::BlockEnd;
use duolog_engine::replica::chain::Seq;
use duolog_engine::shard::{Copies, Receipt};

use crate::simulator::store::Key;
use crate::simulator::uploading::place_of;
use crate::simulator::world::World;

impl World {
    /// R2: where the events of an answer are at the moment it leaves.
    pub(super) fn check_ack_durable(&mut self, node: usize, receipt: &Receipt) {
        let end = self.block_of(node, receipt.last_lsn);
        assert!(self.nodes[node].has(end), "R2: {} is acked and not on the own disk", end.lsn);
        let stored = self.ledger.stored.get(&end.lsn).is_some_and(|all| all.contains(&end.hash));
        let peer = self.nodes[1 - node].has(end);
        // What was acked by a node whose disk is lost now is on one disk: a pair survives that.
        let lost = self.gone == Some(1 - node);
        assert!(stored || peer || lost, "R2: LSN {} is acked with one copy", end.lsn);
        match receipt.copies {
            Copies::Peer => self.saw("an append is acked by the wire"),
            Copies::Chain => self.saw("an append is acked by the chain"),
            Copies::Disk => panic!("R2: one disk is not enough"),
        }
        if self.ledger.acked.is_none_or(|known| known.lsn < end.lsn) {
            self.ledger.acked = Some(end);
        }
    }

    /// The end of the block with this LSN, in the node's log.
    fn block_of(&mut self, node: usize, lsn: Lsn) -> BlockEnd {
        let block = self.process(node).shard.in_memory_block_up_to(lsn).map(<[u8]>::to_vec);
        let block = block.expect("a block that commits is in memory");
        let header = BlockHeader::decode(&block).expect("it is whole");
        BlockEnd { lsn: header.last_lsn(), hash: header.hash }
    }

    /// D3: what a node has committed or promised survives its end.
    pub fn check_started(&mut self, node: usize) {
        let before = self.nodes[node].committed;
        let end = self.process(node).shard.end().lsn;
        assert!(end >= before, "D3: node {} comes back with {end}, had {before}", node + 1);
        self.nodes[node].committed = self.process(node).shard.committed().lsn;
    }

    /// P5: whoever opens a reign has everything that was acknowledged.
    pub fn check_opened(&mut self, node: usize, epoch: LeaseEpoch) {
        if !self.holds_lease(node, epoch) {
            self.saw("a reign opens after the next one was won");
        }
        if let Some(acked) = self.ledger.acked {
            let newest = self.bucket_has_later_open(epoch);
            let has = self.nodes[node].has(acked);
            let (who, lsn) = (node + 1, acked.lsn);
            assert!(has || newest, "P5: node {who} opens {epoch} without {lsn}, acknowledged");
        }
    }

    fn bucket_has_later_open(&self, epoch: LeaseEpoch) -> bool {
        let open = |epoch| self.bucket.get(Key::Object(place_of(epoch, Seq::OPEN)));
        (epoch.0 + 1..=self.ledger.epoch.0).any(|later| open(LeaseEpoch(later)).is_some())
    }

    /// A5: in the end both nodes have it.
    pub(super) fn check_acked_kept(&self) {
        let Some(acked) = self.ledger.acked else { return };
        for node in [0, 1] {
            let who = node + 1;
            assert!(self.nodes[node].has(acked), "A5: node {who} lacks LSN {}", acked.lsn);
        }
    }
}
