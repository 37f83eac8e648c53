//! The load generator against a server whose every delay is known.
#![expect(clippy::disallowed_methods, reason = "the server here is made of delays")]
#![expect(clippy::unwrap_used, reason = "a failure here ends the test")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duolog_benches::generator::clock::Clock;
use duolog_benches::generator::time_line::Reading;
use duolog_benches::generator::{
    self, Arrivals, Expectation, Observer, ReadMode, Report, RunError, Settings, Workload,
};
use duolog_benches::results::Watch;
use duolog_engine::append::Expect;
use duolog_engine::ids::{ClusterId, Hlc, LeaseEpoch, Lsn, NodeId, Revision, ShardId};
use duolog_net::wire::{
    Appended, Copies, ErrorCode, ErrorFrame, FrameBuffer, FrameKind, HelloAccepted, NodeRole,
    ReadStream, StreamPage, StreamSpan, StreamTail,
};

const BODY_MAX_BYTES: usize = 1 << 20;

/// What the server does.
#[derive(Clone, Copy, Debug, Default)]
struct Manner {
    hello_delay: Duration,
    /// Each connection answers one request after another, each after this.
    delay: Duration,
    /// Before its n-th request is answered, every connection stands still until the stall is over.
    stall_at: Option<u64>,
    stall: Duration,
    answers: Answers,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Answers {
    #[default]
    Receipts,
    Busy,
    Conflicts,
    /// Every second append is a conflict that tells revision 41.
    ConflictsBetween,
    /// Every second append is refused, and a stream has three pages.
    BusyBetween,
    Nothing,
    HangUp,
    /// A thousand receipts, then every connection is hung up.
    HangUpLater,
    /// Every request is answered by a page without events.
    EmptyPages,
}

fn serve(manner: Manner) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicU64::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let requests = Arc::clone(&requests);
            std::thread::spawn(move || answer_all(stream, manner, &requests));
        }
    });
    addr
}

fn answer_all(mut stream: TcpStream, manner: Manner, requests: &AtomicU64) {
    let mut buffer = FrameBuffer::new(BODY_MAX_BYTES);
    let mut out = Vec::new();
    loop {
        let Ok(count @ 1..) = stream.read(buffer.space()) else { return };
        buffer.filled(count);
        while let Some(frame) = buffer.next_frame().unwrap() {
            out.clear();
            let correlation = frame.correlation;
            if frame.kind == FrameKind::Hello {
                std::thread::sleep(manner.hello_delay);
                accepted().encode(&mut out, correlation, "");
            } else {
                std::thread::sleep(manner.delay);
                let number = requests.fetch_add(1, Ordering::Relaxed);
                if manner.stall_at.is_some_and(|at| number == at) {
                    std::thread::sleep(manner.stall);
                }
                match manner.answers {
                    Answers::BusyBetween if frame.kind == FrameKind::ReadStream => {
                        page(frame.body, &mut out, correlation);
                    }
                    Answers::BusyBetween if number.is_multiple_of(2) => {
                        refuse(ErrorCode::Busy, &mut out, correlation);
                    }
                    Answers::ConflictsBetween if number.is_multiple_of(2) => {
                        ErrorFrame::conflict(0, Expect::NoStream, Revision(42)).encode(
                            &mut out,
                            correlation,
                            "as the test wants it",
                        );
                    }
                    Answers::EmptyPages => empty_page(&mut out, correlation),
                    Answers::HangUpLater if number >= 1000 => return,
                    Answers::HangUpLater
                    | Answers::Receipts
                    | Answers::BusyBetween
                    | Answers::ConflictsBetween => {
                        receipt(number).encode(&mut out, correlation, [SPAN])
                    }
                    Answers::Busy => refuse(ErrorCode::Busy, &mut out, correlation),
                    Answers::Conflicts => refuse(ErrorCode::Conflict, &mut out, correlation),
                    Answers::Nothing => {}
                    Answers::HangUp => return,
                }
            }
            if stream.write_all(&out).is_err() {
                return;
            }
        }
    }
}

const SPAN: StreamSpan = StreamSpan { first: Revision(0), event_count: 1 };

fn refuse(code: ErrorCode, out: &mut Vec<u8>, correlation: u64) {
    ErrorFrame::new(code).retry_after_ms(10).encode(out, correlation, "as the test wants it");
}

