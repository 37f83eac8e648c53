//! Limits of events and appends, and the largest ones that pass them.

use duolog_engine::append::{AppendBuilder, Expect};
use duolog_engine::ids::Revision;
use duolog_net::client::Client;
use duolog_net::wire::{Direction, ErrorCode, ReadStream};
use duolog_tests::process::{
    Answer, Server, ServerOptions, Wire, block_on, one_event, raw_append, scratch,
};

const MIB: usize = 1 << 20;

fn connect(server: &Server) -> Wire {
    Wire::connect(server.address()).expect("the server takes clients")
}

/// Promised: an append has 1 to 65,536 events in 1 to 256 different streams, and says so itself.
/// Provoked: no events, only checked streams, one event and one stream too many, counts that do
/// not add up, a stream named twice, bytes left over; and the largest allowed numbers.
/// Broken: another code; a refused append in the log; a refusal of the largest.
#[test]
fn an_append_has_a_bounded_number_of_events_and_streams() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).start();
    let mut wire = connect(&server);
    let numbered = |streams: usize, events: usize| {
        let mut append = AppendBuilder::new();
        for stream in 0..streams {
            append.stream(&format!("s{stream}"), Expect::Any).expect("the name fits");
            for _ in 0..events {
                append.event(1, "t", b"", b"").expect("the event fits");
            }
        }
        append
    };
    let mut twice = AppendBuilder::new();
    for name in ["a", "b", "a"] {
        twice.stream(name, Expect::Any).expect("the name fits");
        twice.event(1, "t", b"", b"").expect("the event fits");
    }
    let refused = [numbered(0, 0), numbered(3, 0), numbered(257, 1), numbered(1, 65_537), twice];
    for append in &refused {
        let refused = wire.append(append).refused();
        assert_eq!(refused.code, ErrorCode::BadRequest, "{refused:?}");
    }
    let good = raw_append(b"a", &[(b"t", b"", b"x")]);
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        bytes
    };
    let wrong = [
        with(&|bytes| bytes[4] = 2),
        with(&|bytes| bytes[36] = 2),
        with(&|bytes| bytes[0] = 4),
        with(&|bytes| bytes[32] = 4),
        with(&|bytes| bytes.push(0)),
        with(&|bytes| bytes.truncate(good.len() - 1)),
    ];
    for bytes in wrong {
        let refused = wire.append_bytes(&bytes).refused();
        assert_eq!(refused.code, ErrorCode::BadRequest, "{refused:?}");
    }
    assert_eq!(wire.log(0, 1), []);
    let many = wire.append(&numbered(256, 1)).receipt();
    assert_eq!((many.spans.len(), many.head.last_lsn.0), (256, 256));
    let long = wire.append(&numbered(1, 65_536)).receipt();
    assert_eq!(long.head.last_lsn.0 - long.head.first_lsn.0 + 1, 65_536);
    let server = server.kill().start();
    let mut wire = connect(&server);
    assert_eq!(wire.stream("s0").len(), 65_537);
    assert_eq!(wire.stream("s255").len(), 1);
}

