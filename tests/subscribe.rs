//! Subscriptions of one node: complete, in order, resumed exactly, and never in an append's way.

use std::time::Duration;

use duolog_engine::append::Expect;
use duolog_engine::ids::{Lsn, ShardId};
use duolog_engine::route::shard_of;
use duolog_net::client::{
    Bookmark, Client, Delivered, Delivery, Error, Event, Start, SubscribeCall, Subscription,
};
use duolog_net::wire::{FrameKind, Message, Origin, Scope, Subscribe};
use duolog_tests::process::{
    Crowd, CrowdPlan, Server, ServerOptions, Stopwatch, Wire, block_on, one_event, pause, run,
    scratch,
};

const SHARDS: u32 = 3;
/// Any wait ends long before.
const PATIENCE: Duration = Duration::from_secs(60);

/// What tells events apart: their place in the order of all shards, stream and revision.
type Mark = (u64, u32, u64, String, u64);

fn mark(delivered: &Delivered) -> Mark {
    let event = &delivered.event;
    let place = (event.hlc.0, delivered.shard.0, event.lsn.0);
    (place.0, place.1, place.2, event.stream.clone(), event.revision.0)
}

async fn client(server: &Server) -> Client {
    Client::connect(&server.address().to_string()).await.expect("the server takes clients")
}

async fn next(subscription: &mut Subscription) -> Delivery {
    let delivery = tokio::time::timeout(PATIENCE, subscription.next()).await;
    delivery.expect("something comes").expect("the subscription goes on")
}

/// Everything until the subscription has caught up.
async fn there(call: SubscribeCall) -> Vec<Delivered> {
    let mut subscription = call.open().expect("the beginning fits");
    let mut all = Vec::new();
    loop {
        match next(&mut subscription).await {
            Delivery::Event(delivered) => all.push(*delivered),
            Delivery::CaughtUp => return all,
        }
    }
}

/// All shards' logs, in the order of stamp, shard and LSN, read page by page.
fn whole(server: &Server) -> Vec<Mark> {
    let mut wire = Wire::connect(server.address()).expect("the server takes clients");
    let mut all = Vec::new();
    for shard in 0..SHARDS {
        let log = wire.log(shard, 1).into_iter();
        let marks = log
            .map(|event| (event.hlc.0, shard, event.lsn.0, event.stream.clone(), event.revision.0));
        all.extend(marks);
    }
    all.sort_unstable();
    all
}

fn plan(server: &Server, seed: u64) -> CrowdPlan {
    let pace = Duration::from_millis(1);
    CrowdPlan { writers: 4, window: 8, pace, ..CrowdPlan::new(server.address(), seed) }
}

/// Takes what comes until `count` events are there.
fn follow(server: &Server, stop: &std::sync::atomic::AtomicBool) -> Vec<Mark> {
    block_on(async {
        let client = client(server).await;
        let mut subscription = client.subscribe_all().open().expect("a subscription");
        let mut all = Vec::new();
        loop {
            let waits = Duration::from_millis(500);
            match tokio::time::timeout(waits, subscription.next()).await {
                Ok(Ok(Delivery::Event(delivered))) => all.push(mark(&delivered)),
                Ok(Ok(Delivery::CaughtUp)) => {}
                Ok(Err(error)) => panic!("{error}"),
                Err(_) if stop.load(std::sync::atomic::Ordering::Acquire) => return all,
                Err(_) => {}
            }
        }
    })
}

/// Promised (U1, O1): a subscription brings every event once, in the order of stamp, shard and LSN,
/// while they are appended as well as later.
/// Provoked: writers on all shards, small segments, a subscription from before the first event, one
/// that begins in the middle, and a replay.
/// Broken: an event that is missing, doubled or elsewhere in one of them.
#[test]
fn everything_comes_once_and_in_one_order_live_and_replayed() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).shards(SHARDS).tiny_segments().start();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (live, late) = std::thread::scope(|scope| {
        let live = scope.spawn(|| follow(&server, &stop));
        let crowd = Crowd::start(plan(&server, 7));
        pause(Duration::from_secs(2));
        let late = scope.spawn(|| follow(&server, &stop));
        pause(Duration::from_secs(2));
        drop(crowd.finish());
        stop.store(true, std::sync::atomic::Ordering::Release);
        (live.join().expect("no panic"), late.join().expect("no panic"))
    });
    let expected = whole(&server);
    assert!(expected.len() > 500, "{} events were appended", expected.len());
    assert_eq!(live, expected, "from before the first event on");
    assert_eq!(late, expected, "from the middle of the load on");
    let replayed = block_on(async { there(client(&server).await.subscribe_all()).await });
    assert_eq!(replayed.iter().map(mark).collect::<Vec<_>>(), expected, "replayed");
}