/// Pages begin at revisions 0, 10 and 20.
fn page(request: &[u8], out: &mut Vec<u8>, correlation: u64) {
    let from = ReadStream::decode(request).unwrap().from.0;
    assert!([0, 10, 20].contains(&from), "a page from {from}");
    let mut page = StreamPage::begin(out, correlation);
    page.pushed(out, 10);
    let (next, stream_next, committed) = (Revision(from + 10), Revision(30), Lsn(1));
    page.finish_stream(out, &StreamTail { next, stream_next, committed, end: from == 20 });
}

fn empty_page(out: &mut Vec<u8>, correlation: u64) {
    let page = StreamPage::begin(out, correlation);
    let (next, stream_next, committed) = (Revision(0), Revision(0), Lsn(1));
    page.finish_stream(out, &StreamTail { next, stream_next, committed, end: true });
}

fn receipt(number: u64) -> Appended {
    Appended {
        first_lsn: Lsn(number + 1),
        last_lsn: Lsn(number + 1),
        hlc: Hlc(1),
        epoch: LeaseEpoch(0),
        shard: ShardId(0),
        copies: Copies::ThisDisk,
        replayed: false,
    }
}

fn accepted() -> HelloAccepted {
    HelloAccepted {
        version: 1,
        shard_count: 1,
        cluster: ClusterId(1),
        node: NodeId(1),
        capabilities: 0,
        frame_body_max_bytes: BODY_MAX_BYTES as u32,
        requests_max: 1024,
        shard: ShardId(0),
        bytes_max: 1 << 26,
        role: NodeRole::Standalone,
        epoch: LeaseEpoch(0),
    }
}

fn settings(addr: SocketAddr) -> Settings {
    Settings {
        streams: 100,
        drain: Duration::from_millis(200),
        run_id: 1,
        ..Settings::appends(addr, 1, 100, Duration::from_millis(600))
    }
}

