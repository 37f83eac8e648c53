//! What the machine remembers.

use crate::document::Document;
use crate::event::Condition;
use crate::ids::{CallId, LeaseEpoch, MonoMs, NodeId, Token};
use crate::in_sync::InSync;
use crate::status::FenceReason;

/// `promised_epoch` (section 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Promise {
    /// On disk.
    pub durable: LeaseEpoch,
    /// On disk, or asked to be. Nothing below it is accepted any more.
    pub asked: LeaseEpoch,
}

/// A call to the store in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub id: CallId,
    pub kind: CallKind,
    /// The promise when it was sent: a lease read before a promise may be older than it.
    pub promised: LeaseEpoch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CallKind {
    Read,
    Write,
}

/// A write of the lease whose outcome is not known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Write {
    pub condition: Condition,
    pub document: Document,
    /// Before the first attempt left: what a success is counted from (L4).
    pub first_sent: MonoMs,
    /// What to do next when no call is in flight.
    pub next: Next,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Next {
    /// Look whether it landed.
    ReadBack,
    /// Send the identical request again.
    Repeat,
}

/// The pause after calls that settled nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Retry {
    /// No call to the store before this.
    pub at: MonoMs,
    /// Length of the next pause.
    pub ms: u64,
}

/// A node that does not reign: what it knows about who does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Watch {
    /// Whom the shards may follow.
    pub follow: Option<Follow>,
    /// A leader that is accepted once the promise is on disk.
    pub pending: Option<Pending>,
    /// Shards may still be acking: `Follow` was said, `FollowingStopped` not heard since.
    pub engaged: bool,
    /// End of the heartbeat lease. Never shortened (L5).
    pub heard_until: Option<MonoMs>,
    /// End of the wait of a restarted node (L9).
    pub patience_until: MonoMs,
    /// Whether a lease, or a leader, has been found since the start.
    pub found: bool,
    /// Next look at the lease; the end of the S3 lease as seen at the last one (L9).
    pub ask_at: MonoMs,
    /// The version of the lease seen last, and since when.
    pub seen: Option<Seen>,
    /// The reign that its leader gave away (L11).
    pub resigned: Option<LeaseEpoch>,
    /// The last heartbeat was this far off (L6).
    pub drift_ms: Option<u64>,
    /// The store's clock says that this node's is off.
    pub skewed: bool,
    /// Why neither leading nor following on the strength of the lease object is possible.
    pub halted: Option<FenceReason>,
    /// Promotion met a gap: never challenge again in this run (P2).
    pub unfit: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Follow {
    pub leader: NodeId,
    pub epoch: LeaseEpoch,
    pub caught_up: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pending {
    pub leader: NodeId,
    pub epoch: LeaseEpoch,
    /// The heartbeat to ack.
    pub sent: Option<MonoMs>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Seen {
    pub token: Token,
    pub since: MonoMs,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// Before `Boot`.
    Fresh,
    /// Follows, or waits for somebody to follow, or for the lease to run out.
    Watching,
    /// Tries to take the lease.
    Challenging(Challenge),
    /// Has taken it.
    Reign(Reign),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Challenge {
    pub epoch: LeaseEpoch,
    /// Whether the shards are still to confirm that they have stopped following.
    pub stopping: bool,
    /// A leader has shown itself meanwhile.
    pub heard: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reign {
    pub epoch: LeaseEpoch,
    pub stage: Stage,
    /// The members in the lease as far as known.
    pub in_sync: InSync,
    pub change: Change,
    /// Before the newest confirmed write of the lease left.
    pub confirmed: MonoMs,
    /// Before the newest acked heartbeat left.
    pub heard: Option<MonoMs>,
    pub last_sent: Option<MonoMs>,
    pub next_heartbeat: MonoMs,
    /// The newest heartbeat was acked, or none is overdue since.
    pub reachable: bool,
    /// When to renew while the follower is away.
    pub renew_at: MonoMs,
    /// An upload asked for a renewal.
    pub wanted: bool,
    /// The end of the lease was reported.
    pub ran_out: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// Makes the promise durable.
    Promising,
    /// Promotion is under way.
    Promoting,
    /// Serves.
    Leading,
    /// Lets what is in flight commit; gives up doing so at a time.
    Draining { until: MonoMs, goal: Goal },
    /// Waits for the successor.
    Resigned { until: MonoMs },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Goal {
    Handover,
    NewReign,
}

/// A change of the members, one at a time (M2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Change {
    None,
    /// The operator named a newcomer, which must catch up first.
    Named {
        newcomer: NodeId,
    },
    /// The shards begin to count by both sets.
    Adopting {
        next: InSync,
    },
    /// They do; the write can go.
    Covered {
        next: InSync,
    },
    /// The write has gone, and what became of it is unknown.
    Written {
        next: InSync,
    },
}

impl Change {
    /// The set that must cover blocks besides the one in the lease.
    pub(super) const fn proposal(self) -> Option<InSync> {
        match self {
            Self::Adopting { next } | Self::Covered { next } | Self::Written { next } => Some(next),
            Self::None | Self::Named { .. } => None,
        }
    }

    /// The set that the next write of the lease must carry.
    pub(super) const fn to_write(self) -> Option<InSync> {
        match self {
            Self::Covered { next } | Self::Written { next } => Some(next),
            _ => None,
        }
    }
}
