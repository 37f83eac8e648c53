//! The commands on real data against the real server: what the README shows, as a test.

mod node;

use std::collections::BTreeMap;
use std::path::Path;

use node::{Node, run, scratch};
use serde_json::Value as Json;

fn data(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the root");
    root.join("tests/data").join(name).to_str().expect("a path in UTF-8").to_owned()
}

/// Runs a client command that must succeed.
fn ok(node: &Node, arguments: &[&str]) -> String {
    let (code, out, error) = run(&[arguments, &["--addr", &node.address]].concat());
    assert_eq!(code, 0, "{arguments:?}: {error}");
    out
}

fn documents(text: &str) -> Vec<Json> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

fn import_flights(node: &Node) -> Json {
    let file = data("flights-2k.ndjson");
    let into = ["--stream-field", "origin", "--stream-prefix", "flights-"];
    let arguments = [&["import", &file][..], &into, &["--type", "Flight", "--json"]].concat();
    documents(&ok(node, &arguments)).remove(0)
}

/// The lines of a file by the stream they belong to, in order.
fn by_stream(file: &str, name: impl Fn(&Json) -> String) -> BTreeMap<String, Vec<Json>> {
    let mut streams: BTreeMap<String, Vec<Json>> = BTreeMap::new();
    let text = std::fs::read_to_string(data(file)).expect("the sample is there");
    for line in documents(&text) {
        streams.entry(name(&line)).or_default().push(line);
    }
    streams
}

fn exported(node: &Node) -> BTreeMap<String, Vec<Json>> {
    let mut streams: BTreeMap<String, Vec<Json>> = BTreeMap::new();
    for event in documents(&ok(node, &["export"])) {
        let stream = event["stream"].as_str().expect("an event names its stream");
        let events = streams.entry(stream.to_owned()).or_default();
        assert_eq!(event["revision"], events.len(), "{event}");
        events.push(event["data"].clone());
    }
    streams
}

/// Flights and earthquakes are imported twice, with a kill -9 of the server in between; what is
/// exported is each file's lines, once, in order, and the log is whole. Broken would be: a line
/// missing, doubled, or out of order.
#[test]
fn a_second_import_adds_nothing_also_after_a_crash() {
    let dir = scratch();
    let data_dir = dir.path().join("data");
    let node = Node::start(&data_dir);
    let first = import_flights(&node);
    assert_eq!((&first["appended"], &first["skipped"]), (&Json::from(2000), &Json::from(0)));
    node.kill();
    let node = Node::start(&data_dir);
    let second = import_flights(&node);
    assert_eq!((&second["appended"], &second["skipped"]), (&Json::from(0), &Json::from(2000)));
    let quakes = data("earthquakes-400.ndjson");
    let net = ["--stream-field", "properties.net", "--stream-prefix", "quakes-"];
    let arguments = [&["import", &quakes][..], &net, &["--type-field", "properties.type"]].concat();
    assert_eq!(ok(&node, &arguments), "400 lines added, 0 were there before\n");
    assert_eq!(ok(&node, &arguments), "0 lines added, 400 were there before\n");

    let text = |value: &Json| value.as_str().unwrap().to_owned();
    let mut expected =
        by_stream("flights-2k.ndjson", |line| format!("flights-{}", text(&line["origin"])));
    expected.extend(by_stream("earthquakes-400.ndjson", |line| {
        format!("quakes-{}", text(&line["properties"]["net"]))
    }));
    assert_eq!(exported(&node), expected);

    let newest = documents(&ok(&node, &["read", "flights-LAX", "--backwards", "--json"]));
    assert_eq!(newest.first().unwrap()["data"], *expected["flights-LAX"].last().unwrap());
    node.kill();
    let (code, out, _) = run(&["verify", data_dir.to_str().unwrap(), "--json"]);
    let verdict: Json = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &verdict["ok"]), (0, &Json::from(true)), "{out}");
    let events: u64 =
        (0..2).map(|shard| verdict["shards"][shard]["events"].as_u64().unwrap()).sum();
    let progress = 2;
    assert_eq!(events, 2400 + progress);
}

/// A bit turned over in the middle of a log that was closed properly is found, with its LSNs.
#[test]
fn verify_finds_a_flipped_bit_in_a_real_log() {
    let dir = scratch();
    let data_dir = dir.path().join("data");
    let node = Node::start(&data_dir);
    for number in 0..20 {
        let data = number.to_string();
        ok(&node, &["append", "s", "--type", "t", "--data", &data]);
    }
    let receipt = ok(&node, &["append", "s", "--type", "t", "--data", "x", "--json"]);
    let shard = documents(&receipt)[0]["shard"].as_u64().unwrap();
    node.kill();
    let segment = data_dir.join(format!("shard-{shard:03}/seg-00000001.log"));
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.windows(8).position(|window| window == b"DLOGBLK1").unwrap();
    bytes[at + 4096 * 5 + 200] ^= 4;
    std::fs::write(&segment, bytes).unwrap();
    let (code, out, _) = run(&["verify", data_dir.to_str().unwrap(), "--json"]);
    assert_eq!(code, 1, "{out}");
    let verdict: Json = serde_json::from_str(&out).unwrap();
    let damage = &verdict["shards"][shard as usize]["damage"][0];
    assert_eq!((&damage["first_lsn"], &damage["last_lsn"]), (&Json::from(6), &Json::from(6)));
    let (code, out, _) = run(&["inspect", segment.to_str().unwrap(), "--events", "--json"]);
    assert_eq!(code, 0);
    let lines = documents(&out);
    assert_eq!(lines.iter().filter(|line| line["event"].is_object()).count(), 20);
    assert!(lines.iter().any(|line| line["gap"]["reason"] == "block body checksum is wrong"));
}
