//! `duolog bench …`: the command lines of the load generator and of the limits benchmark, and what
//! they print.

use std::io::IsTerminal;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::generator::{self, Expectation, RunError, Settings, Workload};
use crate::limits::{self, LimitsError, LimitsSettings};
use crate::pair::{self, PairError, PairReport, PairSettings, Store};
use crate::uring::skeleton::{self, SkeletonError, SkeletonSettings};

const LOAD_HELP: &str = "\
Examples:
  duolog bench append --connections 64 --duration 30s
  duolog bench append --connections 256 --in-flight 16 --streams 100000 --expect exact --key
  duolog bench append --connections 64 --rate 20000 --duration 60s --json

Without --rate the loop is closed: each answer starts the next request, so a slow server is asked
less, and latencies are those of the requests that were made. With --rate requests start by a
constant schedule whatever the server does, and latency counts from the scheduled moment.
Connections are opened and the warm-up has passed before anything is counted.";

const LIMITS_HELP: &str = "\
Examples:
  duolog bench limits --dir /var/lib/duolog
  duolog bench limits --dir ./scratch --rounds 5 --json

Measures in DIR, in interleaved rounds: a raw 4 KiB durable write, a loopback round trip, a bare
server (accept, frame, group, durable write, reply) and Duolog itself with one shard, at 1, 64, 256
and 1024 connections. Prints how near Duolog comes to the machine's limits.";

const PAIR_HELP: &str = "\
Examples:
  duolog bench pair --dir /var/lib/duolog
  duolog bench pair --dir ./scratch --json
  duolog bench pair --dir ./scratch --quick

Starts an embedded S3, two nodes and a standalone server in DIR and ends them by their process ids.
In interleaved rounds it measures appends on both at 1 and 256 connections. Then one client appends
through planned handovers and through kill -9 of the leader; a pause is its longest time without an
ack. In the end everything that was acknowledged is looked for on both nodes, and a blank node
copies the log.

Everything shares this machine's cores: where they decide, throughput_over_standalone says less
than cpu_per_append_over_standalone.

A follower does not challenge before the lease in the bucket that it saw when it began to follow
has run out; later, heartbeats alone decide. The nodes run with --s3-lease-duration-ms 3000, and
between two kills the benchmark waits for that long. Heartbeats have their defaults.

Exit code 1 if an acknowledged event is missing, doubled or elsewhere than told, or if the healthy
pair asked the bucket for anything; times only print. --quick is the same in small, in less than
a minute.";

/// The commands behind `duolog bench`.
#[derive(Subcommand, Clone, Debug)]
pub enum BenchCommand {
    /// Append events and measure throughput and latency
    #[command(after_help = LOAD_HELP)]
    Append(AppendArgs),
    /// Write streams, then read pages from them and measure throughput and latency
    #[command(after_help = LOAD_HELP)]
    Read(LoadArgs),
    /// Compare Duolog with what this machine can do at best
    #[command(after_help = LIMITS_HELP)]
    Limits(LimitsArgs),
    /// Compare a pair with a standalone server, and measure how long a change of the lead takes
    #[command(after_help = PAIR_HELP)]
    Pair(PairArgs),
    /// Serve as the bare skeleton that `limits` measures
    #[command(hide = true)]
    Skeleton(SkeletonArgs),
}

/// What both workloads take.
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    /// The server's client port
    #[arg(long, default_value = "127.0.0.1:7400", value_name = "HOST:PORT")]
    pub addr: String,
    /// Connections, 1 to 65536
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub connections: u32,
    /// Measured time: `30s`, `500ms`, `2m`
    #[arg(long, default_value = "10s", value_parser = parse_duration, value_name = "T")]
    pub duration: Duration,
    /// Load before the measured time, not counted
    #[arg(long, default_value = "1s", value_parser = parse_duration, value_name = "T")]
    pub warm_up: Duration,
    /// Streams, chosen uniformly; each run has its own
    #[arg(long, default_value_t = 10_000, value_name = "S")]
    pub streams: u32,
    /// Payload of each event, bytes
    #[arg(long, default_value_t = 100, value_name = "BYTES")]
    pub size: u32,
    /// Requests in flight on each connection, 1 to 4096
    #[arg(long, default_value_t = 1, value_name = "K")]
    pub in_flight: u32,
    /// Open loop: requests per second over all connections
    #[arg(long, value_name = "R")]
    pub rate: Option<u64>,
    /// Generator threads, each with its share of the connections
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub threads: u32,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// `duolog bench append`.
#[derive(Args, Clone, Debug)]
pub struct AppendArgs {
    /// What both workloads take.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Condition of each append: none, or the exact revision of a stream that its connection owns
    #[arg(long, value_enum, default_value_t = ExpectArg::Any)]
    pub expect: ExpectArg,
    /// Send an idempotency key with every append
    #[arg(long)]
    pub key: bool,
}

