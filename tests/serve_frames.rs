//! Bytes that are no request: one error, then the connection is closed; nobody else notices.

use std::io::ErrorKind;

use duolog_engine::append::{AppendBuilder, Expect};
use duolog_engine::ids::{Lsn, ShardId};
use duolog_net::wire::{
    Consistency, ErrorCode, FrameKind, Hello, ReadLog, ReadStream, encode_frame,
};
use duolog_tests::process::{Answer, Operation, Server, ServerOptions, Wire, scratch};

/// Largest frame body of the server under test: `limits.event_max_bytes` and 1 MiB.
const FRAME_MAX: u64 = (64 << 10) + (1 << 20);

fn frame(kind: FrameKind, correlation: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_frame(&mut bytes, kind, correlation, body);
    bytes
}

/// A frame whose header is changed after the checksum was made, and then checked anew.
fn header(change: impl FnOnce(&mut Vec<u8>), checksum_too: bool) -> Vec<u8> {
    let mut bytes = frame(FrameKind::Ping, 77, b"ping");
    change(&mut bytes);
    if checksum_too {
        let checksum = crc32c::crc32c(&bytes[8..]);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    }
    bytes
}

fn hello(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    Hello::new(None).encode(&mut bytes, 5);
    let mut body = bytes.split_off(24);
    change(&mut body);
    frame(FrameKind::Hello, 5, &body)
}

/// A server, and a client that must not notice anything.
struct Scene {
    server: Server,
    bystander: Wire,
    _scratch: tempfile::TempDir,
    appended: u128,
}

impl Scene {
    fn new() -> Self {
        let scratch = scratch();
        let server = ServerOptions::new(scratch.path()).shards(2).tiny_segments().start();
        let bystander = Wire::connect(server.address()).expect("the server takes clients");
        Self { server, bystander, _scratch: scratch, appended: 0 }
    }

    fn assert_unaffected(&mut self) {
        self.bystander.ping().expect("the bystander is served");
        self.appended += 1;
        let operation = Operation::single(self.appended << 32, "bystander", Expect::Any, b"x");
        let receipt = self.bystander.append(&operation.request()).receipt();
        assert_eq!(u128::from(receipt.first_revision()) + 1, self.appended);
    }

    /// Sends bytes that end the connection; the one error that comes before the close.
    fn assert_closed(&mut self, what: &str, greeted: bool, bytes: &[u8]) -> (u64, ErrorCode) {
        let address = self.server.address();
        let mut wire = match greeted {
            true => Wire::connect(address),
            false => Wire::dial(address),
        }
        .expect("the server takes clients");
        wire.write(bytes).expect("the socket takes the bytes");
        let (correlation, answer) = wire.receive().unwrap_or_else(|error| {
            panic!("{what}: no error frame but {error}");
        });
        let refused = answer.refused();
        assert!(!refused.text.is_empty(), "{what}: {refused:?}");
        wire.await_close().unwrap_or_else(|error| panic!("{what}: not closed: {error}"));
        self.assert_unaffected();
        (correlation, refused.code)
    }
}

/// Promised: what is no frame of this protocol is answered by one `Error` frame, then the
/// connection is closed; the server lives and other clients are served.
/// Provoked: garbage, wrong checksums, unknown kinds, reserved bits, oversized lengths, before and
/// after the hello.
/// Broken: no answer, another answer, more than one, an open connection, a dead server.
#[test]
fn bytes_that_are_no_frame_get_one_error_and_a_close() {
    let mut scene = Scene::new();
    let set = |at: usize, byte: u8| move |bytes: &mut Vec<u8>| bytes[at] = byte;
    let length =
        |length: u32| header(|bytes| bytes[..4].copy_from_slice(&length.to_le_bytes()), false);
    let bad = ErrorCode::BadFrame;
    let too_large = ErrorCode::TooLarge;
    let cases = [
        ("an HTTP request", b"GET / HTTP/1.1\r\nHost: example\r\n\r\n".to_vec(), bad),
        ("bytes of 0xff", vec![0xff; 64], bad),
        ("zeros", vec![0; 64], bad),
        ("a wrong checksum", header(set(4, 0x5a), false), bad),
        ("a damaged body", header(set(25, b'x'), false), bad),
        ("kind 0", header(set(8, 0), true), bad),
        ("kind 99", header(set(8, 99), true), bad),
        ("kind 256", header(set(9, 1), true), bad),
        ("the first reserved field", header(set(10, 1), true), bad),
        ("the second reserved field", header(set(15, 0x80), true), bad),
        ("a body one byte too long", length(FRAME_MAX as u32 + 1), too_large),
        ("a body of 4 GiB", length(u32::MAX), too_large),
    ];
    for (what, bytes, code) in cases {
        for greeted in [false, true] {
            let (_, found) = scene.assert_closed(what, greeted, &bytes);
            assert_eq!(found, code, "{what}, greeted: {greeted}");
        }
    }
    let (correlation, _) = scene.assert_closed("a wrong checksum", true, &header(set(4, 1), false));
    assert_eq!(correlation, 77, "the correlation is repeated as far as it is known");
}

