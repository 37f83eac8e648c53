//! The leader: heartbeats, both leases, renewals, and the ends of a reign (L5, L7, L8, L10).

use super::Machine;
use super::state::{Change, Next, Phase, Reign, Stage};
use crate::action::{Action, Actions};
use crate::event::{PromotionFailure, ReadResult, Refusal, Version};
use crate::grant::{Admission, Grant};
use crate::ids::{LeaseEpoch, MonoMs, NodeId, Now};
use crate::report::What;
use crate::rules::{Mistake, Rules};
use crate::status::{Deposed, FenceReason};

impl Reign {
    fn is_serving(&self) -> bool {
        matches!(self.stage, Stage::Leading | Stage::Draining { .. })
    }

    fn has_resigned(&self) -> bool {
        matches!(self.stage, Stage::Resigned { .. })
    }

    /// When the newest heartbeat counts as failed; `None` if it is acked, or if that is known.
    pub(super) fn overdue_at(&self, patience_ms: u64) -> Option<MonoMs> {
        let sent = self.last_sent.filter(|_| self.reachable && self.heard < self.last_sent)?;
        Some(sent.plus(patience_ms))
    }

    /// Whose acks of heartbeats extend the lease: the other member; while a change is unknown to be
    /// stored, one who is the other member either way (M1, M2).
    fn counts(&self, me: NodeId, from: NodeId) -> bool {
        let before = self.in_sync.other(me) == Some(from);
        match self.change {
            Change::Written { next } => before && next.other(me) == Some(from),
            _ => before,
        }
    }
}

impl<R: Rules> Machine<R> {
    pub(super) fn reign_grant(&self, reign: &Reign) -> Option<Grant> {
        let resigned = reign.has_resigned() && self.rules.breaks(Mistake::ServeAfterResign);
        if !reign.is_serving() && !resigned {
            return None;
        }
        let open = reign.stage == Stage::Leading || resigned;
        let upload_until = reign.confirmed.plus(self.timings.s3_lease_ms());
        Some(Grant {
            epoch: reign.epoch,
            serve_until: self.serve_until(reign),
            admission: if open { Admission::Open } else { Admission::Closed },
            renewal_from: self.renewal_from(reign.confirmed),
            upload_until,
        })
    }

    /// End of the later lease, less the clock drift (L8): with the defaults 1500 - 500 = 1000 ms
    /// after the newest acked heartbeat left.
    pub(super) fn serve_until(&self, reign: &Reign) -> MonoMs {
        let margin = self.rules.breaks(Mistake::NoFenceMargin);
        let margin = if margin { 0 } else { self.timings.drift_ms() };
        let by_store = reign.confirmed.plus(self.timings.s3_lease_ms() - margin);
        let lease = self.timings.heartbeat_lease_ms() - margin;
        reign.heard.map_or(by_store, |heard| by_store.max(heard.plus(lease)))
    }

    /// First moment at which less than half of the S3 lease remains (L7).
    pub(super) fn renewal_from(&self, confirmed: MonoMs) -> MonoMs {
        confirmed.plus(self.timings.renew_age_ms() + 1)
    }

    pub(super) fn promotion_finished(&mut self, now: Now, epoch: LeaseEpoch, out: &mut Actions) {
        match &mut self.phase {
            Phase::Reign(reign) if reign.epoch == epoch && reign.stage == Stage::Promoting => {
                reign.stage = Stage::Leading;
                reign.next_heartbeat = now.mono;
                self.report(epoch, What::Leads, out);
            }
            _ => {}
        }
    }

    pub(super) fn promotion_failed(
        &mut self,
        now: Now,
        epoch: LeaseEpoch,
        failure: PromotionFailure,
        out: &mut Actions,
    ) {
        if self.reign() != Some(epoch) {
            return;
        }
        match failure {
            PromotionFailure::Sealed => self.depose(now, Deposed::ChainSealed, out),
            PromotionFailure::Gap => {
                self.watch.unfit = true;
                self.depose(now, Deposed::FatalGap, out);
                // Fenced for good at this epoch: the other member need not wait for the expiry.
                out.push(Action::Resign { epoch });
            }
        }
    }

    pub(super) fn chain_lost(&mut self, now: Now, epoch: LeaseEpoch, out: &mut Actions) {
        if self.reign() == Some(epoch) {
            self.depose(now, Deposed::ChainSealed, out);
        }
    }

