//! Results of the load generator as files: what the built program writes about a real server is
//! whole, agrees with itself, and can be compared.

use std::path::Path;

use duolog_tests::process::{Ran, ServerOptions, run, scratch};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use serde_json::Value;

fn bench(address: &str, out: &Path, more: &[&str]) -> Ran {
    let out = out.to_str().expect("a plain path");
    let mut line = vec!["bench", "append", "--closed", "--addr", address, "--out", out];
    for option in [["--duration", "1s"], ["--warm-up", "200ms"], ["--connections", "4"]] {
        if !more.contains(&option[0]) {
            line.extend(option);
        }
    }
    line.extend(more);
    let ran = run(&line);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran
}

fn document(out: &Path) -> Value {
    let text = std::fs::read_to_string(out.join("result.json")).expect("the document");
    serde_json::from_str(&text).expect("JSON")
}

/// The histogram of an interval log: number of values, and the median in us.
fn interval_log(out: &Path) -> (u64, f64) {
    let log = std::fs::read(out.join("latency.hlog")).expect("the interval log");
    let entries = IntervalLogIterator::new(&log).map(|entry| entry.expect("a line of a log"));
    let mut found = entries.filter_map(|entry| match entry {
        LogEntry::Interval(interval) => {
            let engine = &base64::engine::general_purpose::STANDARD;
            let bytes = base64::Engine::decode(engine, interval.encoded_histogram());
            let bytes = bytes.expect("base64");
            Some(Deserializer::new().deserialize(&mut bytes.as_slice()).expect("a histogram"))
        }
        _ => None,
    });
    let histogram: Histogram<u64> = found.next().expect("one interval");
    assert!(found.next().is_none(), "and no other");
    (histogram.len(), histogram.value_at_quantile(0.5) as f64 / 1000.0)
}

/// The sum of a column of a table.
fn column(path: &Path, name: &str) -> (f64, usize) {
    let text = std::fs::read_to_string(path).expect("a table");
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().expect("a head").split(',').collect();
    let index = head.iter().position(|column| *column == name).expect("the column");
    let cells = lines.map(|line| line.split(',').nth(index).expect("a cell").parse::<f64>());
    let cells: Vec<f64> = cells.map(|cell| cell.expect("a number")).collect();
    (cells.iter().sum(), cells.len())
}

/// Promised: a result says where it comes from, all its files tell the same, and the server's cost
/// stands in it. Provoked: a short run against a real server with `--out` and `--dir`.
/// Broken: a file is missing or disagrees with another, a fact of this machine is not known, or
/// the server's counts are not those of the load.
#[test]
fn a_result_is_whole_and_agrees_with_itself() {
    let scratch = scratch();
    let data = scratch.path().join("data");
    let server = ServerOptions::new(&data).shards(1).start();
    let out = scratch.path().join("out");
    let data = data.to_str().expect("a plain path");
    let ran = bench(&server.address().to_string(), &out, &["--dir", data, "--json"]);
    assert_eq!(ran.errors, "", "no progress bar where there is no terminal");
    let (printed, document) = (ran.json(), document(&out));
    let report = &document["report"];
    assert_eq!(document["schema_version"], 1);
    assert_eq!(
        (&printed["acked"], &printed["server_cost"]),
        (&report["acked"], &document["server_cost"])
    );
    let acked = report["acked"].as_u64().expect("a count");
    assert!(acked > 0, "{document}");

    let line = &document["time_line"];
    let points = line["points"].as_array().expect("points");
    assert_eq!((points.len(), line["interval_s"].as_f64()), (100, Some(0.01)));
    let summed: u64 = points.iter().filter_map(|point| point["acked"].as_u64()).sum();
    assert_eq!(summed, acked, "every answer is in one point");
    assert_eq!(column(&out.join("timeline.csv"), "acked"), (acked as f64, points.len()));

    let latency = &report["latency_us"];
    let (samples, p50_us) = interval_log(&out);
    assert_eq!(Some(samples), latency["samples"].as_u64());
    let told = latency["p50"].as_f64().expect("a median");
    assert!((p50_us - told).abs() <= told * 0.001 + 0.1, "{p50_us} {told}");
    let percentiles = document["percentiles"].as_array().expect("a list");
    let last = percentiles.last().expect("the maximum");
    assert_eq!((&last["percent"], &last["latency_us"]), (&100.0.into(), &latency["max"]));

    let cost = &document["server_cost"];
    for name in ["cpu_s_per_million", "cpu_percent", "flushes_per_s", "resident_bytes"] {
        assert!(cost[name].as_f64() > Some(0.0), "{name} in {cost}");
    }
    // Four clients with one append each: a write carries one to four of them.
    let flushes = cost["flushes_per_append"].as_f64().expect("the server tells");
    assert!((0.2..=1.1).contains(&flushes), "{flushes} flushes per append");
    let written = cost["written_bytes_per_append"].as_f64().expect("the server tells");
    assert!(written > 100.0, "{written} bytes for an event of 100");

    assert_eq!(document["server"]["role"], "standalone");
    assert_eq!(document["server"]["commit"], document["program"]["commit"]);
    assert!(
        document["host"]["kernel"].is_string() && document["storage"]["file_system"].is_string()
    );
    for look in ["before", "after"] {
        assert!(document["probes"]["disk_write"][look]["p50_us"].as_f64() > Some(0.0), "{look}");
        assert!(document["probes"]["round_trip"][look]["p50_us"].as_f64() > Some(0.0), "{look}");
    }
    let page = std::fs::read_to_string(out.join("report.html")).expect("the page");
    assert!(page.contains("Latency over time") && !page.contains("<script"), "{page}");
    assert_eq!(server.stop().code, Some(0));
}