/// `--expect`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectArg {
    /// No condition
    Any,
    /// The exact revision
    Exact,
}

/// `duolog bench limits`.
#[derive(Args, Clone, Debug)]
pub struct LimitsArgs {
    /// Directory on the device to measure
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Rounds, at least 3
    #[arg(long, default_value_t = limits::ROUNDS_MIN, value_name = "N")]
    pub rounds: u32,
    /// Measured time of each of the eight loads of a round
    #[arg(long, default_value = "2s", value_parser = parse_duration, value_name = "T")]
    pub duration: Duration,
    /// Groups that the skeleton writes at one time, 1 to 8
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub skeleton_writes_in_flight: u32,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// `duolog bench pair`. What is not given is as large as --quick, or its absence, says.
#[derive(Args, Clone, Debug)]
pub struct PairArgs {
    /// Directory on the device to measure
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// A small run, for checks of a change: 1 round, 2 handovers, 1 kill, 3 s healthy, 32 MiB
    #[arg(long)]
    pub quick: bool,
    /// Rounds beside the standalone server [default: 3]
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// Measured time of each of the four loads of a round [default: 2s]
    #[arg(long, value_parser = parse_duration, value_name = "T")]
    pub duration: Option<Duration>,
    /// Planned handovers [default: 20]
    #[arg(long, value_name = "N")]
    pub handovers: Option<u32>,
    /// Kills of the leader [default: 20]
    #[arg(long, value_name = "N")]
    pub kills: Option<u32>,
    /// How long the requests of a healthy pair are counted [default: 60s]
    #[arg(long, value_parser = parse_duration, value_name = "T")]
    pub healthy: Option<Duration>,
    /// Size of the log that a blank node copies; 0 leaves it out [default: 256]
    #[arg(long, value_name = "MIB")]
    pub copy_mib: Option<u32>,
    /// The embedded S3 answers that much later: `20ms` is a bucket in the same region
    #[arg(long, default_value = "0s", value_parser = parse_duration, value_name = "T")]
    pub s3_delay: Duration,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// `duolog bench skeleton`.
#[derive(Args, Clone, Debug)]
pub struct SkeletonArgs {
    /// Address to listen on
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: String,
    /// Directory for its file
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Groups being written at one time, 1 to 8
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub writes_in_flight: usize,
}

/// Why a command gave no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The address is none.
    #[error("--addr {addr:?} is no address: {reason}")]
    Addr {
        /// As given.
        addr: String,
        /// Why.
        reason: String,
    },
    /// The load generator.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The limits benchmark.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// The pair benchmark.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// The skeleton.
    #[error(transparent)]
    Skeleton(#[from] SkeletonError),
    /// A result without a JSON form; does not happen.
    #[error("the result has no JSON form: {0}")]
    Json(#[from] serde_json::Error),
}

impl BenchError {
    /// Whether the command line is at fault, not the server or the machine.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        if let Self::Pair(error) = self {
            return error.is_usage();
        }
        matches!(
            self,
            Self::Addr { .. }
                | Self::Run(RunError::Settings(_))
                | Self::Limits(LimitsError::Rounds(_) | LimitsError::Run(RunError::Settings(_)))
                | Self::Skeleton(SkeletonError::WritesInFlight(_))
        )
    }

