//! Connections as the world has them: slow, silent, half-closed, never reading, dropped by the
//! thousand.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use duolog_engine::append::Expect;
use duolog_net::wire::{ErrorCode, FrameKind, Hello, ReadStream, encode_append};
use duolog_tests::process::{
    Answer, Operation, Server, ServerOptions, Stopwatch, Wire, pause, quiet, scratch, until,
};
use rustix::net::sockopt;
use rustix::process::{Resource, getrlimit, setrlimit};

/// Connections opened and dropped.
const CROWD: usize = 5_000;
/// Files that a server may open meanwhile for itself: prepared segments, indexes.
const OWN_FILES: usize = 8;
/// How long a server may take to forget connections that are gone: one second between looks.
const FORGET_MAX: Duration = Duration::from_secs(20);
/// The server drops a client that takes none of its answers after 30 s.
const STALL_MAX: Duration = Duration::from_secs(45);
/// The server drops a client that says nothing after 10 s.
const SILENCE_MAX: Duration = Duration::from_secs(20);

fn connect(server: &Server) -> Wire {
    Wire::connect(server.address()).expect("the server takes clients")
}

fn append_one(wire: &mut Wire, key: u128) {
    let operation = Operation::single(key << 32, "served", Expect::Any, b"data");
    wire.append(&operation.request()).receipt();
}

/// Promised: a client that sends its bytes one by one is served, and slows nobody down.
/// Provoked: thirty clients, each sending hello and append byte by byte, all at the same time.
/// Broken: a receipt that does not come; a bystander that waits for them.
#[test]
fn slow_writers_are_served_and_slow_nobody_down() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).shards(2).start();
    let mut bystander = connect(&server);
    let mut slow: Vec<Wire> =
        (0..30).map(|_| Wire::dial(server.address()).expect("the server takes clients")).collect();
    let request = |number: u128| {
        let operation = Operation::single((number + 1) << 64, "slow", Expect::Any, b"slow data");
        let mut bytes = Vec::new();
        Hello::new(None).encode(&mut bytes, 0);
        encode_append(&mut bytes, 1, &operation.request());
        bytes
    };
    for at in 0..request(0).len() {
        for (number, wire) in (0..).zip(&mut slow) {
            wire.write(&request(number)[at..=at]).expect("the socket takes a byte");
        }
        if at % 16 == 0 {
            append_one(&mut bystander, at as u128 + 1);
        }
    }
    let mut revisions: Vec<u64> = slow
        .iter_mut()
        .map(|wire| {
            let accepted = wire.receive().expect("the hello is answered");
            assert!(matches!(accepted, (0, Answer::Accepted(_))), "{accepted:?}");
            let (_, answer) = wire.receive().expect("the append is answered");
            answer.receipt().first_revision()
        })
        .collect();
    revisions.sort_unstable();
    assert_eq!(revisions, (0..30).collect::<Vec<u64>>());
}

/// Promised: a client that has sent everything and ended its side gets the answers that are due,
/// then the server closes too.
/// Provoked: appends and reads sent in one go, then the end of the client's side.
/// Broken: a missing answer, a connection that stays.
#[test]
fn a_half_closed_connection_gets_its_answers() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).shards(2).start();
    let mut wire = connect(&server);
    let mut due = Vec::new();
    for number in 1..=20 {
        let stream = format!("stream-{number}");
        let operation = Operation::single(number << 32, &stream, Expect::NoStream, b"data");
        due.push(wire.send_append(&operation.request()).expect("the socket takes it"));
        due.push(wire.send_read(&ReadStream::new(&stream)).expect("the socket takes it"));
    }
    wire.finish().expect("the client's side can be ended");
    while !due.is_empty() {
        let (correlation, answer) = wire.receive().expect("every request is answered");
        assert!(!matches!(answer, Answer::Refused(_)), "{answer:?}");
        let at = due.iter().position(|known| *known == correlation).expect("it was asked");
        due.swap_remove(at);
    }
    wire.await_close().expect("the server closes too");
}

