//! What a connection may and may not do, frame by frame.

mod limits;

use duolog_engine::ids::{ClusterId, Hlc, LeaseEpoch, Lsn, NodeId, Revision};

use super::*;
use crate::wire::{Appended, Consistency, Copies, NodeRole, StreamSpan};

/// A request as the tests remember it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Append(Vec<u8>),
    ReadStream(String),
    ReadLog(ShardId),
    Subscribe(ShardId),
    Admin(String),
}

/// A session and a driver that keeps every ticket, or answers at once.
struct Driven {
    session: Session,
    seen: Vec<Seen>,
    open: Vec<Ticket>,
    answer_at_once: bool,
}

impl Driven {
    fn new(settings: Settings) -> Self {
        let session = Session::new(settings);
        Self { session, seen: Vec::new(), open: Vec::new(), answer_at_once: false }
    }

    fn greeted(settings: Settings) -> Self {
        let mut driven = Self::new(settings);
        assert_eq!(driven.give(&hello(None)), Flow::Read);
        assert_eq!(driven.answers(), ["HelloAccepted 0"]);
        driven
    }

    fn give(&mut self, bytes: &[u8]) -> Flow {
        let Self { session, seen, open, answer_at_once } = self;
        let flow = session.receive(bytes, &mut |ticket, request, answers| {
            seen.push(match request {
                Request::Append(body) => Seen::Append(body.to_vec()),
                Request::ReadStream(read) => Seen::ReadStream(read.stream.to_owned()),
                Request::ReadLog(read) => Seen::ReadLog(read.shard),
                Request::Subscribe(subscribe) => Seen::Subscribe(subscribe.shard),
                Request::Admin(json) => Seen::Admin(json.to_owned()),
            });
            if *answer_at_once {
                let number = ticket.correlation();
                answers.appended(ticket, &receipt(number), [span()]);
            } else {
                open.push(ticket);
            }
        });
        session.check();
        flow
    }

    fn answer_oldest(&mut self) {
        let ticket = self.open.remove(0);
        let number = ticket.correlation();
        self.session.answers().appended(ticket, &receipt(number), [span()]);
        self.session.check();
    }

    /// Sends everything; each answer as "Kind correlation", errors with code and text. The session
    /// has counted exactly these errors.
    fn answers(&mut self) -> Vec<String> {
        let bytes = self.session.answers().unsent().to_vec();
        self.session.answers().sent(bytes.len());
        self.session.check();
        let (mut rest, mut answers) = (&bytes[..], Vec::new());
        let mut errors = [0; ErrorCode::ALL.len()];
        while !rest.is_empty() {
            let Ok(Decoded::Complete { value, used }) = decode_frame(rest, 1 << 25) else {
                panic!("the session sends whole frames");
            };
            rest = &rest[used..];
            answers.push(match Message::decode(&value).unwrap() {
                Message::Error(error) => {
                    let code = error.code().unwrap();
                    errors[usize::from(code.code()) - 1] += 1;
                    format!("{code:?} {} {}", value.correlation, error.text)
                }
                _ => format!("{:?} {}", value.kind, value.correlation),
            });
        }
        let has_errors = errors.iter().any(|count| *count > 0);
        assert_eq!(self.session.answers().has_errors(), has_errors);
        for (code, count) in self.session.answers().take_errors() {
            errors[usize::from(code.code()) - 1] -= count;
        }
        assert_eq!(errors, [0; ErrorCode::ALL.len()], "every error is counted, by its code");
        answers
    }
}

fn receipt(number: u64) -> Appended {
    Appended {
        first_lsn: Lsn(number),
        last_lsn: Lsn(number),
        hlc: Hlc(1),
        epoch: LeaseEpoch(0),
        shard: ShardId(0),
        copies: Copies::ThisDisk,
        replayed: false,
    }
}

fn span() -> StreamSpan {
    StreamSpan { first: Revision(0), event_count: 1 }
}

fn hello(shard: Option<u32>) -> Vec<u8> {
    let mut out = Vec::new();
    Hello::new(shard.map(ShardId)).encode(&mut out, 0);
    out
}

fn frame(kind: FrameKind, correlation: u64, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_frame(&mut out, kind, correlation, body);
    out
}

fn append(correlation: u64, body: &[u8]) -> Vec<u8> {
    frame(FrameKind::Append, correlation, body)
}

fn read(correlation: u64, stream: &str) -> Vec<u8> {
    let mut out = Vec::new();
    ReadStream::new(stream).encode(&mut out, correlation).unwrap();
    out
}

fn read_log(correlation: u64, shard: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let read = ReadLog {
        from: Lsn(1),
        shard: ShardId(shard),
        events_max: 0,
        bytes_max: 0,
        consistency: Consistency::Any,
    };
    read.encode(&mut out, correlation);
    out
}

