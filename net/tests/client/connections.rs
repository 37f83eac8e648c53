//! Connecting, losing connections, finding another address.

use std::time::Duration;

use duolog_engine::append::AppendView;
use duolog_net::client::{Client, ClusterId, Error, Event, Lsn, ShardId};
use duolog_net::wire::{ErrorCode, ErrorFrame, FrameKind, Hello};
use tokio::net::TcpListener;

use crate::fake::{Fake, Peer, soon};

fn append(client: &Client) -> duolog_net::client::AppendCall {
    client.append("s").event(Event::new("t", "data"))
}

/// An address that refuses connections.
async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    listener.local_addr().expect("a bound port").to_string()
}

#[tokio::test]
async fn the_next_address_is_tried_when_one_refuses() {
    let fake = Fake::start().await;
    let list = format!("{}, {}", nobody().await, fake.address);
    let (client, mut peer) = tokio::join!(Client::connect(&list), fake.peer());
    let client = client.unwrap();
    assert_eq!((client.server().shard_count, client.server().address), (4, fake.address.clone()));
    let (pong, ()) = tokio::join!(client.ping(), peer.expect_ping());
    assert_eq!(pong, Ok(()));
}

#[tokio::test]
async fn no_address_that_answers_is_an_error_that_names_them() {
    let (one, two) = (nobody().await, nobody().await);
    let error = Client::connect(&format!("{one},{two}")).await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }));
    assert!(error.to_string().contains(&format!("{two}: ")), "{error}");
    let error = Client::connect("").await.unwrap_err();
    assert!(error.to_string().contains("no address was given"), "{error}");
}

#[tokio::test]
async fn a_refused_hello_is_told() {
    let fake = Fake::start().await;
    let cases = [
        (ErrorCode::UnsupportedVersion, "Protocol"),
        (ErrorCode::BadRequest, "BadRequest"),
        (ErrorCode::Busy, "Connect"),
    ];
    for (code, expected) in cases {
        let builder = Client::builder().addresses(&fake.address).bind_shard(ShardId(9));
        let (outcome, ()) = tokio::join!(builder.connect(), async {
            let mut peer = fake.stranger().await;
            let hello = peer.request().await;
            assert_eq!(Hello::decode(&hello.body).unwrap().shard, Some(ShardId(9)));
            peer.error(0, ErrorFrame::new(code), "no").await;
        });
        assert!(format!("{:?}", outcome.unwrap_err()).starts_with(expected));
    }
}