/// Promised (U1): a position goes on with the very next event, for every kind of subscription, also
/// after a restart of the server.
/// Provoked: subscriptions that begin behind events of a replay, within a block and between blocks.
/// Broken: one event too many or too few.
#[test]
fn a_position_goes_on_exactly() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).shards(SHARDS).tiny_segments().start();
    let crowd = Crowd::start(plan(&server, 8));
    pause(Duration::from_secs(1));
    drop(crowd.finish());
    // One block with many events, so that positions lie inside it.
    block_on(async {
        let events = (0..40).map(|number| Event::new("many", format!("{number}")));
        let append = client(&server).await.append("block").events(events).send();
        append.await.expect("it is appended");
    });
    let server = server.restart();
    block_on(async {
        let client = client(&server).await;
        let all = there(client.subscribe_all()).await;
        assert_eq!(all.iter().map(mark).collect::<Vec<_>>(), whole(&server));
        let stream = there(client.subscribe("block")).await;
        assert_eq!(stream.len(), 40);
        let shard = shard_of(b"block", SHARDS);
        let log = there(client.subscribe_shard(shard)).await;
        let calls: [(&Vec<Delivered>, SubscribeCall); 3] = [
            (&all, client.subscribe_all()),
            (&stream, client.subscribe("block")),
            (&log, client.subscribe_shard(shard)),
        ];
        for (whole, call) in calls {
            for at in [0, 1, whole.len() / 3, whole.len() - 30, whole.len() - 1] {
                let after: Bookmark =
                    whole[at].bookmark.to_string().parse().expect("a printed position");
                let rest = there(call.clone().from(Start::After(after))).await;
                let (rest, expected) = (
                    rest.iter().map(mark).collect::<Vec<_>>(),
                    whole[at + 1..].iter().map(mark).collect::<Vec<_>>(),
                );
                assert_eq!(rest, expected, "behind {after}");
            }
        }
        let of_type = there(client.subscribe_all().kind("many")).await;
        assert_eq!(of_type.len(), 40, "by type");
        let prefix = there(client.subscribe_prefix("bloc")).await;
        assert_eq!(prefix, stream_as_all(&stream), "by prefix");
        let from = there(client.subscribe("block").from(Start::At(38))).await;
        assert_eq!(from, stream[38..]);
        let wrong = client.subscribe("block").from(Start::After(all[0].bookmark)).open();
        assert!(matches!(wrong, Err(Error::BadRequest { .. })), "{wrong:?}");
    });
}

/// The same events with the positions that a subscription to several shards gives.
fn stream_as_all(events: &[Delivered]) -> Vec<Delivered> {
    let position = |delivered: &Delivered| duolog_net::client::Position {
        stamp: delivered.event.hlc,
        shard: delivered.shard,
        lsn: delivered.event.lsn,
    };
    let moved = events.iter().map(|delivered| Delivered {
        bookmark: Bookmark::Position(position(delivered)),
        ..delivered.clone()
    });
    moved.collect()
}

/// Promised (O1): whoever has seen an event before appending another one finds them in that order,
/// whichever shards they are in, even if the two only speak past the server.
/// Provoked: chains of appends, each in another shard and begun when the one before is
/// acknowledged, under load that keeps blocks open.
/// Broken: a link of the chain that lies before its predecessor.
#[test]
fn what_was_seen_before_an_append_lies_before_it() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).shards(SHARDS).start();
    let crowd = Crowd::start(CrowdPlan { pace: Duration::ZERO, ..plan(&server, 9) });
    let mut names: Vec<String> = Vec::new();
    for shard in 0..SHARDS {
        let name = (0..).map(|number| format!("chain-{number}"));
        let mut name = name.filter(|name| shard_of(name.as_bytes(), SHARDS) == ShardId(shard));
        names.push(name.next().expect("some name lives there"));
    }
    let count = 600_usize;
    let mut wires: Vec<Wire> = (0..SHARDS)
        .map(|_| Wire::connect(server.address()).expect("the server takes clients"))
        .collect();
    for number in 0..count {
        // Each shard's appends leave by another connection: no client carries anything over.
        let at = number % SHARDS as usize;
        let append = one_event(&names[at], "link", b"", number.to_string().as_bytes());
        wires[at].append(&append).receipt();
    }
    drop(crowd.finish());
    let links = block_on(async {
        there(client(&server).await.subscribe_prefix("chain-").kind("link")).await
    });
    let links: Vec<usize> = links
        .iter()
        .map(|link| String::from_utf8_lossy(&link.event.data).parse().expect("a number"))
        .collect();
    assert_eq!(links, (0..count).collect::<Vec<_>>());
}

