//! `--sweep`: finds the knee of throughput against latency with open-loop loads, then measures
//! latency below and above it, an overload, and how soon the server has recovered from that.
//!
//! Knows no generator: whatever runs a load and gives back what its threads counted will do, one
//! process or a fleet.

pub mod recovery;
mod report;
pub mod search;

use std::fmt::Display;
use std::time::Duration;

use recovery::{Aftermath, Slot};
pub use report::{LevelReport, OverloadReport, StepReport, SweepReport};
use search::{Next, NoKnee, Observation, Search, SearchLimits, Verdict};

use crate::fleet::FleetReport;
use crate::generator::clock::{Clock, random_run_id};
use crate::generator::report::Report;
use crate::generator::settings::RATE_MAX_PER_S;
use crate::generator::sketch::Outline;
use crate::generator::tally::{Tally, Window};
use crate::generator::time_line::{Point, TimeLine};
use crate::generator::{Settings, SettingsError};
use crate::results::cost::ServerCost;

/// Loads beside the knee, percent of it.
pub const LEVELS_PERCENT: [u64; 5] = [10, 50, 80, 100, 120];
/// The overload, percent of the knee.
pub const OVERLOAD_PERCENT: u64 = 300;
/// The light load that follows it, percent of the knee.
const RECOVERY_PERCENT: u64 = LEVELS_PERCENT[0];
/// How long it is watched: several times what a recovery may take.
const RECOVERY_WINDOW: Duration = Duration::from_secs(5);
/// A point of the recovery.
const SLOT_NS: u64 = 100_000_000;
/// Load in front of a step's window, at most: a step is short.
const STEP_WARM_UP_MAX: Duration = Duration::from_millis(500);

/// What a sweep is to do.
#[derive(Clone, Copy, Debug)]
pub struct SweepSettings {
    /// Of the search.
    pub limits: SearchLimits,
    /// Requests in flight per connection in the overload; the generator keeps back what is more.
    pub overload_in_flight: u32,
}

/// A setting of the sweep, in words of the load that it makes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option}: {error}")]
pub struct WrongSetting {
    /// The sweep's option.
    pub option: &'static str,
    /// Why its load cannot be.
    pub error: SettingsError,
}

