//! Slow disks and slow clients.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use duolog_engine::append::Expect;
use duolog_net::wire::{ErrorCode, FrameKind, ReadStream, encode_append};
use duolog_tests::process::log_files::blocks;
use duolog_tests::process::{Answer, Operation, ServerOptions, Wire, pause, quiet, scratch, until};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

const CONNECTIONS: usize = 64;
/// Appends in flight per connection: together they do not end where a segment does.
const WINDOW: usize = 7;
/// Without an answer for this long the appends wait for a segment.
const STALL: Duration = Duration::from_secs(2);
/// How long the server may take for what it does twice a second.
const PATIENCE: Duration = Duration::from_secs(15);
/// Longer than a connection that is closed waits for the client, shorter than one that takes
/// nothing is kept: 10 s and 30 s.
const IDLE: Duration = Duration::from_secs(13);

fn operation(number: u128) -> Operation {
    let stream = format!("stream-{}", number % 64);
    Operation::single(number << 8, &stream, Expect::Any, &[7; 256])
}

/// Puts a pipe that nobody reads where the file of the third segment is about to be made: whoever
/// opens it for writing waits. The pipe's path.
fn hold_up_segments(data_dir: &Path) -> PathBuf {
    let shard = data_dir.join("shard-000");
    // The two that are prepared ahead.
    until(PATIENCE, "segments are ready", || shard.join("seg-00000002.log").exists().then_some(()));
    let pipe = shard.join("unfinished.tmp");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).expect("a pipe can be made");
    pipe
}

/// Appends on all connections until answers stay out; how many each one owes, and has got.
fn append_until_stalled(wires: &mut [Wire]) -> (Vec<usize>, u64) {
    let mut owed = vec![0; wires.len()];
    let (mut number, mut stored) = (0, 0);
    while owed.iter().all(|count| *count == 0) {
        // All at once, so that one block answers many connections.
        let mut requests = vec![Vec::new(); wires.len()];
        for (requests, owed) in requests.iter_mut().zip(&mut owed) {
            for _ in 0..WINDOW {
                number += 1;
                encode_append(requests, number as u64, &operation(number).request());
                *owed += 1;
            }
        }
        for (wire, requests) in wires.iter_mut().zip(&requests) {
            wire.write(requests).expect("the server reads");
        }
        for (wire, owed) in wires.iter_mut().zip(&mut owed) {
            while *owed > 0 {
                match wire.receive() {
                    Ok((_, answer)) => drop(answer.receipt()),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                }
                *owed -= 1;
                stored += 1;
            }
        }
    }
    (owed, stored)
}

