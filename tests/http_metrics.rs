//! What `/metrics` tells of real nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use duolog_engine::append::{AppendBuilder, Expect};
use duolog_engine::ids::{Revision, ShardId};
use duolog_net::limits::FRAME_HEADER_BYTES;
use duolog_net::wire::{Copies, FrameKind, Origin, Scope, Subscribe};
use duolog_tests::pair::{Pair, PairOptions, Timing};
use duolog_tests::process::{Http, ServerOptions, Wire, one_event, quiet, scratch, until};

const APPENDS: u32 = 60;
/// Any wait ends long before.
const PATIENCE: Duration = Duration::from_secs(60);

/// The samples of one scrape, by name and labels as they stand in the text.
#[derive(Debug)]
struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    fn of(http: &Http) -> Self {
        let answer = http.get("/metrics");
        assert_eq!(answer.status, 200, "{answer:?}");
        let kind = answer.header("content-type").unwrap_or_default();
        assert!(kind.starts_with("application/openmetrics-text; version=1.0.0"), "{kind}");
        let text = answer.text();
        assert!(text.ends_with("\n# EOF\n"), "{text}");
        let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            (name.to_owned(), value.parse().expect("a number"))
        });
        Self(samples.collect())
    }

    /// One sample.
    fn at(&self, name: &str) -> f64 {
        *self.0.get(name).unwrap_or_else(|| panic!("no {name} in {:#?}", self.0))
    }

    /// All samples of a metric whose labels contain `label`, together.
    fn sum(&self, name: &str, label: &str) -> f64 {
        let of_it = self
            .0
            .iter()
            .filter(|(key, _)| key.split('{').next() == Some(name) && key.contains(label));
        of_it.map(|(_, value)| value).sum()
    }

    /// What the node is.
    fn role(&self) -> String {
        let mut roles =
            self.0.iter().filter(|(key, value)| key.starts_with("duolog_role{") && **value == 1.0);
        let role = roles.next().expect("a node is something").0.clone();
        assert!(roles.next().is_none(), "and nothing else");
        role.split('"').nth(1).expect("a label").to_owned()
    }
}

/// Promised: what `/metrics` counts is what happened, exactly, on the scrape that follows.
/// Provoked: 60 appends of two events to two shards, one conflict, between two scrapes.
/// Broken: a number moved by anything else; a histogram whose last bucket is not its count.
#[test]
fn a_scrape_tells_what_happened_since_the_one_before() {
    let dir = scratch();
    let options = ServerOptions::new(dir.path()).shards(2).flag("listen-http", "127.0.0.1:0");
    let server = options.start();
    let http = server.http();
    let before = Scrape::of(&http);
    assert_eq!(before.role(), "standalone");
    let mut wire = Wire::connect(server.address()).expect("the server takes clients");
    for index in 0..APPENDS {
        let mut append = AppendBuilder::new();
        append.stream(&format!("scraped-{}", index % 9), Expect::Any).expect("the name fits");
        for event in 0..2 {
            let id = u128::from(index * 2 + event);
            append.event(id, "kind", b"", b"data").expect("the event fits");
        }
        wire.append(&append).receipt();
    }
    let mut append = AppendBuilder::new();
    append.stream("scraped-0", Expect::Exact(Revision(999))).expect("the name fits");
    append.event(1, "kind", b"", b"data").expect("the event fits");
    wire.append(&append).refused();
    let after = Scrape::of(&http);
    let moved = |name, label| after.sum(name, label) - before.sum(name, label);
    let appends = f64::from(APPENDS);
    assert_eq!(moved("duolog_append_acks_total", "disk"), appends);
    assert_eq!(moved("duolog_append_acks_total", ""), appends);
    assert_eq!(moved("duolog_appended_events_total", ""), appends * 2.0);
    assert_eq!(moved("duolog_log_committed_lsn", ""), appends * 2.0);
    assert_eq!(moved("duolog_refusals_total", "conflict"), 1.0);
    assert_eq!(moved("duolog_refusals_total", ""), 1.0);
    assert_eq!(moved("duolog_requests_total", "append"), appends + 1.0);
    assert_eq!(moved("duolog_connections", ""), 1.0);
    assert_eq!(moved("duolog_connections_accepted_total", ""), 1.0);
    assert_eq!(
        after.sum("duolog_log_lag_events", "") + after.sum("duolog_requests_in_flight", ""),
        0.0
    );
    for stage in ["append", "append_queue", "block_write", "block_replicate", "block_commit"] {
        let count = after.at(&format!("duolog_{stage}_seconds_count"));
        let last = after.at(&format!("duolog_{stage}_seconds_bucket{{le=\"+Inf\"}}"));
        assert_eq!(count, last, "{stage}");
    }
    assert_eq!(moved("duolog_append_seconds_count", ""), appends);
    assert_eq!(moved("duolog_append_queue_seconds_count", ""), appends);
    let writes = moved("duolog_log_writes_total", "");
    assert_eq!(moved("duolog_block_write_seconds_count", ""), writes);
    assert_eq!(moved("duolog_block_commit_seconds_count", ""), writes);
    assert!(after.at("duolog_append_seconds_sum") > after.at("duolog_append_queue_seconds_sum"));
    assert!(after.at("duolog_process_cpu_seconds_total") > 0.0);
    assert!(after.at("duolog_process_resident_bytes") > 1e6);
    assert!(after.at("duolog_process_open_files") > 10.0);
    assert!(after.at("duolog_disk_size_bytes") > after.at("duolog_disk_free_bytes"));
    assert!(after.at("duolog_disk_free_bytes") > 0.0);
}

