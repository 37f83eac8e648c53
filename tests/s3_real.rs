//! The S3 client against servers that nobody here wrote. `.ci/s3-real` starts them and says where
//! they are; without it there is nothing to test against, and the tests are skipped visibly.
//!
//! Deviations of these servers are listed in docs/TESTING.md, and here as what is expected.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

#[path = "s3/candidate.rs"]
mod candidate;
#[path = "s3/election.rs"]
mod election;
#[path = "s3/journal.rs"]
mod journal;
#[path = "s3/real.rs"]
mod real;
#[path = "s3/words.rs"]
mod words;

use std::time::Duration;

use duolog_s3client::answer::{Kind, Written};
use duolog_s3client::conformance::{self, Plan, Verdict};
use duolog_s3client::etag::IfMatchForm;
use duolog_s3client::key::ObjectKey;
use duolog_s3client::request::{Condition, ListQuery};
use duolog_s3client::{Client, Recognised, Swap, Swapped};
use real::{Server, servers};
use words::{key, text};

/// The form of If-Match that each server is known to want.
fn known_form(server: &Server) -> IfMatchForm {
    match server.name.as_str() {
        "ceph" => IfMatchForm::Unquoted,
        _ => IfMatchForm::AsGiven,
    }
}

async fn probed(server: &Server) -> Client {
    let client = server.client();
    client.pin_form(known_form(server));
    client
}

/// Each server is safe for leases, in the form that is known for it. Prints the tables.
#[tokio::test]
#[ignore = "needs real servers: run .ci/s3-real"]
async fn real_servers_are_safe_for_leases() {
    for server in servers() {
        let client = server.client();
        let plan = Plan { subfolder: "probe here/".to_owned(), ..Plan::default() };
        let report = conformance::run(std::slice::from_ref(&client), &plan).await.unwrap();
        println!("\n{} at {}\n{}", server.name, server.url, report.table());
        assert_eq!(report.verdict, Verdict::Safe, "{}: {}", server.name, report.sentence());
        assert_eq!(report.form, Some(known_form(&server)), "{}", server.name);
        let left = client.list(ListQuery::prefix("probe here/")).await.unwrap();
        assert_eq!(left, [], "{}", server.name);
    }
}

/// Two lease machines, as nodes run them, over each server: first starts at one moment, and a life
/// with admission, renewals, a takeover after expiry, a return and a handover.
#[tokio::test]
#[ignore = "needs real servers: run .ci/s3-real"]
async fn two_candidates_share_one_lease_through_a_life() {
    for server in servers() {
        let client = probed(&server).await;
        election::first_leaders(&client, "first", 10).await;
        election::life_of_a_pair(&client, "life").await;
    }
}

/// Of two writes from one version one wins, again and again: create-only first, then each round a
/// replacement that both attempt.
#[tokio::test]
#[ignore = "needs real servers: run .ci/s3-real"]
async fn of_two_writes_from_one_version_one_wins() {
    const ROUNDS: u32 = 30;
    for server in servers() {
        let clients = [probed(&server).await, probed(&server).await];
        let lease = key("election/lease.json");
        clients[0].delete(&lease).await.unwrap();
        let mut condition = Condition::Absent;
        for round in 0..ROUNDS {
            let stand = |node: usize| {
                let (client, key, condition) =
                    (clients[node].clone(), lease.clone(), condition.clone());
                async move {
                    let token = format!("node {node} round {round}");
                    let allowed = Duration::from_secs(20);
                    let swap = Swap { key, body: text(&token), condition, allowed };
                    let recognise = |body: &[u8]| match body == token.as_bytes() {
                        true => Recognised::Mine,
                        false => Recognised::Foreign,
                    };
                    client.swap(&swap, recognise).await.unwrap()
                }
            };
            let ends = tokio::join!(stand(0), stand(1));
            let object = clients[0].get(&lease).await.unwrap().unwrap();
            let winner = match &ends {
                (Swapped::Won { .. }, Swapped::Lost { .. }) => 0,
                (Swapped::Lost { .. }, Swapped::Won { .. }) => 1,
                both => panic!("{} round {round}: {both:?}", server.name),
            };
            assert_eq!(object.body, format!("node {winner} round {round}"), "{}", server.name);
            condition = Condition::Matches(object.etag);
        }
    }
}

/// Writers that count up one object by compare-and-swap lose no step.
#[tokio::test]
#[ignore = "needs real servers: run .ci/s3-real"]
async fn a_counter_under_many_writers_loses_no_step() {
    const WRITERS: usize = 8;
    const STEPS: usize = 8;
    for server in servers() {
        let counter = key("counter");
        probed(&server).await.put(&counter, text("0 seed")).await.unwrap();
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let (client, counter) = (probed(&server).await, counter.clone());
            writers.spawn(async move {
                for step in 0..STEPS {
                    count_up(&client, &counter, &format!("{writer}-{step}")).await;
                }
            });
        }
        while let Some(writer) = writers.join_next().await {
            writer.unwrap();
        }
        let object = probed(&server).await.get(&counter).await.unwrap().unwrap();
        let total = std::str::from_utf8(&object.body).unwrap().split(' ').next().unwrap();
        assert_eq!(total, (WRITERS * STEPS).to_string(), "{}", server.name);
    }
}

