//! The search for the knee: the highest rate that a server keeps with short latencies. A machine
//! that is told what a step at one rate has shown and says at which rate the next one is to run.
//!
//! A rate is kept when at least 98 % of what the timetable offered was answered in the window,
//! nothing was refused or lost, and p99 is at most the bound. The search doubles from a light rate
//! until one is not kept and then halves the gap. A rate that fails is tried once more: one stall
//! of a shared machine would otherwise halve the result.

use std::time::Duration;

use serde::Serialize;

use crate::generator::settings::RATE_MAX_PER_S;

/// Share of what was offered that has to be answered in the window.
pub const KEPT_SHARE: f64 = 0.98;
/// The search ends when the lowest rate that failed is at most this much above the highest kept.
const GAP_MAX: f64 = 1.05;
/// The light rate, as a share of the estimate.
const LIGHT_SHARE: f64 = 0.1;
/// Steps at the light rate: the lower p99 counts.
const LIGHT_STEPS: u32 = 2;
/// A light rate that is not kept is divided by this, so often.
const LIGHTER_DIVISOR: u64 = 4;
const LIGHTER_MAX: u32 = 3;
/// Without `--slo-p99` the bound is this many times the light p99, and at least this, us.
pub const BOUND_FACTOR: f64 = 10.0;
/// See [`BOUND_FACTOR`].
pub const BOUND_MIN_US: f64 = 1000.0;
/// A p99 of fewer requests than this is one of a handful of stragglers.
const SAMPLES_MIN: f64 = 500.0;
/// A step is at most this many times as long as asked for to reach them.
const STRETCH_MAX: u32 = 4;

/// What bounds the search.
#[derive(Clone, Copy, Debug)]
pub struct SearchLimits {
    /// Measured time of a step; at low rates up to four times that.
    pub step: Duration,
    /// Most steps.
    pub steps_max: u32,
    /// No step begins after this much time.
    pub time_max: Duration,
    /// Bound of p99, us; `None` = from the light load.
    pub slo_p99_us: Option<f64>,
}

impl SearchLimits {
    /// Measured time of the longest step.
    #[must_use]
    pub const fn step_max(&self) -> Duration {
        self.step.saturating_mul(STRETCH_MAX)
    }
}

/// What a step has shown.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Observation {
    /// The rate that was asked for, per second.
    pub rate_per_s: u64,
    /// What the timetable offered in the window, per second: near the rate, with Poisson arrivals
    /// not equal to it.
    pub offered_per_s: f64,
    /// Successful answers in the window, per second.
    pub achieved_per_s: f64,
    /// Latency of the successful ones, us.
    pub p50_us: Option<f64>,
    /// Latency of the successful ones, us.
    pub p99_us: Option<f64>,
    /// Refused, lost and never answered; at least the connections that broke.
    pub errors: u64,
    /// The generator fell behind its timetable.
    pub saturated: bool,
    /// The generator was at its own limit.
    pub client_limited: bool,
}

/// Whether a rate was kept, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It was.
    Kept,
    /// Fewer answers than 98 % of what was offered.
    Behind,
    /// Requests were refused or lost.
    Errors,
    /// p99 above the bound.
    Slow,
}

/// The bound of p99.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bound {
    /// Microseconds.
    pub p99_us: f64,
    /// Where it comes from.
    pub origin: BoundOrigin,
}

/// See [`Bound`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BoundOrigin {
    /// `--slo-p99`.
    Given,
    /// Ten times the p99 at light load, at least 1 ms.
    LightLoad,
}

/// What is to happen next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Measure at this rate for so long; [`Search::observe`] takes what it shows.
    Measure {
        /// Per second.
        rate_per_s: u64,
        /// Measured window.
        duration: Duration,
    },
    /// The search is over.
    Done(Result<Knee, NoKnee>),
}

/// Whose limit the knee is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The server's: the next higher rate failed and the generator had room.
    Server,
    /// The generator's: at the next higher rate it was at its own limit.
    Generator,
    /// Nobody's: the highest rate that can be asked for was kept.
    Rate,
    /// The bound on steps or time ended the search; the knee lies between `rate_per_s` and
    /// `failed`, or above `rate_per_s` if nothing failed.
    Budget,
}

