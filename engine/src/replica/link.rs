//! What a leader has sent to its follower and what came back: the cursor of one connection.
//!
//! Owns the window. Who reads the blocks and who sends them is the driver's business.

use std::collections::VecDeque;

use crate::ids::{LeaseEpoch, Lsn, NodeId};

/// Bytes sent and not acked, at most: enough to keep a follower's disk busy for some ten
/// milliseconds, and little memory for one that has stopped taking them.
pub const WINDOW_MAX_BYTES: usize = 16 << 20;

/// See the module.
#[derive(Debug)]
pub struct Link {
    node: NodeId,
    epoch: LeaseEpoch,
    next: Lsn,
    acked: Lsn,
    /// Sent blocks that are not acked: last LSN and length.
    unacked: VecDeque<(Lsn, usize)>,
    unacked_bytes: usize,
    /// The highest commit mark that the follower has been told, by a block or by itself.
    told: Option<Lsn>,
}

impl Link {
    /// The follower's log is the beginning of this one up to `end`, which is durable there.
    #[must_use]
    pub fn new(node: NodeId, epoch: LeaseEpoch, end: Lsn) -> Self {
        Self {
            node,
            epoch,
            next: end.next(),
            acked: end,
            unacked: VecDeque::new(),
            unacked_bytes: 0,
            told: None,
        }
    }

    /// The follower.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// First event of the next block to be sent.
    #[must_use]
    pub const fn next(&self) -> Lsn {
        self.next
    }

    /// Everything up to here is durable at the follower.
    #[must_use]
    pub const fn acked(&self) -> Lsn {
        self.acked
    }

    /// Bytes sent and not acked: at most the window and the block that was begun within it.
    #[must_use]
    pub const fn unacked_bytes(&self) -> usize {
        self.unacked_bytes
    }

    /// Whether a block may be sent now. One always may when nothing is under way, however large.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.unacked_bytes < WINDOW_MAX_BYTES
    }

    /// A block was sent: the next one of the log.
    pub fn sent(&mut self, first: Lsn, last: Lsn, length: usize, commit_mark: Lsn) {
        assert_eq!(first, self.next, "R1: blocks are sent in order, each once");
        self.next = last.next();
        self.unacked.push_back((last, length));
        self.unacked_bytes += length;
        self.told = self.told.map(|told| told.max(commit_mark));
    }

    /// The follower says that everything up to `lsn` is durable. Returns whether that is news that
    /// counts: of this reign (R2), and of blocks that were sent.
    pub fn acked_by_peer(&mut self, epoch: LeaseEpoch, lsn: Lsn) -> bool {
        if epoch != self.epoch || lsn <= self.acked || lsn >= self.next {
            return false;
        }
        self.acked = lsn;
        while let Some((last, length)) = self.unacked.front().copied().filter(|(l, _)| *l <= lsn) {
            debug_assert!(last <= lsn);
            self.unacked.pop_front();
            self.unacked_bytes -= length;
        }
        true
    }

    /// The commit mark to tell by itself, if the follower does not know it and no block that would
    /// carry it waits to be sent. The first is always told: by it a follower knows that it has
    /// caught up.
    pub fn mark_to_tell(&mut self, committed: Lsn, end: Lsn) -> Option<Lsn> {
        // Beyond what it has been sent a mark tells the follower nothing.
        let mark = committed.min(Lsn(self.next.0 - 1));
        if self.next <= end || self.told.is_some_and(|told| mark <= told) {
            return None;
        }
        self.told = Some(mark);
        Some(mark)
    }

    /// Whether the follower has everything that is committed.
    #[must_use]
    pub fn is_caught_up(&self, committed: Lsn) -> bool {
        self.acked >= committed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: LeaseEpoch = LeaseEpoch(3);

    fn link() -> Link {
        Link::new(NodeId(1), EPOCH, Lsn(10))
    }

    /// R2: acks of another reign, old ones, and those of blocks never sent do not count.
    #[test]
    fn only_news_of_this_reign_about_what_was_sent_counts() {
        let mut link = link();
        link.sent(Lsn(11), Lsn(15), 100, Lsn(10));
        assert!(!link.acked_by_peer(LeaseEpoch(2), Lsn(12)));
        assert!(!link.acked_by_peer(LeaseEpoch(4), Lsn(12)));
        assert!(!link.acked_by_peer(EPOCH, Lsn(16)), "never sent");
        assert!(link.acked_by_peer(EPOCH, Lsn(15)));
        assert!(!link.acked_by_peer(EPOCH, Lsn(12)), "late");
        assert_eq!(link.acked(), Lsn(15));
    }

    #[test]
    fn the_window_closes_and_opens_again() {
        let mut link = link();
        link.sent(Lsn(11), Lsn(11), WINDOW_MAX_BYTES - 1, Lsn(0));
        assert!(link.has_room());
        link.sent(Lsn(12), Lsn(13), 1, Lsn(0));
        assert!(!link.has_room());
        link.acked_by_peer(EPOCH, Lsn(11));
        assert!(link.has_room());
    }

    #[test]
    fn a_mark_is_told_by_itself_only_when_no_block_carries_it() {
        let mut link = link();
        assert_eq!(link.mark_to_tell(Lsn(10), Lsn(12)), None, "a block waits to be sent");
        link.sent(Lsn(11), Lsn(12), 100, Lsn(10));
        assert_eq!(link.mark_to_tell(Lsn(10), Lsn(12)), Some(Lsn(10)), "the first is told");
        link.sent(Lsn(13), Lsn(13), 100, Lsn(11));
        assert_eq!(link.mark_to_tell(Lsn(11), Lsn(13)), None, "the block has told it");
        assert_eq!(link.mark_to_tell(Lsn(12), Lsn(13)), Some(Lsn(12)));
        assert_eq!(link.mark_to_tell(Lsn(12), Lsn(13)), None, "once");
        assert!(!link.is_caught_up(Lsn(12)));
    }
}
