//! `duolog bench …`: the command lines of the load generator and of the limits benchmark, and what
//! they print.

mod append_path;
mod compare;
mod duration;
mod fan_out;
mod fleet;
mod limits;
mod load;
mod pair;
mod record;
mod size;
mod skeleton;
mod source;
mod sweep;

use std::io::IsTerminal;
use std::time::Duration;

use clap::Subcommand;
use duolog_net::client::Error;

pub use append_path::AppendPathArgs;
pub use compare::CompareArgs;
pub use fan_out::FanOutArgs;
pub use fleet::{LoadCommand, RunArgs, WorkerArgs};
pub use limits::LimitsArgs;
pub use load::{AppendArgs, LoadArgs, MixedArgs, ReadArgs};
pub use pair::PairArgs;
pub use record::ResultArgs;
pub use skeleton::{PlainArgs, SkeletonArgs};
pub use sweep::SweepArgs;

use source::Source;

use crate::comparison::ComparisonError;
use crate::fan_out::FanOutError;
use crate::fleet::FleetError;
use crate::fleet::token::ShortToken;
use crate::generator::RunError;
use crate::limits::LimitsError;
use crate::pair::{PairError, Store};
use crate::results::{Program, ResultError};
use crate::sweep::search::NoKnee;
use crate::sweep::{SweepError, WrongSetting};
use crate::uring::skeleton::SkeletonError;

