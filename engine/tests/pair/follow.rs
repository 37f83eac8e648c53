//! The connection between leader and follower, and the chain that stands in for it.

use std::collections::VecDeque;

use duolog_engine::ids::Lsn;
use duolog_engine::replica::hello::{Fork, HelloLog, fork};
use duolog_engine::shard::{Event, Role};

use super::world::{Link, Mistake, World};

impl World {
    /// What the leader has closed goes to the follower (R1).
    pub fn send(&mut self, node: usize) {
        let shard = &self.nodes[node].shard;
        let Some(link) = self.link.as_mut().filter(|link| link.leader == node) else { return };
        if !link.follows || shard.role() != (Role::Leader { epoch: link.epoch }) {
            return;
        }
        while link.sent < shard.end().lsn {
            let first = link.sent.next();
            // What is not in memory any more comes from the disk.
            let Some(block) = shard.in_memory_block(first) else {
                self.link = None;
                return;
            };
            link.sent = duolog_engine::block::BlockHeader::decode(block).unwrap().last_lsn();
            link.blocks.push_back(block.to_vec());
            self.report.caught_up += 1;
        }
        if self.mistake == Mistake::AckWithoutCoverage {
            self.acks.push((node, self.epoch, self.nodes[node].shard.end().lsn));
        }
    }

    /// A hello: the follower fits its log to the leader's (R3), then takes blocks.
    pub fn connect(&mut self) {
        let (leader, epoch) = (self.leader, self.epoch);
        let follower = 1 - leader;
        let leads = self.nodes[leader].shard.role() == Role::Leader { epoch };
        if self.link.is_some() || !leads || self.nodes[follower].promised > epoch {
            return;
        }
        // The promise is durable before the answer.
        self.nodes[follower].promised = epoch;
        self.nodes[follower].challenged = false;
        self.step(follower, Event::Demote);
        self.step(follower, Event::StopFollowing);
        self.rest(follower);
        let (shard, own) = (&self.nodes[leader].shard, &self.nodes[follower].shard);
        // The end as it was at promotion: the last block that is not of this reign.
        let end = shard.epoch_marks().last().filter(|_| shard.end().epoch == epoch);
        let fixed = end.map_or(shard.end().lsn, |mark| mark.lsn);
        let end = self.nodes[leader].disk.end_at(super::node::IDENTITY, fixed);
        let Some(end) = end.map(|found| found.end) else { return };
        let shard = &self.nodes[leader].shard;
        let marks: Vec<_> =
            shard.epoch_marks().iter().copied().filter(|mark| mark.lsn < fixed).collect();
        let complete = shard.epoch_marks_complete();
        let hello = HelloLog { epoch, end, marks: &marks, complete };
        let decided = fork(own.epoch_marks(), own.epoch_marks_complete(), &own.end(), &hello);
        let kept = match decided {
            Fork::Keep => own.end().lsn,
            Fork::CutAfter { lsn } => lsn,
            other => panic!("R3: {other:?}"),
        };
        let too_much = self.mistake == Mistake::CutTooMuch && kept > Lsn(0);
        let kept = if too_much { Lsn(kept.0 - 1) } else { kept };
        if kept < self.nodes[follower].shard.end().lsn {
            self.report.cuts += 1;
            self.nodes[follower].cut(kept);
            self.step(follower, Event::Tick);
        }
        self.step(follower, Event::Follow { epoch });
        let (blocks, marks) = (VecDeque::new(), VecDeque::new());
        let mut link = Link { leader, epoch, blocks, marks, sent: kept, follows: true };
        // What is no longer in the leader's memory is read from its disk.
        let durable = self.nodes[leader].shard.durable().lsn;
        let in_memory =
            |world: &Self, first| world.nodes[leader].shard.in_memory_block(first).is_some();
        while link.sent < durable && !in_memory(self, link.sent.next()) {
            let (block, last) = self.read_block(leader, link.sent);
            link.sent = last;
            link.blocks.push_back(block);
        }
        self.link = Some(link);
        self.send(self.leader);
    }

