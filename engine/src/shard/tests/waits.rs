//! Appends that wait for heads and segments.

use super::*;

fn load(stream: &str) -> Action {
    Action::LoadHead { stream: id(stream) }
}

/// More than what [`fill`] leaves of a segment.
fn large(stream: &str) -> Ask {
    ask().data(stream, Expect::Any, &[0; 30_000])
}

/// Fills both prepared segments but for 20 KiB, so that a large append waits for the next; the
/// last LSN.
fn fill(bench: &mut Bench) -> u64 {
    for _ in 0..5 {
        bench.ask(&ask().data("filler", Expect::Any, &[0; 20_000]));
        bench.commit();
    }
    assert_eq!(bench.shard.active_generation(), Some(Generation(2)));
    bench.shard.committed().lsn.0
}

/// Promise A2: appends to a stream keep the order in which they came. Provoked by one that has
/// its head and then finds no room, with another to its stream behind it that would fit; broken
/// if that one overtakes it.
#[test]
fn an_append_without_room_keeps_its_place_in_its_stream() {
    let mut bench = Bench::new(config());
    let before = fill(&mut bench);
    let (first, second) = (bench.quiet(&large("a")), bench.quiet(&any("a")));
    let actions = bench.ready(3);
    assert_eq!(answers(&actions), []);
    let actions = bench.commit();
    assert_eq!(answers(&actions), [(first.0, Ok(before + 1)), (second.0, Ok(before + 2))]);
}

/// The same with a stream that is cold: it waits for its head first, then for a segment.
#[test]
fn an_append_that_waited_for_a_head_then_waits_for_room_in_its_place() {
    let mut bench = Bench::new(config());
    let before = fill(&mut bench);
    bench.make_cold(&["cold"]);
    let (first, actions) = bench.ask(&large("cold"));
    assert_eq!(actions, [load("cold")]);
    let second = bench.quiet(&any("cold"));
    assert_eq!(bench.loaded("cold"), []);
    let third = bench.quiet(&any("cold"));
    bench.ready(3);
    let actions = bench.commit();
    let lsns = [Ok(before + 1), Ok(before + 2), Ok(before + 3)];
    assert!(answers(&actions).into_iter().eq([first.0, second.0, third.0].into_iter().zip(lsns)));
}

/// An append waits behind one that shares a stream and is not first itself.
#[test]
fn an_append_to_two_streams_waits_in_both_queues() {
    let mut bench = Bench::new(config());
    bench.make_cold(&["cold"]);
    let (first, actions) = bench.ask(&any("cold"));
    assert_eq!(actions, [load("cold")]);
    let second = bench.quiet(&any("cold").event("warm", Expect::Any));
    let third = bench.quiet(&any("warm"));
    let free = bench.quiet(&any("other"));
    assert_eq!(bench.loaded("cold"), []);
    let actions = bench.commit();
    let expected = [(free.0, Ok(1)), (first.0, Ok(2)), (second.0, Ok(3)), (third.0, Ok(5))];
    assert_eq!(answers(&actions), expected);
}

/// Promise A5: an append to more cold streams than the cache of heads holds is answered. Broken
/// if each head that comes pushes out another one, for ever.
#[test]
fn an_append_to_many_cold_streams_runs_with_a_small_cache() {
    let mut config = config();
    config.hot_streams_max = 2;
    let mut bench = Bench::new(config);
    let names: Vec<String> = (0..20).map(|number| format!("cold-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    bench.make_cold(&names);
    let all = names.iter().fold(ask(), |ask, name| ask.event(name, Expect::Exact(Revision(0))));
    let (to, actions) = bench.ask(&all);
    let loads: Vec<Action> = names.iter().map(|name| load(name)).collect();
    assert_eq!(actions, loads);
    for name in &names {
        assert_eq!(bench.loaded(name), [], "no head is asked for twice");
    }
    assert_eq!(answers(&bench.commit()), [(to.0, Ok(1))]);
}

/// Promise A5: a head that cannot be read ends the appends that need it, not those behind them.
#[test]
fn appends_behind_one_whose_head_is_damaged_run() {
    let mut bench = Bench::new(config());
    bench.make_cold(&["cold"]);
    let (first, _) = bench.ask(&any("cold").event("warm", Expect::Any));
    let second = bench.quiet(&any("warm"));
    let head = Err(LoadFailed);
    let actions = bench.step(Event::HeadLoaded { stream: id("cold"), head });
    assert_eq!(answers(&actions), [(first.0, Err(Refusal::Damaged))]);
    assert_eq!(answers(&bench.commit()), [(second.0, Ok(1))]);
    assert_eq!(bench.shard.in_flight(), 0);
}

/// A stream that only the filter knows begins at 0.
#[test]
fn a_stream_that_no_run_has_is_empty() {
    let mut bench = Bench::new(config());
    bench.make_cold(&["a"]);
    let (to, actions) = bench.ask(&ask().event("a", Expect::NoStream));
    assert_eq!(actions, [load("a")]);
    let actions = bench.step(Event::HeadLoaded { stream: id("a"), head: Ok(None) });
    assert_eq!(actions, []);
    assert_eq!(answers(&bench.commit()), [(to.0, Ok(1))]);
}

/// A full disk refuses what needs a segment and goes on with what does not; retries are answered,
/// and everything goes on when there is space again.
#[test]
fn a_full_disk_refuses_only_what_needs_a_segment() {
    let mut bench = Bench::new(config());
    bench.ask(&any("filler").key(5));
    let before = fill(&mut bench);
    let refused = bench.quiet(&large("a"));
    let retried = bench.quiet(&any("filler").key(5));
    let small = bench.quiet(&any("a"));
    let actions = bench.step(Event::SegmentRefused);
    let expected = [(refused.0, Err(Refusal::DiskFull)), (retried.0, Ok(1))];
    assert_eq!(answers(&actions), expected);
    let (again, actions) = bench.ask(&large("a"));
    assert_eq!(answers(&actions), [(again.0, Err(Refusal::DiskFull))]);
    assert_eq!(answers(&bench.commit()), [(small.0, Ok(before + 1))]);
    assert_eq!(bench.ready(3), []);
    let accepted = bench.quiet(&large("a"));
    assert_eq!(answers(&bench.commit()), [(accepted.0, Ok(before + 2))]);
}

/// A drain ends although its last request is answered by a segment that does not come.
#[test]
fn a_drain_ends_on_a_full_disk() {
    let mut bench = Bench::new(config());
    fill(&mut bench);
    let waiting = bench.quiet(&large("a"));
    assert_eq!(bench.step(Event::Drain), []);
    let actions = bench.step(Event::SegmentRefused);
    assert_eq!(answers(&actions), [(waiting.0, Err(Refusal::DiskFull))]);
    assert_eq!(actions.last(), Some(&Action::Drained));
}

/// A failed write tells those who wait that nothing was done.
#[test]
fn a_failed_write_answers_those_who_wait() {
    let mut bench = Bench::new(config());
    bench.make_cold(&["cold"]);
    let (first, _) = bench.ask(&any("cold"));
    let second = bench.quiet(&any("cold"));
    let actions = bench.step(Event::WriteFailed);
    let nothing = Refusal::ShuttingDown;
    assert_eq!(answers(&actions), [(first.0, Err(nothing)), (second.0, Err(nothing))]);
    assert_eq!(bench.loaded("cold"), []);
}
