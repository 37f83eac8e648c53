//! Micro-figures of the index, printed: how long one step takes and what one stream costs.
//! `cargo test --release -p duolog-engine --test index_figures -- --ignored --nocapture`

use std::time::Instant;

use duolog_engine::ids::{Generation, IdempotencyKey, Place, Revision, StreamId};
use duolog_engine::index::heads::{Head, Heads};
use duolog_engine::index::keys::KeyWindow;
use duolog_engine::index::tail::{Tail, TailCapacity};
use duolog_engine::limits::IDEMPOTENCY_WINDOW_DEFAULT;

const MILLION: u64 = 1_000_000;

/// Uniform identities without hashing.
fn stream(number: u64) -> StreamId {
    let high = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    StreamId(u128::from(high ^ high >> 29) << 64 | u128::from(number))
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
#[ignore = "prints figures"]
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
                });
                heads.put(stream, Head { next_revision: head.next_revision.next(), ..head });
            }
        });
    }
}
