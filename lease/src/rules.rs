//! Which rules a machine keeps. The program's machine keeps all of them; the exhaustive check
//! breaks one at a time, to prove that it would notice.

use core::fmt::Debug;
use core::hash::Hash;

/// Tells a machine which rules to break.
pub trait Rules: Copy + Debug + Eq + Hash {
    /// Whether to break this one.
    fn breaks(&self, mistake: Mistake) -> bool;
}

/// Breaks none. The compiler removes every trace of the mistakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sound;

impl Rules for Sound {
    #[inline(always)]
    fn breaks(&self, _: Mistake) -> bool {
        false
    }
}

/// Mistakes that others made, or that are easily made. For tests only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(hidden)]
pub enum Mistake {
    /// L2: a restarted leader goes on at its old epoch.
    RestartKeepsEpoch,
    /// L2: a challenger takes the lease without raising the epoch.
    EpochNotRaised,
    /// L3: heartbeats are acked although a challenge is under way.
    AckWhileChallenging,
    /// L3: the challenge is sent before the shards have stopped following.
    StopNotAwaited,
    /// L3: a challenger never learns that its shards have stopped: it neither leads nor follows.
    StopForgotten,
    /// L3: a node outside of `in_sync` challenges.
    OutsiderChallenges,
    /// L4: a conflict, also of a repetition, means that another won.
    ConflictMeansLost,
    /// L4: an unknown outcome means that the write was stored.
    UnknownMeansWon,
    /// L4: reading back compares epochs, not tokens.
    TokensNotCompared,
    /// L4: a write that was given up still wins when its answer comes.
    GivenUpLeads,
    /// L4, L9: a restarted node takes a lease of its own that it never knew it had won at once.
    OwnLeaseNeverWaits,
    /// L5: the heartbeat lease is counted from the ack.
    LeaseFromAck,
    /// L7: the S3 lease is counted from the answer.
    LeaseFromAnswer,
    /// L8: the leader serves until its lease ends, without the margin for clock drift.
    NoFenceMargin,
    /// L9: the follower challenges when the heartbeat lease ends, whatever the lease object says.
    S3ExpiryIgnored,
    /// L9: a restarted node does not wait for a heartbeat.
    RestartWaitSkipped,
    /// L9, to the letter: a restarted node waits only if the lease had run out when it found it.
    WaitOnlyIfFoundExpired,
    /// L10: a renewal that met a conflict counts as done.
    ConflictIgnored,
    /// L11: a `Resign` counts for any epoch.
    ResignEpochUnchecked,
    /// L11: the leader goes on serving after it resigned.
    ServeAfterResign,
    /// M1: acks of heartbeats by a node outside of `in_sync` count.
    OutsiderAckCounts,
    /// M2: the old set counts alone until the change is known to be stored.
    ProposalUncounted,
    /// Section 2: leaders below the promised epoch are followed.
    PromiseUnchecked,
    /// Section 2: the promise is acted upon before it is on disk.
    PromiseNotAwaited,
}
