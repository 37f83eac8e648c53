//! Idempotency keys.

use super::*;

fn receipt_of(action: &Action) -> Option<Receipt> {
    match action {
        Action::Reply { outcome: Outcome::Appended(receipt), .. } => Some(*receipt),
        _ => None,
    }
}

/// Promise A6: a retry gets the original receipt, whatever it expects by now.
#[test]
fn a_retry_is_answered_with_the_first_receipt() {
    let mut bench = Bench::new(config());
    let asked = || ask().key(5).event("a", Expect::NoStream).event("b", Expect::Any);
    bench.quiet(&asked());
    let original = bench.commit().iter().find_map(receipt_of).unwrap();
    let (_, actions) = bench.ask(&asked());
    let replay = actions.iter().find_map(receipt_of).unwrap();
    assert_eq!(replay, Receipt { replayed: true, ..original });
    assert_eq!(bench.shard.committed().lsn, Lsn(2));
    assert_eq!(bench.shard.in_flight(), 0);
}

/// Promise A3 for retries: the first receipt is told when the first append is durable.
#[test]
fn a_retry_of_an_append_in_flight_waits_for_it() {
    let mut bench = Bench::new(config());
    let first = bench.quiet(&any("a").key(5));
    let retry = bench.quiet(&any("a").key(5));
    let other = bench.quiet(&any("b").key(5));
    let expected = [(first.0, Ok(1)), (retry.0, Ok(1)), (other.0, Err(Refusal::KeyReused))];
    assert_eq!(answers(&bench.commit()), expected);
}

/// What is not in memory any more is read from the log.
#[test]
fn an_old_append_is_replayed_from_its_record() {
    let mut config = config();
    config.recent_max_bytes = 0;
    let mut bench = Bench::new(config);
    bench.quiet(&any("a").key(5));
    bench.step(Event::Flush);
    let block = bench.shard.in_memory_block(Lsn(1)).unwrap().to_vec();
    bench.written(1);
    let place = Place { generation: Generation(1), offset: 4096 + 160 };
    let (to, actions) = bench.ask(&any("a").key(5));
    assert_eq!(actions, [Action::LoadReplay { to, place }]);
    assert_eq!(bench.shard.in_flight(), 1);
    let record = Ok(&block[160..]);
    let actions = bench.step(Event::ReplayLoaded { to, record });
    assert_eq!(answers(&actions), [(to.0, Ok(1))]);
    let (to, _) = bench.ask(&any("a").key(5));
    let actions = bench.step(Event::ReplayLoaded { to, record: Ok(&block[168..]) });
    assert_eq!(answers(&actions), [(to.0, Err(Refusal::Damaged))], "not a record");
    let (to, _) = bench.ask(&any("a").key(5));
    let actions = bench.step(Event::WriteFailed);
    assert_eq!(answers(&actions), [(to.0, Err(Refusal::Unknown))], "nobody waits for ever");
    let actions = bench.step(Event::ReplayLoaded { to, record: Ok(&block[160..]) });
    assert_eq!(actions, []);
}

/// The window is bounded: an append that has left it is a new one.
#[test]
fn a_key_outside_the_window_appends_again() {
    let mut config = config();
    config.idempotency_window = 2;
    let mut bench = Bench::new(config);
    for key in 1..=3 {
        bench.quiet(&any("a").key(key));
    }
    let inside = bench.quiet(&any("a").key(2));
    let outside = bench.quiet(&any("a").key(1));
    let answers = answers(&bench.commit());
    assert!(answers.contains(&(inside.0, Ok(2))));
    assert!(answers.contains(&(outside.0, Ok(4))));
}

/// An append that was refused has not used its key.
#[test]
fn a_refused_append_leaves_its_key_free() {
    let mut bench = Bench::new(config());
    let (_, actions) = bench.ask(&ask().key(5).event("a", Expect::StreamExists));
    assert!(matches!(answers(&actions)[..], [(1, Err(Refusal::Conflict { .. }))]));
    let to = bench.quiet(&ask().key(5).event("a", Expect::NoStream));
    assert_eq!(answers(&bench.commit()), [(to.0, Ok(1))]);
}