    /// Whether no server could be reached.
    #[must_use]
    pub const fn is_unreachable(&self) -> bool {
        use crate::generator::WorkerError;
        matches!(
            self,
            Self::Run(RunError::Worker(
                WorkerError::Connect { .. } | WorkerError::OpenTimeout { .. }
            ))
        )
    }
}

impl BenchCommand {
    /// Whether results and errors are for machines.
    #[must_use]
    pub const fn json(&self) -> bool {
        match self {
            Self::Append(arguments) => arguments.load.json,
            Self::Read(arguments) => arguments.json,
            Self::Limits(arguments) => arguments.json,
            Self::Pair(arguments) => arguments.json,
            Self::Skeleton(_) => false,
        }
    }
}

/// What a command has come to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What is to be printed, with its last line feed.
    pub text: String,
    /// False: the pair broke a promise.
    pub safe: bool,
}

/// Runs a command. `embed` starts the store that `pair` needs, whose answers take that much longer.
pub fn run<S: Store>(
    command: &BenchCommand,
    embed: impl FnOnce(Duration) -> Result<S, String>,
) -> Result<Outcome, BenchError> {
    if let BenchCommand::Pair(arguments) = command {
        let mut store = embed(arguments.s3_delay).map_err(PairError::Store)?;
        let report = run_pair(arguments, &mut store)?;
        let text = if arguments.json { json(&report)? } else { report.to_text() };
        return Ok(Outcome { text, safe: report.is_safe() });
    }
    Ok(Outcome { text: run_alone(command)?, safe: true })
}

fn run_pair(arguments: &PairArgs, store: &mut impl Store) -> Result<PairReport, PairError> {
    let terminal = std::io::stderr().is_terminal();
    pair::run(&arguments.settings(), store, |step| {
        if terminal {
            eprintln!("{step}");
        }
    })
}

fn run_alone(command: &BenchCommand) -> Result<String, BenchError> {
    match command {
        BenchCommand::Pair(_) => Ok(String::new()),
        BenchCommand::Append(arguments) => {
            let expectation = match arguments.expect {
                ExpectArg::Any => Expectation::Any,
                ExpectArg::Exact => Expectation::Exact,
            };
            let settings = arguments.load.settings(Workload::Append)?;
            load(Settings { expectation, with_keys: arguments.key, ..settings }, &arguments.load)
        }
        BenchCommand::Read(arguments) => load(arguments.settings(Workload::Read)?, arguments),
        BenchCommand::Limits(arguments) => {
            let settings = LimitsSettings {
                dir: arguments.dir.clone(),
                rounds: arguments.rounds,
                duration: arguments.duration,
                skeleton_writes_in_flight: arguments.skeleton_writes_in_flight,
            };
            let terminal = std::io::stderr().is_terminal();
            let report = limits::run(&settings, |step| {
                if terminal {
                    eprintln!("{step}");
                }
            })?;
            if arguments.json { json(&report) } else { Ok(report.to_text()) }
        }
        BenchCommand::Skeleton(arguments) => {
            skeleton::serve(&SkeletonSettings {
                listen: arguments.listen.clone(),
                dir: arguments.dir.clone(),
                writes_in_flight: arguments.writes_in_flight,
            })?;
            Ok(String::new())
        }
    }
}

fn load(settings: Settings, arguments: &LoadArgs) -> Result<String, BenchError> {
    let report = generator::run(&settings)?;
    if arguments.json { json(&report) } else { Ok(report.to_text()) }
}

fn json(report: &impl serde::Serialize) -> Result<String, BenchError> {
    Ok(serde_json::to_string(report)? + "\n")
}

impl LoadArgs {
    fn settings(&self, workload: Workload) -> Result<Settings, BenchError> {
        Ok(Settings {
            workload,
            in_flight: self.in_flight,
            streams: self.streams,
            warm_up: self.warm_up,
            rate_per_s: self.rate,
            threads: self.threads,
            ..Settings::appends(resolve(&self.addr)?, self.connections, self.size, self.duration)
        })
    }
}

