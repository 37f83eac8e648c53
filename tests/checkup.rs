//! `duolog doctor --addr A,B` visits real nodes and a bucket.

use std::path::Path;
use std::process::Command;

use duolog_s3dev::{Answer, Fault, Rule};
use duolog_tests::pair::{Pair, PairOptions, Timing};
use duolog_tests::process::{Ran, free_port, quiet, run, scratch, skip};
use serde_json::Value as Json;

/// A wall clock that is off, as the chaos suite makes them.
const CLOCK: &str = include_str!("chaos/data/clock.c");

fn visit(pair: &Pair, more: &[&str]) -> Ran {
    let addresses = pair.members.map(|number| pair.options[number].address.to_string()).join(",");
    let bucket = [
        format!("--s3-endpoint={}", pair.s3.url()),
        format!("--s3-access-key-id={}", duolog_s3dev::DEFAULT_ACCESS_KEY_ID),
        format!("--s3-secret-access-key={}", duolog_s3dev::DEFAULT_SECRET_ACCESS_KEY),
    ];
    let mut arguments = vec!["doctor", "--json", "--addr", &addresses];
    arguments.extend(["--s3-allow-http", "--s3-bucket=duolog"]);
    arguments.extend(bucket.iter().map(String::as_str));
    arguments.extend_from_slice(more);
    run(&arguments)
}

/// The findings of one check, those of all subjects.
fn found(ran: &Ran, check: &str) -> Vec<Json> {
    let findings = ran.json()["findings"].as_array().expect("a list").clone();
    let found: Vec<Json> =
        findings.into_iter().filter(|finding| finding["check"] == check).collect();
    assert!(!found.is_empty(), "{check} in {ran:?}");
    found
}

fn one(ran: &Ran, check: &str) -> Json {
    let found = found(ran, check);
    assert_eq!(found.len(), 1, "{found:#?}");
    found[0].clone()
}

fn fails(ran: &Ran) -> Vec<Json> {
    let findings = ran.json()["findings"].as_array().expect("a list").clone();
    findings.into_iter().filter(|finding| finding["status"] == "fail").collect()
}

fn calm() -> PairOptions {
    PairOptions { timing: Timing::Calm, ..PairOptions::default() }
}

/// Promised: a whole pair passes, every permission is named, the store's verdict is the nodes' or a
/// fresh one, and nothing is left in the bucket; each permission that is denied is named, with what
/// to allow.
/// Provoked: a healthy pair; then the store denies one kind of request after the other.
/// Broken: a denial that is not found or found elsewhere, a scratch object that stays.
#[test]
fn each_permission_that_is_denied_is_named() {
    let _alone = quiet();
    let pair = Pair::found(calm());
    let whole = visit(&pair, &[]);
    assert!(fails(&whole).is_empty(), "{:#?}", fails(&whole));
    assert_eq!(whole.code, Some(0), "{whole:?}");
    for check in ["list", "get", "put", "conditional put", "delete", "probe", "clocks", "clock"] {
        assert_eq!(one(&whole, check)["status"], "ok", "{check}");
    }
    for check in ["io_uring", "memlock", "reaches peer", "peer port"] {
        let found = found(&whole, check);
        assert_eq!(found.len(), 2, "{check} of both nodes: {found:#?}");
        assert!(found.iter().all(|finding| finding["status"] == "ok"), "{found:#?}");
    }
    let seen = pair.s3.faults().take_seen();
    let scratch: Vec<&str> = seen.iter().filter_map(scratch_key).collect();
    assert!(scratch.len() >= 2, "{scratch:?}");
    let left = scratch.iter().filter(|key| pair.s3.object("duolog", key).is_some());
    assert_eq!(left.count(), 0, "{scratch:?}");
    let fresh = visit(&pair, &["--probe"]);
    assert_eq!(one(&fresh, "probe")["status"], "ok", "{fresh:?}");

    let denials = [
        ("GET", "list-type", "list", "s3:ListBucket"),
        ("GET", "lease.json", "get", "s3:GetObject"),
        ("PUT", "-put", "put", "s3:PutObject"),
        ("PUT", "-conditional", "conditional put", "s3:PutObject"),
        ("DELETE", "probe/doctor-", "delete", "s3:DeleteObject"),
    ];
    for (method, on, check, permission) in denials {
        let denied = Fault::Answer(Answer::error(403, "AccessDenied"));
        pair.s3.faults().order(Rule { method: Some(method), ..Rule::always(denied).on(on) });
        let ran = visit(&pair, &[]);
        pair.s3.faults().clear();
        assert_eq!(ran.code, Some(1), "{check}: {ran:?}");
        let fails = fails(&ran);
        assert_eq!(fails.len(), 1, "{check}: {fails:#?}");
        assert_eq!((&fails[0]["check"], &fails[0]["subject"]), (&check.into(), &"bucket".into()));
        let remedy = fails[0]["remedy"].as_str().expect("a remedy");
        assert!(remedy.contains(permission), "{remedy}");
    }
}