/// Promised (U2): a subscriber that takes nothing is cut off with where it was, the server keeps no
/// more than its window for it, and appends do not wait for it; the library goes on by itself.
/// Provoked: a subscription with a small window that is read late, while appends go on.
/// Broken: no cut, a wrong place, an append that fails, an event missing or doubled.
#[test]
fn a_subscriber_that_takes_nothing_is_cut_off_and_can_go_on() {
    let scratch = scratch();
    let options = ServerOptions::new(scratch.path()).shards(1);
    let server = options.flag("limits-subscriber-stall-ms", "400").start();
    let mut wire = Wire::connect(server.address()).expect("the server takes clients");
    let data = vec![7_u8; 2_000];
    for _ in 0..100 {
        wire.append(&one_event("s", "t", b"", &data)).receipt();
    }
    let subscribe = Subscribe {
        shard: ShardId(0),
        scope: Scope::Log { prefix: "", system: false },
        origin: Origin::From(1),
        kind: None,
        window_bytes: 16 << 10,
    };
    let mut frame = Vec::new();
    subscribe.encode(&mut frame, 0).expect("it can be encoded");
    let body = frame.split_off(duolog_net::limits::FRAME_HEADER_BYTES);
    let mut slow = Wire::connect(server.address()).expect("the server takes clients");
    slow.patience(PATIENCE).expect("a limit");
    let asked = slow.send(FrameKind::Subscribe, &body).expect("it is sent");
    let (mut bytes, mut next) = (0, 1);
    let cut_off = loop {
        let frame = slow.receive_frame().expect("a frame comes");
        assert_eq!(frame.correlation, asked);
        match frame.message() {
            Message::Events(piece) => {
                bytes += piece.records.bytes().len();
                next = piece.tail.next;
            }
            Message::Error(error) => break (error.a, error.text.to_owned()),
            other => panic!("{other:?}"),
        }
    };
    assert!(cut_off.1.contains("limits.subscriber_stall_ms"), "{}", cut_off.1);
    assert_eq!(cut_off.0, next, "where it was");
    assert!((16 << 10..(16 << 10) + 2_200).contains(&bytes), "{bytes} bytes were sent ahead");
    block_on(async {
        let client = client(&server).await;
        let call = client.subscribe_shard(ShardId(0)).window(16 << 10);
        let mut subscription = call.open().expect("a subscription");
        let Delivery::Event(first) = self::next(&mut subscription).await else { panic!() };
        assert_eq!(first.event.lsn, Lsn(1));
        let watch = Stopwatch::start();
        while watch.elapsed() < Duration::from_millis(1_500) {
            // Its connection is served, its events are not taken.
            tokio::time::sleep(Duration::from_millis(20)).await;
            wire.append(&one_event("s", "t", b"", &data)).receipt();
        }
        let count = wire.log(0, 1).len() as u64;
        for lsn in 2..=count {
            let event = loop {
                match self::next(&mut subscription).await {
                    Delivery::Event(event) => break event,
                    Delivery::CaughtUp => {}
                }
            };
            assert_eq!(event.event.lsn, Lsn(lsn));
        }
        assert!(subscription.cut_offs() >= 1, "it was cut off");
    });
}

