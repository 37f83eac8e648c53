//! One run: a scenario with a seed, in a process of its own, and the reckoning.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duolog_net::client::RecordedEvent;
use duolog_tests::pair::{Dress, Ground, Pair, PairOptions, Timing};
use duolog_tests::process::{Ledger, LoopDisk, Stopwatch, moment_us, pause, scratch};
use serde_json::{Value as Json, json};

use crate::clock::Clocks;
use crate::files::{self, FileLog};
use crate::ground::{Lab, NODES_MAX};
use crate::history;
use crate::journal::Journal;
use crate::play::{Play, Props};
use crate::readers::Readers;
use crate::scenario::{Need, Scenario};
use crate::watch::Watch;

/// Size of a node's own disk: some segments, and the file that fills it.
const DISK_BYTES: u64 = 192 << 20;
/// So long a new pair may go on asking the store before it is quiet.
const QUIET_MAX: Duration = Duration::from_secs(30);
/// The lease by S3: long enough for a busy machine, short enough for many scenarios.
const S3_LEASE_MS: &str = "4000";
/// Open files of this process: thousands of clients.
const FILES_MAX: u64 = 16_384;

/// What is to be run.
#[derive(Debug)]
pub struct Order {
    /// What happens.
    pub scenario: &'static Scenario,
    /// Decides what chance decides.
    pub seed: u64,
    /// Where the run writes what it found.
    pub folder: PathBuf,
    /// The namespaces it is in, if any.
    pub prefix: Option<String>,
}

/// The file with the result.
pub fn result_file(folder: &Path) -> PathBuf {
    folder.join("result.json")
}

fn write_result(order: &Order, verdict: &str, mut more: Json) {
    static WRITTEN: AtomicBool = AtomicBool::new(false);
    // Of several panics the first one counts.
    if WRITTEN.swap(true, Ordering::SeqCst) {
        return;
    }
    more["scenario"] = json!(order.scenario.name);
    more["seed"] = json!(order.seed);
    more["verdict"] = json!(verdict);
    more["ground"] = json!(if order.prefix.is_some() { "namespaces" } else { "proxies" });
    more["seconds"] = json!(moment_us() as f64 / 1e6);
    fs::write(result_file(&order.folder), more.to_string()).expect("the result can be written");
}

/// Does it all; the result is in the folder. A broken promise is a panic, which ends the process.
pub fn act(order: Order) {
    // The time line begins.
    let _ = moment_us();
    let order: &'static Order = Box::leak(Box::new(order));
    std::panic::set_hook(Box::new(|panic| {
        let text = panic.payload_as_str().unwrap_or("a panic without a text").to_owned();
        let place = panic.location().map(ToString::to_string);
        eprintln!("{text}\nat {place:?}");
        write_result(order, "failed", json!({ "why": text, "at": place }));
        std::process::exit(1);
    }));
    let limit = rustix::process::Rlimit { current: Some(FILES_MAX), maximum: Some(FILES_MAX) };
    // Without the right to it the limit stays, and a scenario with more clients says what it lacks.
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
    let stage = scratch();
    match Stage::set(order, stage.path()) {
        Ok(stage) => {
            let found = stage.run(order);
            write_result(order, "passed", found);
        }
        Err(why) => write_result(order, "skipped", json!({ "why": why })),
    }
}

/// Everything a run needs.
struct Stage {
    props: Props,
    ground: Ground,
}

impl Stage {
    /// Nothing runs yet; an error says what the machine lacks.
    fn set(order: &Order, stage: &Path) -> Result<Self, String> {
        let (lab, mut ground) = Lab::new(order.prefix.as_deref());
        let needs = |need| order.scenario.needs.contains(&need);
        let clocks = needs(Need::Clocks).then(|| Clocks::make(stage, NODES_MAX)).transpose()?;
        let mut disks = Vec::new();
        for _ in 0..if needs(Need::Disks) { 2 } else { 0 } {
            let disk = LoopDisk::new(order.scenario.name, DISK_BYTES);
            disks.push(disk.ok_or("it takes root and loop devices to mount small disks")?);
        }
        let places: Vec<PathBuf> = disks.iter().map(|disk| disk.path().join("data")).collect();
        let (inner, folder, dressing) = (ground.dress, order.folder.clone(), clocks.clone());
        ground.dress = Dress(Box::new(move |number, options| {
            let mut options = (inner.0)(number, options);
            options = options.flag("s3-lease-duration-ms", S3_LEASE_MS);
            options = options.log_file(folder.join(format!("node-{number}.log")));
            if let Some(clocks) = &dressing {
                options = clocks.dress(number, options);
            }
            if let Some(place) = places.get(number) {
                options.dir = place.clone();
            }
            options
        }));
        let journal = Journal::create(&order.folder.join("events.jsonl"));
        Ok(Self { props: Props { lab, clocks, disks, journal, seed: order.seed }, ground })
    }