/// The highest rate that was kept.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Knee {
    /// Per second.
    pub rate_per_s: u64,
    /// What it showed.
    pub at: Observation,
    /// The lowest rate above it that failed.
    pub failed: Option<Failed>,
    /// Whose limit it is.
    pub limit: Limit,
    /// What p99 was held against.
    pub bound: Bound,
    /// p50 at the light rate, us.
    pub light_p50_us: Option<f64>,
    /// p99 at the light rate, us.
    pub light_p99_us: Option<f64>,
}

/// A rate that was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Failed {
    /// Why not.
    pub verdict: Verdict,
    /// What it showed.
    pub at: Observation,
}

/// Why there is no knee.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoKnee {
    /// Not even a light load was kept.
    #[error(
        "there is no knee: not even {rate_per_s} requests/s were kept ({why}); \
         if the server is slow on purpose, give a larger --slo-p99"
    )]
    Light {
        /// The lightest rate that was tried, per second.
        rate_per_s: u64,
        /// In words.
        why: &'static str,
    },
    /// The bounds on steps or time came first.
    #[error("the sweep ran out of {what} before any rate was kept: raise --sweep-time")]
    Budget {
        /// `steps` or `time`.
        what: &'static str,
    },
}

impl Verdict {
    /// For a table.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Behind => "fell behind",
            Self::Errors => "errors",
            Self::Slow => "p99 too high",
        }
    }
}