/// Promised: a cursor keeps a consumer's place in the log, moves in one append with what the
/// consumer writes, and not behind a second consumer's back; its own events are not among those
/// that are delivered.
/// Provoked: two handles on one cursor; an append that is refused.
/// Broken: a cursor that moves without the append, both handles moving, cursors among the events.
#[test]
fn a_cursor_moves_with_the_append_or_not_at_all() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).shards(SHARDS).start();
    block_on(async {
        let client = client(&server).await;
        let event = || Event::new("t", "1");
        client.append("in").event(event()).event(event()).send().await.expect("appended");
        let seen = there(client.subscribe_all()).await;
        let mut cursor = client.cursor_beside("copier", "out").await.expect("a cursor");
        let mut twin = client.cursor_beside("copier", "out").await.expect("a cursor");
        assert_eq!(cursor.bookmark(), None);
        let place = seen[0].bookmark;
        let append = client.append("out").event(event()).and_cursor(&cursor, place).send();
        cursor.moved(place, &append.await.expect("both are done"));
        assert_eq!(cursor.bookmark(), Some(place));
        // The second consumer does not know that.
        let append = client.append("out").event(event()).and_cursor(&twin, place).send().await;
        assert!(matches!(append, Err(Error::Conflict { .. })), "{append:?}");
        let place = seen[1].bookmark;
        let refused = client.append("out").expect(Expect::NoStream).event(event());
        let refused = refused.and_cursor(&cursor, place).send().await;
        assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
        twin.refresh().await.expect("it is read");
        assert_eq!(twin.bookmark(), Some(seen[0].bookmark), "nothing moved");
        twin.save(place).await.expect("it is moved");
        let again = client.cursor_beside("copier", "out").await.expect("a cursor");
        assert_eq!(again.bookmark(), Some(place));
        let rest = there(client.subscribe_all().from(Start::After(place))).await;
        let streams: Vec<_> = rest.iter().map(|one| one.event.stream.as_str()).collect();
        assert_eq!(streams, ["out"], "and no cursor");
        let system = there(client.subscribe_all().with_system()).await;
        assert_eq!(system.len(), 2 + 1 + 2, "unless it is wanted");
    });
}

/// Promised: a subscription belongs to its shard's connection, and ends with it.
/// Provoked: a subscription on another shard's connection, two with one number, a connection that
/// ends.
/// Broken: events of another shard, a subscription that lives on.
#[test]
fn subscriptions_end_with_their_connection() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).shards(SHARDS).start();
    let body = |shard| {
        let subscribe = Subscribe {
            shard: ShardId(shard),
            scope: Scope::Log { prefix: "", system: false },
            origin: Origin::End,
            kind: None,
            window_bytes: 0,
        };
        let mut frame = Vec::new();
        subscribe.encode(&mut frame, 0).expect("it can be encoded");
        frame.split_off(duolog_net::limits::FRAME_HEADER_BYTES)
    };
    for round in 0..200_u32 {
        let shard = round % SHARDS;
        let mut wire = Wire::connect_to(server.address(), Some(ShardId(shard))).expect("a hello").0;
        wire.send(FrameKind::Subscribe, &body(shard)).expect("it is sent");
        assert!(matches!(wire.receive_frame().expect("a piece").message(), Message::Events(_)));
    }
    let mut wire = Wire::connect_to(server.address(), Some(ShardId(0))).expect("a hello").0;
    wire.send(FrameKind::Subscribe, &body(1)).expect("it is sent");
    let frame = wire.receive_frame().expect("an answer");
    let Message::Error(error) = frame.message() else { panic!("{:?}", frame.message()) };
    assert!(error.text.contains("name shard 1 in the hello"), "{}", error.text);
    wire.append(&one_event("s", "t", b"", b"d")).receipt();
}

/// Promised: the bundled measurement of subscribers counts what it says.
/// Provoked: a small run beside events of others, and a replay of all of it.
/// Broken: events that are not counted, a replay of another number than the log has.
#[test]
fn the_measurement_of_subscribers_counts_every_event() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).shards(SHARDS).start();
    let address = server.address().to_string();
    let base = ["bench", "subscribe", "--addr", &address, "--json"];
    let load = ["--subscribers", "5", "--idle", "20", "--rate", "200", "--duration", "500ms"];
    for follow in ["stream", "prefix", "all"] {
        let ran = run(&[&base[..], &load, &["--follow", follow]].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let told = ran.json();
        assert_eq!((&told["events"], &told["missing"]), (&100.into(), &0.into()), "{told}");
        assert_eq!((&told["errors"], &told["cut_offs"]), (&0.into(), &0.into()), "{told}");
        assert!(told["receive"]["p50_us"].as_f64() > Some(0.0), "{told}");
    }
    let replay = run(&[&base[..], &["--replay"]].concat());
    assert_eq!(replay.json()["events"], 300, "{replay:?}");
}
