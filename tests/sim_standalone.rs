//! One shard over a simulated disk, through thousands of seeds (docs/TESTING.md, "Simulated disk").
//!
//! `DUOLOG_SIM_SEEDS` sets the number of seeds, `DUOLOG_SIM_SEED` the only one to run.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use duolog_tests::sim::plan::{Mistake, Plan};
use duolog_tests::sim::world::{Report, World};

/// Seeds when nothing is set: about half a minute on two cores.
const SEEDS: u64 = 3_000;
/// A planted mistake has to be found within this many seeds.
const MISTAKE_SEEDS_MAX: u64 = 400;

/// Seeds that found something, in earlier forms of the simulator too. They stay for ever.
const KEPT: [u64; 21] =
    [1, 9, 10, 14, 18, 22, 27, 32, 38, 40, 41, 46, 80, 100, 103, 138, 143, 153, 2262, 2723, 6638];

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// Runs a plan; the broken promise, if one is.
fn run(plan: Plan) -> Result<Report, String> {
    panic::catch_unwind(AssertUnwindSafe(|| World::new(plan).run())).map_err(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "a panic without words".to_owned())
    })
}

/// What a panic says goes into the test's own message.
fn without_noise<T>(work: impl FnOnce() -> T) -> T {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let result = work();
    panic::set_hook(hook);
    drop(turn);
    result
}

fn reproduce(seed: u64, broken: &str) -> String {
    format!(
        "seed {seed}: {broken}\n  DUOLOG_SIM_SEED={seed} cargo test --release -p duolog-tests \
         --test sim_standalone seeds"
    )
}

/// Runs seeds on all cores; the sum of what happened, and the broken ones.
fn run_all(seeds: &[u64]) -> (Report, Vec<String>) {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let next = AtomicU64::new(0);
    let results = Mutex::new((Report::default(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    let result = run(Plan::of(*seed));
                    let mut results = results.lock().expect("no thread panics with the lock");
                    match result {
                        Ok(report) => results.0.add(&report),
                        Err(broken) => results.1.push(reproduce(*seed, &broken)),
                    }
                }
            });
        }
    });
    results.into_inner().expect("no thread panics with the lock")
}

#[test]
fn one_seed_twice_is_the_same_run() {
    for seed in 0..40 {
        assert_eq!(run(Plan::of(seed)), run(Plan::of(seed)), "seed {seed}");
    }
}

#[test]
fn every_promise_holds_through_thousands_of_seeds() {
    let seeds: Vec<u64> = match number("DUOLOG_SIM_SEED") {
        Some(seed) => vec![seed],
        None => KEPT.into_iter().chain(0..number("DUOLOG_SIM_SEEDS").unwrap_or(SEEDS)).collect(),
    };
    let (sum, broken) = without_noise(|| run_all(&seeds));
    println!("{} seeds: {sum:#?}", seeds.len());
    assert!(broken.is_empty(), "{} broken:\n{}", broken.len(), broken.join("\n"));
    if seeds.len() < SEEDS as usize {
        return;
    }
    // A simulator that meets no trouble proves nothing.
    assert!(sum.cut > 1_000, "crashes cut blocks off: {sum:?}");
    assert!(sum.damage_found > 1_000, "rot meets proof: {sum:?}");
    assert!(sum.damage_unproven > 100, "rot meets none: {sum:?}");
    assert!(sum.cold_heads > 10_000, "streams are cold: {sum:?}");
    assert!(sum.replays > 10_000, "appends are repeated: {sum:?}");
    assert!(sum.refusals > 10_000, "appends are refused: {sum:?}");
}

/// Mistakes in the driver or the disk.
const MISTAKES: [Mistake; 10] = [
    Mistake::AckBeforeDurable,
    Mistake::Unsettled,
    Mistake::ForgottenMark,
    Mistake::StaleHead,
    Mistake::LostToken,
    Mistake::WrongReplay,
    Mistake::ForgottenHeader,
    Mistake::NotSetAside,
    Mistake::ForgottenKeys,
    Mistake::UnsavedIndex,
];

/// What proves that the checks above can fail.
#[test]
fn planted_mistakes_are_found() {
    let mut missed = Vec::new();
    without_noise(|| {
        for mistake in MISTAKES {
            let broken = |seed| Some((seed, run(Plan::of(seed).with(mistake)).err()?));
            let found = (0..MISTAKE_SEEDS_MAX).find_map(broken);
            println!("{mistake:?}: {found:?}");
            if found.is_none() {
                missed.push(mistake);
            }
        }
    });
    assert!(missed.is_empty(), "{missed:?} stay unseen");
}