/// Why a sweep gave no result. `E`: of the generator.
#[derive(Debug, thiserror::Error)]
pub enum SweepError<E> {
    /// Settings out of range.
    #[error(transparent)]
    Setting(#[from] WrongSetting),
    /// The server has none.
    #[error(transparent)]
    NoKnee(#[from] NoKnee),
    /// A load failed.
    #[error("{0}")]
    Load(E),
}

/// Runs loads and remembers what they were.
struct Sweep<'a, M> {
    base: &'a Settings,
    measure: M,
    tell: &'a mut dyn FnMut(&str),
    at_knee: Option<Load>,
    /// Reads: the load that has written the streams.
    written_by: Option<u64>,
}

/// What a load has come to.
#[derive(Clone, Debug)]
pub struct Load {
    /// Its figures.
    pub report: Report,
    /// What they were made from.
    pub tallies: Vec<Tally>,
    /// What it cost the server.
    pub cost: ServerCost,
    /// When it was: the windows of all loads of a sweep are on one clock.
    pub window: Window,
    /// How the workers did, if there are any.
    pub fleet: Option<FleetReport>,
}

/// What a sweep has come to.
#[derive(Clone, Debug)]
pub struct Swept {
    /// The result.
    pub report: SweepReport,
    /// The load at the knee.
    pub at_knee: Load,
}

impl SweepSettings {
    /// Checks every load that there will be, so that the last one does not fail when all others
    /// have been measured. `base`: as for [`run`], and right by itself.
    pub fn check(&self, base: &Settings) -> Result<(), WrongSetting> {
        for duration in [self.limits.step, self.limits.step_max()] {
            let option = "--sweep-step";
            step(base, None, duration).check().map_err(|error| WrongSetting { option, error })?;
        }
        let option = "--overload-in-flight";
        let over = overload(base, 1, self.overload_in_flight);
        over.check().map_err(|error| WrongSetting { option, error })
    }
}

/// A short load.
fn step(base: &Settings, rate_per_s: Option<u64>, duration: Duration) -> Settings {
    let warm_up = base.warm_up.min(STEP_WARM_UP_MAX);
    Settings { rate_per_s, duration, warm_up, ..base.clone() }
}

/// Without a drain the overload ends when its window does.
fn overload(base: &Settings, rate_per_s: u64, in_flight: u32) -> Settings {
    let (rate_per_s, drain) = (Some(rate_per_s), Duration::ZERO);
    Settings { rate_per_s, in_flight, drain, ..base.clone() }
}

/// Sweeps with loads like `base`, whose rate does not matter; `base.duration` is that of the loads
/// beside the knee. `measure` runs a load, `tell` is given what a person may want to know.
///
/// # Errors
/// [`WrongSetting`] before anything is measured, [`NoKnee`], and those of `measure`; not that of
/// the last load, which only tells the recovery.
pub fn run<E: Display>(
    base: &Settings,
    settings: &SweepSettings,
    measure: impl FnMut(&Settings) -> Result<Load, E>,
    tell: &mut dyn FnMut(&str),
) -> Result<Swept, SweepError<E>> {
    settings.check(base)?;
    let clock = Clock::start();
    let mut sweep = Sweep { base, measure, tell, at_knee: None, written_by: None };
    let limits = settings.limits;
    (sweep.tell)("estimating with a closed loop");
    let estimate = sweep.load(&step(base, None, limits.step))?.report.throughput_per_s;
    let mut search = Search::new(estimate, limits);
    let mut steps = Vec::new();
    let knee = loop {
        match search.next() {
            Next::Done(knee) => break knee?,
            Next::Measure { rate_per_s, duration } => {
                let begin_ns = clock.now_ns();
                let report = sweep.load(&step(base, Some(rate_per_s), duration))?.report;
                let seen = observation(&report);
                search.observe(&seen, Duration::from_nanos(clock.now_ns() - begin_ns));
                let step = StepReport::new(&seen, search.bound());
                (sweep.tell)(&step.to_text());
                steps.push(step);
            }
        }
    };
    (sweep.tell)(&format!("knee at {} /s", knee.rate_per_s));
    let levels = LEVELS_PERCENT
        .into_iter()
        .map(|percent| sweep.level(percent, &knee))
        .collect::<Result<Vec<_>, _>>()?;
    let overload = sweep.overload(settings.overload_in_flight, &levels[0], &knee)?;
    let verdict_at = |percent| levels.iter().find(|level| level.percent == percent);
    let was_kept = |percent| verdict_at(percent).is_some_and(|at| at.verdict == Verdict::Kept);
    let report = SweepReport {
        disturbed: !was_kept(100) || was_kept(120),
        closed_loop_per_s: estimate,
        knee,
        steps,
        levels,
        overload,
        took_s: Duration::from_nanos(clock.now_ns()).as_secs_f64().round(),
    };
    let at_knee = sweep.at_knee.expect("the knee itself is one of the levels");
    Ok(Swept { report, at_knee })
}

impl<E: Display, M: FnMut(&Settings) -> Result<Load, E>> Sweep<'_, M> {
    /// Runs a load. Appends have streams of their own, since a generator knows the revisions of no
    /// others; reads have those that the first load wrote.
    fn load(&mut self, settings: &Settings) -> Result<Load, SweepError<E>> {
        let run_id = random_run_id();
        let streams_of_run = self.written_by;
        let settings = Settings { run_id, streams_of_run, ..settings.clone() };
        if settings.workload.needs_events() {
            self.written_by.get_or_insert(run_id);
        }
        (self.measure)(&settings).map_err(SweepError::Load)
    }

    fn level(&mut self, percent: u64, knee: &search::Knee) -> Result<LevelReport, SweepError<E>> {
        let rate_per_s = share_of(knee.rate_per_s, percent);
        (self.tell)(&format!("{percent} % of the knee: {rate_per_s} /s"));
        let settings = Settings { rate_per_s: Some(rate_per_s), ..self.base.clone() };
        let load = self.load(&settings)?;
        let level = LevelReport {
            percent,
            verdict: observation(&load.report).verdict(Some(knee.bound.p99_us)),
            report: load.report.clone(),
            server_cost: load.cost.clone(),
        };
        if percent == 100 {
            self.at_knee = Some(load);
        }
        Ok(level)
    }