impl PairArgs {
    fn settings(&self) -> PairSettings {
        let quick = self.quick;
        let count =
            |given: Option<u32>, small, large| given.unwrap_or(if quick { small } else { large });
        let time = |given: Option<Duration>, small, large| {
            given.unwrap_or(Duration::from_millis(if quick { small } else { large }))
        };
        PairSettings {
            dir: self.dir.clone(),
            rounds: count(self.rounds, 1, 3),
            duration: time(self.duration, 500, 2000),
            handovers: count(self.handovers, 2, 20),
            kills: count(self.kills, 1, 20),
            healthy: time(self.healthy, 3000, 60_000),
            copy_mib: count(self.copy_mib, 32, 256),
        }
    }
}

fn resolve(addr: &str) -> Result<SocketAddr, BenchError> {
    let refused = |reason: String| BenchError::Addr { addr: addr.to_owned(), reason };
    let mut found = addr.to_socket_addrs().map_err(|error| refused(error.to_string()))?;
    found.next().ok_or_else(|| refused("the name has no address".to_owned()))
}

/// `30s`, `500ms`, `2m`; fractions like `1.5s` too.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds_per_unit = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("{text:?} has no unit: write 500ms, 30s or 2m")),
    };
    let number: f64 = number.parse().map_err(|_| format!("{number:?} is no number"))?;
    Duration::try_from_secs_f64(number * seconds_per_unit)
        .map_err(|_| format!("{text:?} is no duration: write 500ms, 30s or 2m"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser, Debug)]
    struct Program {
        #[command(subcommand)]
        command: BenchCommand,
    }

    #[test]
    fn the_command_line_holds_together() {
        use clap::CommandFactory;
        Program::command().debug_assert();
    }

    #[test]
    fn options_arrive_where_they_belong() {
        let line = "bench append --addr 127.0.0.1:7401 --connections 3 --duration 1.5s --streams 9 \
                    --size 10 --in-flight 2 --expect exact --rate 7 --key --json";
        let parsed = Program::try_parse_from(line.split_whitespace()).unwrap();
        assert!(parsed.command.json());
        let BenchCommand::Append(arguments) = parsed.command else { panic!("not an append") };
        let settings = arguments.load.settings(Workload::Append).unwrap();
        assert_eq!(settings.addr, "127.0.0.1:7401".parse().unwrap());
        assert_eq!((settings.connections, settings.in_flight, settings.streams), (3, 2, 9));
        assert_eq!((settings.event_size_bytes, settings.rate_per_s), (10, Some(7)));
        assert_eq!(settings.duration, Duration::from_millis(1500));
        assert_eq!((arguments.expect, arguments.key), (ExpectArg::Exact, true));
    }

    /// A small run stays small in every part that was not given. Broken if a check of a change took
    /// as long as a measurement.
    #[test]
    fn a_quick_run_of_a_pair_is_small_where_nothing_else_is_said() {
        let settings = |line: &str| {
            let parsed = Program::try_parse_from(line.split_whitespace()).unwrap();
            let BenchCommand::Pair(arguments) = parsed.command else { panic!("not a pair") };
            arguments.settings()
        };
        let full = settings("bench pair --dir x");
        assert_eq!((full.rounds, full.handovers, full.kills, full.copy_mib), (3, 20, 20, 256));
        assert_eq!(full.healthy, Duration::from_secs(60));
        let quick = settings("bench pair --dir x --quick --kills 4");
        assert_eq!((quick.rounds, quick.handovers, quick.kills, quick.copy_mib), (1, 2, 4, 32));
        assert!(quick.healthy < Duration::from_secs(10));
    }

    #[test]
    fn durations_need_a_unit_and_a_sign_that_makes_sense() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "5", "s", "-1s", "1e999s", "NaNs", "5 s", "5d"] {
            assert!(parse_duration(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_setting_out_of_range_is_a_usage_error_with_its_name() {
        let line = "bench append --connections 0";
        let parsed = Program::try_parse_from(line.split_whitespace()).unwrap();
        let error = run_alone(&parsed.command).unwrap_err();
        assert!(error.is_usage());
        assert_eq!(error.to_string(), "--connections is 0: give 1 to 65536");
    }
}