    fn run(self, order: &Order) -> Json {
        let Self { props, ground } = self;
        let setup = PairOptions { timing: Timing::Calm, shards: order.scenario.shards };
        let pair = Pair::unfounded_on(setup, ground).founded();
        until_quiet(&pair);
        let epoch = pair.status(0).expect("the leader answers").epoch();
        pair.s3.faults().take_seen();
        let journal = props.journal.clone();
        let begun_ms = moment_us() / 1000;
        let mut play = Play::begin(pair, props);
        let addresses = play.pair.options.iter().map(|options| options.address).collect();
        let watch = Watch::start(addresses, &journal);
        let readers = Readers::start(play.addresses(), order.seed);
        play.act(order.scenario.first);
        play.act(order.scenario.steps);
        let s3_requests = play.pair.s3.faults().take_seen().len() as u64;
        let ended_ms = moment_us() / 1000;
        journal.note("step", json!({ "text": "the reckoning" }));
        play.dismiss();
        let leader = play.pair.healed();
        let epoch_in_the_end = play.pair.status(leader).expect("the leader answers").epoch();
        let reads = readers.finish();
        watch.finish();
        let Play { mut pair, ledger, .. } = play;
        history::write(&order.folder.join("history.jsonl"), &ledger);
        pair.settle(&ledger);
        let logs = compare_files(&pair, &ledger);
        reads.check_shown(&logs[0]);
        if !order.scenario.needs.contains(&Need::Clocks) {
            reads.check_fresh(&ledger);
        }
        let elections = epoch_in_the_end - epoch;
        let expected = &order.scenario.elections;
        assert!(expected.contains(&elections), "{elections} elections instead of {expected:?}");
        let s3_max = order.scenario.s3_requests_max.unwrap_or(u64::MAX);
        assert!(s3_requests <= s3_max, "{s3_requests} requests to the store, at most {s3_max}");
        let rhythm = history::Rhythm::of(&ledger, begun_ms, ended_ms);
        json!({
            "elections": elections,
            "s3_requests": s3_requests,
            "reads": reads.count(),
            "events": logs.iter().map(Vec::len).sum::<usize>(),
            "acked": ledger.acked_count(),
            "unknown": ledger.unknown_count(),
            "refused": ledger.entries().len() - ledger.acked_count() - ledger.unknown_count(),
            "pause_ms_max": rhythm.pause_ms_max(),
            "pauses": rhythm.pauses,
            "acks_per_100ms": rhythm.acks_per_100ms,
            "begun_ms": begun_ms,
            "ended_ms": ended_ms,
        })
    }
}

/// Waits until a new pair leaves the store alone.
fn until_quiet(pair: &Pair) {
    let watch = Stopwatch::start();
    loop {
        pair.s3.faults().take_seen();
        pause(Duration::from_secs(1));
        let asked = pair.s3.faults().take_seen().len();
        if asked == 0 {
            return;
        }
        assert!(watch.elapsed() < QUIET_MAX, "a healthy pair goes on asking the store: {asked}");
    }
}

/// A5: the files of both nodes, read by docs/FORMAT.md, hold the same, and what clients were told.
fn compare_files(pair: &Pair, ledger: &Ledger) -> Vec<Vec<RecordedEvent>> {
    let logs: Vec<_> = (0..pair.shards).map(|shard| compare_shard(pair, shard)).collect();
    ledger.check_logs(&logs);
    logs
}

fn compare_shard(pair: &Pair, shard: u32) -> Vec<RecordedEvent> {
    let [one, other] = pair.members.map(|number| -> FileLog {
        let read = files::read(&pair.options[number].dir, shard);
        read.unwrap_or_else(|what| panic!("the files of node {number}: {what}"))
    });
    assert_eq!(one.hash, other.hash, "R4: the files of both nodes end alike");
    let differs = one.events.iter().zip(&other.events).find(|(one, other)| one != other);
    assert!(differs.is_none(), "R4: the files differ: {differs:?}");
    assert_eq!(one.events.len(), other.events.len(), "R4: events in the files of both nodes");
    one.events
}
