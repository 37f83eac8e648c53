//! `duolog s3-dev` and `duolog s3 probe` as a person runs them: the real program against the real
//! program, and each way in which a bucket cannot be used with its own exit code and words.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

const KEYS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "duolog-dev"), ("AWS_SECRET_ACCESS_KEY", "duolog-dev-secret")];

/// A running `duolog s3-dev`.
struct Store {
    process: Child,
    url: String,
}

impl Store {
    fn start(arguments: &[&str]) -> Self {
        let mut process = duolog(&[])
            .args(["s3-dev", "--listen", "127.0.0.1:0", "--json"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let document: Value = serde_json::from_str(&line).unwrap();
        Self { process, url: document["url"].as_str().unwrap().to_owned() }
    }

    fn stop(mut self) -> i32 {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.process.wait().unwrap().code().unwrap()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn duolog(env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duolog"));
    command.env_clear().env("HOME", "/nowhere").env("AWS_EC2_METADATA_SERVICE_ENDPOINT", DEAD);
    command.envs(env.iter().copied());
    command
}

/// Where nobody listens.
const DEAD: &str = "http://127.0.0.1:1";

/// Exit code, standard output, standard error.
fn probe(env: &[(&str, &str)], arguments: &[&str]) -> (i32, String, String) {
    let rounds = ["s3", "probe", "--rounds", "1", "--writers", "8"];
    let output = duolog(env).args(rounds).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_probe_of_the_development_store_says_safe() {
    let store = Store::start(&[]);
    let at = ["--s3-endpoint", &store.url, "--s3-allow-http", "--s3-bucket", "duolog"];
    let (code, out, error) = probe(&KEYS, &at);
    assert_eq!((code, error.as_str()), (0, ""), "{out}");
    assert!(out.lines().next().unwrap().starts_with("bucket duolog at http://127.0.0.1:"));
    assert!(out.ends_with("verdict: safe for leases\n"), "{out}");
    let (code, out, error) = probe(&KEYS, &[&at[..], &["--json"]].concat());
    assert_eq!((code, error.as_str()), (0, ""));
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(document["verdict"], "safe");
    assert!(document["checks"].as_array().unwrap().len() >= 14);
    assert_eq!(store.stop(), 0);
}

/// Each is one line on standard error that names what to correct, nothing on standard output.
#[test]
fn a_bucket_that_cannot_be_used_is_explained() {
    let store = Store::start(&["--bucket", "events"]);
    let endpoint = ["--s3-endpoint", store.url.as_str()];
    let plain = [&endpoint[..], &["--s3-allow-http"]].concat();
    let with = |more: &[&'static str]| [&plain[..], more].concat();
    let wrong = [KEYS[0], ("AWS_SECRET_ACCESS_KEY", "wrong")];
    let unknown = [("AWS_ACCESS_KEY_ID", "nobody"), KEYS[1]];
    let https = store.url.replace("http://", "https://");
    type Case<'a> = (&'a [(&'a str, &'a str)], Vec<&'a str>, i32, &'a [&'a str]);
    let table: [Case<'_>; 10] = [
        (&KEYS, plain.clone(), 2, &["--s3-bucket", "DUOLOG_S3_BUCKET"]),
        (&KEYS, with(&["--s3-bucket", "other"]), 2, &["other", "create it", "s3.bucket"]),
        (&KEYS, with(&["--s3-bucket", "No_Bucket"]), 2, &["No_Bucket", "small letters"]),
        (&KEYS, [&endpoint[..], &["--s3-bucket", "events"]].concat(), 2, &["s3-allow-http"]),
        (&wrong, with(&["--s3-bucket", "events"]), 2, &["SignatureDoesNotMatch", "wrong"]),
        (&unknown, with(&["--s3-bucket", "events"]), 2, &["InvalidAccessKeyId"]),
        (&KEYS[..1], with(&["--s3-bucket", "events"]), 2, &["AWS_SECRET_ACCESS_KEY is not"]),
        (&[], with(&["--s3-bucket", "events"]), 2, &["instance metadata", "AWS_ACCESS_KEY_ID"]),
        (
            &KEYS,
            vec!["--s3-endpoint", DEAD, "--s3-allow-http", "--s3-bucket", "events"],
            3,
            &["cannot reach http://127.0.0.1:1", "refused"],
        ),
        (
            &KEYS,
            vec!["--s3-endpoint", &https, "--s3-bucket", "events"],
            2,
            &["cannot reach https://127.0.0.1", "no TLS", "s3.endpoint"],
        ),
    ];
    for (env, mut arguments, code, says) in table {
        arguments.extend(["--s3-retry-max-duration-secs", "0"]);
        let (found, out, error) = probe(env, &arguments);
        assert_eq!((found, out.as_str()), (code, ""), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        for part in says {
            assert!(error.contains(part), "{part:?} is missing in {error}");
        }
    }
}

#[test]
fn an_error_for_machines_has_its_kind() {
    let store = Store::start(&[]);
    let at = ["--s3-endpoint", &store.url, "--s3-allow-http", "--s3-bucket", "other", "--json"];
    let (code, _, error) = probe(&KEYS, &at);
    assert_eq!(code, 2);
    let document: Value = serde_json::from_str(&error).unwrap();
    assert_eq!(document["error"]["details"]["kind"], "NoSuchBucket");
    assert_eq!(document["error"]["details"]["status"], 404);
}

/// Objects in a directory are there for the next process; a port that is taken is said.
#[test]
fn a_store_on_disk_survives_its_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let store = Store::start(&["--dir", path, "--bucket", "kept"]);
    let taken = store.url.strip_prefix("http://").unwrap();
    let second = duolog(&[]).args(["s3-dev", "--listen", taken]).output().unwrap();
    assert_eq!(second.status.code(), Some(15));
    assert_eq!(store.stop(), 0);
    assert!(Path::new(path).join("kept").is_dir());
    let again = Store::start(&["--dir", path]);
    let at = ["--s3-endpoint", &again.url, "--s3-allow-http", "--s3-bucket", "kept"];
    assert_eq!(probe(&KEYS, &at).0, 0);
    assert_eq!(again.stop(), 0);
}
