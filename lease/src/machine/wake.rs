//! When the machine next has something to do if nothing happens.

use super::Machine;
use super::state::{Phase, Reign, Stage};
use crate::action::{Action, Actions};
use crate::ids::MonoMs;
use crate::rules::Rules;

impl<R: Rules> Machine<R> {
    pub(super) fn set_timer(&mut self, out: &mut Actions) {
        let at = match &self.phase {
            Phase::Fresh => None,
            Phase::Watching => self.elect_at(),
            Phase::Challenging(challenge) if challenge.stopping => None,
            Phase::Challenging(challenge) => match self.call {
                None => Some(self.retry.at),
                Some(_) if challenge.heard => self.give_up_at(),
                Some(_) => None,
            },
            Phase::Reign(reign) => self.reign_wakes(reign),
        };
        if at != self.timer {
            self.timer = at;
            if let Some(at) = at {
                out.push(Action::SetTimer { at });
            }
        }
    }

    fn reign_wakes(&self, reign: &Reign) -> Option<MonoMs> {
        let renewal = if self.call.is_none() { self.renewal_at(reign) } else { None };
        let serving = matches!(reign.stage, Stage::Leading | Stage::Draining { .. });
        let heartbeat = serving.then_some(reign.next_heartbeat);
        let overdue = self.timings.ack_patience_ms();
        let overdue = reign.overdue_at(overdue).filter(|_| serving);
        let fence = (serving && !reign.ran_out).then(|| self.serve_until(reign));
        let handover = match reign.stage {
            Stage::Draining { until, .. } | Stage::Resigned { until } => Some(until),
            _ => None,
        };
        [renewal, heartbeat, overdue, fence, handover].into_iter().flatten().min()
    }
}
