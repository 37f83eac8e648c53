//! Runs a load, says what it came to, and writes it down if that is asked for.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::load::LoadArgs;
use super::source::Source;
use super::{BenchError, json, tell};
use crate::fleet::FleetReport;
use crate::generator::{self, Measured, Report, Settings};
use crate::results::cost::ServerCost;
use crate::results::document::CurvePoint;
use crate::results::sweep_note::SweepNote;
use crate::results::{self, Program, Recording, Run, Watch};
use crate::sweep::{self, Load, SweepSettings};

/// What becomes of a result.
#[derive(Args, Clone, Debug)]
pub struct ResultArgs {
    /// Write the result here: result.json, latency.hlog, timeline.csv, percentiles.csv, report.html
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The server's data directory, if it is on this machine: its disk is described, and measured
    /// before and after the run
    #[arg(long, value_name = "DIR", requires = "out")]
    pub dir: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What is printed for machines.
#[derive(Debug, Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    report: &'a Report,
    server_cost: &'a ServerCost,
    #[serde(skip_serializing_if = "Option::is_none")]
    fleet: Option<&'a FleetReport>,
}

/// Runs one load, or the loads of a sweep; what is to be printed.
pub(super) fn run(
    settings: Settings,
    arguments: &LoadArgs,
    program: Program,
    mut source: Source,
) -> Result<String, BenchError> {
    let settings = source.whole(settings);
    settings.check().map_err(generator::RunError::from)?;
    let sweep = arguments.sweep.settings(settings.in_flight);
    sweep.iter().try_for_each(|sweep| sweep.check(&settings))?;
    let result = &arguments.result;
    let recording = result
        .out
        .as_ref()
        .map(|_| Recording::begin(program, settings.addr, result.dir.as_deref()));
    let recording = recording.transpose()?;
    let Found { load, sweep, curve, mut text } = match sweep {
        None => one(&settings, arguments, &mut source)?,
        Some(sweep) => many(&settings, &sweep, result, &mut source)?,
    };
    if let (Some(recording), Some(out)) = (recording, &result.out) {
        let Load { report, tallies, cost, fleet, .. } = &load;
        let (curve, sweep, fleet) = (&*curve, sweep.as_ref(), fleet.as_ref());
        let run = Run { report, tallies, cost, curve, sweep, fleet };
        let recorded = recording.finish(&run)?;
        results::write(out, &recorded)?;
        if !result.json {
            for warning in &recorded.document.warnings {
                text += &format!("  WARNING {}: {}\n", warning.code, warning.text);
            }
            text += &format!("  written to {}\n", out.join("report.html").display());
        }
    }
    Ok(text)
}

/// What is written down, and what is printed.
struct Found {
    /// The run, or the one that stands for a sweep.
    load: Load,
    sweep: Option<SweepNote>,
    /// Of a sweep.
    curve: Vec<CurvePoint>,
    text: String,
}

fn one(
    settings: &Settings,
    arguments: &LoadArgs,
    source: &mut Source,
) -> Result<Found, BenchError> {
    let load = measure(settings, source)?;
    let (report, cost, fleet) = (&load.report, &load.cost, load.fleet.as_ref());
    let text = if arguments.result.json {
        json(&Printed { report, server_cost: cost, fleet })?
    } else {
        let note = arguments.rate_note().unwrap_or_default();
        note + &report.to_text()
            + &cost.to_text()
            + &fleet.map(FleetReport::to_text).unwrap_or_default()
    };
    Ok(Found { load, sweep: None, curve: Vec::new(), text })
}

/// The load at the knee stands for the sweep.
fn many(
    settings: &Settings,
    sweep: &SweepSettings,
    result: &ResultArgs,
    source: &mut Source,
) -> Result<Found, BenchError> {
    let swept = sweep::run(settings, sweep, |step| measure(step, source), &mut tell)?;
    let report = &swept.report;
    let text = if result.json { json(report)? } else { report.to_text() };
    let (sweep, curve) = (Some(report.note()), report.curve());
    Ok(Found { load: swept.at_knee, sweep, curve, text })
}

fn measure(settings: &Settings, source: &mut Source) -> Result<Load, BenchError> {
    let watch = Watch::new(settings.addr, settings.duration);
    let mut watch = watch.with_patience(source.patience());
    let Measured { window, tallies } = source.measure(settings, &mut watch)?;
    let report = Report::new(settings, &tallies);
    let cost = watch.cost(&report);
    Ok(Load { report, tallies, cost, window, fleet: source.fleet().cloned() })
}
