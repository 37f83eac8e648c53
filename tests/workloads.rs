//! The load generator and a real server: every workload, and what the server does when far more is
//! asked of it than it can do.

use std::net::SocketAddr;
use std::time::Duration;

use duolog_benches::generator::{
    self, Arrivals, Expectation, ReadMode, Report, Settings, StreamOrder, Workload,
};
use duolog_tests::process::{Server, ServerOptions, quiet, scratch};

fn settings(addr: SocketAddr) -> Settings {
    Settings {
        in_flight: 2,
        streams: 64,
        stream_events: 20,
        ..Settings::appends(addr, 8, 100, Duration::from_millis(300))
    }
}

fn run(settings: &Settings) -> Report {
    match generator::run(settings) {
        Ok(report) => report,
        Err(error) => panic!("{error}: {settings:?}"),
    }
}

/// Promised: each workload asks for nothing that the server refuses, and reports what it did.
/// Provoked: each against a server with two shards, so that streams of one append have to be
/// routed together. Broken: an error, no answer, or counts that cannot be.
#[test]
fn every_workload_is_served_without_a_refusal() {
    let _alone = quiet();
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path().join("data")).shards(2).start();
    let plain = settings(server.address());
    let read = |read_mode| Settings { workload: Workload::Read, read_mode, ..plain.clone() };
    let append = |expectation| Settings { expectation, with_keys: true, ..plain.clone() };
    let several = Settings { streams_per_append: 4, batch: 3, ..append(Expectation::Exact) };
    let hot = Settings { streams: 2, streams_per_append: 2, ..append(Expectation::Hot) };
    let loads = [
        (append(Expectation::Any), 1.0),
        (append(Expectation::Exact), 1.0),
        (several, 12.0),
        (hot, 2.0),
        (Settings { event_size_bytes: 64 << 10, ..plain.clone() }, 1.0),
        (Settings { stream_order: StreamOrder::Sequential, ..append(Expectation::Exact) }, 1.0),
        (read(ReadMode::Page), 20.0),
        (read(ReadMode::Point), 1.0),
        (read(ReadMode::Replay), 20.0),
        (read(ReadMode::Backwards), 20.0),
    ];
    for ((settings, events), run_id) in loads.into_iter().zip(1..) {
        let settings = Settings { run_id, ..settings };
        let report = run(&settings);
        let told = (report.errors, report.unanswered);
        assert_eq!(told, (0, 0), "{settings:?}: {report:?}");
        assert!(report.acked > 0, "{settings:?}: {report:?}");
        let per_operation = report.events_per_s / report.throughput_per_s;
        assert!((per_operation / events - 1.0).abs() < 0.01, "{per_operation}: {settings:?}");
        let hot = settings.expectation == Expectation::Hot;
        assert_eq!(report.retries > 0, hot, "sixteen appends at a time meet on one: {report:?}");
    }
    let mixed = run(&Settings { workload: Workload::Mixed, reads_percent: 80, ..plain });
    let share = mixed.acked_reads as f64 / mixed.acked as f64;
    assert!((0.7..0.9).contains(&share) && mixed.errors == 0, "{mixed:?}");
    let kinds = (mixed.read_latency_us, mixed.append_latency_us);
    let samples = kinds.0.map_or(0, |kind| kind.samples) + kinds.1.map_or(0, |kind| kind.samples);
    assert_eq!(samples, mixed.latency_us.samples);
    assert_eq!(server.stop().code, Some(0));
}

/// Promised: a load reads what an earlier one has written, if it is told to, and writes nothing for
/// that. Provoked: the same reads twice. Broken: the second load finds other streams, which are
/// empty, or the log holds more than the first one wrote.
#[test]
fn a_load_reads_what_an_earlier_one_has_written() {
    let _alone = quiet();
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path().join("data")).start();
    let first = Settings { workload: Workload::Read, run_id: 5, ..settings(server.address()) };
    let again = Settings { run_id: 6, streams_of_run: Some(5), ..first.clone() };
    for settings in [&first, &again] {
        let report = run(settings);
        assert_eq!((report.errors, report.acked > 0), (0, true), "{report:?}");
        let per_operation = report.events_per_s / report.throughput_per_s;
        assert!((per_operation / 20.0 - 1.0).abs() < 0.01, "{per_operation}: {settings:?}");
    }
    let address = server.address().to_string();
    let exported = duolog_tests::process::run(&["export", "--addr", &address]);
    assert_eq!(exported.output.lines().count(), 64 * 20);
    assert_eq!(server.stop().code, Some(0));
}

