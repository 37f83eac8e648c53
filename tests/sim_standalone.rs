//! Thousands of seeds of one shard over a simulated disk (docs/TESTING.md, "Simulated disk").

use duolog_tests::sim::plan::Plan;
use duolog_tests::sim::world::{Report, World};

fn run(seed: u64) -> Report {
    World::new(Plan::of(seed)).run()
}

#[test]
fn one_seed_twice_is_the_same_run() {
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

#[test]
fn seeds() {
    let first: u64 =
        std::env::var("DUOLOG_SIM_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let n: u64 = std::env::var("DUOLOG_SIM_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(300);
    let mut sum = Report::default();
    let mut bad = 0;
    for seed in first..first + n {
        match std::panic::catch_unwind(|| run(seed)) {
            Ok(report) => {
                sum.steps += report.steps;
                sum.events += report.events;
                sum.reads += report.reads;
                sum.crashes += report.crashes;
                sum.cut += report.cut;
                sum.damage_found += report.damage_found;
                sum.damage_unproven += report.damage_unproven;
                sum.segments += report.segments;
                sum.cold_heads += report.cold_heads;
                sum.replays += report.replays;
                sum.refusals += report.refusals;
                sum.submissions += report.submissions;
            }
            Err(_) => {
                eprintln!("SEED {seed} failed");
                bad += 1;
            }
        }
    }
    eprintln!("{sum:?} bad {bad}");
    assert_eq!(bad, 0);
}