/// Promised: a client that never reads its answers costs a bounded amount of memory and is cut off
/// in the end; others are served meanwhile.
/// Provoked: two clients that go on asking for pages of 4 MiB, and never read.
/// Broken: memory that grows with what they ask for; a bystander that waits; clients kept for ever.
#[test]
fn readers_that_never_read_are_bounded_and_cut_off() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).start();
    let mut bystander = connect(&server);
    for number in 1..=16 {
        let data = vec![number as u8; 1 << 20];
        let operation = Operation::single(number << 32, "large", Expect::Any, &data);
        bystander.append(&operation.request()).receipt();
    }
    let before = server.vitals().resident_bytes;
    let stubborn: Vec<std::thread::JoinHandle<Duration>> = (0..2)
        .map(|_| {
            let wire = connect(&server);
            std::thread::spawn(move || ask_and_never_read(wire))
        })
        .collect();
    let (mut most, mut key) = (0, 1_u128 << 40);
    let watch = Stopwatch::start();
    while !stubborn.iter().all(std::thread::JoinHandle::is_finished) {
        assert!(watch.elapsed() < STALL_MAX, "they are still connected");
        most = most.max(server.vitals().resident_bytes);
        key += 1;
        append_one(&mut bystander, key);
        pause(Duration::from_millis(50));
    }
    for client in stubborn {
        let kept = client.join().expect("the client does not panic");
        assert!(kept > Duration::from_secs(5), "cut off after {kept:?}, that is too hasty");
    }
    // Each may have 64 MiB in flight and 8 MiB unsent.
    let grown = most.saturating_sub(before);
    assert!(grown < 2 * (80 << 20), "the server grew by {} MiB", grown >> 20);
}

/// Asks for large pages until the server ends the connection; how long that took.
fn ask_and_never_read(mut wire: Wire) -> Duration {
    let watch = Stopwatch::start();
    let socket = wire.socket();
    socket.set_write_timeout(Some(Duration::from_millis(200))).expect("a socket has timeouts");
    let read = ReadStream { bytes_max: 4 << 20, ..ReadStream::new("large") };
    while watch.elapsed() < STALL_MAX {
        match wire.send_read(&read) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                // The server does not read from us any more: now it is a matter of time.
                let ended = wait_for_reset(wire.socket());
                assert!(ended, "not cut off within {STALL_MAX:?}");
                return watch.elapsed();
            }
            Err(_) => return watch.elapsed(),
        }
        pause(Duration::from_millis(1));
    }
    watch.elapsed()
}

/// Whether the peer ended the connection within [`STALL_MAX`]; nothing is read.
fn wait_for_reset(socket: &TcpStream) -> bool {
    let watch = Stopwatch::start();
    while watch.elapsed() < STALL_MAX {
        let state = sockopt::socket_error(socket);
        if !matches!(state, Ok(Ok(()))) || rustix::net::getpeername(socket).is_err() {
            return true;
        }
        pause(Duration::from_millis(50));
    }
    false
}

