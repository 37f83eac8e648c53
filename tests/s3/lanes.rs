//! The two lanes, single attempts, and the counts that metrics and bills are made from.

use std::time::Duration;

use bytes::Bytes;
use duolog_s3client::answer::Written;
use duolog_s3client::limits::{BULK_CALLS_MAX, HASH_INLINE_BYTES_MAX};
use duolog_s3client::request::{ListQuery, Operation};
use duolog_s3client::{Lane, Outcome};
use duolog_s3dev::{Answer, Fault, Rule};
use tokio::task::JoinSet;

use crate::embedded::{client, server};
use crate::words::{key, text};

/// Uploads that the store answers slowly fill their lane and more; on the same thread a renewal of
/// the lease goes through before any of them is done. Broken: it waits for one.
#[tokio::test]
async fn a_renewal_waits_for_no_upload() {
    const UPLOADS: usize = 3 * BULK_CALLS_MAX;
    let server = server();
    let client = client(&server);
    let first = client.put(&key("lease"), text("1")).await.unwrap();
    let slow = Fault::Delay(Duration::from_secs(2));
    server.faults().order(Rule::always(slow).on("/chain/"));
    let mut uploads = JoinSet::new();
    for number in 0..UPLOADS {
        let bulk = client.bulk();
        uploads.spawn(async move {
            let body = Bytes::from(vec![b'x'; HASH_INLINE_BYTES_MAX + 1]);
            bulk.put_if_absent(&key(&format!("chain/{number}")), body).await.unwrap()
        });
    }
    let full = || {
        let seen = server.faults().seen_count("/chain/");
        assert!(seen <= BULK_CALLS_MAX, "{seen} uploads at one time");
        seen == BULK_CALLS_MAX
    };
    for _ in 0..1000 {
        if full() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(full(), "the lane of uploads is full");
    let renewed = client.put_if_match(&key("lease"), text("2"), &first).await.unwrap();
    assert!(matches!(renewed, Written::Stored { .. }), "{renewed:?}");
    let done = client.counts().of(Lane::Bulk, Operation::PutIfAbsent, Outcome::Done);
    assert_eq!(done, 0, "the renewal was first");
    while let Some(stored) = uploads.join_next().await {
        assert!(matches!(stored.unwrap(), Written::Stored { .. }));
    }
    let counts = client.counts();
    assert_eq!(counts.of(Lane::Bulk, Operation::PutIfAbsent, Outcome::Done), UPLOADS as u64);
    assert_eq!(counts.of(Lane::Lease, Operation::PutIfMatch, Outcome::Done), 1);
}

/// Each request that the store saw is counted once, under what became of it. Broken: a count that
/// differs from the store's own.
#[tokio::test]
async fn the_counts_are_what_the_store_saw() {
    let server = server();
    let client = client(&server);
    let order = |method, fault| server.faults().order(Rule::once(method, fault));
    let answer = |status, code| Fault::Answer(Answer::error(status, code));
    client.head_bucket().await.unwrap();
    client.get(&key("none")).await.unwrap();
    let etag = client.put(&key("a"), text("1")).await.unwrap();
    client.put_if_absent(&key("a"), text("2")).await.unwrap();
    client.put_if_match(&key("a"), text("2"), &etag).await.unwrap();
    order("PUT", Fault::DropReply);
    client.put_if_absent(&key("b"), text("1")).await.unwrap();
    order("PUT", answer(409, "ConditionalRequestConflict"));
    client.put_if_absent(&key("c"), text("1")).await.unwrap_err();
    order("GET", answer(503, "SlowDown"));
    order("GET", answer(500, "InternalError"));
    client.get(&key("a")).await.unwrap();
    order("DELETE", answer(403, "AccessDenied"));
    client.delete(&key("a")).await.unwrap_err();
    client.bulk().list(ListQuery::default()).await.unwrap();
    order("GET", Fault::Delay(Duration::from_secs(5)));
    let short = Duration::from_millis(200);
    tokio::time::timeout(short, client.get(&key("a"))).await.unwrap_err();

    let counts = client.counts();
    let expected = [
        (Lane::Lease, Operation::Get, Outcome::Done, 1),
        (Lane::Lease, Operation::Get, Outcome::Missing, 1),
        (Lane::Lease, Operation::Get, Outcome::Throttled, 1),
        (Lane::Lease, Operation::Get, Outcome::Failed, 1),
        (Lane::Lease, Operation::Get, Outcome::Abandoned, 1),
        (Lane::Lease, Operation::Put, Outcome::Done, 1),
        (Lane::Lease, Operation::PutIfAbsent, Outcome::Conflict, 1),
        (Lane::Lease, Operation::PutIfAbsent, Outcome::TryAgain, 1),
        (Lane::Lease, Operation::PutIfAbsent, Outcome::NoAnswer, 1),
        (Lane::Lease, Operation::PutIfMatch, Outcome::Done, 1),
        (Lane::Lease, Operation::Delete, Outcome::Refused, 1),
        (Lane::Lease, Operation::HeadBucket, Outcome::Done, 1),
        (Lane::Bulk, Operation::List, Outcome::Done, 1),
    ];
    let rows = counts.rows().filter(|row| row.count > 0);
    let found: Vec<_> = rows.map(|row| (row.lane, row.operation, row.outcome, row.count)).collect();
    let mut sorted = expected;
    sorted.sort();
    let mut found_sorted = found;
    found_sorted.sort();
    assert_eq!(found_sorted, sorted);
    assert_eq!(counts.sent(), server.faults().take_seen().len() as u64);
    server.faults().outage(true);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let fresh = crate::embedded::client(&server);
    fresh.once().get(&key("a")).await.unwrap_err();
    let counts = fresh.counts();
    assert_eq!((counts.of(Lane::Lease, Operation::Get, Outcome::NotSent), counts.sent()), (1, 0));
}

/// Whoever repeats by himself gets every failure at once.
#[tokio::test]
async fn a_client_that_tries_once_repeats_nothing() {
    let server = server();
    let client = client(&server);
    let busy = Fault::Answer(Answer::error(503, "SlowDown"));
    server.faults().order(Rule::once("GET", busy));
    client.once().get(&key("a")).await.unwrap_err();
    assert_eq!(server.faults().take_seen().len(), 1);
    assert_eq!(client.once().get(&key("a")).await.unwrap(), None);
}