/// Adds one. The body keeps the tokens of all steps, so that a step that was overwritten before
/// it could be read back is still recognised.
async fn count_up(client: &Client, counter: &ObjectKey, token: &str) {
    let has = |body: &[u8]| body.split(|byte| *byte == b' ').any(|word| word == token.as_bytes());
    loop {
        let object = client.get(counter).await.unwrap().unwrap();
        let old = std::str::from_utf8(&object.body).unwrap();
        let (total, tokens) = old.split_once(' ').unwrap();
        let total: usize = total.parse().unwrap();
        let body = text(&format!("{} {tokens} {token}", total + 1));
        let swap = Swap {
            key: counter.clone(),
            body: body.clone(),
            condition: Condition::Matches(object.etag),
            allowed: Duration::from_secs(30),
        };
        let recognise = |seen: &[u8]| match (seen == &body[..], has(seen)) {
            (true, _) => Recognised::Mine,
            (false, true) => Recognised::OverMine,
            (false, false) => Recognised::Foreign,
        };
        match client.swap(&swap, recognise).await.unwrap() {
            Swapped::Won { .. } | Swapped::WonAndReplaced { .. } => return,
            Swapped::Lost { .. } => {}
            Swapped::Undecided { doubt } => panic!("{token}: {doubt}"),
        }
    }
}

/// The plain calls, with sizes from nothing to megabytes and keys that are easy to get wrong.
#[tokio::test]
#[ignore = "needs real servers: run .ci/s3-real"]
async fn plain_calls_do_what_they_say() {
    for server in servers() {
        let client = probed(&server).await;
        client.head_bucket().await.unwrap();
        for size in [0, 1, 5 << 20] {
            let (key, body) = (key("plain/a b+c%25d \u{e9}/x"), bytes::Bytes::from(vec![7; size]));
            let etag = client.put(&key, body.clone()).await.unwrap();
            let object = client.get(&key).await.unwrap().unwrap();
            assert_eq!((object.body, object.etag), (body, etag), "{}", server.name);
        }
        let listed = client.list(ListQuery::prefix("plain/a b+c%25d \u{e9}/")).await.unwrap();
        assert_eq!((listed.len(), listed[0].size_bytes), (1, 5 << 20), "{}", server.name);
        client.delete(&key(&listed[0].key)).await.unwrap();
        assert_eq!(client.get(&key(&listed[0].key)).await.unwrap(), None, "{}", server.name);
        client.delete(&key(&listed[0].key)).await.unwrap();
        let skew = client.observed().skew.unwrap();
        assert!(!skew.is_alarming(), "{}: {skew:?}", server.name);
    }
}

/// A create-only write on a taken key, and a replacement of a missing one, are conflicts.
#[tokio::test]
#[ignore = "needs real servers: run .ci/s3-real"]
async fn failed_conditions_are_conflicts() {
    for server in servers() {
        let client = probed(&server).await;
        let (taken, gone) = (key("taken"), key("gone"));
        let etag = client.put(&taken, text("1")).await.unwrap();
        let write = |key: &ObjectKey, condition: Condition| {
            let (client, key) = (client.clone(), key.clone());
            async move { client.put_if(&key, text("2"), &condition).await.unwrap() }
        };
        assert_eq!(write(&taken, Condition::Absent).await, Written::Conflict, "{}", server.name);
        let missing = write(&gone, Condition::Matches(etag)).await;
        assert_eq!(missing, Written::Conflict, "{}", server.name);
        assert_eq!(client.get(&gone).await.unwrap(), None, "{}", server.name);
    }
}

/// Wrong keys and buckets are told apart where the server looks at them at all.
#[tokio::test]
#[ignore = "needs real servers: run .ci/s3-real"]
async fn refusals_have_their_kinds() {
    for server in servers() {
        let other = server.client_of("no-such-bucket", &server.secret);
        let refused = other.list(ListQuery::default()).await.unwrap_err();
        assert_eq!(refused.kind(), Some(Kind::NoSuchBucket), "{}: {refused}", server.name);
        // moto takes every signature.
        if server.name != "moto" {
            let wrong = server.client_of("duolog", "wrong-secret");
            let refused = wrong.get(&key("a")).await.unwrap_err();
            assert_eq!(refused.kind(), Some(Kind::BadSignature), "{}: {refused}", server.name);
        }
    }
}