#[test]
fn frames_split_at_every_byte_are_the_same_requests() {
    let mut bytes = hello(None);
    bytes.extend(append(1, b"first"));
    bytes.extend(read(2, "s"));
    bytes.extend(frame(FrameKind::Ping, 3, b"?"));
    bytes.extend(read_log(4, 0));
    bytes.extend(append(5, &[7; 300]));
    let expected = [
        Seen::Append(b"first".to_vec()),
        Seen::ReadStream("s".to_owned()),
        Seen::ReadLog(ShardId(0)),
        Seen::Append(vec![7; 300]),
    ];
    let mut splits: Vec<Vec<&[u8]>> = vec![bytes.chunks(1).collect(), vec![&bytes]];
    for at in 1..bytes.len() {
        splits.push(vec![&bytes[..at], &bytes[at..]]);
    }
    for pieces in splits {
        let mut driven = Driven::new(Settings::default());
        for piece in &pieces {
            assert_eq!(driven.give(piece), Flow::Read);
        }
        assert_eq!(driven.seen, expected);
        assert_eq!(driven.answers(), ["HelloAccepted 0", "Pong 3"]);
        let correlations: Vec<_> = driven.open.iter().map(Ticket::correlation).collect();
        assert_eq!(correlations, [1, 2, 4, 5]);
    }
}

#[test]
fn the_hello_is_answered_with_the_limits() {
    let settings = Settings {
        cluster: ClusterId(1),
        node: NodeId(2),
        shard_count: 4,
        shard: ShardId(3),
        ..Settings::default()
    };
    let mut driven = Driven::new(settings);
    driven.give(&hello(Some(3)));
    let Ok(Decoded::Complete { value, .. }) =
        decode_frame(driven.session.answers().unsent(), 1 << 20)
    else {
        panic!("one whole frame");
    };
    let expected = HelloAccepted {
        version: 1,
        shard_count: 4,
        cluster: ClusterId(1),
        node: NodeId(2),
        capabilities: 0,
        frame_body_max_bytes: 17 << 20,
        requests_max: 1024,
        shard: ShardId(3),
        bytes_max: 64 << 20,
        role: NodeRole::Standalone,
        epoch: LeaseEpoch(0),
    };
    assert_eq!(Message::decode(&value), Ok(Message::HelloAccepted(expected, "")));
    assert!(driven.session.is_greeted());
}

#[test]
fn a_wrong_first_frame_gets_one_error_and_the_end() {
    let mut newer = Vec::new();
    let versions = Hello { version_lowest: 2, version_highest: 3, ..Hello::new(None) };
    versions.encode(&mut newer, 9);
    let mut magic = hello(None)[24..].to_vec();
    magic[0] = b'X';
    let cases = [
        (append(9, b"x"), "BadFrame 9 the first frame must be a Hello, not Append"),
        (frame(FrameKind::Ping, 9, b""), "BadFrame 9 the first frame must be a Hello, not Ping"),
        (
            frame(FrameKind::Hello, 9, &magic),
            "BadFrame 9 the hello does not begin with the magic DUOLOG\\0\\0: is this a Duolog \
             client?",
        ),
        (frame(FrameKind::Hello, 9, &hello(None)[24..50]), "BadFrame 9 the hello ends too early"),
        (
            newer,
            "UnsupportedVersion 9 the client speaks versions 2 to 3, this server only 1: use a \
             client of the server's release",
        ),
        (hello(Some(1)), "BadRequest 0 there is no shard 1: the cluster has 1, counted from 0"),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            "BadFrame 964087230667910984 reserved header bytes are 0x312f0a0d312e",
        ),
    ];
    for (bytes, expected) in cases {
        let mut driven = Driven::new(Settings::default());
        assert_eq!(driven.give(&bytes), Flow::Close);
        let answers = driven.answers();
        assert!(answers.len() == 1 && answers[0].starts_with(expected), "{answers:?}");
        // What still comes is not looked at.
        assert_eq!(driven.give(&hello(None)), Flow::Close);
        assert!(driven.answers().is_empty());
        assert!(driven.session.is_done());
    }
}

#[test]
fn garbage_after_the_hello_gets_one_error_and_the_end() {
    let good = append(5, b"body");
    let with = |index: usize, value: u8| {
        let mut bad = good.clone();
        bad[index] = value;
        bad
    };
    let cases = [
        (with(8, 200), "BadFrame 5 unknown frame kind 200"),
        (with(10, 1), "BadFrame 5 reserved header bytes are 0x100000000 instead of 0"),
        (with(12, 1), "BadFrame 5 reserved header bytes are 0x1 instead of 0"),
        (with(4, good[4] ^ 1), "BadFrame 5 frame checksum is"),
        (with(25, b'x'), "BadFrame 5 frame checksum is"),
        (frame(FrameKind::Appended, 5, b""), "BadFrame 5 a client does not send Appended here"),
        (hello(None), "BadFrame 0 a client does not send Hello here"),
        (with(3, 2), "TooLarge 5 frame body of 33554436 bytes is over the limit of 17825792"),
    ];
    for (bytes, expected) in cases {
        let mut driven = Driven::greeted(Settings::default());
        driven.give(&append(4, b"before"));
        let two = [bytes, append(6, b"after")].concat();
        assert_eq!(driven.give(&two), Flow::Close);
        let answers = driven.answers();
        assert!(answers.len() == 1 && answers[0].starts_with(expected), "{answers:?}");
        assert_eq!(driven.seen, [Seen::Append(b"before".to_vec())]);
    }
}

