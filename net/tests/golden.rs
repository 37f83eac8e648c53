//! Version 1 of the wire, byte for byte: what was sent once must be understood for ever.
//!
//! `golden/wire_v1.txt` holds one frame of each kind in hexadecimal. A test that fails here says
//! that clients and servers of two builds no longer understand each other: a change of the bytes
//! is a new version, with a file of its own.

use std::fmt::Write as _;

use duolog_engine::append::{AppendBuilder, Expect};
use duolog_engine::ids::{
    ClusterId, Hlc, IdempotencyKey, LeaseEpoch, Lsn, NodeId, Revision, ShardId,
};
use duolog_net::wire::{
    Appended, Consistency, Copies, Decoded, Direction, ErrorCode, ErrorFrame, Events, EventsTail,
    FrameKind, Hello, HelloAccepted, LogPage, LogTail, Message, NodeRole, Origin, Position,
    ReadLog, ReadStream, Scope, Standing, StreamPage, StreamSpan, StreamTail, Subscribe,
    SubscriptionAsk, decode_frame, encode_admin, encode_admin_answer, encode_append, encode_frame,
};

const GOLDEN: &str = include_str!("golden/wire_v1.txt");

/// One frame of each kind, in the order of the kinds' numbers, and an error with an address; the
/// correlation is that number.
/// The pages' record is opaque here: its bytes are the log's.
fn frames() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut add = |encode: &dyn Fn(&mut Vec<u8>, u64)| {
        let mut out = Vec::new();
        encode(&mut out, all.len() as u64 + 1);
        all.push(out);
    };
    add(&|out, correlation| Hello::new(Some(ShardId(3))).encode(out, correlation));
    add(&|out, correlation| accepted().encode(out, correlation, "10.0.0.1:7400"));
    add(&|out, correlation| encode_append(out, correlation, &append()));
    add(&|out, correlation| {
        let spans = [(4, 1), (0, 2)];
        let spans =
            spans.map(|(first, event_count)| StreamSpan { first: Revision(first), event_count });
        receipt().encode(out, correlation, spans);
    });
    add(&|out, correlation| read().encode(out, correlation).expect("short names"));
    add(&|out, correlation| {
        let mut page = StreamPage::begin(out, correlation);
        page.push(out, b"a record of the log");
        page.finish_stream(out, &stream_tail());
    });
    add(&|out, correlation| {
        let read = ReadLog {
            from: Lsn(5),
            shard: ShardId(1),
            events_max: 6,
            bytes_max: 7,
            consistency: Consistency::Any,
        };
        read.encode(out, correlation);
    });
    add(&|out, correlation| {
        let mut page = LogPage::begin(out, correlation);
        page.push(out, b"a record of the log");
        let tail = LogTail { next: Lsn(6), committed: Lsn(9), end: true };
        page.finish_log(out, &tail);
    });
    add(&|out, correlation| encode_frame(out, FrameKind::Ping, correlation, b"alive?"));
    add(&|out, correlation| encode_frame(out, FrameKind::Pong, correlation, b"alive?"));
    add(&|out, correlation| {
        let conflict = ErrorFrame::conflict(1, Expect::Exact(Revision(4)), Revision(7));
        conflict.retry_after_ms(10).encode(out, correlation, "expected 4");
    });
    add(&|out, correlation| {
        encode_admin(out, correlation, r#"{"command":"status"}"#).expect("a short text");
    });
    add(&|out, correlation| encode_admin_answer(out, correlation, r#"{"role":"leader"}"#));
    // Unasked: no correlation.
    add(&|out, _| standing().encode(out));
    add(&|out, correlation| subscribe().encode(out, correlation).expect("short names"));
    add(&|out, correlation| {
        let mut piece = Events::begin(out, correlation);
        piece.push(out, b"a record of the log\0\0\0\0\0");
        piece.finish_events(out, &events_tail());
    });
    add(&|out, correlation| SubscriptionAsk::Taken(65_536).encode(out, correlation));
    add(&|out, correlation| SubscriptionAsk::Settle(Hlc(0x5555)).encode(out, correlation));
    add(&|out, correlation| SubscriptionAsk::Unsubscribe.encode(out, correlation));
    let not_leader = ErrorFrame::not_leader(LeaseEpoch(7)).retry_after_ms(10);
    add(&|out, correlation| not_leader.encode_with(out, correlation, "no", "10.0.0.1:7400"));
    all
}

fn accepted() -> HelloAccepted {
    HelloAccepted {
        version: 1,
        shard_count: 4,
        cluster: ClusterId(0x1111),
        node: NodeId(0x2222),
        capabilities: 0,
        frame_body_max_bytes: 17 << 20,
        requests_max: 1024,
        shard: ShardId(3),
        bytes_max: 64 << 20,
        role: NodeRole::Follower,
        epoch: LeaseEpoch(7),
    }
}

const fn standing() -> Standing<'static> {
    Standing { role: NodeRole::Follower, epoch: LeaseEpoch(7), leader: "10.0.0.1:7400" }
}

fn subscribe() -> Subscribe<'static> {
    let behind = Position { stamp: Hlc(0x5555), shard: ShardId(2), lsn: Lsn(12) };
    Subscribe {
        shard: ShardId(3),
        scope: Scope::Log { prefix: "{a}", system: true },
        origin: Origin::Behind(behind),
        kind: Some("placed"),
        window_bytes: 1 << 20,
    }
}

