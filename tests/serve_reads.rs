//! Reads, and what shards have to do with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use duolog_engine::append::{AppendBuilder, Expect};
use duolog_engine::ids::{Lsn, Revision, ShardId};
use duolog_engine::route::shard_of;
use duolog_net::client::RecordedEvent;
use duolog_net::wire::{Consistency, Direction, ErrorCode, ReadLog, ReadStream};
use duolog_tests::process::{Answer, Operation, Server, ServerOptions, Wire, scratch};

const SHARDS: u32 = 3;
const KINDS: [&str; 3] = ["common", "seldom", "rare"];

fn connect(server: &Server) -> Wire {
    Wire::connect(server.address()).expect("the server takes clients")
}

/// Type and data of an event.
type Content = (&'static str, Vec<u8>);

/// A log whose streams are known: name, and what its events hold.
struct Known {
    server: Server,
    streams: Vec<(String, Vec<Content>)>,
    _scratch: tempfile::TempDir,
}

impl Known {
    /// Streams that lie in several segments of three shards, stopped and started: all cold.
    fn cold() -> Self {
        let scratch = scratch();
        let options = ServerOptions::new(scratch.path()).shards(SHARDS).tiny_segments();
        let server = options.start();
        let mut wire = connect(&server);
        let mut streams: Vec<(String, Vec<Content>)> =
            (0..12).map(|number| (format!("stream-{number}"), Vec::new())).collect();
        for round in 0..40_usize {
            for (number, (name, events)) in streams.iter_mut().enumerate() {
                let kind = KINDS[match round % 20 {
                    7 => 2,
                    3 | 11 => 1,
                    _ => 0,
                }];
                let size = [100, 40_000, 7, 0, 20_001][(round + number) % 5];
                let data = vec![(round * 13 + number) as u8; size];
                let mut append = AppendBuilder::new();
                append.stream(name, Expect::Any).expect("the name fits");
                append.event(1, kind, b"m", &data).expect("the event fits");
                wire.append(&append).receipt();
                events.push((kind, data));
            }
        }
        let server = server.restart();
        Self { server, streams, _scratch: scratch }
    }
}

fn assert_same(read: &[RecordedEvent], expected: &[(u64, &Content)], what: &str) {
    let short = |revision: u64, kind: &str, data: &[u8]| {
        (revision, kind.to_owned(), data.len(), data.first().copied())
    };
    let read: Vec<_> =
        read.iter().map(|event| short(event.revision.0, &event.kind, &event.data)).collect();
    let expected: Vec<_> =
        expected.iter().map(|(revision, (kind, data))| short(*revision, kind, data)).collect();
    assert_eq!(read, expected, "{what}");
}

/// Promised: a stream is read forwards and backwards from any revision, by event type, paged by
/// bytes and by number of events, completely and in order, cold as well as hot.
/// Provoked: all combinations on cold streams in several segments of three shards, twice.
/// Broken: an event missing, doubled or out of order; a page larger than asked for; no end.
#[test]
fn streams_are_read_in_both_directions_by_type_and_paged() {
    let known = Known::cold();
    let mut wire = connect(&known.server);
    for (name, events) in known.streams.iter().chain(&known.streams) {
        let count = events.len() as u64;
        let numbered: Vec<_> = (0..).zip(events).collect();
        for kind in [None, Some("common"), Some("seldom"), Some("rare"), Some("unknown")] {
            for from in [0, 1, count / 2, count - 1, count, count + 9, u64::MAX] {
                // Pages of one event each take long: once per stream.
                let smallest = if kind.is_none() && from == 1 { 1 } else { 30_000 };
                for bytes_max in [smallest, 0] {
                    let wanted =
                        |(_, (own, _)): &&(u64, &Content)| kind.is_none_or(|kind| kind == *own);
                    let read = ReadStream {
                        from: Revision(from),
                        bytes_max,
                        kind,
                        ..ReadStream::new(name)
                    };
                    let forwards: Vec<_> = numbered
                        .iter()
                        .filter(wanted)
                        .filter(|(revision, _)| *revision >= from)
                        .copied()
                        .collect();
                    let what = format!("{name} {kind:?} from {from}, {bytes_max} bytes");
                    assert_same(&wire.walk(&read), &forwards, &what);
                    let read = ReadStream { direction: Direction::Backwards, ..read };
                    let backwards: Vec<_> = numbered
                        .iter()
                        .rev()
                        .filter(wanted)
                        .filter(|(revision, _)| *revision <= from)
                        .copied()
                        .collect();
                    assert_same(&wire.walk(&read), &backwards, &format!("{what}, backwards"));
                }
            }
        }
    }
}

/// Promised: a page holds at most the bytes and events asked for (one larger event comes alone),
/// tells where to go on, how long the stream is, and whether it ends there.
/// Provoked: pages of one stream with every bound.
/// Broken: a larger page, an empty page without end, a wrong end.
#[test]
fn pages_keep_their_bounds_and_tell_where_to_go_on() {
    let known = Known::cold();
    let mut wire = connect(&known.server);
    let (name, events) = &known.streams[0];
    let count = events.len() as u64;
    for events_max in [1, 2, 7, 40, 41, 0] {
        let mut read = ReadStream { events_max, bytes_max: 4 << 20, ..ReadStream::new(name) };
        let mut found = 0;
        loop {
            let page = wire.page(&read);
            assert!(events_max == 0 || page.events.len() <= events_max as usize);
            assert_eq!(page.tail.stream_next.0, count);
            assert!(page.tail.committed.0 > 0);
            found += page.events.len() as u64;
            if page.tail.end {
                break;
            }
            assert!(!page.events.is_empty(), "an empty page without end");
            assert_eq!(page.tail.next.0, found);
            read.from = page.tail.next;
        }
        assert_eq!(found, count, "pages of {events_max} events");
    }
    for bytes_max in [1, 300, 30_000, 100_000] {
        let mut read = ReadStream { bytes_max, ..ReadStream::new(name) };
        loop {
            let page = wire.page(&read);
            let bytes: usize = page.events.iter().map(|event| event.data.len() + 64).sum();
            let alone = page.events.len() == 1;
            assert!(alone || bytes <= bytes_max as usize, "{bytes} bytes of {bytes_max}");
            if page.tail.end {
                break;
            }
            read.from = page.tail.next;
        }
    }
    let missing = wire.page(&ReadStream::new("no such stream"));
    assert_eq!((missing.events.len(), missing.tail.end), (0, true));
    assert_eq!(missing.tail.stream_next.0, 0);
}

/// Promised: a shard's log from any LSN on is exactly what was appended behind it, in order.
/// Provoked: the logs of three shards read from every tenth LSN, by pages of every size; against
/// the streams.
/// Broken: an event missing, doubled, or in another shard's log.
#[test]
fn the_log_of_a_shard_is_what_was_appended_to_it() {
    let known = Known::cold();
    let mut wire = connect(&known.server);
    let mut events = 0;
    for shard in 0..SHARDS {
        let whole = wire.log(shard, 1);
        events += whole.len();
        let last = whole.len() as u64;
        for (lsn, event) in (1..).zip(&whole) {
            assert_eq!(event.lsn.0, lsn);
            assert_eq!(shard_of(event.stream.as_bytes(), SHARDS).0, shard, "{}", event.stream);
        }
        for from in (0..last + 20).step_by(10).chain([last, last + 1, u64::MAX]) {
            let expected = whole.get(from.max(1) as usize - 1..).unwrap_or_default();
            assert_eq!(wire.log(shard, from), expected, "shard {shard} from {from}");
        }
        for (events_max, bytes_max) in [(1, 0), (3, 1), (0, 1), (0, 50_000), (1000, 4 << 20)] {
            let shard = ShardId(shard);
            let mut read = ReadLog {
                from: Lsn(1),
                shard,
                events_max,
                bytes_max,
                consistency: Consistency::Linearizable,
            };
            let mut found = Vec::new();
            loop {
                wire.send_log(&read).expect("the socket takes it");
                let (_, answer) = wire.receive().expect("it is answered");
                let Answer::Log(page) = answer else { panic!("{answer:?}") };
                assert!(events_max == 0 || page.events.len() <= events_max as usize);
                found.extend(page.events);
                if page.tail.end {
                    break;
                }
                read.from = page.tail.next;
            }
            assert_eq!(found, whole, "shard {shard}, {events_max} events, {bytes_max} bytes");
        }
        for name in
            whole.iter().map(|event| &event.stream).collect::<std::collections::HashSet<_>>()
        {
            let own: Vec<_> = whole.iter().filter(|event| event.stream == *name).cloned().collect();
            assert_eq!(wire.stream(name), own, "{name}");
        }
    }
    assert_eq!(events, known.streams.iter().map(|(_, events)| events.len()).sum::<usize>());
}

/// Promised: any request is served on any connection, whatever shard it belongs to; a connection
/// that names a shard in its hello is served by that one.
/// Provoked: connections bound to each shard and to none, each appending to and reading streams of
/// all shards, pipelined.
/// Broken: a refusal, another shard than asked for, an answer that does not come.
#[test]
fn every_connection_serves_every_shard() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).shards(SHARDS).start();
    let bound = (0..SHARDS).map(|shard| Some(ShardId(shard)));
    for (number, shard) in (0_u128..).zip(bound.chain([None])) {
        let connected = Wire::connect_to(server.address(), shard);
        let (mut wire, accepted) = connected.expect("the server takes clients");
        assert_eq!(accepted.shard_count, SHARDS);
        assert!(shard.is_none_or(|shard| accepted.shard == shard), "{accepted:?}");
        let mut due = Vec::new();
        for stream in 0..60_u128 {
            let name = format!("{number}-{stream}");
            let key = (number + 1) << 64 | (stream + 1) << 32;
            let operation = Operation::single(key, &name, Expect::NoStream, name.as_bytes());
            due.push(wire.send_append(&operation.request()).expect("the socket takes it"));
        }
        for _ in 0..due.len() {
            let (correlation, answer) = wire.receive().expect("it is answered");
            let receipt = answer.receipt();
            let stream = due.iter().position(|known| *known == correlation).expect("it was asked");
            let name = format!("{number}-{stream}");
            assert_eq!(receipt.head.shard, shard_of(name.as_bytes(), SHARDS), "{name}");
        }
        for stream in 0..60 {
            let name = format!("{number}-{stream}");
            let events = wire.stream(&name);
            assert_eq!(events.len(), 1, "{name}");
            assert_eq!(events[0].data, name.as_bytes());
        }
        let logged: usize = (0..SHARDS).map(|shard| wire.log(shard, 1).len()).sum();
        assert_eq!(logged as u128, (number + 1) * 60);
    }
}

