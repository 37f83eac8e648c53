//! `duolog-compare`: Duolog beside what a user would pick instead, each with its durable setting,
//! under one load generator on one machine.

mod clock;
mod connection;
mod course;
mod dialect;
mod driver;
mod latency;
mod machine;
mod probe;
mod process;
mod report;
mod results;
mod streams;
mod systems;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use course::Settings;
use results::Results;
use systems::{Programs, SYSTEMS, System};

/// Compares event logs and stores that answer when an append is durable.
#[derive(Parser, Debug)]
#[command(name = "duolog-compare")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Starts each system in its turn, measures it and writes the results after every turn
    Measure(Box<MeasureArgs>),
    /// Prints the document made from results
    Report {
        /// What `measure` wrote
        results: PathBuf,
    },
    /// Lists the systems
    Systems,
}

#[derive(Args, Debug)]
struct MeasureArgs {
    /// Directory for all data, on the device to measure; its user must let `postgres` pass
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Where the results go
    #[arg(long, default_value = "results.json", value_name = "FILE")]
    output: PathBuf,
    /// Systems, separated by commas; all without it
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    systems: Vec<String>,
    /// Turns of each system
    #[arg(long, default_value_t = 5, value_name = "N")]
    repetitions: u32,
    /// Connections of the loads of a turn
    #[arg(long, value_delimiter = ',', default_value = "1,8,32,128,512", value_name = "N,N")]
    connections: Vec<u32>,
    /// Measured time of each load, seconds
    #[arg(long, default_value_t = 2.0, value_name = "S")]
    duration: f64,
    /// Load before it, seconds
    #[arg(long, default_value_t = 1.0, value_name = "S")]
    warm_up: f64,
    /// Tries everything once: 1 turn, 1, 32 and 512 connections, half a second each
    #[arg(long)]
    quick: bool,
    /// Core of the servers: best the one that takes the disk's interrupts
    #[arg(long, default_value_t = 0, value_name = "CPU")]
    server_cpu: u32,
    /// Core of the generator
    #[arg(long, default_value_t = 1, value_name = "CPU")]
    generator_cpu: u32,
    /// The commit of the measured Duolog, for the report
    #[arg(long, default_value = "unknown", value_name = "ID")]
    commit: String,
    /// Duolog's program
    #[arg(long, default_value = "duolog", value_name = "FILE")]
    duolog: PathBuf,
    /// Folder with PostgreSQL's programs
    #[arg(long, default_value = "/usr/lib/postgresql/15/bin", value_name = "DIR")]
    postgres_folder: PathBuf,
    /// Redis
    #[arg(long, default_value = "redis-server", value_name = "FILE")]
    redis: PathBuf,
    /// etcd
    #[arg(long, default_value = "etcd", value_name = "FILE")]
    etcd: PathBuf,
    /// UmaDB
    #[arg(long, default_value = "umadb", value_name = "FILE")]
    umadb: PathBuf,
    /// The server of the package s2-lite
    #[arg(long, default_value = "s2-lite", value_name = "FILE")]
    s2_lite: PathBuf,
    /// NATS, 2.10 or newer
    #[arg(long, default_value = "nats-server", value_name = "FILE")]
    nats: PathBuf,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
enum CliError {
    #[error("there is no system called {0:?}: `duolog-compare systems` lists them")]
    System(String),
    #[error("{name} is {value}: give {min} to {max}")]
    Range { name: &'static str, value: f64, min: f64, max: f64 },
    #[error(transparent)]
    Course(#[from] course::CourseError),
    #[error("cannot use {path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{path} has no results of this version: {source}")]
    Results { path: PathBuf, source: serde_json::Error },
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Measure(arguments) => measure(&arguments),
        Command::Report { results } => read(&results).map(|results| {
            say(&report::document(&results));
            true
        }),
        Command::Systems => {
            SYSTEMS.iter().for_each(|system| say(&format!("{:<18} {}\n", system.id, system.title)));
            Ok(true)
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        // Some system gave nothing; the results say which and why.
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("duolog-compare: {error}");
            ExitCode::from(2)
        }
    }
}

fn say(text: &str) {
    // A reader that has had enough is no error.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn measure(arguments: &MeasureArgs) -> Result<bool, CliError> {
    let settings = settings(arguments)?;
    let mut unwritten = Ok(());
    let mut keep = |results: &Results| {
        if unwritten.is_ok() {
            unwritten = write(&arguments.output, results);
        }
    };
    let results = course::run(&settings, |step| eprintln!("{step}"), &mut keep)?;
    keep(&results);
    unwritten?;
    Ok(results.failures.is_empty())
}

fn settings(arguments: &MeasureArgs) -> Result<Settings, CliError> {
    let range = |name, value: f64, min: f64, max: f64| {
        let inside = (min..=max).contains(&value);
        if inside { Ok(()) } else { Err(CliError::Range { name, value, min, max }) }
    };
    range("--duration", arguments.duration, 0.1, 600.0)?;
    range("--warm-up", arguments.warm_up, 0.0, 600.0)?;
    range("--repetitions", f64::from(arguments.repetitions), 1.0, 100.0)?;
    for connections in &arguments.connections {
        range("--connections", f64::from(*connections), 1.0, 512.0)?;
    }
    let named = |id: &String| System::named(id).ok_or_else(|| CliError::System(id.clone()));
    let systems: Vec<&'static System> = if arguments.systems.is_empty() {
        SYSTEMS.iter().collect()
    } else {
        arguments.systems.iter().map(named).collect::<Result<_, _>>()?
    };
    let quick = arguments.quick;
    let refused = |source| CliError::File { path: arguments.dir.clone(), source };
    std::fs::create_dir_all(&arguments.dir).map_err(refused)?;
    let seconds =
        |given: f64, brief: f64| Duration::from_secs_f64(if quick { brief } else { given });
    Ok(Settings {
        dir: std::fs::canonicalize(&arguments.dir).map_err(refused)?,
        systems,
        repetitions: if quick { 1 } else { arguments.repetitions },
        connections: if quick { vec![1, 32, 512] } else { arguments.connections.clone() },
        duration: seconds(arguments.duration, 0.5),
        warm_up: seconds(arguments.warm_up, 0.2),
        idle: Duration::from_secs(if quick { 1 } else { 10 }),
        server_cpu: arguments.server_cpu,
        generator_cpu: arguments.generator_cpu,
        programs: Programs {
            duolog: program(&arguments.duolog),
            postgres_folder: program(&arguments.postgres_folder),
            redis: program(&arguments.redis),
            etcd: program(&arguments.etcd),
            umadb: program(&arguments.umadb),
            s2_lite: program(&arguments.s2_lite),
            nats: program(&arguments.nats),
        },
        commit: arguments.commit.clone(),
        quick,
    })
}

/// A path is made absolute, because servers do not run in this directory; a bare name is not.
fn program(path: &Path) -> PathBuf {
    let bare = path.components().count() == 1;
    if bare {
        path.to_owned()
    } else {
        std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
    }
}

fn write(path: &Path, results: &Results) -> Result<(), CliError> {
    let text = serde_json::to_string(results);
    let text = text.map_err(|source| CliError::Results { path: path.to_owned(), source })?;
    let written = std::fs::write(path, text + "\n");
    written.map_err(|source| CliError::File { path: path.to_owned(), source })
}

fn read(path: &Path) -> Result<Results, CliError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|source| CliError::File { path: path.to_owned(), source })?;
    let results = serde_json::from_str(&text);
    results.map_err(|source| CliError::Results { path: path.to_owned(), source })
}
