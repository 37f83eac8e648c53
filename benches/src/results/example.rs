//! A result for tests, with a bit of everything in it.

use std::time::Duration;

use super::cost::ServerCost;
use super::document::{
    Build, CurvePoint, Document, SCHEMA_VERSION, Server, TimeLineNote, percentiles,
};
use super::host::Host;
use super::probe::{BeforeAfter, Probe, Probes};
use super::storage::Storage;
use super::sweep_note::{LevelNote, OverloadNote, SweepNote};
use super::warning::warnings;
use crate::fleet::{FleetReport, WorkerReport};
use crate::generator::report::Report;
use crate::generator::settings::Settings;
use crate::generator::tally::{Tally, Window};
use crate::generator::time_line::Recorder;

/// 1 s, 64 connections, 10,000 operations, 3 errors.
pub fn tally() -> Tally {
    let second = 1_000_000_000;
    let window = Window { load_ns: 0, start_ns: second, end_ns: 2 * second };
    let mut recorder = Recorder::new(window, std::sync::Arc::default());
    let mut tally = Tally { acked: 10_000, ..Tally::default() };
    for number in 0..10_000_u64 {
        let latency_ns = 100_000 + number % 100 * 2000 + (number % 997 / 990) * 3_000_000;
        tally.latencies.record(latency_ns);
        recorder.acked(second + number * 100_000, latency_ns);
    }
    tally.count_error("Busy", 3);
    recorder.errors(2 * second - 1, 3);
    tally.time_line = recorder.finish();
    tally
}

/// The result of [`tally`].
pub fn document() -> Document {
    let addr = "127.0.0.1:7400".parse().expect("an address");
    let settings = Settings {
        run_id: 7,
        rate_per_s: Some(10_000),
        ..Settings::appends(addr, 64, 100, Duration::from_secs(1))
    };
    let tally = tally();
    let report = Report::new(&settings, std::slice::from_ref(&tally));
    let probe = |p50_us| Some(Probe { p50_us, p99_us: 200.0, samples: 500 });
    let probes = Probes {
        disk_write: Some(BeforeAfter { before: probe(60.0), after: probe(90.0) }),
        round_trip: BeforeAfter { before: probe(20.0), after: probe(21.0) },
    };
    Document {
        schema_version: SCHEMA_VERSION,
        started_at: "2026-07-25T17:20:00Z".to_owned(),
        ended_at: "2026-07-25T17:20:03Z".to_owned(),
        command: ["duolog", "bench", "append", "--out", "<x>"].map(str::to_owned).to_vec(),
        program: Build { version: "0.1.0".to_owned(), commit: "abc".to_owned() },
        server: Some(Server {
            shards: 1,
            role: Some("standalone".to_owned()),
            ..Server::default()
        }),
        host: Host { name: "host & <co>".to_owned(), kernel: "6.1".to_owned(), ..Host::default() },
        storage: Some(Storage { device: Some("vda".to_owned()), ..Storage::default() }),
        probes,
        warnings: warnings(&report, &probes),
        server_cost: ServerCost {
            cpu_s_per_million: Some(12.5),
            flushes_per_append: Some(0.02),
            ..ServerCost::default()
        },
        percentiles: percentiles(&tally.latencies),
        time_line: TimeLineNote::from(&tally.time_line),
        curve: vec![CurvePoint::of("this run", &report)],
        sweep: Some(sweep(&report)),
        fleet: Some(fleet()),
        report,
    }
}

/// The knee itself, and an overload that was like it.
fn sweep(report: &Report) -> SweepNote {
    let point = |percent: u64| CurvePoint::of(format!("{percent} %"), report);
    SweepNote {
        knee_per_s: 10_000,
        limit: "server".to_owned(),
        bound_p99_us: 3000.0,
        bound_origin: "light_load".to_owned(),
        disturbed: false,
        closed_loop_per_s: 9000.0,
        steps: 15,
        took_s: 90.0,
        levels: vec![LevelNote {
            percent: 100,
            verdict: "kept".to_owned(),
            point: point(100),
            server_cost: ServerCost::default(),
        }],
        overload: OverloadNote {
            percent: 300,
            point: point(300),
            server_cost: ServerCost::default(),
            throughput_over_knee: 1.02,
            busy_share: 0.6,
            refusal_p99_us: Some(700.0),
            recovery_ms: Some(300.0),
            recovery_failed: None,
        },
    }
}

fn fleet() -> FleetReport {
    let worker = WorkerReport {
        worker: "10.0.0.5:7500".to_owned(),
        threads: 2,
        acked: 10_000,
        errors: 3,
        round_trip_us: 80.0,
    };
    FleetReport { workers: vec![worker], start_skew_us: 45.0 }
}
