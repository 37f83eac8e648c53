//! The order of commits, and what may not leave before one.

use super::*;

fn write(first_lsn: u64, generation: u32, offset: u32) -> Action {
    let place = Place { generation: Generation(generation), offset };
    Action::Write { first_lsn: Lsn(first_lsn), blocks: 1, place, header: None }
}

/// Promise A1: blocks commit in the order of the log. Provoked by a disk that finishes the second
/// first; broken if the second append is answered before the first is durable.
#[test]
fn a_later_block_waits_for_the_earlier_one() {
    let mut config = config();
    config.block_target_bytes = 1;
    let mut bench = Bench::new(config);
    let (first, actions) = bench.ask(&any("a"));
    assert!(matches!(actions[..], [Action::Write { first_lsn: Lsn(1), header: Some(_), .. }]));
    let (second, actions) = bench.ask(&any("b"));
    assert_eq!(actions, [write(2, 1, 8192)]);
    assert_eq!(bench.written(2), []);
    let actions = bench.written(1);
    assert_eq!(answers(&actions), [(first.0, Ok(1)), (second.0, Ok(2))]);
    assert_eq!(actions.last(), Some(&Action::Committed { lsn: Lsn(2) }));
    assert_eq!(bench.shard.in_flight(), 0);
}

/// Promise A3: a refusal leaves no earlier than what it rests on. Provoked by a conflict with an
/// append in flight; broken if it is told before that append is durable.
#[test]
fn a_conflict_with_an_append_in_flight_waits_for_it() {
    let mut bench = Bench::new(config());
    let first = bench.quiet(&ask().event("a", Expect::NoStream));
    let second = bench.quiet(&ask().event("a", Expect::NoStream));
    let free = bench.ask(&ask().event("b", Expect::StreamExists));
    let conflict =
        |expected, next| Refusal::Conflict { stream_index: 0, expected, next: Revision(next) };
    let expected = [(free.0.0, Err(conflict(Expect::StreamExists, 0)))];
    assert_eq!(answers(&free.1), expected, "nothing uncommitted is known of b");
    let actions = bench.commit();
    let expected = [(first.0, Ok(1)), (second.0, Err(conflict(Expect::NoStream, 1)))];
    assert_eq!(answers(&actions), expected);
}

/// The same for a fencing token.
#[test]
fn a_fenced_writer_hears_of_it_when_the_higher_token_is_durable() {
    let mut bench = Bench::new(config());
    let first = bench.quiet(&any("a").token(9));
    let second = bench.quiet(&any("a").token(8));
    let fenced = Refusal::Fenced { stream_index: 0, given: 8, highest: 9 };
    let actions = bench.commit();
    assert_eq!(answers(&actions), [(first.0, Ok(1)), (second.0, Err(fenced))]);
    // Without a token nobody is fenced.
    bench.quiet(&any("a"));
}

/// Promise D3: a failed write ends the shard. Broken if a later block is written, an append is
/// accepted, or somebody waits for ever.
#[test]
fn a_failed_write_answers_everybody_and_nothing_follows() {
    let mut config = config();
    config.block_target_bytes = 1;
    config.blocks_in_flight_max = 1;
    let mut bench = Bench::new(config);
    let (written, _) = bench.ask(&any("a"));
    let queued = bench.quiet(&any("b"));
    let actions = bench.step(Event::WriteFailed);
    let unknown = [(written.0, Err(Refusal::Unknown)), (queued.0, Err(Refusal::Unknown))];
    assert_eq!(answers(&actions), unknown);
    assert_eq!(actions.last(), Some(&Action::Poisoned));
    for event in [Event::Flush, Event::Tick, Event::Drain, Event::WriteFailed] {
        assert_eq!(bench.step(event), []);
    }
    assert_eq!(bench.written(1), []);
    assert!(!bench.shard.wants_flush());
    let (late, actions) = bench.ask(&any("a"));
    assert_eq!(answers(&actions), [(late.0, Err(Refusal::ShuttingDown))]);
    assert_eq!(bench.shard.committed().lsn, Lsn(0));
}

/// Promise A5: a drain answers everything, then says so, and leaves a mark.
#[test]
fn a_drain_ends_when_the_last_append_is_durable() {
    let mut bench = Bench::new(config());
    let first = bench.quiet(&any("a"));
    let actions = bench.step(Event::Drain);
    assert_eq!(write_of(&actions[0]), Some(Lsn(1)));
    let (late, actions) = bench.ask(&any("a"));
    assert_eq!(answers(&actions), [(late.0, Err(Refusal::ShuttingDown))]);
    let actions = bench.written(1);
    assert_eq!(answers(&actions), [(first.0, Ok(1))]);
    let end = bench.shard.committed();
    assert_eq!(
        actions[1..],
        [Action::Committed { lsn: Lsn(1) }, Action::WriteMark { end }, Action::Drained]
    );
    assert_eq!(bench.step(Event::Drain), []);
}

