//! The pair's machines against a bucket and two logs, in random order (rules R, C, P, G).
//!
//! Promised: whatever is lost, late or doubled, no two leaders commit different blocks, no leader
//! opens without what was acknowledged, nobody cuts it, and whoever holds the lease can lead. Real
//! machines, real objects, real blocks; harness and driver do what the shard machine and the
//! program do. Broken if a run reports a violation, or if a planted mistake goes unnoticed.
#![expect(clippy::unwrap_used, reason = "a test file: a panic is how a test fails")]

mod bucket;
mod chance;
mod leader;
mod log;
mod mistake;
mod promoter;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mistake::{MISTAKES, Mistake};
use world::{Role, World};

const SEEDS: u64 = 10_000;
const SEEDS_PER_MISTAKE: u64 = 20_000;
const STEPS: usize = 500;

/// Situations that have to come up often enough for a run to mean something.
const SITUATIONS: &[&str] = &[
    "challenge",
    "crash",
    "opened",
    "hello cuts",
    "promotion cuts",
    "promotion applies blocks of the chain",
    "committed by the wire",
    "committed by the chain",
    "a Seal met an object",
    "a follower hears of the chain",
    "an Open met a Seal",
    "a leader met a Seal",
    "a leader or promoter follows",
    "a PUT landed after its caller had gone",
    "an object was deleted",
];

/// Runs one seed; in the end one node, alone with the bucket, has to be able to lead, and the other
/// to follow it.
fn run(seed: u64, mistake: Option<Mistake>) -> (World, Option<String>) {
    let mut world = World::new(seed, mistake);
    for _ in 0..STEPS {
        world.step();
        if let Some(violation) = world.violation.clone() {
            return (world, Some(violation));
        }
    }
    heal(&mut world);
    let violation = world.violation.clone();
    (world, violation)
}

fn heal(world: &mut World) {
    for node in 0..2 {
        world.crash(node);
    }
    world.bucket.puts.clear();
    world.bucket.deletes.clear();
    let survivor = world.chance.below(2);
    let epoch = world.lease.1 + 1;
    if world.nodes[survivor].promised > epoch {
        return world.violate("a promise is above the lease".to_owned());
    }
    world.take_lease(survivor, epoch);
    for _ in 0..2_000 {
        if world.violation.is_some() || matches!(world.nodes[survivor].role, Role::Leading(_)) {
            break;
        }
        world.now = world.now.plus(50);
        if matches!(world.nodes[survivor].role, Role::Promoting(_)) {
            world.promote(survivor);
        }
        world.land();
    }
    if world.violation.is_some() {
        return;
    }
    let role = &world.nodes[survivor].role;
    if !matches!(role, Role::Leading(_)) {
        return world.violate(format!("node {survivor} alone does not come to lead: {role:?}"));
    }
    let log = &world.nodes[survivor].log;
    if let Some(lost) = world.ghost.iter().find(|end| !log.contains(**end)) {
        return world.violate(format!("LSN {} was acknowledged and is lost", lost.lsn));
    }
    let other = 1 - survivor;
    world.hello_of(epoch, other);
    for _ in 0..100 {
        world.receive(other);
    }
    let [a, b] = &world.nodes;
    if world.violation.is_none() && a.log.ends() != b.log.ends() {
        world.violate("the other node does not come to the same log".to_owned());
    }
}

#[test]
fn one_seed_gives_one_run() {
    let digest = |seed| {
        let (world, _) = run(seed, None);
        (world.ghost, world.seen, world.now)
    };
    for seed in 1..50 {
        assert_eq!(digest(seed), digest(seed));
    }
}

#[test]
fn nothing_acknowledged_is_ever_lost_and_the_holder_of_the_lease_can_lead() {
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    let seeds = std::env::var("DUOLOG_SIM_SEEDS").ok().and_then(|text| text.parse().ok());
    for seed in 1..=seeds.unwrap_or(SEEDS) {
        let (world, violation) = run(seed, None);
        assert_eq!(violation, None, "seed {seed}");
        for (what, count) in world.seen {
            *seen.entry(what).or_default() += count;
        }
    }
    println!("{seen:#?}");
    for what in SITUATIONS {
        let count = seen.get(what).copied().unwrap_or_default();
        assert!(count >= 50, "{what}: {count} times");
    }
}

#[test]
fn every_planted_mistake_is_found() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for mistake in MISTAKES {
        let found = (1..=SEEDS_PER_MISTAKE).find_map(|seed| {
            let run = catch_unwind(AssertUnwindSafe(|| run(seed, Some(*mistake)).1));
            let what = run.unwrap_or_else(|_| Some("an assertion of a machine".to_owned()))?;
            Some((seed, what))
        });
        match found {
            Some((seed, what)) => println!("{mistake:?}: seed {seed}: {what}"),
            None => missed.push(mistake),
        }
    }
    std::panic::set_hook(hook);
    assert!(missed.is_empty(), "not found: {missed:?}");
}
