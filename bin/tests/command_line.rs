//! The real program's command line: every mistake is one line that says which setting, where it
//! came from and what is allowed, with the documented exit code, and nothing on standard output.

mod node;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use node::{Node, SMALL, duolog, finish, run, scratch};

const USAGE: i32 = 2;

/// Runs a command that must fail with `code` and one line that contains all of `says`.
fn refused(arguments: &[&str], code: i32, says: &[&str]) {
    check_refusal(run(arguments), code, says);
}

fn check_refusal((found, out, error): (i32, String, String), code: i32, says: &[&str]) {
    assert_eq!(found, code, "{error}");
    assert!(out.is_empty(), "{out}");
    assert_eq!(error.lines().count(), 1, "{error}");
    for part in says {
        assert!(error.contains(part), "{part:?} is missing in {error}");
    }
}

#[test]
fn impossible_values_are_refused_in_one_line() {
    for (flag, value, allowed) in [
        ("--shards-count", "0", "from 1 to 512"),
        ("--shards-count", "100000", "from 1 to 512"),
        ("--shards-count", "-1", "from 1 to 512"),
        ("--log-segment-size-bytes", "1", "from 64 KiB to 2 GiB"),
        ("--log-segment-size-bytes", "3GiB", "from 64 KiB to 2 GiB"),
        ("--limits-event-max-bytes", "1GiB", "to 64 MiB"),
        ("--listen-client", "here:7400", "an IP address and port"),
        ("--listen-client", "127.0.0.1", "an IP address and port"),
        ("--shards-cpus", "5000", "a list of CPUs"),
        ("--shards-cpus", "1000", "affinity mask"),
        ("--logging-format", "xml", "auto, human, json"),
    ] {
        refused(&["serve", "--standalone", flag, value], USAGE, &[value, allowed, flag]);
    }
}

#[test]
fn without_a_data_directory_nothing_starts() {
    refused(&["serve", "--standalone"], USAGE, &["--data-dir", "DUOLOG_DATA_DIR"]);
}

