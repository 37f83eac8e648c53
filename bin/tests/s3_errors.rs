//! What the commands about the store say when the store refuses, is elsewhere, tells another time
//! or lies; and what `duolog lease show` reads from it. The store is embedded in the test, so that
//! it misbehaves on command; the program is the real one.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use std::process::Command;

use bytes::Bytes;
use duolog_lease::document::{Document, RecentTokens};
use duolog_lease::ids::{ClusterId, LeaseEpoch, NodeId, Token, WallMs};
use duolog_lease::in_sync::InSync;
use duolog_s3client::bucket::{Bucket, Endpoint, PlainHttp};
use duolog_s3client::credentials::{Credentials, Source};
use duolog_s3client::key::ObjectKey;
use duolog_s3client::{Client, Settings};
use duolog_s3dev::{
    Answer, DEFAULT_ACCESS_KEY_ID, DEFAULT_SECRET_ACCESS_KEY, Fault, Lie, Rule, Server,
};
use serde_json::Value;

fn store() -> Server {
    Server::start(&duolog_s3dev::Settings::default()).unwrap()
}

/// Exit code, standard output, standard error.
fn duolog(store: &Server, command: &[&str], more: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_duolog"))
        .env_clear()
        .env("DUOLOG_S3_ACCESS_KEY_ID", DEFAULT_ACCESS_KEY_ID)
        .env("DUOLOG_S3_SECRET_ACCESS_KEY", DEFAULT_SECRET_ACCESS_KEY)
        .args(command)
        .args(["--s3-endpoint", &store.url(), "--s3-allow-http", "--s3-bucket", "duolog"])
        .args(["--s3-retry-max-duration-secs", "0"])
        .args(more)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

const PROBE: [&str; 6] = ["s3", "probe", "--rounds", "1", "--writers", "8"];
const SHOW: [&str; 2] = ["lease", "show"];

/// Each refusal has one line with the permission, the setting or the clock that would mend it.
#[test]
fn each_refusal_names_what_would_mend_it() {
    let denied = Answer::error(403, "AccessDenied");
    let skewed = Answer::error(403, "RequestTimeTooSkewed");
    let region = Answer::error(301, "PermanentRedirect").header("x-amz-bucket-region", "eu-far");
    let nowhere = Answer::error(301, "PermanentRedirect");
    let busy = Answer::error(503, "SlowDown");
    type Case<'a> = (Option<&'static str>, &'a str, Answer, i32, &'a [&'a str]);
    let table: [Case<'_>; 9] = [
        (Some("GET"), "list-type", denied.clone(), 4, &["must allow s3:ListBucket", "duolog"]),
        (Some("PUT"), "", denied.clone(), 4, &["must allow s3:PutObject"]),
        (Some("GET"), "/access", denied.clone(), 4, &["must allow s3:GetObject"]),
        (Some("DELETE"), "", denied, 4, &["must allow s3:DeleteObject"]),
        (None, "", skewed, 4, &["clock is", "behind the store's", "NTP"]),
        (None, "", region, 2, &["is in region \"eu-far\"", "s3.region"]),
        (None, "", nowhere, 2, &["is elsewhere", "s3.endpoint"]),
        (None, "", busy, 3, &["503 SlowDown"]),
        (Some("PUT"), "", Answer::error(501, "NotImplemented"), 4, &["lacks something"]),
    ];
    for (method, path_has, answer, code, says) in table {
        let store = store();
        let fault = Fault::Answer(answer);
        store.faults().order(Rule { method, ..Rule::always(fault) }.on(path_has));
        let (found, out, error) = duolog(&store, &PROBE, &[]);
        assert_eq!((found, out.as_str()), (code, ""), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        for part in says {
            assert!(error.contains(part), "{part:?} is missing in {error}");
        }
    }
}

/// A store that ignores If-Match is unsafe: the last line names the checks that failed and what
/// that would do to a lease.
#[test]
fn a_store_that_lies_is_unsafe_and_the_reason_is_said() {
    let store = store();
    store.faults().lie(Lie::IgnoreIfMatch);
    let (code, out, error) = duolog(&store, &PROBE, &[]);
    assert_eq!((code, error.as_str()), (1, ""), "{out}");
    let last = out.lines().last().unwrap();
    assert!(last.starts_with("verdict: unsafe for leases, because of "), "{last}");
    assert!(last.contains("two nodes would both believe"), "{last}");
    let (code, out, _) = duolog(&store, &PROBE, &["--json"]);
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &document["verdict"]), (1, &Value::from("unsafe")));
}

/// A region that the store corrects, and a clock that is off, are told but do not stop a command.
#[test]
fn a_wrong_region_and_a_wrong_clock_are_overcome_and_told() {
    let store = store();
    store.faults().require_region("eu-x");
    store.faults().shift_clock(20 * 60_000);
    let (code, out, error) = duolog(&store, &PROBE, &[]);
    assert_eq!((code, error.as_str()), (0, ""), "{out}");
    assert!(out.contains("region eu-x"), "{out}");
    let clock = out.lines().find(|line| line.contains("  clock")).unwrap();
    assert!(clock.contains("ms ahead of this machine's"), "{clock}");
}

fn write(store: &Server, key: &str, body: Vec<u8>) {
    let endpoint = Endpoint::parse(&store.url(), PlainHttp::Allowed).unwrap();
    let bucket = Bucket::new("duolog", Some(endpoint), None, None).unwrap();
    let (id, secret) = (DEFAULT_ACCESS_KEY_ID, DEFAULT_SECRET_ACCESS_KEY);
    let credentials = Credentials::fixed(id, secret, None).unwrap();
    let settings = Settings::new(bucket, Source::Fixed { credentials, origin: "the test" });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let put = async {
        let client = Client::new(settings).unwrap();
        client.put(&ObjectKey::new(key).unwrap(), Bytes::from(body)).await.unwrap();
    };
    runtime.block_on(put);
}

fn lease(acquired_ms: u64, expires_ms: u64) -> Document {
    let (one, two) = (NodeId(0x11), NodeId(0x22));
    Document {
        cluster: ClusterId(0x77),
        leader: two,
        epoch: LeaseEpoch(7),
        in_sync: InSync::pair(one, two),
        acquired: WallMs(acquired_ms),
        expires: WallMs(expires_ms),
        token: Token(5),
        recent: RecentTokens::default(),
        unknown: [("later".to_owned(), "true".to_owned())].into(),
    }
}

/// Below the subfolder, expired and running, for people and for machines.
#[test]
fn the_lease_is_shown_with_leader_epoch_members_and_ages() {
    const FAR_MS: u64 = 4_000_000_000_000;
    let store = store();
    write(&store, "cluster/lease.json", b"another cluster's".to_vec());
    write(&store, "blue/cluster/lease.json", lease(1_000_000_000_000, FAR_MS).encode());
    let below = ["--s3-subfolder", "/blue/"];
    let (code, out, error) = duolog(&store, &SHOW, &below);
    assert_eq!((code, error.as_str()), (0, ""), "{out}");
    for part in [
        "leader    00000000-0000-0000-0000-000000000022\n",
        "epoch     7\n",
        "in sync   00000000-0000-0000-0000-000000000011, 00000000-0000-0000-0000-000000000022\n",
        "written   2001-09-09T01:46:40.000Z, ",
        "expires   2096-10-02T07:06:40.000Z, in ",
        "object    duolog/blue/cluster/lease.json at http://127.0.0.1:",
        "clock     the store's is ",
    ] {
        assert!(out.contains(part), "{part:?} is missing in {out}");
    }
    let (_, out, _) = duolog(&store, &SHOW, &[&below[..], &["--json"]].concat());
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(document["lease_epoch"], 7);
    assert_eq!(document["expired"], false);
    assert_eq!(document["skew"]["alarming"], false);
    assert_eq!(document["in_sync"].as_array().unwrap().len(), 2);

    write(&store, "blue/cluster/lease.json", lease(1_000_000_000_000, 1_000_000_030_000).encode());
    store.faults().shift_clock(5 * 60_000);
    let (code, out, _) = duolog(&store, &SHOW, &below);
    assert!(out.contains(" ago: usual while the follower acks heartbeats"), "{out}");
    assert!(out.contains("warning   this machine's clock is wrong"), "{out}");
    assert_eq!(code, 0);
}

/// No lease, and a lease that nobody can read, are two different things and neither is a success.
#[test]
fn a_lease_that_is_missing_or_broken_is_said() {
    let store = store();
    let (code, out, error) = duolog(&store, &SHOW, &[]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(error.contains("there is no lease at duolog/cluster/lease.json"), "{error}");
    assert!(error.contains("s3.subfolder"), "{error}");
    write(&store, "cluster/lease.json", b"\xef\xbb\xbf{".to_vec());
    let (code, out, error) = duolog(&store, &SHOW, &[]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(error.contains("cannot be read"), "{error}");
    let newer =
        String::from_utf8(lease(1, 2).encode()).unwrap().replace("\"format\": 1", "\"format\": 2");
    write(&store, "cluster/lease.json", newer.into_bytes());
    let (code, _, error) = duolog(&store, &SHOW, &["--json"]);
    let document: Value = serde_json::from_str(&error).unwrap();
    assert_eq!((code, &document["error"]["exit"]), (1, &Value::from(1)));
    assert!(error.contains("update the program"), "{error}");
}
