//! One run: a scenario with a seed, in a process of its own, and the reckoning.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use duolog_net::client::RecordedEvent;
use duolog_net::wire::Consistency;
use duolog_tests::pair::{Dress, Ground, Pair, PairOptions, Timing};
use duolog_tests::process::{Ledger, LoopDisk, Stopwatch, enter, moment_us, pause, scratch};
use rustix::process::{
    Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit,
};
use serde_json::{Value as Json, json};

use crate::clock::Clocks;
use crate::files::{self, FileLog};
use crate::ground::{Lab, NODES_MAX, hub};
use crate::history;
use crate::journal::Journal;
use crate::play::{Play, Props};
use crate::readers::Readers;
use crate::scenario::{Need, Scenario};
use crate::watch::Watch;

/// Size of a node's own disk: some segments, and the file that fills it.
const DISK_BYTES: u64 = 96 << 20;
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
    static WRITTEN: Mutex<bool> = Mutex::new(false);
    // Of several panics the first one counts; the others wait until it is written.
    let mut written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::replace(&mut *written, true) {
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
    if let Some(prefix) = &order.prefix {
        // Before there is any other thread: all of them are in the clients' namespace.
        enter(&hub(prefix)).expect("the supervisor has made the namespaces");
    }
    let dies_with_supervisor = set_parent_process_death_signal(Some(Signal::KILL));
    dies_with_supervisor.expect("this system tells of a parent's end");
    raise_files_max();
    let stage = scratch();
    match Stage::set(order, stage.path()) {
        Ok(stage) => {
            let found = stage.run(order);
            write_result(order, "passed", found);
        }
        Err(why) => write_result(order, "skipped", json!({ "why": why })),
    }
}

/// For thousands of clients. Where the system gives less, connecting says so.
fn raise_files_max() {
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_none_or(|maximum| maximum >= FILES_MAX) {
        let raised = Rlimit { current: Some(FILES_MAX), ..limit };
        setrlimit(Resource::Nofile, raised).expect("a limit below the highest can be set");
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
        if needs(Need::Disks) {
            disks = vec![LoopDisk::make(DISK_BYTES)?, LoopDisk::make(DISK_BYTES)?];
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
        // Without clocks that keep their bounds only a read that the other node confirms is fresh.
        let turned = order.scenario.needs.contains(&Need::Clocks);
        let fresh = if turned { Consistency::Confirmed } else { Consistency::Linearizable };
        let shards = order.scenario.shards;
        let readers = Readers::start(play.addresses(), shards, fresh, order.seed);
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
        reads.check_shown(&logs);
        reads.check_ends(&ledger, &logs);
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
