//! SIGHUP: what a server takes over while it runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use duolog_engine::append::Expect;
use duolog_s3dev::{DEFAULT_ACCESS_KEY_ID, DEFAULT_SECRET_ACCESS_KEY};
use duolog_tests::process::{
    Answer, Manager, Operation, Server, ServerOptions, Wire, free_port, run, scratch, until,
};
use rustix::process::Signal;
use serde_json::Value as Json;

/// How long something that is expected may take.
const PATIENCE: Duration = Duration::from_secs(40);

fn lines(server: &Server) -> Vec<Json> {
    server.log().iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Log lines with this event.
fn events(server: &Server, event: &str) -> Vec<Json> {
    lines(server).into_iter().filter(|line| line["event"] == event).collect()
}

/// Rewrites the file and has it read; the line that ends the reload.
fn reload(server: &Server, file: &Path, text: &str) -> Json {
    let ends = |server: &Server| {
        lines(server)
            .into_iter()
            .filter(|line| line["event"] == "reloaded" || line["event"] == "reload_refused")
            .collect::<Vec<_>>()
    };
    let before = ends(server).len();
    fs::write(file, text).expect("the file can be written");
    server.signal(Signal::HUP);
    until(PATIENCE, "the reload ends", || ends(server).into_iter().nth(before))
}

fn with_file(scratch: &Path, text: &str) -> (ServerOptions, PathBuf) {
    let file = scratch.join("duolog.toml");
    fs::write(&file, text).expect("the file can be written");
    let options = ServerOptions::new(scratch.join("data"));
    (options.flag("config", &file.display().to_string()), file)
}

/// Promised: SIGHUP takes over what can be, names what waits for a restart, each time, and a file
/// with a mistake changes nothing; clients do not notice. The manager hears of each reload.
/// Provoked: a log level and a memory limit changed in the file, a mistake in it, then all back.
/// Broken: a level that does not count; a change that is not named or named wrongly; an end of the
/// server or a dropped connection; a reload without RELOADING and READY.
#[test]
fn a_reload_takes_over_what_can_be_and_names_the_rest() {
    let scratch = scratch();
    let manager = Manager::at_name();
    let (options, file) = with_file(scratch.path(), "[logging]\nlevel = \"info\"\n");
    let mut server = options.env("NOTIFY_SOCKET", &manager.address).start();
    manager.await_word("READY=1", 1);
    let mut wire = Wire::connect(server.address()).expect("the server takes clients");

    let changed = "[logging]\nlevel = \"debug\"\n[memory]\nhot_streams = 1000\n";
    let ended = reload(&server, &file, changed);
    assert_eq!((&ended["applied"], &ended["need_restart"]), (&1.into(), &1.into()), "{ended}");
    let applied = events(&server, "setting_applied");
    assert_eq!(applied[0]["setting"], "logging.level", "{applied:?}");
    assert_eq!((&applied[0]["from"], &applied[0]["to"]), (&"info".into(), &"debug".into()));
    assert_eq!(applied[0]["origin"], format!("{}:2", file.display()));
    let waiting = events(&server, "setting_needs_restart");
    assert_eq!(waiting[0]["setting"], "memory.hot_streams", "{waiting:?}");
    assert_eq!((&waiting[0]["from"], &waiting[0]["to"]), (&"524288".into(), &"1000".into()));
    manager.await_word("READY=1", 2);
    let told = manager.told();
    let reloading = manager.position("RELOADING=1").expect("it was told");
    assert!(told[reloading + 1].starts_with("MONOTONIC_USEC="), "{told:?}");

    let refused = reload(&server, &file, "[logging]\nlevle = \"warn\"\n");
    assert!(refused["reason"].to_string().contains("logging.level"), "{refused}");
    manager.await_word("READY=1", 3);
    manager.await_word("STATUS=standalone, serving; reload refused: ", 1);
    assert!(server.is_running());
    wire.ping().expect("the connection from before all reloads is served");

    // Still debug, so the refused file has changed nothing; then only errors.
    let ended = reload(&server, &file, "[logging]\nlevel = \"error\"\n");
    assert_eq!((&ended["applied"], &ended["need_restart"]), (&1.into(), &0.into()), "{ended}");
    let applied = events(&server, "setting_applied");
    assert_eq!(applied[1]["from"], "debug", "{applied:?}");
    assert_eq!(server.stop().code, Some(0));
}

/// Promised: the form of the log can be changed.
/// Provoked: from JSON to lines for people.
/// Broken: lines that stay JSON.
#[test]
fn a_reload_changes_the_form_of_the_log() {
    let scratch = scratch();
    let (options, file) = with_file(scratch.path(), "[logging]\nformat = \"json\"\n");
    let server = options.start();
    fs::write(&file, "[logging]\nformat = \"human\"\n").expect("the file can be written");
    server.signal(Signal::HUP);
    until(PATIENCE, "a line for people that tells of the reload", || {
        let log = server.log();
        log.into_iter().find(|line| !line.starts_with('{') && line.contains("\"reloaded\""))
    });
    assert_eq!(server.stop().code, Some(0));
}

/// Promised: new credentials are used without a restart, also where the old ones have stopped to
/// work.
/// Provoked: a node that leads alone, so that each append needs the bucket; its file gets a secret
/// that the store refuses, later the right one again.
/// Broken: an append that goes through with the wrong secret; none with the right one.
#[test]
fn a_reload_rotates_credentials() {
    let scratch = scratch();
    let s3 = duolog_s3dev::Server::start(&duolog_s3dev::Settings::default());
    let s3 = s3.expect("the embedded S3 starts");
    let secret = |secret: &str| format!("[s3]\nsecret_access_key = \"{secret}\"\n");
    let file = scratch.path().join("duolog.toml");
    fs::write(&file, secret(DEFAULT_SECRET_ACCESS_KEY)).expect("the file can be written");
    let options = ServerOptions::of_pair(scratch.path().join("data"))
        .flag("config", &file.display().to_string())
        .flag("s3-allow-http", "true")
        .flag("s3-bucket", "duolog")
        .flag("s3-endpoint", &s3.url())
        .flag("s3-access-key-id", DEFAULT_ACCESS_KEY_ID)
        .flag("s3-lease-duration-ms", "3000")
        .flag("heartbeat-lease-duration-ms", "900")
        .flag("heartbeat-interval-ms", "150")
        .flag("max-clock-drift-ms", "400")
        .flag("listen-peer", &free_port().to_string());
    let server = options.start();
    let append = |number: u128| {
        let mut wire = Wire::connect(server.address()).ok()?;
        wire.patience(Duration::from_secs(2)).ok()?;
        let operation = Operation::single(number << 32, "one", Expect::Any, b"data");
        let answer = wire.try_append(&operation.request()).ok()?;
        matches!(answer, Answer::Appended(_)).then_some(())
    };
    until(PATIENCE, "the lone leader takes an append", || append(1));
    let ended = reload(&server, &file, &secret("wrong"));
    assert_eq!(ended["applied"], 1, "{ended}");
    assert_eq!(events(&server, "credentials_changed").len(), 1);
    assert_eq!(append(2), None, "the store refuses the secret: {:?}", server.log());
    let ended = reload(&server, &file, &secret(DEFAULT_SECRET_ACCESS_KEY));
    assert_eq!(ended["applied"], 1, "{ended}");
    until(PATIENCE, "the lone leader takes an append again", || append(3));
    let log = server.log().join("\n");
    assert!(!log.contains(DEFAULT_SECRET_ACCESS_KEY), "a secret is in the log");
}

/// Promised: `config show` tells which settings a reload takes over.
/// Provoked: both forms of its output.
/// Broken: a setting of the log that is not among them, one of the disk that is.
#[test]
fn config_show_tells_what_a_reload_takes_over() {
    let shown = run(&["config", "show", "--json"]).json();
    let reloadable = |name: &str| {
        let entries = shown["settings"].as_array().expect("an array");
        let entry = entries.iter().find(|entry| entry["key"] == name).expect("the setting");
        entry["reloadable"].as_bool().expect("a switch")
    };
    assert!(reloadable("logging.level") && reloadable("s3.secret_access_key"));
    assert!(!reloadable("data_dir") && !reloadable("log.segment_size_bytes"));
    let table = run(&["config", "show"]).output;
    let line = |name: &str| table.lines().find(|line| line.starts_with(name)).expect("a line");
    assert!(line("logging.level").ends_with("  SIGHUP"), "{table}");
    assert!(!line("data_dir").ends_with("SIGHUP"), "{table}");
}
