//! Calls that may be repeated are, until they succeed, are refused for good, or time is up.

use std::time::Duration;

use bytes::Bytes;
use duolog_s3client::answer::Kind;
use duolog_s3client::document::DocumentError;
use duolog_s3client::request::ListQuery;
use duolog_s3client::{Client, Error};
use duolog_s3dev::{Answer, Fault, Rule};

use crate::embedded::{client, server, settings};
use crate::words::{key, text};

fn error(status: u16, code: &'static str) -> Fault {
    Fault::Answer(Answer::error(status, code))
}

/// Every answer that passes by itself, on every call, with and without a document.
#[tokio::test]
async fn what_passes_is_waited_for() {
    let html = Answer { status: 502, body: Some("<html>bad</html>"), ..Answer::default() };
    let faults = [
        error(503, "SlowDown"),
        error(503, ""),
        error(500, "InternalError"),
        error(400, "RequestTimeout"),
        error(429, ""),
        error(409, "OperationAborted"),
        Fault::Answer(html),
        Fault::DropRequest,
        Fault::DropReply,
    ];
    for fault in faults {
        let server = server();
        let client = client(&server);
        // An answer to HEAD has no body, and so no code that would tell this 400 from others.
        let coded = matches!(&fault, Fault::Answer(answer) if answer.status == 400);
        let methods = ["PUT", "GET", "DELETE", "HEAD"];
        let methods = &methods[..if coded { 3 } else { 4 }];
        for method in methods {
            server.faults().order(Rule::once(method, fault.clone()).times(2));
        }
        client.put(&key("a"), text("1")).await.unwrap();
        assert_eq!(client.get(&key("a")).await.unwrap().unwrap().body, "1", "{fault:?}");
        client.head_bucket().await.unwrap();
        client.delete(&key("a")).await.unwrap();
        assert_eq!(client.get(&key("a")).await.unwrap(), None);
        assert_eq!(client.observed().retries, 2 * methods.len() as u64, "{fault:?}");
    }
}

/// A success with an error document inside is no success, on any call that could have one.
#[tokio::test]
async fn a_success_that_is_none_is_repeated() {
    let server = server();
    let client = client(&server);
    let lying = Answer { status: 200, code: "InternalError", ..Answer::default() };
    let fault = Fault::Answer(lying.header("etag", "\"e\""));
    server.faults().order(Rule::once("PUT", fault.clone()));
    client.put(&key("a"), text("1")).await.unwrap();
    assert_eq!(server.object("duolog", "a").unwrap().body, "1");
    server.faults().order(Rule::once("GET", fault.clone()));
    assert_eq!(client.list(ListQuery::default()).await.unwrap().len(), 1);
    server.faults().order(Rule::once("DELETE", fault));
    client.delete(&key("a")).await.unwrap();
    assert!(server.object("duolog", "a").is_none());
}

/// A body that was cut is not the object, however good its beginning looks.
#[tokio::test]
async fn a_cut_body_is_read_again() {
    let server = server();
    let client = client(&server);
    let body = Bytes::from(vec![7; 1 << 20]);
    client.put(&key("a"), body.clone()).await.unwrap();
    server.faults().order(Rule::once("GET", Fault::CutBody).times(2));
    assert_eq!(client.get(&key("a")).await.unwrap().unwrap().body, body);
    server.faults().order(Rule::once("GET", Fault::CutBody).on("list-type"));
    assert_eq!(client.list(ListQuery::default()).await.unwrap().len(), 1);
    assert_eq!(client.observed().retries, 3);
}

/// What the server asks for is waited, and each attempt carries the time of its own sending.
#[tokio::test]
async fn retry_after_is_obeyed_and_every_attempt_is_signed_anew() {
    let server = server();
    let client = client(&server);
    let busy = Answer::error(503, "SlowDown").header("retry-after", "1");
    server.faults().order(Rule::once("GET", Fault::Answer(busy)).times(2));
    assert_eq!(client.get(&key("a")).await.unwrap(), None);
    let seen = server.faults().take_seen();
    let dates: Vec<_> = seen.iter().map(|seen| seen.header("x-amz-date").unwrap()).collect();
    assert_eq!(dates.len(), 3);
    assert!(dates.windows(2).all(|pair| pair[0] < pair[1]), "{dates:?}");
}

