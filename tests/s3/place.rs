//! Where the bucket is, whose clock counts, and what is said when a store cannot be used.

use std::time::Duration;

use duolog_s3client::answer::{Kind, Written};
use duolog_s3client::bucket::{Addressing, Bucket, Endpoint, PlainHttp};
use duolog_s3client::request::{Condition, ListQuery};
use duolog_s3client::transport::Trust;
use duolog_s3client::{Client, Error, Remedy, Settings};
use duolog_s3dev::{Answer, Fault, Rule};

use crate::embedded::{client, server, settings, settings_with};
use crate::words::{key, text};

const MINUTE_MS: i64 = 60_000;

fn once(settings: Settings) -> Client {
    Client::new(Settings { retry: Some(Duration::ZERO), ..settings }).unwrap()
}

/// The store's clock is 20 minutes off, either way. The client learns it from the answer's Date,
/// signs by it from then on, and tells how far the clocks are apart.
#[tokio::test]
async fn a_wrong_clock_is_corrected_for_signing_and_reported() {
    for shift_ms in [20 * MINUTE_MS, -20 * MINUTE_MS] {
        let server = server();
        server.faults().shift_clock(shift_ms);
        let client = client(&server);
        let outcome = client.put_if(&key("a"), text("1"), &Condition::Absent).await.unwrap();
        assert!(matches!(outcome, Written::Stored { .. }), "{outcome:?}");
        assert_eq!(server.faults().take_seen().len(), 2);
        client.get(&key("a")).await.unwrap();
        assert_eq!(server.faults().take_seen().len(), 1, "the correction lasts");
        let observed = client.observed();
        assert!((observed.signing_offset_ms - shift_ms).abs() < 3_000, "{observed:?}");
        let skew = observed.skew.unwrap();
        assert!(skew.is_alarming() && (skew.middle_ms() - shift_ms).abs() < 3_000, "{skew:?}");
    }
}

/// HEAD has no body, so no code tells why it was refused; the Date does.
#[tokio::test]
async fn a_wrong_clock_is_found_without_an_error_code() {
    let server = server();
    server.faults().shift_clock(20 * MINUTE_MS);
    let client = client(&server);
    client.head_bucket().await.unwrap();
    assert!(client.observed().signing_offset_ms > 19 * MINUTE_MS);
}

/// Clocks that agree raise no alarm, and the signing clock is left alone.
#[tokio::test]
async fn a_right_clock_is_left_alone() {
    let server = server();
    let client = client(&server);
    client.head_bucket().await.unwrap();
    let observed = client.observed();
    assert_eq!((observed.signing_offset_ms, observed.redirects, observed.retries), (0, 0, 0));
    assert!(!observed.skew.unwrap().is_alarming());
}

/// The bucket is in another region; the store names it. One detour, then straight there.
#[tokio::test]
async fn the_region_that_the_store_names_is_followed_once() {
    let server = server();
    server.faults().require_region("eu-x");
    let client = client(&server);
    client.put(&key("a"), text("1")).await.unwrap();
    assert_eq!(client.bucket().region(), "eu-x");
    assert_eq!(client.observed().redirects, 1);
    assert_eq!(server.faults().take_seen().len(), 2);
    client.get(&key("a")).await.unwrap();
    assert_eq!(server.faults().take_seen().len(), 1);
}

/// 307 to another host: the whole request goes there, signed for it, with its condition.
#[tokio::test]
async fn a_temporary_redirect_takes_body_and_condition_along() {
    let (one, two) = (server(), server());
    let location = format!("{}/duolog/a", two.url());
    let moved = Answer::error(307, "TemporaryRedirect").header("location", location);
    one.faults().order(Rule::once("PUT", Fault::Answer(moved)));
    let client = client(&one);
    let outcome = client.put_if(&key("a"), text("1"), &Condition::Absent).await.unwrap();
    assert!(matches!(outcome, Written::Stored { .. }), "{outcome:?}");
    let seen = two.faults().take_seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].header("if-none-match"), Some("*"));
    assert_eq!(seen[0].header("host"), Some(two.address().to_string().as_str()));
    assert_eq!(two.object("duolog", "a").unwrap().body, "1");
    assert!(one.object("duolog", "a").is_none());
}

