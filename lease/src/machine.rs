//! The lease machine of one node: who may serve, and what to do about it. One instance per process,
//! stepped by shard 0. Rules by their numbers in `docs/PROTOCOL.md`.
//!
//! It promises: a reign is opened only after a compare-and-swap raised the epoch and was known to
//! be its own by the token (L1, L2, L4), and after the promise of its epoch is on disk; no grant
//! reaches beyond the lease less the clock drift (L8); nothing is acked for a leader below the
//! promise, or while a challenge is under way (L3). It leaves to others: sending, timers, disks,
//! and what blocks are covered by whom.

mod election;
mod follow;
mod handover;
mod members;
mod reign;
mod state;
mod store;
mod visit;
mod wake;

use crate::action::{Action, Actions};
use crate::event::{Event, Hello, Refusal, Version};
use crate::grant::Grant;
use crate::ids::{ClusterId, LeaseEpoch, MonoMs, NodeId, Now, RunId};
use crate::in_sync::InSync;
use crate::report::{Report, What};
use crate::rules::{Rules, Sound};
use crate::status::{FenceReason, Status};
use crate::timings::Timings;
use state::{Call, Phase, Promise, Retry, Stage, Watch, Write};
#[doc(hidden)]
pub use visit::Visitor;

/// Who a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// From the data directory.
    pub node: NodeId,
    /// From the data directory.
    pub cluster: ClusterId,
    /// Random, drawn at this start.
    pub run: RunId,
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine<R: Rules = Sound> {
    rules: R,
    timings: Timings,
    identity: Identity,
    latest: MonoMs,
    promise: Promise,
    calls_count: u64,
    writes_count: u32,
    call: Option<Call>,
    write: Option<Write>,
    version: Option<Version>,
    retry: Retry,
    watch: Watch,
    phase: Phase,
    published: Option<Grant>,
    timer: Option<MonoMs>,
}

impl Machine {
    /// A machine before its `Boot`.
    #[must_use]
    pub fn new(identity: Identity, timings: Timings) -> Self {
        Self::with_rules(identity, timings, Sound)
    }
}

impl<R: Rules> Machine<R> {
    /// The same, with rules to break.
    #[doc(hidden)]
    #[must_use]
    pub fn with_rules(identity: Identity, timings: Timings, rules: R) -> Self {
        Self {
            rules,
            timings,
            identity,
            latest: MonoMs(0),
            promise: Promise::default(),
            calls_count: 0,
            writes_count: 0,
            call: None,
            write: None,
            version: None,
            retry: Retry { at: MonoMs(0), ms: timings.retry_ms_min() },
            watch: Watch::default(),
            phase: Phase::Fresh,
            published: None,
            timer: None,
        }
    }

    /// Takes one event in and puts what is to be done into `out`, which is emptied first.
    ///
    /// `now` is read before the event is handed over; a clock that seems to run backwards counts as
    /// standing still. Whatever time alone makes due is done by every step, so a late or missing
    /// `Tick` delays actions but never makes a decision wrong.
    pub fn step(&mut self, now: Now, event: Event, out: &mut Actions) {
        out.clear();
        self.latest = self.latest.max(now.mono);
        let now = Now { mono: self.latest, ..now };
        self.take(now, event, out);
        self.advance(now, out);
        self.publish(out);
        self.set_timer(out);
        self.check();
    }

    fn take(&mut self, now: Now, event: Event, out: &mut Actions) {
        match event {
            Event::Boot { promised } => self.boot(now, promised),
            Event::Tick => {}
            Event::LeaseRead { call, result, jitter } => {
                self.lease_read(now, call, result, jitter, out);
            }
            Event::LeaseWritten { call, outcome, jitter } => {
                self.lease_written(now, call, outcome, jitter, out);
            }
            Event::PromisePersisted { epoch } => self.promise_persisted(epoch, out),
            Event::FollowingStopped => self.following_stopped(now, out),
            Event::HeartbeatReceived(heartbeat) => self.heartbeat_received(now, heartbeat, out),
            Event::HelloReceived(hello) => self.hello_received(now, hello, out),
            Event::ResignReceived { from, epoch } => self.resign_received(now, from, epoch),
            Event::CaughtUp { epoch } => self.caught_up(epoch),
            Event::SkewSeen { difference_ms } => self.skew_seen(difference_ms, out),
            event => self.take_as_leader(now, event, out),
        }
    }

    fn take_as_leader(&mut self, now: Now, event: Event, out: &mut Actions) {
        match event {
            Event::HeartbeatAcked { from, epoch, sent } => {
                self.heartbeat_acked(now, from, epoch, sent, out);
            }
            Event::Refused { from, epoch, refusal } => self.refused(now, from, epoch, refusal, out),
            Event::HeartbeatFailed { sent } => self.heartbeat_failed(now, sent, out),
            Event::ChainLost { epoch } => self.chain_lost(now, epoch, out),
            Event::FollowerCaughtUp { node, epoch } => self.follower_caught_up(node, epoch, out),
            Event::FollowerLost { node } => self.follower_lost(node, out),
            Event::ProposalCovered { epoch } => self.proposal_covered(epoch),
            Event::PromotionFinished { epoch } => self.promotion_finished(now, epoch, out),
            Event::PromotionFailed { epoch, failure } => {
                self.promotion_failed(now, epoch, failure, out);
            }
            Event::ResignRequested => self.resign_requested(now, out),
            Event::NewReignRequested => self.new_reign_requested(now, out),
            Event::Drained { epoch } => self.drained(now, epoch, out),
            Event::RenewalWanted { epoch } => self.renewal_wanted(epoch),
            Event::ReplaceRequested(replace) => self.replace_requested(replace, out),
            event => unreachable!("{event:?} is taken before"),
        }
    }

