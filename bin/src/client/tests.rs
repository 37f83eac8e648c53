//! The commands against a server in memory.

use std::cell::RefCell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::Parser;
use serde_json::Value as Json;

use super::memory_server::MemoryServer;
use super::node::NodeCommand;
use crate::cli::{Cli, Command};
use crate::exit::{Exit, Failure};
use crate::output::Output;

#[derive(Clone, Default)]
struct Captured(Rc<RefCell<Vec<u8>>>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs a command line; the outcome and what it printed.
fn run(server: &MemoryServer, arguments: &[&str]) -> (Result<Exit, Failure>, String) {
    let address = server.address.to_string();
    let fixed = ["--addr", &address, "--deadline-ms", "400"];
    let cli = Cli::try_parse_from([&["duolog"], arguments, &fixed].concat()).unwrap();
    let captured = Captured::default();
    let output = Output::to(captured.clone());
    let outcome = match &cli.command {
        Command::Append(arguments) => super::append::run(arguments, output),
        Command::Read(arguments) => super::read::run(arguments, output),
        Command::Import(arguments) => super::import::run(arguments, output),
        Command::Export(arguments) => super::export::run(arguments, output),
        Command::Status(arguments) => super::status::run(arguments, output),
        Command::Handoff(arguments) => super::handoff::run(arguments, output),
        Command::Node(NodeCommand::Replace(arguments)) => super::node::run(arguments, output),
        other => panic!("{other:?} needs no server"),
    };
    let text = String::from_utf8(captured.0.take()).unwrap();
    (outcome, text)
}

fn lines(text: &str) -> Vec<Json> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ok(server: &MemoryServer, arguments: &[&str]) -> Vec<Json> {
    let (outcome, text) = run(server, &[arguments, &["--json"]].concat());
    assert_eq!(outcome.unwrap(), Exit::Ok);
    lines(&text)
}

#[test]
fn what_was_appended_is_read_back() {
    let server = MemoryServer::start();
    let receipt = ok(&server, &["append", "order-7", "--type", "Placed", "--data", "{\"a\":1}"]);
    assert_eq!(receipt[0]["streams"][0]["last_revision"], 0);
    assert_eq!(receipt[0]["replayed"], false);
    ok(&server, &["append", "order-7", "--type", "Paid", "--data", "x", "--expect", "0"]);
    let events = ok(&server, &["read", "order-7"]);
    assert_eq!((events.len(), &events[0]["data"]["a"]), (2, &Json::from(1)));
    assert_eq!(events[1]["data_text"], "x");
    let newest = ok(&server, &["read", "order-7", "--backwards", "--limit", "1"]);
    assert_eq!(newest[0]["revision"], 1);
    assert_eq!(ok(&server, &["read", "order-7", "--type", "Placed"]).len(), 1);
    let shard = events[0]["shard"].to_string();
    assert_eq!(ok(&server, &["read", "--shard", &shard, "--from-lsn", "2"]).len(), 1);
    let (_, people) = run(&server, &["read", "order-7", "--from", "1"]);
    assert!(people.starts_with("1@order-7  Paid  ") && people.ends_with("  x\n"), "{people}");
}

#[test]
fn a_log_is_printed_with_its_positions() {
    let server = MemoryServer::start();
    let receipt = ok(&server, &["append", "s", "--type", "t", "--data", "x"]);
    let (_, people) = run(&server, &["read", "--shard", &receipt[0]["shard"].to_string()]);
    assert!(people.starts_with("1  0@s  t  "), "{people}");
}

#[test]
fn operators_commands_tell_what_is_and_what_is_refused() {
    let server = MemoryServer::start();
    let nodes = ok(&server, &["status"]);
    assert_eq!(nodes[0]["nodes"][0]["reachable"], true);
    assert_eq!(nodes[0]["nodes"][0]["status"]["role"], "standalone");
    let (_, people) = run(&server, &["status"]);
    assert!(people.lines().nth(1).unwrap().ends_with("standalone  -      -      -           -"));
    let (dead, newcomer) =
        ("6f1c4a52-2d3b-4d56-9e0c-0a4c5b0b8a11", "0b7c9a10-88aa-4f0e-b2c1-5d8f6f0d3e21");
    let replace = ["node", "replace", "--dead", dead, "--newcomer", newcomer];
    for arguments in [&["handoff"][..], &replace] {
        let failed = run(&server, arguments).0.unwrap_err();
        assert_eq!((failed.exit, failed.text.as_str()), (Exit::Refused, "there is no other node"));
    }
}

#[test]
fn a_repeated_append_with_a_key_is_told_apart_from_a_refused_one() {
    let server = MemoryServer::start();
    let key = "6f1c4a52-2d3b-4d56-9e0c-0a4c5b0b8a11";
    let append = ["append", "s", "--type", "t", "--data", "x", "--expect", "no-stream"];
    let with_key = [&append[..], &["--idempotency-key", key]].concat();
    assert_eq!(ok(&server, &with_key)[0]["replayed"], false);
    assert_eq!(ok(&server, &with_key)[0]["replayed"], true);
    let refused = run(&server, &append).0.unwrap_err();
    assert_eq!(
        (refused.exit, refused.details["actual_revision"].as_u64()),
        (Exit::Refused, Some(0))
    );
    server.cut_after(Some(0));
    let unknown = run(&server, &["append", "s", "--type", "t", "--data", "x"]).0.unwrap_err();
    assert_eq!(unknown.exit, Exit::Unknown);
    assert!(unknown.details["idempotency_key"].is_string(), "{unknown:?}");
}

#[test]
fn nobody_at_the_address_is_its_own_exit_code() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut server = MemoryServer::start();
    server.address = nobody.local_addr().unwrap();
    drop(nobody);
    let failed = run(&server, &["read", "s"]).0.unwrap_err();
    assert_eq!(failed.exit, Exit::Unreachable);
}

