//! How a reign begins and ends: challenge, chains, Open; crashes and deposed leaders.

use duolog_engine::block::BlockHeader;
use duolog_engine::ids::{LeaseEpoch, Lsn};
use duolog_engine::segment::LogEnd;
use duolog_engine::shard::{Event, Role};
use duolog_lease::in_sync::InSync;

use super::node::IDENTITY;
use super::world::{Chain, Mistake, World};

impl World {
    /// `node` challenges, wins, and opens its reign. The leader before hears of it later.
    pub fn reign(&mut self, node: usize) {
        let epoch = LeaseEpoch(self.epoch.0 + 1);
        let running = matches!(self.nodes[node].shard.role(), Role::Leader { .. });
        if running && self.chance.percent(80) {
            return;
        }
        if self.mistake != Mistake::FollowsOn {
            self.step(node, Event::StopFollowing);
        }
        self.nodes[node].challenged = true;
        // The others' writes go on while the lease is decided.
        for _ in 0..self.chance.below(6) {
            self.complete_write(node);
            self.complete_write(1 - node);
        }
        (self.leader, self.epoch) = (node, epoch);
        self.nodes[node].promised = epoch;
        self.step(node, Event::Promote { epoch });
        assert_eq!(self.nodes[node].shard.role(), Role::Promoting { epoch });
        if self.link.as_ref().is_some_and(|link| link.leader != node) {
            self.link = None;
        }
        self.rest(node);
        for chain in self.chains.values_mut() {
            chain.sealed = true;
        }
        if self.mistake != Mistake::IgnoredChain {
            self.read_chains(node, epoch);
        }
        self.rest(node);
        self.open(node, epoch);
        self.report.reigns += 1;
        self.link = None;
    }

    /// P2, P3: from the newest chain whose base is in the own log.
    fn read_chains(&mut self, node: usize, epoch: LeaseEpoch) {
        let epochs: Vec<LeaseEpoch> = self.chains.keys().copied().collect();
        let mut from = 0;
        for (index, epoch) in epochs.iter().enumerate() {
            let base = self.chains[epoch].base.expect("every chain here was opened");
            if base.lsn == Lsn(0) || self.nodes[node].has(&base) {
                from = index;
            }
        }
        for chain in &epochs[from..] {
            for index in 0..self.chains[chain].blocks.len() {
                let block = self.chains[chain].blocks[index].clone();
                self.apply(node, epoch, &block);
            }
        }
    }

    fn apply(&mut self, node: usize, epoch: LeaseEpoch, block: &[u8]) {
        let header = BlockHeader::decode(block).unwrap();
        let (lsn, hash, hlc) = (header.last_lsn(), header.hash, header.hlc);
        if self.nodes[node].has(&LogEnd { lsn, hash, hlc, epoch: header.epoch }) {
            return;
        }
        let before = Lsn(header.first_lsn.0 - 1);
        if self.nodes[node].shard.end().lsn > before {
            self.report.cuts += 1;
            self.nodes[node].cut(before);
            self.step(node, Event::Tick);
            self.step(node, Event::Promote { epoch });
        }
        self.step(node, Event::Received { epoch, block });
        self.rest(node);
    }

    /// P5: the Open holds what lies behind the commit mark.
    fn open(&mut self, node: usize, epoch: LeaseEpoch) {
        let base = self.nodes[node].shard.committed();
        let end = self.nodes[node].shard.end();
        let mut blocks = Vec::new();
        let mut at = base.lsn;
        while at < end.lsn {
            let (block, last) = self.read_block(node, at);
            blocks.push(block);
            at = last;
        }
        self.chains.insert(epoch, Chain { base: Some(base), blocks, sealed: false });
        let others = InSync::pair(self.nodes[0].id, self.nodes[1].id);
        self.step(node, Event::Members { in_sync: others, proposal: None });
        self.step(node, Event::Opened { epoch });
        self.nodes[node].challenged = false;
        self.nodes[node].opened_with = Some(end);
        self.serve_until[node] = self.now_ms + 500;
        self.grant(node);
        assert_eq!(self.nodes[node].disk.end_at(IDENTITY, end.lsn).map(|at| at.end), Some(end));
    }

    /// L10: a leader hears of a higher reign.
    pub fn notice_deposed(&mut self, node: usize) {
        if self.leader != node {
            self.step(node, Event::Demote);
        }
    }

    /// The power fails: what is not durable is gone, or some of the writes under way are not.
    pub fn crash(&mut self, node: usize) {
        self.report.crashes += 1;
        for write in std::mem::take(&mut self.nodes[node].writes) {
            if self.chance.percent(40) {
                self.nodes[node].disk.write(write.place, &write.image);
            }
        }
        self.nodes[node].restart();
        self.link = None;
        self.step(node, Event::Tick);
        // A leader that comes back finds its own lease and takes a new reign (L2).
        if self.leader == node && self.chance.percent(50) {
            self.reign(node);
        }
    }
}
