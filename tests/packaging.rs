//! What is shipped beside the program: the configuration, the unit, the container's profile.

#[path = "packaging/filter.rs"]
mod filter;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use duolog_engine::append::Expect;
use duolog_tests::process::{Ended, Operation, ServerOptions, Wire, duolog, run, scratch, skip};
use filter::{Numbers, Profile};
use rustix::io::Errno;
use serde_json::Value as Json;

/// What `systemd-analyze security` may find at most, in tenths: 10 is everything, 0 nothing.
const EXPOSURE_MAX: &str = "16";
const IO_URING: [&str; 3] = ["io_uring_enter", "io_uring_register", "io_uring_setup"];

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("packaging").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(packaging(name)).expect("the file is in the repository")
}

/// Runs a program of the system; nothing if it is not installed.
fn ask(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str], test: &str) -> Option<Output> {
    let program = program.as_ref();
    match Command::new(program).args(arguments).output() {
        Ok(ran) => Some(ran),
        Err(error) => {
            skip(test, &format!("{}: {error}", program.display()));
            None
        }
    }
}

fn settings(shown: &Json) -> &Vec<Json> {
    shown["settings"].as_array().expect("an array")
}

/// Promised: `packaging/duolog.toml` is what `config default` prints: every setting, with its
/// default where that is fixed.
/// Provoked: both compared; the file given to the program, whose values are compared with those
/// without a file.
/// Broken: a difference, a setting that is not in the file, a value that does not come from it.
#[test]
fn the_packaged_configuration_has_every_setting_with_its_default() {
    let file = packaging("duolog.toml").display().to_string();
    let text = read("duolog.toml");
    let printed = run(&["config", "default"]);
    assert_eq!(printed.code, Some(0));
    assert_eq!(text, printed.output, "write it anew: duolog config default > {file}");
    let with = run(&["config", "show", "--json", "--config", &file]).json();
    let without = run(&["config", "show", "--json"]).json();
    assert_eq!(settings(&with).len(), settings(&without).len());
    for (with, without) in settings(&with).iter().zip(settings(&without)) {
        assert_eq!(with["value"], without["value"], "{with}");
        let key = with["key"].as_str().expect("a name");
        let name = key.rsplit('.').next().unwrap_or(key);
        let commented = text.lines().any(|line| line.starts_with(&format!("#{name} = ")));
        assert!(with["from"]["kind"] == "file" || commented, "{key} is not in the file");
    }
}

/// Promised: systemd takes the unit without a word, and finds the service well confined.
/// Provoked: its own checks, offline, with the program that was built.
/// Broken: a complaint; an exposure above the limit.
#[test]
fn systemd_takes_the_unit_and_finds_it_confined() {
    let test = "systemd_takes_the_unit_and_finds_it_confined";
    let scratch = scratch();
    let unit = scratch.path().join("duolog.service");
    let text = read("duolog.service");
    let here = text.replace("/usr/bin/duolog", &duolog().display().to_string());
    assert_ne!(here, text, "the unit starts the installed program");
    fs::write(&unit, here).expect("it can be written");
    let unit = unit.display().to_string();
    let Some(ran) = ask("systemd-analyze", &["verify", "--man=no", &unit], test) else { return };
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    // What other units of this machine look like is not ours to mend.
    let ours: Vec<&str> = told.lines().filter(|line| line.contains("duolog")).collect();
    assert!(ours.is_empty() && ran.status.success(), "{told}");
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    let arguments = ["security", "--offline=true", "--no-pager", &threshold, &unit];
    let Some(ran) = ask("systemd-analyze", &arguments, test) else { return };
    let table = String::from_utf8_lossy(&ran.stdout);
    println!("{}", table.lines().last().unwrap_or_default());
    assert!(ran.status.success(), "{table}");
}

/// The calls of one of systemd's groups, inner groups included.
fn group(name: &str, test: &str) -> Option<BTreeSet<String>> {
    let ran = ask("systemd-analyze", &["syscall-filter", name], test)?;
    assert!(ran.status.success(), "{ran:?}");
    let text = String::from_utf8(ran.stdout).expect("names are text");
    let mut calls = BTreeSet::new();
    for line in text.lines().skip(1).map(str::trim) {
        match line.chars().next() {
            None | Some('#') => {}
            Some('@') => calls.extend(group(line, test)?),
            Some(_) => {
                calls.insert(line.to_owned());
            }
        }
    }
    Some(calls)
}