#[tokio::test]
async fn what_is_no_duolog_server_is_told() {
    let fake = Fake::start().await;
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0; 24]] {
        let (outcome, _) = tokio::join!(Client::connect(&fake.address), async {
            let mut peer = fake.stranger().await;
            peer.send(answer).await;
            peer
        });
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::Protocol { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_greet_is_left_within_the_limit() {
    let fake = Fake::start().await;
    let limit = Duration::from_millis(50);
    let builder = Client::builder().addresses(&fake.address).connect_timeout(limit);
    let (outcome, _silent) = tokio::join!(builder.connect(), fake.stranger());
    assert!(outcome.unwrap_err().to_string().contains("no hello within 50 ms"));
}

#[tokio::test]
async fn an_idle_connection_that_ended_costs_no_append() {
    let (client, fake, peer) = Fake::with_client(|options| options).await;
    drop(peer);
    let (outcome, ()) = tokio::join!(append(&client).send(), async {
        let mut peer = fake.peer().await;
        let request = peer.request().await;
        peer.receipt(request.correlation, 1).await;
    });
    assert_eq!(outcome.unwrap().first_lsn, Lsn(1));
}

#[tokio::test]
async fn a_server_that_is_gone_is_a_connect_error_at_the_deadline() {
    let short = Duration::from_millis(400);
    let (client, fake, peer) = Fake::with_client(|options| options.deadline(short)).await;
    drop((peer, fake));
    let error = append(&client).send().await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "nothing was sent: {error}");
    assert!(matches!(client.ping().await.unwrap_err(), Error::Connect { .. }));
}

#[tokio::test]
async fn garbage_from_the_server_ends_the_connection_and_no_other_call() {
    let (client, fake, mut peer) = Fake::with_client(|options| options).await;
    let unasked = |peer: Peer, answer: Vec<u8>| async move {
        let mut peer = peer;
        peer.request().await;
        peer.send(&answer).await;
        assert_eq!(peer.next().await, None, "the client hangs up");
    };
    let (outcome, ()) = tokio::join!(append(&client).send(), unasked(peer, vec![0x55; 100]));
    assert!(matches!(outcome.unwrap_err(), Error::Unknown { .. }));

    let reading = client.read("s");
    let (outcome, ()) = tokio::join!(reading.page(), async {
        unasked(fake.peer().await, vec![0x55; 100]).await;
    });
    assert!(matches!(outcome.unwrap_err(), Error::Protocol { .. }));

    // A whole frame that answers nothing.
    let mut stray = Vec::new();
    duolog_net::wire::encode_frame(&mut stray, FrameKind::Pong, 999_999, b"");
    let (outcome, ()) = tokio::join!(append(&client).send(), async {
        unasked(fake.peer().await, stray).await;
    });
    assert!(matches!(outcome.unwrap_err(), Error::Unknown { .. }));

    peer = tokio::join!(client.ping(), async {
        let mut peer = fake.peer().await;
        peer.expect_ping().await;
        peer
    })
    .1;
    let (outcome, ()) = tokio::join!(append(&client).send(), async {
        let request = peer.request().await;
        peer.receipt(request.correlation, 4).await;
    });
    assert_eq!(outcome.unwrap().first_lsn, Lsn(4));
}

#[tokio::test]
async fn a_read_cut_in_the_middle_of_a_frame_is_asked_again() {
    let (client, fake, mut peer) = Fake::with_client(|options| options).await;
    let reading = client.read("s");
    let page = |correlation| {
        let mut out = Vec::new();
        let page = duolog_net::wire::StreamPage::begin(&mut out, correlation);
        let tail = duolog_net::client::StreamTail {
            next: duolog_net::client::Revision(0),
            stream_next: duolog_net::client::Revision(0),
            committed: Lsn(3),
            end: true,
        };
        page.finish_stream(&mut out, &tail);
        out
    };
    let (outcome, ()) = tokio::join!(reading.page(), async {
        let request = peer.request().await;
        peer.send(&page(request.correlation)[..40]).await;
        drop(peer);
        let mut peer = fake.peer().await;
        let request = peer.request().await;
        peer.send(&page(request.correlation)).await;
    });
    assert_eq!(outcome.unwrap().tail.committed, Lsn(3));
}

#[tokio::test]
async fn a_server_that_falls_silent_is_left_for_another_address() {
    let (silent, other) = (Fake::start().await, Fake::start().await);
    let list = format!("{},{}", silent.address, other.address);
    let builder = Client::builder().addresses(&list).silence(Duration::from_millis(400));
    let (client, mut peer) = tokio::join!(builder.connect(), silent.peer());
    let client = client.unwrap();
    let (outcome, ()) = tokio::join!(append(&client).retry().send(), async {
        let request = peer.request().await;
        assert_eq!(peer.request().await.kind, FrameKind::Ping, "asked for a sign of life");
        let mut peer = other.peer().await;
        let repeated = peer.request_but_ping().await;
        assert_eq!(request.body, repeated.body);
        peer.receipt(repeated.correlation, 8).await;
    });
    assert_eq!(outcome.unwrap().first_lsn, Lsn(8));
    assert_eq!(client.server().address, other.address);
}

#[tokio::test]
async fn a_slow_server_that_gives_signs_of_life_is_kept() {
    let (client, _fake, mut peer) =
        Fake::with_client(|options| options.silence(Duration::from_millis(400))).await;
    let (outcome, ()) = tokio::join!(append(&client).send(), async {
        let request = peer.request().await;
        for _ in 0..3 {
            peer.expect_ping().await;
        }
        peer.receipt(request.correlation, 8).await;
    });
    assert_eq!(outcome.unwrap().first_lsn, Lsn(8));
}

#[tokio::test]
async fn a_stopping_server_is_left_for_another_address() {
    let (stopping, other) = (Fake::start().await, Fake::start().await);
    let list = format!("{},{}", stopping.address, other.address);
    // Silence alone would not make the client leave in time.
    let builder = Client::builder().addresses(&list).silence(Duration::from_secs(60));
    let (client, mut peer) = tokio::join!(builder.connect(), stopping.peer());
    let client = client.unwrap();
    let (outcome, ()) = tokio::join!(append(&client).retry().send(), async {
        let request = peer.request().await;
        let stopping = ErrorFrame::new(ErrorCode::ShuttingDown);
        peer.error(request.correlation, stopping, "stopping").await;
        let mut peer = other.peer().await;
        let repeated = peer.request().await;
        peer.receipt(repeated.correlation, 8).await;
    });
    assert_eq!(outcome.unwrap().first_lsn, Lsn(8));
}

#[tokio::test]
async fn another_cluster_at_the_same_address_gets_nothing() {
    let short = Duration::from_millis(400);
    let (client, mut fake, peer) = Fake::with_client(|options| options.deadline(short)).await;
    drop(peer);
    fake.accepted.cluster = ClusterId(77);
    let sending = tokio::spawn(append(&client).send());
    let mut stranger = fake.peer().await;
    assert_eq!(stranger.next().await, None, "the client hangs up");
    let error = sending.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("another cluster"), "{error}");
}

/// Answers appends until none comes for a while; returns their streams.
async fn serve_until_idle(peer: &mut Peer) -> Vec<String> {
    let (mut streams, idle) = (Vec::new(), Duration::from_millis(300));
    while let Ok(Some(request)) = tokio::time::timeout(idle, peer.next()).await {
        let append = AppendView::parse(&request.body, 1 << 20).expect("an append");
        streams.extend(
            append.streams().map(|stream| String::from_utf8_lossy(stream.name).into_owned()),
        );
        peer.receipt(request.correlation, 1).await;
    }
    streams
}

#[tokio::test]
async fn streams_spread_over_connections_and_keep_theirs() {
    let fake = Fake::start().await;
    let builder = Client::builder().addresses(&fake.address).connections(2);
    let (client, mut first) = tokio::join!(builder.connect(), fake.peer());
    let client = client.unwrap();
    let calls: Vec<_> = (0..40)
        .map(|number| {
            let stream = format!("s{}", number % 20);
            tokio::spawn(client.append(stream).event(Event::new("t", "")).send())
        })
        .collect();
    let mut second = fake.peer().await;
    let (one, two) = tokio::join!(serve_until_idle(&mut first), serve_until_idle(&mut second));
    assert_eq!(one.len() + two.len(), 40);
    assert!(!one.is_empty() && !two.is_empty());
    assert!(one.iter().all(|stream| !two.contains(stream)), "a stream keeps its connection");
    for call in calls {
        assert!(call.await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn the_connection_ends_with_the_last_handle() {
    let (client, _fake, mut peer) = Fake::with_client(|options| options).await;
    let copy = client.clone();
    drop(client);
    let (pong, ()) = tokio::join!(copy.ping(), peer.expect_ping());
    assert_eq!(pong, Ok(()));
    drop(copy);
    assert_eq!(soon("the end", peer.next()).await, None);
}