/// Promised: the first frame is a hello of a version that the server speaks, and the only one; a
/// client sends no frame that only a server sends.
/// Provoked: other first frames, hellos with wrong fields, a second hello, server's kinds.
/// Broken: a connection that goes on.
#[test]
fn a_connection_begins_with_one_good_hello() {
    let mut scene = Scene::new();
    let bad = ErrorCode::BadFrame;
    let versions = |lowest: u16, highest: u16| {
        hello(|body| {
            body[8..10].copy_from_slice(&lowest.to_le_bytes());
            body[10..12].copy_from_slice(&highest.to_le_bytes());
        })
    };
    let shard = |shard: u32| hello(|body| body[12..16].copy_from_slice(&shard.to_le_bytes()));
    let unsupported = ErrorCode::UnsupportedVersion;
    let cases = [
        ("a ping first", frame(FrameKind::Ping, 5, b""), bad),
        ("an append first", frame(FrameKind::Append, 5, &[0; 40]), bad),
        ("another magic", hello(|body| body[0] = b'X'), bad),
        ("a hello cut short", hello(|body| body.truncate(20)), bad),
        ("a hello with more behind it", hello(|body| body.push(0)), bad),
        ("a reserved bit", hello(|body| body[27] = 1), bad),
        ("later versions only", versions(2, 9), unsupported),
        ("earlier versions only", versions(0, 0), unsupported),
        ("versions the wrong way round", versions(9, 0), unsupported),
        ("a shard beyond the count", shard(2), ErrorCode::BadRequest),
    ];
    for (what, bytes, code) in cases {
        let (correlation, found) = scene.assert_closed(what, false, &bytes);
        assert_eq!((correlation, found), (5, code), "{what}");
    }
    let second = scene.assert_closed("a second hello", true, &hello(|_| {}));
    assert_eq!(second, (5, bad));
    let servers = [2, 4, 6, 8, 10, 11].map(|code| FrameKind::from_code(code).expect("it is one"));
    for kind in servers {
        let found = scene.assert_closed("a server's frame", true, &frame(kind, 9, &[0; 64]));
        assert_eq!(found, (9, bad), "{kind:?}");
    }
    // A later version besides ours is no reason to refuse.
    let mut wire = Wire::dial(scene.server.address()).expect("the server takes clients");
    wire.write(&versions(1, 9)).expect("the socket takes the hello");
    let (_, answer) = wire.receive().expect("the hello is answered");
    assert!(matches!(answer, Answer::Accepted(accepted) if accepted.version == 1), "{answer:?}");
}

/// Promised: a whole frame whose body is not what its kind promises is answered by `BadRequest`,
/// and the connection goes on.
/// Provoked: wrong bodies of every kind of request, one after another on one connection.
/// Broken: a close, another code, an append that happened.
#[test]
fn a_wrong_body_is_refused_and_the_connection_goes_on() {
    let mut scene = Scene::new();
    let mut wire = Wire::connect(scene.server.address()).expect("the server takes clients");
    let body = |bytes: &[u8]| bytes.to_vec();
    let read = |change: fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        ReadStream::new("a").encode(&mut bytes, 0).expect("the name fits");
        let mut body = bytes.split_off(24);
        change(&mut body);
        body
    };
    let log = |shard: u32| {
        let mut bytes = Vec::new();
        let shard = ShardId(shard);
        ReadLog {
            from: Lsn(1),
            shard,
            events_max: 0,
            bytes_max: 0,
            consistency: Consistency::Linearizable,
        }
        .encode(&mut bytes, 0);
        bytes.split_off(24)
    };
    let cases = [
        (FrameKind::Append, body(b"")),
        (FrameKind::Append, body(&[0xff; 100])),
        (FrameKind::Append, body(&[0; 32])),
        (FrameKind::ReadStream, body(b"")),
        (FrameKind::ReadStream, read(|body| body[16] = 2)),
        (FrameKind::ReadStream, read(|body| body[17] = 0)),
        (FrameKind::ReadStream, read(|body| body[17] = 200)),
        (FrameKind::ReadStream, read(|body| body[19] = 7)),
        (FrameKind::ReadStream, read(|body| body[20] = 1)),
        (FrameKind::ReadStream, read(|body| body[24] = 0xff)),
        (FrameKind::ReadStream, read(|body| body.push(0))),
        (FrameKind::ReadLog, body(&[1; 5])),
        (FrameKind::ReadLog, log(2)),
        (FrameKind::ReadLog, log(u32::MAX)),
        (FrameKind::Ping, vec![0; 1025]),
    ];
    for (kind, body) in cases {
        let sent = wire.send(kind, &body).expect("the socket takes the frame");
        let (correlation, answer) = wire.receive().expect("the request is answered");
        let refused = answer.refused();
        assert_eq!((correlation, refused.code), (sent, ErrorCode::BadRequest), "{kind:?} {body:?}");
        wire.ping().expect("the connection goes on");
    }
    scene.assert_unaffected();
}

