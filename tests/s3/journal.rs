//! Who held leave to serve, and when: all grants of all candidates on one clock.
//!
//! Held at the end: an epoch belongs to one node, a later reign to a higher epoch, and no two
//! nodes had leave to serve at one moment.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use duolog_lease::grant::Grant;
use duolog_lease::ids::{LeaseEpoch, MonoMs, NodeId};

#[derive(Clone, Copy, Debug)]
struct Change {
    node: NodeId,
    at: MonoMs,
    grant: Option<Grant>,
}

/// Leave to serve, from a moment to another.
#[derive(Clone, Copy, Debug)]
struct Leave {
    node: NodeId,
    epoch: LeaseEpoch,
    from: MonoMs,
    until: MonoMs,
}

#[derive(Clone, Debug, Default)]
pub struct Journal {
    changes: Arc<Mutex<Vec<Change>>>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Journal {
    pub fn grant(&self, node: NodeId, at: MonoMs, grant: Option<Grant>) {
        self.changes.lock().unwrap().push(Change { node, at, grant });
    }

    pub fn line(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }

    /// What the machines reported, for the message of a failure.
    pub fn story(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    /// A node that was killed counts as serving until its grant ends: its shards would have.
    fn leaves(&self) -> Vec<Leave> {
        let changes = self.changes.lock().unwrap();
        let mut leaves = Vec::new();
        for (index, change) in changes.iter().enumerate() {
            let Some(grant) = change.grant else { continue };
            let next = changes[index + 1..].iter().find(|later| later.node == change.node);
            let until = next.map_or(grant.serve_until, |next| next.at.min(grant.serve_until));
            let (node, epoch, from) = (change.node, grant.epoch, change.at);
            // Replaced within its millisecond, it let nobody do anything.
            if from < until {
                leaves.push(Leave { node, epoch, from, until });
            }
        }
        leaves
    }

    /// Holds what was seen against the promises; the number of reigns.
    pub fn hold(&self) -> usize {
        let mut owners = BTreeMap::new();
        let leaves = self.leaves();
        for leave in &leaves {
            let owner = *owners.entry(leave.epoch).or_insert(leave.node);
            assert_eq!(owner, leave.node, "two leaders of {:?}\n{}", leave.epoch, self.story());
        }
        for (index, one) in leaves.iter().enumerate() {
            for two in leaves[index + 1..].iter().filter(|two| two.node != one.node) {
                let (before, after) = (one.until <= two.from, two.until <= one.from);
                assert!(before || after, "{one:?} and {two:?} serve at once\n{}", self.story());
                assert!(
                    before == (one.epoch < two.epoch),
                    "{one:?} and {two:?} are out of order\n{}",
                    self.story()
                );
            }
        }
        owners.len()
    }
}
