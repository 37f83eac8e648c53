//! What this machine can do at best, and how near Duolog comes: raw durable write, loopback round
//! trip, the plainest server, the bare skeleton and Duolog itself, interleaved in several rounds of
//! one run. Ratios are
//! taken within each round, so that a drifting machine moves both sides. A step during which other
//! programs were busy is repeated, and the quietest of the tries counts: chosen by the noise, never
//! by the result.

pub mod child;
pub mod noise;
pub mod plain;
pub mod raw;
pub mod report;
pub mod sequence;
pub mod spread;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use child::{ChildError, Server};
use noise::Noise;
pub use report::LimitsReport;

use crate::generator::clock::random_run_id;
use crate::generator::{self, RunError, Settings};

/// Connections at which both servers are measured, one request in flight on each.
pub const CONNECTIONS: [u32; 4] = [1, 64, 256, 1024];
/// Rounds: a median of fewer than three is none.
pub const ROUNDS_MIN: u32 = 3;
/// More rounds than this are a typing error.
pub const ROUNDS_MAX: u32 = 1000;
const EVENT_SIZE_BYTES: u32 = 100;
const RAW_WRITES: u32 = 2000;
const ROUND_TRIPS: u32 = 4000;
/// A step counts as quiet when all other programs together used at most this share of one core.
pub const NOISE_MAX_PERCENT: f64 = 10.0;
/// A step that was not quiet is tried this often in all.
const TRIES_MAX: u32 = 3;
const WARM_UP: Duration = Duration::from_millis(500);

