//! Readers see what is committed, all of it, and nothing else (promises Q1 and Q2).

use super::*;
use crate::index::span::Direction;

const END: Revision = Revision(u64::MAX);

fn locate(bench: &Bench, from: u64, direction: Direction, max: usize) -> (Located, usize) {
    let mut places = Vec::new();
    let located = bench.shard.locate(id("a"), Revision(from), direction, max, &mut places);
    (located, places.len())
}

#[test]
fn an_append_in_flight_is_not_seen() {
    let mut bench = Bench::new(config());
    assert_eq!(bench.shard.stream_end(id("a")), StreamEnd::Known(Revision(0)));
    bench.quiet(&any("a"));
    bench.step(Event::Flush);
    assert_eq!(bench.shard.stream_end(id("a")), StreamEnd::Known(Revision(0)));
    assert_eq!(locate(&bench, 0, Direction::Forwards, 9), (Located::End, 0));
    assert_eq!(locate(&bench, END.0, Direction::Backwards, 9), (Located::End, 0));
    bench.written(1);
    assert_eq!(bench.shard.stream_end(id("a")), StreamEnd::Known(Revision(1)));
    assert_eq!(locate(&bench, 0, Direction::Forwards, 9), (Located::Places, 1));
    assert_eq!(locate(&bench, END.0, Direction::Backwards, 9), (Located::Places, 1));
}

/// Provoked by more events in flight than the page asked for; broken if the committed ones before
/// them are not found.
#[test]
fn a_read_backwards_finds_what_is_committed_behind_what_is_not() {
    let mut bench = Bench::new(config());
    for _ in 0..3 {
        bench.quiet(&any("a"));
    }
    bench.commit();
    for _ in 0..100 {
        bench.quiet(&any("a"));
    }
    assert_eq!(bench.shard.stream_end(id("a")), StreamEnd::Known(Revision(3)));
    assert_eq!(locate(&bench, END.0, Direction::Backwards, 2), (Located::Places, 2));
    assert_eq!(locate(&bench, 50, Direction::Backwards, 9), (Located::Places, 3));
    assert_eq!(locate(&bench, 1, Direction::Backwards, 9), (Located::Places, 2));
    assert_eq!(locate(&bench, 1, Direction::Forwards, 9), (Located::Places, 2));
    assert_eq!(locate(&bench, 3, Direction::Forwards, 9), (Located::End, 0));
}

/// The same when the events in flight are in the next segment already.
#[test]
fn a_read_backwards_goes_on_in_the_segment_before() {
    let mut bench = Bench::new(config());
    let large = || ask().data("a", Expect::Any, &[0; 40_000]);
    bench.quiet(&large());
    bench.commit();
    bench.ask(&large());
    assert_eq!(bench.shard.active_generation(), Some(Generation(2)));
    assert_eq!(bench.shard.stream_end(id("a")), StreamEnd::Known(Revision(1)));
    assert_eq!(locate(&bench, END.0, Direction::Backwards, 9), (Located::Places, 1));
    assert_eq!(locate(&bench, 0, Direction::Forwards, 9), (Located::Places, 1));
    assert_eq!(locate(&bench, 1, Direction::Forwards, 9), (Located::End, 0));
}

/// What is in no memory is looked for in the runs.
#[test]
fn a_forgotten_stream_is_looked_for_in_the_runs() {
    let mut bench = Bench::new(config());
    bench.make_cold(&["a"]);
    assert_eq!(bench.shard.stream_end(id("a")), StreamEnd::Sealed);
    assert_eq!(locate(&bench, 0, Direction::Forwards, 9), (Located::Sealed, 0));
}
