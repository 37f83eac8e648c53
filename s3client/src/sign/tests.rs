//! Signatures against published examples, and against a second calculation.
//!
//! The second calculation is written from the description of signature version 4 and held against
//! vectors of the published test suite; then it judges the client's requests with random keys.

use super::*;
use crate::bucket::{Bucket, Endpoint, PlainHttp};
use crate::etag::{ETag, IfMatchForm};
use crate::key::ObjectKey;
use crate::request::{Call, Condition, ListEncoding, ListQuery};
use proptest::prelude::*;
use ring::{digest, hmac};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

struct Scope<'a> {
    secret: &'a str,
    /// `20150830T123600Z`
    time: &'a str,
    region: &'a str,
    service: &'a str,
}

/// The signature of a canonical request.
fn signature(scope: &Scope<'_>, canonical: &str) -> String {
    let mac = |key: &[u8], text: &str| {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
    };
    let date = &scope.time[..8];
    let place = format!("{date}/{}/{}/aws4_request", scope.region, scope.service);
    let text =
        format!("AWS4-HMAC-SHA256\n{}\n{place}\n{}", scope.time, sha256(canonical.as_bytes()));
    let mut key = format!("AWS4{}", scope.secret).into_bytes();
    for part in [date, scope.region, scope.service, "aws4_request"] {
        key = mac(&key, part);
    }
    hex(&mac(&key, &text))
}

/// The canonical request of one that is on its way: path and query as they are on the wire.
fn canonical(request: &http::Request<Bytes>, payload_hash: &str) -> String {
    let mut query: Vec<(&str, &str)> = request.uri().query().map_or_else(Vec::new, |query| {
        query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect()
    });
    query.sort_unstable();
    let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut headers: Vec<(&str, String)> = request
        .headers()
        .iter()
        .filter(|(name, _)| *name != "authorization")
        .map(|(name, value)| {
            let words: Vec<&str> = value.to_str().unwrap().split_whitespace().collect();
            (name.as_str(), words.join(" "))
        })
        .collect();
    headers.sort();
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let (method, path) = (request.method(), request.uri().path());
    let (query, names) = (query.join("&"), names.join(";"));
    format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{payload_hash}")
}

fn request(
    method: &str,
    uri: &str,
    headers: &[(&'static str, &'static str)],
    body: &'static [u8],
) -> http::Request<Bytes> {
    let request = http::Request::builder().method(method).uri(uri);
    let add = |request: http::request::Builder, (name, value): &(&str, &str)| {
        request.header(*name, *value)
    };
    headers.iter().fold(request, add).body(Bytes::from_static(body)).unwrap()
}