#[test]
fn mistakes_in_the_file_name_file_and_line() {
    let dir = scratch();
    let path = dir.path().join("duolog.toml");
    let file = path.to_str().unwrap();
    for (text, says) in [
        ("standalone = true\n[shards]\ncuont = 3\n", ["duolog.toml:3", "shards.count"]),
        ("[shards]\ncount = 0\n", ["duolog.toml:2", "from 1 to 512"]),
        ("[listen\n", ["duolog.toml:1", "not valid TOML"]),
        (
            "[limits]\nevent_max_bytes = 33554432\n[log]\nsegment_size_bytes = \"16MiB\"\n",
            ["duolog.toml:2", "duolog.toml:4"],
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        refused(&["serve", "--config", file], USAGE, &says);
        refused(&["config", "show", "--config", file], USAGE, &says);
    }
    refused(&["serve", "--config", "/nowhere/d.toml"], USAGE, &["/nowhere/d.toml"]);
}

#[test]
fn mistakes_in_the_environment_name_the_variable() {
    let with = |name: &str, value: &str| {
        finish(duolog(&["config", "show"]).env(name, value).output().unwrap())
    };
    check_refusal(with("DUOLOG_SHARD_COUNT", "3"), USAGE, &["DUOLOG_SHARDS_COUNT"]);
    check_refusal(with("DUOLOG_SHARDS_COUNT", "x"), USAGE, &["environment DUOLOG_SHARDS_COUNT"]);
    let (code, out, _) = with("DUOLOG_SHARDS_COUNT", "3");
    assert!(code == 0 && out.contains("environment DUOLOG_SHARDS_COUNT"), "{out}");
}

#[test]
fn an_unknown_flag_or_command_is_answered_with_the_right_one() {
    let (code, _, error) = run(&["serve", "--shard-count", "3"]);
    assert!(code == USAGE && error.contains("--shards-count"), "{error}");
    let (code, _, error) = run(&["raed", "s"]);
    assert!(code == USAGE && error.contains("read"), "{error}");
}

/// The printed file is accepted as it is and changes nothing.
#[test]
fn the_default_file_is_a_configuration() {
    let dir = scratch();
    let path = dir.path().join("duolog.toml");
    let (_, text, _) = run(&["config", "default"]);
    std::fs::write(&path, text).unwrap();
    let show = |more: &[&str]| {
        let (code, out, error) = run(&[&["config", "show", "--json"], more].concat());
        assert_eq!(code, 0, "{error}");
        let document: serde_json::Value = serde_json::from_str(&out).unwrap();
        let settings = document["settings"].as_array().unwrap().clone();
        settings.into_iter().map(|entry| (entry["key"].clone(), entry["value"].clone()))
    };
    let from_file: Vec<_> = show(&["--config", path.to_str().unwrap()]).collect();
    assert_eq!(from_file, show(&[]).collect::<Vec<_>>());
}

#[test]
fn every_command_teaches_by_examples() {
    for command in ["serve", "append", "read", "import", "export", "verify", "inspect", "doctor"] {
        let (code, out, _) = run(&[command, "--help"]);
        assert!(code == 0 && out.contains("Examples:\n  duolog "), "{command}: {out}");
    }
}

#[test]
fn a_reader_that_leaves_ends_the_command_quietly() {
    let mut child = duolog(&["config", "default"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let (code, _, error) = finish(child.wait_with_output().unwrap());
    assert_eq!((code, error.as_str()), (0, ""));
}

#[test]
fn a_directory_in_memory_is_refused() {
    if !Path::new("/dev/shm").is_dir() {
        eprintln!("skipped: this machine has no tmpfs at /dev/shm");
        return;
    }
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().to_str().unwrap();
    let arguments = ["serve", "--standalone", "--listen-http", "off", "--data-dir", path];
    refused(&arguments, 12, &[path, "tmpfs", "ext4"]);
}

#[test]
fn a_port_in_use_is_refused_before_anything_is_written() {
    let (dir, listener) = (scratch(), TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap().to_string();
    let data_dir = dir.path().join("data");
    let path = data_dir.to_str().unwrap();
    let arguments = ["serve", "--standalone", "--data-dir", path, "--listen-client", &address];
    refused(&arguments, 15, &[&address, "listen.client", "flag --listen-client"]);
    assert!(!data_dir.exists());
}

#[test]
fn too_little_locked_memory_is_refused_with_the_value_to_set() {
    let dir = scratch();
    let program = env!("CARGO_BIN_EXE_duolog");
    let line = "ulimit -l 64 && exec \"$0\" serve --standalone --shards-count 3 --data-dir \"$1\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", line, program]).arg(dir.path().join("data")).stdin(Stdio::null());
    check_refusal(finish(shell.output().unwrap()), 14, &["65536", "ulimit -l", "LimitMEMLOCK="]);
}

#[test]
fn a_directory_in_use_or_of_another_shard_count_is_refused() {
    let dir = scratch();
    let data_dir = dir.path().join("data");
    let path = data_dir.to_str().unwrap();
    let node = Node::start(&data_dir);
    // Shards share their port; another server must be found all the same.
    let other = dir.path().join("other");
    let other = ["serve", "--standalone", "--data-dir", other.to_str().unwrap()];
    let taken = [&other[..], &["--listen-client", &node.address, "--listen-http", "off"]].concat();
    refused(&taken, 15, &[&node.address, "ss -ltnp"]);
    let listen = format!("127.0.0.1:{}", node::free_port());
    let serve = |shards: &'static str| {
        let fixed = ["serve", "--standalone", "--data-dir", path, "--listen-client", &listen];
        let shards = ["--shards-count", shards, "--listen-http", "off"];
        let all = [&fixed[..], &shards, &SMALL].concat();
        let output = duolog(&all).env("DUOLOG_LOGGING_LEVEL", "error").output().unwrap();
        finish(output)
    };
    check_refusal(serve("2"), 10, &[path, "in use by process"]);
    check_refusal(run(&["verify", path]), 10, &["in use by process"]);
    node.kill();
    check_refusal(serve("3"), 11, &["created with 2 shards", "flag --shards-count"]);
}
