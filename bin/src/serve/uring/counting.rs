//! What the shard's driver counts on the way: see [`crate::serve::metrics`].

use duolog_engine::ids::{Lsn, MonoUs};
use duolog_engine::shard::{Outcome, Role, Shard};
use duolog_net::session::Answers;

use super::shard_loop::ShardLoop;

impl ShardLoop {
    /// A block goes to the disk and to the other node; when.
    pub(super) fn block_sent(&self, shard: &Shard, first_lsn: Lsn) -> MonoUs {
        if matches!(shard.role(), Role::Standalone | Role::Leader { .. }) {
            self.blocks.borrow_mut().sent(first_lsn, self.now_us());
        }
        self.now_us()
    }

    /// An append that came then is about to be answered.
    pub(super) fn count_outcome(&self, arrived: MonoUs, outcome: &Outcome) {
        match outcome {
            Outcome::Appended(receipt) if receipt.replayed => self.metrics().replays.add(1),
            Outcome::Appended(receipt) => {
                let mut blocks = self.blocks.borrow_mut();
                blocks.answered(arrived, receipt, self.now_us(), self.metrics());
            }
            // Counted by the session that sends it.
            Outcome::Refused(_) => {}
        }
    }

    /// Shows how many requests wait for their answers; before an answer leaves, so that whoever
    /// has it finds it counted.
    pub(super) fn count_requests(&self) -> u64 {
        let requests = self.requests.borrow().len() as u64;
        self.metrics().in_flight.set(requests);
        requests
    }

    /// After a step: notes what it has answered, committed and covered.
    pub(super) fn count_step(&self) {
        self.count_requests();
        let mut blocks = self.blocks.borrow_mut();
        if blocks.is_empty() {
            return;
        }
        let shard = self.shard.borrow();
        let covered = self.pair.is_some().then(|| shard.covered());
        blocks.settle(shard.committed().lsn, covered, self.now_us(), self.metrics());
    }

    /// Counts the errors among answers that are about to be sent.
    pub(super) fn count_errors(&self, answers: &mut Answers) {
        if answers.has_errors() {
            for (code, count) in answers.take_errors() {
                self.metrics().refused(code, count);
            }
        }
    }

    /// Shows how many connections there are.
    pub(super) fn count_connections(&self) {
        self.metrics().connections.set(self.connections.borrow().len() as u64);
    }
}
