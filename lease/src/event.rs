//! What happens to the machine.

use crate::document::{Document, DocumentError};
use crate::ids::{CallId, ClusterId, ETag, LeaseEpoch, MonoMs, NodeId, Token, WallMs};

/// One thing that happened. Events may come late, twice or never, except for the answers to
/// `PersistPromise`, `StopFollowing`, `ReadLease` and `WriteLease`, of which each comes once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The program has started. First event, once.
    Boot {
        /// The epoch on disk; 0 in a new directory.
        promised: LeaseEpoch,
    },
    /// Time has passed. Harmless at any moment; due when the time of the last `SetTimer` comes.
    Tick,
    /// Answer to `ReadLease`.
    LeaseRead {
        /// The call it answers.
        call: CallId,
        /// What came of it.
        result: ReadResult,
        /// Fresh random number; spreads the next attempt.
        jitter: u16,
    },
    /// Answer to `WriteLease`.
    LeaseWritten {
        /// The call it answers.
        call: CallId,
        /// What came of it.
        outcome: WriteOutcome,
        /// Fresh random number; spreads the next attempt.
        jitter: u16,
    },
    /// Answer to `PersistPromise`: the epoch is on disk.
    PromisePersisted {
        /// That epoch.
        epoch: LeaseEpoch,
    },
    /// Answer to `StopFollowing`: no shard will ack anything of any leader any more, not even what
    /// its disk is about to complete (L3).
    FollowingStopped,
    /// A leader's heartbeat has arrived.
    HeartbeatReceived(Heartbeat),
    /// A follower has acked a heartbeat.
    HeartbeatAcked {
        /// Who.
        from: NodeId,
        /// The heartbeat's epoch.
        epoch: LeaseEpoch,
        /// The heartbeat's `sent`, repeated.
        sent: MonoMs,
    },
    /// A follower has refused a heartbeat, or a hello of the replication link.
    Refused {
        /// Who.
        from: NodeId,
        /// The epoch that was refused.
        epoch: LeaseEpoch,
        /// Why.
        refusal: Refusal,
    },
    /// A heartbeat could not be sent, or its connection is lost. A heartbeat that is just not
    /// acked needs no event: the machine notices when the next one is due.
    HeartbeatFailed {
        /// Which: the heartbeat's `sent`.
        sent: MonoMs,
    },
    /// A leader's hello on a replication link.
    HelloReceived(Hello),
    /// A Seal, or another's object, stands in this node's own chain (L10).
    ChainLost {
        /// The chain's epoch.
        epoch: LeaseEpoch,
    },
    /// Every shard of this node has cut its log to the leader's and has copied up to the commit
    /// mark it was told.
    CaughtUp {
        /// The epoch it follows.
        epoch: LeaseEpoch,
    },
    /// Told by the shards of the leader: `node` has acked everything that is committed on all of
    /// them.
    FollowerCaughtUp {
        /// Who.
        node: NodeId,
        /// The leader's epoch.
        epoch: LeaseEpoch,
    },
    /// The links of a follower that is not a member yet are gone.
    FollowerLost {
        /// Who.
        node: NodeId,
    },
    /// Answer to `MembershipChanged` with a proposal: every shard counts a block as covered only if
    /// both sets cover it, and the newcomer has acked everything that was committed before (M2).
    ProposalCovered {
        /// The leader's epoch.
        epoch: LeaseEpoch,
    },
    /// Every shard has finished promotion: `Open` is stored (P5).
    PromotionFinished {
        /// The reign.
        epoch: LeaseEpoch,
    },
    /// Promotion cannot be finished by this node.
    PromotionFailed {
        /// The reign.
        epoch: LeaseEpoch,
        /// Why.
        failure: PromotionFailure,
    },
    /// The operator, or the end of this program, wants another leader (L11).
    ResignRequested,
    /// The leader wants a new reign to free its chain (G3).
    NewReignRequested,
    /// Answer to `Drain`: nothing is in flight any more on any shard.
    Drained {
        /// The reign.
        epoch: LeaseEpoch,
    },
    /// The leader has resigned in favour of this node.
    ResignReceived {
        /// Who.
        from: NodeId,
        /// The reign that it gave away.
        epoch: LeaseEpoch,
    },
    /// An upload to the chain found its permit past half (rule C3).
    RenewalWanted {
        /// The uploader's epoch.
        epoch: LeaseEpoch,
    },
    /// The operator replaces a member (M3).
    ReplaceRequested(Replace),
    /// The object store's clock and this node's differ by this much: an independent witness.
    SkewSeen {
        /// Distance, ms.
        difference_ms: u64,
    },
}

/// What reading the lease gave.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReadResult {
    /// The lease.
    Found(Version),
    /// There is no object under that key (404, not any other failure).
    Absent,
    /// There is one, and it cannot be used.
    Unusable(DocumentError),
    /// No usable answer.
    Failed,
}

/// One version of the lease object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// Its tag; the condition of a write that replaces it.
    pub etag: ETag,
    /// Its content.
    pub document: Document,
}

/// What writing the lease gave. An answer that could be any of them is `Unknown`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WriteOutcome {
    /// Stored by this very request.
    Stored {
        /// Tag of the new version.
        etag: ETag,
    },
    /// The condition did not hold (412; 404 for a tag).
    Conflict,
    /// Anything else: it may have been stored, or may yet be.
    Unknown,
}

/// Under which condition the lease may be written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// No such object (`If-None-Match: *`).
    Absent,
    /// The object has this tag (`If-Match`).
    Matches(ETag),
}

/// A leader's sign of life, on its own connection (L5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Heartbeat {
    /// Who sent it.
    pub from: NodeId,
    /// Of which cluster.
    pub cluster: ClusterId,
    /// Its reign.
    pub epoch: LeaseEpoch,
    /// The sender's clock before it sent. Means nothing to the receiver, who repeats it.
    pub sent: MonoMs,
    /// The sender's wall clock at the same moment.
    pub wall: WallMs,
}

/// The head of a leader's hello (section 4 of the protocol).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hello {
    /// Who sent it.
    pub from: NodeId,
    /// Of which cluster.
    pub cluster: ClusterId,
    /// Its reign.
    pub epoch: LeaseEpoch,
}

/// Why a node does not follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It has promised an epoch that is higher, or belongs to another leader.
    Promised(LeaseEpoch),
    /// It challenges (L3).
    Challenging,
    /// The clocks are too far apart (L6).
    ClockDrift {
        /// Distance, ms.
        difference_ms: u64,
    },
    /// The message came from another cluster, or from itself.
    Foreign,
}

/// Why promotion failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PromotionFailure {
    /// The own log does not connect to the chain: acknowledged events are missing (P2).
    Gap,
    /// A higher reign has sealed this one (P5).
    Sealed,
}

/// The operator's command to change the members (M3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Replace {
    /// The member to remove.
    pub dead: NodeId,
    /// The node that takes its place.
    pub newcomer: NodeId,
    /// Whether to do it although the dead answers.
    pub force: Force,
}

/// Whether an operator insists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Force {
    /// No.
    No,
    /// Yes.
    Yes,
}

/// Names a write of the lease: the token in its body.
pub type WriteId = Token;
