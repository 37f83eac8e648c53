//! Giving a reign away: to the follower (L11), or to itself at a higher epoch (G3).

use super::Machine;
use super::state::{Goal, Phase, Stage};
use crate::action::{Action, Actions};
use crate::ids::{LeaseEpoch, Now};
use crate::report::What;
use crate::rules::Rules;
use crate::status::{Deposed, FenceReason};

impl<R: Rules> Machine<R> {
    pub(super) fn resign_requested(&mut self, now: Now, out: &mut Actions) {
        let Phase::Reign(reign) = &self.phase else {
            return;
        };
        let epoch = reign.epoch;
        if reign.stage != Stage::Leading {
            return;
        }
        if !reign.reachable {
            return self.report(epoch, What::HandoverRefused, out);
        }
        self.report(epoch, What::HandoverStarted, out);
        self.drain(now, Goal::Handover, out);
    }

    pub(super) fn new_reign_requested(&mut self, now: Now, out: &mut Actions) {
        if matches!(&self.phase, Phase::Reign(reign) if reign.stage == Stage::Leading) {
            self.drain(now, Goal::NewReign, out);
        }
    }

    fn drain(&mut self, now: Now, goal: Goal, out: &mut Actions) {
        let until = now.mono.plus(self.timings.heartbeat_lease_ms());
        if let Phase::Reign(reign) = &mut self.phase {
            reign.stage = Stage::Draining { until, goal };
            let epoch = reign.epoch;
            self.publish(out);
            out.push(Action::Drain { epoch });
        }
    }

    pub(super) fn drained(&mut self, now: Now, epoch: LeaseEpoch, out: &mut Actions) {
        let patience_ms = self.timings.heartbeat_lease_ms();
        let Phase::Reign(reign) = &mut self.phase else {
            return;
        };
        if reign.epoch != epoch {
            return;
        }
        match reign.stage {
            Stage::Draining { goal: Goal::NewReign, .. } => {
                self.depose(now, Deposed::NewReign, out);
            }
            Stage::Draining { goal: Goal::Handover, .. } => {
                // For good: nothing leads from here back to leading at this epoch.
                reign.stage = Stage::Resigned { until: now.mono.plus(patience_ms) };
                self.forget_store();
                self.publish(out);
                out.push(Action::Fence(FenceReason::Resigned));
                out.push(Action::Resign { epoch });
            }
            _ => {}
        }
    }

    pub(super) fn advance_handover(&mut self, now: Now, out: &mut Actions) {
        let Phase::Reign(reign) = &mut self.phase else {
            return;
        };
        let epoch = reign.epoch;
        match reign.stage {
            Stage::Draining { until, .. } if now.mono >= until => {
                reign.stage = Stage::Leading;
                self.report(epoch, What::HandoverCancelled, out);
            }
            Stage::Resigned { until } if now.mono >= until => {
                // Looks at the lease: takes a new reign if it is still its own (L2), else follows.
                self.phase = Phase::Watching;
                self.watch.ask_at = now.mono;
                self.settle(now);
                out.push(Action::Fence(FenceReason::Deposed(Deposed::Unanswered)));
                self.report(epoch, What::HandoverUnanswered, out);
                self.advance_watch(now, out);
            }
            _ => {}
        }
    }
}
