//! Manual pages as the program writes them.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn man(dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duolog"));
    command.arg("man").arg("--dir").arg(dir).output().expect("the program runs")
}

fn written() -> (tempfile::TempDir, Vec<PathBuf>) {
    let dir = tempfile::tempdir().expect("a directory");
    let ran = man(dir.path());
    assert!(ran.status.success() && ran.stdout.is_empty(), "{ran:?}");
    let entries = fs::read_dir(dir.path()).expect("it is there");
    let mut pages: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    pages.sort();
    (dir, pages)
}

/// Runs a reader of pages on each; what it complains of. Nothing if it is not installed.
fn complaints(program: &str, arguments: &[&str], pages: &[PathBuf]) -> Option<Vec<String>> {
    let mut complaints = Vec::new();
    for page in pages {
        let mut command = Command::new(program);
        command.args(arguments).arg(page).env("MAN_KEEP_STDERR", "1").env("MANROFFSEQ", "");
        match command.env("LC_ALL", "C.UTF-8").output() {
            Ok(ran) => {
                let told = [&ran.stdout[..], &ran.stderr[..]].map(String::from_utf8_lossy);
                let told = if program == "man" { &told[1] } else { &told[0] };
                complaints.extend(told.lines().map(str::to_owned));
                if !ran.status.success() {
                    complaints.push(format!("{}: {:?}", page.display(), ran.status));
                }
            }
            Err(error) => {
                let _ = writeln!(io::stderr(), "skipped: {program} on manual pages: {error}");
                return None;
            }
        }
    }
    Some(complaints)
}

/// Promised: every command has a page, inner ones too, that names its flags and shows its examples.
/// Provoked: all pages; the commands are those of the program's own help.
/// Broken: a missing page or flag.
#[test]
fn every_command_has_a_page() {
    let (_dir, pages) = written();
    let mut names = pages.iter().filter_map(|page| page.file_name()?.to_str());
    let help = Command::new(env!("CARGO_BIN_EXE_duolog")).arg("--help").output();
    let help = String::from_utf8(help.expect("it runs").stdout).expect("help is text");
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in commands.take_while(|line| !line.is_empty()) {
        let command = line.split_whitespace().next().filter(|word| *word != "help");
        let Some(command) = command.filter(|_| line.starts_with("  ") && !line.starts_with("   "))
        else {
            continue;
        };
        let page = format!("duolog-{command}.1");
        assert!(pages.iter().any(|found| found.ends_with(&page)), "{page} is missing");
    }
    assert!(names.any(|name| name == "duolog.1"));
    let page = |name: &str| {
        let page = pages.iter().find(|page| page.ends_with(name)).expect(name);
        fs::read_to_string(page).expect("it can be read")
    };
    let replace = page("duolog-node-replace.1");
    assert!(replace.contains(r"\-\-dead") && replace.contains("duolog node replace"), "{replace}");
    let serve = page("duolog-serve.1");
    assert!(serve.contains(r"\-\-shards\-count") && serve.contains("DUOLOG_SHARDS_COUNT"));
    assert!(serve.contains("Examples:"), "{serve}");
}

/// Promised: the pages are well-formed.
/// Provoked: `man` with its warnings, and the linter of mandoc.
/// Broken: a complaint.
#[test]
fn readers_of_manual_pages_do_not_complain() {
    let (_dir, pages) = written();
    let by_man = ["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"];
    let by_mandoc = ["-T", "lint", "-W", "error"];
    for (program, arguments) in [("man", &by_man[..]), ("mandoc", &by_mandoc)] {
        let found = complaints(program, arguments, &pages).unwrap_or_default();
        assert!(found.is_empty(), "{program}:\n{}", found.join("\n"));
    }
}

/// Promised: a directory that is not there is a local error that names it.
/// Provoked: one.
/// Broken: another exit code than 6.
#[test]
fn a_missing_directory_is_named() {
    let ran = man(Path::new("/nowhere/man1"));
    assert_eq!(ran.status.code(), Some(6), "{ran:?}");
    assert!(String::from_utf8_lossy(&ran.stderr).contains("/nowhere/man1"), "{ran:?}");
}