/// Promised: type, metadata and data of an event together have a limit (`limits.event_max_bytes`),
/// exact to the byte; an append as a whole may be 1 MiB larger; the error tells size and limit.
/// Provoked: events of limit - 1, limit and limit + 1 bytes, the bytes in any of the three parts;
/// appends of many events of exactly the largest size and one byte more.
/// Broken: a limit that is off by one or ignores a part; a refused event in the log.
#[test]
fn event_and_append_limits_are_exact() {
    let limit = 64 << 10;
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).tiny_segments().start();
    let mut wire = connect(&server);
    let kind = "k".repeat(255);
    let mut accepted = 0;
    for size in [limit - 1, limit, limit + 1] {
        for metadata in [0, 1, size / 2, size - 255] {
            let data = size - 255 - metadata;
            let append = one_event("sized", &kind, &vec![1; metadata], &vec![2; data]);
            match wire.append(&append) {
                Answer::Appended(_) => {
                    assert!(size <= limit, "{size} bytes were accepted");
                    accepted += 1;
                }
                Answer::Refused(refused) => {
                    let told = (refused.code, refused.a, refused.b);
                    assert_eq!(told, (ErrorCode::TooLarge, limit as u64 + 1, limit as u64));
                    assert!(size > limit, "{size} bytes were refused");
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(wire.stream("sized").len(), accepted);
    // Fixed part, stream, then events with 28 bytes beside their texts.
    let whole = limit + MIB;
    let mut append = AppendBuilder::new();
    append.stream("many", Expect::Any).expect("the name fits");
    let mut left = whole - 32 - 16 - 4;
    while left > 0 {
        let data = (left - 28 - 1).min(60_000);
        let data = if left - 28 - 1 - data < 100 { left - 28 - 1 } else { data };
        append.event(1, "t", b"", &vec![3; data]).expect("the event fits");
        left -= 28 + 1 + data;
    }
    let mut bytes = Vec::new();
    append.encode(&mut bytes);
    assert_eq!(bytes.len(), whole);
    let receipt = wire.append(&append).receipt();
    let count = receipt.head.last_lsn.0 - receipt.head.first_lsn.0 + 1;
    assert_eq!(wire.stream("many").len() as u64, count);
    bytes.push(0);
    let refused = wire.append_bytes(&bytes).refused();
    let told = (refused.code, refused.a, refused.b);
    assert_eq!(told, (ErrorCode::TooLarge, whole as u64 + 1, whole as u64));
    wire.await_close().expect("a frame over the limit ends the connection");
}

/// Promised: the largest event that is accepted can be read by every road: by stream in both
/// directions, by type, by log, through the client library; hot, cold, and after a kill.
/// Provoked: an event of 16 MiB with the default limit, between two small ones.
/// Broken: a read that fails, ends early, or gives other bytes.
#[test]
fn the_largest_event_can_be_read_by_every_road() {
    let limit = 16 * MIB;
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).start();
    let mut wire = connect(&server);
    let data: Vec<u8> = (0..limit - 5 - 1000).map(|index| (index / 7) as u8).collect();
    let metadata = vec![9; 1000];
    wire.append(&one_event("large", "small", b"", b"before")).receipt();
    wire.append(&one_event("large", "large", &metadata, &data)).receipt();
    wire.append(&one_event("large", "small", b"", b"after")).receipt();
    let refused = wire.append(&one_event("large", "large", &metadata, &[&data[..], b"x"].concat()));
    assert_eq!(refused.refused().code, ErrorCode::TooLarge);
    let mut server = server;
    for state in ["hot", "after a stop", "after a kill"] {
        let mut wire = connect(&server);
        let backwards = ReadStream {
            from: ReadStream::END,
            direction: Direction::Backwards,
            ..ReadStream::new("large")
        };
        let by_type = ReadStream { kind: Some("large"), ..ReadStream::new("large") };
        let mut backwards = wire.walk(&backwards);
        backwards.reverse();
        for events in [wire.stream("large"), backwards, wire.log(0, 1)] {
            assert_eq!(events.len(), 3, "{state}");
            assert!(events[1].data == data && events[1].metadata == metadata, "{state}");
            assert_eq!((&*events[0].data, &*events[2].data), (&b"before"[..], &b"after"[..]));
        }
        let large = wire.walk(&by_type);
        assert!(large.len() == 1 && large[0].data == data, "{state}");
        block_on(async {
            let address = server.address().to_string();
            let client = Client::connect(&address).await.expect("the server takes clients");
            let mut read = client.read("large").from(Revision(1));
            let event = read.next().await.expect("the read is answered").expect("it is there");
            assert!(event.data == data, "{state}");
        });
        server = match state {
            "hot" => server.restart(),
            _ => server.kill().start(),
        };
    }
}
