//! Conditional writes end as what really happened, however the answers get lost.

use std::time::Duration;

use duolog_s3client::answer::{Kind, Written};
use duolog_s3client::etag::ETag;
use duolog_s3client::request::Condition;
use duolog_s3client::{Client, Error, Recognised, Swap, Swapped};
use duolog_s3dev::{Answer, ETagRewrite, Fault, Rule, Server};

use crate::embedded::{client, server};
use crate::words::{key, text};

const KEY: &str = "cluster/lease.json";
const MINE: &str = "token=mine";

fn recognise(body: &[u8]) -> Recognised {
    match std::str::from_utf8(body).unwrap() {
        MINE => Recognised::Mine,
        other if other.contains("before=mine") => Recognised::OverMine,
        _ => Recognised::Foreign,
    }
}

fn swap_for(condition: Condition, allowed_ms: u64) -> Swap {
    let allowed = Duration::from_millis(allowed_ms);
    Swap { key: key(KEY), body: text(MINE), condition, allowed }
}

async fn create(client: &Client) -> Result<Swapped, Error> {
    client.swap(&swap_for(Condition::Absent, 10_000), recognise).await
}

async fn replace(client: &Client, etag: &ETag) -> Result<Swapped, Error> {
    client.swap(&swap_for(Condition::Matches(etag.clone()), 10_000), recognise).await
}

/// PUTs that arrived.
fn puts(server: &Server) -> Vec<duolog_s3dev::Seen> {
    server.faults().take_seen().into_iter().filter(|seen| seen.method == "PUT").collect()
}

fn error(status: u16, code: &'static str) -> Fault {
    Fault::Answer(Answer::error(status, code))
}

fn stored(server: &Server) -> Option<String> {
    let object = server.object("duolog", KEY)?;
    Some(String::from_utf8(object.body.to_vec()).unwrap())
}

fn won(outcome: &Result<Swapped, Error>) -> bool {
    matches!(outcome, Ok(Swapped::Won { .. }))
}

/// A write is applied and its reply lost, on a connection that was used before. The client must
/// not send it again by itself, at any level, and must not claim to know.
#[tokio::test]
async fn a_lost_reply_is_unknown_and_the_write_is_sent_once() {
    let server = server();
    let client = client(&server);
    for _ in 0..3 {
        client.get(&key("warm-up")).await.unwrap();
    }
    server.faults().order(Rule::once("PUT", Fault::DropReply));
    let outcome = client.put_if(&key(KEY), text(MINE), &Condition::Absent).await.unwrap();
    assert!(matches!(outcome, Written::Unknown(_)), "{outcome:?}");
    assert_eq!(puts(&server).len(), 1);
    assert_eq!(stored(&server).as_deref(), Some(MINE));
}

/// The first lease was created, the reply lost: reading back finds the own token.
#[tokio::test]
async fn a_create_whose_reply_was_lost_is_won_by_reading_back() {
    let server = server();
    server.faults().order(Rule::once("PUT", Fault::DropReply));
    assert!(won(&create(&client(&server)).await));
    assert_eq!(puts(&server).len(), 1);
}

/// The same for a renewal, for an answer that is a server error, and for a success with an error
/// document in it.
#[tokio::test]
async fn a_renewal_whose_answer_was_lost_or_wrong_is_won_by_reading_back() {
    let lying = Answer { status: 200, code: "InternalError", ..Answer::default() };
    for fault in [
        Fault::DropReply,
        Fault::ApplyAndAnswer(Answer::error(500, "InternalError")),
        Fault::ApplyAndAnswer(Answer::error(503, "SlowDown")),
        Fault::ApplyAndAnswer(lying),
        Fault::RewriteETag(ETagRewrite::Missing),
        // A proxy that sends it twice and passes on the second answer.
        Fault::ApplyAndAnswer(Answer::error(412, "PreconditionFailed")),
        Fault::ApplyAndAnswer(Answer::error(409, "ConditionalRequestConflict")),
    ] {
        let server = server();
        let client = client(&server);
        let etag = client.put(&key(KEY), text("old")).await.unwrap();
        server.faults().take_seen();
        server.faults().order(Rule::once("PUT", fault.clone()));
        let outcome = replace(&client, &etag).await;
        assert!(won(&outcome), "{fault:?}: {outcome:?}");
        assert_eq!(puts(&server).len(), 1, "{fault:?}");
    }
}

/// A write that never arrived, or was answered with an error before it was applied, is sent again
/// with the same bytes and the same condition.
#[tokio::test]
async fn a_write_that_did_not_land_is_repeated_identically() {
    for fault in [
        Fault::DropRequest,
        error(500, "InternalError"),
        error(503, "SlowDown"),
        error(409, "OperationAborted"),
        error(400, "RequestTimeout"),
        error(429, ""),
    ] {
        let server = server();
        let client = client(&server);
        let etag = client.put(&key(KEY), text("old")).await.unwrap();
        server.faults().take_seen();
        server.faults().order(Rule::once("PUT", fault.clone()).times(2));
        assert!(won(&replace(&client, &etag).await), "{fault:?}");
        let puts = puts(&server);
        assert_eq!(puts.len(), 3, "{fault:?}");
        let wanted = [Some(etag.as_given()), Some("10")];
        for put in &puts {
            assert_eq!([put.header("if-match"), put.header("content-length")], wanted);
        }
        assert_eq!(stored(&server).as_deref(), Some(MINE));
    }
}