/// Promised: streams of one append live in one shard, brought together by a routing key in braces;
/// otherwise the append is refused with both shards named, and nothing of it is done.
/// Provoked: pairs of streams with and without a common key, sent on connections of every shard.
/// Broken: half an append; a refusal of streams that live together.
#[test]
fn an_append_across_shards_is_refused_whole() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).shards(SHARDS).start();
    let mut accepted = 0;
    for round in 0..60_u32 {
        let shard = Some(ShardId(round % SHARDS));
        let (mut wire, _) =
            Wire::connect_to(server.address(), shard).expect("the server takes clients");
        let pairs = [
            (format!("{{k{round}}}.a"), format!("{{k{round}}}.b")),
            (format!("a{round}"), format!("b{round}")),
        ];
        for (first, second) in pairs {
            let mut append = AppendBuilder::new();
            for name in [&first, &second] {
                append.stream(name, Expect::NoStream).expect("the name fits");
                append.event(1, "t", b"", name.as_bytes()).expect("the event fits");
            }
            let shards = [&first, &second].map(|name| shard_of(name.as_bytes(), SHARDS).0);
            match wire.append(&append) {
                Answer::Appended(receipt) => {
                    assert_eq!(shards, [receipt.head.shard.0; 2], "{first} {second}");
                    accepted += 2;
                }
                Answer::Refused(refused) => {
                    let told = (refused.code, refused.stream_index, refused.a, refused.b);
                    let [own, other] = shards.map(u64::from);
                    assert_eq!(told, (ErrorCode::CrossShard, Some(1), own, other));
                    assert_ne!(own, other);
                    assert_eq!((wire.stream(&first), wire.stream(&second)), (vec![], vec![]));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    let mut wire = connect(&server);
    let logged: usize = (0..SHARDS).map(|shard| wire.log(shard, 1).len()).sum();
    assert_eq!(logged, accepted);
    assert!(accepted >= 120, "streams with a common key live together");
}

/// Promised: a reader sees every event that was acknowledged before it asked, and never a gap,
/// while others append.
/// Provoked: four writers to one stream on two shards' connections; readers that check each
/// acknowledged event from other connections, and others that walk the stream again and again.
/// Broken: an acknowledged event that is not there; a page that does not continue the last.
#[test]
fn readers_see_what_was_acknowledged_and_no_gap() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).shards(2).tiny_segments().start();
    let address = server.address();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4_u128)
        .map(|writer| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let bound = Some(ShardId(writer as u32 % 2));
                let connected = Wire::connect_to(address, bound);
                let (mut wire, _) = connected.expect("the server takes clients");
                let mut other = Wire::connect(address).expect("the server takes clients");
                let mut number = 0_u128;
                while !stop.load(Ordering::Relaxed) {
                    number += 1;
                    let key = (writer + 1) << 96 | number << 32;
                    let data = vec![writer as u8; 1 + (number as usize * 37) % 3000];
                    let operation = Operation::single(key, "watched", Expect::Any, &data);
                    let receipt = wire.append(&operation.request()).receipt();
                    let from = Revision(receipt.first_revision());
                    let read = ReadStream { from, events_max: 1, ..ReadStream::new("watched") };
                    let events = other.page(&read).events;
                    assert_eq!(events.len(), 1, "{from} was acknowledged");
                    assert_eq!((events[0].revision, &events[0].data), (from, &data));
                }
                number
            })
        })
        .collect();
    let mut wire = connect(&server);
    for _ in 0..15 {
        let events = wire.stream("watched");
        let gapless = (0..).zip(&events).all(|(revision, event)| event.revision.0 == revision);
        assert!(gapless, "a gap among {} events", events.len());
        let read = ReadStream {
            from: ReadStream::END,
            direction: Direction::Backwards,
            ..ReadStream::new("watched")
        };
        let page = wire.page(&read);
        let first = page.events.first().map_or(0, |event| event.revision.0 + 1);
        assert!(first >= events.len() as u64, "an older end than before");
    }
    stop.store(true, Ordering::Relaxed);
    let count: u128 =
        writers.into_iter().map(|writer| writer.join().expect("the writer is content")).sum();
    assert_eq!(wire.stream("watched").len() as u128, count);
}