/// The calls that the unit's lines `SystemCallFilter=` allow, as systemd reads them.
fn allowed_by_unit(test: &str) -> Option<BTreeSet<String>> {
    let mut allowed = BTreeSet::new();
    let text = read("duolog.service");
    for line in text.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let (list, forbids) = line.strip_prefix('~').map_or((line, false), |list| (list, true));
        for word in list.split_whitespace() {
            let calls = match word.strip_prefix('@') {
                Some(_) => group(word, test)?,
                None => BTreeSet::from([word.to_owned()]),
            };
            if forbids {
                allowed.retain(|call| !calls.contains(call));
            } else {
                allowed.extend(calls);
            }
        }
    }
    Some(allowed)
}

/// Starts a server under `profile`, as a child of a thread that is under it.
fn start_under(profile: Profile, options: &ServerOptions) -> Result<(), Ended> {
    let options = options.clone();
    let thread = std::thread::spawn(move || {
        profile.apply().expect("the filter is taken");
        let server = options.try_start()?;
        let mut wire = Wire::connect(server.address()).expect("the server takes clients");
        for number in 1..=20 {
            let operation = Operation::single(number << 32, "one", Expect::Any, b"data");
            wire.append(&operation.request()).receipt();
        }
        assert_eq!(wire.stream("one").len(), 20);
        drop(wire);
        let ended = server.stop();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        Ok(())
    });
    thread.join().expect("the thread does not panic")
}

/// Promised: the calls that the unit allows are all that a server needs, and without those of
/// io_uring it says so.
/// Provoked: a server under a filter made from the unit's own lines, then without the three.
/// Broken: a server that does not serve; another exit code than 13.
#[test]
fn a_server_serves_under_the_units_filter() {
    let test = "a_server_serves_under_the_units_filter";
    let Some(numbers) = Numbers::of_this_machine() else {
        return skip(test, "no kernel headers, or another processor");
    };
    let Some(mut allowed) = allowed_by_unit(test) else { return };
    let scratch = scratch();
    let options = ServerOptions::new(scratch.path().join("data")).tiny_segments();
    let profile = Profile::allowing(&allowed, &numbers, Errno::PERM);
    start_under(profile, &options).expect("the server serves");
    allowed.retain(|call| !IO_URING.contains(&call.as_str()));
    let profile = Profile::allowing(&allowed, &numbers, Errno::PERM);
    let ended = start_under(profile, &options).expect_err("there is no io_uring");
    assert_eq!(ended.code, Some(13), "{ended:?}");
}

/// Promised: the profile for containers is the default one and three calls, and a server serves
/// under it; under the default one it says what is missing.
/// Provoked: `packaging/seccomp` on the profile of this machine, both compared; servers under both.
/// Broken: any other difference; a server that does not serve; another exit code than 13.
#[test]
fn a_server_serves_under_the_profile_for_containers() {
    let test = "a_server_serves_under_the_profile_for_containers";
    let base = "/usr/share/containers/seccomp.json";
    let Ok(default) = fs::read_to_string(base) else { return skip(test, "no default profile") };
    if ask("jq", &["--version"], test).is_none() {
        return;
    }
    let Some(numbers) = Numbers::of_this_machine() else {
        return skip(test, "no kernel headers, or another processor");
    };
    let made = ask(packaging("seccomp"), &[base], test).expect("the script is there");
    assert!(made.status.success(), "{made:?}");
    let default: Json = serde_json::from_str(&default).expect("a profile is JSON");
    let mut ours: Json = serde_json::from_slice(&made.stdout).expect("a profile is JSON");
    let scratch = scratch();
    let options = ServerOptions::new(scratch.path().join("data")).tiny_segments();
    start_under(Profile::of_container(&ours, &numbers), &options).expect("the server serves");

    let rules = ours["syscalls"].as_array_mut().expect("a list");
    let added = rules.pop().expect("a rule");
    assert_eq!(
        (&added["action"], &added["args"]),
        (&"SCMP_ACT_ALLOW".into(), &Json::Array(vec![]))
    );
    assert_eq!(added["names"], Json::from(IO_URING.to_vec()));
    assert_eq!(ours, default, "nothing else is changed");
    let refused = start_under(Profile::of_container(&default, &numbers), &options);
    let ended = refused.expect_err("the default has no io_uring");
    assert_eq!(ended.code, Some(13), "{ended:?}");
    assert!(ended.words().contains("seccomp"), "{ended:?}");
}
