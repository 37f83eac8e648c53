//! Every answer is held against the committed log: A3, A5, A6, A7 of docs/INVARIANTS.md.

use duolog_engine::ids::LeaseEpoch;
use duolog_engine::shard::{Actions, Outcome, Receipt, Refusal, RequestId};

use super::ledger::Appended;
use super::work::{Answer, Known};
use super::world::World;

impl World {
    /// A client hears the answer to its submission.
    pub(super) fn reply(&mut self, to: RequestId, outcome: &Outcome, actions: &Actions) {
        let submission = to.0 as usize;
        assert!(self.unanswered.remove(&submission), "A5: {to:?} is answered once");
        let answer = match outcome {
            Outcome::Appended(receipt) => {
                self.appended(submission, receipt, actions);
                if receipt.replayed { Answer::Replayed } else { Answer::Appended }
            }
            Outcome::Refused(refusal) => {
                self.refused(submission, *refusal);
                self.report.refusals += 1;
                Answer::Refused(*refusal)
            }
        };
        self.work.submissions[submission].answer = Some(answer);
    }

    fn appended(&mut self, submission: usize, receipt: &Receipt, actions: &Actions) {
        let found = self.ledger.appends.get(&receipt.first_lsn);
        let found = found.unwrap_or_else(|| panic!("A5: {receipt:?} is not committed"));
        let made = &self.work.submissions[submission];
        assert_eq!(found.operation, made.operation, "A5: the receipt is of another append");
        assert_eq!(found.last_lsn, receipt.last_lsn, "A5: the receipt names the last event");
        assert_eq!(found.hlc, receipt.hlc, "A5: the receipt has the block's stamp");
        assert_eq!(receipt.epoch, LeaseEpoch(0), "A5: there is no reign");
        assert_eq!(actions.ranges_of(receipt), found.ranges, "A5: the receipt has the revisions");
        if receipt.replayed {
            self.report.replays += 1;
            assert!(found.key.is_some(), "A6: only an append with a key is replayed");
            return;
        }
        assert_eq!(found.token, made.token, "A7: the append has the request's token");
        self.expected(submission, found);
        let streams: Vec<usize> =
            found.ranges.iter().map(|range| self.streams.index_of(range.stream)).collect();
        for stream in streams {
            let latest = &mut self.latest[stream];
            assert!(submission >= *latest, "A2: {submission} came before {latest}: {stream}");
            *latest = submission;
        }
    }

    /// The request's expectations held where the append was put.
    fn expected(&self, submission: usize, found: &Appended) {
        let made = &self.work.submissions[submission];
        for (expect, (next, _)) in made.expects.iter().zip(&found.before) {
            let next = duolog_engine::ids::Revision(*next);
            assert!(expect.holds(next), "A3: {expect:?} did not hold at {next}: {made:?}");
        }
    }

    fn refused(&self, submission: usize, refusal: Refusal) {
        let made = &self.work.submissions[submission];
        let operation = &self.work.operations[made.operation];
        let (parts, limits) = (&operation.parts, &self.plan.config);
        // What is told about a stream was true at some moment between question and answer.
        let between = |index: u16, told: u64, which: fn((u64, u64)) -> u64| {
            let index = usize::from(index);
            let (low, high) = (which(made.seen[index]), which(self.now_of(parts[index].stream)));
            assert!(told >= low, "A3: {refusal:?} is older than the question, {low}");
            assert!(told <= high, "A3: {refusal:?} is not committed, only {high} is");
        };
        match refusal {
            Refusal::Conflict { stream_index, expected, next } => {
                assert_eq!(expected, made.expects[usize::from(stream_index)], "A3: of the request");
                assert!(!expected.holds(next), "A3: {refusal:?} is no conflict");
                between(stream_index, next.0, |(next, _)| next);
                self.not_a_replay(submission, refusal);
            }
            Refusal::Fenced { stream_index, given, highest } => {
                assert_eq!(Some(given), made.token, "A7: the token of the request");
                assert!(given < highest, "A7: {refusal:?} is no reason");
                between(stream_index, highest, |(_, token)| token);
                self.not_a_replay(submission, refusal);
            }
            Refusal::KeyReused => {
                let other = self.ledger.appends.values().any(|append| {
                    append.key == operation.key && append.operation != made.operation
                });
                assert!(
                    other,
                    "A3: {submission} is told of a use of its key that is not committed"
                );
            }
            Refusal::Busy { .. } => {
                // It is not counted itself.
                let full = self.unanswered.len() >= limits.in_flight_max;
                let bytes = |of: &usize| self.work.encode(*of, &self.streams).len();
                let sum: usize = self.unanswered.iter().map(bytes).sum();
                let over = sum + bytes(&submission) > limits.in_flight_max_bytes;
                assert!(full || over, "A8: busy with {} requests", self.unanswered.len());
            }
            Refusal::CrossShard { .. } => {
                let last = self.streams.names.len() - 1;
                let foreign = parts.iter().any(|part| part.stream == last);
                assert!(limits.shard_count > 1 && foreign, "A5: all streams live here");
            }
            Refusal::DiskFull => {
                assert!(self.plan.faults.no_space > 0, "A8: there was space at all times");
                self.not_a_replay(submission, refusal);
            }
            Refusal::ShuttingDown => assert!(self.stopping, "A5: nobody stops it"),
            Refusal::NotLeader => panic!("A5: a standalone node always leads"),
            Refusal::Unknown => assert!(self.stopping, "A5: no write has failed"),
            Refusal::Damaged => {
                let head = parts.iter().any(|part| self.failed_heads.contains(&part.stream));
                let record = self.failed_records.contains(&submission);
                assert!(head || record, "A5: everything that {submission} needs can be read");
            }
            Refusal::TooLarge { size, limit } => {
                assert_eq!(limit, limits.layout.block_max_bytes() as u64, "A8: a segment's room");
                assert!(size > limit, "A8: {refusal:?} would fit");
                let data: usize = operation.data_lengths.iter().sum();
                assert!(size > data as u64, "A8: {refusal:?} is smaller than its data");
            }
        }
    }

    fn now_of(&self, stream: usize) -> (u64, u64) {
        self.ledger.stream(stream)
    }

    /// An append whose key was in the window from the question to the answer is replayed, whatever
    /// it expects by now.
    fn not_a_replay(&self, submission: usize, refusal: Refusal) {
        let made = &self.work.submissions[submission];
        let Some(first) = made.key_seen else { return };
        let window = &self.ledger.window;
        let age = window.iter().rev().position(|(_, place)| *place == first);
        // Appends under way may have pushed it out of the ordered window already.
        let kept = age.is_some_and(|age| {
            age + self.unanswered.len() + self.uncommitted_appends()
                < self.plan.config.idempotency_window
        });
        assert!(!kept, "A6: {made:?} came before and got {refusal:?}");
    }

    fn uncommitted_appends(&self) -> usize {
        let blocks = &self.ledger.blocks[self.ledger.committed..];
        blocks.iter().map(|block| block.appends.len()).sum()
    }
}
