//! What is promised (docs/INVARIANTS.md), looked at whenever something happens that could break it.
//! One file for each kind of promise; what they remember is in the ledger.

mod agreement;
mod bounds;
mod chain;
mod cuts;
mod durability;
mod freshness;
mod growth;
mod healing;
mod once;
mod reigns;
mod revisions;
mod visibility;

use std::collections::BTreeMap;

use duolog_engine::block::{Block, BlockHash};
use duolog_engine::ids::{LeaseEpoch, Lsn};
use duolog_engine::record::{EventRecord, Record};
use duolog_engine::replica::BlockEnd;
use duolog_engine::shard::Receipt;

use super::world::World;

/// What anybody was told.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Ends of blocks that a leader has committed.
    committed: BTreeMap<Lsn, BlockHash>,
    /// The newest end that a client or another node may rely on.
    acked: Option<BlockEnd>,
    /// First LSN that an operation was told.
    receipts: BTreeMap<u64, Lsn>,
    /// Revision behind the last acknowledged event of each stream.
    ends: BTreeMap<usize, u64>,
    /// The highest epoch of the lease so far.
    epoch: LeaseEpoch,
    /// What readers were shown at an LSN: operation and revision.
    shown: BTreeMap<Lsn, (u64, u64)>,
    /// Blocks that the chain of an epoch has held at some time.
    stored: BTreeMap<Lsn, Vec<BlockHash>>,
}

impl World {
    /// What an answer rests on at the moment it leaves.
    pub fn check_ack(&mut self, node: usize, receipt: &Receipt) {
        self.check_ack_granted(node, receipt);
        if receipt.replayed {
            self.saw("a retry is answered as before");
        } else {
            self.check_ack_durable(node, receipt);
        }
        self.check_bounds(node);
    }

    /// A client learns that its operation is in the log.
    pub fn check_receipt(&mut self, node: usize, operation: u64, receipt: &Receipt) {
        self.check_receipt_once(operation, receipt);
        if !receipt.replayed {
            self.note_stream_ends(node, operation);
        }
    }

    /// A node holds more for committed than before.
    pub fn check_commit(&mut self, node: usize) {
        self.check_mark_grows(node);
        self.check_one_history(node);
        self.check_shown(node);
    }

    /// Everything in the end, from a node's disk.
    pub fn check_end(&mut self) {
        let end = self.process(0).shard.end();
        self.check_acked_kept();
        self.check_tails(end.lsn);
        let events = self.read_log(end.lsn);
        self.check_all_shown(&events);
        let next = self.check_revisions(&events);
        let operations = self.check_operations(&events);
        self.digest.add(&(end, next, operations));
        if self.ledger.receipts.len() > 20 {
            self.saw("a run with many appends");
        }
    }

    /// The events of the log up to `end`.
    fn read_log(&self, end: Lsn) -> Vec<Kept> {
        let mut events = Vec::new();
        for bytes in self.nodes[0].blocks(Lsn(0), end) {
            let block = Block::decode(&bytes).expect("D1: blocks are whole");
            for record in block.records() {
                let (_, record) = record.expect("D1: records are whole");
                if let Record::Event(event) = record {
                    events.push(Kept::of(&event));
                }
            }
        }
        events
    }
}

/// An event as it was found in the log.
struct Kept {
    lsn: Lsn,
    stream: String,
    revision: u64,
    /// Which operation of a client it is of.
    operation: u64,
}

impl Kept {
    fn of(event: &EventRecord<'_>) -> Self {
        let id = event.data[..8].try_into().expect("clients write eight bytes and more");
        Self {
            lsn: event.lsn,
            stream: event.stream.to_owned(),
            revision: event.revision.0,
            operation: u64::from_le_bytes(id),
        }
    }
}
