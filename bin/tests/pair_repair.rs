//! A follower whose log was damaged while it was stopped gets its blocks back from the leader when
//! it starts, and from nobody when nobody is there. Real processes, real files, the embedded S3.

#[expect(dead_code, reason = "this file starts its nodes itself")]
mod node;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::sleep;
use std::time::Duration;

use duolog_s3dev::{DEFAULT_ACCESS_KEY_ID, DEFAULT_SECRET_ACCESS_KEY};
use node::{duolog, free_port, run, scratch};
use serde_json::Value as Json;

/// Looks at something that has to come, at most; with [`LOOK`] between them, two minutes.
const LOOKS: u32 = 1200;
const LOOK: Duration = Duration::from_millis(100);
const LOG_DAMAGED: i32 = 16;

/// How a node is started, again and again.
struct Place {
    dir: PathBuf,
    client: String,
    peer: String,
    s3: String,
}

struct Running {
    child: Child,
    lines: Receiver<String>,
    log: String,
}

impl Place {
    fn new(dir: PathBuf, s3: &str) -> Self {
        let port = || format!("127.0.0.1:{}", free_port());
        Self { dir, client: port(), peer: port(), s3: s3.to_owned() }
    }

    fn start(&self) -> Running {
        let dir = self.dir.to_str().expect("a path in UTF-8");
        let mut command = duolog(&[
            "serve",
            "--data-dir",
            dir,
            "--shards-count",
            "1",
            "--listen-client",
            &self.client,
            "--listen-peer",
            &self.peer,
            "--listen-http",
            "off",
            "--s3-endpoint",
            &self.s3,
            "--s3-allow-http",
            "--s3-bucket",
            "duolog",
            "--s3-access-key-id",
            DEFAULT_ACCESS_KEY_ID,
            "--log-segment-size-bytes",
            "2176KiB",
            "--limits-event-max-bytes",
            "64KiB",
            "--s3-lease-duration-ms",
            "6000",
        ]);
        command.env("DUOLOG_S3_SECRET_ACCESS_KEY", DEFAULT_SECRET_ACCESS_KEY);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the program starts");
        let output = BufReader::new(child.stderr.take().expect("standard error is a pipe"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Running { child, lines, log: String::new() }
    }

    fn segments(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.dir.join("shard-000")).expect("the shard's directory");
        let paths = files.map(|entry| entry.expect("an entry").path());
        let named = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seg-"))
        };
        let mut segments: Vec<PathBuf> = paths.filter(named).collect();
        segments.sort();
        segments.retain(|path| content(path).starts_with(b"DLOGSEG1"));
        segments
    }
}

impl Running {
    /// Everything it has said so far.
    fn said(&mut self) -> &str {
        for line in self.lines.try_iter() {
            self.log += &line;
            self.log.push('\n');
        }
        &self.log
    }

    /// Waits for its end: its exit code.
    fn ended(&mut self) -> i32 {
        let status = until("the node ends", || self.child.try_wait().expect("a child of mine"));
        status.code().expect("it exits instead of being killed")
    }

    fn stop(mut self) {
        let id = rustix::process::Pid::from_raw(self.child.id() as i32).expect("a process");
        rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it runs");
        let code = self.ended();
        assert_eq!(code, 0, "{}", self.said());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "a test has nothing else to do on this thread")]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..LOOKS {
        if let Some(found) = look() {
            return found;
        }
        sleep(LOOK);
    }
    panic!("{what}: waited in vain");
}

fn content(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("a segment is readable")
}

/// Offsets and lengths of the blocks of a segment.
fn blocks(path: &Path) -> Vec<(u64, usize)> {
    let bytes = content(path);
    let mut found = Vec::new();
    let mut at = 4096;
    while let Some(header) = bytes.get(at..at + 160).filter(|bytes| bytes.starts_with(b"DLOGBLK1"))
    {
        let body: [u8; 4] = header[20..24].try_into().expect("four bytes");
        let length = 160 + u32::from_le_bytes(body) as usize;
        found.push((at as u64, length));
        at += length.next_multiple_of(4096);
    }
    found
}

fn overwrite(path: &Path, offset: u64, bytes: &[u8]) {
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("a segment is there");
    file.write_all_at(bytes, offset).expect("a segment can be written");
}

fn status(place: &Place) -> Option<Json> {
    let (_, out, _) = run(&["status", "--json", "--addr", &place.client]);
    let answer: Json = serde_json::from_str(&out).ok()?;
    Some(answer["nodes"][0]["status"].clone()).filter(|status| status.is_object())
}

/// Waits until the second node has all that the first one, which leads, has committed.
fn in_sync(leader: &Place, follower: &Place) {
    until("both nodes have everything", || {
        let (one, two) = (status(leader)?, status(follower)?);
        let lsn = &one["shards"][0]["committed"];
        let whole = one["role"] == "leader"
            && one["in_sync"].as_array().is_some_and(|nodes| nodes.len() == 2)
            && one["acks_go_to"] == "peer"
            && two["role"] == "follower"
            && *lsn == one["shards"][0]["lsn"]
            && *lsn == two["shards"][0]["committed"];
        whole.then_some(())
    });
}

