//! Idempotency keys and fencing tokens.

use duolog_engine::append::{AppendBuilder, Expect};
use duolog_engine::ids::{IdempotencyKey, Revision};
use duolog_net::wire::ErrorCode;
use duolog_tests::process::{Answer, Operation, Receipt, Server, ServerOptions, Wire, scratch};

/// Expectations of a retry to a stream that had one event before the first try and more since.
const EXPECTATIONS: [Expect; 6] = [
    Expect::Any,
    Expect::NoStream,
    Expect::StreamExists,
    // As in the first try; what it would have to be now; one that never held.
    Expect::Exact(Revision(0)),
    Expect::Exact(Revision(2)),
    Expect::Exact(Revision(77)),
];

fn connect(server: &Server) -> Wire {
    Wire::connect(server.address()).expect("the server takes clients")
}

/// An append whose every part can be chosen.
struct Draft<'a> {
    key: Option<u128>,
    token: Option<u64>,
    stream: &'a str,
    expect: Expect,
    id: u128,
    kind: &'a str,
    metadata: &'a [u8],
    data: &'a [u8],
    count: usize,
}

impl Draft<'_> {
    const fn first() -> Self {
        Self {
            key: Some(42),
            token: None,
            stream: "keyed",
            expect: Expect::Exact(Revision(0)),
            id: 5,
            kind: "kind",
            metadata: b"meta",
            data: b"data",
            count: 1,
        }
    }

    fn send(&self, wire: &mut Wire) -> Answer {
        wire.append(&self.request())
    }

    fn request(&self) -> AppendBuilder {
        let mut append = AppendBuilder::new();
        if let Some(key) = self.key {
            append.key(IdempotencyKey(key));
        }
        if let Some(token) = self.token {
            append.fencing_token(token);
        }
        append.stream(self.stream, self.expect).expect("the name fits");
        for _ in 0..self.count {
            let event = append.event(self.id, self.kind, self.metadata, self.data);
            event.expect("the event fits");
        }
        append
    }
}

/// Fills segments until what was there before lies in sealed ones.
fn fill(wire: &mut Wire, from: u128) {
    for number in from..from + 120 {
        let data = vec![1; 60 << 10];
        let operation = Operation::single(number << 32, "filler", Expect::Any, &data);
        wire.append(&operation.request()).receipt();
    }
}

/// The table of CASES of a key used again: same payload, or another one, under every expectation.
fn assert_table(wire: &mut Wire, first: &Receipt, when: &str) {
    let events = wire.stream("keyed").len();
    for expect in EXPECTATIONS {
        // The same append, whatever it expects, is the first one again; ids and tokens may be
        // chosen anew by a client that builds its request anew.
        for (id, token) in [(5, None), (6, None), (5, Some(1))] {
            let again = Draft { expect, id, token, ..Draft::first() };
            let receipt = again.send(wire).receipt();
            assert_eq!(receipt, first.replayed(), "{when}: {expect:?}, id {id}, {token:?}");
        }
        let others = [
            Draft { expect, data: b"other", ..Draft::first() },
            Draft { expect, metadata: b"other", ..Draft::first() },
            Draft { expect, kind: "other", ..Draft::first() },
            Draft { expect, stream: "other", ..Draft::first() },
            Draft { expect, count: 2, ..Draft::first() },
            // The same bytes, cut in another way.
            Draft { expect, metadata: b"metada", data: b"ta", ..Draft::first() },
        ];
        for other in &others {
            let refused = other.send(wire).refused();
            assert_eq!(refused.code, ErrorCode::KeyReused, "{when}: {expect:?}: {refused:?}");
        }
    }
    assert_eq!(wire.stream("keyed").len(), events, "{when}: nothing was appended");
    assert_eq!(wire.stream("other"), [], "{when}: nothing was appended");
}

