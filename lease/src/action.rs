//! What the machine wants done.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::document::Document;
use crate::event::{Condition, Refusal, WriteId};
use crate::grant::Grant;
use crate::ids::{CallId, LeaseEpoch, MonoMs, NodeId, WallMs};
use crate::in_sync::InSync;
use crate::limits::ACTIONS_MAX;
use crate::report::Report;
use crate::status::FenceReason;

/// One thing to do. The actions of a step are carried out in order; those that go to a connection
/// or to the store need not wait for one another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// GET the lease. Answer: `LeaseRead`, once, within the driver's request time limit.
    ReadLease {
        /// Repeated in the answer.
        call: CallId,
    },
    /// PUT the lease under a condition, one request, nothing retried underneath. Answer:
    /// `LeaseWritten`, once; a lost or doubtful reply is `Unknown`.
    WriteLease {
        /// Repeated in the answer.
        call: CallId,
        /// Names the write; the same for an identical repetition.
        write: WriteId,
        /// The condition.
        condition: Condition,
        /// The body is its `encode()`.
        document: Box<Document>,
    },
    /// Write the epoch to disk and sync it. Answer: `PromisePersisted`. A failure ends the process.
    PersistPromise {
        /// Never lower than what is on disk.
        epoch: LeaseEpoch,
    },
    /// Send a heartbeat to every follower connected, with the commit marks of now. No wait for
    /// anything. Answers: `HeartbeatAcked`, `Refused`, `HeartbeatFailed`, or none.
    SendHeartbeat {
        /// The reign.
        epoch: LeaseEpoch,
        /// For `Heartbeat::sent`.
        sent: MonoMs,
        /// For `Heartbeat::wall`.
        wall: WallMs,
    },
    /// Ack a heartbeat. The promise of its epoch is on disk.
    AckHeartbeat {
        /// The leader.
        to: NodeId,
        /// The heartbeat's epoch.
        epoch: LeaseEpoch,
        /// The heartbeat's `sent`.
        sent: MonoMs,
    },
    /// Refuse a heartbeat or a hello.
    Refuse {
        /// Its sender.
        to: NodeId,
        /// Its epoch.
        epoch: LeaseEpoch,
        /// Why.
        refusal: Refusal,
    },
    /// Publish the grant to every shard; `None` withdraws it. Withdrawing comes before any other
    /// action of its step: what waits for an ack then ends as "outcome unknown".
    GrantChanged(Option<Grant>),
    /// Tell every shard which sets must cover a block: `in_sync`, and `proposal` too if there is
    /// one (M2). With a proposal that is not written yet, answer `ProposalCovered`.
    MembershipChanged {
        /// The set in the lease as far as known.
        in_sync: InSync,
        /// The set that a write may have put there, or soon will.
        proposal: Option<InSync>,
    },
    /// Start promotion on every shard (section 6 of the protocol). The promise is on disk. Answer:
    /// `PromotionFinished` or `PromotionFailed`; none if the reign ends before.
    StartPromotion {
        /// The reign.
        epoch: LeaseEpoch,
        /// The members.
        in_sync: InSync,
    },
    /// Follow this leader: every shard may accept its hello and blocks of exactly this epoch, and
    /// ack. The promise is on disk. Sent again after a fence for clock drift.
    Follow {
        /// Whom.
        leader: NodeId,
        /// At which epoch.
        epoch: LeaseEpoch,
    },
    /// Stop following on every shard. Answer: `FollowingStopped`, when it is true of all.
    StopFollowing,
    /// Stop serving on every shard. `Deposed`: the reign is over, said once at the end of each;
    /// clients who wait learn "outcome unknown". `Resigned`: nothing is acked any more; `Deposed`
    /// follows. `LeaseRanOut`: what is in flight waits, a newer grant goes on with it.
    /// `ClockDrift`: a follower stops acking and reading until the next `Follow`.
    Fence(FenceReason),
    /// Admit no more appends and let those in flight commit. Answer: `Drained`.
    Drain {
        /// The reign.
        epoch: LeaseEpoch,
    },
    /// Send the follower a `Resign` with the commit LSN of each shard. The node is fenced.
    Resign {
        /// The reign that is given away.
        epoch: LeaseEpoch,
    },
    /// Log a change, one structured line.
    Report(Report),
    /// Hand over a `Tick` at this time; replaces the previous one.
    SetTimer {
        /// When, on the clock of `Now::mono`.
        at: MonoMs,
    },
}

/// The actions of one step; reused.
#[derive(Debug, Default)]
pub struct Actions {
    list: Vec<Action>,
}

impl Actions {
    /// An empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self { list: Vec::with_capacity(ACTIONS_MAX) }
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    pub(crate) fn push(&mut self, action: Action) {
        assert!(self.list.len() < ACTIONS_MAX, "a step has at most {ACTIONS_MAX} actions");
        self.list.push(action);
    }

    /// The actions, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Action] {
        &self.list
    }

    /// Takes the actions out, in order.
    pub fn drain(&mut self) -> impl Iterator<Item = Action> + '_ {
        self.list.drain(..)
    }
}
