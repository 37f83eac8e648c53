//! When the blocks under way were sent, and what is known of the appends that they answer: from
//! this the stages are counted. Pure: the shard's driver says what time it is.
//!
//! Costs little per append: those that arrived together, left together and are answered together
//! are recorded as one.

use std::collections::VecDeque;

use duolog_engine::ids::{Lsn, MonoUs};
use duolog_engine::shard::{Copies, Receipt};

use super::shard::ShardMetrics;

/// A leader's or a lone node's blocks from their write to their commit.
#[derive(Debug, Default)]
pub struct Blocks {
    /// In order: the first LSN, and when it was given to the disk and the other node.
    sent: VecDeque<(Lsn, MonoUs)>,
    /// How many of them have their second copy.
    covered: usize,
    /// Which of them the answers are at.
    answering: usize,
    run: Option<Run>,
}

/// Appends whose times are the same.
#[derive(Clone, Copy, Debug)]
struct Run {
    arrived: MonoUs,
    /// Where the block behind theirs begins.
    until: Lsn,
    sent: Option<MonoUs>,
    copies: Copies,
    appends: u64,
    events: u64,
}

impl Blocks {
    /// A block is on its way.
    pub fn sent(&mut self, first_lsn: Lsn, now: MonoUs) {
        self.sent.push_back((first_lsn, now));
    }

    /// The append with this receipt, which arrived then, is answered now. Appends are answered in
    /// the order of their LSNs.
    pub fn answered(
        &mut self,
        arrived: MonoUs,
        receipt: &Receipt,
        now: MonoUs,
        metrics: &ShardMetrics,
    ) {
        let events = (receipt.last_lsn.0 + 1).saturating_sub(receipt.first_lsn.0);
        if let Some(run) = &mut self.run
            && run.arrived == arrived
            && run.copies == receipt.copies
            && receipt.first_lsn < run.until
        {
            run.appends += 1;
            run.events += events;
            return;
        }
        self.record(now, metrics);
        let mut next = self.sent.get(self.answering + 1);
        while next.is_some_and(|(lsn, _)| *lsn <= receipt.first_lsn) {
            self.answering += 1;
            next = self.sent.get(self.answering + 1);
        }
        let until = next.map_or(Lsn(u64::MAX), |(lsn, _)| *lsn);
        let sent = self.sent.get(self.answering).map(|(_, sent)| *sent);
        let copies = receipt.copies;
        self.run = Some(Run { arrived, until, sent, copies, appends: 1, events });
    }

    /// What was answered is out. Everything up to `committed` is committed, and up to `covered`
    /// there is a second copy; `None` where none is needed.
    pub fn settle(
        &mut self,
        committed: Lsn,
        covered: Option<Lsn>,
        now: MonoUs,
        metrics: &ShardMetrics,
    ) {
        self.record(now, metrics);
        self.answering = 0;
        let stages = &metrics.stages;
        if let Some(covered) = covered {
            while let Some((first, sent)) = self.sent.get(self.covered)
                && *first <= covered
            {
                stages.replicate.record(*sent, now, 1);
                self.covered += 1;
            }
        }
        while let Some((first, sent)) = self.sent.front()
            && *first <= committed
        {
            stages.commit.record(*sent, now, 1);
            self.sent.pop_front();
            self.covered = self.covered.saturating_sub(1);
        }
    }

    /// Whether [`Blocks::settle`] would find nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.run.is_none()
    }

    /// The node leads no longer: what is under way is not answered by this log's commits.
    pub fn forget(&mut self) {
        self.sent.clear();
        (self.covered, self.answering) = (0, 0);
    }

    fn record(&mut self, now: MonoUs, metrics: &ShardMetrics) {
        let Some(run) = self.run.take() else { return };
        let Run { arrived, sent, copies, appends, events, .. } = run;
        if let Some(sent) = sent {
            metrics.stages.queue.record(arrived, sent, appends);
        }
        metrics.stages.total.record(arrived, now, appends);
        metrics.acked(copies, appends, events);
    }
}