fn json(report: &Report) -> serde_json::Value {
    let text = serde_json::to_string(report).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A delay of 50 ms is shown as 50 ms (7.11). Broken if text or JSON mistakes the unit or the
/// percentile: a factor of 10 would show.
#[test]
fn a_known_delay_is_what_text_and_json_show() {
    let delay = Duration::from_millis(50);
    let addr = serve(Manner { delay, ..Manner::default() });
    let settings = Settings { connections: 8, threads: 2, ..settings(addr) };
    let report = generator::run(&settings).unwrap();
    let json = json(&report);
    let p50 = json["latency_us"]["p50"].as_f64().unwrap();
    assert!((50_000.0..250_000.0).contains(&p50), "p50 {p50} us");
    let text = report.to_text();
    let line = text.lines().find(|line| line.trim_start().starts_with("p50")).unwrap();
    assert!(line.ends_with(" us") && line.contains(&format!("{p50:.1}")), "{line}");
    assert_eq!(json["mode"], "closed");
    assert_eq!(json["errors"], 0);
    assert!(json["open_loop"].is_null());
    // Answered in the window, or started in it: each connection has one request at a time.
    let (acked, samples) = (report.acked, report.latency_us.samples);
    assert!(samples.abs_diff(acked) <= 8, "{acked} acked, {samples} samples");
    let throughput = json["throughput_per_s"].as_f64().unwrap();
    assert!((throughput * 0.6 - acked as f64).abs() < 1.0, "{throughput}/s");
}

/// A server that stands still for 2 s at 1000 arrivals per second costs about 2000 latencies
/// between 0 and 2 s (7.1, 7.2, 7.4). Broken if latency counts from the sending: then only as many
/// requests as fit in flight are slow, and p50 is far below.
#[test]
fn a_stalled_server_is_seen_by_every_scheduled_arrival() {
    let (stall_at, stall) = (Some(300), Duration::from_secs(2));
    let addr = serve(Manner { stall_at, stall, ..Manner::default() });
    let report = generator::run(&Settings {
        duration: Duration::from_millis(3000),
        drain: Duration::from_secs(5),
        in_flight: 16,
        rate_per_s: Some(1000),
        ..settings(addr)
    })
    .unwrap();
    let open = report.open_loop.as_ref().unwrap();
    assert_eq!(open.scheduled, 3000);
    let accounted = report.latency_us.samples + report.unanswered + open.unsent;
    assert_eq!(accounted, 3000, "{report:?}");
    // 2000 of 3000 lie evenly over 0..2 s: half of all are above 0.5 s, a tenth above 1.7 s.
    assert!(report.latency_us.p50 >= Some(450_000.0), "{report:?}");
    assert!(report.latency_us.p90 >= Some(1_650_000.0), "{report:?}");
    assert!(report.latency_us.max >= Some(1_950_000.0), "{report:?}");
    assert!(open.late >= 1900 && open.lag_max_us >= 1_900_000.0, "{open:?}");
    assert_eq!(json(&report)["mode"], "open");
}

/// A rate above what the server can do is called saturation, and what was not sent is counted
/// (7.4, 7.17). Broken if the report looks like a server that keeps up.
#[test]
fn a_rate_above_capacity_is_marked_saturated() {
    let addr = serve(Manner { delay: Duration::from_millis(10), ..Manner::default() });
    let settings = Settings { rate_per_s: Some(1000), ..settings(addr) };
    let report = generator::run(&settings).unwrap();
    let open = report.open_loop.as_ref().unwrap();
    assert!(open.saturated && open.unsent > 0, "{open:?}");
    assert!(open.achieved_rate_per_s < 110.0, "{open:?}");
    assert!(report.to_text().contains("SATURATED"));
}

/// Opening connections is not measured (7.13). Broken if the window begins before the hello is
/// answered: it would be over before the first request.
#[test]
fn the_time_that_connections_take_to_open_is_outside_the_window() {
    let hello_delay = Duration::from_millis(900);
    let addr = serve(Manner { hello_delay, ..Manner::default() });
    let settings = Settings { duration: Duration::from_millis(300), ..settings(addr) };
    let report = generator::run(&settings).unwrap();
    assert!(report.acked > 0, "{report:?}");
    assert!(report.latency_us.max < Some(900_000.0), "{report:?}");
}

/// No success at all is still a valid result: nulls, and the errors by name (7.19, 7.20).
#[test]
fn zero_successes_are_valid_json_with_nulls() {
    for (answers, name) in [(Answers::Busy, "Busy"), (Answers::Conflicts, "Conflict")] {
        // A pause, so that refusals do not make this a contest of two busy threads.
        let addr = serve(Manner { answers, delay: Duration::from_millis(1), ..Manner::default() });
        let report = generator::run(&settings(addr)).unwrap();
        let json = json(&report);
        assert_eq!((report.acked, report.latency_us.samples), (0, 0));
        for name in ["min", "mean", "p50", "p90", "p99", "p99_9", "max"] {
            assert!(json["latency_us"][name].is_null(), "{name}");
        }
        assert!(json["errors"].as_u64().unwrap() > 0);
        assert_eq!(json["errors_by_code"][name], json["errors"]);
        assert_eq!(json["throughput_per_s"], 0.0);
        assert!(report.to_text().contains(name));
    }
}

/// Requests that are never answered are counted, not forgotten.
#[test]
fn a_silent_server_leaves_its_requests_unanswered() {
    let addr = serve(Manner { answers: Answers::Nothing, ..Manner::default() });
    let settings = Settings { connections: 3, in_flight: 2, ..settings(addr) };
    let report = generator::run(&settings).unwrap();
    assert_eq!((report.unanswered, report.acked), (6, 0));
}

/// Lost connections are errors with a name, and end the run early instead of hanging it.
#[test]
fn lost_connections_are_counted() {
    let addr = serve(Manner { answers: Answers::HangUp, ..Manner::default() });
    let settings = Settings { connections: 2, ..settings(addr) };
    let report = generator::run(&settings).unwrap();
    assert_eq!(report.errors_by_code.get("ConnectionLost"), Some(&2), "{report:?}");
}

/// What a connection had in flight when it broke behind the window is unanswered. Broken if a
/// server that dies in the drain leaves a report without a flaw.
#[test]
fn what_breaks_behind_the_window_is_unanswered() {
    let delay = Duration::from_millis(900);
    let addr = serve(Manner { answers: Answers::HangUp, delay, ..Manner::default() });
    let drain = Duration::from_secs(5);
    let settings = Settings { connections: 2, in_flight: 4, drain, ..settings(addr) };
    let report = generator::run(&settings).unwrap();
    assert_eq!((report.unanswered, report.errors, report.acked), (8, 0, 0), "{report:?}");
    assert_eq!(report.connections_lost, 2, "{report:?}");
}

/// Connections that break in the warm-up are told, though nothing is counted there, and what they
/// would have had to send is a backlog. Broken if a load that nobody bore looks like one at rest.
#[test]
fn what_breaks_in_the_warm_up_is_told() {
    let addr = serve(Manner { answers: Answers::HangUp, ..Manner::default() });
    let warm_up = Duration::from_millis(500);
    let settings = Settings { connections: 2, warm_up, rate_per_s: Some(1000), ..settings(addr) };
    let report = generator::run(&settings).unwrap();
    assert_eq!((report.connections_lost, report.errors, report.acked), (2, 0, 0), "{report:?}");
    let open = report.open_loop.as_ref().unwrap();
    assert_eq!((open.saturated, open.unsent), (true, 600), "{open:?}");
    assert!(report.to_text().contains("2 of 2 connections were lost"), "{}", report.to_text());
}

/// A load that ends early still tells what it used. Broken if the readings are those of the
/// window's end only, which such a load does not see.
#[test]
fn a_load_that_ends_early_tells_its_processor_time() {
    let addr = serve(Manner { answers: Answers::HangUpLater, ..Manner::default() });
    let report =
        generator::run(&Settings { duration: Duration::from_secs(3), ..settings(addr) }).unwrap();
    assert_eq!((report.acked, report.connections_lost), (1000, 1), "{report:?}");
    assert!(report.client.cpu_percent[0] > 0.0, "{report:?}");
}

/// Only the answer that an operation asks for is a success. Broken if any frame will do: reads of
/// streams that do not exist would be the fastest of all.
#[test]
fn an_answer_of_another_kind_and_an_empty_page_are_errors() {
    let delay = Duration::from_millis(1);
    let of = |answers| serve(Manner { answers, delay, ..Manner::default() });
    let read =
        |addr| Settings { workload: Workload::Read, streams_of_run: Some(1), ..settings(addr) };
    for (settings, name) in [
        (settings(of(Answers::EmptyPages)), "BadAnswer"),
        (read(of(Answers::Receipts)), "BadAnswer"),
        (read(of(Answers::EmptyPages)), "EmptyPage"),
    ] {
        let report = generator::run(&settings).unwrap();
        assert_eq!((report.acked, report.latency_us.samples), (0, 0), "{report:?}");
        assert!(report.errors > 0, "{report:?}");
        assert_eq!(report.errors_by_code.get(name), Some(&report.errors), "{report:?}");
    }
    let unwritten = Settings { streams_of_run: None, ..read(of(Answers::EmptyPages)) };
    let text = generator::run(&unwritten).unwrap_err().to_string();
    assert!(text.contains("answered an append with a frame of another kind"), "{text}");
}

/// Nobody listens: an error that names the address, not a report of zeros.
#[test]
fn a_refused_connection_is_an_error() {
    let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    match generator::run(&settings(addr)) {
        Err(RunError::Worker(error)) => assert!(error.to_string().contains(&addr.to_string())),
        other => panic!("{other:?}"),
    }
}

/// A conflict on a hot stream is sent again until it succeeds, and the latency is that of the
/// whole. Broken if a retry is counted as an operation or an error, or restarts the clock.
#[test]
fn a_hot_append_counts_from_its_first_start_through_its_retries() {
    let delay = Duration::from_millis(20);
    let addr = serve(Manner { delay, answers: Answers::ConflictsBetween, ..Manner::default() });
    let hot = Settings { expectation: Expectation::Hot, streams: 1, ..settings(addr) };
    let report = generator::run(&hot).unwrap();
    assert!(report.acked > 0 && report.errors == 0, "{report:?}");
    assert!(report.retries.abs_diff(report.acked) <= 1, "{report:?}");
    assert_eq!(report.attempts, report.acked + report.retries);
    assert!(report.latency_us.min >= Some(40_000.0), "{report:?}");
    assert_eq!(report.refusals_us.samples, 0);
    // Without a retry the same answers are errors.
    let report = generator::run(&settings(addr)).unwrap();
    assert!(report.errors > 0 && report.retries == 0, "{report:?}");
}

/// In an open loop a refusal is an answer: it spends its arrival, nobody pauses, and how quickly it
/// came is shown. Broken if refused arrivals are sent again, wait for the pause that the server
/// asks for, or count as latencies.
#[test]
fn refusals_spend_their_arrivals_and_have_latencies_of_their_own() {
    for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
        let delay = Duration::from_millis(2);
        let addr = serve(Manner { delay, answers: Answers::Busy, ..Manner::default() });
        let report = generator::run(&Settings {
            rate_per_s: Some(100),
            arrivals,
            drain: Duration::from_secs(5),
            ..settings(addr)
        })
        .unwrap();
        let open = report.open_loop.as_ref().unwrap();
        let expected = if arrivals == Arrivals::Constant { 60..=60 } else { 20..=120 };
        assert!(expected.contains(&open.scheduled), "{report:?}");
        assert_eq!(report.refusals_us.samples, open.scheduled, "{report:?}");
        assert_eq!((report.latency_us.samples, report.unanswered), (0, 0));
        assert!(report.errors_by_code["Busy"] <= open.scheduled);
        assert!(report.refusals_us.min >= Some(2000.0), "{report:?}");
        assert!(report.to_text().contains("refused"));
    }
}

