//! Looking at the lease, deciding whether to challenge, and the challenge (L1 to L4, L9).

use super::Machine;
use super::state::{Call, Challenge, Change, Next, Phase, Reign, Seen, Stage};
use crate::action::{Action, Actions};
use crate::document::Document;
use crate::event::{Condition, ReadResult, Version};
use crate::ids::{LeaseEpoch, MonoMs, Now};
use crate::in_sync::InSync;
use crate::report::{Cause, What};
use crate::rules::{Mistake, Rules};
use crate::status::FenceReason;

enum Verdict {
    Wait(MonoMs),
    Take(Cause),
}

impl<R: Rules> Machine<R> {
    pub(super) fn boot(&mut self, now: Now, promised: LeaseEpoch) {
        assert!(matches!(self.phase, Phase::Fresh), "Boot comes once, first");
        self.promise.durable = promised;
        self.promise.asked = promised;
        self.phase = Phase::Watching;
        self.watch.ask_at = now.mono;
        self.watch.patience_until = now.mono.plus(self.restart_wait_ms());
        self.settle(now);
    }

    fn restart_wait_ms(&self) -> u64 {
        let skipped = self.rules.breaks(Mistake::RestartWaitSkipped);
        if skipped { 0 } else { self.timings.restart_wait_ms() }
    }

    pub(super) fn advance_watch(&mut self, now: Now, out: &mut Actions) {
        if self.elect_at().is_some_and(|at| now.mono >= at) {
            self.read_lease(out);
        }
    }

    /// When to look at the lease: not while heartbeats carry it, at once after a `Resign`.
    pub(super) fn elect_at(&self) -> Option<MonoMs> {
        if self.call.is_some() {
            return None;
        }
        let watch = &self.watch;
        let heard = watch.heard_until.filter(|_| watch.resigned.is_none());
        let at = self.retry.at.max(watch.ask_at);
        Some(heard.map_or(at, |heard| at.max(heard)))
    }

    pub(super) fn watch_read(
        &mut self,
        now: Now,
        promised: LeaseEpoch,
        result: ReadResult,
        jitter: u16,
        out: &mut Actions,
    ) {
        match result {
            ReadResult::Failed => self.pause(now, jitter),
            ReadResult::Unusable(error) => {
                self.pause(now, jitter);
                self.halt(FenceReason::LeaseUnusable, What::LeaseUnusable(error), out);
            }
            ReadResult::Absent => self.judge_absent(now, jitter, out),
            ReadResult::Found(version) => self.judge(now, promised, version, jitter, out),
        }
    }

    /// Neither leads nor follows until the lease object is well, or a leader shows itself.
    fn halt(&mut self, reason: FenceReason, what: What, out: &mut Actions) {
        if self.watch.halted.replace(reason) != Some(reason) {
            self.report(self.promise.asked, what, out);
        }
    }

    fn judge_absent(&mut self, now: Now, jitter: u16, out: &mut Actions) {
        if self.promise.asked > LeaseEpoch::NONE {
            // Its epochs would begin again at 1, below what was promised.
            self.pause(now, jitter);
            return self.halt(FenceReason::LeaseVanished, What::LeaseVanished, out);
        }
        self.settle(now);
        self.version = None;
        self.challenge(now, LeaseEpoch::FIRST, Cause::NoLease, out);
    }

    /// Decides by a lease just read (L1). `promised`: the promise when the read was sent.
    fn judge(
        &mut self,
        now: Now,
        promised: LeaseEpoch,
        version: Version,
        jitter: u16,
        out: &mut Actions,
    ) {
        let document = &version.document;
        if document.epoch < self.promise.asked {
            self.pause(now, jitter);
            if document.epoch < promised {
                let what = What::LeaseBehindPromise(promised);
                self.halt(FenceReason::LeaseBehindPromise, what, out);
            }
            return; // else a promise was made while the read was under way: look again
        }
        self.settle(now);
        self.watch.halted = None;
        self.observe(now, document);
        let verdict = self.verdict(now, document);
        self.watch.resigned = self.watch.resigned.filter(|epoch| *epoch == document.epoch);
        let (epoch, in_sync) = (document.epoch, document.in_sync);
        self.version = Some(version);
        match verdict {
            // A document's own expiry may lie far ahead if the other's clock does: look meanwhile.
            Verdict::Wait(until) => {
                self.watch.ask_at = until.min(now.mono.plus(self.timings.s3_lease_ms()));
            }
            Verdict::Take(cause) => self.take_lease(now, epoch, in_sync, cause, out),
        }
    }

    fn take_lease(
        &mut self,
        now: Now,
        epoch: LeaseEpoch,
        in_sync: InSync,
        cause: Cause,
        out: &mut Actions,
    ) {
        let member = in_sync.contains(self.identity.node);
        let what = if self.watch.unfit {
            self.watch.halted = Some(FenceReason::CannotLead);
            What::CannotLead
        } else if !member && !self.rules.breaks(Mistake::OutsiderChallenges) {
            What::NotMember
        } else {
            let raised = match cause {
                Cause::OwnLease if self.rules.breaks(Mistake::RestartKeepsEpoch) => epoch,
                _ if self.rules.breaks(Mistake::EpochNotRaised) => epoch,
                _ => epoch.next(),
            };
            return self.challenge(now, raised, cause, out);
        };
        self.watch.ask_at = now.mono.plus(self.timings.renew_age_ms());
        self.report(epoch, what, out);
    }

