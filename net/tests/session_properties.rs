//! A session under any bytes in any pieces: it never panics, keeps its invariants, and what comes
//! out does not depend on how the bytes came in.

use duolog_net::session::{Flow, Request, Session, Settings, Ticket};
use duolog_net::wire::{
    Decoded, ErrorCode, ErrorFrame, FrameKind, Hello, ReadStream, decode_frame, encode_frame,
};
use proptest::prelude::*;

/// What a client might send.
#[derive(Clone, Debug)]
enum Sent {
    Append(Vec<u8>),
    Read(String),
    Ping(Vec<u8>),
    Odd(FrameKind, Vec<u8>),
    Noise(Vec<u8>),
}

fn sent() -> impl Strategy<Value = Sent> {
    let bytes = |max| prop::collection::vec(any::<u8>(), 0..max);
    prop_oneof![
        8 => bytes(400).prop_map(Sent::Append),
        4 => "[a-z]{1,9}".prop_map(Sent::Read),
        2 => bytes(1100).prop_map(Sent::Ping),
        1 => (prop::sample::select(&FrameKind::ALL[..]), bytes(60))
            .prop_map(|(kind, body)| Sent::Odd(kind, body)),
        1 => bytes(40).prop_map(Sent::Noise),
    ]
}

fn encode(all: &[Sent]) -> Vec<u8> {
    let mut out = Vec::new();
    Hello::new(None).encode(&mut out, 0);
    for (correlation, one) in (1..).zip(all) {
        match one {
            Sent::Append(body) => encode_frame(&mut out, FrameKind::Append, correlation, body),
            Sent::Read(stream) => {
                ReadStream::new(stream).encode(&mut out, correlation).expect("a short name");
            }
            Sent::Ping(body) => encode_frame(&mut out, FrameKind::Ping, correlation, body),
            Sent::Odd(kind, body) => encode_frame(&mut out, *kind, correlation, body),
            Sent::Noise(bytes) => out.extend_from_slice(bytes),
        }
    }
    out
}

fn settings() -> Settings {
    Settings { requests_max: 4, unsent_max_bytes: 300, ..Settings::default() }
}

/// What a session did: requests lent, answers sent, as one text each.
#[derive(Debug, Default, PartialEq, Eq)]
struct Deeds {
    requests: Vec<String>,
    answers: Vec<u8>,
    closed: bool,
}

fn answer_all(session: &mut Session, waiting: &mut Vec<Ticket>) {
    for ticket in waiting.drain(..) {
        session.answers().refuse(ticket, &ErrorFrame::new(ErrorCode::DiskFull), "no space");
    }
}

/// Feeds `bytes` in `pieces`; whenever the session asks for a pause, and in the end, answers all
/// requests and sends what is unsent.
fn drive(bytes: &[u8], pieces: &[usize]) -> Deeds {
    let mut session = Session::new(settings());
    let (mut deeds, mut waiting) = (Deeds::default(), Vec::new());
    let (mut rest, mut pieces) = (bytes, pieces.iter().cycle());
    let mut flow = Flow::Read;
    while !rest.is_empty() || flow == Flow::Pause {
        let size = if flow == Flow::Pause { 0 } else { *pieces.next().expect("a cycle") };
        let (piece, later) = rest.split_at(size.min(rest.len()));
        rest = later;
        flow = session.receive(piece, &mut |ticket: Ticket, request, _| {
            deeds.requests.push(match request {
                Request::Append(body) => format!("append {body:?}"),
                Request::ReadStream(read) => format!("read {}", read.stream),
                Request::ReadLog(read) => format!("log {}", read.shard),
                Request::Subscribe(subscribe) => format!("subscribe {:?}", subscribe.scope),
                Request::Admin(json) => format!("admin {json}"),
            });
            waiting.push(ticket);
        });
        session.check();
        if flow == Flow::Pause {
            answer_all(&mut session, &mut waiting);
        }
        if flow == Flow::Pause || flow == Flow::Close {
            deeds.answers.extend_from_slice(session.answers().unsent());
            let count = session.answers().unsent().len();
            session.answers().sent(count);
            session.check();
        }
        if flow == Flow::Close {
            deeds.closed = true;
            break;
        }
    }
    assert!(deeds.closed || !session.has_kept(), "kept bytes are looked at");
    answer_all(&mut session, &mut waiting);
    deeds.answers.extend_from_slice(session.answers().unsent());
    deeds
}

proptest! {
    #[test]
    fn deeds_do_not_depend_on_the_pieces(
        all in prop::collection::vec(sent(), 0..30),
        pieces in prop::collection::vec(1_usize..300, 1..20),
    ) {
        let bytes = encode(&all);
        let whole = drive(&bytes, &[usize::MAX]);
        prop_assert_eq!(&drive(&bytes, &pieces), &whole);
        prop_assert_eq!(&drive(&bytes, &[1]), &whole);
        let mut rest = &whole.answers[..];
        while !rest.is_empty() {
            let Ok(Decoded::Complete { used, .. }) = decode_frame(rest, 1 << 20) else {
                return Err(TestCaseError::fail("an answer that is no frame"));
            };
            rest = &rest[used..];
        }
    }

    #[test]
    fn any_bytes_are_survived(
        greeted: bool, bytes in prop::collection::vec(any::<u8>(), 0..300),
        flips in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..3),
    ) {
        let mut all = if greeted { encode(&[Sent::Append(vec![1; 30])]) } else { Vec::new() };
        all.extend_from_slice(&bytes);
        for (index, mask) in flips {
            if !all.is_empty() {
                let index = index.index(all.len());
                all[index] ^= mask;
            }
        }
        prop_assert_eq!(drive(&all, &[7]), drive(&all, &[usize::MAX]));
    }
}
