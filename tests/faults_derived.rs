//! Derived files (saved indexes, their manifest, the mark) lost or damaged: rebuilt, same answers.

use std::fs;
use std::path::{Path, PathBuf};

use duolog_engine::append::Expect;
use duolog_engine::ids::Revision;
use duolog_net::wire::{Direction, ErrorCode, ReadStream};
use duolog_tests::process::log_files::{copy, files, flip};
use duolog_tests::process::{Ledger, Operation, Server, ServerOptions, Wire, quiet, run, scratch};

/// Streams of the prepared log; each has events in every segment.
const STREAMS: u128 = 10;
/// Rounds over all streams.
const ROUNDS: u128 = 12;
/// Given with the first round only: the streams have to remember it.
const TOKEN: u64 = 7;

/// A log of several sealed segments in `dir`: every stream in each of them, cleanly stopped.
fn prepare(dir: &Path) -> (ServerOptions, Ledger) {
    let server = ServerOptions::new(dir).tiny_segments().start();
    let mut wire = Wire::connect(server.address()).expect("the server takes clients");
    let mut ledger = Ledger::default();
    for round in 0..ROUNDS {
        for stream in 0..STREAMS {
            let key = (round * STREAMS + stream + 1) << 32;
            let name = format!("stream-{stream}");
            let expect = match round {
                0 => Expect::NoStream,
                round => Expect::Exact(Revision(round as u64 - 1)),
            };
            let data = vec![key as u8; 60 << 10];
            let mut operation = Operation::single(key, &name, expect, &data);
            operation.token = (round == 0).then_some(TOKEN);
            let receipt = wire.append(&operation.request()).receipt();
            ledger.acked(operation, receipt);
        }
    }
    let options = server.options().clone();
    assert_eq!(server.stop().code, Some(0));
    let saved = files(dir, 0, ".idx");
    assert!(saved.iter().filter(|path| is_run(path)).count() >= 3, "{saved:?}");
    (options, ledger)
}

fn is_run(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("run-"))
}

/// Every answer is what the ledger says: reads in both directions, right and wrong expectations,
/// retries.
fn assert_answers(server: &Server, ledger: &Ledger, rounds: u128) {
    let mut wire = Wire::connect(server.address()).expect("the server takes clients");
    for stream in 0..STREAMS {
        // One stream read first, others between: what is cached must not matter.
        let name = format!("stream-{}", (stream * 7) % STREAMS);
        let last = rounds as u64 - 1;
        let backwards = ReadStream {
            from: ReadStream::END,
            direction: Direction::Backwards,
            ..ReadStream::new(&name)
        };
        let read = wire.walk(&backwards);
        let revisions: Vec<u64> = read.iter().map(|event| event.revision.0).collect();
        assert_eq!(revisions, (0..=last).rev().collect::<Vec<_>>(), "{name}");
        for stale in [Expect::NoStream, Expect::Exact(Revision(last - 1))] {
            let wrong = Operation::single(u128::MAX << 32, &name, stale, b"never");
            let refused = wire.append(&wrong.request()).refused();
            assert_eq!((refused.code, refused.b), (ErrorCode::Conflict, last + 1), "{name}");
        }
        let mut fenced = Operation::single(u128::MAX << 32, &name, Expect::Any, b"never");
        fenced.token = Some(TOKEN - 1);
        let refused = wire.append(&fenced.request()).refused();
        assert_eq!((refused.code, refused.b), (ErrorCode::Fenced, TOKEN), "{name}");
    }
    ledger.check(&mut wire, 1);
    ledger.check_replays(&mut wire, 50);
}

fn spoil(path: &Path, how: &str) {
    let size = fs::metadata(path).expect("the file is there").len();
    let cut = |length| {
        let file = fs::OpenOptions::new().write(true).open(path).expect("the file opens");
        file.set_len(length).expect("the file can be cut");
    };
    match how {
        "deleted" => fs::remove_file(path).expect("the file can be deleted"),
        "emptied" => cut(0),
        "halved" => cut(size / 2),
        "a bit at the start" => flip(path, 40),
        "a bit in the middle" => flip(path, size / 2),
        "a bit at the end" => flip(path, size - 9),
        other => panic!("{other} is no damage"),
    }
}

/// Promised: saved indexes, key files and the manifest are derived; whatever happens to them, the
/// node starts and gives the same answers.
/// Provoked: each such file of a log of many segments in turn deleted, emptied, halved, or a bit
/// turned over at its start, in its middle and at its end; a cold start.
/// Broken: a start refused; a read that ends early; a stale expectation accepted; a retry that
/// appends again.
#[test]
fn lost_or_damaged_indexes_are_rebuilt_and_answer_the_same() {
    let _alone = quiet();
    let scratch = scratch();
    let whole = scratch.path().join("whole");
    let (_, ledger) = prepare(&whole);
    let (mut derived, keys): (Vec<PathBuf>, Vec<PathBuf>) =
        files(&whole, 0, ".idx").into_iter().partition(|path| is_run(path));
    derived.extend(keys.into_iter().take(1));
    derived.extend(files(&whole, 0, "manifest"));
    let dir = scratch.path().join("data");
    for path in &derived {
        for how in [
            "deleted",
            "emptied",
            "halved",
            "a bit at the start",
            "a bit in the middle",
            "a bit at the end",
        ] {
            copy(&whole, &dir);
            let path = dir.join(path.strip_prefix(&whole).expect("it was listed there"));
            println!("{} {how}", path.display());
            spoil(&path, how);
            let server = ServerOptions::new(&dir).tiny_segments().start();
            assert_answers(&server, &ledger, ROUNDS);
            assert_eq!(server.stop().code, Some(0));
            fs::remove_dir_all(&dir).expect("the copy can be removed");
        }
    }
}