/// Promised: `bench compare` ends with 0 when no regression is shown, with 1 when one is, with 2
/// when results are not of the same load. Provoked: real results, one set of them altered to be
/// three times as slow.
/// Broken: another exit code, or no table.
#[test]
fn results_are_compared_and_a_regression_ends_with_1() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path().join("data")).shards(1).start();
    let address = server.address().to_string();
    let place = |name: &str| scratch.path().join(name);
    let base = [place("base/1"), place("base/2"), place("base/3")];
    for (number, out) in base.iter().enumerate() {
        bench(&address, out, &["--duration", "300ms"]);
        let mut slow = document(out);
        for name in ["p50", "p99"] {
            let value = slow["report"]["latency_us"][name].as_f64().expect("a latency");
            slow["report"]["latency_us"][name] = (value * 3.0).into();
        }
        std::fs::create_dir_all(place("slow")).expect("a folder");
        let path = place("slow").join(format!("{number}.json"));
        std::fs::write(path, slow.to_string()).expect("a file");
    }
    let path = |name: &str| place(name).to_str().expect("a plain path").to_owned();
    let same = run(&["bench", "compare", &path("base"), &path("base")]);
    assert_eq!(same.code, Some(0), "{same:?}");
    assert!(same.output.contains("no difference shown"), "{same:?}");
    let slower = run(&["bench", "compare", &path("base"), &path("slow"), "--json"]);
    assert_eq!(slower.code, Some(1), "{slower:?}");
    let told = slower.json();
    assert_eq!((&told["pairs"], &told["regressed"]), (&3.into(), &true.into()));
    assert_eq!(told["figures"][1]["verdict"], "worse");
    let better = run(&["bench", "compare", "--base", &path("slow"), "--with", &path("base")]);
    assert_eq!(better.code, Some(0), "{better:?}");

    bench(&address, &place("other"), &["--connections", "5"]);
    let refused = run(&["bench", "compare", &path("base/1"), &path("other")]);
    assert_eq!((refused.code, refused.output.as_str()), (Some(2), ""), "{refused:?}");
    assert!(refused.errors.contains("connections: 4, 5"), "{refused:?}");
    let forced = run(&["bench", "compare", &path("base/1"), &path("other"), "--force"]);
    assert_eq!(forced.code, Some(0), "{forced:?}");
    assert!(forced.output.contains("note: connections: 4, 5"), "{forced:?}");
    assert_eq!(server.stop().code, Some(0));
}
