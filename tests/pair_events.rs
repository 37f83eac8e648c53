//! A node's event log: what it keeps over restarts, and what of a failover it tells.

use duolog_tests::pair::{Pair, PairOptions, Timing};
use duolog_tests::process::{Answer, ServerOptions, Wire, quiet, scratch};
use serde_json::{Value as Json, json};

fn events(pair: &Pair, number: usize, last: usize) -> Vec<Json> {
    let request = json!({ "command": "events", "last": last });
    let answer = pair.order(number, &request).expect("the node tells its events");
    let answer: Json = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(answer["error"], Json::Null, "{answer}");
    answer["entries"].as_array().expect("a list").clone()
}

fn words(entries: &[Json]) -> Vec<&str> {
    entries.iter().filter_map(|entry| entry["event"].as_str()).collect()
}

/// Entries are numbered without a gap, and within one run of the machine their clock never goes
/// back.
fn in_order(entries: &[Json]) -> bool {
    entries.windows(2).all(|pair| {
        let number = |entry: &Json, name: &str| entry[name].as_u64().expect("a number");
        let follows = number(&pair[1], "number") == number(&pair[0], "number") + 1;
        let same_boot = pair[0]["boot"] == pair[1]["boot"];
        follows && (!same_boot || number(&pair[1], "mono_us") >= number(&pair[0], "mono_us"))
    })
}

/// Promised: the survivor's event log tells the failover with its phases, whose sum is the time
/// from the last heartbeat to the lead; the log of the killed node outlives it, and its next start
/// says that it ended without a word.
/// Provoked: kill -9 of the leader under load, then its return.
/// Broken: a phase is missing, the sum differs, entries are lost or out of order.
#[test]
fn a_failover_is_told_by_the_event_logs_of_both_nodes() {
    let _alone = quiet();
    let mut pair = Pair::found(PairOptions::default());
    let crowd = pair.crowd();
    pair.until_acked(&crowd, 50);
    let before = events(&pair, 0, 1000);
    let founder = words(&before);
    for word in ["process_start", "challenges", "reign_won", "leads", "first_append", "acks_go_to"]
    {
        assert!(founder.contains(&word), "{word} in {founder:?}");
    }
    pair.kill(0);
    pair.until_leads(1);
    pair.until_acked(&crowd, 50);
    let told = pair.until("the first append is told", |pair| {
        let told = events(pair, 1, 1000);
        let paused = told
            .iter()
            .any(|entry| entry["event"] == "first_append" && entry["epoch"].as_u64() > Some(1));
        paused.then_some(told)
    });
    assert!(in_order(&told), "{told:#?}");
    let one = |event: &str| {
        let mut found = told.iter().rev().filter(|entry| entry["event"] == event);
        found.next().unwrap_or_else(|| panic!("{event} in {told:#?}")).clone()
    };
    let (challenge, lead, append) = (one("challenges"), one("leads"), one("first_append"));
    assert_eq!(challenge["cause"], "expired");
    assert!(challenge["silent_us"].as_u64() > Some(0), "{challenge}");
    let phases = lead["phases"].as_array().expect("phases");
    let names: Vec<&str> = phases.iter().filter_map(|phase| phase["phase"].as_str()).collect();
    for name in ["detect", "write", "promise", "read", "seal", "open"] {
        assert!(names.contains(&name), "{name} in {lead}");
    }
    let sum: u64 = phases.iter().filter_map(|phase| phase["us"].as_u64()).sum();
    assert_eq!(Some(sum), lead["took_us"].as_u64(), "{lead}");
    let whole = sum + append["after_us"].as_u64().expect("a time");
    assert_eq!(Some(whole), append["paused_us"].as_u64(), "{append}");
    pair.start(0);
    assert_eq!(pair.healed_under_load(), 1);
    let after = events(&pair, 0, 1000);
    assert!(in_order(&after), "{after:#?}");
    assert!(after.len() > before.len(), "what was there before the kill is there");
    let start = after.iter().rev().find(|entry| entry["event"] == "process_start");
    let start = start.expect("a start");
    assert_eq!((&start["clean"], &start["same_boot"]), (&json!(false), &json!(true)), "{start}");
    let newest = events(&pair, 0, 3);
    assert!(newest.len() == 3 && in_order(&newest), "{newest:#?}");
    assert!(newest[2]["number"].as_u64() >= after[after.len() - 1]["number"].as_u64());
    let ledger = crowd.finish();
    pair.reckon(&ledger);
}

/// Promised: a handover tells each of its steps on either side, and a clean stop its reason and
/// exit code; the next start knows.
/// Provoked: SIGTERM of the leader, then its return.
/// Broken: a step is missing, or in another order.
#[test]
fn a_handover_and_a_clean_stop_are_told_step_by_step() {
    let _alone = quiet();
    let mut pair = Pair::found(PairOptions { timing: Timing::Calm, ..PairOptions::default() });
    pair.stop(0);
    pair.until_leads(1);
    pair.start(0);
    assert_eq!(pair.healed(), 1);
    let told = events(&pair, 0, 1000);
    let steps = [
        "process_stopping",
        "handover_started",
        "drained",
        "resigned",
        "process_stop",
        "process_start",
        "follows",
    ];
    let mut words = words(&told).into_iter();
    for step in steps {
        assert!(words.any(|word| word == step), "{step} after the ones before it in {told:#?}");
    }
    let stop = told.iter().find(|entry| entry["event"] == "process_stop").expect("a stop");
    assert_eq!(stop["exit"], 0, "{stop}");
    let start = told.iter().rev().find(|entry| entry["event"] == "process_start");
    assert_eq!(start.expect("a start")["clean"], true);
    let told = events(&pair, 1, 1000);
    let heir = words_after(&told, "resign_received");
    for word in ["challenges", "reign_won", "leads"] {
        assert!(heir.contains(&word), "{word} in {heir:?}");
    }
}

fn words_after<'a>(entries: &'a [Json], event: &str) -> Vec<&'a str> {
    words(entries).into_iter().skip_while(|word| *word != event).collect()
}

/// Promised: a standalone node keeps its starts and stops, too.
/// Provoked: two starts of one directory.
/// Broken: the request is not understood, or the first life is forgotten.
#[test]
fn a_standalone_node_tells_its_starts_and_stops() {
    let dir = scratch();
    let options = ServerOptions::new(dir.path().join("data"));
    options.start().stop();
    let server = options.start();
    let mut wire = Wire::connect(options.address).expect("it takes clients");
    let answer = wire.admin(r#"{"command":"events"}"#).expect("an answer");
    let Answer::Admin(text) = answer else { panic!("{answer:?}") };
    let told: Json = serde_json::from_str(&text).expect("JSON");
    let entries = told["entries"].as_array().expect("a list");
    let expected = ["process_start", "process_stopping", "process_stop", "process_start"];
    assert_eq!(words(entries), expected, "{told:#}");
    server.stop();
}
