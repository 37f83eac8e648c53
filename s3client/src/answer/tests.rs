//! Every kind of answer and what it may be taken for.

use super::*;
use crate::key::ObjectKey;
use http::HeaderValue;

fn answer(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> Answer {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.insert(*name, HeaderValue::from_static(value));
    }
    let body = Bytes::copy_from_slice(body.as_bytes());
    Answer { status: StatusCode::from_u16(status).unwrap(), headers: map, body }
}

fn error(code: &str) -> String {
    format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m</Message></Error>")
}

fn key() -> ObjectKey {
    ObjectKey::new("lease.json").unwrap()
}

fn matches() -> Condition {
    Condition::Matches(ETag::new("\"old\"").unwrap())
}

fn write(answer: &Answer, condition: Condition) -> Result<Written, Box<Refusal>> {
    let call = Call::PutIf(key(), Bytes::new(), condition.clone());
    answer.written(&call, &condition)
}

fn both(answer: &Answer) -> [Result<Written, Box<Refusal>>; 2] {
    [write(answer, Condition::Absent), write(answer, matches())]
}

#[test]
fn a_stored_write_tells_its_version() {
    let stored = Written::Stored { etag: ETag::new("\"n\"").unwrap() };
    for outcome in both(&answer(200, &[("etag", "\"n\"")], "")) {
        assert_eq!(outcome, Ok(stored.clone()));
    }
}

#[test]
fn a_failed_condition_is_a_conflict() {
    for body in [error("PreconditionFailed"), String::new()] {
        for outcome in both(&answer(412, &[], &body)) {
            assert_eq!(outcome, Ok(Written::Conflict));
        }
    }
}

/// If-Match on a key that is gone is a conflict; a bucket that is gone is not, and a create-only
/// write has no business with 404.
#[test]
fn a_missing_key_is_a_conflict_only_for_if_match() {
    for body in [error("NoSuchKey"), String::new()] {
        let gone = answer(404, &[], &body);
        assert_eq!(write(&gone, matches()), Ok(Written::Conflict));
        assert_eq!(write(&gone, Condition::Absent).unwrap_err().kind, Kind::NoSuchKey);
    }
    for outcome in both(&answer(404, &[], &error("NoSuchBucket"))) {
        assert_eq!(outcome.unwrap_err().kind, Kind::NoSuchBucket);
    }
}

/// 409 decides nothing: neither a conflict nor a doubt.
#[test]
fn conflict_409_means_try_again_and_not_that_somebody_holds_it() {
    for code in ["ConditionalRequestConflict", "OperationAborted", "Whatever"] {
        for outcome in both(&answer(409, &[], &error(code))) {
            let refusal = outcome.unwrap_err();
            assert_eq!((refusal.kind, refusal.code.as_deref()), (Kind::TryAgain, Some(code)));
            assert!(refusal.kind.is_passing());
        }
    }
}

#[test]
fn whatever_leaves_it_open_is_unknown() {
    let doubtful = [
        answer(500, &[], "<html>proxy</html>"),
        answer(502, &[], ""),
        answer(503, &[], &error("SlowDown")),
        answer(503, &[("retry-after", "1")], ""),
        answer(504, &[], ""),
        answer(400, &[], &error("RequestTimeout")),
        answer(408, &[], ""),
        answer(200, &[("etag", "\"n\"")], &error("InternalError")),
        answer(200, &[], ""),
        answer(200, &[("etag", "")], ""),
    ];
    for answer in &doubtful {
        for outcome in both(answer) {
            assert!(matches!(outcome, Ok(Written::Unknown(_))), "{answer:?}: {outcome:?}");
        }
    }
}