/// Promised: a key is looked up before the expected revision. The same append again, under any
/// expectation, gets the first receipt marked as a replay; another one under the same key is
/// refused as `KeyReused`, never called "already done". This holds after a stop, after a kill, and
/// when the first try lies in a sealed segment.
/// Provoked: every combination of same and other payload with every kind of expectation.
/// Broken: a second event; another receipt; a conflict in place of the replay.
#[test]
fn a_key_used_again_has_one_documented_answer() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).tiny_segments().start();
    let mut wire = connect(&server);
    let plain = |data| Draft { key: None, expect: Expect::Any, data, ..Draft::first() };
    plain(b"before").send(&mut wire).receipt();
    let first = Draft::first().send(&mut wire).receipt();
    assert_eq!((first.first_revision(), first.head.replayed), (1, false));
    plain(b"after").send(&mut wire).receipt();
    assert_table(&mut wire, &first, "at once");
    let server = server.restart();
    assert_table(&mut connect(&server), &first, "after a stop");
    let server = server.kill().start();
    let mut wire = connect(&server);
    assert_table(&mut wire, &first, "after a kill");
    fill(&mut wire, 1 << 40);
    assert_table(&mut wire, &first, "from a sealed segment");
    let server = server.kill().start();
    assert_table(&mut connect(&server), &first, "from a sealed segment, after a kill");
}

/// Promised: the retry of an append that is still in flight waits for it and gets its receipt; the
/// retry of a refused append is judged anew.
/// Provoked: the same append sent three times in one go, many times; a conflict, then what it
/// expected, then the same append again.
/// Broken: two events; a refused append remembered as done, or as in flight for ever.
#[test]
fn a_key_in_flight_or_refused_leaves_no_ghost() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).start();
    let mut wire = connect(&server);
    for number in 0..200 {
        let draft = Draft { key: Some(1000 + number), expect: Expect::Any, ..Draft::first() };
        let mut fresh = 0;
        let mut receipts = Vec::new();
        for _ in 0..3 {
            wire.send_append(&draft.request()).expect("the socket takes it");
        }
        for _ in 0..3 {
            let (_, answer) = wire.receive().expect("it is answered");
            let receipt = answer.receipt();
            fresh += usize::from(!receipt.head.replayed);
            receipts.push(receipt.replayed());
        }
        assert_eq!(fresh, 1);
        assert!(receipts.iter().all(|receipt| *receipt == receipts[0]), "{receipts:?}");
    }
    assert_eq!(wire.stream("keyed").len(), 200);
    let early = Draft { key: Some(7), stream: "later", ..Draft::first() };
    for _ in 0..3 {
        assert_eq!(early.send(&mut wire).refused().code, ErrorCode::Conflict);
    }
    let opening = Draft { key: Some(8), expect: Expect::NoStream, stream: "later", ..early };
    opening.send(&mut wire).receipt();
    let early = Draft { key: Some(7), stream: "later", ..Draft::first() };
    let receipt = early.send(&mut wire).receipt();
    assert_eq!((receipt.first_revision(), receipt.head.replayed), (1, false));
}

/// Promised: the window of remembered keys is bounded by `log.idempotency_window`, in appends of a
/// shard; an append within it is recognised, also after a restart; one that has left it is new.
/// Provoked: a window of 100; 250 appends; retries of all of them, before and after a kill.
/// Broken: a key forgotten too early; memory without bound (seen as one remembered too long).
#[test]
fn the_window_of_keys_is_bounded_and_survives() {
    const WINDOW: u128 = 100;
    let scratch = scratch();
    let options = ServerOptions::new(scratch.path()).flag("log-idempotency-window", "100");
    let mut server = options.start();
    let mut wire = connect(&server);
    let numbered = |number: u128| {
        let data = number.to_le_bytes();
        Operation::single(number << 32, "window", Expect::Any, &data).request()
    };
    let receipts: Vec<Receipt> =
        (1..=250).map(|number| wire.append(&numbered(number)).receipt()).collect();
    for state in ["at once", "after a kill", "after a stop"] {
        let mut wire = connect(&server);
        for number in 250 - WINDOW + 1..=250 {
            let receipt = wire.append(&numbered(number)).receipt();
            assert_eq!(receipt, receipts[number as usize - 1].replayed(), "{number} {state}");
        }
        assert_eq!(wire.stream("window").len(), 250, "{state}");
        server = match state {
            "at once" => server.kill().start(),
            _ => server.restart(),
        };
    }
    let mut wire = connect(&server);
    let receipt = wire.append(&numbered(150)).receipt();
    assert_eq!((receipt.first_revision(), receipt.head.replayed), (250, false));
    // That one has pushed out the oldest of the others.
    assert!(!wire.append(&numbered(151)).receipt().head.replayed);
    assert!(wire.append(&numbered(153)).receipt().head.replayed);
}

