//! Runs a load, says what it came to, and writes it down if that is asked for.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::{BenchError, LoadArgs, json};
use crate::generator::{self, Report, Settings};
use crate::results::cost::ServerCost;
use crate::results::{self, Program, Recording, Run, Watch};

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
}

/// Runs one load; what is to be printed.
pub(super) fn run(
    settings: &Settings,
    load: &LoadArgs,
    program: Program,
) -> Result<String, BenchError> {
    let arguments = &load.result;
    settings.check().map_err(generator::RunError::from)?;
    let recording = arguments
        .out
        .as_ref()
        .map(|_| Recording::begin(program, settings.addr, arguments.dir.as_deref()));
    let recording = recording.transpose()?;
    let mut watch = Watch::new(settings.addr, settings.duration);
    let tallies = generator::measure_watched(settings, &mut watch)?;
    let report = Report::new(settings, &tallies);
    let cost = watch.cost(&report);
    let mut text = if arguments.json {
        json(&Printed { report: &report, server_cost: &cost })?
    } else {
        load.rate_note().unwrap_or_default() + &report.to_text() + &cost.to_text()
    };
    if let (Some(recording), Some(out)) = (recording, &arguments.out) {
        let run = Run { report: &report, tallies: &tallies, cost: &cost, curve: &[] };
        let recorded = recording.finish(&run)?;
        results::write(out, &recorded)?;
        if !arguments.json {
            for warning in &recorded.document.warnings {
                text += &format!("  WARNING {}: {}\n", warning.code, warning.text);
            }
            text += &format!("  written to {}\n", out.join("report.html").display());
        }
    }
    Ok(text)
}
