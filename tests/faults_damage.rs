//! Damaged logs: told apart from torn tails, and never taken for shorter logs.

use std::fs;
use std::path::Path;

use duolog_engine::append::Expect;
use duolog_net::wire::ErrorCode;
use duolog_net::wire::ReadStream;
use duolog_tests::process::log_files::{blocks, files, flip, zero};
use duolog_tests::process::{
    Answer, Ended, Ledger, Operation, Server, ServerOptions, Wire, pause, run, scratch, until,
};
use std::time::Duration;

const LOG_DAMAGED: Option<i32> = Some(16);
/// Long enough for a mark: the server writes one when nothing has come for two ticks of 100 ms.
const IDLE: Duration = Duration::from_millis(800);

/// Appends one event after another, each in a block of its own; the ledger of all of them.
fn fill(server: &Server, count: u128, data_bytes: usize) -> Ledger {
    let mut wire = Wire::connect(server.address()).expect("the server takes clients");
    let mut ledger = Ledger::default();
    for number in 1..=count {
        let stream = format!("stream-{}", number % 7);
        let data = vec![number as u8; data_bytes];
        let operation = Operation::single(number << 32, &stream, Expect::Any, &data);
        let receipt = wire.append(&operation.request()).receipt();
        ledger.acked(operation, receipt);
    }
    ledger
}

fn assert_damage_is_told(ended: &Ended, dir: &Path, lsns: std::ops::RangeInclusive<u64>) {
    let words = ended.words();
    assert_eq!(ended.code, LOG_DAMAGED, "{ended:?}");
    let told = format!("LSN {} to {}", lsns.start(), lsns.end());
    assert!(words.contains(&told), "{told:?} is not in {words:?}");
    assert!(words.contains("duolog verify"), "the remedy is not in {words:?}");
    let verified = run(&["verify", &dir.display().to_string(), "--json"]);
    assert_eq!(verified.code, Some(1), "{verified:?}");
    let damage = &verified.json()["shards"][0]["damage"][0];
    assert_eq!(damage["first_lsn"], *lsns.start(), "{damage}");
}

/// Promised: damage with committed blocks behind it is no torn tail: the node does not start and
/// names the events that are missing.
/// Provoked: a bit is turned over in one of fifty blocks of a killed server's unsealed segment.
/// Broken: a start; another exit code; wrong numbers; files changed by the refused start.
#[test]
fn damage_in_the_middle_of_the_tail_is_refused_by_name() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path().join("data")).start();
    let ledger = fill(&server, 50, 100);
    let options = server.kill();
    let hit = blocks(&options.dir, 0).remove(19);
    let lsns = hit.header.first_lsn.0..=hit.header.last_lsn().0;
    flip(&hit.path, hit.middle());
    assert_damage_is_told(&options.start_refused(), &options.dir, lsns);
    // The bit turned back, everything is there: the refused start has changed nothing.
    flip(&hit.path, hit.middle());
    let server = options.start();
    ledger.check(&mut Wire::connect(server.address()).expect("the server takes clients"), 1);
}

/// Promised: the last block counts as acknowledged when a mark says so: after a clean stop, and
/// when the log has stood still for a moment before a kill. Its damage is no torn tail.
/// Provoked: a bit turned over in the last block, after a stop and after a kill of an idle server.
/// Broken: a start without the last event.
#[test]
fn damage_in_the_last_block_of_an_idle_log_is_refused_by_name() {
    for clean in [true, false] {
        let scratch = scratch();
        let server = ServerOptions::new(scratch.path().join("data")).start();
        fill(&server, 10, 100);
        let options = server.options().clone();
        if clean {
            assert_eq!(server.stop().code, Some(0));
        } else {
            pause(IDLE);
            server.kill();
        }
        let hit = blocks(&options.dir, 0).pop().expect("ten blocks were written");
        assert_eq!(hit.header.last_lsn().0, 10);
        flip(&hit.path, hit.middle());
        assert_damage_is_told(&options.start_refused(), &options.dir, 10..=10);
    }
}