/// 500 lines over 7 streams, so that many are in flight and some wait for their stream.
fn write_lines(dir: &Path, count: usize) -> PathBuf {
    let path = dir.join("lines.ndjson");
    let line = |n: usize| format!("{{\"to\": \"s{}\", \"n\": {n}}}\n", n % 7);
    std::fs::write(&path, (0..count).map(line).collect::<String>()).unwrap();
    path
}

fn import(path: &Path) -> [&str; 6] {
    ["import", path.to_str().unwrap(), "--stream-field", "to", "--type", "Line"]
}

fn counts(summary: &Json) -> (u64, u64, u64) {
    let count = |name: &str| summary[name].as_u64().unwrap();
    (count("appended"), count("replayed"), count("skipped"))
}

/// Every stream holds its lines once and in the order of the file.
fn assert_imported(server: &MemoryServer, count: usize) {
    assert_eq!(server.event_count(), count);
    for stream in 0..7 {
        let events = ok(server, &["read", &format!("s{stream}")]);
        let numbers: Vec<u64> =
            events.iter().map(|event| event["data"]["n"].as_u64().unwrap()).collect();
        let expected: Vec<u64> = (0..count as u64).filter(|n| n % 7 == stream).collect();
        assert_eq!(numbers, expected, "stream s{stream}");
    }
}

#[test]
fn a_second_import_adds_nothing_even_when_the_keys_are_forgotten() {
    let (server, dir) = (MemoryServer::start(), tempfile::tempdir().unwrap());
    let path = write_lines(dir.path(), 500);
    assert_eq!(counts(&ok(&server, &import(&path))[0]), (500, 0, 0));
    assert_imported(&server, 500);
    assert_eq!(counts(&ok(&server, &import(&path))[0]), (0, 0, 500));
    server.forget_keys();
    assert_eq!(counts(&ok(&server, &import(&path))[0]), (0, 0, 500));
    assert_imported(&server, 500);
}

#[test]
fn a_file_that_has_grown_adds_only_its_new_lines() {
    let (server, dir) = (MemoryServer::start(), tempfile::tempdir().unwrap());
    ok(&server, &import(&write_lines(dir.path(), 300)));
    let path = write_lines(dir.path(), 450);
    assert_eq!(counts(&ok(&server, &import(&path))[0]), (150, 0, 300));
    assert_imported(&server, 450);
}

/// The connection breaks in the middle and cannot be made again; then the import is run again.
#[test]
fn an_interrupted_import_goes_on_where_it_was() {
    let (server, dir) = (MemoryServer::start(), tempfile::tempdir().unwrap());
    let path = write_lines(dir.path(), 500);
    server.cut_after(Some(200));
    let (outcome, text) = run(&server, &[&import(&path)[..], &["--json"]].concat());
    assert_eq!(outcome.unwrap_err().exit, Exit::Unknown);
    assert_eq!(lines(&text)[0]["complete"], false);
    assert_eq!(server.event_count(), 200);
    server.cut_after(None);
    let (appended, replayed, skipped) = counts(&ok(&server, &import(&path))[0]);
    assert_eq!((appended, replayed + skipped), (300, 200));
    assert_imported(&server, 500);
}