    /// Does what time alone makes due.
    fn advance(&mut self, now: Now, out: &mut Actions) {
        match self.phase {
            Phase::Fresh => {}
            Phase::Watching => self.advance_watch(now, out),
            Phase::Challenging(_) => self.advance_challenge(now, out),
            Phase::Reign(_) => self.advance_reign(now, out),
        }
    }

    /// Tells the shards if the grant has changed.
    fn publish(&mut self, out: &mut Actions) {
        let grant = self.grant();
        if grant != self.published {
            self.published = grant;
            out.push(Action::GrantChanged(grant));
        }
    }

    fn report(&self, epoch: LeaseEpoch, what: What, out: &mut Actions) {
        out.push(Action::Report(Report { epoch, what }));
    }

    /// What the node is at `now`; not what it was at the last event (L8).
    #[must_use]
    pub fn status(&self, now: Now) -> Status {
        let reign = match &self.phase {
            Phase::Fresh => return Status::Booting,
            Phase::Watching => return self.watch_status(),
            Phase::Challenging(_) => return Status::Fenced(FenceReason::Challenging),
            Phase::Reign(reign) => reign,
        };
        match reign.stage {
            Stage::Promising | Stage::Promoting => Status::Promoting { epoch: reign.epoch },
            Stage::Resigned { .. } => Status::Fenced(FenceReason::Resigned),
            Stage::Leading | Stage::Draining { .. } => {
                if self.grant().is_some_and(|grant| grant.serves(now.mono)) {
                    Status::Leader { epoch: reign.epoch }
                } else {
                    Status::Fenced(FenceReason::LeaseRanOut)
                }
            }
        }
    }

    fn watch_status(&self) -> Status {
        let watch = &self.watch;
        let reason = watch.drift_ms.map(|difference_ms| FenceReason::ClockDrift { difference_ms });
        if let Some(reason) = reason.or(watch.halted) {
            return Status::Fenced(reason);
        }
        let seen = self.version.as_ref().map(|version| &version.document);
        match &watch.follow {
            Some(follow) if follow.caught_up => {
                Status::Follower { leader: follow.leader, epoch: follow.epoch }
            }
            Some(follow) => Status::CatchingUp { leader: Some(follow.leader), epoch: follow.epoch },
            None if !watch.found => Status::Booting,
            None => Status::CatchingUp {
                leader: seen.map(|document| document.leader).filter(|node| !self.is_me(*node)),
                epoch: seen.map_or(self.promise.durable, |document| document.epoch),
            },
        }
    }

    /// The grant as it stands; the shards have it, or get it by the step that changed it.
    #[must_use]
    pub fn grant(&self) -> Option<Grant> {
        match &self.phase {
            Phase::Reign(reign) => self.reign_grant(reign),
            _ => None,
        }
    }

    /// The leader and epoch that this node follows.
    #[must_use]
    pub fn following(&self) -> Option<(NodeId, LeaseEpoch)> {
        self.watch.follow.map(|follow| (follow.leader, follow.epoch))
    }

    /// The lowest epoch that this node still accepts, and whether that is on disk yet.
    #[must_use]
    pub const fn promised(&self) -> (LeaseEpoch, Durable) {
        let durable = self.promise.durable.0 >= self.promise.asked.0;
        (self.promise.asked, if durable { Durable::Yes } else { Durable::NotYet })
    }

    /// The newest version of the lease that this node has read or written.
    #[must_use]
    pub const fn lease(&self) -> Option<&Version> {
        self.version.as_ref()
    }

    /// The reign of this node, from the compare-and-swap that began it to its end.
    #[must_use]
    pub const fn reign(&self) -> Option<LeaseEpoch> {
        match &self.phase {
            Phase::Reign(reign) => Some(reign.epoch),
            _ => None,
        }
    }

    /// The sets that must cover a block: the one in the lease, and the one proposed (M2).
    #[must_use]
    pub fn members(&self) -> Option<(InSync, Option<InSync>)> {
        match &self.phase {
            Phase::Reign(reign) => Some((reign.in_sync, reign.change.proposal())),
            _ => None,
        }
    }

    /// When the next `Tick` is due.
    #[must_use]
    pub const fn timer(&self) -> Option<MonoMs> {
        self.timer
    }

    fn is_me(&self, node: NodeId) -> bool {
        self.identity.node == node
    }

    fn is_foreign(&self, hello: Hello) -> bool {
        hello.cluster != self.identity.cluster || self.is_me(hello.from)
    }

    fn refuse(&self, hello: Hello, refusal: Refusal, out: &mut Actions) {
        out.push(Action::Refuse { to: hello.from, epoch: hello.epoch, refusal });
    }

    /// The ordering of what the machine holds; a broken one is a bug of the machine.
    fn check(&self) {
        assert!(self.promise.durable <= self.promise.asked, "what is on disk was asked for");
        if let Some(follow) = &self.watch.follow {
            assert!(
                matches!(self.phase, Phase::Watching),
                "L3: a follower neither leads nor tries"
            );
            assert!(follow.leader != self.identity.node, "nobody follows itself");
        }
        if let Phase::Reign(reign) = &self.phase {
            assert!(reign.in_sync.contains(self.identity.node), "L3: a leader is in its in_sync");
            assert!(self.version.is_some(), "L1: a leader knows its lease");
        }
    }
}

/// Whether a promise is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Durable {
    /// It is.
    Yes,
    /// It is being written.
    NotYet,
}