/// Promised: a block that was being written when the node died is cut off silently, whatever part
/// of it arrived, and what is appended behind it later is kept.
/// Provoked: a server killed in the middle of its work, so that no mark covers the last block; the
/// end of that block, its body, or all of it zeroed; ten appends more; a restart.
/// Broken: a start refused; an earlier event missing; a later one missing after the restart.
#[test]
fn a_torn_tail_is_cut_and_the_log_goes_on() {
    for part in 0..3 {
        let scratch = scratch();
        let server = ServerOptions::new(scratch.path().join("data")).start();
        fill(&server, 40, 300);
        let options = server.kill();
        let torn = blocks(&options.dir, 0).pop().expect("forty blocks were written");
        let end = torn.last_byte() + 1;
        let start = [end - 8, torn.offset + 160, torn.offset][part];
        zero(&torn.path, start..end);
        let verified = run(&["verify", &options.dir.display().to_string()]);
        assert_eq!(verified.code, Some(0), "a torn tail is no damage: {verified:?}");
        let server = options.start();
        let mut wire = Wire::connect(server.address()).expect("the server takes clients");
        let kept = wire.log(0, 1);
        assert_eq!(kept.len() as u64 + 1, torn.header.first_lsn.0, "part {part}");
        for number in 100..110_u128 {
            let operation = Operation::single(number << 32, "later", Expect::Any, b"later");
            wire.append(&operation.request()).receipt();
        }
        let server = server.kill().start();
        let mut wire = Wire::connect(server.address()).expect("the server takes clients");
        let log = wire.log(0, 1);
        assert_eq!(log[..kept.len()], kept[..], "part {part}");
        assert_eq!(log.len(), kept.len() + 10, "part {part}");
        assert_eq!(wire.stream("later").len(), 10, "part {part}");
    }
}

/// Promised: a segment that is missing, cut short or headless is found at the start, and the start
/// is refused with the LSNs that it held; this holds for sealed segments, whose index is saved, as
/// for the one that was being written.
/// Provoked: a log of several segments, killed; each segment in turn deleted, cut in half, or its
/// first page overwritten.
/// Broken: a start as if nothing was missing, or wrong numbers.
#[test]
fn a_segment_deleted_or_cut_is_refused_by_name() {
    let scratch = scratch();
    let dir = scratch.path().join("data");
    let server = ServerOptions::new(&dir).tiny_segments().start();
    let ledger = fill(&server, 150, 50 << 10);
    let server = server.restart();
    let options = server.kill();
    let all = blocks(&dir, 0);
    let segments = files(&dir, 0, ".log");
    let mut used: Vec<_> = all.iter().map(|block| block.path.clone()).collect();
    used.dedup();
    assert!(used.len() >= 3 && segments.len() >= used.len(), "{segments:?}");
    for path in &used {
        let own = || all.iter().filter(|block| block.path == *path);
        let first = own().map(|block| block.header.first_lsn.0).min().expect("it has blocks");
        let last = own().map(|block| block.header.last_lsn().0).max().expect("it has blocks");
        let whole = fs::read(path).expect("the segment can be read");
        let name = path.file_name().expect("a file has a name").display().to_string();
        for (how, bytes) in [
            ("deleted", None),
            ("cut in half", Some(whole[..whole.len() / 2].to_vec())),
            ("headless", Some([&vec![0x55; 4096][..], &whole[4096..]].concat())),
        ] {
            match bytes {
                None => fs::remove_file(path).expect("it can be deleted"),
                Some(bytes) => fs::write(path, bytes).expect("it can be written"),
            }
            let ended = options.start_refused();
            let words = ended.words();
            assert_eq!(ended.code, LOG_DAMAGED, "{name} {how}: {ended:?}");
            let from = words.split_once("LSN ").and_then(|(_, rest)| rest.split_once(" to "));
            let from: u64 = from.and_then(|(from, _)| from.parse().ok()).unwrap_or(0);
            // A sealed segment is missed as a whole; in the newest, blocks before the cut count.
            assert!((first..=last).contains(&from), "{name} {how} ({first}-{last}): {words}");
            let verified = run(&["verify", &dir.display().to_string()]);
            assert_eq!(verified.code, Some(1), "{name} {how}: {verified:?}");
            fs::write(path, &whole).expect("it can be restored");
        }
    }
    let server = options.start();
    ledger.check(&mut Wire::connect(server.address()).expect("the server takes clients"), 1);
}

