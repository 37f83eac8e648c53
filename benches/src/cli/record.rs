//! Runs a load, says what it came to, and writes it down if that is asked for.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::load::LoadArgs;
use super::source::Source;
use super::{BenchError, json, tell};
use crate::fleet::FleetReport;
use crate::generator::{self, Report, Settings};
use crate::results::cost::ServerCost;
use crate::results::document::CurvePoint;
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
    let result = &arguments.result;
    let recording = result
        .out
        .as_ref()
        .map(|_| Recording::begin(program, settings.addr, result.dir.as_deref()));
    let recording = recording.transpose()?;
    let (load, curve, mut text) = match arguments.sweep.settings(settings.in_flight) {
        None => one(&settings, arguments, &mut source)?,
        Some(sweep) => many(&settings, &sweep, result, &mut source)?,
    };
    if let (Some(recording), Some(out)) = (recording, &result.out) {
        let Load { report, tallies, cost } = &load;
        let recorded = recording.finish(&Run { report, tallies, cost, curve: &curve })?;
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

/// A load, the points of its curve, and the text about it.
type Found = (Load, Vec<CurvePoint>, String);

fn one(
    settings: &Settings,
    arguments: &LoadArgs,
    source: &mut Source,
) -> Result<Found, BenchError> {
    let load = measure(settings, source)?;
    let (report, cost, fleet) = (&load.report, &load.cost, source.fleet());
    let text = if arguments.result.json {
        json(&Printed { report, server_cost: cost, fleet })?
    } else {
        let note = arguments.rate_note().unwrap_or_default();
        note + &report.to_text()
            + &cost.to_text()
            + &fleet.map(FleetReport::to_text).unwrap_or_default()
    };
    Ok((load, Vec::new(), text))
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
    let curve = report.curve();
    Ok((swept.at_knee, curve, text))
}

fn measure(settings: &Settings, source: &mut Source) -> Result<Load, BenchError> {
    let mut watch = Watch::new(settings.addr, settings.duration);
    let tallies = source.measure(settings, &mut watch)?;
    let report = Report::new(settings, &tallies);
    let cost = watch.cost(&report);
    Ok(Load { report, tallies, cost })
}