/// 301 without a Location has only a region; a store that answers nothing else is not followed
/// for ever, and no such answer passes for an empty object.
#[tokio::test]
async fn a_redirect_that_leads_nowhere_names_the_region() {
    let server = server();
    let moved = Answer::error(301, "PermanentRedirect").header("x-amz-bucket-region", "eu-far");
    server.faults().order(Rule::always(Fault::Answer(moved)));
    let client = client(&server);
    let refused = client.get(&key("a")).await.unwrap_err();
    assert_eq!(refused.kind(), Some(Kind::Elsewhere));
    assert_eq!(refused.remedy(), Remedy::FixConfig("s3.region"));
    assert!(refused.to_string().contains("is in region \"eu-far\""), "{refused}");
    assert_eq!(server.faults().take_seen().len(), 2);
}

/// The bucket's name in the host, with awkward keys: signed, sent and understood.
#[tokio::test]
async fn virtual_hosted_addressing_works() {
    let server = server();
    let url = format!("http://localhost:{}", server.address().port());
    let settings = settings_with(&url, "duolog-dev-secret", Addressing::VirtualHosted);
    let settings = Settings { connect_to: Some(server.address()), ..settings };
    let client = Client::new(settings).unwrap();
    let names = ["a", "a b/c+d", "\u{e9}%25/&=?#"];
    for name in names {
        client.put(&key(name), text(name)).await.unwrap();
        assert_eq!(server.object("duolog", name).unwrap().body, name);
    }
    assert_eq!(client.list(ListQuery::default()).await.unwrap().len(), names.len());
    for seen in server.faults().take_seen() {
        assert!(seen.header("host").unwrap().starts_with("duolog.localhost:"), "{seen:?}");
        assert!(!seen.target.starts_with("/duolog"), "{seen:?}");
    }
}

#[tokio::test]
async fn wrong_keys_and_buckets_are_told_apart() {
    let server = server();
    let wrong = once(settings_with(&server.url(), "wrong", Addressing::Path));
    assert_eq!(wrong.get(&key("a")).await.unwrap_err().kind(), Some(Kind::BadSignature));
    let mut other = settings(&server.url());
    let endpoint = Endpoint::parse(&server.url(), PlainHttp::Allowed).unwrap();
    other.bucket = Bucket::new("no-such-bucket", Some(endpoint), None, None).unwrap();
    let other = once(other);
    for refused in [
        other.get(&key("a")).await.unwrap_err(),
        other.head_bucket().await.unwrap_err(),
        other.put(&key("a"), text("")).await.unwrap_err(),
        other.put_if(&key("a"), text(""), &Condition::Absent).await.unwrap_err(),
    ] {
        assert_eq!(refused.kind(), Some(Kind::NoSuchBucket), "{refused}");
        assert!(refused.to_string().contains("\"no-such-bucket\""), "{refused}");
    }
}

/// A port that does not speak TLS, a name that does not exist, a port where nobody listens: each
/// is "cannot reach" with its own reason.
#[tokio::test]
async fn an_endpoint_that_cannot_be_reached_says_why() {
    let server = server();
    let reach = |url: String| async move {
        let mut settings = settings(&url);
        settings.trust = Trust::System;
        once(settings).head_bucket().await.unwrap_err()
    };
    let tls = reach(format!("https://{}", server.address())).await;
    assert!(
        matches!(&tls, Error::NotReached { reason, .. } if reason.contains("corrupt message")
        || reason.contains("InvalidContentType") || reason.contains("tls")),
        "{tls}"
    );
    let nobody = reach("http://127.0.0.1:1".to_owned()).await;
    assert!(nobody.to_string().contains("refused"), "{nobody}");
    let name = reach("http://no-such-host.invalid".to_owned()).await;
    assert!(matches!(name, Error::NotReached { .. }), "{name}");
    assert_eq!(name.remedy(), Remedy::Retry);
}