/// Vectors of the published signature version 4 test suite (region us-east-1, service "service").
#[test]
fn the_second_calculation_agrees_with_the_published_suite() {
    let scope = Scope {
        secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
        time: "20150830T123600Z",
        region: "us-east-1",
        service: "service",
    };
    let table = [
        ("GET", "/", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "/", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        (
            "GET",
            "/?Param2=value2&Param1=value1",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        ("GET", "/%E1%88%B4", "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"),
        (
            "GET",
            "/?%E1%88%B4=bar",
            "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04",
        ),
        (
            "POST",
            "/?Param1=value1",
            "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11",
        ),
    ];
    for (method, path, expected) in table {
        let headers = [("host", "example.amazonaws.com"), ("x-amz-date", scope.time)];
        let uri = format!("http://example.amazonaws.com{path}");
        let request = request(method, &uri, &headers, b"");
        assert_eq!(signature(&scope, &canonical(&request, &sha256(b""))), expected, "{path}");
    }
}

fn credentials(token: Option<&str>) -> Credentials {
    let secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    Credentials::fixed("AKIAIOSFODNN7EXAMPLE", secret, token).unwrap()
}

/// 2013-05-24T00:00:00Z, the moment of S3's examples.
const MOMENT_MS: i64 = 1_369_353_600_000;

/// The examples of the S3 reference ("Signature Calculations for the Authorization Header").
#[test]
fn the_examples_of_the_s3_reference_come_out() {
    const HOST: (&str, &str) = ("host", "examplebucket.s3.amazonaws.com");
    const BASE: &str = "https://examplebucket.s3.amazonaws.com";
    let put = [
        HOST,
        ("date", "Fri, 24 May 2013 00:00:00 GMT"),
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
    ];
    let table = [
        (
            request("GET", &format!("{BASE}/test.txt"), &[HOST, ("range", "bytes=0-9")], b""),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            request("PUT", &format!("{BASE}/test%24file.text"), &put, b"Welcome to Amazon S3."),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            request("GET", &format!("{BASE}/?lifecycle"), &[HOST], b""),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            request("GET", &format!("{BASE}/?max-keys=2&prefix=J"), &[HOST], b""),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ];
    for (mut request, expected) in table {
        let hash = PayloadHash::of(request.body());
        sign(&mut request, hash, &credentials(None), "us-east-1", MOMENT_MS).unwrap();
        let authorization = request.headers()["authorization"].to_str().unwrap();
        assert!(authorization.ends_with(&format!("Signature={expected}")), "{authorization}");
        assert_eq!(request.headers()["x-amz-date"], "20130524T000000Z");
        assert_eq!(request.headers()["x-amz-content-sha256"], sha256(request.body()));
    }
}

/// A call, signed, must carry the signature that the second calculation finds for it, over all of
/// its headers and each of them once.
fn judge(call: &Call, endpoint: &str, token: Option<&str>) {
    let endpoint = Endpoint::parse(endpoint, PlainHttp::Allowed).unwrap();
    let bucket = Bucket::new("events", Some(endpoint), Some("eu-x"), None).unwrap();
    let mut request = call.request(&bucket, IfMatchForm::AsGiven).unwrap();
    let hash = PayloadHash::of(request.body());
    sign(&mut request, hash, &credentials(token), "eu-x", MOMENT_MS).unwrap();
    let scope = Scope {
        secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        time: "20130524T000000Z",
        region: "eu-x",
        service: "s3",
    };
    let canonical = canonical(&request, &sha256(request.body()));
    let authorization = request.headers()["authorization"].to_str().unwrap();
    let expected = signature(&scope, &canonical);
    assert!(authorization.ends_with(&expected), "{canonical}\n{authorization}");
    let names: Vec<&str> = request.headers().keys().map(http::HeaderName::as_str).collect();
    for name in &names {
        assert_eq!(request.headers().get_all(*name).iter().count(), 1, "{name}");
    }
    let signed = authorization.split("SignedHeaders=").nth(1).unwrap().split(',').next().unwrap();
    assert_eq!(signed.split(';').count(), names.len() - 1, "{signed}: {names:?}");
    assert_eq!(request.headers().get("x-amz-security-token").is_some(), token.is_some());
    // The URL library behind the transport must not change what was signed.
    let sent = reqwest::Request::try_from(request.map(reqwest::Body::from)).unwrap();
    let signed_path = canonical.lines().nth(1).unwrap();
    assert_eq!(sent.url().path(), signed_path);
}

#[test]
fn a_session_token_is_signed() {
    let key = ObjectKey::new("k").unwrap();
    judge(&Call::Get(key.clone()), "https://h", Some("token+/="));
    judge(&Call::Put(key, Bytes::from_static(b"x")), "http://[::1]:9000", Some("t"));
}

proptest! {
    #[test]
    fn any_key_is_signed_as_it_is_sent(
        text in "[ -~]{1,30}|\\PC{1,20}|([a-z]{0,3}/){1,4}|[%+&=?# '\"<>\\\\]{1,10}|.{1,20}",
        body in proptest::collection::vec(any::<u8>(), 0..20),
        create in any::<bool>(),
    ) {
        let Ok(key) = ObjectKey::new(text) else { return Ok(()) };
        let condition = match create {
            true => Condition::Absent,
            false => Condition::Matches(ETag::new("\"e-1\"").unwrap()),
        };
        judge(&Call::PutIf(key.clone(), body.into(), condition), "http://h:9000", None);
        judge(&Call::Get(key), "http://h:80", Some("t"));
    }

    #[test]
    fn any_listing_is_signed_as_it_is_sent(
        prefix in ".{0,20}|[%+&=?#/\\[\\]-]{0,12}",
        start_after in proptest::option::of(".{1,10}"),
        continuation in proptest::option::of("[ -~]{1,20}"),
        url in any::<bool>(),
    ) {
        let encoding = if url { ListEncoding::Url } else { ListEncoding::Plain };
        let list = ListQuery { prefix, start_after, continuation, page_keys: Some(7), encoding };
        judge(&Call::List(list), "https://h:443", None);
    }
}
