//! Appends: outcomes, deadlines, repetition.

use std::time::Duration;

use duolog_engine::append::AppendView;
use duolog_net::client::{Client, Error, Event, Expect, Lsn, Remedy, Revision, ShardId, Uuid};
use duolog_net::wire::{ErrorCode, ErrorFrame, FrameKind, Message};
use tokio::time::Instant;

use crate::fake::{Fake, Received, message};

const SHORT: Duration = Duration::from_millis(400);
const KEY: Uuid = Uuid::from_u128(0x1234);

fn append(client: &Client, stream: &str) -> duolog_net::client::AppendCall {
    client.append(stream).event(Event::new("t", "data"))
}

fn busy(retry_after_ms: u32) -> ErrorFrame {
    ErrorFrame::new(ErrorCode::Busy).retry_after_ms(retry_after_ms)
}

fn view(request: &Received) -> AppendView<'_> {
    let Message::Append(body) = message(request) else { panic!("an append") };
    AppendView::parse(body, 1 << 20).expect("the client checks appends")
}

#[tokio::test]
async fn an_append_says_what_was_asked_and_gives_the_receipt() {
    let (client, _fake, mut peer) = Fake::with_client(|options| options).await;
    let event = Event::new("placed", "data").metadata("meta").id(Uuid::from_u128(7));
    let call = client
        .append("{a}.one")
        .expect(Expect::Exact(Revision(4)))
        .event(event)
        .and_stream("{a}.two")
        .expect(Expect::StreamExists)
        .idempotency_key(KEY)
        .fencing_token(9);
    let (receipt, ()) = tokio::join!(call.send(), async {
        let request = peer.request().await;
        let append = view(&request);
        assert_eq!(append.key().map(|key| key.0), Some(0x1234));
        assert_eq!(append.fencing_token(), Some(9));
        let streams: Vec<_> = append.streams().collect();
        assert_eq!((streams[0].name, streams[0].event_count), (&b"{a}.one"[..], 1));
        assert_eq!(streams[0].expect, Expect::Exact(Revision(4)));
        assert_eq!((streams[1].name, streams[1].event_count), (&b"{a}.two"[..], 0));
        let event = append.events().next().unwrap();
        assert_eq!((event.id, event.kind), (7, &b"placed"[..]));
        assert_eq!((event.metadata, event.data), (&b"meta"[..], &b"data"[..]));
        peer.receipt_with(request.correlation, 17, true).await;
    });
    let receipt = receipt.unwrap();
    assert_eq!((receipt.first_lsn, receipt.replayed), (Lsn(17), true));
    assert_eq!((receipt.streams.len(), &receipt.streams[0].stream[..]), (1, "{a}.one"));
    assert_eq!(receipt.next_expect(), Expect::Exact(Revision(0)));
}

#[tokio::test]
async fn one_key_means_one_request_byte_for_byte_even_when_put_together_again() {
    let (client, _fake, mut peer) = Fake::with_client(|options| options).await;
    let mut bodies = Vec::new();
    for _ in 0..2 {
        let call = append(&client, "s").event(Event::new("u", "")).idempotency_key(KEY);
        let (_, request) = tokio::join!(call.deadline(SHORT).send(), peer.request());
        bodies.push(request.body);
    }
    assert_eq!(bodies[0], bodies[1]);
    let request = Received { kind: FrameKind::Append, correlation: 0, body: bodies.remove(0) };
    let ids: Vec<_> = view(&request).events().map(|event| event.id).collect();
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn a_passed_deadline_makes_a_sent_append_unknown_and_a_sent_read_late() {
    let (client, _fake, mut peer) = Fake::with_client(|options| options.deadline(SHORT)).await;
    let (outcome, _) = tokio::join!(append(&client, "s").send(), peer.request());
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::Unknown { idempotency_key: None, .. }), "{error}");
    assert_eq!(error.remedy(), Remedy::ReadThenDecide);
    let keyed = append(&client, "s").idempotency_key(KEY);
    let (outcome, _) = tokio::join!(keyed.send(), peer.request());
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::Unknown { idempotency_key: Some(KEY), .. }), "{error}");
    let reading = client.read("s");
    let (outcome, _) = tokio::join!(reading.page(), peer.request());
    assert!(matches!(outcome.unwrap_err(), Error::Deadline { .. }));
}

#[tokio::test]
async fn a_late_answer_meets_no_other_call() {
    let (client, _fake, mut peer) = Fake::with_client(|options| options).await;
    let (late, first) = tokio::join!(append(&client, "s").deadline(SHORT).send(), peer.request());
    assert!(matches!(late, Err(Error::Unknown { .. })));
    let (receipt, ()) = tokio::join!(append(&client, "s").send(), async {
        let second = peer.request().await;
        peer.receipt(first.correlation, 1).await;
        peer.receipt(second.correlation, 2).await;
    });
    assert_eq!(receipt.unwrap().first_lsn, Lsn(2));
}

