//! Readers that follow the log to its end, now on one node and now on the other, as subscriptions
//! and reads of the log with any consistency do.

use duolog_engine::block::Block;
use duolog_engine::ids::Lsn;
use duolog_engine::record::Record;

use super::world::{Due, World};

/// How many there are.
pub const TAILS: usize = 3;
/// Longest pause of a reader, us.
const PAUSE_US: u64 = 400_000;

/// One reader.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tail {
    node: usize,
    /// The last LSN that it has read.
    at: Lsn,
}

impl World {
    /// A reader takes what there is.
    pub fn tail(&mut self, tail: usize) {
        if self.chance.percent(10) {
            self.tails[tail].node = 1 - self.tails[tail].node;
            self.saw("a reader goes on at the other node");
        }
        let node = self.tails[tail].node;
        let stopped = self.nodes[node].frozen_until(self.now_us).is_some();
        if self.nodes[node].process.is_some() && !stopped {
            self.read_on(tail, node);
        }
        let us = self.chance.between(1, PAUSE_US);
        self.after(us, Due::Tail(tail));
    }

    /// Reads up to what the node shows.
    pub fn read_on(&mut self, tail: usize, node: usize) {
        let committed = self.process(node).shard.committed().lsn;
        for bytes in self.nodes[node].blocks(self.tails[tail].at, committed) {
            let block = Block::decode(&bytes).expect("Q3: what is read is whole");
            for record in block.records() {
                let (_, record) = record.expect("Q3: what is read is whole");
                if let Record::Event(event) = record {
                    self.check_event_shown(node, &event);
                }
            }
            self.tails[tail].at = block.header.last_lsn();
        }
    }

    /// How far a reader has come.
    pub fn tail_at(&self, tail: usize) -> Lsn {
        self.tails[tail].at
    }
}