/// Promise D4: a mark is written when the log has stood still from one tick to the next, once.
#[test]
fn a_log_that_stands_still_is_marked_once() {
    let mut bench = Bench::new(config());
    bench.quiet(&any("a"));
    assert_eq!(bench.step(Event::Tick), [], "nothing is committed");
    bench.commit();
    assert_eq!(bench.step(Event::Tick), [], "it may go on");
    let end = bench.shard.committed();
    assert_eq!(bench.step(Event::Tick), [Action::WriteMark { end }]);
    assert_eq!(bench.step(Event::Tick), []);
    bench.quiet(&any("a"));
    assert_eq!(bench.step(Event::Tick), []);
    assert_eq!(bench.step(Event::Tick), []);
}

/// Promise D1: new blocks are stamped later than those that a crash has cut off. Provoked by a
/// clock that stands still; broken if the same append becomes the same block again.
#[test]
fn an_append_after_a_crash_is_never_the_block_that_was_cut_off() {
    let mut bench = Bench::new(config());
    bench.quiet(&any("a"));
    bench.step(Event::Flush);
    let cut = bench.shard.in_memory_block(Lsn(1)).unwrap().to_vec();
    let stamp = crate::block::BlockHeader::decode(&cut).unwrap().hlc;
    let mut start = ShardStart::empty(&config(), 0);
    start.newest_stamp = stamp;
    let now = bench.now;
    let mut bench = Bench::start(config(), start, now);
    bench.quiet(&any("a"));
    bench.step(Event::Flush);
    let again = bench.shard.in_memory_block(Lsn(1)).unwrap();
    let again = crate::block::BlockHeader::decode(again).unwrap();
    assert_eq!(again.hlc, Hlc(stamp.0 + 1));
}

/// Promise A1: stamps grow, whatever the wall clock does.
#[test]
fn stamps_grow_when_the_wall_clock_runs_backwards() {
    let mut bench = Bench::new(config());
    let mut stamps = Vec::new();
    for wall in [5_000, 1, 0, u64::MAX, 3] {
        bench.now.wall = WallMs(wall);
        bench.quiet(&any("a"));
        bench.commit();
        stamps.push(bench.shard.committed().hlc);
    }
    assert!(stamps.is_sorted_by(|one, next| one < next), "{stamps:?}");
}

/// A full shard refuses at once and goes on when there is room again (promise A8).
#[test]
fn more_than_the_shard_may_have_in_flight_is_refused_as_busy() {
    let mut config = config();
    config.in_flight_max = 2;
    let mut bench = Bench::new(config);
    bench.quiet(&any("a"));
    bench.quiet(&any("b"));
    let (third, actions) = bench.ask(&any("c"));
    assert!(matches!(answers(&actions)[..], [(to, Err(Refusal::Busy { .. }))] if to == third.0));
    bench.commit();
    bench.quiet(&any("c"));
}

/// What can never fit is refused at once and takes no room (promise A8); what just fits is taken.
#[test]
fn an_append_fits_exactly_or_is_too_large() {
    let largest = (64 << 10) - 4096 - 160 - 64 - 1 - 8;
    let ask = |length: usize| ask().data("a", Expect::Any, &vec![0; length]);
    let mut bench = Bench::new(config());
    let (_, actions) = bench.ask(&ask(largest + 1));
    let too_large = Refusal::TooLarge { size: (64 << 10) - 4096 + 8, limit: (64 << 10) - 4096 };
    assert_eq!(answers(&actions), [(1, Err(too_large))]);
    bench.quiet(&ask(largest));
    let actions = bench.step(Event::Flush);
    assert_eq!(write_of(&actions[0]), Some(Lsn(1)));
    assert_eq!(bench.shard.in_memory_block(Lsn(1)).unwrap().len(), (64 << 10) - 4096);
}

/// Promise A8: no request ends in a block larger than readers take. Provoked by segments that have
/// room for one; broken if the machine panics instead of refusing, or puts two together.
#[test]
fn a_block_stays_below_its_limit_in_segments_of_any_size() {
    let mut config = config();
    config.layout.segment_size_bytes = 256 << 20;
    config.in_flight_max_bytes = 256 << 20;
    let limit = crate::limits::BLOCK_BODY_MAX_BYTES;
    let data = vec![0; limit];
    let asked = |length: usize| ask().data("a", Expect::Any, &data[..length]);
    let mut bench = Bench::new(config);
    let (to, actions) = bench.ask(&asked(limit));
    let refused = answers(&actions);
    assert!(matches!(refused[..], [(id, Err(Refusal::TooLarge { .. }))] if id == to.0));
    let small = bench.quiet(&any("a"));
    let (large, actions) = bench.ask(&asked(limit - 100));
    let writes: Vec<Lsn> = actions.iter().filter_map(write_of).collect();
    assert_eq!(writes, [Lsn(1), Lsn(2)], "a block each");
    let mut actions = bench.written(1);
    actions.extend(bench.written(2));
    assert_eq!(answers(&actions), [(small.0, Ok(1)), (large.0, Ok(2))]);
}
