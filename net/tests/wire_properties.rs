//! Codec promises on generated input: every message round trips, and no bytes make a decoder panic.

use duolog_engine::append::{AppendBuilder, AppendView, Expect};
use duolog_engine::ids::{
    ClusterId, Hlc, IdempotencyKey, LeaseEpoch, Lsn, NodeId, Revision, ShardId,
};
use duolog_engine::record::{EventParts, encode_event};
use duolog_net::wire::{
    Appended, Consistency, Copies, Decoded, Direction, ErrorCode, ErrorFrame, Frame, FrameBuffer,
    FrameKind, Hello, HelloAccepted, LogPage, LogTail, Message, NodeRole, Origin, Position,
    ReadLog, ReadStream, Scope, Standing, StreamPage, StreamSpan, StreamTail, Subscribe,
    decode_frame, encode_admin, encode_admin_answer, encode_append, encode_frame, fuzz_frame,
};
use proptest::prelude::*;

const LIMIT: usize = 1 << 20;
const ROLES: [NodeRole; 4] =
    [NodeRole::Standalone, NodeRole::Leader, NodeRole::Follower, NodeRole::Other];

/// The one frame in `bytes`, which must be whole and alone.
fn only_frame(bytes: &[u8]) -> Frame<'_> {
    match decode_frame(bytes, LIMIT).expect("a frame") {
        Decoded::Complete { value, used } if used == bytes.len() => value,
        other => panic!("{other:?}"),
    }
}

fn message(bytes: &[u8]) -> Message<'_> {
    Message::decode(&only_frame(bytes)).expect("a message")
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{1,20}", "\\PC{1,60}", Just("x".repeat(255))]
}

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..max)
}

fn one_of<T: Copy + std::fmt::Debug + 'static>(values: &'static [T]) -> impl Strategy<Value = T> {
    prop::sample::select(values)
}

const CONSISTENCIES: [Consistency; 3] =
    [Consistency::Linearizable, Consistency::Any, Consistency::Confirmed];