/// What to measure.
#[derive(Clone, Debug)]
pub struct LimitsSettings {
    /// Directory on the device in question; made when it is missing. A directory of its own is
    /// made in it and removed at the end.
    pub dir: PathBuf,
    /// Rounds, 3..=1000.
    pub rounds: u32,
    /// Measured window of each of the ten loads of a round.
    pub duration: Duration,
    /// Groups that the skeleton writes at one time, 1..=8.
    pub skeleton_writes_in_flight: u32,
    /// `shards.spin_us` of the Duolog that is measured beside the one with defaults, 1..=1000.
    pub spin_us: u32,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum LimitsError {
    /// Too few or too many.
    #[error("--rounds is {0}: give 3 to 1000")]
    Rounds(u32),
    /// The directory cannot be used.
    #[error("cannot measure in {dir}: {source} (--dir must allow direct I/O)")]
    Dir {
        /// The directory.
        dir: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A server did not come up.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// The generator could not run.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// One server under one load.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Appends per second.
    pub throughput_per_s: f64,
    /// Median latency, us.
    pub p50_us: Option<f64>,
    /// 99th percentile, us.
    pub p99_us: Option<f64>,
    /// Refusals and losses.
    pub errors: u64,
    /// The generator was the bottleneck.
    pub client_limited: bool,
    /// Other programs' use of the processor meanwhile, percent of one core.
    pub noise_percent: Option<f64>,
}

/// One round: everything once.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// Raw write, us: p50, p99.
    pub raw_write_us: (Option<f64>, Option<f64>),
    /// Round trip, us: p50.
    pub loopback_us: Option<f64>,
    /// Other programs' use of the processor during both, percent of one core.
    pub raw_noise_percent: Option<f64>,
    /// The skeleton, by position in [`CONNECTIONS`].
    pub skeleton: Vec<Sample>,
    /// Duolog likewise.
    pub duolog: Vec<Sample>,
    /// The plainest server at one connection.
    pub plain: Option<Sample>,
    /// Duolog with `shards.spin_us` at one connection.
    pub spinning: Option<Sample>,
}

/// Measures. `progress` is told before each step what comes; about a minute with the defaults.
pub fn run(
    settings: &LimitsSettings,
    mut progress: impl FnMut(&str),
) -> Result<LimitsReport, LimitsError> {
    if !(ROUNDS_MIN..=ROUNDS_MAX).contains(&settings.rounds) {
        return Err(LimitsError::Rounds(settings.rounds));
    }
    let own = settings.dir.join(format!("duolog-limits-{:016x}", random_run_id()));
    let refused = |source| LimitsError::Dir { dir: settings.dir.clone(), source };
    std::fs::create_dir_all(&own).map_err(refused)?;
    let mut rounds = Vec::new();
    let outcome = (0..settings.rounds).try_for_each(|number| {
        let round = run_round(settings, &own, number, &mut progress)?;
        rounds.push(round);
        Ok(())
    });
    let removed = std::fs::remove_dir_all(&own).map_err(refused);
    outcome.and(removed)?;
    Ok(LimitsReport::new(settings, &rounds))
}

fn run_round(
    settings: &LimitsSettings,
    dir: &Path,
    number: u32,
    progress: &mut impl FnMut(&str),
) -> Result<Round, LimitsError> {
    let refused = |source| LimitsError::Dir { dir: settings.dir.clone(), source };
    let of = format!("round {} of {}", number + 1, settings.rounds);
    progress(&format!("{of}: raw writes, round trips"));
    let ((raw, loopback), raw_noise_percent) = quietest(&[], || {
        let raw = raw::durable_writes(dir, RAW_WRITES).map_err(refused)?;
        Ok((raw, raw::loopback_round_trips(ROUND_TRIPS).map_err(refused)?))
    })?;
    let mut round = Round {
        raw_write_us: (raw.percentile_us(50.0), raw.percentile_us(99.0)),
        loopback_us: loopback.percentile_us(50.0),
        raw_noise_percent,
        ..Round::default()
    };
    let skeleton = start_skeleton(settings, dir)?;
    let data = dir.join(format!("data-{number}"));
    let duolog = Server::standalone("duolog", dir, &data, &[])?;
    // Who comes first alternates: the second of two is not always the one that finds the device
    // and the processor warm.
    let skeleton_first = number.is_multiple_of(2);
    let servers = [skeleton.process_id(), duolog.process_id()];
    for connections in CONNECTIONS {
        progress(&format!("{of}: {connections} connections"));
        let ((mut of_skeleton, mut of_duolog), noise) = quietest(&servers, || {
            let measure = |server: &Server| load(settings, server, connections);
            if skeleton_first {
                let first = measure(&skeleton)?;
                return Ok((first, measure(&duolog)?));
            }
            let first = measure(&duolog)?;
            Ok((measure(&skeleton)?, first))
        })?;
        (of_skeleton.noise_percent, of_duolog.noise_percent) = (noise, noise);
        round.skeleton.push(of_skeleton);
        round.duolog.push(of_duolog);
    }
    drop((skeleton, duolog));
    std::fs::remove_dir_all(&data).map_err(refused)?;
    run_lone_client(settings, dir, &mut round)?;
    Ok(round)
}

/// One client of the plainest server, and of Duolog with spinning.
fn run_lone_client(
    settings: &LimitsSettings,
    dir: &Path,
    round: &mut Round,
) -> Result<(), LimitsError> {
    let dir_text = dir.to_string_lossy();
    let arguments = ["bench", "plain", "--listen", "{addr}", "--dir", &dir_text];
    let plain = Server::start("plain", dir, &arguments)?;
    let (data, spin_us) = (dir.join("data-spinning"), settings.spin_us.to_string());
    let spin = ["--shards-spin-us", &spin_us];
    let spinning = Server::standalone("spinning", dir, &data, &spin)?;
    let servers = [plain.process_id(), spinning.process_id()];
    let (samples, _) =
        quietest(&servers, || Ok((load(settings, &plain, 1)?, load(settings, &spinning, 1)?)))?;
    (round.plain, round.spinning) = (Some(samples.0), Some(samples.1));
    drop((plain, spinning));
    std::fs::remove_dir_all(&data)
        .map_err(|source| LimitsError::Dir { dir: settings.dir.clone(), source })
}

/// Runs `step` until it was quiet, a few times at most; the result of the quietest try and its
/// noise.
fn quietest<T>(
    servers: &[u32],
    mut step: impl FnMut() -> Result<T, LimitsError>,
) -> Result<(T, Option<f64>), LimitsError> {
    let mut best: Option<(T, Option<f64>)> = None;
    for _ in 0..TRIES_MAX {
        let noise = Noise::watch(servers.to_vec());
        let result = step()?;
        let percent = noise.percent();
        if best.as_ref().is_none_or(|(_, before)| percent < *before) {
            best = Some((result, percent));
        }
        if percent.is_none_or(|percent| percent <= NOISE_MAX_PERCENT) {
            break;
        }
    }
    Ok(best.expect("there was at least one try"))
}

fn start_skeleton(settings: &LimitsSettings, dir: &Path) -> Result<Server, ChildError> {
    let (dir_text, in_flight) =
        (dir.to_string_lossy(), settings.skeleton_writes_in_flight.to_string());
    let arguments = ["bench", "skeleton", "--listen", "{addr}", "--dir", &dir_text];
    let arguments = [&arguments[..], &["--writes-in-flight", &in_flight]].concat();
    Server::start("skeleton", dir, &arguments)
}

fn load(limits: &LimitsSettings, server: &Server, connections: u32) -> Result<Sample, LimitsError> {
    let report = generator::run(&Settings {
        warm_up: WARM_UP,
        ..Settings::appends(server.addr, connections, EVENT_SIZE_BYTES, limits.duration)
    })?;
    Ok(Sample {
        throughput_per_s: report.throughput_per_s,
        p50_us: report.latency_us.p50,
        p99_us: report.latency_us.p99,
        errors: report.errors,
        client_limited: report.client.client_limited,
        noise_percent: None,
    })
}