    /// The reign is over: the grant is withdrawn first, then everything else (L10).
    pub(super) fn depose(&mut self, now: Now, deposed: Deposed, out: &mut Actions) {
        let Phase::Reign(reign) = &self.phase else {
            return;
        };
        let (epoch, resigned) = (reign.epoch, reign.has_resigned());
        self.phase = Phase::Watching;
        self.forget_store();
        self.settle(now);
        self.watch.ask_at = now.mono;
        self.publish(out);
        let what = if resigned { What::HandoverDone } else { What::Deposed(deposed) };
        out.push(Action::Fence(FenceReason::Deposed(deposed)));
        self.report(epoch, what, out);
    }

    pub(super) fn advance_reign(&mut self, now: Now, out: &mut Actions) {
        self.advance_handover(now, out);
        self.advance_heartbeat(now, out);
        self.advance_renewal(now, out);
        self.advance_fence(now, out);
    }

    /// Heartbeats wait for nothing: not for a renewal, not for an ack (L5, L7).
    fn advance_heartbeat(&mut self, now: Now, out: &mut Actions) {
        let interval = self.timings.heartbeat_interval_ms();
        let Phase::Reign(reign) = &mut self.phase else {
            return;
        };
        if !reign.is_serving() {
            return;
        }
        let overdue = self.timings.ack_patience_ms();
        let overdue = reign.overdue_at(overdue).is_some_and(|at| now.mono >= at);
        if now.mono >= reign.next_heartbeat {
            reign.last_sent = Some(now.mono);
            reign.next_heartbeat = now.mono.plus(interval);
            let epoch = reign.epoch;
            out.push(Action::SendHeartbeat { epoch, sent: now.mono, wall: now.wall });
        }
        if overdue {
            self.follower_missed(now, out);
        }
    }

    pub(super) fn heartbeat_failed(&mut self, now: Now, sent: MonoMs, out: &mut Actions) {
        match &self.phase {
            Phase::Reign(reign) if reign.is_serving() && reign.heard < Some(sent) => {
                self.follower_missed(now, out);
            }
            _ => {}
        }
    }

    /// The first failed heartbeat after the follower was reachable renews at once (L7).
    fn follower_missed(&mut self, now: Now, out: &mut Actions) {
        let Phase::Reign(reign) = &mut self.phase else {
            return;
        };
        if !reign.reachable {
            return;
        }
        reign.reachable = false;
        reign.renew_at = now.mono;
        let epoch = reign.epoch;
        self.settle(now);
        self.report(epoch, What::FollowerUnreachable, out);
    }

    pub(super) fn refused(
        &mut self,
        now: Now,
        from: NodeId,
        epoch: LeaseEpoch,
        refusal: Refusal,
        out: &mut Actions,
    ) {
        let me = self.identity.node;
        let Phase::Reign(reign) = &self.phase else {
            return;
        };
        if reign.epoch != epoch || from == me {
            return;
        }
        let counts = reign.counts(me, from);
        match refusal {
            Refusal::Promised(seen) if seen > epoch => {
                return self.depose(now, Deposed::HigherEpoch { seen }, out);
            }
            Refusal::ClockDrift { difference_ms } => {
                let what = What::ClockDrift { other: from, difference_ms };
                self.report(epoch, what, out);
            }
            Refusal::Promised(_) | Refusal::Challenging | Refusal::Foreign => {}
        }
        if counts {
            self.follower_missed(now, out);
        }
    }

    pub(super) fn heartbeat_acked(
        &mut self,
        now: Now,
        from: NodeId,
        epoch: LeaseEpoch,
        sent: MonoMs,
        out: &mut Actions,
    ) {
        let me = self.identity.node;
        let outsider = self.rules.breaks(Mistake::OutsiderAckCounts);
        let from_ack = self.rules.breaks(Mistake::LeaseFromAck);
        let Phase::Reign(reign) = &mut self.phase else {
            return;
        };
        if reign.epoch != epoch || !reign.is_serving() || Some(sent) > reign.last_sent {
            return;
        }
        if !reign.counts(me, from) && !outsider {
            return;
        }
        reign.heard = reign.heard.max(Some(if from_ack { now.mono } else { sent }));
        // A link that is always late stays "away": else every heartbeat would renew.
        let in_time = now.mono.since(sent) <= self.timings.ack_patience_ms();
        if !reign.reachable && in_time && reign.heard >= reign.last_sent {
            reign.reachable = true;
            reign.wanted = false;
            self.settle(now);
            self.report(epoch, What::FollowerReachable, out);
        }
    }

    pub(super) fn renewal_wanted(&mut self, epoch: LeaseEpoch) {
        match &mut self.phase {
            Phase::Reign(reign) if reign.epoch == epoch => reign.wanted = true,
            _ => {}
        }
    }

