//! The follower: whom it accepts, what it acks, what it promises (section 2, L3, L5, L6, M4).

use super::Machine;
use super::state::{Follow, Pending, Phase, Reign, Stage};
use crate::action::{Action, Actions};
use crate::event::{Heartbeat, Hello, Refusal};
use crate::ids::{LeaseEpoch, MonoMs, NodeId, Now};
use crate::report::What;
use crate::rules::{Mistake, Rules};
use crate::status::{Deposed, FenceReason};

impl<R: Rules> Machine<R> {
    pub(super) fn heartbeat_received(&mut self, now: Now, heartbeat: Heartbeat, out: &mut Actions) {
        let Heartbeat { from, cluster, epoch, sent, wall } = heartbeat;
        let hello = Hello { from, cluster, epoch };
        if !self.meet(now, hello, out) {
            return;
        }
        let difference_ms = wall.distance(now.wall);
        if difference_ms > self.timings.drift_ms() {
            return self.fence_for_drift(hello, difference_ms, out);
        }
        let fenced = self.watch.drift_ms.take().is_some();
        // The leader's time plus the lease, on this node's clock. The check above bounds the
        // error: at the earliest this is receipt + lease - drift, when the leader has fenced.
        let until = wall.plus(self.timings.heartbeat_lease_ms()).since(now.wall);
        let until = now.mono.plus(until);
        self.watch.heard_until = self.watch.heard_until.max(Some(until));
        self.accept(hello, Some(sent), fenced, out);
    }

    pub(super) fn hello_received(&mut self, now: Now, hello: Hello, out: &mut Actions) {
        if !self.meet(now, hello, out) {
            return;
        }
        if let Some(difference_ms) = self.watch.drift_ms {
            return self.refuse(hello, Refusal::ClockDrift { difference_ms }, out);
        }
        self.accept(hello, None, false, out);
    }

    /// Meets a node that says it leads: ends what its epoch ends here (L10), or refuses it. Whether
    /// it may be accepted.
    fn meet(&mut self, now: Now, hello: Hello, out: &mut Actions) -> bool {
        let Hello { from, cluster, epoch } = hello;
        if self.is_foreign(hello) {
            self.report(epoch, What::Foreign { from, cluster }, out);
            self.refuse(hello, Refusal::Foreign, out);
            return false;
        }
        if epoch < self.promise.asked && !self.rules.breaks(Mistake::PromiseUnchecked) {
            self.refuse(hello, Refusal::Promised(self.promise.asked), out);
            return false;
        }
        match &mut self.phase {
            Phase::Fresh => return false,
            Phase::Watching => return self.meet_watching(hello, out),
            Phase::Challenging(challenge) if epoch >= challenge.epoch => {
                let lost = challenge.epoch;
                self.report(lost, What::ChallengeLost(from), out);
                self.abandon_challenge(now);
            }
            Phase::Challenging(challenge) => {
                if self.watch.resigned != Some(epoch) {
                    challenge.heard = true;
                }
                if !self.rules.breaks(Mistake::AckWhileChallenging) {
                    self.refuse(hello, Refusal::Challenging, out);
                    return false;
                }
            }
            Phase::Reign(reign) if epoch > reign.epoch => {
                self.depose(now, Deposed::HigherEpoch { seen: epoch }, out);
            }
            Phase::Reign(reign) => {
                let mine = reign.epoch;
                return self.refuse_second(hello, mine, out);
            }
        }
        true
    }

    fn meet_watching(&mut self, hello: Hello, out: &mut Actions) -> bool {
        let followed = self.watch.follow.map(|follow| (follow.leader, follow.epoch));
        let pending = self.watch.pending.map(|pending| (pending.leader, pending.epoch));
        match pending.or(followed) {
            Some((leader, epoch)) if epoch == hello.epoch && leader != hello.from => {
                self.refuse_second(hello, epoch, out)
            }
            _ => true,
        }
    }

    /// Two leaders at one epoch cannot be, and neither can this be decided here.
    fn refuse_second(&self, hello: Hello, epoch: LeaseEpoch, out: &mut Actions) -> bool {
        if hello.epoch == epoch {
            self.report(epoch, What::TwoLeaders(hello.from), out);
        }
        self.refuse(hello, Refusal::Promised(epoch), out);
        false
    }

