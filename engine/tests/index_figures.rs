//! Micro-figures of the index, printed: how long one step takes and what one stream costs.
//! `cargo test --release -p duolog-engine --test index_figures -- --ignored --nocapture`

use std::time::Instant;

use duolog_engine::ids::{
    ClusterId, Generation, Hlc, IdempotencyKey, LeaseEpoch, Lsn, Place, Revision, ShardId, StreamId,
};
use duolog_engine::index::heads::{Head, Heads};
use duolog_engine::index::keys::KeyWindow;
use duolog_engine::index::lookup::{Need, PostingLookup, Run};
use duolog_engine::index::merge::merge;
use duolog_engine::index::run::RunScope;
use duolog_engine::index::run_view::RunView;
use duolog_engine::index::run_writer::write_tail;
use duolog_engine::index::span::Direction;
use duolog_engine::index::tail::{Tail, TailCapacity, TailSlot};
use duolog_engine::limits::IDEMPOTENCY_WINDOW_DEFAULT;
use duolog_engine::segment::LogEnd;

const MILLION: u64 = 1_000_000;

/// Uniform identities, cheaper than hashing names (the finisher of splitmix64).
fn stream(number: u64) -> StreamId {
    let mix = |value: u64| {
        let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ value >> 31
    };
    let upper = mix(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    StreamId(u128::from(upper) << 64 | u128::from(mix(!upper)))
}

#[expect(clippy::disallowed_methods, reason = "measures; nothing is decided by it")]
fn timed<T>(what: &str, count: u64, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    let elapsed = start.elapsed();
    let each = elapsed.as_nanos() / u128::from(count);
    println!("{what}: {each} ns each, {} ms together", elapsed.as_millis());
    result
}

fn push_all(tail: &mut Tail, streams: u64) {
    for event in 0..MILLION {
        let offset = event as u32 * 72;
        tail.push(stream(event % streams), Revision(event / streams), offset, None);
    }
}

#[test]
#[ignore = "measures this machine and asserts no figure: run it by hand with --nocapture"]
fn figures_of_the_append_path() {
    let capacity = TailCapacity { streams: MILLION as usize, events: MILLION as usize };
    let mut tail = Tail::with_capacity(Generation(1), capacity);
    for streams in [MILLION, MILLION, 1, 1000] {
        tail.clear(Generation(1));
        let what = format!("tail push, {streams} streams");
        timed(&what, MILLION, || push_all(&mut tail, streams));
        let bytes = tail.used_bytes() / tail.stream_count();
        println!("  {bytes} bytes per stream");
    }
    let mut window = KeyWindow::new(IDEMPOTENCY_WINDOW_DEFAULT, 9);
    for round in 0..3 {
        timed(&format!("key window get + insert, round {round}"), MILLION, || {
            for number in round * MILLION..(round + 1) * MILLION {
                let key = IdempotencyKey(stream(number).0);
                assert_eq!(window.get(key), None);
                window.insert(key, Place { generation: Generation(1), offset: 8 });
            }
        });
    }
    let mut heads = Heads::with_capacity(7 << 17);
    heads.set_flushed(Generation(1));
    for round in 0..3 {
        timed(&format!("heads get + put, round {round}"), MILLION, || {
            for number in 0..MILLION {
                let stream = stream(number);
                let head = heads.get(stream).unwrap_or(Head {
                    next_revision: Revision(0),
                    fencing_token: 0,
                    last_generation: Generation(1),
                    tail_slot: TailSlot::NONE,
                });
                heads.put(stream, Head { next_revision: head.next_revision.next(), ..head });
            }
        });
    }
}

fn scope(generation: u32) -> RunScope {
    let end = LogEnd { lsn: Lsn(1), hash: [0; 32], hlc: Hlc(1), epoch: LeaseEpoch(0) };
    RunScope {
        cluster: ClusterId(1),
        shard: ShardId(0),
        first: Generation(generation),
        last: Generation(generation),
        state: end,
    }
}

/// One million streams over eight segments; half of each segment's streams go on in the next.
#[test]
#[ignore = "measures this machine and asserts no figure: run it by hand with --nocapture"]
fn figures_of_run_files() {
    const SEGMENTS: u32 = 8;
    let capacity = TailCapacity { streams: MILLION as usize, events: MILLION as usize };
    let mut tail = Tail::with_capacity(Generation(1), capacity);
    let whole = timed("million streams, tail -> run", MILLION, || {
        push_all(&mut tail, MILLION);
        write_tail(&tail, scope(1), Vec::new()).expect("memory does not fail")
    });
    println!("  file {} bytes, resident {}", whole.1.len(), whole.0.size_bytes());
    let runs: Vec<Vec<u8>> = timed("8 segments, tail -> run", MILLION, || {
        (0..SEGMENTS).map(|segment| eighth(&mut tail, segment)).collect()
    });
    let views: Vec<RunView<'_>> =
        runs.iter().map(|bytes| RunView::new(bytes).expect("just written")).collect();
    let (run, bytes) =
        timed("8 runs -> 1", MILLION, || merge(&views, Vec::new()).expect("just written"));
    println!("  {:?}, file {} bytes", run.header().counts, bytes.len());
    timed("filter", MILLION, || {
        let passed = (0..MILLION).filter(|number| run.may_contain(stream(number + MILLION)));
        println!("  {} of a million unknown streams pass", passed.count());
    });
    timed("open", 1, || RunView::new(&bytes).and_then(|view| view.open())).expect("just written");
    timed("look up an entry and its places", MILLION, || {
        let mut out = Vec::with_capacity(10);
        (0..MILLION).for_each(|number| look_up(&run, &bytes, stream(number), &mut out));
    });
}

/// Stream `n` has its first event in segment `n / 125000`, every second one another in the next.
fn eighth(tail: &mut Tail, segment: u32) -> Vec<u8> {
    let each = MILLION / 8;
    tail.clear(Generation(segment + 1));
    let first = u64::from(segment) * each;
    let again = (first.saturating_sub(each)..first).step_by(2).map(|number| (number, 1));
    for ((number, revision), index) in again.chain((first..first + each).map(|n| (n, 0))).zip(0..) {
        tail.push(stream(number), Revision(revision), index * 72, None);
    }
    write_tail(tail, scope(segment + 1), Vec::new()).expect("memory does not fail").1
}

fn look_up(run: &Run, bytes: &[u8], stream: StreamId, out: &mut Vec<Place>) {
    let page = |number: u32| &bytes[number as usize * 4096..][..4096];
    let mut lookup = run.look_up(stream);
    let entry = loop {
        match lookup.need() {
            Need::Page(number) => lookup.feed(page(number)).expect("just written"),
            Need::Done(entry) => break entry.expect("all streams are there"),
        }
    };
    out.clear();
    let from = Revision(0);
    let mut places = PostingLookup::new(run.header(), &entry, from, Direction::Forwards, 10);
    while let Need::Page(number) = places.need() {
        places.feed(page(number), out).expect("just written");
    }
    assert_eq!(out.len() as u64, entry.span.count);
}