#[test]
fn what_was_refused_before_it_was_looked_at_is_no_doubt() {
    let table = [
        (403, "AccessDenied", Kind::AccessDenied),
        (403, "SignatureDoesNotMatch", Kind::BadSignature),
        (403, "InvalidAccessKeyId", Kind::UnknownAccessKey),
        (403, "RequestTimeTooSkewed", Kind::ClockSkew),
        (400, "ExpiredToken", Kind::ExpiredToken),
        (403, "ExpiredToken", Kind::ExpiredToken),
        (301, "PermanentRedirect", Kind::Elsewhere),
        (307, "TemporaryRedirect", Kind::Elsewhere),
        (400, "AuthorizationHeaderMalformed", Kind::Elsewhere),
        (501, "NotImplemented", Kind::NotImplemented),
        (429, "TooManyRequests", Kind::Throttled),
        (400, "InvalidArgument", Kind::Other),
    ];
    for (status, code, kind) in table {
        for outcome in both(&answer(status, &[], &error(code))) {
            assert_eq!(outcome.unwrap_err().kind, kind, "{status} {code}");
        }
    }
}

/// Some replies have no body, or a proxy's: the status alone must do.
#[test]
fn a_throttled_or_broken_server_is_recognised_by_its_status() {
    for call in [Call::Get(key()), Call::Put(key(), Bytes::new()), Call::HeadBucket] {
        for body in ["", "<html><body>busy</body></html>", "{}"] {
            let refused = answer(503, &[], body).check(&call).unwrap_err();
            assert_eq!((refused.kind, refused.code), (Kind::Throttled, None));
            let refused = answer(500, &[], body).check(&call).unwrap_err();
            assert_eq!(refused.kind, Kind::Server);
            assert!(refused.kind.is_passing());
        }
    }
}

#[test]
fn an_error_document_in_a_success_is_a_failure_except_in_an_object() {
    let lying = answer(200, &[("etag", "\"n\"")], &error("InternalError"));
    for call in [
        Call::Put(key(), Bytes::new()),
        Call::Delete(key()),
        Call::List(crate::request::ListQuery::default()),
    ] {
        let refusal = lying.check(&call).unwrap_err();
        assert_eq!((refusal.kind, refusal.status), (Kind::Malformed, 200));
    }
    assert_eq!(lying.check(&Call::Get(key())), Ok(()));
}

#[test]
fn a_missing_thing_without_a_code_is_the_thing_that_was_asked_for() {
    let gone = answer(404, &[], "");
    assert_eq!(gone.check(&Call::HeadBucket).unwrap_err().kind, Kind::NoSuchBucket);
    assert_eq!(gone.check(&Call::Get(key())).unwrap_err().kind, Kind::NoSuchKey);
}

#[test]
fn retry_after_is_seconds_or_a_date_and_has_a_limit() {
    const NOW: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    let wait = |value: &'static str| {
        let headers = [("date", NOW), ("retry-after", value)];
        answer(503, &headers, "").check(&Call::HeadBucket).unwrap_err().retry_after
    };
    assert_eq!(wait("7"), Some(Duration::from_secs(7)));
    assert_eq!(wait("Sun, 06 Nov 1994 08:49:40 GMT"), Some(Duration::from_secs(3)));
    assert_eq!(wait("Sun, 06 Nov 1994 08:49:30 GMT"), None);
    assert_eq!(wait("86400"), Some(Duration::from_millis(RETRY_AFTER_MS_MAX)));
    assert_eq!(wait("18446744073709551615"), Some(Duration::from_millis(RETRY_AFTER_MS_MAX)));
    assert_eq!(wait("soon"), None);
}

#[test]
fn a_refusal_repeats_what_the_server_said() {
    let body = "<Error><Code>PermanentRedirect</Code><Message>go &amp; look</Message>\
                <Region>eu-x</Region><RequestId>r7</RequestId></Error>";
    let refusal = answer(301, &[], body).check(&Call::HeadBucket).unwrap_err();
    assert_eq!(refusal.to_string(), "301 PermanentRedirect: go & look (request r7)");
    assert_eq!(refusal.region.as_deref(), Some("eu-x"));
    let headers = [("x-amz-bucket-region", "eu-h"), ("location", "https://h/k")];
    let refusal = answer(307, &headers, "").check(&Call::HeadBucket).unwrap_err();
    assert_eq!(refusal.region.as_deref(), Some("eu-h"));
    assert_eq!(refusal.location.as_deref(), Some("https://h/k"));
}