#[test]
fn an_oversized_frame_is_refused_by_its_header_alone() {
    let settings = Settings { frame_body_max_bytes: 100, ..Settings::default() };
    let mut driven = Driven::greeted(settings);
    assert_eq!(driven.give(&append(1, &[0; 100])), Flow::Read);
    assert_eq!(driven.give(&append(2, &[0; 101])[..24]), Flow::Close);
    assert!(driven.answers()[0].starts_with("TooLarge 2 "));
}

#[test]
fn a_bad_body_in_a_good_frame_costs_only_that_request() {
    let mut driven = Driven::greeted(Settings::default());
    let mut bytes = frame(FrameKind::ReadStream, 1, b"short");
    bytes.extend(read_log(2, 1));
    bytes.extend(frame(FrameKind::Ping, 3, &[0; 1025]));
    bytes.extend(append(4, b"good"));
    assert_eq!(driven.give(&bytes), Flow::Read);
    let expected = [
        "BadRequest 1 the read of a stream ends too early",
        "BadRequest 2 there is no shard 1: the cluster has 1, counted from 0",
        "BadRequest 3 ping of 1025 bytes is over the limit of 1024",
    ];
    assert_eq!(driven.answers(), expected);
    assert_eq!(driven.seen, [Seen::Append(b"good".to_vec())]);
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let mut driven = Driven::greeted(Settings { unsent_max_bytes: 200, ..Settings::default() });
    driven.answer_at_once = true;
    let requests: Vec<u8> = (1..=10).flat_map(|number| append(number, b"x")).collect();
    // Each answer has 80 bytes: the third one fills the buffer in the middle of the input.
    assert_eq!(driven.give(&requests[..requests.len() - 3]), Flow::Pause);
    assert_eq!(driven.seen.len(), 3);
    // A read that was under way still comes; it waits.
    assert_eq!(driven.give(&requests[requests.len() - 3..]), Flow::Pause);
    let mut answers = Vec::new();
    while driven.session.flow() == Flow::Pause {
        answers.extend(driven.answers());
        assert_eq!(driven.session.flow(), Flow::Read);
        driven.give(&[]);
    }
    answers.extend(driven.answers());
    let expected: Vec<_> = (1..=10).map(|number| format!("Appended {number}")).collect();
    assert_eq!(answers, expected);
}

#[test]
fn a_driver_that_reads_before_resuming_loses_no_order() {
    let mut driven = Driven::greeted(Settings { unsent_max_bytes: 100, ..Settings::default() });
    driven.answer_at_once = true;
    let requests: Vec<u8> = (1..=6).flat_map(|number| append(number, b"x")).collect();
    let (first, second) = requests.split_at(requests.len() - 30);
    assert_eq!(driven.give(first), Flow::Pause);
    let mut answers = driven.answers();
    driven.give(second);
    while driven.session.answers().unsent_bytes() > 0 {
        answers.extend(driven.answers());
        driven.give(&[]);
    }
    let expected: Vec<_> = (1..=6).map(|number| format!("Appended {number}")).collect();
    assert_eq!(answers, expected);
}

/// Told at the hello, then only when it changes, and not to a client that takes no answers.
#[test]
fn a_client_is_told_what_the_node_is_and_becomes() {
    let mut driven = Driven::new(Settings { unsent_max_bytes: 10, ..Settings::default() });
    let standing = |role, epoch| Standing { role, epoch: LeaseEpoch(epoch), leader: "a:1" };
    driven.session.set_standing(&standing(NodeRole::Follower, 3));
    assert!(driven.answers().is_empty(), "nothing before the hello");
    driven.give(&hello(None));
    let told = driven.session.answers().unsent().to_vec();
    let Ok(Decoded::Complete { value, .. }) = decode_frame(&told, 1 << 20) else { panic!() };
    let Ok(Message::HelloAccepted(accepted, "a:1")) = Message::decode(&value) else { panic!() };
    assert_eq!((accepted.role, accepted.epoch), (NodeRole::Follower, LeaseEpoch(3)));
    driven.session.set_standing(&standing(NodeRole::Leader, 4));
    assert_eq!(driven.answers(), ["HelloAccepted 0"], "too much is unsent");
    driven.session.set_standing(&standing(NodeRole::Leader, 4));
    assert!(driven.answers().is_empty(), "no news");
    driven.session.set_standing(&standing(NodeRole::Other, 5));
    assert_eq!(driven.answers(), ["Standing 0"]);
}

