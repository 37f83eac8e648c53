//! Full and failing disks.

use std::time::Duration;

use duolog_engine::append::Expect;
use duolog_net::wire::ErrorCode;
use duolog_tests::process::{
    Answer, Crowd, CrowdPlan, Ledger, LoopDisk, Operation, Server, ServerOptions, Wire, pause,
    quiet, run, until,
};

/// Large enough for a journal and some small segments.
const DISK_BYTES: u64 = 64 << 20;
/// How long a server may take to find out that there is space again: it looks twice a second.
const RESUME_MAX: Duration = Duration::from_secs(15);
const DATA_BYTES: usize = 50 << 10;

fn connect(server: &Server) -> Wire {
    Wire::connect(server.address()).expect("the server takes clients")
}

fn large(number: u128) -> Operation {
    let stream = format!("stream-{}", number % 5);
    Operation::single(number << 32, &stream, Expect::Any, &vec![number as u8; DATA_BYTES])
}

/// Appends until the server refuses; the number of the first append that it refused.
fn append_until_full(wire: &mut Wire, ledger: &mut Ledger, first: u128) -> u128 {
    for number in first..first + 1000 {
        let operation = large(number);
        match wire.append(&operation.request()) {
            Answer::Appended(receipt) => ledger.acked(operation, receipt),
            Answer::Refused(refused) => {
                assert_eq!(refused.code, ErrorCode::DiskFull, "{refused:?}");
                assert!(refused.text.contains("free space"), "{refused:?}");
                return number;
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("a full disk took 1000 appends");
}

/// Takes what the server gave back when it failed to make a segment.
fn fill_again(disk: &LoopDisk) {
    for _ in 0..3 {
        pause(Duration::from_millis(100));
        disk.fill();
    }
}

/// Promised: on a full disk appends are refused with `DiskFull` and leave no trace, reads go on,
/// a restart is possible and serves reads, and when space returns appends go on by themselves; the
/// retry of a refused append with the same key succeeds then.
/// Provoked: a file system of 64 MiB filled by another file; appends until refused; retries while
/// it is full; a kill and a restart while it is full; the other file deleted.
/// Broken: a dead server; a lost or half event; a refused append that appears, or whose retry is
/// refused or called a replay; a restart needed to go on.
#[test]
fn a_full_disk_refuses_appends_serves_reads_and_recovers_by_itself() {
    let name = "a_full_disk_refuses_appends_serves_reads_and_recovers_by_itself";
    let Some(disk) = LoopDisk::new(name, DISK_BYTES) else { return };
    let server = ServerOptions::new(disk.path().join("data")).tiny_segments().start();
    let mut ledger = Ledger::default();
    let mut wire = connect(&server);
    for number in 1..100 {
        let operation = large(number);
        let receipt = wire.append(&operation.request()).receipt();
        ledger.acked(operation, receipt);
    }
    disk.fill();
    let refused = append_until_full(&mut wire, &mut ledger, 100);
    fill_again(&disk);
    let mut refusals = Ledger::default();
    for number in refused..refused + 20 {
        for _ in 0..3 {
            let answer = wire.append(&large(number).request()).refused();
            assert_eq!(answer.code, ErrorCode::DiskFull, "a retry while it is full: {answer:?}");
        }
        refusals.refused(large(number), ErrorCode::DiskFull);
    }
    ledger.check(&mut wire, 1);
    let server = server.kill().start();
    assert!(server.logged("index_not_saved").is_some(), "the disk is really full");
    let mut wire = connect(&server);
    ledger.check(&mut wire, 1);
    ledger.check_replays(&mut wire, 50);
    let answer = wire.append(&large(refused).request()).refused();
    assert_eq!(answer.code, ErrorCode::DiskFull, "after a restart: {answer:?}");
    disk.free();
    for number in refused..refused + 20 {
        let operation = large(number);
        let receipt = until(RESUME_MAX, "appends go on by themselves", || {
            match wire.append(&operation.request()) {
                Answer::Appended(receipt) => Some(receipt),
                Answer::Refused(answer) if answer.code == ErrorCode::DiskFull => None,
                other => panic!("{other:?}"),
            }
        });
        assert!(!receipt.head.replayed, "nothing of the refused append was kept: {receipt:?}");
        ledger.acked(operation, receipt);
    }
    let server = server.kill().start();
    ledger.check(&mut connect(&server), 1);
    let dir = server.dir().display().to_string();
    assert_eq!(server.stop().code, Some(0));
    let verified = run(&["verify", &dir]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
}

/// Promised: a server stops cleanly on a full disk too, and starts again on it.
/// Provoked: the disk filled before a segment's index can be saved; SIGTERM; a start.
/// Broken: a stop that waits for space, an exit code other than 0, a refused start.
#[test]
fn a_server_stops_and_starts_on_a_full_disk() {
    let name = "a_server_stops_and_starts_on_a_full_disk";
    let Some(disk) = LoopDisk::new(name, DISK_BYTES) else { return };
    let server = ServerOptions::new(disk.path().join("data")).tiny_segments().start();
    let mut ledger = Ledger::default();
    let mut wire = connect(&server);
    for number in 1..10 {
        let operation = large(number);
        let receipt = wire.append(&operation.request()).receipt();
        ledger.acked(operation, receipt);
    }
    disk.fill();
    append_until_full(&mut wire, &mut ledger, 10);
    fill_again(&disk);
    let server = server.restart().restart();
    ledger.check(&mut connect(&server), 1);
    disk.free();
    let number = 5000;
    until(RESUME_MAX, "appends go on", || {
        let answer = connect(&server).append(&large(number).request());
        matches!(answer, Answer::Appended(_)).then_some(())
    });
}

/// Promised: without space for a new log the server does not start, and says so.
/// Provoked: a full file system without a data directory on it.
/// Broken: another exit code, or a text without the remedy.
#[test]
fn a_new_log_on_a_full_disk_is_refused() {
    let Some(disk) = LoopDisk::new("a_new_log_on_a_full_disk_is_refused", DISK_BYTES) else {
        return;
    };
    let dir = disk.path().join("data");
    std::fs::create_dir(&dir).expect("the directory can be made");
    disk.fill();
    let ended = ServerOptions::new(dir).tiny_segments().start_refused();
    assert_eq!(ended.code, Some(18), "{ended:?}");
    assert!(ended.words().contains("free"), "{}", ended.words());
}

/// Promised: after a failed write the process stops with its documented exit code; nothing that
/// failed is acknowledged, nothing is tried again; when the disk is repaired, a start has every
/// acknowledged append.
/// Provoked: a file system that fails every write from one moment on, under load, three times.
/// Broken: a server that goes on; another exit code; an acknowledged append missing afterwards, a
/// refused one present.
#[test]
fn a_failed_write_ends_the_process_and_loses_nothing_acked() {
    let name = "a_failed_write_ends_the_process_and_loses_nothing_acked";
    let _alone = quiet();
    let Some(mut disk) = LoopDisk::new(name, 4 * DISK_BYTES) else { return };
    let options = ServerOptions::new(disk.path().join("data")).shards(2).tiny_segments();
    let mut server = options.start();
    let (address, seed) = (server.address(), u64::from(std::process::id()));
    let plan =
        CrowdPlan { writers: 4, window: 8, data_max_bytes: 2000, ..CrowdPlan::new(address, seed) };
    let crowd = Crowd::start(plan);
    for round in 1..=3 {
        let before = crowd.acked();
        until(RESUME_MAX, "the writers get on", || (crowd.acked() > before + 200).then_some(()));
        disk.fail_writes().expect("the file system takes orders");
        let ended = server.wait();
        assert_eq!(ended.code, Some(17), "round {round}: {ended:?}");
        let told = ended.log.iter().any(|line| line.contains("write_failed"));
        assert!(told, "round {round}: {ended:?}");
        disk.repair().expect("the disk can be repaired");
        server = options.start();
    }
    let ledger = crowd.finish();
    let server = server.kill().start();
    ledger.check(&mut connect(&server), 2);
    ledger.check_replays(&mut connect(&server), 200);
}