#[tokio::test]
async fn a_store_that_stays_away_is_given_up_after_the_time_allowed() {
    let server = server();
    let mut settings = settings(&server.url());
    settings.retry = Some(Duration::from_millis(600));
    let client = Client::new(settings).unwrap();
    server.faults().order(Rule::always(error(503, "SlowDown")));
    let gave_up = client.get(&key("a")).await.unwrap_err();
    let Error::GaveUp { attempts, after, .. } = &gave_up else { panic!("{gave_up}") };
    assert!((2..20).contains(attempts) && *after <= Duration::from_secs(10), "{gave_up}");
    assert!(gave_up.to_string().contains("s3.retry_max_duration_secs"), "{gave_up}");
    assert_eq!(gave_up.kind(), Some(Kind::Throttled));
}

/// The store is away for a while; a read simply takes longer.
#[tokio::test]
async fn an_outage_is_waited_out() {
    let server = server();
    let client = client(&server);
    client.put(&key("a"), text("1")).await.unwrap();
    server.faults().outage(true);
    let back = async {
        tokio::time::sleep(Duration::from_millis(400)).await;
        server.faults().outage(false);
    };
    let key = key("a");
    let (object, ()) = tokio::join!(client.get(&key), back);
    assert_eq!(object.unwrap().unwrap().body, "1");
    assert!(client.observed().retries > 0);
}

/// What does not pass is said at once, with the permission or the setting that would mend it.
#[tokio::test]
async fn a_refusal_for_good_is_not_repeated_and_says_what_to_do() {
    let server = server();
    let client = client(&server);
    for (status, code, words) in [
        (403, "AccessDenied", "must allow s3:GetObject"),
        (403, "SignatureDoesNotMatch", "secret access key is wrong"),
        (403, "InvalidAccessKeyId", "does not know this access key id"),
        (404, "NoSuchBucket", "create it, or correct s3.bucket"),
        (501, "NotImplemented", "lacks something"),
    ] {
        server.faults().order(Rule::once("GET", error(status, code)));
        server.faults().take_seen();
        let refused = client.get(&key("a")).await.unwrap_err().to_string();
        assert!(refused.contains(words) && refused.contains("duolog"), "{refused}");
        assert_eq!(server.faults().take_seen().len(), 1, "{code}");
    }
}

/// A listing that goes round in a circle, or that was made by version 1 of the call, is an error
/// and not a part that is taken for the whole.
#[tokio::test]
async fn a_listing_is_complete_or_an_error() {
    let server = server();
    let client = client(&server);
    let answer =
        |body| Fault::Answer(Answer { status: 200, body: Some(body), ..Answer::default() });
    let circle = "<ListBucketResult><KeyCount>0</KeyCount><IsTruncated>true</IsTruncated>\
                  <NextContinuationToken>t</NextContinuationToken></ListBucketResult>";
    server.faults().order(Rule::once("GET", answer(circle)).times(2));
    let endless = client.list(ListQuery::default()).await;
    assert!(matches!(endless, Err(Error::Endless { .. })), "{endless:?}");
    let version_1 = "<ListBucketResult><Marker/><IsTruncated>true</IsTruncated>\
                     <NextMarker>k</NextMarker></ListBucketResult>";
    server.faults().order(Rule::once("GET", answer(version_1)));
    let old = client.list(ListQuery::default()).await;
    assert!(matches!(old, Err(Error::Document(DocumentError::ListVersion1))), "{old:?}");
}

/// Empty, one byte, many bytes: a fixed length, the hash of the whole, and nothing that a simple
/// store would refuse.
#[tokio::test]
async fn every_request_has_a_length_and_no_fancy_headers() {
    let server = server();
    let client = client(&server);
    for size in [0, 1, 8 << 20] {
        let body = Bytes::from(vec![b'x'; size]);
        client.put(&key("sizes"), body.clone()).await.unwrap();
        assert_eq!(client.get(&key("sizes")).await.unwrap().unwrap().body, body);
    }
    let seen = server.faults().take_seen();
    for request in &seen {
        let fancy = ["x-amz-checksum", "x-amz-sdk", "expect", "transfer-encoding", "x-amz-trailer"];
        for (name, _) in &request.headers {
            assert!(!fancy.iter().any(|prefix| name.starts_with(prefix)), "{name}");
        }
        assert_eq!(request.header("x-amz-content-sha256").unwrap().len(), 64);
        assert_eq!(request.method == "PUT", request.header("content-length").is_some());
    }
    assert_eq!(seen.len(), 6);
}
