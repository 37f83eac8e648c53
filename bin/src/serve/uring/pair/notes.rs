//! Carries what the chronicle finds worth telling to the node's event log.

use duolog_engine::ids::{MonoUs, ShardId};
use duolog_engine::shard::RequestId;
use duolog_lease::report::Report;

use super::admin;
use super::control::Control;
use crate::journal::Note;
use crate::serve::cluster::chronicle::{StoreAnswer, View};
use crate::serve::cluster::gauges::Role;
use crate::serve::visit::Asker;

/// A process that wakes so much later than it asked for did not run meanwhile, us.
const STALL_MIN_US: u64 = 500_000;

impl Control {
    /// Puts a note into the event log.
    pub(super) fn note(&self, note: Note) {
        let note = note.with("skew_ms", self.chronicle.borrow().skew_ms());
        self.shard.journal.note(self.shard.now(), note);
    }

    /// The lease machine's report.
    pub(super) fn note_report(&self, report: &Report) {
        let note = self.chronicle.borrow_mut().report(self.shard.now(), report);
        self.note(note);
    }

    /// How the store has answered about the lease.
    pub(super) fn note_answer(&self, answer: StoreAnswer) {
        let note = self.chronicle.borrow_mut().answered(answer);
        note.into_iter().for_each(|note| self.note(note));
    }

    /// A shard has admitted the reign's first append.
    pub(super) fn note_append(&self, epoch: u64) {
        self.now();
        let note = self.chronicle.borrow_mut().appended(self.shard.now(), epoch);
        note.into_iter().for_each(|note| self.note(note));
    }

    /// The timer was to ring at `due`, and this is the first moment after it.
    pub(super) fn note_stall(&self, due: MonoUs) {
        self.now();
        let late_us = self.shard.now().mono.0.saturating_sub(due.0);
        if late_us > STALL_MIN_US {
            let note = self.chronicle.borrow().stalled(late_us);
            self.note(note);
        }
    }

    /// Notes what has changed about this node.
    pub(super) fn note_changes(&self) {
        let now = self.now();
        let (status, grant) = {
            let machine = self.machine.borrow();
            (machine.status(now), machine.grant())
        };
        let (role, epoch) = Role::of(status);
        let epoch = epoch.unwrap_or(self.promised());
        let history = self.history.borrow();
        let admits = grant.filter(|grant| grant.admits(now.mono));
        let text = status.to_string();
        let view = View {
            role: role.name(),
            status: &text,
            epoch: epoch.0,
            admits_until: admits.map(|grant| MonoUs(grant.serve_until.0 * 1000)),
            acks_go_to: (role == Role::Leader).then(|| admin::second_copy(&self.readings())),
            reason: history.newest(),
        };
        let notes = self.chronicle.borrow_mut().look(self.shard.now(), &view);
        notes.into_iter().for_each(|note| self.note(note));
    }

    /// Whoever asks something that another thread answers.
    pub(super) fn asker(&self, from: ShardId, id: RequestId, correlation: u64) -> Asker {
        let inbox = self.shard.inboxes[from.0 as usize].clone();
        let node = self.settings.identity.node.to_string();
        Asker { inbox, id, correlation, node }
    }
}
