//! What supervisors hear of a node.

use std::fs;
use std::path::Path;
use std::time::Duration;

use duolog_tests::pair::{Ground, Pair, PairOptions, Timing};
use duolog_tests::process::{HttpAnswer, ServerOptions, Wire, one_event, quiet, scratch, until};
use rustix::fs::{CWD, FileType, Mode, mknodat};

fn codes(http: &duolog_tests::process::Http) -> [u16; 4] {
    ["/startupz", "/livez", "/readyz", "/readyz?role=leader"].map(|path| http.get(path).status)
}

/// Promised: a node that recovers says so on `/startupz`, is alive, and is not ready; afterwards it
/// is all of it, and tells how much it has read.
/// Provoked: a start whose recovery waits, because the list of its indexes is a pipe that nobody
/// has written yet.
/// Broken: no answer while it recovers, a wrong state, no progress.
#[test]
fn a_node_answers_probes_while_it_recovers() {
    let scratch = scratch();
    let options = ServerOptions::new(scratch.path()).flag("listen-http", "127.0.0.1:0");
    let server = options.start();
    let mut wire = Wire::connect(server.address()).expect("the server takes clients");
    wire.append(&one_event("s", "Kept", b"", b"an event")).receipt();
    drop(server.kill());
    let manifest = scratch.path().join("shard-000/manifest");
    let _ = fs::remove_file(&manifest);
    mknodat(CWD, &manifest, FileType::Fifo, Mode::from_bits_truncate(0o600), 0).expect("a pipe");
    let server = options.launch();
    let http = server.http();
    until(Duration::from_secs(20), "the node recovers", || {
        (http.get("/startupz?verbose").json()["phase"] == "recovering").then_some(())
    });
    assert_eq!(codes(&http), [503, 200, 503, 503]);
    let waiting = http.get("/startupz");
    assert!(waiting.text().contains("0 of 1 shards recovered"), "{waiting:?}");
    release(&manifest);
    until(Duration::from_secs(20), "the node has started", || {
        (http.get("/startupz").status == 200).then_some(())
    });
    assert_eq!(codes(&http), [200, 200, 200, 200]);
    let told = http.get("/startupz?verbose").json();
    let shard = &told["shards"][0];
    assert_eq!((&shard["recovered"], &told["role"]), (&true.into(), &"standalone".into()));
    let (scanned, total) = (shard["scanned_bytes"].as_u64(), shard["total_bytes"].as_u64());
    assert!(scanned > Some(0) && scanned <= total, "{told}");
}

/// Whoever waits for the pipe reads nothing, and the next one finds no file.
fn release(pipe: &Path) {
    let writer = fs::OpenOptions::new().write(true).open(pipe).expect("somebody reads");
    fs::remove_file(pipe).expect("the pipe is there");
    drop(writer);
}

fn pair_with_http() -> Pair {
    let ground = Ground::default();
    let url = ground.s3.url();
    let dress = move |_, options: ServerOptions| {
        options.flag("s3-endpoint", &url).flag("listen-http", "127.0.0.1:0")
    };
    let ground = Ground { dress: duolog_tests::pair::Dress(Box::new(dress)), ..ground };
    Pair::unfounded_on(PairOptions { timing: Timing::Calm, ..PairOptions::default() }, ground)
}

/// Promised: both nodes of a pair are ready, only the leader with `role=leader`, and this follows
/// the lead; a leader that can serve no more is not ready.
/// Provoked: a pair, a handover, then the other node and the bucket gone until the lease has run
/// out.
/// Broken: another answer in any of these states.
#[test]
fn ready_follows_the_lead() {
    let _alone = quiet();
    let mut pair = pair_with_http().founded();
    let ready = |pair: &Pair, node: usize, expected: [u16; 4]| {
        let http = pair.node(node).http();
        let told = || -> Vec<HttpAnswer> {
            ["/readyz?verbose", "/startupz?verbose"].map(|path| http.get(path)).into()
        };
        until(Duration::from_secs(30), &format!("{expected:?}, not {:?}", told()), || {
            (codes(&http) == expected).then_some(())
        });
    };
    ready(&pair, 0, [200, 200, 200, 200]);
    ready(&pair, 1, [200, 200, 200, 503]);
    pair.hand_over(0);
    pair.until_leads(1);
    ready(&pair, 1, [200, 200, 200, 200]);
    ready(&pair, 0, [200, 200, 200, 503]);
    pair.kill(0);
    pair.s3.faults().outage(true);
    ready(&pair, 1, [200, 200, 503, 503]);
    pair.s3.faults().outage(false);
    ready(&pair, 1, [200, 200, 200, 200]);
}
