//! Changes worth a line in the log: `event=`, `epoch=`, and the reason as a sentence.

use core::fmt;

use crate::document::DocumentError;
use crate::ids::{ClusterId, LeaseEpoch, NodeId};
use crate::in_sync::InSync;
use crate::status::Deposed;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Report {
    /// The reign that it concerns.
    pub epoch: LeaseEpoch,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// It follows.
    Follows(NodeId),
    /// It challenges for this epoch.
    Challenges(Cause),
    /// The lease went to another.
    ChallengeLost(NodeId),
    /// The challenge had been won and was overwritten before this node knew.
    ChallengeOverwritten(NodeId),
    /// The outcome stayed open while a leader was alive; if the write lands late, that reign never
    /// opens (L4).
    ChallengeGivenUp,
    /// It holds the lease.
    ReignWon,
    /// It serves.
    Leads,
    /// Its reign is over.
    Deposed(Deposed),
    /// It fences until the lease is extended.
    LeaseRanOut,
    /// The lease is extended.
    LeaseResumed,
    /// The follower acks heartbeats.
    FollowerReachable,
    /// The follower has missed a heartbeat.
    FollowerUnreachable,
    /// The sender's clock and this node's are too far apart (L6).
    ClockDrift {
        /// The sender.
        other: NodeId,
        /// Distance, ms.
        difference_ms: u64,
    },
    /// The store's clock and this node's are too far apart.
    ClockSkew {
        /// Distance, ms.
        difference_ms: u64,
    },
    /// The lease cannot be used.
    LeaseUnusable(DocumentError),
    /// There is no lease although an epoch was promised.
    LeaseVanished,
    /// The lease is older than the promise.
    LeaseBehindPromise(LeaseEpoch),
    /// The lease has run out, but this node is not in `in_sync`.
    NotMember,
    /// The lease has run out, but this node lacks acknowledged events.
    CannotLead,
    /// A change of the members has begun.
    MembersProposed(InSync),
    /// The members have changed.
    MembersChanged(InSync),
    /// A change of the members was refused.
    MemberRefused {
        /// Who.
        node: NodeId,
        /// Why.
        refusal: MemberRefusal,
    },
    /// A handover has begun.
    HandoverStarted,
    /// There is nobody to hand over to.
    HandoverRefused,
    /// What was in flight did not commit in time; it goes on leading.
    HandoverCancelled,
    /// The successor has shown itself.
    HandoverDone,
    /// No successor showed itself in time; it takes a new reign unless the lease has moved.
    HandoverUnanswered,
    /// A message of another cluster, or of this node itself.
    Foreign {
        /// Its sender.
        from: NodeId,
        /// The sender's cluster.
        cluster: ClusterId,
    },
    /// Two nodes claim one epoch: the store lies about conditions, or a directory was copied.
    TwoLeaders(NodeId),
}

/// Why a node challenges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// There is no lease.
    NoLease,
    /// The other's lease has run out.
    Expired,
    /// The lease is its own, of an earlier run or an earlier reign.
    OwnLease,
    /// The leader has resigned.
    Resigned,
}

/// Why a change of the members was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberRefusal {
    /// The pair is complete.
    ThirdNode,
    /// This node does not lead.
    NotLeader,
    /// Another change is under way.
    Busy,
    /// It is not a member.
    NotMember,
    /// It still acks heartbeats.
    Reachable,
}

