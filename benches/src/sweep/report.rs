//! What a sweep has found, for machines and for people.

use std::fmt::{self, Write as _};

use serde::Serialize;

use super::recovery::{Aftermath, recovery_ms};
use super::search::{Bound, BoundOrigin, Knee, Limit, Observation, Verdict};
use super::{Load, OVERLOAD_PERCENT};
use crate::generator::report::Report;
use crate::results::cost::ServerCost;
use crate::results::document::CurvePoint;
use crate::results::sweep_note::{LevelNote, OverloadNote, SweepNote, recovery_words};

/// The whole result.
#[derive(Clone, Debug, Serialize)]
pub struct SweepReport {
    /// What a short closed loop reached, per second: where the search began.
    pub closed_loop_per_s: f64,
    /// The highest rate that was kept.
    pub knee: Knee,
    /// The knee itself was not kept when it was measured again, or 120 % of it was: the machine was
    /// disturbed during the search, or the knee moves.
    pub disturbed: bool,
    /// The steps of the search, in their order.
    pub steps: Vec<StepReport>,
    /// Loads at shares of the knee, in ascending order.
    pub levels: Vec<LevelReport>,
    /// Past the knee.
    pub overload: OverloadReport,
    /// Time of everything, seconds.
    pub took_s: f64,
}

/// One step of the search.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StepReport {
    /// What it showed.
    #[serde(flatten)]
    pub seen: Observation,
    /// Whether the rate was kept.
    pub verdict: Verdict,
}

/// A load at a share of the knee.
#[derive(Clone, Debug, Serialize)]
pub struct LevelReport {
    /// Of the knee.
    pub percent: u64,
    /// Whether it was kept, as in the search.
    pub verdict: Verdict,
    /// The load's own result.
    pub report: Report,
    /// What it cost the server.
    pub server_cost: ServerCost,
}

/// A load far past the knee, and what comes after it.
#[derive(Clone, Debug, Serialize)]
pub struct OverloadReport {
    /// Of the knee.
    pub percent: u64,
    /// Its throughput over the knee's rate.
    pub throughput_over_knee: f64,
    /// Share of the answers that were `Busy`.
    pub busy_share: f64,
    /// How long refusals took, us; `null` without any.
    pub refusal_p99_us: Option<f64>,
    /// From the end of the overload until a light load is served as before, at most, ms; `null`:
    /// not within five seconds, or `recovery_failed` says why it is not known.
    pub recovery_ms: Option<f64>,
    /// Why the light load behind the overload could not be measured.
    pub recovery_failed: Option<String>,
    /// The load's own result.
    pub report: Report,
    /// What it cost the server.
    pub server_cost: ServerCost,
}

impl StepReport {
    /// A step's verdict under the bound that is known by now.
    #[must_use]
    pub fn new(seen: &Observation, bound: Option<Bound>) -> Self {
        Self { seen: *seen, verdict: seen.verdict(bound.map(|bound| bound.p99_us)) }
    }

    /// One line without its end.
    #[must_use]
    pub fn to_text(&self) -> String {
        let Observation { rate_per_s, achieved_per_s, p99_us, .. } = self.seen;
        let p99 = number(p99_us);
        let verdict = self.verdict.words();
        format!("{rate_per_s} /s: {achieved_per_s:.1} /s answered, p99 {p99} us, {verdict}")
    }
}

impl OverloadReport {
    /// `after`: the light load behind the overload, or why there is none; `light`: the same load
    /// before.
    #[must_use]
    pub fn new(
        over: Load,
        light: &LevelReport,
        after: Result<Aftermath, String>,
        knee: &Knee,
    ) -> Self {
        let Load { report: over, cost, .. } = over;
        let busy = over.errors_by_code.get("Busy").copied().unwrap_or(0) as f64;
        let answers = (over.acked + over.errors).max(1) as f64;
        let light_p99_us = light.report.latency_us.p99;
        let recovery = |after: &Aftermath| recovery_ms(after, light_p99_us?).map(f64::round);
        Self {
            percent: OVERLOAD_PERCENT,
            throughput_over_knee: thousandths(over.throughput_per_s / knee.rate_per_s as f64),
            busy_share: thousandths(busy / answers),
            refusal_p99_us: over.refusals_us.p99,
            recovery_ms: after.as_ref().ok().and_then(recovery),
            recovery_failed: after.err(),
            report: over,
            server_cost: cost,
        }
    }
}