/// 409 on a create says nothing about who holds the lease. Three of them, and the key stays free:
/// the writer tries again and leads.
#[tokio::test]
async fn conflict_409_on_a_free_key_ends_in_one_leader() {
    let server = server();
    server.faults().order(Rule::once("PUT", error(409, "ConditionalRequestConflict")).times(3));
    assert!(won(&create(&client(&server)).await));
    assert_eq!(puts(&server).len(), 4);
}

/// 409 because another writer was just winning: the object is read before the next try.
#[tokio::test]
async fn conflict_409_with_another_winner_is_lost() {
    let server = server();
    let client = client(&server);
    client.put(&key(KEY), text("token=other")).await.unwrap();
    server.faults().take_seen();
    server.faults().order(Rule::once("PUT", error(409, "ConditionalRequestConflict")).times(9));
    let outcome = create(&client).await.unwrap();
    let Swapped::Lost { current: Some(current) } = outcome else { panic!("{outcome:?}") };
    assert_eq!(current.body, "token=other");
    assert_eq!(puts(&server).len(), 1);
}

#[tokio::test]
async fn a_stale_version_or_a_missing_object_is_lost() {
    let server = server();
    let client = client(&server);
    let old = client.put(&key(KEY), text("old")).await.unwrap();
    client.put(&key(KEY), text("token=other")).await.unwrap();
    let outcome = replace(&client, &old).await.unwrap();
    assert!(matches!(outcome, Swapped::Lost { current: Some(_) }), "{outcome:?}");
    client.delete(&key(KEY)).await.unwrap();
    let outcome = replace(&client, &old).await.unwrap();
    assert_eq!(outcome, Swapped::Lost { current: None });
    assert_eq!(stored(&server), None);
}

/// Our write landed, its reply was lost, and another writer replaced it before we read back. The
/// tokens that the body keeps tell it from a loss.
#[tokio::test]
async fn a_write_that_landed_and_was_replaced_is_told_from_a_loss() {
    let server = server();
    let (client, other) = (client(&server), client(&server));
    let etag = client.put(&key(KEY), text("old")).await.unwrap();
    server.faults().order(Rule::once("PUT", Fault::DropReply));
    server.faults().order(Rule::once("GET", Fault::Delay(Duration::from_millis(400))));
    let meddle = async {
        while stored(&server).as_deref() != Some(MINE) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        other.put(&key(KEY), text("token=other before=mine")).await.unwrap();
    };
    let (outcome, ()) = tokio::join!(replace(&client, &etag), meddle);
    assert!(matches!(outcome, Ok(Swapped::WonAndReplaced { .. })), "{outcome:?}");
}

/// A renewal that times out is applied after the read-back showed the old body. The writer sends
/// it again under the same condition, so that at most one of the two can land, and wins by
/// whichever does.
#[tokio::test]
async fn a_write_that_lands_late_is_never_lost_and_never_doubled() {
    for late_ms in [20, 60, 120, 400] {
        let server = server();
        let client = client(&server);
        let etag = client.put(&key(KEY), text("old")).await.unwrap();
        let late = Fault::ApplyLate(Duration::from_millis(late_ms));
        server.faults().order(Rule::once("PUT", late));
        assert!(won(&replace(&client, &etag).await), "{late_ms}");
        tokio::time::sleep(Duration::from_millis(late_ms)).await;
        assert_eq!(stored(&server).as_deref(), Some(MINE), "{late_ms}");
    }
}

/// Time is up and the object is as it was: that is "undecided", not "lost", because the write may
/// still land. Only when another write has moved the version is it certain.
#[tokio::test]
async fn a_write_without_any_answer_stays_undecided_until_the_version_moves() {
    let server = server();
    let client = client(&server);
    let etag = client.put(&key(KEY), text("old")).await.unwrap();
    let late = Fault::ApplyLate(Duration::from_millis(1_500));
    server.faults().order(Rule::once("PUT", late).times(100));
    let swap = swap_for(Condition::Matches(etag), 600);
    let outcome = client.swap(&swap, recognise).await.unwrap();
    assert!(matches!(outcome, Swapped::Undecided { .. }), "{outcome:?}");
    assert_eq!(stored(&server).as_deref(), Some("old"));
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(stored(&server).as_deref(), Some(MINE), "it landed after all");
}

/// While nobody listens nothing is sent, and that is certain; a swap waits for the store.
#[tokio::test]
async fn an_outage_sends_nothing_and_a_swap_outlives_it() {
    let server = server();
    let client = client(&server);
    server.faults().outage(true);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let refused = client.put_if(&key(KEY), text(MINE), &Condition::Absent).await;
    assert!(matches!(refused, Err(Error::NotReached { .. })), "{refused:?}");
    let back = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.faults().outage(false);
    };
    let (outcome, ()) = tokio::join!(create(&client), back);
    assert!(won(&outcome), "{outcome:?}");
    server.faults().outage(true);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let short = swap_for(Condition::Absent, 300);
    // A client without kept connections: nothing it does can be in doubt.
    let gave_up = crate::embedded::client(&server).swap(&short, recognise).await;
    assert!(matches!(gave_up, Err(Error::GaveUp { .. })), "{gave_up:?}");
}

