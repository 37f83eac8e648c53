//! Stopping on request.

use std::time::Duration;

use duolog_engine::append::Expect;
use duolog_net::wire::ErrorCode;
use duolog_tests::process::{
    Crowd, CrowdPlan, Operation, ServerOptions, Stopwatch, Wire, quiet, run, scratch, until,
};
use rustix::process::Signal;

/// Without anything in flight a stop takes no time worth mentioning.
const IDLE_STOP_MAX: Duration = Duration::from_secs(5);

/// Promised: SIGTERM and SIGINT drain: what was accepted is finished and answered, later appends
/// are refused as `ShuttingDown`, the process exits with 0, and every acknowledged append is there.
/// Provoked: both signals under load of six writers with many appends in flight, in turn.
/// Broken: another exit code; an acknowledged append missing; a refused one done; damage.
#[test]
fn a_stop_under_load_finishes_what_was_accepted() {
    let _alone = quiet();
    for signal in [Signal::TERM, Signal::INT] {
        let scratch = scratch();
        let server = ServerOptions::new(scratch.path()).shards(2).tiny_segments().start();
        let (address, seed) = (server.address(), u64::from(std::process::id()));
        let plan = CrowdPlan { window: 32, data_max_bytes: 4000, ..CrowdPlan::new(address, seed) };
        let crowd = Crowd::start(plan);
        until(IDLE_STOP_MAX * 4, "the writers get on", || (crowd.acked() > 2000).then_some(()));
        let options = server.options().clone();
        server.signal(signal);
        let ended = server.wait();
        assert_eq!((ended.code, ended.signal), (Some(0), None), "{ended:?}");
        let told = ended.log.iter().any(|line| line.contains("\"stopped\""));
        assert!(told, "the log tells of the end: {ended:?}");
        let verified = run(&["verify", &scratch.path().display().to_string()]);
        assert_eq!(verified.code, Some(0), "{verified:?}");
        // Those whose connection just ended ask again here.
        let server = options.start();
        let ledger = crowd.finish();
        let mut wire = Wire::connect(server.address()).expect("the server takes clients");
        ledger.check(&mut wire, 2);
        let refused = ledger.refused_count(ErrorCode::ShuttingDown);
        println!("{} acknowledged, {refused} refused while stopping", ledger.acked_count());
    }
}

/// Promised: an idle server stops at once, whoever is connected.
/// Provoked: SIGTERM with clients that are connected, silent, or have asked and not read.
/// Broken: a stop that waits for them.
#[test]
fn idle_connections_do_not_hold_up_a_stop() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).shards(2).start();
    let clients: Vec<Wire> = (0..50)
        .map(|number| match number % 2 {
            0 => Wire::connect(server.address()).expect("the server takes clients"),
            _ => Wire::dial(server.address()).expect("the server takes clients"),
        })
        .collect();
    let mut wire = Wire::connect(server.address()).expect("the server takes clients");
    let operation = Operation::single(1 << 32, "one", Expect::Any, b"data");
    wire.append(&operation.request()).receipt();
    let watch = Stopwatch::start();
    let ended = server.stop();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(watch.elapsed() < IDLE_STOP_MAX, "the stop took {:?}", watch.elapsed());
    drop(clients);
}

/// Promised: a second signal ends the process at once, with 130; what was acknowledged is there.
/// Provoked: two signals that arrive together, under load, several times.
/// Broken: a process that goes on, another exit code, an acknowledged append missing.
#[test]
fn a_second_signal_ends_the_process_at_once() {
    let _alone = quiet();
    let scratch = scratch();
    let options = ServerOptions::new(scratch.path()).shards(2).tiny_segments();
    let mut server = options.start();
    let (address, seed) = (server.address(), u64::from(std::process::id()));
    let plan = CrowdPlan { window: 64, data_max_bytes: 40_000, ..CrowdPlan::new(address, seed) };
    let crowd = Crowd::start(plan);
    for pair in [[Signal::TERM, Signal::INT], [Signal::INT, Signal::TERM]] {
        let before = crowd.acked();
        let got_on = || (crowd.acked() > before + 100).then_some(());
        until(IDLE_STOP_MAX * 4, "the writers get on", got_on);
        server.signal(Signal::STOP);
        for signal in pair {
            server.signal(signal);
        }
        server.signal(Signal::CONT);
        let ended = server.wait();
        assert_eq!(ended.code, Some(130), "{ended:?}");
        server = options.start();
    }
    let ledger = crowd.finish();
    let mut wire = Wire::connect(address).expect("the server takes clients");
    ledger.check(&mut wire, 2);
    assert_eq!(server.stop().code, Some(0));
}
