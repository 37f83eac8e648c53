//! What the lease machine's driver counts and shows. Shard 0's thread writes, others read.

use duolog_lease::report::{Cause, Report, What};
use duolog_lease::status::Deposed;

use super::number::Number;

/// Why this node challenged, in the order of [`NodeCounts::elections`].
pub const ELECTION_REASONS: [&str; 4] = ["no_lease", "expired", "own_lease", "resigned"];
/// Why a reign of this node ended, in the order of [`NodeCounts::depositions`].
pub const DEPOSITION_REASONS: [&str; 7] = [
    "higher_epoch",
    "lease_lost",
    "lease_vanished",
    "chain_sealed",
    "fatal_gap",
    "new_reign",
    "unanswered",
];
/// How handovers went on, in the order of [`NodeCounts::handovers`].
pub const HANDOVER_OUTCOMES: [&str; 5] = ["started", "done", "refused", "cancelled", "unanswered"];

/// What the node is at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The newest reign known.
    pub epoch: u64,
    /// Until when it may serve as leader, ms of the monotonic clock; 0 if it does not lead.
    pub serve_until_ms: u64,
    /// How many nodes have everything that was acknowledged.
    pub in_sync: u64,
    /// The connection to the other node is up.
    pub peer_connected: bool,
    /// The other node's clock less this one's, ms, if a heartbeat has told.
    pub peer_skew_ms: Option<i64>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct NodeMetrics {
    epoch: Number,
    serve_until_ms: Number,
    in_sync: Number,
    peer_connected: Number,
    peer_skew_known: Number,
    /// Two's complement.
    peer_skew_ms: Number,
    elections: [Number; ELECTION_REASONS.len()],
    reigns: Number,
    depositions: [Number; DEPOSITION_REASONS.len()],
    lapses: Number,
    handovers: [Number; HANDOVER_OUTCOMES.len()],
    follower_losses: Number,
}

/// A reading of a [`NodeMetrics`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// What the node is.
    pub standing: Standing,
    /// Challenges by [`ELECTION_REASONS`].
    pub elections: [u64; ELECTION_REASONS.len()],
    /// Times that this node began to lead.
    pub reigns: u64,
    /// Reigns that ended, by [`DEPOSITION_REASONS`].
    pub depositions: [u64; DEPOSITION_REASONS.len()],
    /// Times that the leader's lease ran out, so that appends had to wait.
    pub lapses: u64,
    /// By [`HANDOVER_OUTCOMES`].
    pub handovers: [u64; HANDOVER_OUTCOMES.len()],
    /// Times that the follower missed a heartbeat.
    pub follower_losses: u64,
}

impl NodeMetrics {
    /// Shows what the node is.
    pub fn show(&self, standing: &Standing) {
        self.epoch.set(standing.epoch);
        self.serve_until_ms.set(standing.serve_until_ms);
        self.in_sync.set(standing.in_sync);
        self.peer_connected.set(standing.peer_connected.into());
        self.peer_skew_ms.set(standing.peer_skew_ms.unwrap_or(0).cast_unsigned());
        self.peer_skew_known.set(standing.peer_skew_ms.is_some().into());
    }

    /// Counts a change.
    pub fn count(&self, report: &Report) {
        let counter = match &report.what {
            What::Challenges(cause) => &self.elections[election(*cause)],
            What::Leads => &self.reigns,
            What::Deposed(deposed) => &self.depositions[deposition(*deposed)],
            What::LeaseRanOut => &self.lapses,
            What::HandoverStarted => &self.handovers[0],
            What::HandoverDone => &self.handovers[1],
            What::HandoverRefused => &self.handovers[2],
            What::HandoverCancelled => &self.handovers[3],
            What::HandoverUnanswered => &self.handovers[4],
            What::FollowerUnreachable => &self.follower_losses,
            _ => return,
        };
        counter.add(1);
    }

    /// What was shown last and counted so far.
    #[must_use]
    pub fn read(&self) -> NodeCounts {
        let skew_known = self.peer_skew_known.get() != 0;
        let standing = Standing {
            epoch: self.epoch.get(),
            serve_until_ms: self.serve_until_ms.get(),
            in_sync: self.in_sync.get(),
            peer_connected: self.peer_connected.get() != 0,
            peer_skew_ms: skew_known.then(|| self.peer_skew_ms.get().cast_signed()),
        };
        NodeCounts {
            standing,
            elections: self.elections.each_ref().map(Number::get),
            reigns: self.reigns.get(),
            depositions: self.depositions.each_ref().map(Number::get),
            lapses: self.lapses.get(),
            handovers: self.handovers.each_ref().map(Number::get),
            follower_losses: self.follower_losses.get(),
        }
    }
}

const fn election(cause: Cause) -> usize {
    match cause {
        Cause::NoLease => 0,
        Cause::Expired => 1,
        Cause::OwnLease => 2,
        Cause::Resigned => 3,
    }
}

const fn deposition(deposed: Deposed) -> usize {
    match deposed {
        Deposed::HigherEpoch { .. } => 0,
        Deposed::LeaseLost { .. } => 1,
        Deposed::LeaseVanished => 2,
        Deposed::ChainSealed => 3,
        Deposed::FatalGap => 4,
        Deposed::NewReign => 5,
        Deposed::Unanswered => 6,
    }
}

#[cfg(test)]
mod tests {
    use duolog_engine::ids::LeaseEpoch;

    use super::*;

    #[test]
    fn what_was_shown_is_read() {
        let node = NodeMetrics::default();
        assert_eq!(node.read(), NodeCounts::default());
        let (epoch, serve_until_ms, in_sync) = (7, 123_456, 2);
        for peer_skew_ms in [Some(-1500), Some(0), None] {
            let peer_connected = peer_skew_ms.is_some();
            let standing =
                Standing { epoch, serve_until_ms, in_sync, peer_connected, peer_skew_ms };
            node.show(&standing);
            assert_eq!(node.read().standing, standing);
        }
    }

    #[test]
    fn changes_are_counted_by_their_reasons() {
        let node = NodeMetrics::default();
        let changes = [
            What::Challenges(Cause::Resigned),
            What::Challenges(Cause::Expired),
            What::Challenges(Cause::Expired),
            What::Leads,
            What::LeaseRanOut,
            What::FollowerUnreachable,
            What::FollowerReachable,
            What::HandoverStarted,
            What::HandoverUnanswered,
            What::Deposed(Deposed::Unanswered),
        ];
        for what in changes {
            node.count(&Report { epoch: LeaseEpoch(1), what });
        }
        let NodeCounts { elections, depositions, handovers, .. } = node.read();
        assert_eq!((elections, handovers), ([0, 2, 0, 1], [1, 0, 0, 0, 1]));
        assert_eq!(depositions, [0, 0, 0, 0, 0, 0, 1]);
        let NodeCounts { reigns, lapses, follower_losses, .. } = node.read();
        assert_eq!((reigns, lapses, follower_losses), (1, 1, 1));
    }
}
