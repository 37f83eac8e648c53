//! Reads that trust no clock: the leader proves by its follower or the bucket that it leads.

use std::time::Duration;

use duolog_engine::append::Expect;
use duolog_net::wire::{Consistency, ErrorCode, ReadStream};
use duolog_tests::pair::{Pair, PairOptions, Timing};
use duolog_tests::process::{Answer, Operation, Wire, pause, quiet};

fn found() -> Pair {
    Pair::found(PairOptions { timing: Timing::Calm, ..PairOptions::default() })
}

fn confirmed() -> ReadStream<'static> {
    let mut read = ReadStream::new("orders");
    read.consistency = Consistency::Confirmed;
    // A connection may ask for so many pages at once.
    read.bytes_max = 64 << 10;
    read
}

fn append(wire: &mut Wire, number: u128, data: &[u8]) {
    let operation = Operation::single(number << 32, "orders", Expect::Any, data);
    wire.append(&operation.request()).receipt();
}

fn events(answer: Answer) -> Result<usize, ErrorCode> {
    match answer {
        Answer::Stream(page) => Ok(page.events.len()),
        other => Err(other.refused().code),
    }
}

fn ask(wire: &mut Wire) -> Result<usize, ErrorCode> {
    let asked = wire.send_read(&confirmed()).expect("it is sent");
    events(wire.answer_to(asked).expect("it is answered"))
}

/// More reads than a shard serves at once wait for a proof that does not come: others pass them.
fn keeps_nobody_waiting(leader: &mut Wire) {
    let mut waiting: Vec<u64> =
        (0..80).map(|_| leader.send_read(&confirmed()).expect("it is sent")).collect();
    let any = ReadStream { consistency: Consistency::Any, ..confirmed() };
    let asked = leader.send_read(&any).expect("it is sent");
    assert_eq!(leader.answer_to(asked).map(events).expect("it is answered first"), Ok(2));
    while !waiting.is_empty() {
        let (answered, answer) = leader.receive().expect("it is answered");
        assert_eq!(events(answer), Err(ErrorCode::Busy));
        waiting.retain(|asked| *asked != answered);
    }
}

/// Promised (Q5): a confirmed read needs the follower or the bucket, and is refused without both.
/// Provoked: the bucket away, then the follower dead, then both out of reach.
/// Broken: a refusal while one of them answers; an answer that nobody vouches for; reads that need
/// no proof wait behind those that do.
#[test]
fn a_confirmed_read_needs_the_follower_or_the_bucket() {
    let _alone = quiet();
    let mut pair = found();
    let mut leader = Wire::connect(pair.options[0].address).expect("the leader takes clients");
    append(&mut leader, 7, b"first");
    pair.s3.faults().outage(true);
    let _ = pair.s3.faults().take_seen();
    assert_eq!(ask(&mut leader), Ok(1), "the follower vouches");
    assert!(pair.s3.faults().take_seen().is_empty(), "nobody asks the bucket");
    pair.s3.faults().outage(false);
    pair.kill(1);
    assert_eq!(ask(&mut leader), Ok(1), "the bucket vouches");
    append(&mut leader, 8, b"second");
    assert_eq!(ask(&mut leader), Ok(2));
    pair.start(1);
    assert_eq!(pair.healed(), 0, "nobody took over");
    pair.s3.faults().outage(true);
    pair.freeze(1, true);
    // A signal has come to all threads after a moment.
    pause(Duration::from_millis(200));
    assert_eq!(ask(&mut leader), Err(ErrorCode::Busy), "nobody vouches");
    keeps_nobody_waiting(&mut leader);
    pair.freeze(1, false);
    pair.s3.faults().outage(false);
    pair.until("reads are confirmed again", |_| ask(&mut leader).ok());
}

/// Promised: a leader that was paused and has a successor never answers from what it has.
/// Provoked: the request lies in its socket when it wakes, before it can have heard of anything.
/// Broken: a page without what the successor has acknowledged.
#[test]
fn a_paused_leader_that_wakes_up_confirms_nothing() {
    let _alone = quiet();
    let pair = found();
    let mut old = Wire::connect(pair.options[0].address).expect("the leader takes clients");
    append(&mut old, 7, b"first");
    assert_eq!(ask(&mut old), Ok(1));
    pair.freeze(0, true);
    pair.until_leads(1);
    let mut new = Wire::connect(pair.options[1].address).expect("the successor takes clients");
    append(&mut new, 8, b"second");
    let asked = old.send_read(&confirmed()).expect("it lies in the socket");
    pause(Duration::from_millis(50));
    pair.freeze(0, false);
    let answer = old.answer_to(asked).map(events);
    assert!(
        !matches!(answer, Ok(Ok(count)) if count < 2),
        "a page of the old leader: {answer:?}\n{}",
        pair.story()
    );
    assert_eq!(pair.healed(), 1, "the successor leads on");
}
