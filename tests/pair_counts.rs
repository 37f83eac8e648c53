//! What the nodes of a pair count, told by their status.

use duolog_net::wire::Copies;
use duolog_tests::pair::{Pair, PairOptions, Timing};
use duolog_tests::process::{Wire, one_event, quiet};
use serde_json::Value as Json;

const APPENDS: u64 = 40;

fn number(status: &Json, place: &str) -> u64 {
    let found = status.pointer(place).and_then(Json::as_u64);
    found.unwrap_or_else(|| panic!("no number at {place} in {status:#}"))
}

fn status(pair: &Pair, number: usize) -> Json {
    pair.until("it tells its status", |pair| pair.status(number)).0
}

/// Appends one after the other until so many had their second copy there; how many had it
/// elsewhere.
fn append(pair: &Pair, leader: usize, copies: Copies) -> u64 {
    let mut wire = Wire::connect(pair.options[leader].address).expect("the leader takes clients");
    let (mut right, mut others) = (0, 0);
    while right < APPENDS {
        let receipt = wire.append(&one_event("counted", "kind", b"", b"data")).receipt();
        *(if receipt.head.copies == copies { &mut right } else { &mut others }) += 1;
    }
    others
}

/// Promised: appends are counted by where their second copy was; blocks by when they had it; a
/// follower counts what it writes and no append; a new leader counts its own.
/// Provoked: 40 appends to a healthy pair, 40 more after the follower is killed, 40 to the follower
/// that has taken over from a leader that was stopped.
/// Broken: a number that is not moved by exactly as much.
#[test]
fn acks_are_counted_by_their_second_copy() {
    let _alone = quiet();
    let mut pair = Pair::found(PairOptions { timing: Timing::Calm, ..PairOptions::default() });
    let before = status(&pair, 0);
    let others = append(&pair, 0, Copies::ThisDiskAndPeer);
    let healthy = status(&pair, 0);
    let moved = |place| number(&healthy, place) - number(&before, place);
    assert_eq!(moved("/counts/acks/peer"), APPENDS, "{}", pair.story());
    assert_eq!(moved("/counts/acks/s3"), others);
    assert_eq!(moved("/latency/total/count"), APPENDS + others);
    assert_eq!(moved("/latency/replicate/count"), moved("/latency/commit/count"));
    assert_eq!(moved("/latency/commit/count"), APPENDS + others, "each was a block of its own");
    let follower = status(&pair, 1);
    assert!(number(&follower, "/latency/write/count") > 0);
    assert_eq!(number(&follower, "/latency/total/count"), 0);
    assert_eq!(number(&follower, "/latency/commit/count"), 0);

    pair.kill(1);
    let others = append(&pair, 0, Copies::ThisDiskAndS3);
    let alone = status(&pair, 0);
    let moved = |place| number(&alone, place) - number(&healthy, place);
    assert_eq!(moved("/counts/acks/s3"), APPENDS, "{}", pair.story());
    assert_eq!(moved("/counts/acks/peer"), others);
    assert_eq!(number(&alone, "/counts/acks/disk"), 0, "no append of a pair has one copy");
    assert_eq!(moved("/counts/events"), APPENDS + others);

    pair.start(1);
    assert_eq!(pair.healed(), 0, "{}", pair.story());
    pair.stop(0);
    pair.until_leads(1);
    append(&pair, 1, Copies::ThisDiskAndS3);
    let successor = status(&pair, 1);
    assert_eq!(number(&successor, "/counts/acks/s3"), APPENDS);
    assert_eq!(number(&successor, "/latency/total/count"), APPENDS);
}