#[test]
fn a_bound_client_moves_with_everything_it_has_sent() {
    let settings = Settings { shard_count: 4, ..Settings::default() };
    let mut driven = Driven::new(settings);
    let bytes = [hello(Some(2)), append(1, b"x"), append(2, b"y")].concat();
    assert_eq!(driven.give(&bytes[..bytes.len() - 1]), Flow::HandOver(ShardId(2)));
    assert_eq!(driven.give(&bytes[bytes.len() - 1..]), Flow::HandOver(ShardId(2)));
    assert!(driven.seen.is_empty() && driven.answers().is_empty());
    driven.session.serve_at(ShardId(2));
    assert_eq!(driven.give(&[]), Flow::Read);
    assert_eq!(driven.seen.len(), 2);
    assert_eq!(driven.answers(), ["HelloAccepted 0"]);

    let mut at_home = Driven::new(settings);
    assert_eq!(at_home.give(&hello(Some(0))), Flow::Read);
    assert_eq!(at_home.answers(), ["HelloAccepted 0"]);
}

#[test]
fn a_half_closed_client_still_gets_its_answers() {
    let mut driven = Driven::greeted(Settings::default());
    driven.give(&append(1, b"x"));
    driven.give(&append(2, b"cut short")[..30]);
    driven.session.end_of_input();
    driven.session.check();
    assert_eq!(driven.session.flow(), Flow::Close);
    assert!(!driven.session.is_done());
    driven.answer_oldest();
    assert!(!driven.session.is_done());
    assert_eq!(driven.answers(), ["Appended 1"]);
    assert!(driven.session.is_done());

    let mut silent = Driven::new(Settings::default());
    silent.session.end_of_input();
    assert!(silent.session.is_done());
}

#[test]
fn two_buffers_take_turns_when_sends_own_their_bytes() {
    let mut driven = Driven::greeted(Settings { unsent_max_bytes: 100, ..Settings::default() });
    driven.give(&[append(1, b"x"), append(2, b"x"), append(3, b"x")].concat());
    driven.answer_oldest();
    let mut spare = Vec::new();
    driven.session.answers().take_unsent(&mut spare);
    assert_eq!(spare.len(), 80);
    driven.answer_oldest();
    assert_eq!(driven.session.answers().unsent_bytes(), 160);
    assert_eq!(driven.session.flow(), Flow::Pause, "what is on its way counts");
    driven.session.answers().sent(30);
    driven.session.answers().sent(50);
    assert_eq!(driven.session.flow(), Flow::Read);
    assert_eq!(driven.answers(), ["Appended 2"]);
}

#[test]
fn a_partly_sent_buffer_keeps_its_order() {
    let mut driven = Driven::greeted(Settings::default());
    driven.give(&[append(1, b"x"), append(2, b"x")].concat());
    driven.answer_oldest();
    let mut received = driven.session.answers().unsent()[..50].to_vec();
    driven.session.answers().sent(50);
    driven.answer_oldest();
    let mut rest = Vec::new();
    driven.session.answers().take_unsent(&mut rest);
    driven.session.answers().sent(rest.len());
    received.extend(rest);
    let numbers: Vec<_> = [&received[..80], &received[80..]]
        .iter()
        .map(|bytes| match decode_frame(bytes, 1 << 20) {
            Ok(Decoded::Complete { value, used: 80 }) => value.correlation,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(numbers, [1, 2]);
}

#[test]
fn ordinary_traffic_stops_allocating_and_large_memory_is_given_back() {
    let mut driven = Driven::greeted(Settings::default());
    driven.answer_at_once = true;
    driven.give(&append(1, &vec![0; 1 << 20])[..1 << 19]);
    assert!(driven.session.held.capacity() >= 1 << 19);
    driven.give(&append(1, &vec![0; 1 << 20])[1 << 19..]);
    assert!(driven.session.held.capacity() <= IDLE_BUFFER_MAX_BYTES);
    let round: Vec<u8> = (0..40).flat_map(|number| append(number, &[1; 64])).collect();
    let mut capacities = Vec::new();
    for _ in 0..10 {
        for piece in round.chunks(1000) {
            driven.give(piece);
        }
        driven.answers();
        capacities.push((driven.session.held.capacity(), driven.session.answers.out().capacity()));
    }
    assert!(capacities.iter().all(|capacity| *capacity == capacities[0]), "{capacities:?}");
    assert_ne!(capacities[0], (0, 0), "the buffers are kept");
}