/// A closed loop keeps to the requests and bytes in flight that the server grants, an open loop
/// does not. Broken if a closed loop runs into refusals, or if an open one hides them.
#[test]
fn a_closed_loop_keeps_to_what_the_server_grants() {
    let addr = serve(Manner { answers: Answers::Nothing, ..Manner::default() });
    let many = Settings { in_flight: 2000, ..settings(addr) };
    let report = generator::run(&many).unwrap();
    assert_eq!((report.unanswered, report.settings.in_flight_granted), (1024, 1024));
    assert!(report.to_text().contains("grants 1024 of 2000"));
    let open = Settings { rate_per_s: Some(100_000), ..many.clone() };
    assert_eq!(generator::run(&open).unwrap().unanswered, 2000);
    let large = Settings { event_size_bytes: 1 << 19, ..many };
    assert_eq!(generator::run(&large).unwrap().unanswered, 127);
}

/// An event that the server would refuse is refused before the load, with the limit's name.
#[test]
fn requests_over_the_frame_limit_are_refused_at_the_start() {
    let addr = serve(Manner::default());
    let text = generator::run(&Settings { event_size_bytes: 1 << 20, ..settings(addr) })
        .unwrap_err()
        .to_string();
    assert!(text.contains("1048576") && text.contains("limits.event_max_bytes"), "{text}");
}