/// Appends 45 events of 60 KB one behind the other: more than a segment holds.
fn fill(leader: &Place, scratch: &Path, round: usize) {
    let file = scratch.join(format!("round-{round}.ndjson"));
    let line = |number| format!("{{\"number\":{number},\"text\":\"{}\"}}\n", "x".repeat(60_000));
    std::fs::write(&file, (0..45).map(line).collect::<String>()).expect("room for a file");
    let stream = format!("round-{round}");
    let file = file.to_str().expect("a path in UTF-8");
    let from = ["import", file, "--stream", &stream, "--type", "T", "--addr", &leader.client];
    let (code, _, error) = run(&from);
    assert_eq!(code, 0, "{error}");
}

/// The number of events that clients can read.
fn exported(place: &Place) -> usize {
    let (code, out, error) = run(&["export", "--addr", &place.client]);
    assert_eq!(code, 0, "{error}");
    out.lines().count()
}

/// What it is, and what does it to these segments.
type Damage = (&'static str, fn(&[PathBuf]));

/// Ways to damage the log of a stopped node that has at least three segments.
const DAMAGES: [Damage; 6] = [
    ("a flipped bit in a block that others follow", |segments| {
        let newest = segments.last().expect("a segment");
        let (offset, _) = blocks(newest)[0];
        let at = offset + 200;
        overwrite(newest, at, &[content(newest)[at as usize] ^ 1]);
    }),
    ("two blocks of zeros that others follow", |segments| {
        let newest = segments.last().expect("a segment");
        for (offset, length) in [blocks(newest)[0], blocks(newest)[2]] {
            overwrite(newest, offset, &vec![0; length]);
        }
    }),
    ("a last block of zeros", |segments| {
        let newest = segments.last().expect("a segment");
        let (offset, length) = *blocks(newest).last().expect("a block");
        overwrite(newest, offset, &vec![0; length]);
    }),
    ("a lost segment in the middle", |segments| {
        std::fs::remove_file(&segments[1]).expect("it was there");
    }),
    ("a segment that was cut short", |segments| {
        let file = std::fs::OpenOptions::new().write(true).open(&segments[0]);
        file.expect("it is there").set_len(1 << 20).expect("it can be cut");
    }),
    ("the newest segment lost", |segments| {
        std::fs::remove_file(segments.last().expect("a segment")).expect("it was there");
    }),
];

/// Broken would be: a node that starts with fewer events than it had, one that does not start
/// although the other node has the events, or a log that differs from the other's afterwards.
#[test]
fn a_damaged_log_is_filled_from_the_other_node_or_the_node_does_not_start() {
    let s3 = duolog_s3dev::Server::start(&duolog_s3dev::Settings::default()).expect("a store");
    let scratch = scratch();
    let place = |name: &str| Place::new(scratch.path().join(name), &s3.url());
    let (one, two) = (place("one"), place("two"));
    let leader = one.start();
    until("the founder leads", || status(&one).filter(|status| status["role"] == "leader"));
    let mut follower = two.start();
    in_sync(&one, &two);
    fill(&one, scratch.path(), 90);
    fill(&one, scratch.path(), 91);
    for (round, (what, damage)) in DAMAGES.iter().enumerate() {
        fill(&one, scratch.path(), round);
        // The newest segment has something to damage.
        for _ in 0..100 {
            in_sync(&one, &two);
            if two.segments().last().is_some_and(|newest| blocks(newest).len() >= 5) {
                break;
            }
            let append = ["append", "s", "--type", "T", "--data", "1", "--addr", &one.client];
            assert_eq!(run(&append).0, 0);
        }
        in_sync(&one, &two);
        follower.stop();
        let segments = two.segments();
        assert!(segments.len() >= 3, "{segments:?}");
        damage(&segments);
        // Goes on meanwhile.
        let append = ["append", "s", "--type", "T", "--data", "2", "--addr", &one.client];
        assert_eq!(run(&append).0, 0, "{what}");
        follower = two.start();
        until(what, || follower.said().contains("serving").then_some(()));
        let said = follower.said().to_owned();
        assert!(said.contains("log_repaired"), "{what}: {said}");
        in_sync(&one, &two);
    }
    let events = exported(&one);
    assert!(events >= 45 * (DAMAGES.len() + 2), "{events}");
    follower.stop();
    leader.stop();
    for place in [&one, &two] {
        let (code, out, _) = run(&["verify", place.dir.to_str().expect("a path in UTF-8")]);
        assert_eq!(code, 0, "{out}");
    }
    let (left, right) = (one.segments(), two.segments());
    assert_eq!(left.len(), right.len());
    for (left, right) in left.iter().zip(&right) {
        assert!(content(left) == content(right), "{left:?} and {right:?} are equal");
    }
    alone(&two);
}

/// With the other node away, the damage stays what it is and the node away, too.
fn alone(two: &Place) {
    let segments = two.segments();
    let newest = segments.last().expect("a segment");
    overwrite(newest, blocks(newest)[0].0 + 200, &[0xa5; 8]);
    let before = content(newest);
    let mut node = two.start();
    let code = node.ended();
    let said = node.said();
    assert_eq!(code, LOG_DAMAGED, "{said}");
    assert!(said.contains("duolog node replace") && said.contains("other node"), "{said}");
    assert!(content(newest) == before, "nothing was cut");
}
