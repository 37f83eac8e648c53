use std::collections::BTreeMap;

use super::*;
use crate::latency::LatencyFigures;
use crate::results::{Machine, Plan, SCHEMA};

fn system(id: &str, group: &str) -> SystemResult {
    SystemResult {
        id: id.to_owned(),
        title: format!("The {id}"),
        group: group.to_owned(),
        version: "1".to_owned(),
        settings: "durable".to_owned(),
        commands: vec!["serve DIR".to_owned()],
    }
}

fn load(
    system: &str,
    repetition: u32,
    throughput_per_s: f64,
    p99_us: f64,
    flushes: f64,
) -> LoadResult {
    let latency = LatencyFigures {
        samples: 1000,
        p50_us: Some(p99_us / 2.0),
        p99_us: Some(p99_us),
        ..LatencyFigures::default()
    };
    LoadResult {
        system: system.to_owned(),
        repetition,
        connections: 1,
        throughput_per_s,
        acked: 1000,
        acked_in_all: 1000,
        latency,
        errors: BTreeMap::new(),
        unanswered: 0,
        flushes_counted: flushes,
        flushes_idle: 0.0,
        server_cpu_s: 0.5,
        server_memory_mib: 10.0,
        client_cpu_percent: 20.0,
        client_wait_percent: 0.0,
        client_limited: false,
        foreign_cpu_percent: 0.0,
    }
}

fn results() -> Results {
    Results {
        schema: SCHEMA,
        began_unix_s: 0,
        took_s: 60,
        commit: "abc".to_owned(),
        quick: false,
        machine: Machine::default(),
        plan: Plan {
            repetitions: 3,
            connections: vec![1],
            duration_s: 3.0,
            warm_up_s: 1.0,
            event_size_bytes: 100,
            streams: 10_000,
            server_cpu: 0,
            generator_cpu: 1,
        },
        idle_flushes_per_s: 0.0,
        systems: ["duolog", "slow", "fast", "hasty"].map(|id| system(id, "single")).to_vec(),
        loads: vec![
            load("duolog", 0, 1900.0, 300.0, 1000.0),
            load("duolog", 1, 2100.0, 310.0, 1000.0),
            load("duolog", 2, 2500.0, 200.0, 1000.0),
            load("slow", 0, 500.0, 500.0, 2000.0),
            load("fast", 0, 1000.0, 800.0, 1000.0),
            load("hasty", 0, 90_000.0, 10.0, 3.0),
        ],
        failures: Vec::new(),
    }
}

fn part<'a>(text: &'a str, title: &str) -> &'a str {
    let from = text.find(&format!("## {title}\n")).unwrap() + 4;
    let length = text[from..].find("\n## ").unwrap_or(text.len() - from);
    &text[from..from + length]
}

/// Targets are held against the best durable peer of each figure, whichever that is, and a missed
/// one is said plainly. Broken if a system that does not flush counts as a peer, or if a miss is
/// not told.
#[test]
fn targets_are_held_against_the_best_durable_peer() {
    let text = document(&results());
    let targets = part(&text, "Duolog and the best peer");
    assert!(targets.contains("| 1 | 1,000 (The fast) | 2.10 x, met |"), "{targets}");
    assert!(targets.contains("| 1 | 0.500 (The slow) | 0.600 x, missed |"), "{targets}");
    assert!(targets.contains("1 of 2 targets are missed"), "{targets}");
    assert!(!targets.contains("hasty"));
}

/// A system with less than one flush per ack stands in its own table and nowhere else.
#[test]
fn what_does_not_flush_stands_apart() {
    let text = document(&results());
    assert!(!part(&text, "One node, durable").contains("hasty"));
    assert!(part(&text, "Those that do not flush first").contains("| The hasty | 90,000"));
    assert!(!part(&text, "Those that do not flush first").contains("The slow"));
}

/// A pair that did not flush on both nodes is named. Broken if one flush per ack passes for two.
#[test]
fn a_pair_without_its_second_flush_is_named() {
    let mut results = results();
    results.systems = ["twice", "once"].map(|id| system(id, "pair")).to_vec();
    results.loads = vec![load("twice", 0, 10.0, 1.0, 2000.0), load("once", 0, 10.0, 1.0, 1000.0)];
    let text = document(&results);
    assert!(part(&text, "Two nodes").contains("not on both disks: The once.**"), "{text}");
}

/// Loads under the generator's or somebody else's influence are named.
#[test]
fn weak_figures_are_named() {
    let mut results = results();
    results.loads[0].client_limited = true;
    results.loads[3].foreign_cpu_percent = 50.0;
    results.loads[4].unanswered = 1;
    let text = document(&results);
    let weak = part(&text, "Where the figures are weak");
    for name in ["duolog at 1 (1)", "slow at 1", "fast at 1"] {
        assert!(weak.contains(name), "{weak}");
    }
}

/// Flushes of others make no system durable without a word, and take durability from none. Broken
/// if a noisy machine moves a system to the other table, or if its noise passes for a proof.
#[test]
fn flushes_of_others_put_a_system_in_doubt() {
    let mut results = results();
    results.loads[3].flushes_idle = 1900.0;
    let text = document(&results);
    assert!(part(&text, "One node, durable").contains("The slow"), "{text}");
    assert!(part(&text, "Where the figures are weak").contains("as often: slow."), "{text}");
}

/// What was written is read again.
#[test]
fn results_survive_their_file() {
    let text = serde_json::to_string(&results()).unwrap();
    let again: Results = serde_json::from_str(&text).unwrap();
    assert_eq!(document(&again), document(&results()));
}