#[tokio::test]
async fn answers_in_any_order_meet_their_calls() {
    let (client, _fake, mut peer) = Fake::with_client(|options| options).await;
    let (one, two, three, ()) = tokio::join!(
        append(&client, "s").send(),
        append(&client, "s").send(),
        append(&client, "s").send(),
        async {
            let requests = [peer.request().await, peer.request().await, peer.request().await];
            for (request, lsn) in requests.iter().zip([1, 2, 3]).rev() {
                peer.receipt(request.correlation, lsn).await;
            }
        }
    );
    let lsns = [one, two, three].map(|receipt| receipt.unwrap().first_lsn);
    assert_eq!(lsns, [Lsn(1), Lsn(2), Lsn(3)], "calls leave in the order they were started");
}

#[tokio::test]
async fn an_append_without_key_is_never_repeated() {
    let (client, fake, mut peer) = Fake::with_client(|options| options).await;
    let (outcome, ()) = tokio::join!(append(&client, "s").send(), async {
        peer.request().await;
        drop(peer);
    });
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::Unknown { idempotency_key: None, .. }), "{error}");
    let (pong, ()) = tokio::join!(client.ping(), async { fake.peer().await.expect_ping().await });
    assert_eq!(pong, Ok(()));
}

#[tokio::test]
async fn an_append_with_key_is_repeated_as_it_was_after_a_lost_connection() {
    let (client, fake, mut peer) = Fake::with_client(|options| options).await;
    let (receipt, ()) = tokio::join!(append(&client, "s").retry().send(), async {
        let first = peer.request().await;
        drop(peer);
        let mut peer = fake.peer().await;
        let second = peer.request().await;
        assert_eq!(first.body, second.body);
        assert_ne!(first.correlation, second.correlation);
        peer.receipt_with(second.correlation, 5, true).await;
    });
    assert!(receipt.unwrap().replayed);
}

#[tokio::test]
async fn the_servers_unknown_is_asked_again_only_with_a_key() {
    let (client, _fake, mut peer) = Fake::with_client(|options| options).await;
    let unknown = ErrorFrame::new(ErrorCode::Unknown);
    let (outcome, ()) = tokio::join!(append(&client, "s").send(), async {
        let request = peer.request().await;
        peer.error(request.correlation, unknown, "perhaps").await;
    });
    assert!(matches!(outcome, Err(Error::Unknown { idempotency_key: None, .. })));
    let (outcome, ()) = tokio::join!(append(&client, "s").retry().send(), async {
        let request = peer.request().await;
        peer.error(request.correlation, unknown, "perhaps").await;
        let request = peer.request().await;
        peer.receipt(request.correlation, 3).await;
    });
    assert_eq!(outcome.unwrap().first_lsn, Lsn(3));
}

#[tokio::test]
async fn a_refusal_does_not_hide_an_attempt_that_was_lost() {
    let (client, fake, mut peer) = Fake::with_client(|options| options).await;
    let call = append(&client, "s").idempotency_key(KEY).deadline(SHORT);
    let server = async {
        peer.request().await;
        drop(peer);
        let mut peer = fake.peer().await;
        loop {
            let request = peer.request().await;
            let full = ErrorFrame::new(ErrorCode::DiskFull);
            peer.error(request.correlation, full, "no space").await;
        }
    };
    let outcome = tokio::select! {
        outcome = call.send() => outcome,
        () = server => unreachable!("it serves for ever"),
    };
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::Unknown { idempotency_key: Some(KEY), .. }), "{error}");
}

#[tokio::test]
async fn busy_is_waited_out_with_a_key_and_told_without() {
    let (client, _fake, mut peer) = Fake::with_client(|options| options).await;
    let (outcome, ()) = tokio::join!(append(&client, "s").send(), async {
        let request = peer.request().await;
        peer.error(request.correlation, busy(70), "too much").await;
    });
    let expected = Error::Busy { retry_after: Duration::from_millis(70), text: "too much".into() };
    assert_eq!(outcome.unwrap_err(), expected);

    let (outcome, waited) = tokio::join!(append(&client, "s").retry().send(), async {
        let request = peer.request().await;
        let refused_at = Instant::now();
        peer.error(request.correlation, busy(70), "too much").await;
        let request = peer.request().await;
        let waited = refused_at.elapsed();
        peer.receipt(request.correlation, 3).await;
        waited
    });
    assert_eq!(outcome.unwrap().first_lsn, Lsn(3));
    assert!(waited >= Duration::from_millis(70), "asked again after {waited:?}");
}

#[tokio::test]
async fn busy_beyond_the_deadline_is_told_at_once() {
    let (client, _fake, mut peer) = Fake::with_client(|options| options).await;
    let (outcome, ()) = tokio::join!(append(&client, "s").retry().send(), async {
        let request = peer.request().await;
        peer.error(request.correlation, busy(3_600_000), "too much").await;
    });
    assert!(matches!(outcome, Err(Error::Busy { .. })));
}