#[test]
fn a_bad_line_stops_the_import_and_names_itself_and_can_be_mended() {
    let (server, dir) = (MemoryServer::start(), tempfile::tempdir().unwrap());
    let path = dir.path().join("f.ndjson");
    std::fs::write(&path, "{\"to\":\"a\"}\n\n{\"ot\":\"a\"}\n{\"to\":\"a\"}\n").unwrap();
    let failed = run(&server, &import(&path)).0.unwrap_err();
    assert_eq!((failed.exit, failed.text.as_str()), (Exit::LocalIo, "line 3 has no to"));
    assert_eq!(server.event_count(), 1);
    std::fs::write(&path, "{\"to\":\"a\"}\n\n{\"to\":\"a\"}\n{\"to\":\"a\"}\n").unwrap();
    assert_eq!(counts(&ok(&server, &import(&path))[0]), (2, 0, 2));
    std::fs::write(&path, "{\"to\":\"b\"}\n\n{\"to\":\"a\"}\n").unwrap();
    let changed = run(&server, &import(&path)).0.unwrap_err();
    assert!(changed.text.contains("--name"), "{changed}");
    let renamed = [&import(&path)[..], &["--name", "other"]].concat();
    assert_eq!(counts(&ok(&server, &renamed)[0]), (2, 0, 0));
}

/// What comes behind a refused line of its stream is not sent, else mending it would change the
/// order.
#[test]
fn nothing_overtakes_a_refused_line() {
    let (server, dir) = (MemoryServer::start(), tempfile::tempdir().unwrap());
    let path = dir.path().join("f.ndjson");
    let line = |kind: &str| format!("{{\"kind\":{kind:?}}}\n");
    let long = "x".repeat(300);
    let text = [line("a"), line("b"), line(&long), line("d"), line("e")].concat();
    std::fs::write(&path, text).unwrap();
    let arguments = ["import", path.to_str().unwrap(), "--stream", "s", "--type-field", "kind"];
    let refused = run(&server, &arguments).0.unwrap_err();
    assert_eq!(refused.exit, Exit::Refused);
    assert!(refused.text.starts_with("line 3: "), "{refused}");
    let kinds = |events: &[Json]| -> String {
        events.iter().filter_map(|event| event["type"].as_str()).collect()
    };
    assert_eq!(kinds(&ok(&server, &["read", "s"])), "ab");
    let text = ["a", "b", "c", "d", "e"].map(line).concat();
    std::fs::write(&path, text).unwrap();
    assert_eq!(counts(&ok(&server, &arguments)[0]), (3, 0, 2));
    assert_eq!(kinds(&ok(&server, &["read", "s"])), "abcde");
}

/// All lines in one stream: order is kept although hundreds may be in flight.
#[test]
fn one_stream_keeps_the_order_of_the_file() {
    let (server, dir) = (MemoryServer::start(), tempfile::tempdir().unwrap());
    let path = write_lines(dir.path(), 400);
    let path = path.to_str().unwrap();
    ok(&server, &["import", path, "--stream", "all", "--type-field", "to"]);
    let events = ok(&server, &["read", "all"]);
    let numbers: Vec<u64> =
        events.iter().map(|event| event["data"]["n"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..400).collect::<Vec<u64>>());
    assert_eq!(events[3]["type"], "s3");
}

#[test]
fn an_export_has_every_event_once_and_goes_on_from_a_position() {
    let (server, dir) = (MemoryServer::start(), tempfile::tempdir().unwrap());
    ok(&server, &import(&write_lines(dir.path(), 500)));
    let all = ok(&server, &["export"]);
    assert_eq!(all.len(), 500);
    let order: Vec<(u64, u64)> = all
        .iter()
        .map(|event| (event["shard"].as_u64().unwrap(), event["lsn"].as_u64().unwrap()))
        .collect();
    assert!(order.is_sorted(), "{order:?}");
    assert!(ok(&server, &["export", "--with-system"]).len() > 500);
    let rest = ok(&server, &["export", "--from", "0:101,1:11"]);
    let behind = |(shard, lsn): &&(u64, u64)| *lsn >= if *shard == 0 { 101 } else { 11 };
    assert_eq!(rest.len(), order.iter().filter(behind).count());
    let stream = ok(&server, &["export", "--stream", "s3", "--from", "10"]);
    assert_eq!(
        (stream[0]["revision"].as_u64(), stream[0]["stream"].as_str()),
        (Some(10), Some("s3"))
    );
    let wrong = run(&server, &["export", "--from", "7:1"]).0.unwrap_err();
    assert_eq!(wrong.exit, Exit::Usage);
}