impl Observation {
    /// Whether the rate was kept; `bound_us` of `None` bounds nothing.
    #[must_use]
    pub fn verdict(&self, bound_us: Option<f64>) -> Verdict {
        if self.errors > 0 {
            return Verdict::Errors;
        }
        if self.achieved_per_s < self.offered_per_s * KEPT_SHARE {
            return Verdict::Behind;
        }
        match (self.p99_us, bound_us) {
            // Nothing was answered, which the line above lets pass only if nothing was offered.
            (None, _) => Verdict::Behind,
            (Some(p99_us), Some(bound_us)) if p99_us > bound_us => Verdict::Slow,
            (Some(_), _) => Verdict::Kept,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Light,
    Ascend,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Search {
    limits: SearchLimits,
    phase: Phase,
    rate_per_s: u64,
    /// Failures at this rate so far; in the light phase steps that were kept.
    tries: u32,
    lighter: u32,
    bound: Option<Bound>,
    light: Option<Observation>,
    kept: Option<Observation>,
    failed: Option<Failed>,
    steps: u32,
    spent: Duration,
    done: Option<Result<Knee, NoKnee>>,
}

impl Search {
    /// Begins at a tenth of `estimate_per_s`, which is what a closed loop reached.
    #[must_use]
    pub fn new(estimate_per_s: f64, limits: SearchLimits) -> Self {
        let given = |p99_us| Bound { p99_us, origin: BoundOrigin::Given };
        Self {
            limits,
            phase: Phase::Light,
            // A cast from a float saturates; NaN is 0.
            rate_per_s: ((estimate_per_s * LIGHT_SHARE) as u64).clamp(1, RATE_MAX_PER_S),
            tries: 0,
            lighter: 0,
            bound: limits.slo_p99_us.map(given),
            light: None,
            kept: None,
            failed: None,
            steps: 0,
            spent: Duration::ZERO,
            done: None,
        }
    }

    /// What is to be done now.
    #[must_use]
    pub fn next(&self) -> Next {
        if let Some(done) = &self.done {
            return Next::Done(done.clone());
        }
        let wanted = Duration::from_secs_f64(SAMPLES_MIN / self.rate_per_s as f64);
        let step = self.limits.step;
        let duration = wanted.clamp(step, self.limits.step_max());
        Next::Measure { rate_per_s: self.rate_per_s, duration }
    }

    /// Takes what the step that [`Search::next`] asked for has shown; it took `took` in all.
    pub fn observe(&mut self, seen: &Observation, took: Duration) {
        self.steps += 1;
        self.spent += took;
        match self.phase {
            Phase::Light => self.observe_light(seen),
            Phase::Ascend => self.observe_rate(seen),
        }
        if self.done.is_none() {
            self.end_if_over();
        }
        self.check();
    }

    /// How p99 is bounded; `None` before the light load was measured.
    #[must_use]
    pub const fn bound(&self) -> Option<Bound> {
        self.bound
    }

    fn observe_light(&mut self, seen: &Observation) {
        let verdict = seen.verdict(self.limits.slo_p99_us);
        if verdict != Verdict::Kept {
            self.lighten(seen, verdict);
            return;
        }
        let better = |known: Observation| if known.p99_us <= seen.p99_us { known } else { *seen };
        let light = self.light.map_or(*seen, better);
        self.light = Some(light);
        self.tries += 1;
        if self.tries < LIGHT_STEPS {
            return;
        }
        let from_light = Bound {
            p99_us: (light.p99_us.unwrap_or(0.0) * BOUND_FACTOR).max(BOUND_MIN_US),
            origin: BoundOrigin::LightLoad,
        };
        self.bound = self.bound.or(Some(from_light));
        self.kept = Some(light);
        self.phase = Phase::Ascend;
        self.go_to(self.rate_per_s.saturating_mul(2));
    }

    fn lighten(&mut self, seen: &Observation, verdict: Verdict) {
        if self.lighter == LIGHTER_MAX || self.rate_per_s == 1 {
            let rate_per_s = seen.rate_per_s;
            self.done = Some(Err(NoKnee::Light { rate_per_s, why: verdict.words() }));
            return;
        }
        self.lighter += 1;
        self.light = None;
        self.go_to(self.rate_per_s / LIGHTER_DIVISOR);
    }

    fn observe_rate(&mut self, seen: &Observation) {
        let verdict = seen.verdict(self.bound.map(|bound| bound.p99_us));
        if verdict == Verdict::Kept {
            self.kept = Some(*seen);
        } else {
            self.tries += 1;
            if self.tries == 1 {
                return;
            }
            self.failed = Some(Failed { verdict, at: *seen });
        }
        self.go_on();
    }

    /// Chooses the next rate from the highest kept and the lowest that failed.
    fn go_on(&mut self) {
        let kept = self.kept.map_or(0, |kept| kept.rate_per_s);
        match self.failed.map(|failed| failed.at.rate_per_s) {
            None if kept >= RATE_MAX_PER_S => self.finish(Limit::Rate),
            None => self.go_to(kept.saturating_mul(2)),
            Some(failed) if is_narrow(kept, failed) => {
                let generator = self.failed.is_some_and(|failed| failed.at.client_limited);
                self.finish(if generator { Limit::Generator } else { Limit::Server });
            }
            Some(failed) => self.go_to(kept + (failed - kept) / 2),
        }
    }

    fn go_to(&mut self, rate_per_s: u64) {
        self.rate_per_s = rate_per_s.clamp(1, RATE_MAX_PER_S);
        self.tries = 0;
    }

    fn end_if_over(&mut self) {
        let what = if self.steps >= self.limits.steps_max {
            "steps"
        } else if self.spent >= self.limits.time_max {
            "time"
        } else {
            return;
        };
        match self.kept {
            Some(_) => self.finish(Limit::Budget),
            None => self.done = Some(Err(NoKnee::Budget { what })),
        }
    }

    fn finish(&mut self, limit: Limit) {
        let (kept, bound) = (self.kept, self.bound);
        let (kept, bound) = kept.zip(bound).expect("only a search that has kept a rate finishes");
        self.done = Some(Ok(Knee {
            rate_per_s: kept.rate_per_s,
            at: kept,
            failed: self.failed,
            limit,
            bound,
            light_p50_us: self.light.and_then(|light| light.p50_us),
            light_p99_us: self.light.and_then(|light| light.p99_us),
        }));
    }

    /// What holds after every step: the kept rate lies below the failed one, and the bounds hold.
    fn check(&self) {
        if let (Some(kept), Some(failed)) = (self.kept, self.failed) {
            assert!(kept.rate_per_s < failed.at.rate_per_s, "{kept:?} {failed:?}");
        }
        assert!(self.steps <= self.limits.steps_max);
        assert!((1..=RATE_MAX_PER_S).contains(&self.rate_per_s));
    }
}

/// Whether the rates are so near that a further step would tell nothing.
fn is_narrow(kept: u64, failed: u64) -> bool {
    failed - kept <= 1 || failed as f64 <= kept as f64 * GAP_MAX
}

#[cfg(test)]
mod tests;