/// A replay is one operation of several pages; what is written before it survives a busy server.
/// Broken if each page counts as an operation, or if the run gives up while it prepares.
#[test]
fn a_replay_is_all_pages_of_a_stream() {
    let delay = Duration::from_millis(5);
    let addr = serve(Manner { delay, answers: Answers::BusyBetween, ..Manner::default() });
    let report = generator::run(&Settings {
        workload: Workload::Read,
        read_mode: ReadMode::Replay,
        streams: 3,
        in_flight: 2,
        connections: 2,
        ..settings(addr)
    })
    .unwrap();
    assert!(report.acked > 0 && report.acked == report.acked_reads, "{report:?}");
    assert_eq!(report.errors, 0);
    assert!(report.latency_us.min >= Some(15_000.0), "{report:?}");
    assert!(report.page_bytes_per_s >= Some(0.0));
}

/// An observer that is kept waiting for so long at the end of the window.
struct Kept(Duration);

impl Observer for Kept {
    fn begins(&mut self, _: u64) {}

    fn goes_on(&mut self, _: f64, _: Reading) {}

    fn ends(&mut self, _: u64) {
        std::thread::sleep(self.0);
    }
}

/// Two loads of one clock tell how long the server was asked nothing between them, which a recovery
/// counts. Broken if a load ends when its observer has done, which waits for the same server.
#[test]
fn a_load_ends_with_its_window_however_long_its_observer_takes() {
    let addr = serve(Manner::default());
    let settings = Settings { warm_up: Duration::from_millis(100), ..settings(addr) };
    let (clock, late) = (Clock::start(), Duration::from_millis(700));
    let [over, after] = [late, Duration::ZERO]
        .map(|late| generator::measure_watched(&settings, clock, &mut Kept(late)).unwrap().window);
    assert_eq!(over.end_ns - over.start_ns, 600_000_000, "{over:?}");
    assert_eq!(over.start_ns - over.load_ns, 100_000_000, "{over:?}");
    let gap_ns = after.load_ns - over.end_ns;
    assert!((700_000_000..5_000_000_000).contains(&gap_ns), "{gap_ns} ns");
}

/// A server that does not tell its status costs its observer a bounded time: a coordinator of
/// workers is silent meanwhile. Broken if the observer waits as long as it likes.
#[test]
fn a_watch_waits_no_longer_than_it_is_told() {
    let addr = serve(Manner { answers: Answers::Nothing, ..Manner::default() });
    let watch = Watch::new(addr, Duration::from_secs(1));
    let mut watch = watch.with_patience(Duration::from_millis(200));
    let clock = Clock::start();
    watch.begins(0);
    watch.ends(0);
    let took_ns = clock.now_ns();
    assert!((200_000_000..5_000_000_000).contains(&took_ns), "{took_ns} ns");
}