/// Promised: a newest segment cut short is found even when nothing was written behind it and no
/// mark covers it, because segments never have another size.
/// Provoked: a server killed in the middle of its work; its newest segment cut in front of the last
/// block, or deleted.
/// Broken: a start without the last events.
#[test]
fn the_newest_segment_cut_or_deleted_without_a_mark_is_refused() {
    for delete in [false, true] {
        let scratch = scratch();
        let server = ServerOptions::new(scratch.path().join("data")).tiny_segments().start();
        until(IDLE * 20, "a segment is prepared beside the one in use", || {
            (files(server.dir(), 0, ".log").len() >= 2).then_some(())
        });
        fill(&server, 30, 300);
        let options = server.kill();
        let last = blocks(&options.dir, 0).pop().expect("thirty blocks were written");
        if delete {
            fs::remove_file(&last.path).expect("it can be deleted");
        } else {
            let file = fs::OpenOptions::new().write(true).open(&last.path).expect("it opens");
            file.set_len(last.offset).expect("it can be cut");
        }
        let ended = options.start_refused();
        assert_eq!(ended.code, LOG_DAMAGED, "deleted: {delete}: {ended:?}");
    }
}

/// Promised: bits that rot in a sealed segment while the node serves cost the events of that block
/// and no others: their readers are told, everything else is served, `verify` names them.
/// Provoked: a bit turned over in a block of the oldest segment, cold after a restart.
/// Broken: wrong bytes given to a reader, a silent gap, a dead server.
#[test]
fn rot_in_a_sealed_segment_is_told_to_its_readers_only() {
    let scratch = scratch();
    let dir = scratch.path().join("data");
    let server = ServerOptions::new(&dir).tiny_segments().start();
    fill(&server, 150, 50 << 10);
    let options = server.options().clone();
    assert_eq!(server.stop().code, Some(0));
    let hit = blocks(&dir, 0).remove(9);
    let lsn = hit.header.first_lsn.0;
    flip(&hit.path, hit.middle());
    let server = options.start();
    let mut wire = Wire::connect(server.address()).expect("the server takes clients");
    for number in 0..7 {
        let name = format!("stream-{number}");
        if number == lsn % 7 {
            let sent = wire.send_read(&ReadStream::new(&name));
            sent.expect("the server takes the read");
            let (_, answer) = wire.receive().expect("the read is answered");
            match answer {
                Answer::Refused(refused) => assert_eq!(refused.code, ErrorCode::Damaged),
                // A page may end in front of the damage.
                Answer::Stream(page) => {
                    assert!(!page.tail.end, "a silent gap");
                    assert!(page.events.iter().all(|event| event.lsn.0 < lsn));
                }
                other => panic!("{other:?}"),
            }
        } else {
            assert!(wire.stream(&name).len() >= 21, "{name}");
        }
    }
    assert_eq!(wire.log(0, lsn + 1).len() as u64, 150 - lsn);
    drop(server);
    let verified = run(&["verify", &dir.display().to_string(), "--json"]);
    assert_eq!(verified.code, Some(1), "{verified:?}");
    let damage = &verified.json()["shards"][0]["damage"][0];
    assert_eq!((&damage["first_lsn"], &damage["last_lsn"]), (&lsn.into(), &lsn.into()));
}