    fn fence_for_drift(&mut self, hello: Hello, difference_ms: u64, out: &mut Actions) {
        if self.watch.drift_ms.is_none() {
            out.push(Action::Fence(FenceReason::ClockDrift { difference_ms }));
            let what = What::ClockDrift { other: hello.from, difference_ms };
            self.report(hello.epoch, what, out);
        }
        self.watch.drift_ms = Some(difference_ms);
        self.refuse(hello, Refusal::ClockDrift { difference_ms }, out);
    }

    /// Follows, and acks the heartbeat sent at `sent`; after the promise is on disk. No store is
    /// asked (M4). `fenced`: the shards have to be told again.
    fn accept(&mut self, hello: Hello, sent: Option<MonoMs>, fenced: bool, out: &mut Actions) {
        let Hello { from, epoch, .. } = hello;
        self.watch.resigned = self.watch.resigned.filter(|resigned| *resigned >= epoch);
        self.watch.halted = None;
        if matches!(self.phase, Phase::Challenging(_)) {
            // Only a machine that breaks a rule gets here.
            return self.ack(from, epoch, sent, out);
        }
        if self.promise.asked < epoch {
            self.promise.asked = epoch;
            out.push(Action::PersistPromise { epoch });
        }
        if self.promise.durable >= epoch || self.rules.breaks(Mistake::PromiseNotAwaited) {
            self.follow(from, epoch, fenced, out);
            self.ack(from, epoch, sent, out);
        } else {
            let before = self.watch.pending.filter(|pending| pending.epoch == epoch);
            let sent = sent.or(before.and_then(|pending| pending.sent));
            self.watch.pending = Some(Pending { leader: from, epoch, sent });
        }
    }

    fn ack(&self, to: NodeId, epoch: LeaseEpoch, sent: Option<MonoMs>, out: &mut Actions) {
        if let Some(sent) = sent {
            out.push(Action::AckHeartbeat { to, epoch, sent });
        }
    }

    fn follow(&mut self, leader: NodeId, epoch: LeaseEpoch, again: bool, out: &mut Actions) {
        let follow = Follow { leader, epoch, caught_up: false };
        let known = self.watch.follow.is_some_and(|known| {
            (known.leader, known.epoch) == (leader, epoch) && self.watch.engaged
        });
        if !known {
            self.watch.follow = Some(follow);
            self.watch.engaged = true;
            self.report(epoch, What::Follows(leader), out);
        }
        if !known || again {
            out.push(Action::Follow { leader, epoch });
        }
    }

    pub(super) fn promise_persisted(&mut self, epoch: LeaseEpoch, out: &mut Actions) {
        self.promise.durable = self.promise.durable.max(epoch);
        self.promise.asked = self.promise.asked.max(epoch);
        let durable = self.promise.durable;
        match &self.phase {
            Phase::Watching => {
                if let Some(pending) = self.watch.pending.take_if(|it| it.epoch <= durable) {
                    self.follow(pending.leader, pending.epoch, false, out);
                    self.ack(pending.leader, pending.epoch, pending.sent, out);
                }
            }
            Phase::Reign(Reign { stage: Stage::Promising, epoch, .. }) if *epoch <= durable => {
                self.start_promotion(out);
            }
            _ => {}
        }
    }

    pub(super) fn caught_up(&mut self, epoch: LeaseEpoch) {
        if let Some(follow) = self.watch.follow.as_mut().filter(|follow| follow.epoch == epoch) {
            follow.caught_up = true;
        }
    }

    /// The store's clock is a witness of its own. It judges no lease; it only makes this node
    /// distrust its own wall clock when the lease object would have it challenge.
    pub(super) fn skew_seen(&mut self, difference_ms: u64, out: &mut Actions) {
        let skewed = difference_ms > self.timings.drift_ms();
        if skewed && !self.watch.skewed {
            self.report(self.promise.asked, What::ClockSkew { difference_ms }, out);
        }
        self.watch.skewed = skewed;
    }

    pub(super) fn resign_received(&mut self, now: Now, from: NodeId, epoch: LeaseEpoch) {
        // A late one of an earlier epoch must not disturb the leader that is followed.
        let late = epoch < self.promise.asked || self.is_me(from);
        if late && !self.rules.breaks(Mistake::ResignEpochUnchecked) {
            return;
        }
        if matches!(self.phase, Phase::Watching) {
            self.watch.resigned = Some(epoch);
            self.watch.ask_at = now.mono;
        }
    }
}