/// Promised: replays of streams of many pages give each event exactly once.
/// Provoked: streams of 3 MiB, whose pages have 1 MiB. Broken: a replay that ends early or late.
#[test]
fn a_replay_goes_through_all_pages_of_a_stream() {
    let _alone = quiet();
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path().join("data")).shards(1).start();
    let report = run(&Settings {
        workload: Workload::Read,
        read_mode: ReadMode::Replay,
        streams: 4,
        stream_events: 3000,
        event_size_bytes: 1 << 10,
        in_flight: 1,
        duration: Duration::from_secs(2),
        ..settings(server.address())
    });
    assert!(report.acked >= 4 && report.errors == 0, "{report:?}");
    // Replays that the window's edges cut count with some of their pages.
    let replays = report.events_per_s * report.window_s / 3000.0;
    assert!((replays - report.acked as f64).abs() <= 8.0, "{replays}: {report:?}");
    assert_eq!(server.stop().code, Some(0));
}

/// Connections of the overload.
const CROWD: u32 = 16;
/// Requests that each of them may have in flight: the grant that the server is started with.
const GRANT: u32 = 128;
/// Every arrival of an overload is answered within this on any machine that runs these tests.
const DRAIN: Duration = Duration::from_secs(60);

fn crowd(server: &Server, in_flight: u32, rate_per_s: Option<f64>) -> Settings {
    Settings {
        in_flight,
        streams: 1000,
        rate_per_s: rate_per_s.map(|rate| rate as u64),
        arrivals: Arrivals::Poisson,
        warm_up: Duration::from_millis(500),
        drain: DRAIN,
        ..Settings::appends(server.address(), CROWD, 100, Duration::from_secs(3))
    }
}

/// The server's capacity, and what it does of it when three times as much is asked by clients that
/// keep to their grant and wait.
fn share_under_overload(server: &Server) -> (f64, f64) {
    let closed = run(&crowd(server, GRANT, None));
    assert_eq!((closed.errors, closed.unanswered), (0, 0), "{closed:?}");
    let capacity = closed.throughput_per_s;
    let over = run(&crowd(server, GRANT, Some(capacity * 3.0)));
    assert_eq!((over.errors, over.unanswered), (0, 0), "somebody was forgotten: {over:?}");
    (capacity, over.throughput_per_s / capacity)
}

/// Promised: past its capacity a server goes on serving as much, refuses clients that exceed their
/// grant as `Busy`, forgets nobody, and serves a light load again within a second.
/// Provoked: three times the capacity as a Poisson process, by clients that keep to their grant,
/// then by clients that have twice as much in flight; then a twentieth of the capacity.
/// Broken: throughput below half of the capacity for those who keep to their grant (the best of
/// three: programs that run beside one of two loads distort their ratio), none at all for a crowd
/// that does not, a request without an answer, a refusal of another name, or light load that waits.
#[test]
fn overload_is_refused_as_busy_and_light_load_is_served_at_once_afterwards() {
    let _alone = quiet();
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path().join("data"))
        .shards(1)
        .flag("limits-connection-in-flight", &GRANT.to_string())
        .start();
    let (mut shares, mut capacity) = (Vec::new(), 0.0);
    while shares.len() < 3 && shares.iter().all(|share| *share < 0.5) {
        let measured = share_under_overload(&server);
        capacity = measured.0;
        shares.push(measured.1);
    }
    println!("capacity {capacity}/s, overload {shares:.2?} of it");
    assert!(shares.iter().any(|share| *share >= 0.5), "{shares:.2?} of {capacity}/s");

    let over = run(&crowd(&server, GRANT * 2, Some(capacity * 3.0)));
    let share = over.throughput_per_s / capacity;
    println!("beyond the grant {share:.2} of it, refused {:?}", over.refusals_us);
    assert_eq!(over.unanswered, 0, "somebody was forgotten: {over:?}");
    let busy = over.errors_by_code.get("Busy").copied().unwrap_or(0);
    assert!(busy > 0 && busy == over.errors && over.acked > 0, "{over:?}");

    let light = run(&Settings {
        warm_up: Duration::ZERO,
        duration: Duration::from_secs(1),
        ..crowd(&server, GRANT, Some(capacity / 20.0))
    });
    println!("light: p99 {:?} us", light.latency_us.p99);
    assert_eq!((light.errors, light.unanswered), (0, 0), "{light:?}");
    assert!(light.latency_us.max < Some(1_000_000.0), "{light:?}");
    assert_eq!(server.stop().code, Some(0));
}