    /// The block behind the one that ends with `lsn`, from the disk; its last LSN.
    pub fn read_block(&mut self, node: usize, lsn: Lsn) -> (Vec<u8>, Lsn) {
        use duolog_engine::block::{BLOCK_HEADER_BYTES, BlockHeader};
        use duolog_engine::ids::{Generation, Place};
        use duolog_engine::recovery::LogSource;
        let disk = &mut self.nodes[node].disk;
        let Place { generation, offset } = disk.end_at(super::node::IDENTITY, lsn).unwrap().behind;
        let next = Place { generation: Generation(generation.0 + 1), offset: 4096 };
        for at in [Place { generation, offset: offset.max(4096) }, next] {
            let mut head = [0; BLOCK_HEADER_BYTES];
            let read = disk.read(at.generation, u64::from(at.offset), &mut head).unwrap();
            let Ok(header) = BlockHeader::decode(&head[..read]) else { continue };
            if header.first_lsn == lsn.next() {
                let mut block = vec![0; header.length()];
                disk.read(at.generation, u64::from(at.offset), &mut block).unwrap();
                return (block, header.last_lsn());
            }
        }
        panic!("D1: the block behind {lsn} is not on the disk")
    }

    /// Lets everything that is under way to a node's disk become durable.
    pub fn rest(&mut self, node: usize) {
        self.step(node, Event::Flush);
        for _ in 0..1_000 {
            if self.nodes[node].shard.durable() == self.nodes[node].shard.end()
                && self.nodes[node].writes.is_empty()
            {
                return;
            }
            self.prepare(node);
            self.complete_write(node);
            self.step(node, Event::Flush);
        }
        panic!("A5: writes of node {node} never end");
    }

    pub fn deliver_block(&mut self) {
        for _ in 0..1 + self.chance.below(6) {
            let Some(link) = self.link.as_mut() else { return };
            let (follower, epoch) = (1 - link.leader, link.epoch);
            let Some(block) = link.blocks.pop_front() else { break };
            if self.nodes[follower].shard.role() != (Role::Follower { epoch: Some(epoch) }) {
                self.link = None;
                return;
            }
            self.step(follower, Event::Received { epoch, block: &block });
        }
        if let Some(link) = &self.link {
            let follower = 1 - link.leader;
            self.step(follower, Event::Flush);
        }
    }

    pub fn deliver_ack(&mut self) {
        if self.acks.is_empty() {
            return;
        }
        let at = self.chance.below(self.acks.len() as u64) as usize;
        let (to, mut epoch, lsn) = self.acks[at];
        // Many come twice.
        if self.chance.percent(50) {
            self.acks.swap_remove(at);
        }
        if self.mistake == Mistake::AckOfAnotherEpoch {
            epoch = self.epoch;
        }
        let node = self.nodes[1 - to].id;
        self.step(to, Event::PeerAcked { node, epoch, lsn });
    }

    /// The leader pushes its commit mark, and late ones come.
    pub fn deliver_mark(&mut self) {
        let Some(link) = self.link.as_mut() else { return };
        let (leader, epoch) = (link.leader, link.epoch);
        let shard = &self.nodes[leader].shard;
        let shown = match self.mistake {
            Mistake::ShowsUncommitted => shard.end().lsn,
            _ => shard.committed().lsn,
        };
        if shard.role() == (Role::Leader { epoch }) {
            link.marks.push_back(shown);
        }
        if let Some(lsn) = link.marks.pop_front() {
            self.step(1 - leader, Event::CommitMark { epoch, lsn });
        }
    }

    /// The leader's blocks behind the end of its chain and its commit mark are stored (C1).
    pub fn upload(&mut self) {
        let node = self.chance.below(2) as usize;
        let Role::Leader { epoch } = self.nodes[node].shard.role() else { return };
        let chain = self.chains.get_mut(&epoch).expect("a leader has opened its chain");
        if chain.sealed {
            // L10: a Seal in the own chain.
            return self.step(node, Event::Demote);
        }
        let shard = &self.nodes[node].shard;
        let mut next = shard.committed().lsn.next();
        if let Some(last) = chain.blocks.last() {
            let last = duolog_engine::block::BlockHeader::decode(last).unwrap().last_lsn();
            next = next.max(last.next());
        }
        let Some(block) = shard.in_memory_block(next) else { return };
        let last = duolog_engine::block::BlockHeader::decode(block).unwrap().last_lsn();
        chain.blocks.push(block.to_vec());
        self.step(node, Event::ChainStored { epoch, lsn: last });
    }
}
