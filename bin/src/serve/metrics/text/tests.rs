//! Names are frozen by `names.txt` and described in docs/METRICS.md; numbers are where they belong.

use std::collections::{BTreeMap, BTreeSet};

use duolog_engine::ids::Lsn;
use duolog_engine::ids::MonoUs;
use duolog_engine::shard::Copies;
use duolog_s3client::request::Operation;
use duolog_s3client::{Count, Lane, Outcome};

use super::*;
use crate::serve::cluster::gauges::ShardReading;
use crate::serve::metrics::ShardMetrics;
use crate::serve::metrics::node::{NodeCounts, Standing};
use crate::serve::metrics::reading::Disk;
use crate::serve::metrics::shard::stages;
use crate::serve::vitals::Vitals;

const FROZEN: &str = include_str!("../names.txt");
const DESCRIBED: &str = include_str!("../../../../../docs/METRICS.md");

/// A reading with everything in it that a node can tell.
fn full() -> Reading {
    let counted = ShardMetrics::default();
    counted.stages.total.record(MonoUs(0), MonoUs(105), 3);
    counted.stages.total.record(MonoUs(0), MonoUs(20_000_000), 1);
    counted.acked(Copies::Peer, 4, 9);
    counted.refused(ErrorCode::Busy, 2);
    let log = ShardReading { end: Lsn(9), committed: Lsn(7), acked: Lsn(6), ..Default::default() };
    let log = ShardReading { linked: true, written_bytes: 8192, ..log };
    let part = ShardPart { log, counts: counted.read(), pokes: 5, rescues: 1 };
    let standing =
        Standing { epoch: 3, in_sync: 2, peer_skew_ms: Some(-250), ..Default::default() };
    let node = NodeCounts { standing, elections: [1, 2, 0, 0], ..Default::default() };
    let (lane, operation, outcome) = (Lane::Bulk, Operation::Put, Outcome::Done);
    Reading {
        cluster: "c".to_owned(),
        node: "n\"\\\n".to_owned(),
        role: "leader",
        pair: Some(PairReading {
            node,
            lease_remaining_ms: 1500,
            s3_skew_ms: Some(0),
            s3: vec![Count { lane, operation, outcome, count: 7 }],
        }),
        shards: vec![part.clone(), part],
        stages: stages(std::iter::once(&counted)),
        vitals: Vitals { cpu_us: 1_500_000, resident_bytes: Some(4096), open_files: Some(12) },
        started_ms: 1_700_000_000_500,
        disk: Some(Disk { free: 10, size: 20 }),
    }
}

/// One metric as its readers know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Described {
    kind: String,
    unit: String,
    labels: BTreeSet<String>,
}

/// The metrics of a text: by the name that a query has, less the suffixes of a histogram.
fn metrics(text: &str) -> BTreeMap<String, Described> {
    let (mut metrics, mut current) = (BTreeMap::new(), (String::new(), Described::default()));
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["#", "TYPE", _, kind] => {
                current =
                    (String::new(), Described { kind: kind.to_owned(), ..Default::default() });
            }
            ["#", "UNIT", _, unit] => unit.clone_into(&mut current.1.unit),
            ["#", ..] => {}
            _ => {
                let (sample, _) = line.rsplit_once(' ').expect("a sample has a value");
                let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
                let histogram = current.1.kind == "histogram";
                let name = match name.strip_suffix("_bucket") {
                    Some(family) if histogram => family,
                    _ if histogram => continue,
                    _ => name,
                };
                name.clone_into(&mut current.0);
                let names = labels.split(',').filter_map(|label| label.split_once("=\""));
                let names = names.map(|(name, _)| name.to_owned()).filter(|name| name != "le");
                current.1.labels.extend(names);
                metrics.insert(current.0.clone(), current.1.clone());
            }
        }
    }
    metrics
}

fn line((name, described): (&String, &Described)) -> String {
    let Described { kind, unit, labels } = described;
    let unit = if unit.is_empty() { "-" } else { unit };
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    let labels = if labels.is_empty() { "-".to_owned() } else { labels.join(",") };
    format!("{name} {kind} {unit} {labels}")
}