impl SweepReport {
    /// The table for people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.write_text(&mut text).expect("a String takes all text");
        text
    }

    /// Latency over throughput, in the order of the loads.
    #[must_use]
    pub fn curve(&self) -> Vec<CurvePoint> {
        let levels = self.levels.iter().map(|level| (level.percent, &level.report));
        let all = levels.chain([(self.overload.percent, &self.overload.report)]);
        all.map(|(percent, report)| point(percent, report)).collect()
    }

    /// What is written down of it, beside the load at the knee.
    #[must_use]
    pub fn note(&self) -> SweepNote {
        let Knee { rate_per_s, limit, bound, .. } = &self.knee;
        let level = |level: &LevelReport| LevelNote {
            percent: level.percent,
            verdict: code(&level.verdict),
            point: point(level.percent, &level.report),
            server_cost: level.server_cost.clone(),
        };
        let over = &self.overload;
        SweepNote {
            knee_per_s: *rate_per_s,
            limit: code(limit),
            bound_p99_us: bound.p99_us,
            bound_origin: code(&bound.origin),
            disturbed: self.disturbed,
            closed_loop_per_s: self.closed_loop_per_s,
            steps: self.steps.len(),
            took_s: self.took_s,
            levels: self.levels.iter().map(level).collect(),
            overload: OverloadNote {
                percent: over.percent,
                point: point(over.percent, &over.report),
                server_cost: over.server_cost.clone(),
                throughput_over_knee: over.throughput_over_knee,
                busy_share: over.busy_share,
                refusal_p99_us: over.refusal_p99_us,
                recovery_ms: over.recovery_ms,
                recovery_failed: over.recovery_failed.clone(),
            },
        }
    }

    fn write_text(&self, text: &mut String) -> fmt::Result {
        let Knee { rate_per_s, at, bound, .. } = &self.knee;
        let (p50, p99) = (number(at.p50_us), number(at.p99_us));
        writeln!(text, "knee {rate_per_s} /s: p50 {p50} us, p99 {p99} us")?;
        writeln!(
            text,
            "  kept means: 98 % of what was offered answered, no errors, p99 <= {bound}"
        )?;
        writeln!(text, "  {}", self.knee.limit_words())?;
        if let Some(failed) = self.knee.failed {
            let step = StepReport { seen: failed.at, verdict: failed.verdict };
            writeln!(text, "  the next rate, {}", step.to_text())?;
        }
        writeln!(text, "  a closed loop reached {:.1} /s", self.closed_loop_per_s)?;
        writeln!(
            text,
            "\n  {:>8} {:>10} {:>12} {:>10} {:>10} {:>10} {:>8} {:>9} {:>10}",
            "of knee",
            "rate /s",
            "answered /s",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "errors",
            "CPU s/M",
            "flushes/op",
        )?;
        for LevelReport { percent, report, server_cost, .. } in &self.levels {
            write_row(text, *percent, report, server_cost)?;
        }
        let over = &self.overload;
        let OverloadReport { percent, throughput_over_knee, busy_share, .. } = over;
        write_row(text, *percent, &over.report, &over.server_cost)?;
        writeln!(
            text,
            "\n  at {percent} %: {throughput_over_knee:.3} of the knee's throughput, {:.1} % of \
             the answers Busy, p99 of refusals {} us",
            busy_share * 100.0,
            number(over.refusal_p99_us),
        )?;
        let recovery = recovery_words(over.recovery_ms, over.recovery_failed.as_deref());
        writeln!(text, "  after it: a light load {recovery}")?;
        if self.disturbed {
            writeln!(
                text,
                "  WARNING disturbed: 100 % of the knee was not kept when measured again, or 120 % \
                 was; repeat the sweep on a quiet machine, or with a longer --sweep-step"
            )?;
        }
        writeln!(text, "  {} steps, {:.0} s in all", self.steps.len(), self.took_s)
    }
}

fn write_row(text: &mut String, percent: u64, report: &Report, cost: &ServerCost) -> fmt::Result {
    let latency = &report.latency_us;
    let flushes =
        cost.flushes_per_append.map_or_else(|| "-".to_owned(), |each| format!("{each:.4}"));
    writeln!(
        text,
        "  {:>6} % {:>10} {:>12.1} {:>10} {:>10} {:>10} {:>8} {:>9} {:>10}{}",
        percent,
        report.settings.rate_per_s.unwrap_or(0),
        report.throughput_per_s,
        number(latency.p50),
        number(latency.p99),
        number(latency.p99_9),
        report.errors,
        number(cost.cpu_s_per_million),
        flushes,
        if report.client.client_limited { "  client-limited" } else { "" },
    )
}

impl Knee {
    fn limit_words(&self) -> &'static str {
        match self.limit {
            Limit::Server => "it is the server's: the generator had room at the next rate",
            Limit::Generator => {
                "client-limited: the knee is the generator's; give --threads, or more workers \
                 (`bench run`)"
            }
            Limit::Rate => "the server kept the highest rate that can be asked for",
            Limit::Budget => "the search ran out of steps or time: the knee may lie higher",
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = match self.origin {
            BoundOrigin::Given => "--slo-p99",
            BoundOrigin::LightLoad => "10 x the p99 at light load, at least 1 ms",
        };
        write!(out, "{:.1} us ({origin})", self.p99_us)
    }
}

/// The name of a variant, as it stands in JSON.
fn code(variant: &impl Serialize) -> String {
    let value = serde_json::to_value(variant).expect("a name has a JSON form");
    value.as_str().expect("a variant without members is its name").to_owned()
}

fn point(percent: u64, report: &Report) -> CurvePoint {
    CurvePoint::of(format!("{percent} %"), report)
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

fn thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
