//! Writing a result down: facts and probes before a run, probes after it, and the document.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::cost::ServerCost;
use super::document::{
    Build, CurvePoint, Document, SCHEMA_VERSION, Server, TimeLineNote, percentiles,
};
use super::host::Host;
use super::line::Line;
use super::probe::{BeforeAfter, Probe, Probes};
use super::storage::Storage;
use super::sweep_note::SweepNote;
use super::warning::warnings;
use super::{Program, ResultError, moment};
use crate::fleet::FleetReport;
use crate::generator::latency::Latencies;
use crate::generator::report::Report;
use crate::generator::tally::Tally;
use crate::generator::time_line::TimeLine;

/// The option whose value nobody else is to know, and what is written down instead.
const SECRET_OPTION: &str = "--token";
const BLANK: &str = "…";

/// A result in the making.
#[derive(Debug)]
pub struct Recording {
    program: Program,
    addr: SocketAddr,
    dir: Option<PathBuf>,
    started: SystemTime,
    host: Host,
    storage: Option<Storage>,
    server: Option<Server>,
    disk_before: Option<Probe>,
    network_before: Option<Probe>,
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The figures.
    pub report: &'a Report,
    /// What each thread, of each machine, counted.
    pub tallies: &'a [Tally],
    /// What it cost the server.
    pub cost: &'a ServerCost,
    /// The loads of a sweep, with this one among them; empty: this run alone.
    pub curve: &'a [CurvePoint],
    /// The sweep that it stands for.
    pub sweep: Option<&'a SweepNote>,
    /// How the workers did, if there are any.
    pub fleet: Option<&'a FleetReport>,
}

/// A result: the document, and what does not fit into it.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The document.
    pub document: Document,
    /// All latencies of the run.
    pub latencies: Latencies,
    /// When it began.
    pub started: SystemTime,
}

impl Recording {
    /// Looks at machine, disk and network before anything is measured. `dir`: a directory on the
    /// disk of the server's data, if that is on this machine. Takes less than a second.
    ///
    /// # Errors
    /// [`ResultError::Probe`] if nothing can be written in `dir`. A server that does not answer is
    /// no error here: the run finds out.
    pub fn begin(
        program: Program,
        addr: SocketAddr,
        dir: Option<&Path>,
    ) -> Result<Self, ResultError> {
        let started = moment::now();
        let host = Host::read();
        let mut line = Line::open(addr).ok();
        let status = line.as_mut().and_then(|line| line.status().ok());
        let disk_before = dir.map(disk).transpose()?;
        Ok(Self {
            program,
            addr,
            dir: dir.map(Path::to_path_buf),
            started,
            host,
            storage: dir.map(Storage::of),
            server: status.as_ref().map(Server::from),
            disk_before,
            network_before: line.as_mut().and_then(Probe::network),
        })
    }

    /// Looks at disk and network again and puts everything together.
    ///
    /// # Errors
    /// As for [`Recording::begin`].
    pub fn finish(self, run: &Run<'_>) -> Result<Recorded, ResultError> {
        let network_after = Line::open(self.addr).ok().as_mut().and_then(Probe::network);
        let disk_after = self.dir.as_deref().map(disk).transpose()?;
        let probes = Probes {
            disk_write: self
                .dir
                .is_some()
                .then_some(BeforeAfter { before: self.disk_before, after: disk_after }),
            round_trip: BeforeAfter { before: self.network_before, after: network_after },
        };
        let (mut latencies, mut time_line) = (Latencies::default(), TimeLine::default());
        for tally in run.tallies {
            latencies.merge(&tally.latencies);
            time_line.merge(&tally.time_line);
        }
        let alone = [CurvePoint::of("this run", run.report)];
        let curve = if run.curve.is_empty() { &alone } else { run.curve };
        let document = Document {
            schema_version: SCHEMA_VERSION,
            started_at: moment::rfc3339(self.started),
            ended_at: moment::rfc3339(moment::now()),
            command: without_secrets(
                std::env::args_os().map(|word| word.to_string_lossy().into_owned()),
            ),
            program: Build::from(self.program),
            server: self.server,
            host: self.host,
            storage: self.storage,
            probes,
            warnings: warnings(run.report, &probes),
            report: run.report.clone(),
            server_cost: run.cost.clone(),
            percentiles: percentiles(&latencies),
            time_line: TimeLineNote::from(&time_line),
            curve: curve.to_vec(),
            sweep: run.sweep.cloned(),
            fleet: run.fleet.cloned(),
        };
        Ok(Recorded { document, latencies, started: self.started })
    }
}

/// A command line for everybody's eyes: results are passed on, and a token opens every worker that
/// was given the same.
fn without_secrets(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut is_announced = false;
    let mut blanked = Vec::new();
    for word in words {
        let value = word.strip_prefix(SECRET_OPTION);
        let was_announced = is_announced;
        // A value that looks like the option is one all the same.
        is_announced = !was_announced && value == Some("");
        blanked.push(match value {
            _ if was_announced => BLANK.to_owned(),
            Some(value) if value.starts_with('=') => format!("{SECRET_OPTION}={BLANK}"),
            _ => word,
        });
    }
    blanked
}

fn disk(dir: &Path) -> Result<Probe, ResultError> {
    let failed = |error| ResultError::Probe { dir: dir.to_path_buf(), error };
    Probe::disk(dir).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A result is passed on to others. Broken if the token goes with it, in either way of writing
    /// it, or if any other word is lost.
    #[test]
    fn a_recorded_command_line_has_no_token() {
        let blanked =
            |line: &str| without_secrets(line.split_whitespace().map(str::to_owned)).join(" ");
        for (line, recorded) in [
            ("d bench run --token abc --out x", "d bench run --token … --out x"),
            ("d bench run --token=abc --out=x", "d bench run --token=… --out=x"),
            ("d --token= x", "d --token=… x"),
            ("d --token --token x", "d --token … x"),
            ("d --token a --token b", "d --token … --token …"),
            ("d --tokens x --key --token", "d --tokens x --key --token"),
        ] {
            assert_eq!(blanked(line), recorded);
        }
    }
}