#[test]
fn names_types_units_and_labels_are_frozen() {
    let found: Vec<String> = metrics(&render(full())).iter().map(line).collect();
    let frozen: Vec<&str> = FROZEN.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(found, frozen, "a change breaks somebody's alerts: if it has to be, edit names.txt");
}

#[test]
fn names_follow_the_rule() {
    for (name, Described { kind, unit, .. }) in metrics(&render(full())) {
        let stem = name.strip_prefix("duolog_").unwrap_or_else(|| panic!("{name}: a foreign name"));
        let stem = match kind.as_str() {
            "counter" => stem.strip_suffix("_total"),
            "info" => stem.strip_suffix("_info"),
            _ => Some(stem),
        };
        let stem = stem.unwrap_or_else(|| panic!("{name}: no suffix of a {kind}"));
        assert!(unit.is_empty() || stem.ends_with(&format!("_{unit}")), "{name}: not in {unit}");
        assert!(!stem.contains("milli") && !stem.contains("_ms"), "{name}: not in base units");
    }
}

/// The table of docs/METRICS.md has a row for each metric, and none besides.
#[test]
fn every_metric_is_described() {
    let rows = DESCRIBED.lines().filter(|row| row.starts_with("| `duolog_"));
    let told = rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [name, kind, labels, meaning] = cells[..] else { panic!("four cells: {row}") };
        assert!(!meaning.is_empty(), "{row}");
        let labels = labels.split(", ").map(|label| label.trim_matches('`'));
        let labels: BTreeSet<&str> = labels.filter(|label| !label.is_empty()).collect();
        (name.trim_matches('`').to_owned(), (kind.to_owned(), labels))
    });
    let told: BTreeMap<_, _> = told.collect();
    let found = metrics(&render(full()));
    let found: BTreeMap<_, _> = found
        .iter()
        .map(|(name, Described { kind, labels, .. })| {
            (name.clone(), (kind.clone(), labels.iter().map(String::as_str).collect()))
        })
        .collect();
    assert_eq!(told, found);
}

#[test]
fn numbers_are_where_they_belong() {
    let text = render(full());
    let lines = [
        "duolog_role{role=\"leader\"} 1",
        "duolog_role{role=\"fenced\"} 0",
        "duolog_lease_epoch 3",
        "duolog_lease_remaining_seconds 1.5",
        "duolog_clock_skew_seconds{clock=\"peer\"} -0.25",
        "duolog_elections_total{reason=\"expired\"} 2",
        "duolog_s3_requests_total{lane=\"bulk\",operation=\"put\",outcome=\"done\"} 7",
        "duolog_log_committed_lsn{shard=\"1\"} 7",
        "duolog_log_lag_events{shard=\"0\"} 3",
        "duolog_log_written_bytes_total{shard=\"0\"} 8192",
        "duolog_append_acks_total{shard=\"1\",copy=\"peer\"} 4",
        "duolog_appended_events_total{shard=\"1\"} 9",
        "duolog_refusals_total{reason=\"busy\"} 4",
        "duolog_append_seconds_count 4",
        "duolog_append_seconds_sum 20.000315",
        "duolog_append_seconds_bucket{le=\"0.0001\"} 0",
        "duolog_append_seconds_bucket{le=\"0.00012\"} 3",
        "duolog_append_seconds_bucket{le=\"10.0\"} 3",
        "duolog_append_seconds_bucket{le=\"+Inf\"} 4",
        "duolog_process_cpu_seconds_total 1.5",
        "duolog_process_start_time_seconds 1700000000.5",
        "duolog_node_info{cluster=\"c\",node=\"n\\\"\\\\\\n\"} 1",
    ];
    for line in lines {
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn a_standalone_node_tells_nothing_of_a_pair() {
    let text = render(Reading { role: "standalone", pair: None, ..full() });
    assert!(text.contains("duolog_role{role=\"standalone\"} 1\n"));
    for name in ["lease", "s3_requests", "elections", "clock_skew", "peer", "in_sync"] {
        assert!(!text.contains(&format!("\nduolog_{name}")), "{name}");
    }
}