/// Promised (Q4): while appends wait for a segment, their connections are still heard: pings and
/// reads are answered, so that a client can tell a slow server from a dead one.
/// Provoked: many connections with several appends in flight each, so that their sockets are read
/// by sweeps; the file of the next segment replaced by a pipe that nobody reads, which holds up
/// whoever opens it.
/// Broken: a ping without an answer (a connection that left its socket to the sweeps and had
/// nothing in a block was neither swept nor waited for until its append was answered).
#[test]
fn connections_whose_appends_wait_for_a_segment_are_still_heard() {
    let _alone = quiet();
    let scratch = scratch();
    let dir = scratch.path().join("data");
    let server = ServerOptions::new(&dir).tiny_segments().start();
    let pipe = hold_up_segments(&dir);
    let connect = || {
        let wire = Wire::connect(server.address()).expect("the server takes clients");
        wire.patience(STALL).expect("a socket takes a time limit");
        wire
    };
    let mut wires: Vec<Wire> = (0..CONNECTIONS).map(|_| connect()).collect();
    let (owed, mut stored) = append_until_stalled(&mut wires);
    for (index, wire) in wires.iter_mut().enumerate() {
        wire.patience(PATIENCE).expect("a socket takes a time limit");
        let ping = wire.send(FrameKind::Ping, b"alive").expect("the server reads");
        let pong = (ping, Answer::Pong(b"alive".to_vec()));
        let answer = wire.receive();
        let owed = owed[index];
        assert_eq!(answer.ok(), Some(pong), "connection {index}, which waits for {owed} appends");
    }
    // Whoever opened the pipe goes on, finds that it is no file, and tries again.
    drop(std::fs::File::open(&pipe).expect("the pipe is still there"));
    for (wire, owed) in wires.iter_mut().zip(owed) {
        for _ in 0..owed {
            match wire.receive().expect("an append is answered").1 {
                Answer::Appended(_) => stored += 1,
                Answer::Refused(refused) => assert_eq!(refused.code, ErrorCode::DiskFull),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(connect().log(0, 1).len() as u64, stored);
    assert_eq!(server.stop().code, Some(0));
}

/// Promised: a client that says that it will send nothing more gets every answer it waits for, as
/// long as it takes some of them now and then.
/// Provoked: reads of more than the sockets' buffers hold, the end of input, and a client that
/// begins to take the answers only after the time that a closed connection is given.
/// Broken: an answer missing.
#[test]
fn a_slow_client_gets_its_answers_after_its_end_of_input() {
    let _alone = quiet();
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path().join("data")).tiny_segments().start();
    let mut wire = Wire::connect(server.address()).expect("the server takes clients");
    for number in 0..100 {
        let data = vec![number as u8; 60 << 10];
        let append = Operation::single(number << 8, "large", Expect::Any, &data);
        drop(wire.append(&append.request()).receipt());
    }
    let mut read = ReadStream::new("large");
    read.bytes_max = 4 << 20;
    let mut sent: Vec<u64> = (0..12).map(|_| wire.send_read(&read).expect("room")).collect();
    wire.finish().expect("the socket is open");
    pause(IDLE);
    // Reads run beside each other: their answers come in any order.
    while !sent.is_empty() {
        let (found, answer) = wire.receive().expect("every read is answered");
        let at = sent.iter().position(|correlation| *correlation == found);
        sent.swap_remove(at.expect("an answer belongs to a read that waits, once"));
        assert!(matches!(answer, Answer::Stream(page) if !page.events.is_empty()));
    }
    wire.await_close().expect("the server closes behind the last answer");
}

/// Promised: a log is read across its segments whatever lies behind a segment's last block: blocks
/// that a crash cut off may carry the LSN that follows.
/// Provoked: the head of the second segment's first block copied behind the first one's last.
/// Broken: a page refused as damaged, or with other events.
#[test]
fn what_lies_behind_a_segments_last_block_is_not_read() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path().join("data")).tiny_segments().start();
    let mut wire = Wire::connect(server.address()).expect("the server takes clients");
    for number in 0..60 {
        let data = vec![number as u8; 60 << 10];
        let append = Operation::single(number << 8, "large", Expect::Any, &data);
        drop(wire.append(&append.request()).receipt());
    }
    let options = server.options().clone();
    assert_eq!(server.stop().code, Some(0));
    let blocks = blocks(&options.dir, 0);
    let second = blocks.iter().position(|block| block.path != blocks[0].path);
    let second = second.expect("sixty large events fill a segment");
    let (last, next) = (&blocks[second - 1], &blocks[second]);
    let behind = (last.last_byte() + 1).next_multiple_of(4096);
    let head = &std::fs::read(&next.path).expect("a segment can be read")[next.offset as usize..];
    let file = OpenOptions::new().write(true).open(&last.path).expect("a segment can be written");
    file.write_all_at(&head[..4096], behind).expect("there is room behind the last block");
    file.sync_all().expect("it can be synced");
    let server = options.start();
    let events = Wire::connect(server.address()).expect("the server takes clients").log(0, 1);
    let lsns: Vec<u64> = events.iter().map(|event| event.lsn.0).collect();
    assert_eq!(lsns, (1..=60).collect::<Vec<u64>>());
}

/// Promised: a second signal ends the process at once, whatever the stop waits for.
/// Provoked: a background thread held up in making a segment; SIGTERM; when every shard has
/// stopped, SIGTERM again.
/// Broken: a process that goes on, or ends in another way.
#[test]
fn a_second_signal_ends_a_stop_that_waits_for_the_disk() {
    let _alone = quiet();
    let scratch = scratch();
    let dir = scratch.path().join("data");
    let mut server = ServerOptions::new(&dir).tiny_segments().start();
    hold_up_segments(&dir);
    let mut wire = Wire::connect(server.address()).expect("the server takes clients");
    // The first segment is begun, and with it the third one wanted.
    drop(wire.append(&operation(1).request()).receipt());
    server.signal(Signal::TERM);
    wire.patience(STALL).expect("a socket takes a time limit");
    until(PATIENCE, "the shard ends", || wire.ping().is_err().then_some(()));
    assert!(server.is_running(), "the stop waits for the disk");
    server.signal(Signal::TERM);
    let ended = server.wait();
    assert_eq!(ended.code, Some(130), "{ended:?}");
}