/// Promised: appends without a key are never taken for one another.
/// Provoked: the same bytes sent a hundred times, in one go.
/// Broken: fewer events than receipts.
#[test]
fn appends_without_a_key_all_count() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).start();
    let mut wire = connect(&server);
    let draft = Draft { key: None, expect: Expect::Any, ..Draft::first() };
    for _ in 0..100 {
        wire.send_append(&draft.request()).expect("the socket takes it");
    }
    for revision in 0..100 {
        let (_, answer) = wire.receive().expect("it is answered");
        let receipt = answer.receipt();
        assert_eq!((receipt.first_revision(), receipt.head.replayed), (revision, false));
    }
    assert_eq!(wire.stream("keyed").len(), 100);
}

fn assert_fenced(wire: &mut Wire, when: &str) {
    let with = |token| Draft { key: None, token, expect: Expect::Any, ..Draft::first() };
    for lower in [0, 1, 8] {
        let refused = with(Some(lower)).send(wire).refused();
        let told = (refused.code, refused.a, refused.b, refused.stream_index);
        assert_eq!(told, (ErrorCode::Fenced, lower, 9, Some(0)), "{when}");
    }
    with(Some(9)).send(wire).receipt();
    // Whoever gives no token is not fenced, and does not lower it.
    with(None).send(wire).receipt();
    assert_eq!(with(Some(8)).send(wire).refused().code, ErrorCode::Fenced, "{when}");
}

/// Promised: a stream keeps the highest fencing token it has seen; lower ones are refused, with
/// both numbers; this holds across restarts, and when the token lies in an old sealed segment.
/// Provoked: tokens below, at and above the highest, at once, after a kill, after segments were
/// filled, and after a cold start with few stream heads in memory.
/// Broken: a lower token accepted; an equal or higher one refused; a token forgotten.
#[test]
fn the_highest_fencing_token_is_kept() {
    let scratch = scratch();
    let options = ServerOptions::new(scratch.path()).tiny_segments();
    let server = options.start();
    let mut wire = connect(&server);
    for token in [3, 3, 9] {
        let draft = Draft { key: None, token: Some(token), expect: Expect::Any, ..Draft::first() };
        draft.send(&mut wire).receipt();
    }
    assert_fenced(&mut wire, "at once");
    let server = server.kill().start();
    let mut wire = connect(&server);
    assert_fenced(&mut wire, "after a kill");
    fill(&mut wire, 1 << 40);
    assert_fenced(&mut wire, "with events in an old and the newest segment");
    fill(&mut wire, 2 << 40);
    server.kill();
    let server = options.flag("memory-hot-streams", "1").start();
    let mut wire = connect(&server);
    fill(&mut wire, 3 << 40);
    assert_fenced(&mut wire, "from a sealed segment, cold");
    // The token of an append counts for each of its streams, checked ones too.
    let mut append = AppendBuilder::new();
    append.fencing_token(5);
    append.stream("fresh", Expect::NoStream).expect("the name fits");
    append.event(1, "t", b"", b"").expect("the event fits");
    append.stream("keyed", Expect::Any).expect("the name fits");
    let refused = wire.append(&append).refused();
    let told = (refused.code, refused.stream_index, refused.b);
    assert_eq!(told, (ErrorCode::Fenced, Some(1), 9));
    assert_eq!(wire.stream("fresh"), []);
    let highest = Draft { key: None, token: Some(u64::MAX), expect: Expect::Any, ..Draft::first() };
    highest.send(&mut wire).receipt();
    let refused = Draft { token: Some(u64::MAX - 1), ..highest }.send(&mut wire).refused();
    assert_eq!((refused.code, refused.b), (ErrorCode::Fenced, u64::MAX));
}
