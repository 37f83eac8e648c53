//! A5, A6: an operation is in the log once, whole, at the place told, however often it is sent; one
//! that was acknowledged is there.

use std::collections::BTreeMap;

use duolog_engine::ids::Lsn;
use duolog_engine::shard::Receipt;

use super::Kept;
use crate::simulator::world::World;

impl World {
    /// Where an operation was said to be.
    pub(in crate::simulator) fn receipt_of(&self, operation: u64) -> Option<Lsn> {
        self.ledger.receipts.get(&operation).copied()
    }

    pub(super) fn check_receipt_once(&mut self, operation: u64, receipt: &Receipt) {
        let first = *self.ledger.receipts.entry(operation).or_insert(receipt.first_lsn);
        assert_eq!(first, receipt.first_lsn, "A6: operation {operation} is in the log twice");
    }

    /// Looks for every operation in the log; how many there are.
    pub(super) fn check_operations(&self, events: &[Kept]) -> usize {
        let mut found: BTreeMap<u64, (Lsn, u64)> = BTreeMap::new();
        for event in events {
            let id = event.operation;
            let expected = self.clients.operations[&id].expected;
            if let Some(expected) = expected.filter(|_| !found.contains_key(&id)) {
                let got = event.revision;
                assert_eq!(got, expected, "A5: operation {id} expected another revision");
            }
            let entry = found.entry(id).or_insert((event.lsn, 0));
            assert_eq!(event.lsn.0, entry.0.0 + entry.1, "A6: operation {id} is there twice");
            entry.1 += 1;
        }
        for (id, (first, events)) in &found {
            let operation = &self.clients.operations[id];
            let wanted: u64 = operation.parts.iter().map(|(_, events)| events).sum();
            assert_eq!(*events, wanted, "A5: operation {id} is there in part");
            if let Some(told) = self.ledger.receipts.get(id) {
                assert_eq!(told, first, "A5: operation {id} is elsewhere");
            }
        }
        for id in self.ledger.receipts.keys() {
            assert!(found.contains_key(id), "A5: operation {id} was acknowledged and is lost");
        }
        found.len()
    }
}