/// Promised: a connection that ends in the middle of a frame is closed, and what was not sent
/// completely did not happen.
/// Provoked: an append cut at every length, then the end of the client's side.
/// Broken: an event of the cut append, a connection that stays, a dead server.
#[test]
fn a_truncated_frame_does_nothing() {
    let mut scene = Scene::new();
    let mut append = AppendBuilder::new();
    append.stream("cut", Expect::Any).expect("the name fits");
    append.event(1, "t", b"", b"never").expect("the event fits");
    let mut body = Vec::new();
    append.encode(&mut body);
    let whole = frame(FrameKind::Append, 1, &body);
    for length in 0..whole.len() {
        for greeted in [false, true] {
            let address = scene.server.address();
            let wire = if greeted { Wire::connect(address) } else { Wire::dial(address) };
            let mut wire = wire.expect("the server takes clients");
            wire.write(&whole[..length]).expect("the socket takes the bytes");
            wire.finish().expect("the client's side can be ended");
            let end = wire.await_close();
            assert!(end.is_ok(), "{length} bytes, greeted {greeted}: {end:?}");
        }
    }
    scene.assert_unaffected();
    assert_eq!(scene.bystander.stream("cut"), []);
}

/// Promised: no bytes whatever end the server.
/// Provoked: three thousand frames with some bytes changed at random, checksums right or wrong, on
/// connections that are closed as the server likes.
/// Broken: a dead server, a bystander that waits.
#[test]
fn random_damage_never_ends_the_server() {
    let mut scene = Scene::new();
    let mut append = AppendBuilder::new();
    append.stream("random", Expect::Any).expect("the name fits");
    append.event(1, "t", b"m", b"d").expect("the event fits");
    let mut body = Vec::new();
    append.encode(&mut body);
    let mut read = Vec::new();
    ReadStream::new("random").encode(&mut read, 3).expect("the name fits");
    let mut log = Vec::new();
    ReadLog {
        from: Lsn(1),
        shard: ShardId(0),
        events_max: 3,
        bytes_max: 9,
        consistency: Consistency::Linearizable,
    }
    .encode(&mut log, 4);
    let samples = [frame(FrameKind::Append, 2, &body), read, log, hello(|_| {})];
    let mut state = 0x0123_4567_89ab_cdef_u64;
    let mut roll = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize
    };
    for round in 0..3000 {
        let mut bytes = samples[roll() % samples.len()].clone();
        for _ in 0..1 + roll() % 4 {
            let at = roll() % bytes.len();
            bytes[at] = roll() as u8;
        }
        if roll() % 2 == 0 {
            let checksum = crc32c::crc32c(&bytes[8..]);
            bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        }
        let address = scene.server.address();
        let wire = if roll() % 4 == 0 { Wire::dial(address) } else { Wire::connect(address) };
        let mut wire = wire.expect("the server takes clients");
        wire.write(&bytes).expect("the socket takes the bytes");
        wire.finish().expect("the client's side can be ended");
        // An answer, an error or nothing; but an end.
        loop {
            match wire.receive() {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    panic!("round {round}: neither an answer nor a close to {bytes:?}");
                }
                Err(_) => break,
            }
        }
    }
    scene.assert_unaffected();
    assert!(scene.server.is_running());
}