/// The commands behind `duolog bench`.
#[derive(Subcommand, Clone, Debug)]
pub enum BenchCommand {
    /// Append events and measure throughput and latency
    #[command(after_help = load::APPEND_HELP)]
    Append(AppendArgs),
    /// Write streams, then read from them and measure throughput and latency
    #[command(after_help = load::READ_HELP)]
    Read(ReadArgs),
    /// Write streams, then read from them and append to them at the same time
    #[command(after_help = load::MIXED_HELP)]
    Mixed(MixedArgs),
    /// Publish to subscribers and measure when each has its events; or replay a log
    #[command(after_help = fan_out::HELP)]
    Subscribe(FanOutArgs),
    /// Compare two sets of results: better, worse, or no difference shown
    #[command(after_help = compare::HELP)]
    Compare(CompareArgs),
    /// Apply a load from several processes or hosts
    #[command(after_help = fleet::RUN_HELP)]
    Run(RunArgs),
    /// Wait for `bench run` and apply a share of its load
    #[command(after_help = fleet::WORKER_HELP)]
    Worker(WorkerArgs),
    /// Compare Duolog with what this machine can do at best
    #[command(after_help = limits::HELP)]
    Limits(LimitsArgs),
    /// Compare a pair with a standalone server, and measure how long a change of the lead takes
    #[command(after_help = pair::HELP)]
    Pair(PairArgs),
    /// Serve as the bare skeleton that `limits` measures
    #[command(hide = true)]
    Skeleton(SkeletonArgs),
    /// Serve as the plainest server that `limits` measures
    #[command(hide = true)]
    Plain(PlainArgs),
    /// Run an append's way through session, shard and block in memory, to count its instructions
    #[command(hide = true)]
    AppendPath(AppendPathArgs),
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
    /// Workers.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// The token of workers.
    #[error(transparent)]
    Token(#[from] ShortToken),
    /// A setting of the sweep.
    #[error(transparent)]
    Sweep(#[from] WrongSetting),
    /// The server has no knee.
    #[error(transparent)]
    NoKnee(#[from] NoKnee),
    /// The limits benchmark.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// The pair benchmark.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// Subscribers.
    #[error(transparent)]
    FanOut(#[from] FanOutError),
    /// The skeleton.
    #[error(transparent)]
    Skeleton(#[from] SkeletonError),
    /// A result that could not be made, written or read.
    #[error(transparent)]
    Result(#[from] ResultError),
    /// Results that cannot be compared.
    #[error(transparent)]
    Comparison(#[from] ComparisonError),
    /// The plainest server.
    #[error("the plain server failed: {0}")]
    Plain(std::io::Error),
    /// A result without a JSON form; does not happen.
    #[error("the result has no JSON form: {0}")]
    Json(#[from] serde_json::Error),
}

impl BenchError {
    /// Whether the command line is at fault, not the server or the machine.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        match self {
            Self::Pair(error) => return error.is_usage(),
            Self::Fleet(error) => return error.is_usage(),
            _ => {}
        }
        matches!(
            self,
            Self::Addr { .. }
                | Self::Comparison(_)
                | Self::Result(ResultError::Form { .. } | ResultError::Probe { .. })
                | Self::Token(_)
                | Self::Sweep(_)
                | Self::Run(RunError::Settings(_))
                | Self::Limits(LimitsError::Rounds(_) | LimitsError::Run(RunError::Settings(_)))
                | Self::Skeleton(SkeletonError::WritesInFlight(_))
        )
    }

    /// Whether no server could be reached.
    #[must_use]
    pub const fn is_unreachable(&self) -> bool {
        use crate::generator::WorkerError;
        if let Self::Fleet(error) = self {
            return error.is_unreachable();
        }
        matches!(
            self,
            Self::Run(RunError::Worker(
                WorkerError::Connect { .. } | WorkerError::OpenTimeout { .. }
            )) | Self::FanOut(FanOutError::Client(Error::Connect { .. }))
        )
    }
}

impl From<SweepError<Self>> for BenchError {
    fn from(error: SweepError<Self>) -> Self {
        match error {
            SweepError::Setting(error) => error.into(),
            SweepError::NoKnee(error) => error.into(),
            SweepError::Load(error) => error,
        }
    }
}

impl BenchCommand {
    /// Whether results and errors are for machines.
    #[must_use]
    pub const fn json(&self) -> bool {
        match self {
            Self::Append(arguments) => arguments.load.result.json,
            Self::Read(arguments) => arguments.load.result.json,
            Self::Mixed(arguments) => arguments.load.result.json,
            Self::Compare(arguments) => arguments.json,
            Self::Subscribe(arguments) => arguments.json,
            Self::Limits(arguments) => arguments.json,
            Self::Pair(arguments) => arguments.json,
            Self::AppendPath(arguments) => arguments.json,
            Self::Run(arguments) => arguments.load.load_args().result.json,
            Self::Worker(_) | Self::Skeleton(_) | Self::Plain(_) => false,
        }
    }
}

/// What a command has come to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What is to be printed, with its last line feed.
    pub text: String,
    /// False: the pair broke a promise, or results show a regression.
    pub passed: bool,
}

/// Runs a command of `program`. `embed` starts the store that `pair` needs, whose answers take that
/// much longer.
pub fn run<S: Store>(
    command: &BenchCommand,
    program: Program,
    embed: impl FnOnce(Duration) -> Result<S, String>,
) -> Result<Outcome, BenchError> {
    if let BenchCommand::Pair(arguments) = command {
        let mut store = embed(arguments.s3_delay).map_err(PairError::Store)?;
        let report = crate::pair::run(&arguments.settings(), &mut store, tell)?;
        let text = if arguments.json { json(&report)? } else { report.to_text() };
        return Ok(Outcome { text, passed: report.is_safe() });
    }
    if let BenchCommand::Compare(arguments) = command {
        return compare::run(arguments);
    }
    if let BenchCommand::Subscribe(arguments) = command {
        return fan_out::run(arguments);
    }
    Ok(Outcome { text: run_alone(command, program)?, passed: true })
}

fn run_alone(command: &BenchCommand, program: Program) -> Result<String, BenchError> {
    match command {
        BenchCommand::Pair(_) | BenchCommand::Compare(_) | BenchCommand::Subscribe(_) => {
            Ok(String::new())
        }
        BenchCommand::Append(arguments) => {
            record::run(arguments.settings()?, &arguments.load, program, Source::here())
        }
        BenchCommand::Read(arguments) => {
            record::run(arguments.settings()?, &arguments.load, program, Source::here())
        }
        BenchCommand::Mixed(arguments) => {
            record::run(arguments.settings()?, &arguments.load, program, Source::here())
        }
        BenchCommand::Run(arguments) => {
            let settings = arguments.load.settings()?;
            record::run(settings, arguments.load.load_args(), program, arguments.source()?)
        }
        BenchCommand::Worker(arguments) => {
            arguments.serve()?;
            Ok(String::new())
        }
        BenchCommand::Limits(arguments) => {
            let report = crate::limits::run(&arguments.settings(), tell)?;
            if arguments.json { json(&report) } else { Ok(report.to_text()) }
        }
        BenchCommand::AppendPath(arguments) => {
            let report = crate::append_path::run(&arguments.settings());
            if arguments.json { json(&report) } else { Ok(append_path::to_text(&report)) }
        }
        BenchCommand::Plain(arguments) => {
            crate::limits::plain::serve(&arguments.settings()).map_err(BenchError::Plain)?;
            Ok(String::new())
        }
        BenchCommand::Skeleton(arguments) => {
            crate::uring::skeleton::serve(&arguments.settings())?;
            Ok(String::new())
        }
    }
}

/// Shows a person how far a long run has come; a program that reads along is spared it.
fn tell(step: &str) {
    if std::io::stderr().is_terminal() {
        eprintln!("{step}");
    }
}

fn json(report: &impl serde::Serialize) -> Result<String, BenchError> {
    Ok(serde_json::to_string(report)? + "\n")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::generator::{Arrivals, Expectation, ReadMode, Settings, StreamOrder, Workload};

    const PROGRAM: Program = Program { version: "0", commit: "0" };

    #[derive(Parser, Debug)]
    struct Line {
        #[command(subcommand)]
        command: BenchCommand,
    }

    #[test]
    fn the_command_line_holds_together() {
        use clap::CommandFactory;
        Line::command().debug_assert();
    }

    #[test]
    fn options_arrive_where_they_belong() {
        let line = "bench append --addr 127.0.0.1:7401 --connections 3 --duration 1.5s --streams 9 \
                    --size 10 --in-flight 2 --expect exact --rate 7 --key --json";
        let parsed = Line::try_parse_from(line.split_whitespace()).unwrap();
        assert!(parsed.command.json());
        let BenchCommand::Append(arguments) = parsed.command else { panic!("not an append") };
        let settings = arguments.settings().unwrap();
        assert_eq!(settings.addr, "127.0.0.1:7401".parse().unwrap());
        assert_eq!((settings.connections, settings.in_flight, settings.streams), (3, 2, 9));
        assert_eq!((settings.event_size_bytes, settings.rate_per_s), (10, Some(7)));
        assert_eq!(settings.duration, Duration::from_millis(1500));
        assert_eq!((settings.expectation, settings.with_keys), (Expectation::Exact, true));
    }

    fn load_settings(line: &str) -> Settings {
        let line = format!("bench {line}");
        match Line::try_parse_from(line.split_whitespace()).unwrap().command {
            BenchCommand::Append(arguments) => arguments.settings().unwrap(),
            BenchCommand::Read(arguments) => arguments.settings().unwrap(),
            BenchCommand::Mixed(arguments) => arguments.settings().unwrap(),
            other => panic!("no load: {other:?}"),
        }
    }

    /// The loop is open unless somebody says `--closed`, and never both.
    #[test]
    fn the_loop_is_open_unless_closed_and_never_both() {
        assert_eq!(load_settings("append").rate_per_s, Some(1000));
        assert_eq!(load_settings("read --rate 7").rate_per_s, Some(7));
        assert_eq!(load_settings("mixed --closed").rate_per_s, None);
        assert_eq!(load_settings("append --arrivals poisson").arrivals, Arrivals::Poisson);
        for both in ["--closed --rate 5", "--closed --arrivals poisson"] {
            let line = format!("bench append {both}");
            let error = Line::try_parse_from(line.split_whitespace()).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict, "{both}");
        }
        let note = |line: &str| {
            let line = format!("bench append {line}");
            match Line::try_parse_from(line.split_whitespace()).unwrap().command {
                BenchCommand::Append(arguments) => arguments.load.rate_note(),
                other => panic!("not an append: {other:?}"),
            }
        };
        assert!(note("").is_some_and(|note| note.contains("1000") && note.contains("--sweep")));
        assert_eq!((note("--rate 5"), note("--closed")), (None, None));
    }

    #[test]
    fn each_workload_has_its_options_and_defaults() {
        let hot = load_settings("append --expect hot");
        assert_eq!((hot.expectation, hot.streams), (Expectation::Hot, 1));
        assert_eq!(load_settings("append --expect hot --streams 3").streams, 3);
        let wide = load_settings("append --streams-per-append 4 --batch 10 --size 1KiB");
        assert_eq!((wide.streams_per_append, wide.batch, wide.event_size_bytes), (4, 10, 1024));
        assert_eq!((wide.streams, wide.groups()), (10_000, 2500));
        let read = load_settings("read --mode replay --events 7");
        assert_eq!((read.read_mode, read.stream_events), (ReadMode::Replay, 7));
        let read = load_settings("read --size 64KiB");
        assert_eq!((read.read_mode, read.stream_events), (ReadMode::Page, 16));
        let mixed = load_settings("mixed --reads 30 --stream-order sequential");
        assert_eq!((mixed.workload, mixed.reads_percent), (Workload::Mixed, 30));
        assert_eq!(mixed.stream_order, StreamOrder::Sequential);
    }

    /// A small run stays small in every part that was not given. Broken if a check of a change took
    /// as long as a measurement.
    #[test]
    fn a_quick_run_of_a_pair_is_small_where_nothing_else_is_said() {
        let settings = |line: &str| {
            let parsed = Line::try_parse_from(line.split_whitespace()).unwrap();
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
    fn a_setting_out_of_range_is_a_usage_error_with_its_name() {
        let line = "bench append --connections 0";
        let parsed = Line::try_parse_from(line.split_whitespace()).unwrap();
        let error = run_alone(&parsed.command, PROGRAM).unwrap_err();
        assert!(error.is_usage());
        assert_eq!(error.to_string(), "--connections is 0: give 1 to 65536");
    }

    /// A sweep takes many minutes and its overload comes last. Broken if a setting of that is only
    /// looked at when it is its turn: then the error here would be that nobody listens.
    #[test]
    fn a_sweep_is_checked_to_its_last_load_before_anything_starts() {
        for (flags, words) in [
            ("--overload-in-flight 0", "--overload-in-flight: --in-flight is 0"),
            ("--overload-in-flight 5000", "--in-flight is 5000: give 1 to 4096"),
            ("--expect exact --streams 64 --overload-in-flight 2", "at least 128 streams"),
            ("--sweep-step 50ms", "--sweep-step: --duration (ms) is 50"),
            ("--sweep-step 10h", "--sweep-step: --duration (ms) is 144000000"),
        ] {
            let line = format!("bench append --addr 127.0.0.1:1 --sweep {flags}");
            let parsed = Line::try_parse_from(line.split_whitespace()).unwrap();
            let error = run_alone(&parsed.command, PROGRAM).unwrap_err();
            assert!(error.is_usage(), "{flags}: {error}");
            assert!(error.to_string().contains(words), "{flags}: {error}");
        }
    }
}
