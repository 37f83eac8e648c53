//! Requests over a connection's limits.

use super::*;

#[test]
fn a_request_over_the_count_limit_is_busy_until_an_answer_is_queued() {
    let mut driven = Driven::greeted(Settings { requests_max: 2, ..Settings::default() });
    for correlation in 1..=3 {
        assert_eq!(driven.give(&append(correlation, b"x")), Flow::Read);
    }
    let answers = driven.answers();
    assert!(answers.len() == 1 && answers[0].starts_with("Busy 3 2 requests"), "{answers:?}");
    assert!(answers[0].contains("limits.connection_in_flight"));
    driven.answer_oldest();
    driven.give(&append(4, b"x"));
    assert_eq!(driven.answers(), ["Appended 1"]);
    assert_eq!(driven.seen.len(), 3);
    // A ping is a sign of life, not a request.
    driven.give(&frame(FrameKind::Ping, 5, b""));
    assert_eq!(driven.answers(), ["Pong 5"]);
}

/// A client that ignores its limit is refused a few times, then not read from until an answer is
/// on its way; nothing it sent is lost. Broken if each of its requests costs a refusal, or if the
/// rest is forgotten or never looked at.
#[test]
fn a_client_that_goes_on_over_its_limit_waits_for_an_answer() {
    let mut driven = Driven::greeted(Settings { requests_max: 2, ..Settings::default() });
    let flood: Vec<u8> = (1..=9).flat_map(|correlation| append(correlation, b"x")).collect();
    assert_eq!(driven.give(&flood), Flow::Pause);
    let refused =
        |answers: &[String]| answers.iter().filter(|answer| answer.starts_with("Busy")).count();
    assert_eq!((driven.seen.len(), refused(&driven.answers())), (2, 4));
    // What the node becomes is told meanwhile: it takes its answers.
    let standing = Standing { role: NodeRole::Leader, epoch: LeaseEpoch(3), leader: "" };
    driven.session.set_standing(&standing);
    assert_eq!(driven.answers().len(), 1);
    driven.answer_oldest();
    assert!(driven.session.has_kept(), "the driver has to be told of what it kept");
    assert_eq!(driven.give(b""), Flow::Pause);
    // The seventh takes the place that has become free; an answer buys one refusal.
    assert_eq!((driven.seen.len(), refused(&driven.answers())), (3, 1));
    driven.answer_oldest();
    driven.answer_oldest();
    assert_eq!(driven.give(&append(10, b"x")), Flow::Read);
    assert_eq!(driven.seen.len(), 5);
    assert!(!driven.session.has_kept());
}

#[test]
fn a_request_over_the_byte_limit_is_busy_and_a_read_counts_as_its_page() {
    let settings =
        Settings { frame_body_max_bytes: 3 << 20, bytes_max: 4 << 20, ..Settings::default() };
    let mut driven = Driven::greeted(settings);
    driven.give(&append(1, &vec![0; 3 << 20]));
    driven.give(&read(2, "a"));
    driven.give(&read(3, "b"));
    driven.give(&append(4, b"x"));
    let codes: Vec<_> = driven
        .answers()
        .iter()
        .map(|answer| answer.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(codes, ["Busy", "Busy"]);
    assert_eq!(driven.seen[1..], [Seen::ReadStream("a".to_owned())]);
    assert_eq!(driven.session.answers().bytes_in_flight(), 4 << 20);
    driven.answer_oldest();
    driven.answer_oldest();
    assert_eq!(driven.session.answers().bytes_in_flight(), 0);
}