impl What {
    /// The word for `event=`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Follows(_) => "follows",
            Self::Challenges(_) => "challenges",
            Self::ChallengeLost(_) => "challenge_lost",
            Self::ChallengeOverwritten(_) => "challenge_overwritten",
            Self::ChallengeGivenUp => "challenge_given_up",
            Self::ReignWon => "reign_won",
            Self::Leads => "leads",
            Self::Deposed(_) => "deposed",
            Self::LeaseRanOut => "lease_ran_out",
            Self::LeaseResumed => "lease_resumed",
            Self::FollowerReachable => "follower_reachable",
            Self::FollowerUnreachable => "follower_unreachable",
            Self::ClockDrift { .. } => "clock_drift",
            Self::ClockSkew { .. } => "clock_skew",
            Self::LeaseUnusable(_) => "lease_unusable",
            Self::LeaseVanished => "lease_vanished",
            Self::LeaseBehindPromise(_) => "lease_behind_promise",
            Self::NotMember => "not_member",
            Self::CannotLead => "cannot_lead",
            Self::MembersProposed(_) => "members_proposed",
            Self::MembersChanged(_) => "members_changed",
            Self::MemberRefused { .. } => "member_refused",
            Self::HandoverStarted => "handover_started",
            Self::HandoverRefused => "handover_refused",
            Self::HandoverCancelled => "handover_cancelled",
            Self::HandoverDone => "handover_done",
            Self::HandoverUnanswered => "handover_unanswered",
            Self::Foreign { .. } => "foreign",
            Self::TwoLeaders(_) => "two_leaders",
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Follows(leader) => write!(f, "follows {leader}"),
            Self::Challenges(cause) => write!(f, "challenges: {cause}"),
            Self::ChallengeLost(other) => write!(f, "the lease went to {other}"),
            Self::ChallengeOverwritten(other) => {
                write!(f, "the lease was won, and taken by {other} before that was known")
            }
            Self::Deposed(deposed) => deposed.fmt(f),
            Self::ClockDrift { other, difference_ms } => write!(
                f,
                "this node's clock and that of {other} lie {difference_ms} ms apart, more than \
                 --max-clock-drift-ms: synchronise them"
            ),
            Self::ClockSkew { difference_ms } => write!(
                f,
                "this node's clock and the object store's lie {difference_ms} ms apart, more than \
                 --max-clock-drift-ms: synchronise it"
            ),
            Self::LeaseUnusable(error) => error.fmt(f),
            Self::LeaseBehindPromise(promised) => write!(
                f,
                "the lease object is older than epoch {promised}, which this node has promised: \
                 the bucket was put back in time or is another one"
            ),
            Self::MembersProposed(members) => write!(f, "changes in_sync to {members}"),
            Self::MembersChanged(members) => write!(f, "in_sync is {members}"),
            Self::MemberRefused { node, refusal } => write!(f, "{node}: {refusal}"),
            Self::Foreign { from, cluster } => write!(
                f,
                "a message of node {from}, cluster {cluster}: an address leads to another cluster \
                 or back to this node"
            ),
            Self::TwoLeaders(other) => write!(
                f,
                "{other} claims the same epoch: the store is unsafe for leases, or a data \
                 directory was copied"
            ),
            plain => f.write_str(plain.sentence()),
        }
    }
}

impl What {
    /// The text of a change that has no values; its name for one that has.
    const fn sentence(&self) -> &'static str {
        match self {
            Self::ChallengeGivenUp => {
                "a leader is alive and the outcome of the challenge stays unknown: it is given up"
            }
            Self::ReignWon => "holds the lease; promotion begins",
            Self::Leads => "promotion is finished",
            Self::LeaseRanOut => {
                "neither a heartbeat was acked nor the lease object renewed in time; appends wait"
            }
            Self::LeaseResumed => "the lease is extended; appends go on",
            Self::FollowerReachable => "the follower acks heartbeats",
            Self::FollowerUnreachable => {
                "the follower missed a heartbeat; the lease object is renewed"
            }
            Self::LeaseVanished => {
                "the lease object is gone although this node has followed or led: restore it; \
                 none is created, for its epochs would begin again"
            }
            Self::NotMember => {
                "the lease has run out, but this node is not in in_sync: start the other member, \
                 or see `node replace`"
            }
            Self::CannotLead => "the lease has run out, but this node lacks acknowledged events",
            Self::HandoverStarted => "admits no more appends and drains",
            Self::HandoverRefused => "there is no reachable follower in in_sync to hand over to",
            Self::HandoverCancelled => "what was in flight did not commit in time; goes on leading",
            Self::HandoverDone => "the successor has shown itself",
            Self::HandoverUnanswered => "no successor showed itself in time",
            with_values => with_values.name(),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoLease => "there is no lease yet",
            Self::Expired => "the lease has run out",
            Self::OwnLease => "the lease is this node's, of an earlier reign",
            Self::Resigned => "the leader has resigned",
        })
    }
}

impl fmt::Display for MemberRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ThirdNode => {
                "the pair is complete: a third node takes a member's place by `node replace` only"
            }
            Self::NotLeader => "only the leader changes the members: ask it",
            Self::Busy => "another change of the members is under way: wait for it",
            Self::NotMember => "not in in_sync: see `status` for the members",
            Self::Reachable => "still acks heartbeats: stop it, or insist with --force",
        })
    }
}