proptest! {
    #[test]
    fn hello_round_trips(
        highest in 1..=u16::MAX, shard in 0..u32::MAX, some: bool, capabilities: u64,
    ) {
        let shard = some.then_some(ShardId(shard));
        let hello = Hello { version_lowest: 1, version_highest: highest, shard, capabilities };
        let mut out = Vec::new();
        hello.encode(&mut out, 1);
        prop_assert_eq!(message(&out), Message::Hello(hello));
    }

    #[test]
    fn hello_accepted_and_standing_round_trip(
        ids: (u128, u128), numbers: (u16, u32, u64, u32, u32, u32, u32), epoch: u64,
        role in one_of(&ROLES), leader in "[a-z0-9.:]{0,255}",
    ) {
        let accepted = HelloAccepted {
            version: numbers.0,
            shard_count: numbers.1,
            cluster: ClusterId(ids.0),
            node: NodeId(ids.1),
            capabilities: numbers.2,
            frame_body_max_bytes: numbers.3,
            requests_max: numbers.4,
            shard: ShardId(numbers.5),
            bytes_max: numbers.6,
            role,
            epoch: LeaseEpoch(epoch),
        };
        let mut out = Vec::new();
        accepted.encode(&mut out, 1, &leader);
        prop_assert_eq!(out.len(), 24 + 72 + leader.len());
        prop_assert_eq!(message(&out), Message::HelloAccepted(accepted, &leader));
        let standing = Standing { role, epoch: LeaseEpoch(epoch), leader: &leader };
        let mut out = Vec::new();
        standing.encode(&mut out);
        prop_assert_eq!(message(&out), Message::Standing(standing));
    }

    #[test]
    fn subscriptions_round_trip(
        shards: (u32, u32), stamp: u64, from: u64, window_bytes: u32, system: bool,
        stream in name(), kind in name(), kinds: bool, choice in 0..5,
    ) {
        let log = Scope::Log { prefix: &stream, system };
        let behind = Position { stamp: Hlc(stamp), shard: ShardId(shards.1), lsn: Lsn(from) };
        let (scope, origin) = match choice {
            0 => (Scope::Stream(&stream), Origin::From(from)),
            1 => (Scope::Stream(&stream), Origin::End),
            2 => (log, Origin::From(from)),
            3 => (Scope::Log { prefix: "", system }, Origin::End),
            _ => (log, Origin::Behind(behind)),
        };
        let kind = kinds.then_some(&*kind);
        let sent = Subscribe { shard: ShardId(shards.0), scope, origin, kind, window_bytes };
        let mut out = Vec::new();
        sent.encode(&mut out, 1).unwrap();
        prop_assert_eq!(message(&out), Message::Subscribe(sent));
    }

    #[test]
    fn append_bytes_arrive_as_they_left(
        stream in name(), kind in name(), data in bytes(500), key: Option<u128>, correlation: u64,
    ) {
        let mut append = AppendBuilder::new();
        if let Some(key) = key {
            append.key(IdempotencyKey(key));
        }
        append.stream(&stream, Expect::NoStream).unwrap();
        append.event(1, &kind, b"meta", &data).unwrap();
        let (mut body, mut out) = (Vec::new(), Vec::new());
        append.encode(&mut body);
        encode_append(&mut out, correlation, &append);
        prop_assert_eq!(only_frame(&out).correlation, correlation);
        let Message::Append(received) = message(&out) else { panic!() };
        prop_assert_eq!(received, &body[..]);
        let view = AppendView::parse(received, LIMIT).unwrap();
        prop_assert_eq!(view.events().next().unwrap().data, &data[..]);
    }

    #[test]
    fn receipt_round_trips(
        numbers: (u64, u64, u64, u64, u32), replayed: bool,
        copies in one_of(&[Copies::ThisDisk, Copies::ThisDiskAndPeer, Copies::ThisDiskAndS3]),
        spans in prop::collection::vec((any::<u64>(), any::<u32>()), 0..256),
    ) {
        let head = Appended {
            first_lsn: Lsn(numbers.0),
            last_lsn: Lsn(numbers.1),
            hlc: Hlc(numbers.2),
            epoch: LeaseEpoch(numbers.3),
            shard: ShardId(numbers.4),
            copies,
            replayed,
        };
        let span = |(first, event_count)| StreamSpan { first: Revision(first), event_count };
        let spans: Vec<_> = spans.into_iter().map(span).collect();
        let mut out = Vec::new();
        head.encode(&mut out, 1, spans.iter().copied());
        let Message::Appended(view) = message(&out) else { panic!() };
        prop_assert_eq!(view.head, head);
        prop_assert_eq!(view.spans().collect::<Vec<_>>(), spans);
    }

    #[test]
    fn reads_round_trip(
        from: u64, limits: (u32, u32), shard: u32,
        stream in name(), kind in prop::option::of(name()),
        direction in one_of(&[Direction::Forwards, Direction::Backwards]),
        consistency in one_of(&CONSISTENCIES),
    ) {
        let (events_max, bytes_max) = limits;
        let (stream, kind) = (stream.as_str(), kind.as_deref());
        let from_revision = Revision(from);
        let read = ReadStream {
            from: from_revision, events_max, bytes_max, direction, consistency, stream, kind,
        };
        let mut out = Vec::new();
        let long = |text: &str| text.len() > 255;
        let refused = long(stream) || kind.is_some_and(long);
        prop_assert_eq!(read.encode(&mut out, 1).is_err(), refused);
        if !refused {
            prop_assert_eq!(message(&out), Message::ReadStream(read));
        }
        let (from, shard) = (Lsn(from), ShardId(shard));
        let read = ReadLog { from, shard, events_max, bytes_max, consistency };
        let mut out = Vec::new();
        read.encode(&mut out, 1);
        prop_assert_eq!(message(&out), Message::ReadLog(read));
    }

    #[test]
    fn pages_round_trip(
        before in 0_usize..9, tail: (u64, u64, u64, bool),
        events in prop::collection::vec((any::<u64>(), "[a-z]{1,9}", bytes(99), bytes(300)), 0..20),
    ) {
        let mut out = vec![0; before];
        let mut records = Vec::new();
        let mut page = StreamPage::begin(&mut out, 1);
        for (number, kind, metadata, data) in &events {
            records.clear();
            encode_event(&mut records, &EventParts {
                lsn: Lsn(*number),
                revision: Revision(!number),
                hlc: Hlc(number / 2),
                id: u128::from(*number) << 50,
                stream: b"s",
                type_length: kind.len() as u8,
                metadata_length: metadata.len() as u32,
                body: &[kind.as_bytes(), metadata, data].concat(),
            });
            page.push(&mut out, &records);
        }
        let records = out[before + 24 + 32..].to_vec();
        let (next, stream_next, committed, end) = tail;
        let (next_revision, committed) = (Revision(next), Lsn(committed));
        let tail = StreamTail {
            next: next_revision, stream_next: Revision(stream_next), committed, end,
        };
        page.finish_stream(&mut out, &tail);
        let Message::StreamPage(view) = message(&out[before..]) else { panic!() };
        prop_assert_eq!(view.tail, tail);
        let got: Result<Vec<_>, _> = view.records.collect();
        let got = got.unwrap();
        prop_assert_eq!(got.len(), events.len());
        for (event, (number, kind, metadata, data)) in got.iter().zip(&events) {
            prop_assert_eq!((event.lsn, event.revision), (Lsn(*number), Revision(!number)));
            prop_assert_eq!((event.kind, event.metadata), (kind.as_str(), &metadata[..]));
            prop_assert_eq!(event.data, &data[..]);
        }

        let mut out = Vec::new();
        let mut page = LogPage::begin(&mut out, 1);
        out.extend_from_slice(&records);
        page.pushed(&mut out, events.len() as u32);
        let tail = LogTail { next: Lsn(next), committed, end };
        page.finish_log(&mut out, &tail);
        let Message::LogPage(view) = message(&out) else { panic!() };
        prop_assert_eq!((view.tail, view.records.count()), (tail, events.len()));
    }

    #[test]
    fn ping_and_error_round_trip(
        body in bytes(1024), code in one_of(&ErrorCode::ALL), numbers: (u64, u64, u32),
        index in prop::option::of(0..u16::MAX), text in "\\PC{0,200}",
    ) {
        for kind in [FrameKind::Ping, FrameKind::Pong] {
            let mut out = Vec::new();
            encode_frame(&mut out, kind, 1, &body);
            prop_assert_eq!(only_frame(&out).body, &body[..]);
            prop_assert!(matches!(message(&out), Message::Ping(_) | Message::Pong(_)));
        }
        let (a, b, retry_after_ms) = numbers;
        let error = ErrorFrame { code, stream_index: index, retry_after_ms, a, b };
        let mut out = Vec::new();
        error.encode_with(&mut out, 1, &text, "node-b:7400");
        let Message::Error(view) = message(&out) else { panic!() };
        prop_assert_eq!((view.code(), view.stream_index), (Some(code), index));
        prop_assert_eq!((view.a, view.b, view.retry_after_ms), numbers);
        prop_assert_eq!(view.text, text);
        let leader = if code == ErrorCode::NotLeader { "node-b:7400" } else { "" };
        prop_assert_eq!(view.leader, leader);
    }

    #[test]
    fn admin_texts_round_trip(request in "\\PC{0,300}", answer in "\\PC{0,3000}") {
        let mut out = Vec::new();
        encode_admin(&mut out, 1, &request).unwrap();
        prop_assert_eq!(message(&out), Message::Admin(&request));
        let mut out = Vec::new();
        encode_admin_answer(&mut out, 1, &answer);
        prop_assert_eq!(message(&out), Message::AdminAnswer(&answer));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in bytes(2000)) {
        fuzz_frame(&bytes);
    }

    #[test]
    fn damaged_frames_never_panic(
        kind in one_of(&FrameKind::ALL), body in bytes(200),
        flips in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..4),
    ) {
        let mut out = Vec::new();
        encode_frame(&mut out, kind, 1, &body);
        encode_frame(&mut out, kind, 2, &body);
        for (index, mask) in flips {
            let index = index.index(out.len());
            out[index] ^= mask;
        }
        fuzz_frame(&out);
    }

    #[test]
    fn a_frame_buffer_gives_what_was_sent_in_any_pieces(
        bodies in prop::collection::vec(bytes(3000), 1..20),
        pieces in prop::collection::vec(1_usize..5000, 1..50),
    ) {
        let mut sent = Vec::new();
        for (correlation, body) in (0..).zip(&bodies) {
            encode_frame(&mut sent, FrameKind::Ping, correlation, body);
        }
        let mut buffer = FrameBuffer::new(LIMIT);
        let mut got = Vec::new();
        let (mut rest, mut pieces) = (&sent[..], pieces.iter().cycle());
        while !rest.is_empty() {
            let space = buffer.space();
            let count = space.len().min(rest.len()).min(*pieces.next().unwrap());
            space[..count].copy_from_slice(&rest[..count]);
            buffer.filled(count);
            rest = &rest[count..];
            while let Some(frame) = buffer.next_frame().unwrap() {
                prop_assert_eq!(frame.correlation, got.len() as u64);
                got.push(frame.body.to_vec());
            }
        }
        prop_assert_eq!(got, bodies);
    }
}