    fn overload(
        &mut self,
        in_flight: u32,
        light: &LevelReport,
        knee: &search::Knee,
    ) -> Result<OverloadReport, SweepError<E>> {
        let rate_per_s = share_of(knee.rate_per_s, OVERLOAD_PERCENT);
        (self.tell)(&format!("{OVERLOAD_PERCENT} % of the knee: {rate_per_s} /s"));
        let over = self.load(&overload(self.base, rate_per_s, in_flight))?;
        (self.tell)("a light load right behind it");
        let after = Settings {
            rate_per_s: Some(share_of(knee.rate_per_s, RECOVERY_PERCENT)),
            duration: RECOVERY_WINDOW,
            warm_up: Duration::ZERO,
            ..self.base.clone()
        };
        let end_ns = over.window.end_ns;
        // Whatever the server takes between the two loads is part of its recovery: closing and
        // opening connections, and a late answer about its status. A server that does not even take
        // the light load says something, too, and all the rest is known by now.
        let after = self.load(&after).map(|after| Aftermath {
            gap_ms: after.window.load_ns.saturating_sub(end_ns) as f64 / 1e6,
            slots: slots(&after.tallies),
        });
        let after = after.map_err(|error| error.to_string());
        Ok(OverloadReport::new(over, light, after, knee))
    }
}

fn share_of(rate_per_s: u64, percent: u64) -> u64 {
    (rate_per_s * percent / 100).clamp(1, RATE_MAX_PER_S)
}

/// What the search looks at.
fn observation(report: &Report) -> Observation {
    let open = report.open_loop.as_ref();
    let window_s = report.window_s;
    Observation {
        rate_per_s: open.map_or(0, |open| open.target_rate_per_s),
        offered_per_s: open.map_or(0.0, |open| open.scheduled as f64 / window_s),
        achieved_per_s: report.throughput_per_s,
        p50_us: report.latency_us.p50,
        p99_us: report.latency_us.p99,
        // A connection that broke in the warm-up left no error, but its load is gone.
        errors: (report.errors + report.unanswered).max(report.connections_lost),
        saturated: open.is_some_and(|open| open.saturated),
        client_limited: report.client.client_limited,
    }
}