/// Connections that were closed while idle: a write goes over a new one or is in doubt, and never
/// arrives twice.
#[tokio::test]
async fn a_closed_idle_connection_never_doubles_a_write() {
    let server = server();
    let client = client(&server);
    for round in 0..20 {
        let key = key(&format!("chain/{round}"));
        client.get(&key).await.unwrap();
        server.faults().take_seen();
        server.faults().cut_connections();
        let outcome = client.put_if(&key, text(MINE), &Condition::Absent).await.unwrap();
        assert!(matches!(outcome, Written::Stored { .. } | Written::Unknown(_)), "{outcome:?}");
        assert!(puts(&server).len() <= 1);
    }
}

/// An answer that proves that nothing was done is followed by one more sending, signed anew, with
/// the condition kept.
#[tokio::test]
async fn an_expired_token_is_replaced_once_under_a_conditional_write() {
    let server = server();
    let client = client(&server);
    server.faults().order(Rule::once("PUT", error(400, "ExpiredToken")));
    let outcome = client.put_if(&key(KEY), text(MINE), &Condition::Absent).await.unwrap();
    assert!(matches!(outcome, Written::Stored { .. }), "{outcome:?}");
    let puts_seen = puts(&server);
    assert_eq!(puts_seen.len(), 2);
    assert!(puts_seen.iter().all(|put| put.header("if-none-match") == Some("*")));
    assert_eq!(client.observed().expired_tokens, 1);
    server.faults().order(Rule::once("PUT", error(400, "ExpiredToken")).times(2));
    let refused = client.put_if(&key(KEY), text(MINE), &Condition::Absent).await;
    assert_eq!(refused.unwrap_err().kind(), Some(Kind::ExpiredToken));
    assert_eq!(puts(&server).len(), 2, "once is enough");
}

/// A store that refuses a condition that holds would make an endless loop of 412 and re-read.
#[tokio::test]
async fn a_condition_that_is_refused_although_it_holds_is_an_error_and_no_loop() {
    let server = server();
    let client = client(&server);
    let etag = client.put(&key(KEY), text("old")).await.unwrap();
    server.faults().order(Rule::once("PUT", error(412, "PreconditionFailed")).times(100));
    let outcome = replace(&client, &etag).await;
    assert!(matches!(outcome, Err(Error::ConditionNotHonoured { .. })), "{outcome:?}");
    assert!(puts(&server).len() <= 2);
}

/// A proxy made the ETag weak. It is not sent back, not stripped, and the error says so.
#[tokio::test]
async fn a_weak_etag_is_an_error_and_nothing_is_sent() {
    let server = server();
    let client = client(&server);
    client.put(&key(KEY), text("old")).await.unwrap();
    server.faults().order(Rule::once("GET", Fault::RewriteETag(ETagRewrite::Weak)));
    let object = client.get(&key(KEY)).await.unwrap().unwrap();
    server.faults().take_seen();
    let refused = replace(&client, &object.etag).await;
    assert!(matches!(refused, Err(Error::ETag(_))), "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains("weak ETag"));
    assert_eq!(server.faults().take_seen(), []);
}

/// Both nodes race for a free lease, many times over a bad line: one wins each time, and both
/// agree on who.
#[tokio::test]
async fn two_candidates_over_a_bad_line_agree_on_one_winner() {
    let server = server();
    for round in 0..40_u32 {
        let key = key(&format!("race/{round}/lease.json"));
        let faults = [
            Fault::DropReply,
            Fault::DropRequest,
            error(409, "ConditionalRequestConflict"),
            error(503, "SlowDown"),
            Fault::ApplyLate(Duration::from_millis(30)),
        ];
        for (index, fault) in faults.into_iter().enumerate() {
            if round >> index & 1 == 1 {
                server.faults().order(Rule::once("PUT", fault));
            }
        }
        let candidate = |name: &'static str| {
            let (client, key) = (client(&server), key.clone());
            async move {
                let (body, allowed) = (text(name), Duration::from_secs(10));
                let swap = Swap { key, body, condition: Condition::Absent, allowed };
                let mine = move |body: &[u8]| match body == name.as_bytes() {
                    true => Recognised::Mine,
                    false => Recognised::Foreign,
                };
                client.swap(&swap, mine).await.unwrap()
            }
        };
        let (one, two) = tokio::join!(candidate("one"), candidate("two"));
        let owner = server.object("duolog", key.as_str()).unwrap().body;
        match (&one, &two) {
            (Swapped::Won { .. }, Swapped::Lost { .. }) => assert_eq!(owner, "one"),
            (Swapped::Lost { .. }, Swapped::Won { .. }) => assert_eq!(owner, "two"),
            both => panic!("round {round}: {both:?}"),
        }
        server.faults().clear();
    }
}