/// Promised: more requests than a connection may have in flight are refused with `Busy` at once,
/// with a time to wait; none of the others is lost.
/// Provoked: five thousand appends sent in one go by a client that reads only afterwards.
/// Broken: a queue without bound; an append neither done nor refused; a refused one done.
#[test]
fn more_requests_than_allowed_in_flight_are_refused_as_busy() {
    let scratch = scratch();
    let options = ServerOptions::new(scratch.path()).flag("limits-connection-in-flight", "64");
    let server = options.start();
    let mut wire = connect(&server);
    let mut burst = Vec::new();
    for number in 1..=5000_u64 {
        let key = u128::from(number) << 32;
        let operation = Operation::single(key, "burst", Expect::Any, &number.to_le_bytes());
        encode_append(&mut burst, number, &operation.request());
    }
    let mut sender = wire.socket().try_clone().expect("a socket can be shared");
    let sending = std::thread::spawn(move || std::io::Write::write_all(&mut sender, &burst));
    let (mut done, mut busy) = (0, 0);
    for _ in 1..=5000 {
        match wire.receive().expect("every request is answered").1 {
            Answer::Appended(_) => done += 1,
            Answer::Refused(refused) => {
                assert_eq!(refused.code, ErrorCode::Busy, "{refused:?}");
                assert!(refused.retry_after_ms > 0, "{refused:?}");
                busy += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    sending.join().expect("the sender does not panic").expect("the socket takes all");
    assert!(done >= 64 && busy > 0, "{done} done, {busy} busy");
    assert_eq!(wire.stream("burst").len(), done);
}

/// Promised: a client that says nothing is dropped after some seconds; one that said hello may be
/// silent for longer.
/// Provoked: a connection without a byte, one with half a hello, one that has said hello.
/// Broken: the first two kept for ever, the third dropped.
#[test]
fn a_client_that_says_nothing_is_dropped() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).start();
    let mut greeted = connect(&server);
    let mut hello = Vec::new();
    Hello::new(None).encode(&mut hello, 0);
    for half in [&[][..], &hello[..30]] {
        let mut silent = Wire::dial(server.address()).expect("the server takes clients");
        silent.write(half).expect("the socket takes the bytes");
        silent.patience(SILENCE_MAX).expect("a socket has timeouts");
        silent.await_close().expect("the server ends it");
    }
    greeted.ping().expect("the other one is still served");
}

fn allow_descriptors(count: u64) -> bool {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= count) {
        return true;
    }
    limit.current = limit.maximum;
    let enough = limit.maximum.is_none_or(|maximum| maximum >= count);
    enough && setrlimit(Resource::Nofile, limit).is_ok()
}

/// One connection of the crowd, left in one of many ways.
fn leave(address: SocketAddr, number: usize) -> Option<TcpStream> {
    let stream = TcpStream::connect(address).expect("the server takes clients");
    let mut hello = Vec::new();
    Hello::new(None).encode(&mut hello, 0);
    let part = [0, 10, hello.len()][number % 3];
    // It may be gone already: that is what this is about.
    let _ = std::io::Write::write_all(&mut &stream, &hello[..part]);
    match number / 3 % 4 {
        0 => sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("an option"),
        1 => {
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
        _ => {}
    }
    // Some are kept until all are open.
    number.is_multiple_of(2).then_some(stream)
}

/// Promised: connections that are dropped, reset, half-closed or left without a hello leave
/// nothing behind; the server serves on.
/// Provoked: five thousand of them, half of them open at the same time.
/// Broken: descriptors that do not return to their number before; a dead or deaf server.
#[test]
fn thousands_of_dropped_connections_leave_nothing_behind() {
    let _alone = quiet();
    let name = "thousands_of_dropped_connections_leave_nothing_behind";
    if !allow_descriptors(CROWD as u64) {
        return duolog_tests::process::skip(name, "too few open files are allowed");
    }
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).shards(2).start();
    let mut bystander = connect(&server);
    append_one(&mut bystander, 1);
    let before = server.vitals().descriptors;
    for round in 0..2 {
        let kept: Vec<Option<TcpStream>> =
            (0..CROWD).map(|number| leave(server.address(), number + round)).collect();
        append_one(&mut bystander, 2 + round as u128);
        drop(kept);
        until(FORGET_MAX, "the server's descriptors return to their number before", || {
            (server.vitals().descriptors <= before + OWN_FILES).then_some(())
        });
    }
    append_one(&mut connect(&server), 9);
    bystander.ping().expect("the server answers");
}

/// Promised: a client may send a whole ping of 1 KiB and gets it back as it was.
/// Provoked: pings of every size up to the limit.
/// Broken: other bytes.
#[test]
fn pings_come_back_as_they_are() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).start();
    let mut wire = connect(&server);
    for size in [0, 1, 7, 8, 100, 1023, 1024] {
        let body: Vec<u8> = (0..size).map(|index| index as u8).collect();
        let sent = wire.send(FrameKind::Ping, &body).expect("the socket takes it");
        let answer = wire.receive().expect("a ping is answered");
        assert_eq!(answer, (sent, Answer::Pong(body)));
    }
}
