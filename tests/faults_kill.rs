//! Kills at any moment.

use std::time::Duration;

use duolog_tests::process::{Crowd, CrowdPlan, ServerOptions, Wire, pause, quiet, run, scratch};

/// Kills in an ordinary run; `DUOLOG_KILLS` asks for more.
const KILLS: u64 = 10;

fn kills() -> u64 {
    std::env::var("DUOLOG_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(KILLS)
}

/// Promised: however often the server is killed, every acknowledged append is there exactly once,
/// at the place its receipt told, in order; one without an answer is there whole or not at all; a
/// retry with the same key gets the first answer, marked as a replay; the log is whole.
/// Provoked: six writers with every kind of expectation, eight appends in flight each, two shards
/// with segments so small that they rotate; the server is killed at random moments and started
/// again at once on the same port.
/// Broken: an acknowledged event missing, moved, doubled or reordered; half an append; a refused
/// one in the log; another answer to a retry; damage found by `duolog verify`; a start refused.
#[test]
fn acked_appends_survive_kills_under_load_exactly_once() {
    let _alone = quiet();
    let scratch = scratch();
    let options = ServerOptions::new(scratch.path().join("data")).shards(2).tiny_segments();
    let mut server = options.start();
    let seed = u64::from(std::process::id());
    let plan = CrowdPlan { data_max_bytes: 48 << 10, ..CrowdPlan::new(server.address(), seed) };
    let crowd = Crowd::start(plan);
    for kill in 0..kills() {
        // Between right after the start and several segments later.
        pause(Duration::from_millis(20 + (kill * 7919 + seed * 31) % 700));
        let options = server.kill();
        if kill % 3 == 2 {
            let verified = run(&["verify", &options.dir.display().to_string(), "--json"]);
            assert_eq!(verified.code, Some(0), "kill {kill}, seed {seed}: {verified:?}");
        }
        server = options.start();
    }
    let ledger = crowd.finish();
    server = server.kill().start();
    let mut wire = Wire::connect(server.address()).expect("the server takes clients");
    let acked = ledger.acked_count();
    assert!(acked > 100, "{acked} appends are too few to tell anything");
    ledger.check(&mut wire, 2);
    ledger.check_replays(&mut wire, 2000);
    assert_eq!(server.stop().code, Some(0));
    let verified = run(&["verify", &options.dir.display().to_string()]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    println!("{acked} acknowledged, {} unknown, seed {seed}", ledger.unknown_count());
}