/// Promised: a stream that lies in many segments is read completely and checked rightly after a
/// restart, whatever other streams were read before, with few stream heads in memory.
/// Provoked: a cold start with room for two stream heads; reads and appends in changing order.
/// Broken: a read that ends at an older segment; a stale expected revision accepted.
#[test]
fn cold_streams_in_many_segments_are_read_completely_and_conflict_rightly() {
    let scratch = scratch();
    let dir = scratch.path().join("data");
    let (options, ledger) = prepare(&dir);
    let server = options.flag("memory-hot-streams", "2").start();
    assert_answers(&server, &ledger, ROUNDS);
    assert_answers(&server, &ledger, ROUNDS);
}

/// Promised: indexes are rebuilt one from another where they need each other (a fencing token may
/// lie in an older one), at the start as well as while the node serves.
/// Provoked: a killed server with events in its unsealed segment, for whose streams the start has
/// to ask the saved indexes; a bit turned over in the entries of every one of them.
/// Broken: a start refused; a token forgotten; wrong answers.
#[test]
fn indexes_damaged_all_at_once_are_rebuilt_in_order() {
    let scratch = scratch();
    let dir = scratch.path().join("data");
    let (options, mut ledger) = prepare(&dir);
    let server = options.start();
    let mut wire = Wire::connect(server.address()).expect("the server takes clients");
    for stream in 0..STREAMS {
        let name = format!("stream-{stream}");
        let key = (1000 + stream) << 32;
        let expect = Expect::Exact(Revision(ROUNDS as u64 - 1));
        let operation = Operation::single(key, &name, expect, b"one more");
        let receipt = wire.append(&operation.request()).receipt();
        ledger.acked(operation, receipt);
    }
    server.kill();
    for path in files(&dir, 0, ".idx").iter().filter(|path| is_run(path)) {
        // The first page behind the header has the streams' entries.
        flip(path, 4096 + 40);
    }
    let server = options.start();
    assert!(server.logged("index_rebuild").is_some(), "the start met the damage");
    assert_answers(&server, &ledger, ROUNDS + 1);
}

/// Promised: the mark is a courtesy: a lost or damaged one never keeps a node from starting.
/// Provoked: the mark of a cleanly stopped log deleted, cut, and overwritten.
/// Broken: a start refused, or an event missing.
#[test]
fn a_lost_or_damaged_mark_is_no_reason_not_to_start() {
    let scratch = scratch();
    let whole = scratch.path().join("whole");
    let (_, ledger) = prepare(&whole);
    let dir = scratch.path().join("data");
    for bytes in [None, Some(Vec::new()), Some(vec![0xa5; 8192]), Some(vec![0x5a; 100])] {
        copy(&whole, &dir);
        let mark = files(&dir, 0, "mark").remove(0);
        match &bytes {
            None => fs::remove_file(&mark).expect("the mark can be deleted"),
            Some(bytes) => fs::write(&mark, bytes).expect("the mark can be written"),
        }
        let server = ServerOptions::new(&dir).tiny_segments().start();
        let mut wire = Wire::connect(server.address()).expect("the server takes clients");
        ledger.check(&mut wire, 1);
        drop(server);
        fs::remove_dir_all(&dir).expect("the copy can be removed");
    }
}

/// Promised: the segment size is a setting like others: it can be changed at a restart, up and
/// down, and nothing that was written before or after is lost.
/// Provoked: starts with three sizes in turn, appends after each, kills in between; a last start
/// and `verify`.
/// Broken: a start refused; an event missing; damage found.
#[test]
fn the_segment_size_can_change_between_starts() {
    let scratch = scratch();
    let dir = scratch.path().join("data");
    let (options, mut ledger) = prepare(&dir);
    let mut key = 1_u128 << 64;
    let sizes = ["4MiB", "2176KiB", "3MiB"];
    for round in 0..6_usize {
        let size = sizes[round % sizes.len()];
        let server = options.clone().flag("log-segment-size-bytes", size).start();
        let mut wire = Wire::connect(server.address()).expect("the server takes clients");
        for _ in 0..70 {
            key += 1 << 32;
            let data = vec![round as u8; 50 << 10];
            let operation = Operation::single(key, "after", Expect::Any, &data);
            let receipt = wire.append(&operation.request()).receipt();
            ledger.acked(operation, receipt);
        }
        server.kill();
    }
    let server = options.start();
    let mut wire = Wire::connect(server.address()).expect("the server takes clients");
    ledger.check(&mut wire, 1);
    drop(server);
    let verified = run(&["verify", &dir.display().to_string()]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
}