    /// Notes since when this very version has been in the bucket, and begins the wait of a
    /// restarted node when it finds its first lease.
    fn observe(&mut self, now: Now, document: &Document) {
        if self.watch.seen.is_none_or(|seen| seen.token != document.token) {
            self.watch.seen = Some(Seen { token: document.token, since: now.mono });
        }
        if !self.watch.found {
            self.watch.found = true;
            if self.watch.heard_until.is_none() {
                self.watch.patience_until = now.mono.plus(self.restart_wait_ms());
            }
            if self.rules.breaks(Mistake::WaitOnlyIfFoundExpired)
                && self.expiry(now, document) > now.mono
            {
                self.watch.patience_until = now.mono;
            }
        }
    }

    fn verdict(&self, now: Now, document: &Document) -> Verdict {
        let mine = self.is_me(document.leader);
        // A reign that was known to be won made its epoch the promise; who has it as promise has
        // followed nobody since. Any other lease of its own may have landed while it followed, and
        // a leader may still count on an ack of an earlier run: wait as for another's (L9).
        let own = document.epoch == self.promise.durable;
        if mine && (own || self.rules.breaks(Mistake::OwnLeaseNeverWaits)) {
            return Verdict::Take(Cause::OwnLease);
        }
        let unchecked = self.rules.breaks(Mistake::ResignEpochUnchecked);
        let resigned = self.watch.resigned;
        if !mine && resigned.is_some_and(|epoch| epoch == document.epoch || unchecked) {
            return Verdict::Take(Cause::Resigned);
        }
        let mut until = self.watch.patience_until;
        if let Some(heard_until) = self.watch.heard_until {
            until = until.max(heard_until);
        }
        if !mine && !self.rules.breaks(Mistake::S3ExpiryIgnored) {
            until = until.max(self.expiry(now, document));
        }
        if now.mono < until {
            return Verdict::Wait(until);
        }
        Verdict::Take(if mine { Cause::OwnLease } else { Cause::Expired })
    }

    /// When the lease of another ends on this node's clock; now, if it has.
    fn expiry(&self, now: Now, document: &Document) -> MonoMs {
        let doubtful = self.watch.skewed || self.watch.drift_ms.is_some();
        match self.watch.seen {
            // This node's wall clock is known to be off: wait until the lease has stood unchanged
            // for as long as its writer may count on it, by the clock that counts durations.
            Some(seen) if doubtful => {
                seen.since.plus(document.duration_ms()).plus(self.timings.drift_ms())
            }
            _ => now.mono.plus(document.expires.since(now.wall)),
        }
    }

    fn challenge(&mut self, now: Now, epoch: LeaseEpoch, cause: Cause, out: &mut Actions) {
        let stopping = self.watch.engaged;
        self.watch.follow = None;
        self.watch.pending = None;
        self.phase = Phase::Challenging(Challenge { epoch, stopping, heard: false });
        self.report(epoch, What::Challenges(cause), out);
        if stopping {
            out.push(Action::StopFollowing);
        }
        if !stopping || self.rules.breaks(Mistake::StopNotAwaited) {
            self.challenge_write(now, out);
        }
    }

    fn challenge_write(&mut self, now: Now, out: &mut Actions) {
        let Phase::Challenging(challenge) = &mut self.phase else {
            return;
        };
        challenge.stopping = false;
        let epoch = challenge.epoch;
        let alone = InSync::alone(self.identity.node);
        let in_sync = self.version.as_ref().map_or(alone, |version| version.document.in_sync);
        self.write_lease(now, epoch, in_sync, out);
    }

    pub(super) fn following_stopped(&mut self, now: Now, out: &mut Actions) {
        self.watch.engaged = false;
        match self.phase {
            Phase::Challenging(challenge) if challenge.stopping => {
                if self.rules.breaks(Mistake::StopForgotten) {
                    // Waits for ever.
                } else if challenge.heard {
                    self.give_up(now, out);
                } else {
                    self.challenge_write(now, out);
                }
            }
            _ => {}
        }
    }

    pub(super) fn advance_challenge(&mut self, now: Now, out: &mut Actions) {
        let Phase::Challenging(challenge) = self.phase else {
            return;
        };
        if challenge.stopping {
            return;
        }
        if challenge.heard && self.give_up_at().is_none_or(|at| now.mono >= at) {
            return self.give_up(now, out);
        }
        if self.call.is_none() && now.mono >= self.retry.at {
            self.resume_write(out);
        }
    }