fn http(pair: &Pair, number: usize) -> Http {
    pair.node(number).http()
}

/// Appends until the second copy of one was there.
fn append_until(pair: &Pair, leader: usize, copies: Copies) -> f64 {
    let mut wire = Wire::connect(pair.options[leader].address).expect("the leader takes clients");
    let mut appends = 1.0;
    while wire.append(&one_event("s", "kind", b"", b"")).receipt().head.copies != copies {
        appends += 1.0;
    }
    appends
}

/// Promised: the nodes tell who leads, since when by which election, where second copies go, and
/// what the bucket was asked; a new leader at once.
/// Provoked: appends to a healthy pair, then without its follower, which comes back; then the
/// leader is killed.
/// Broken: acks counted for the wrong place, a follower that says it leads, a takeover that is no
/// election, requests to the bucket that are not counted.
#[test]
fn a_scrape_tells_who_leads_and_where_copies_go() {
    let _alone = quiet();
    let mut pair = Pair::unfounded(PairOptions { timing: Timing::Calm, ..PairOptions::default() });
    for options in &mut pair.options {
        *options = options.clone().flag("listen-http", "127.0.0.1:0");
    }
    let mut pair = pair.founded();
    let (leader, follower) = (Scrape::of(&http(&pair, 0)), Scrape::of(&http(&pair, 1)));
    assert_eq!((&*leader.role(), &*follower.role()), ("leader", "follower"));
    assert_eq!(leader.at("duolog_in_sync_nodes"), 2.0);
    for scrape in [&leader, &follower] {
        assert_eq!(scrape.at("duolog_peer_connected"), 1.0);
    }
    assert!(leader.at("duolog_lease_remaining_seconds") > 0.0);
    assert_eq!(follower.at("duolog_lease_remaining_seconds"), 0.0);
    assert_eq!(leader.sum("duolog_elections_total", ""), 1.0);
    assert_eq!((leader.at("duolog_reigns_total"), follower.at("duolog_reigns_total")), (1.0, 0.0));
    assert!(leader.sum("duolog_s3_requests_total", "put_if_absent") >= 1.0);
    // Both clocks are this machine's; a busy one may take its time to answer a heartbeat.
    assert!(leader.at("duolog_clock_skew_seconds{clock=\"peer\"}").abs() < 10.0);

    let appends = append_until(&pair, 0, Copies::ThisDiskAndPeer);
    let healthy = Scrape::of(&http(&pair, 0));
    let acks = |scrape: &Scrape, copy| scrape.sum("duolog_append_acks_total", copy);
    assert_eq!(acks(&healthy, "peer") - acks(&leader, "peer"), 1.0);
    assert_eq!(acks(&healthy, "") - acks(&leader, ""), appends);
    pair.kill(1);
    append_until(&pair, 0, Copies::ThisDiskAndS3);
    let alone = Scrape::of(&http(&pair, 0));
    assert_eq!(acks(&alone, "s3") - acks(&healthy, "s3"), 1.0);
    assert_eq!(acks(&alone, "disk"), 0.0);
    let puts = |scrape: &Scrape| scrape.sum("duolog_s3_requests_total", "lane=\"bulk\"");
    assert!(puts(&alone) > puts(&healthy), "the chain's objects are counted");

    pair.start(1);
    assert_eq!(pair.healed(), 0, "{}", pair.story());
    pair.kill(0);
    pair.until_leads(1);
    let successor = Scrape::of(&http(&pair, 1));
    assert_eq!(successor.role(), "leader");
    assert!(successor.sum("duolog_elections_total", "expired") >= 1.0);
    assert_eq!(successor.at("duolog_reigns_total"), 1.0);
    assert!(successor.at("duolog_lease_epoch") > leader.at("duolog_lease_epoch"));
}

/// Promised: the number of subscriptions is what is served, and none is left when its connection
/// has ended.
/// Provoked: three subscriptions of two connections; one connection ends.
/// Broken: another number, or one that stays.
#[test]
fn a_scrape_tells_how_many_subscribe() {
    let dir = scratch();
    let server = ServerOptions::new(dir.path()).flag("listen-http", "127.0.0.1:0").start();
    let http = server.http();
    let subscribe = Subscribe {
        shard: ShardId(0),
        scope: Scope::Log { prefix: "", system: false },
        origin: Origin::End,
        kind: None,
        window_bytes: 0,
    };
    let mut frame = Vec::new();
    subscribe.encode(&mut frame, 0).expect("it can be encoded");
    let body = frame.split_off(FRAME_HEADER_BYTES);
    let connect = || Wire::connect(server.address()).expect("the server takes clients");
    let (mut first, mut second) = (connect(), connect());
    for _ in 0..2 {
        first.send(FrameKind::Subscribe, &body).expect("it is sent");
    }
    second.send(FrameKind::Subscribe, &body).expect("it is sent");
    let until_there_are = |count: f64| {
        until(PATIENCE, "the subscriptions are counted", || {
            (Scrape::of(&http).sum("duolog_subscribers", "shard=") == count).then_some(())
        });
    };
    until_there_are(3.0);
    assert_eq!(Scrape::of(&http).sum("duolog_requests_total", "subscribe"), 3.0);
    drop(first);
    until_there_are(1.0);
    drop(second);
    until_there_are(0.0);
}
