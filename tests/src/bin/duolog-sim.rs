//! Runs the simulator of the pair from the command line (docs/TESTING.md).

use std::panic::PanicHookInfo;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use duolog_tests::process::Stopwatch;
use duolog_tests::simulator::plan::{Plan, Profile};
use duolog_tests::simulator::{Outcome, run};

const USAGE: &str = "usage:
  duolog-sim run --seed N [--seconds S] [--arbitrary-clocks]      one run; ends with its digest
  duolog-sim replay --seed N [--trace] [...]                      the same, with what happened
  duolog-sim soak --minutes M [--seed N] [...]                    seeds from N on, both profiles,
                                                                  until a promise is broken";

struct Arguments {
    command: String,
    seed: u64,
    seconds: u64,
    minutes: u64,
    profile: Profile,
    trace: bool,
}

fn parse() -> Option<Arguments> {
    let mut given = std::env::args().skip(1);
    let mut arguments = Arguments {
        command: given.next()?,
        seed: 1,
        seconds: 60,
        minutes: 1,
        profile: Profile::Bounded,
        trace: false,
    };
    while let Some(flag) = given.next() {
        match flag.as_str() {
            "--seed" => arguments.seed = given.next()?.parse().ok()?,
            "--seconds" => arguments.seconds = given.next()?.parse().ok()?,
            "--minutes" => arguments.minutes = given.next()?.parse().ok()?,
            "--arbitrary-clocks" => arguments.profile = Profile::Arbitrary,
            "--trace" => arguments.trace = true,
            _ => return None,
        }
    }
    Some(arguments)
}

fn command(plan: &Plan) -> String {
    let clocks = if plan.profile == Profile::Arbitrary { " --arbitrary-clocks" } else { "" };
    let (seed, seconds) = (plan.seed, plan.faulty_ms / 1000);
    format!("duolog-sim replay --seed {seed} --seconds {seconds}{clocks} --trace")
}

/// The run under way: a broken promise is a panic, which ends the process.
static PLAN: Mutex<Option<Plan>> = Mutex::new(None);

fn run_one(plan: Plan) -> Outcome {
    *PLAN.lock().unwrap_or_else(PoisonError::into_inner) = Some(plan.clone());
    run(plan)
}

/// Says which promise is broken, and how to see it again.
fn tell(panic: &PanicHookInfo<'_>) {
    let plan = PLAN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let text = panic.payload_as_str().unwrap_or("a panic without a text");
    if let Some(plan) = plan {
        let (seed, command) = (plan.seed, command(&plan));
        eprintln!("seed {seed}: {text}\nreproduce with: {command}");
    }
    std::process::exit(1);
}

fn one(arguments: &Arguments) {
    let mut plan = Plan::new(arguments.seed, arguments.profile, arguments.seconds * 1000);
    let replay = arguments.command == "replay";
    plan.trace = arguments.trace && replay;
    let outcome = run_one(plan);
    if replay {
        for (what, count) in &outcome.seen {
            println!("{count:>8} times: {what}");
        }
    }
    println!("digest={:016x}", outcome.digest);
}

fn soak(arguments: &Arguments) {
    let begun = Stopwatch::start();
    let limit = Duration::from_secs(60 * arguments.minutes);
    let (mut seed, mut simulated_ms) = (arguments.seed, 0u64);
    while begun.elapsed() < limit {
        for profile in [Profile::Bounded, Profile::Arbitrary] {
            let plan = Plan::new(seed, profile, arguments.seconds * 1000);
            simulated_ms += run_one(plan).simulated_ms;
        }
        seed += 1;
    }
    let hours = simulated_ms as f64 / 3_600_000.0;
    let per_hour = hours / (begun.elapsed().as_secs_f64() / 3600.0);
    let seeds = seed - arguments.seed;
    println!("{seeds} seeds, {hours:.1} simulated hours, {per_hour:.0} for each hour of this core");
}

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(tell));
    let Some(arguments) = parse() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match arguments.command.as_str() {
        "run" | "replay" => one(&arguments),
        "soak" => soak(&arguments),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