/// The time line of all threads in tenths of a second.
fn slots(tallies: &[Tally]) -> Vec<Slot> {
    let mut line = TimeLine::default();
    tallies.iter().for_each(|tally| line.merge(&tally.time_line));
    let interval_ns = line.interval_ns.max(1);
    let in_slot = usize::try_from((SLOT_NS / interval_ns).max(1)).unwrap_or(usize::MAX);
    let mut end_ns = 0;
    let slot = |points: &[Point]| {
        let mut latencies = Outline::default();
        points.iter().for_each(|point| latencies.merge(&point.latencies));
        end_ns += points.len() as u64 * interval_ns;
        Slot {
            end_ms: end_ns.min(line.window_ns) as f64 / 1e6,
            p99_us: latencies.percentile_ns(99.0).map(|ns| ns as f64 / 1000.0),
            errors: points.iter().map(|point| point.errors).sum(),
        }
    };
    line.points.chunks(in_slot).map(slot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::Workload;
    use crate::generator::sketch::Sketch;

    /// Two threads' time lines of 50 ms become tenths of a second with the latencies of both.
    /// Broken if a slot loses a thread, a point, or its place in time.
    #[test]
    fn slots_are_tenths_of_a_second_of_all_threads() {
        let window_ns = 5_000_000_000;
        let thread = |latency_ns: u64| {
            let mut line = TimeLine::new(window_ns);
            assert_eq!(line.interval_ns, 50_000_000);
            let mut sketch = Sketch::default();
            sketch.record(latency_ns);
            line.points[3].latencies = sketch.take();
            line.points[2].errors = 4;
            Tally { time_line: line, ..Tally::default() }
        };
        let slots = slots(&[thread(1_000_000), thread(9_000_000)]);
        assert_eq!(slots.len(), 50);
        let near = |us: f64| (9000.0..9000.0 * 1.02).contains(&us);
        assert!(slots[1].p99_us.is_some_and(near), "{:?}", slots[1]);
        assert_eq!((slots[1].end_ms, slots[1].errors), (200.0, 8));
        assert_eq!(slots[0], Slot { end_ms: 100.0, p99_us: None, errors: 0 });
        assert_eq!(slots[49].end_ms, 5000.0);
        assert_eq!(super::slots(&[]), []);
    }

    const LIMITS: SearchLimits = SearchLimits {
        step: Duration::from_secs(2),
        steps_max: 60,
        time_max: Duration::from_secs(60),
        slo_p99_us: None,
    };

    fn base() -> Settings {
        let addr = "127.0.0.1:1".parse().unwrap();
        Settings {
            in_flight: 4,
            warm_up: Duration::from_secs(3),
            ..Settings::appends(addr, 8, 100, Duration::from_secs(7))
        }
    }

    /// A load on a server that answers 10,000 requests per second and refuses the rest. It begins
    /// at `now_ns` and is over three seconds after its window: so late the server tells its status.
    fn measured(settings: &Settings, now_ns: &mut u64) -> Load {
        let offered = settings.rate_per_s.unwrap_or(8000) * settings.duration.as_secs();
        let acked = offered.min(10_000 * settings.duration.as_secs());
        let latency_ns = if acked < offered { 500_000_000 } else { 300_000 };
        let mut tally = Tally { acked, scheduled: offered, sent: offered, ..Tally::default() };
        tally.latencies.record(latency_ns);
        tally.refusals.record(700_000);
        tally.count_error("Busy", offered - acked);
        let nanoseconds = |duration: Duration| duration.as_nanos() as u64;
        tally.time_line = TimeLine::new(nanoseconds(settings.duration));
        for point in &mut tally.time_line.points {
            let mut sketch = Sketch::default();
            sketch.record(latency_ns);
            point.latencies = sketch.take();
        }
        let load_ns = *now_ns;
        let start_ns = load_ns + nanoseconds(settings.warm_up);
        let end_ns = start_ns + nanoseconds(settings.duration);
        let window = Window { load_ns, start_ns, end_ns };
        *now_ns = end_ns + 3_000_000_000;
        let report = Report::new(settings, std::slice::from_ref(&tally));
        let (tallies, cost, fleet) = (vec![tally], ServerCost::default(), None);
        Load { report, tallies, cost, window, fleet }
    }

    /// A sweep against a server that is a formula: the loads are those that were promised, each on
    /// streams of its own, and the knee's load stands for all.
    #[test]
    fn a_sweep_measures_what_it_promises() {
        let base = base();
        let mut loads: Vec<Settings> = Vec::new();
        let mut now_ns = 0;
        let mut measure = |settings: &Settings| -> Result<Load, std::convert::Infallible> {
            loads.push(settings.clone());
            Ok(measured(settings, &mut now_ns))
        };
        let sweep = SweepSettings { limits: LIMITS, overload_in_flight: 64 };
        let swept = run(&base, &sweep, &mut measure, &mut |_| {}).unwrap();
        let knee = swept.report.knee.rate_per_s;
        assert!((9_500..=10_000).contains(&knee), "{knee}");
        assert_eq!(swept.at_knee.report.settings.rate_per_s, Some(knee));
        let levels: Vec<u64> = swept.report.levels.iter().map(|level| level.percent).collect();
        assert_eq!(levels, LEVELS_PERCENT);
        let verdicts = swept.report.levels.iter().map(|level| level.verdict);
        let kept = verdicts.filter(|verdict| *verdict == Verdict::Kept).count();
        assert_eq!((kept, swept.report.disturbed), (4, false), "all but 120 %");
        let overload = &swept.report.overload;
        assert!((1.0..1.06).contains(&overload.throughput_over_knee), "{overload:?}");
        assert!((0.6..0.7).contains(&overload.busy_share), "{overload:?}");
        assert!(overload.refusal_p99_us.is_some_and(|us| (699.0..702.0).contains(&us)));
        // Broken if the time in which nothing was asked of the server is not its own.
        assert_eq!(overload.recovery_ms, Some(3100.0), "3 s of silence, and a tenth of a second");
        let note = swept.report.note();
        assert_eq!((note.knee_per_s, &*note.limit), (knee, "server"));
        assert_eq!((&*note.bound_origin, note.levels.len()), ("light_load", LEVELS_PERCENT.len()));
        assert_eq!((&*note.levels[0].verdict, &*note.levels[4].verdict), ("kept", "errors"));
        assert_eq!(note.overload.recovery_ms, overload.recovery_ms);
        let labels: Vec<String> =
            swept.report.curve().into_iter().map(|point| point.label).collect();
        assert_eq!(labels, ["10 %", "50 %", "80 %", "100 %", "120 %", "300 %"]);
        let [.., over, after] = loads.as_slice() else { panic!("no loads") };
        assert_eq!((over.in_flight, over.drain), (64, Duration::ZERO));
        assert_eq!((after.warm_up, after.duration), (Duration::ZERO, RECOVERY_WINDOW));
        assert_eq!(after.rate_per_s, Some(knee / 10));
        let level = &loads[loads.len() - 3];
        assert_eq!((level.warm_up, level.duration), (base.warm_up, base.duration));
        assert_eq!(loads[0].rate_per_s, None, "it begins with a closed loop");
        assert_eq!(loads[1].warm_up, STEP_WARM_UP_MAX);
        let runs: std::collections::BTreeSet<u64> = loads.iter().map(|load| load.run_id).collect();
        assert_eq!(runs.len(), loads.len(), "each load has a number of its own");
        assert!(loads.iter().all(|load| load.streams_of_run.is_none()), "and streams");
        let text = swept.report.to_text();
        assert!(text.contains("300 %") && text.contains("p99 <= 3000.0 us"), "{text}");
    }

    /// The last load only tells the recovery. Broken if a server that does not take it after the
    /// overload costs everything that was measured before, or counts as one that has recovered.
    #[test]
    fn a_server_that_is_gone_after_the_overload_does_not_cost_the_report() {
        let mut now_ns = 0;
        let measure = |settings: &Settings| {
            let is_last = settings.duration == RECOVERY_WINDOW;
            if is_last { Err("cannot connect") } else { Ok(measured(settings, &mut now_ns)) }
        };
        let sweep = SweepSettings { limits: LIMITS, overload_in_flight: 64 };
        let swept = run(&base(), &sweep, measure, &mut |_| {}).unwrap();
        let overload = &swept.report.overload;
        assert_eq!(overload.recovery_ms, None);
        assert_eq!(overload.recovery_failed.as_deref(), Some("cannot connect"));
        let text = swept.report.to_text();
        assert!(text.contains("could not be measured: cannot connect"), "{text}");
        let json = serde_json::to_value(&swept.report).unwrap();
        assert!(json["overload"]["recovery_ms"].is_null(), "{json}");
    }

    /// Nothing is measured for a sweep that cannot come to its end, and the shares of a knee that
    /// is as high as a rate can be are rates, too.
    #[test]
    fn a_load_that_cannot_be_is_refused_before_the_first() {
        let sweep = SweepSettings { limits: LIMITS, overload_in_flight: 4097 };
        let measure = |_: &Settings| -> Result<Load, &str> { panic!("nothing is to be measured") };
        let swept = run(&base(), &sweep, measure, &mut |_| {});
        assert!(matches!(swept, Err(SweepError::Setting(_))), "{swept:?}");
        assert_eq!(share_of(RATE_MAX_PER_S, OVERLOAD_PERCENT), RATE_MAX_PER_S);
        assert_eq!((share_of(1, 10), share_of(1000, 120)), (1, 1200));
    }

    /// A load that lost connections has not kept its rate. Broken if those that broke in the
    /// warm-up, where nothing is counted, leave a step that looks clean.
    #[test]
    fn a_step_that_lost_connections_is_not_kept() {
        let addr = "127.0.0.1:1".parse().unwrap();
        let settings = Settings {
            rate_per_s: Some(100),
            ..Settings::appends(addr, 8, 100, Duration::from_secs(1))
        };
        let mut tally = Tally { acked: 100, scheduled: 100, sent: 100, ..Tally::default() };
        tally.latencies.record(300_000);
        let verdict = |tally: &Tally| {
            observation(&Report::new(&settings, std::slice::from_ref(tally))).verdict(None)
        };
        assert_eq!(verdict(&tally), Verdict::Kept);
        tally.connections_lost = 1;
        assert_eq!(verdict(&tally), Verdict::Errors);
    }

    /// Reads are measured on streams that are written once. Broken if a load after the first one
    /// writes its own, which takes longer than the load and disturbs a recovery.
    #[test]
    fn a_sweep_of_reads_writes_its_streams_once() {
        let addr = "127.0.0.1:1".parse().unwrap();
        let plain = Settings::appends(addr, 8, 100, Duration::from_secs(1));
        let base = Settings { workload: Workload::Read, ..plain };
        let written_by = std::cell::RefCell::new(Vec::new());
        let measure = |settings: &Settings| -> Result<Load, std::convert::Infallible> {
            written_by.borrow_mut().push((settings.run_id, settings.streams_of_run));
            let report = Report::new(settings, &[]);
            let window = Window { load_ns: 0, start_ns: 0, end_ns: 0 };
            let (tallies, cost, fleet) = (Vec::new(), ServerCost::default(), None);
            Ok(Load { report, tallies, cost, window, fleet })
        };
        let limits = SearchLimits { steps_max: 9, ..LIMITS };
        let sweep = SweepSettings { limits, overload_in_flight: 1 };
        let swept = run(&base, &sweep, measure, &mut |_| {});
        assert!(matches!(swept, Err(SweepError::NoKnee(NoKnee::Light { .. }))), "{swept:?}");
        let written_by = written_by.into_inner();
        let [(first, None), rest @ ..] = written_by.as_slice() else { panic!("{written_by:?}") };
        assert!(!rest.is_empty());
        assert!(rest.iter().all(|(run, by)| *by == Some(*first) && run != first), "{rest:?}");
    }
}