    /// When the next call to the store is due while none is in flight. `None`: not at all, because
    /// heartbeats carry the lease (L7).
    pub(super) fn renewal_at(&self, reign: &Reign) -> Option<MonoMs> {
        if reign.has_resigned() {
            return None;
        }
        let undecided = self.write.is_some() && (!reign.reachable || reign.wanted);
        let at = if reign.change.to_write().is_some() || undecided {
            MonoMs(0)
        } else if !reign.reachable {
            reign.renew_at
        } else if reign.wanted {
            self.renewal_from(reign.confirmed)
        } else {
            // An undecided renewal too: it is not needed any more, and if it lands it is of this
            // reign.
            return None;
        };
        Some(at.max(self.retry.at))
    }

    fn advance_renewal(&mut self, now: Now, out: &mut Actions) {
        let Phase::Reign(reign) = &self.phase else {
            return;
        };
        if self.call.is_some() {
            return;
        }
        if self.renewal_at(reign).is_none_or(|at| now.mono < at) {
            return;
        }
        if self.write.is_some() {
            return self.resume_write(out);
        }
        let (epoch, in_sync) = (reign.epoch, reign.change.to_write().unwrap_or(reign.in_sync));
        if let Phase::Reign(Reign { change, .. }) = &mut self.phase
            && let Change::Covered { next } = *change
        {
            *change = Change::Written { next };
        }
        self.write_lease(now, epoch, in_sync, out);
    }

    /// Reports the end of the lease once, and its return. The shards need neither.
    fn advance_fence(&mut self, now: Now, out: &mut Actions) {
        let Phase::Reign(reign) = &self.phase else {
            return;
        };
        let ran_out = now.mono >= self.serve_until(reign);
        if !reign.is_serving() || reign.ran_out == ran_out {
            return;
        }
        let epoch = reign.epoch;
        if let Phase::Reign(reign) = &mut self.phase {
            reign.ran_out = ran_out;
        }
        if ran_out {
            out.push(Action::Fence(FenceReason::LeaseRanOut));
        }
        let what = if ran_out { What::LeaseRanOut } else { What::LeaseResumed };
        self.report(epoch, what, out);
    }

    /// A write of the lease at this epoch is confirmed.
    pub(super) fn renewed(&mut self, confirmed: MonoMs, out: &mut Actions) {
        let renew_at = self.renewal_from(confirmed);
        let Some(Version { document, .. }) = &self.version else {
            return;
        };
        let in_sync = document.in_sync;
        if let Phase::Reign(reign) = &mut self.phase {
            reign.confirmed = reign.confirmed.max(confirmed);
            reign.renew_at = renew_at;
            reign.wanted = false;
        }
        self.members_stored(in_sync, out);
    }

    pub(super) fn reign_read_back(
        &mut self,
        now: Now,
        result: ReadResult,
        jitter: u16,
        out: &mut Actions,
    ) {
        match result {
            ReadResult::Failed => self.pause(now, jitter),
            ReadResult::Unusable(error) => {
                self.pause(now, jitter);
                self.report(self.promise.asked, What::LeaseUnusable(error), out);
            }
            ReadResult::Absent => self.depose(now, Deposed::LeaseVanished, out),
            ReadResult::Found(version) => self.reign_found(now, version, jitter, out),
        }
    }

    fn reign_found(&mut self, now: Now, version: Version, jitter: u16, out: &mut Actions) {
        let Phase::Reign(reign) = &self.phase else {
            return;
        };
        let document = &version.document;
        let own = self.is_me(document.leader) && document.token.is_of(self.identity.run);
        if !own || document.epoch != reign.epoch {
            let found = document.epoch;
            self.depose(now, Deposed::LeaseLost { found }, out);
            self.version = Some(version);
            return;
        }
        let base = self.version.as_ref().map(|version| version.document.token);
        let Some(write) = &mut self.write else {
            return;
        };
        if document.token == write.document.token {
            if let Some(write) = self.write.take() {
                self.write_won(now, write, version.etag, out);
            }
        } else if base == Some(document.token) {
            // Undecided: the identical request again; a new one once its content is too old (L4).
            write.next = Next::Repeat;
            if now.mono.since(write.first_sent) > self.timings.renew_age_ms() {
                self.write = None;
            }
            self.pause(now, jitter);
        } else {
            // An earlier write of this reign, given up since, has landed. The tag has moved on, so
            // the undecided one never will.
            let in_sync = document.in_sync;
            self.version = Some(version);
            self.write = None;
            self.settle(now);
            self.members_stored(in_sync, out);
        }
    }
}