#[tokio::test]
async fn each_refusal_has_its_type_and_is_not_repeated() {
    let (client, _fake, mut peer) = Fake::with_client(|options| options).await;
    let frame = |code| ErrorFrame::new(code).stream(1);
    let text = || "text".to_owned();
    let numbers = |code| frame(code).numbers(3, 5);
    let conflict = ErrorFrame::conflict(1, Expect::Exact(Revision(8)), Revision(0));
    let cases = [
        (
            conflict,
            Error::Conflict {
                stream: "b".into(),
                expected: Expect::Exact(Revision(8)),
                actual: None,
            },
        ),
        (numbers(ErrorCode::Fenced), Error::Fenced { stream: "b".into(), given: 3, highest: 5 }),
        (numbers(ErrorCode::TooLarge), Error::TooLarge { size: 3, limit: 5, text: text() }),
        (
            frame(ErrorCode::KeyReused),
            Error::KeyReused { idempotency_key: Some(KEY), text: text() },
        ),
        (
            numbers(ErrorCode::CrossShard),
            Error::CrossShard { first: ShardId(3), other: ShardId(5), text: text() },
        ),
        (frame(ErrorCode::DiskFull), Error::DiskFull { text: text() }),
        (numbers(ErrorCode::Damaged), Error::Damaged { first: Lsn(3), last: Lsn(5), text: text() }),
        (frame(ErrorCode::BadRequest), Error::BadRequest { text: text() }),
        (frame(ErrorCode::BadFrame), Error::Protocol { text: text() }),
    ];
    for (sent, expected) in cases {
        let call = append(&client, "a").and_stream("b").idempotency_key(KEY);
        let (outcome, ()) = tokio::join!(call.send(), async {
            let request = peer.request().await;
            peer.error(request.correlation, sent, "text").await;
        });
        assert_eq!(outcome.unwrap_err(), expected);
    }
    let (pong, ()) = tokio::join!(client.ping(), peer.expect_ping());
    assert_eq!(pong, Ok(()));
}

#[tokio::test]
async fn what_the_server_would_refuse_is_not_sent() {
    let (client, _fake, mut peer) = Fake::with_client(|options| options).await;
    let bad = |outcome| matches!(outcome, Err(Error::BadRequest { .. }));
    assert!(bad(client.append("s").send().await), "no events");
    assert!(bad(append(&client, "").send().await));
    assert!(bad(append(&client, &"x".repeat(256)).send().await));
    assert!(bad(client.append("s").event(Event::new("", "")).send().await));
    let twins = append(&client, "s").and_stream("s");
    assert!(bad(twins.send().await));
    let large = client.append("s").event(Event::new("t", vec![0; 1 << 20]));
    let outcome = large.send().await;
    assert!(matches!(outcome, Err(Error::TooLarge { limit: 1_048_576, .. })), "{outcome:?}");
    let fits = client.append("s").event(Event::new("t", vec![0; (1 << 20) - 1]));
    let (outcome, ()) = tokio::join!(fits.send(), async {
        let request = peer.request().await;
        peer.receipt(request.correlation, 1).await;
    });
    assert!(outcome.is_ok());
}

#[tokio::test]
async fn a_receipt_that_does_not_fit_is_no_proof() {
    let (client, _fake, mut peer) = Fake::with_client(|options| options).await;
    let two = append(&client, "s").event(Event::new("t", ""));
    let (outcome, ()) = tokio::join!(two.send(), async {
        let request = peer.request().await;
        peer.receipt(request.correlation, 1).await;
    });
    assert!(matches!(outcome, Err(Error::Unknown { .. })));
}

#[tokio::test]
async fn no_more_is_in_flight_than_the_server_allows_and_dropped_calls_are_not_sent() {
    let mut fake = Fake::start().await;
    fake.accepted.requests_max = 2;
    let (client, mut peer) = tokio::join!(Client::connect(&fake.address), fake.peer());
    let client = client.unwrap();
    let start = |stream: &str| tokio::spawn(append(&client, stream).send());
    let (first, second) = (start("1"), start("2"));
    let requests = [peer.request().await, peer.request().await];
    let third = start("3");
    let fourth = start("4");
    tokio::task::yield_now().await;
    third.abort();
    assert!(third.await.unwrap_err().is_cancelled());
    peer.receipt(requests[0].correlation, 1).await;
    let next = peer.request().await;
    assert_eq!(view(&next).streams().next().unwrap().name, b"4");
    peer.receipt(requests[1].correlation, 2).await;
    peer.receipt(next.correlation, 4).await;
    for (call, lsn) in [(first, 1), (second, 2), (fourth, 4)] {
        assert_eq!(call.await.unwrap().unwrap().first_lsn, Lsn(lsn));
    }
}
