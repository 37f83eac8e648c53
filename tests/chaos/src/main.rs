//! Real nodes under real faults (docs/TESTING.md, "Chaos suite").

mod act;
mod clock;
mod contenders;
mod files;
mod ground;
mod history;
mod journal;
mod medley;
mod play;
mod readers;
mod report;
mod scenario;
mod supervise;
mod table;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use duolog_tests::process::Stopwatch;
use duolog_tests::sim::chance::Chance;
use serde_json::{Value as Json, json};

use act::{Order, act};
use scenario::Scenario;
use supervise::{Ground, Supervisor};
use table::{all, find};

/// Real nodes, an embedded S3, real faults, and the reckoning.
#[derive(Debug, Parser)]
#[command(name = "duolog-chaos", version)]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// The scenarios: one name a line.
    List,
    /// Runs scenarios and reports.
    Run(Run),
    /// Runs scenarios by chance until the time is over or one fails.
    Soak(Soak),
    /// One run, in the process that the other commands start for it.
    #[command(hide = true)]
    Act(Act),
}

#[derive(Debug, Args)]
struct Place {
    /// Where the report goes: report.json, report.html, and a folder for each run.
    #[arg(long, default_value = "chaos-report")]
    report: PathBuf,
    /// On the loopback with proxies, although network namespaces could be made.
    #[arg(long)]
    proxies: bool,
    /// Prints the report as one JSON document on standard output.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Run {
    /// A scenario's name, or "all", or "short": the selection for every change.
    #[arg(long, default_value = "short")]
    scenario: String,
    /// Decides what chance decides; the next times take the next numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many times.
    #[arg(long, default_value_t = 1)]
    times: u64,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
struct Soak {
    /// How long.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// The first run's seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
struct Act {
    #[arg(long)]
    scenario: String,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    report: PathBuf,
    #[arg(long)]
    prefix: Option<String>,
}

/// Runs under way and done.
struct Series {
    supervisor: Supervisor,
    json: bool,
    results: Vec<Json>,
}

impl Series {
    fn begin(place: Place) -> Self {
        let (best, lack) = Ground::best();
        let ground = if place.proxies { Ground::Proxies } else { best };
        match (ground, lack) {
            (Ground::Namespaces, _) => eprintln!("in network namespaces"),
            (Ground::Proxies, None) => eprintln!("with proxies on the loopback"),
            (Ground::Proxies, Some(lack)) => {
                eprintln!("no network namespaces here ({lack}): with proxies on the loopback");
            }
        }
        let supervisor = Supervisor::new(ground, place.report);
        Self { supervisor, json: place.json, results: Vec::new() }
    }

    /// Runs one; whether it did not fail.
    fn run(&mut self, scenario: &Scenario, seed: u64) -> bool {
        let result = self.supervisor.run(scenario, seed).unwrap_or_else(|error| {
            let (name, why) = (scenario.name, format!("it cannot be run: {error}"));
            json!({ "scenario": name, "seed": seed, "verdict": "failed", "why": why })
        });
        if !self.json {
            println!("{}", report::line(&result));
        }
        let fine = result["verdict"] != "failed";
        if !fine {
            let (name, folder) = (scenario.name, self.supervisor.report.display());
            eprintln!("see {folder}/{name}-{seed}; reproduce with:");
            let ground = if self.supervisor.ground == Ground::Proxies { " --proxies" } else { "" };
            eprintln!("duolog-chaos run --scenario {name} --seed {seed}{ground}");
        }
        self.results.push(result);
        fine
    }

    fn count(&self, verdict: &str) -> usize {
        self.results.iter().filter(|result| result["verdict"] == verdict).count()
    }

    /// Writes the report.
    fn end(self) -> ExitCode {
        let [passed, failed, skipped] =
            ["passed", "failed", "skipped"].map(|verdict| self.count(verdict));
        let document = json!({
            "passed": passed, "failed": failed, "skipped": skipped, "runs": self.results,
        });
        if let Err(error) = report::write(&self.supervisor.report, &document) {
            eprintln!("the report cannot be written: {error}");
            return ExitCode::FAILURE;
        }
        if self.json {
            println!("{document}");
        } else {
            println!("{passed} passed, {failed} failed, {skipped} skipped");
        }
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn run(run: Run) -> ExitCode {
    let chosen: Vec<&Scenario> = match run.scenario.as_str() {
        "all" => all().collect(),
        "short" => all().filter(|scenario| scenario.short).collect(),
        name => find(name).into_iter().collect(),
    };
    if chosen.is_empty() {
        eprintln!("there is no scenario {:?}: duolog-chaos list tells their names", run.scenario);
        return ExitCode::from(2);
    }
    let mut series = Series::begin(run.place);
    for seed in run.seed..run.seed + run.times {
        for scenario in &chosen {
            if !series.supervisor.is_interrupted() {
                series.run(scenario, seed);
            }
        }
    }
    series.end()
}

fn soak(soak: Soak) -> ExitCode {
    let (watch, limit) = (Stopwatch::start(), Duration::from_secs(60 * soak.minutes));
    let mut chance = Chance::new(soak.seed, "soak");
    let scenarios: Vec<&Scenario> = all().collect();
    let medley = find("medley").expect("it is in the table");
    let mut series = Series::begin(soak.place);
    let mut seed = soak.seed;
    while watch.elapsed() < limit {
        let scenario =
            if chance.percent(50) { medley } else { scenarios[chance.index(scenarios.len())] };
        if !series.run(scenario, seed) {
            break;
        }
        seed += 1;
    }
    series.end()
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Task::List => {
            all().for_each(|scenario| println!("{}", scenario.name));
            ExitCode::SUCCESS
        }
        Task::Run(chosen) => run(chosen),
        Task::Soak(chosen) => soak(chosen),
        Task::Act(Act { scenario, seed, report, prefix }) => {
            let scenario = find(&scenario).expect("whoever starts this knows the table");
            act(Order { scenario, seed, folder: report, prefix });
            ExitCode::SUCCESS
        }
    }
}