/// The key of a scratch object that was written.
fn scratch_key(seen: &duolog_s3dev::Seen) -> Option<&str> {
    let written = seen.method == "PUT" && seen.target.contains("probe/doctor-");
    let path = seen.target.split('?').next()?;
    path.strip_prefix("/duolog/").filter(|_| written)
}

/// Promised: a peer port that the other node cannot reach is told although the pair works, because
/// it would be needed after a failover; so is a node that is gone.
/// Provoked: the leader advertises a port that nobody listens on; then kill -9 of the follower.
/// Broken: the direction is confused, or nothing is found.
#[test]
fn a_peer_port_that_is_closed_is_told_by_the_node_that_needs_it() {
    let _alone = quiet();
    let mut pair = Pair::unfounded(calm());
    let closed = free_port().to_string();
    pair.options[0] = pair.options[0].clone().flag("advertise-peer", &closed);
    let mut pair = pair.founded();
    let ran = visit(&pair, &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let fails = fails(&ran);
    assert_eq!(fails.len(), 1, "{fails:#?}");
    assert_eq!(fails[0]["check"], "reaches peer");
    assert_eq!(fails[0]["subject"], pair.options[1].address.to_string());
    assert!(fails[0]["value"].as_str().is_some_and(|value| value.contains(&closed)), "{fails:#?}");
    let doors = found(&ran, "peer port");
    let warned = doors.iter().filter(|door| door["status"] == "warn").count();
    assert_eq!((doors.len(), warned), (2, 1), "{doors:#?}");
    pair.kill(1);
    let ran = visit(&pair, &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let ports = found(&ran, "client port");
    let down = ports.iter().find(|port| port["status"] == "fail").expect("a node is down");
    assert_eq!(down["subject"], pair.options[1].address.to_string());
}

/// Promised: clocks that lie too far apart are told: of the nodes, and of the store.
/// Provoked: the second node's clock is ten seconds ahead; then the store's by five.
/// Broken: no finding, or the wrong clock is blamed.
#[test]
fn clocks_that_lie_apart_are_told() {
    let _alone = quiet();
    let scratch = scratch();
    let library = match clock(scratch.path(), 10_000) {
        Ok(library) => library,
        Err(reason) => return skip("clocks_that_lie_apart_are_told", &reason),
    };
    let mut pair = Pair::unfounded(calm());
    pair.options[1] = pair.options[1]
        .clone()
        .env("LD_PRELOAD", &library)
        .env("CHAOS_CLOCK_FILE", &scratch.path().join("clock").display().to_string());
    pair.start(0);
    pair.until_leads(0);
    pair.start(1);
    pair.until("the second node answers", |pair| pair.status(1));
    let ran = visit(&pair, &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let clocks = one(&ran, "clocks");
    assert_eq!(clocks["status"], "fail", "{clocks:#}");
    assert!(clocks["remedy"].as_str().is_some_and(|remedy| remedy.contains("NTP")), "{clocks:#}");
    assert_eq!(one(&ran, "clock")["status"], "ok", "the store's is right");
    pair.s3.faults().shift_clock(5000);
    let ran = visit(&pair, &[]);
    let store = one(&ran, "clock");
    assert_eq!((&store["status"], &store["subject"]), (&"fail".into(), &"bucket".into()));
}

/// Makes a library for a clock that is ahead by so much.
fn clock(folder: &Path, ahead_ms: i64) -> Result<String, String> {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    std::fs::write(&source, CLOCK).map_err(|error| error.to_string())?;
    std::fs::write(folder.join("clock"), ahead_ms.to_le_bytes()).map_err(|e| e.to_string())?;
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl");
    let ran = compile.output().map_err(|error| format!("no C compiler: {error}"))?;
    if !ran.status.success() {
        return Err(String::from_utf8_lossy(&ran.stderr).into_owned());
    }
    Ok(library.display().to_string())
}
