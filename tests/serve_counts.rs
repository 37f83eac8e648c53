//! What a server counts, told by its status.

use duolog_engine::append::{AppendBuilder, Expect};
use duolog_engine::ids::{IdempotencyKey, Revision};
use duolog_net::wire::ErrorCode;
use duolog_tests::pair::Status;
use duolog_tests::process::{Server, ServerOptions, Wire, one_event, scratch};
use serde_json::Value as Json;

const APPENDS: u64 = 120;
const EVENTS_EACH: u64 = 3;

fn status(server: &Server) -> Json {
    Status::of(server.address()).expect("the server answers").0
}

fn number(status: &Json, place: &str) -> u64 {
    let found = status.pointer(place).and_then(Json::as_u64);
    found.unwrap_or_else(|| panic!("no number at {place} in {status:#}"))
}

fn writes(status: &Json) -> u64 {
    let shards = status["shards"].as_array().expect("shards");
    shards.iter().map(|shard| number(shard, "/writes")).sum()
}

/// An append of [`EVENTS_EACH`] events to one of twenty streams.
fn several(index: u64) -> AppendBuilder {
    let mut append = AppendBuilder::new();
    append.stream(&format!("counted-{}", index % 20), Expect::Any).expect("the name fits");
    for event in 0..EVENTS_EACH {
        let id = u128::from(index * EVENTS_EACH + event);
        append.event(id, "counted", b"", b"data").expect("the event fits");
    }
    append
}

/// Promised: every acknowledged append is counted once, with its events, in every stage that it
/// goes through, whichever shard it crosses to; every block once.
/// Provoked: 120 appends of three events over 20 streams through one connection to two shards.
/// Broken: any number that is not moved by exactly as much; a stage that takes longer than all of
/// the test; parts of a time that are longer than the whole.
#[test]
fn acknowledged_appends_are_counted_exactly() {
    let dir = scratch();
    let server = ServerOptions::new(dir.path()).shards(2).start();
    let before = status(&server);
    let mut wire = Wire::connect(server.address()).expect("the server takes clients");
    for index in 0..APPENDS {
        wire.append(&several(index)).receipt();
    }
    let after = status(&server);
    let moved = |place| number(&after, place) - number(&before, place);
    assert_eq!(moved("/counts/acks/disk"), APPENDS);
    assert_eq!(moved("/counts/events"), APPENDS * EVENTS_EACH);
    assert_eq!(moved("/counts/requests/append"), APPENDS);
    for place in ["acks/peer", "acks/s3", "replays", "requests/read_log", "refusals/busy"] {
        assert_eq!(number(&after, &format!("/counts/{place}")), 0, "{place}");
    }
    assert_eq!(moved("/latency/total/count"), APPENDS);
    assert_eq!(moved("/latency/queue/count"), APPENDS);
    assert_eq!(moved("/latency/commit/count"), writes(&after) - writes(&before));
    assert_eq!(moved("/latency/write/count"), writes(&after) - writes(&before));
    assert_eq!(number(&after, "/latency/replicate/count"), 0, "there is nobody to replicate to");
    let buckets = after["latency"]["total"]["buckets"].as_array().expect("buckets");
    assert_eq!(buckets.iter().map(|bucket| number(bucket, "/1")).sum::<u64>(), APPENDS);
    let sum = |stage: &str| number(&after, &format!("/latency/{stage}/sum_us"));
    assert!(sum("total") > sum("queue") && sum("commit") > 0, "{after:#}");
    assert!(number(&after, "/latency/total/p50_us") <= number(&after, "/latency/total/p999_us"));
    // One append in flight at a time: each is a block, and its time is what its block took.
    assert_eq!(sum("queue") + sum("commit"), sum("total"), "{after:#}");
    assert!(server.stop().code == Some(0));
}

/// Promised: every error that a client is sent is counted by its reason, and no refused or repeated
/// append as an acknowledged one.
/// Provoked: conflicts, a key used again with the same and with other events, a request that cannot
/// be parsed, a frame of a kind that no client sends.
/// Broken: a reason counted too little, too often or as another one.
#[test]
fn refusals_are_counted_by_their_reason() {
    let dir = scratch();
    let server = ServerOptions::new(dir.path()).shards(2).start();
    let mut wire = Wire::connect(server.address()).expect("the server takes clients");
    wire.append(&one_event("taken", "kind", b"", b"data")).receipt();
    for stream in ["taken", "absent"] {
        let mut append = AppendBuilder::new();
        append.stream(stream, Expect::Exact(Revision(7))).expect("the name fits");
        append.event(1, "kind", b"", b"data").expect("the event fits");
        assert_eq!(wire.append(&append).refused().code, ErrorCode::Conflict);
    }
    let keyed = |data: &[u8]| {
        let mut append = one_event("keyed", "kind", b"", data);
        append.key(IdempotencyKey(9));
        append
    };
    wire.append(&keyed(b"one")).receipt();
    assert!(wire.append(&keyed(b"one")).receipt().head.replayed);
    assert_eq!(wire.append(&keyed(b"two")).refused().code, ErrorCode::KeyReused);
    assert_eq!(wire.append_bytes(b"no append").refused().code, ErrorCode::BadRequest);
    assert!(wire.admin("{}").is_ok());
    wire.send(duolog_net::wire::FrameKind::Appended, b"").expect("it is sent");
    assert_eq!(wire.receive().expect("an answer").1.refused().code, ErrorCode::BadFrame);
    let counts = status(&server)["counts"].take();
    let expected = [
        ("/refusals/conflict", 2),
        ("/refusals/key_reused", 1),
        ("/refusals/bad_request", 1),
        ("/refusals/refused", 1),
        ("/refusals/bad_frame", 1),
        ("/refusals/not_leader", 0),
        ("/acks/disk", 2),
        ("/events", 2),
        ("/replays", 1),
        ("/requests/append", 7),
        ("/requests/admin", 2),
        ("/in_flight", 0),
    ];
    for (place, count) in expected {
        assert_eq!(number(&counts, place), count, "{place}: {counts:#}");
    }
    assert!(number(&counts, "/connections") >= 1);
}