fn events_tail() -> EventsTail {
    EventsTail { next: 6, committed: Lsn(9), settled: Hlc(0x5555), caught_up: true }
}

fn append() -> AppendBuilder {
    let mut append = AppendBuilder::new();
    append.key(IdempotencyKey(0x3333)).fencing_token(8);
    append.stream("{a}.one", Expect::Exact(Revision(3))).expect("a name");
    append.event(0x4444, "placed", b"meta", b"data").expect("an event");
    append.stream("{a}.two", Expect::StreamExists).expect("a name");
    append
}

fn receipt() -> Appended {
    Appended {
        first_lsn: Lsn(10),
        last_lsn: Lsn(12),
        hlc: Hlc(0x5555),
        epoch: LeaseEpoch(6),
        shard: ShardId(3),
        copies: Copies::ThisDiskAndS3,
        replayed: true,
    }
}

fn read() -> ReadStream<'static> {
    ReadStream {
        from: ReadStream::END,
        events_max: 6,
        bytes_max: 7,
        direction: Direction::Backwards,
        consistency: Consistency::Any,
        stream: "{a}.one",
        kind: Some("placed"),
    }
}

fn stream_tail() -> StreamTail {
    StreamTail { next: Revision(2), stream_next: Revision(5), committed: Lsn(9), end: false }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a text takes every write");
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |pair| std::str::from_utf8(pair).expect("ASCII");
    let byte = |pair| u8::from_str_radix(digits(pair), 16).expect("hexadecimal");
    text.as_bytes().chunks(2).map(byte).collect()
}

#[test]
fn version_1_is_sent_as_ever() {
    let kinds = FrameKind::ALL.iter().chain([&FrameKind::Error]);
    let lines = kinds.zip(frames());
    let text: String = lines.map(|(kind, frame)| format!("{kind:?} {}\n", hex(&frame))).collect();
    assert_eq!(text, GOLDEN, "\n{text}");
}

#[test]
fn version_1_is_understood_as_ever() {
    let stored = GOLDEN.lines().map(|line| unhex(line.split_once(' ').unwrap().1));
    let stored: Vec<_> = stored.collect();
    let messages: Vec<_> = (1..)
        .zip(&stored)
        .map(|(number, bytes)| match decode_frame(bytes, 1 << 20) {
            Ok(Decoded::Complete { value, .. }) => {
                let unasked = value.kind == FrameKind::Standing;
                assert_eq!(value.correlation, if unasked { 0 } else { number });
                Message::decode(&value).unwrap()
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(messages[0], Message::Hello(Hello::new(Some(ShardId(3)))));
    assert_eq!(messages[1], Message::HelloAccepted(accepted(), "10.0.0.1:7400"));
    let mut body = Vec::new();
    append().encode(&mut body);
    assert_eq!(messages[2], Message::Append(&body));
    let Message::Appended(view) = messages[3] else { panic!("a receipt") };
    assert_eq!((view.head, view.spans().map(|span| span.event_count).sum()), (receipt(), 3));
    assert_eq!(messages[4], Message::ReadStream(read()));
    let Message::StreamPage(page) = messages[5] else { panic!("a page") };
    assert_eq!((page.tail, page.records.announced()), (stream_tail(), 1));
    assert!(page.records.bytes().starts_with(b"a record of the log\0"));
    let log = ReadLog {
        from: Lsn(5),
        shard: ShardId(1),
        events_max: 6,
        bytes_max: 7,
        consistency: Consistency::Any,
    };
    assert_eq!(messages[6], Message::ReadLog(log));
    let Message::LogPage(page) = messages[7] else { panic!("a page") };
    assert_eq!(page.tail, LogTail { next: Lsn(6), committed: Lsn(9), end: true });
    assert_eq!(messages[8..10], [Message::Ping(b"alive?"), Message::Pong(b"alive?")]);
    let Message::Error(error) = messages[10] else { panic!("an error") };
    assert_eq!((error.code(), error.text), (Some(ErrorCode::Conflict), "expected 4"));
    assert_eq!(error.conflict(), (Expect::Exact(Revision(4)), Some(Revision(6))));
    assert_eq!((error.stream_index, error.retry_after_ms), (Some(1), 10));
    assert_eq!(messages[11], Message::Admin(r#"{"command":"status"}"#));
    assert_eq!(messages[12], Message::AdminAnswer(r#"{"role":"leader"}"#));
    assert_eq!(messages[13], Message::Standing(standing()));
    assert_eq!(messages[14], Message::Subscribe(subscribe()));
    let Message::Events(piece) = messages[15] else { panic!("a piece") };
    assert_eq!((piece.tail, piece.records.announced()), (events_tail(), 1));
    let asks = [
        SubscriptionAsk::Taken(65_536),
        SubscriptionAsk::Settle(Hlc(0x5555)),
        SubscriptionAsk::Unsubscribe,
    ];
    assert_eq!(messages[16..19], asks.map(Message::Subscription));
    let Message::Error(error) = messages[19] else { panic!("an error") };
    assert_eq!((error.code(), error.a), (Some(ErrorCode::NotLeader), 7));
    assert_eq!((error.text, error.leader), ("no", "10.0.0.1:7400"));
}
