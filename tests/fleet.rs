//! Load from several processes: real workers, a real coordinator, a real server.

use std::time::Duration;

use duolog_tests::process::{
    Background, Ran, ServerOptions, free_port, pause, quiet, run, scratch,
};

const TOKEN: &str = "a token of the tests";
/// Exit code for a wrong command line.
const USAGE: Option<i32> = Some(2);

/// A worker on a port of its own, listening.
struct Worker {
    address: String,
    process: Background,
}

impl Worker {
    fn start(flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let address = free_port().to_string();
        let mut arguments = vec!["bench", "worker", "--listen", &address];
        arguments.extend(flags);
        let process = Background::start(&arguments, variables);
        process.says("listening on");
        Self { address, process }
    }
}

fn line(workers: &[&Worker], server: &str, more: &str) -> Vec<String> {
    let names: Vec<&str> = workers.iter().map(|worker| &*worker.address).collect();
    let mut words = vec!["bench", "run", "--workers"];
    let names = names.join(",");
    words.push(&names);
    words.extend(more.split_whitespace());
    words.extend(["--addr", server]);
    words.into_iter().map(str::to_owned).collect()
}

fn fails(ran: &Ran, words: &str) {
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(ran.errors.contains(words), "{words:?} is not in {ran:?}");
}

/// Promised: a run on two workers is one run. With exact expectations and a constant rate every
/// arrival is sent once, nothing conflicts, and the totals are the sums of the shares; the log has
/// exactly what was sent. Provoked: a second of load on four connections of each worker.
/// Broken: a Conflict (a stream with two owners), an arrival too many or too few, or totals that
/// differ from the shares'.
#[test]
fn two_workers_are_one_run() {
    let _alone = quiet();
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path().join("data")).start();
    let address = server.address().to_string();
    let workers = [Worker::start(&[], &[]), Worker::start(&["--once"], &[])];
    let load = "append --json --connections 8 --threads 2 --streams 64 --expect exact --rate 2000 \
                --duration 1s --warm-up 0s";
    let ran = run(&line(&[&workers[0], &workers[1]], &address, load));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json = ran.json();
    assert_eq!(json["errors"], 0, "{json}");
    assert_eq!(json["unanswered"], 0, "{json}");
    assert_eq!(json["open_loop"]["scheduled"], 2000, "{json}");
    assert_eq!(json["open_loop"]["unsent"], 0, "{json}");
    assert_eq!(json["latency_us"]["samples"], 2000, "{json}");
    assert_eq!(json["settings"]["threads"], 4);
    let shares = json["fleet"]["workers"].as_array().expect("each worker has a share");
    let acked: Vec<u64> = shares.iter().filter_map(|share| share["acked"].as_u64()).collect();
    assert_eq!(acked.iter().sum::<u64>(), json["acked"].as_u64().expect("a number"), "{json}");
    assert!(acked.len() == 2 && acked.iter().all(|acked| *acked > 0), "{acked:?}");
    for (share, worker) in shares.iter().zip(&workers) {
        assert_eq!(share["worker"], *worker.address);
        assert!(share["round_trip_us"].as_f64() > Some(0.0), "{share}");
    }
    let exported = run(&["export", "--addr", &address]);
    assert_eq!(exported.output.lines().count(), 2000);
    let [lasting, once] = workers;
    assert_eq!(once.process.wait().code, Some(0), "--once ends with its coordinator");
    let again = run(&line(&[&lasting], &address, "append --connections 2 --duration 100ms"));
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.output.contains(&lasting.address), "{again:?}");
}

/// Promised: who does not know the token is refused, and no worker that others can reach is without
/// one. Provoked: another token, none, the right one; a listener for everybody.
/// Broken: a run that should not be, one that fails, or a token in the written result.
#[test]
fn a_worker_with_a_token_works_for_those_who_know_it() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path().join("data")).start();
    let address = server.address().to_string();
    let worker = Worker::start(&[], &[("DUOLOG_BENCH_TOKEN", TOKEN)]);
    let out = scratch.path().join("out");
    let attempt = |token: &str| {
        let out = out.to_str().expect("a plain path");
        let load = format!("append --connections 2 --duration 100ms --warm-up 0s --out {out}");
        let mut line = line(&[&worker], &address, &load);
        line.splice(2..2, [format!("--token={token}")].into_iter().filter(|_| !token.is_empty()));
        run(&line)
    };
    fails(&attempt("another token of the tests"), "has another token");
    fails(&attempt(""), "wants a token");
    fails(&attempt("short"), "at least 16");
    assert_eq!(attempt(TOKEN).code, Some(0));
    let written = |name: &str| std::fs::read_to_string(out.join(name)).expect("a file of a result");
    let files = ["result.json", "report.html"].map(written);
    for file in &files {
        assert!(file.contains("--token=…") && !file.contains(TOKEN), "{file}");
    }
    let document: serde_json::Value = serde_json::from_str(&files[0]).expect("a document");
    assert_eq!(document["fleet"]["workers"][0]["worker"], *worker.address);
    assert!(!worker.process.errors().contains(TOKEN));
    let open = run(&["bench", "worker", "--listen", "0.0.0.0:0"]);
    fails(&open, "--token");
    assert_eq!(open.code, USAGE, "{open:?}");
}

/// Promised: a worker that dies ends the run at once, by its name, and the others are free again.
/// While a run goes on, other coordinators are refused. Provoked: kill -9 in the middle of a load
/// of ten minutes. Broken: a run that goes on, blames another worker, or leaves one occupied.
#[test]
fn a_killed_worker_ends_the_run_by_its_name() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path().join("data")).start();
    let address = server.address().to_string();
    let (lasting, killed) = (Worker::start(&[], &[]), Worker::start(&[], &[]));
    let load = "append --connections 4 --rate 500 --duration 10m";
    let long = line(&[&lasting, &killed], &address, load);
    let words: Vec<&str> = long.iter().map(String::as_str).collect();
    let long = Background::start(&words, &[]);
    lasting.process.says("load begins");
    killed.process.says("load begins");
    let short = line(&[&lasting], &address, "append --connections 2 --duration 100ms --warm-up 0s");
    fails(&run(&short), "works for the coordinator");
    killed.process.kill();
    let ended = long.wait();
    fails(&ended, &format!("lost worker {}", killed.address));
    lasting.process.says("is gone");
    let after = run(&short);
    assert_eq!(after.code, Some(0), "{after:?}");
    // A server that is not there is the worker's finding, and the worker's name stands with it.
    let nowhere = free_port().to_string();
    let missing = run(&line(&[&lasting], &nowhere, "append --connections 1 --duration 100ms"));
    fails(&missing, &format!("worker {}: cannot connect", lasting.address));
    fails(&run(&line(&[&killed], &address, "append")), &killed.address);
    // A closed loop and reads, too, are runs that several workers can share.
    let reads = line(
        &[&lasting],
        &address,
        "read --json --closed --connections 4 --streams 10 --duration 200ms --warm-up 0s",
    );
    let reads = run(&reads);
    assert_eq!((reads.code, &reads.json()["errors"]), (Some(0), &serde_json::json!(0)));
}

/// Promised: a worker that nobody talks to uses no processor. Provoked: three seconds of nothing.
/// Broken: more than a clock tick.
#[test]
fn a_worker_that_nobody_talks_to_sleeps() {
    let worker = Worker::start(&[], &[]);
    let before = worker.process.vitals().cpu;
    pause(Duration::from_secs(3));
    let used = worker.process.vitals().cpu.saturating_sub(before);
    assert!(used <= Duration::from_millis(10), "{used:?} of processor time in three seconds");
}