    /// When to give a challenge up whose answer is still under way although a leader is alive: an
    /// answer takes milliseconds, an outage takes hours. `None` if no answer is under way.
    pub(super) fn give_up_at(&self) -> Option<MonoMs> {
        let write = self.write.as_ref().filter(|_| self.call.is_some())?;
        Some(write.first_sent.plus(self.timings.heartbeat_lease_ms()))
    }

    /// Follows again (L4). If the write lands late, that reign never opens.
    fn give_up(&mut self, now: Now, out: &mut Actions) {
        if let Phase::Challenging(challenge) = self.phase {
            self.report(challenge.epoch, What::ChallengeGivenUp, out);
        }
        self.phase = Phase::Watching;
        if !self.rules.breaks(Mistake::GivenUpLeads) {
            self.forget_store();
        }
        self.settle(now);
        self.watch.ask_at = now.mono.plus(self.timings.heartbeat_lease_ms());
    }

    /// The lease belongs to a leader that has just shown itself.
    pub(super) fn abandon_challenge(&mut self, now: Now) {
        self.phase = Phase::Watching;
        self.forget_store();
        self.settle(now);
        self.watch.ask_at = now.mono.plus(self.timings.heartbeat_lease_ms());
    }

    pub(super) fn challenge_read_back(
        &mut self,
        now: Now,
        call: Call,
        result: ReadResult,
        jitter: u16,
        out: &mut Actions,
    ) {
        let Some(write) = &self.write else {
            return;
        };
        let version = match result {
            ReadResult::Failed => return self.pause(now, jitter),
            ReadResult::Unusable(_) | ReadResult::Absent
                if !(result == ReadResult::Absent && write.condition == Condition::Absent) =>
            {
                self.abandon_challenge(now);
                self.watch.ask_at = now.mono;
                return self.watch_read(now, call.promised, result, jitter, out);
            }
            ReadResult::Unusable(_) | ReadResult::Absent => {
                return self.challenge_undecided(now, jitter);
            }
            ReadResult::Found(version) => version,
        };
        let document = &version.document;
        let by_epoch =
            self.rules.breaks(Mistake::TokensNotCompared) && document.epoch == write.document.epoch;
        if document.token == write.document.token || by_epoch {
            let etag = version.etag;
            if let Some(write) = self.write.take() {
                self.write_won(now, write, etag, out);
            }
            return;
        }
        let base = self.version.as_ref().map(|version| version.document.token);
        if write.condition != Condition::Absent && base == Some(document.token) {
            return self.challenge_undecided(now, jitter);
        }
        let overwritten = document.recent.as_slice().contains(&write.document.token);
        let (epoch, leader) = (write.document.epoch, document.leader);
        let what = if overwritten { What::ChallengeOverwritten } else { What::ChallengeLost };
        self.report(epoch, what(leader), out);
        self.abandon_challenge(now);
        self.judge(now, call.promised, version, jitter, out);
    }

    /// Not stored, but it may still land: repeat it, or begin anew when its content is too old.
    fn challenge_undecided(&mut self, now: Now, jitter: u16) {
        self.pause(now, jitter);
        let Some(write) = &mut self.write else {
            return;
        };
        write.next = Next::Repeat;
        if now.mono.since(write.first_sent) > self.timings.renew_age_ms() {
            self.phase = Phase::Watching;
            self.forget_store();
            self.watch.ask_at = now.mono;
        }
    }

    /// A mistake for the exhaustive check.
    pub(super) fn conflict_means_lost(&mut self, now: Now, jitter: u16, out: &mut Actions) {
        let lost = self.write.take();
        if let Some(write) = lost {
            self.report(write.document.epoch, What::ChallengeLost(self.identity.node), out);
        }
        self.pause(now, jitter);
        self.phase = Phase::Watching;
        self.watch.ask_at = now.mono.plus(self.timings.heartbeat_lease_ms());
    }

    /// The compare-and-swap is known to be this node's: a new reign (L2).
    pub(super) fn reign_won(&mut self, confirmed: MonoMs, out: &mut Actions) {
        let Some(version) = &self.version else {
            return;
        };
        let (epoch, in_sync) = (version.document.epoch, version.document.in_sync);
        self.watch.follow = None;
        self.watch.pending = None;
        self.watch.drift_ms = None;
        self.phase = Phase::Reign(Reign {
            epoch,
            stage: Stage::Promising,
            in_sync,
            change: Change::None,
            confirmed,
            heard: None,
            last_sent: None,
            next_heartbeat: confirmed,
            reachable: false,
            renew_at: self.renewal_from(confirmed),
            wanted: false,
            ran_out: false,
        });
        self.report(epoch, What::ReignWon, out);
        self.promise.asked = self.promise.asked.max(epoch);
        out.push(Action::PersistPromise { epoch });
        if self.rules.breaks(Mistake::PromiseNotAwaited) {
            self.start_promotion(out);
        }
    }

    pub(super) fn start_promotion(&mut self, out: &mut Actions) {
        if let Phase::Reign(reign) = &mut self.phase {
            reign.stage = Stage::Promoting;
            out.push(Action::StartPromotion { epoch: reign.epoch, in_sync: reign.in_sync });
        }
    }
}