#[cfg(test)]
mod tests {
    use duolog_engine::ids::{Hlc, LeaseEpoch};

    use super::*;
    use crate::serve::metrics::shard::stages;

    fn receipt(first: u64, events: u64, copies: Copies) -> Receipt {
        let (hlc, epoch) = (Hlc(0), LeaseEpoch(0));
        let (first_lsn, last_lsn) = (Lsn(first), Lsn(first + events - 1));
        let (replayed, ranges_at, ranges_count) = (false, 0, 0);
        Receipt { first_lsn, last_lsn, hlc, epoch, copies, replayed, ranges_at, ranges_count }
    }

    /// Count and sum of every stage.
    fn sums(metrics: &ShardMetrics) -> [(u64, u64); 5] {
        stages(std::iter::once(metrics)).map(|stage| (stage.count(), stage.sum_us))
    }

    #[test]
    fn each_append_is_counted_from_its_arrival_and_by_its_own_block() {
        let (mut blocks, metrics) = (Blocks::default(), ShardMetrics::default());
        blocks.sent(Lsn(1), MonoUs(100));
        blocks.sent(Lsn(4), MonoUs(150));
        let answered = [(40, receipt(1, 2, Copies::Disk)), (90, receipt(3, 1, Copies::Disk))];
        let later = [(140, receipt(4, 1, Copies::Disk)), (140, receipt(5, 1, Copies::Disk))];
        for (arrived, receipt) in answered.iter().chain(&later) {
            blocks.answered(MonoUs(*arrived), receipt, MonoUs(200), &metrics);
        }
        blocks.settle(Lsn(5), None, MonoUs(200), &metrics);
        let queue = (4, 60 + 10 + 10 + 10);
        let total = (4, 160 + 110 + 60 + 60);
        assert_eq!(sums(&metrics), [queue, (0, 0), (0, 0), (2, 100 + 50), total]);
        let counts = metrics.read();
        assert_eq!((counts.acks, counts.events), (vec![4, 0, 0], 5));
        assert!(blocks.is_empty());
    }

    #[test]
    fn a_pair_counts_the_second_copy_when_it_comes_and_the_commit_when_both_are_there() {
        let (mut blocks, metrics) = (Blocks::default(), ShardMetrics::default());
        blocks.sent(Lsn(1), MonoUs(100));
        blocks.sent(Lsn(2), MonoUs(110));
        blocks.settle(Lsn(0), Some(Lsn(1)), MonoUs(130), &metrics);
        assert_eq!(sums(&metrics)[2..4], [(1, 30), (0, 0)]);
        blocks.answered(MonoUs(90), &receipt(1, 1, Copies::Peer), MonoUs(140), &metrics);
        blocks.settle(Lsn(1), Some(Lsn(1)), MonoUs(140), &metrics);
        assert_eq!(sums(&metrics)[2..4], [(1, 30), (1, 40)], "covered once, committed once");
        blocks.answered(MonoUs(90), &receipt(2, 1, Copies::Chain), MonoUs(210), &metrics);
        blocks.settle(Lsn(2), Some(Lsn(2)), MonoUs(210), &metrics);
        assert_eq!(sums(&metrics)[2..4], [(2, 30 + 100), (2, 40 + 100)]);
        assert_eq!(metrics.read().acks, [0, 1, 1]);
    }

    #[test]
    fn what_a_deposed_leader_has_sent_is_no_commit_of_its() {
        let (mut blocks, metrics) = (Blocks::default(), ShardMetrics::default());
        blocks.sent(Lsn(1), MonoUs(100));
        blocks.settle(Lsn(0), Some(Lsn(1)), MonoUs(110), &metrics);
        blocks.forget();
        assert!(blocks.is_empty());
        blocks.sent(Lsn(1), MonoUs(300));
        blocks.settle(Lsn(1), Some(Lsn(1)), MonoUs(310), &metrics);
        assert_eq!(sums(&metrics)[2..4], [(2, 10 + 10), (1, 10)]);
    }
}
