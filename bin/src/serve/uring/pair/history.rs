//! The changes of leadership that this process saw, newest last.

use std::collections::VecDeque;

use duolog_engine::ids::WallMs;
use duolog_lease::report::{Report, What};
use serde_json::{Value, json};

/// Changes remembered.
const CHANGES_MAX: usize = 64;

#[derive(Debug)]
struct Change {
    at: WallMs,
    epoch: u64,
    event: &'static str,
    reason: String,
    pause_ms: Option<u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::serve) struct History {
    changes: VecDeque<Change>,
    /// Changes noted so far, those forgotten included.
    count: u64,
    /// When a leader was heard last, or this node challenged.
    quiet_since: Option<WallMs>,
}

impl History {
    /// A leader showed a sign of life.
    pub fn heard(&mut self, at: WallMs) {
        self.quiet_since = Some(at);
    }

    /// Notes what is worth telling an operator later.
    pub fn note(&mut self, at: WallMs, report: &Report) {
        let mut pause_ms = None;
        match &report.what {
            What::Challenges(_) => {
                self.quiet_since.get_or_insert(at);
            }
            What::Leads => pause_ms = self.quiet_since.take().map(|since| at.0 - since.0.min(at.0)),
            _ => {}
        }
        self.count += 1;
        if self.changes.len() >= CHANGES_MAX {
            self.changes.pop_front();
        }
        let (epoch, event) = (report.epoch.0, report.what.name());
        let reason = report.what.to_string();
        self.changes.push_back(Change { at, epoch, event, reason, pause_ms });
    }

    /// The newest reason of any change.
    pub fn newest(&self) -> Option<&str> {
        self.changes.back().map(|change| change.reason.as_str())
    }

    /// Changes noted so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The reason of a change of one of these kinds noted after the first `before`.
    pub fn since(&self, before: u64, events: &[&str]) -> Option<&str> {
        let fresh = usize::try_from(self.count - before).unwrap_or(usize::MAX);
        let skip = self.changes.len().saturating_sub(fresh);
        let found = self.changes.iter().skip(skip).find(|change| events.contains(&change.event));
        found.map(|change| change.reason.as_str())
    }

    /// For the status.
    pub fn json(&self) -> Value {
        let changes = self.changes.iter().map(|change| {
            json!({
                "at_ms": change.at.0,
                "epoch": change.epoch,
                "event": change.event,
                "reason": change.reason,
                "pause_ms": change.pause_ms,
            })
        });
        changes.collect()
    }
}
