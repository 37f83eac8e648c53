//! Tells the program which commit it was built from. Asks git on this machine only; without git, or
//! outside of a repository, the commit is `unknown`.
//!
//! It runs again when a source changes (then the program is linked again anyway, and the tree may
//! have become unlike its commit) or when another commit is checked out; only this crate is built
//! again then.

use std::path::Path;
use std::process::Command;

/// Whose changes make a tree differ from its commit. Documents are not among them.
const SOURCES: [&str; 16] = [
    "engine/src",
    "net/src",
    "lease/src",
    "s3client/src",
    "s3client/dev/src",
    "bin/src",
    "benches/src",
    "bin/build.rs",
    "Cargo.lock",
    "Cargo.toml",
    "engine/Cargo.toml",
    "net/Cargo.toml",
    "lease/Cargo.toml",
    "s3client/Cargo.toml",
    "bin/Cargo.toml",
    "benches/Cargo.toml",
];

fn main() {
    for source in SOURCES {
        println!("cargo::rerun-if-changed=../{source}");
    }
    // The first grows with every commit and checkout; the second is there without a reflog, too.
    for name in ["logs/HEAD", "HEAD"] {
        let path = git(&["rev-parse", "--git-path", name]);
        if let Some(path) = path.filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    // Not named DUOLOG_…: `cargo run` and `cargo test` hand it on to the program, which takes
    // every such variable for a setting.
    println!("cargo::rustc-env=BUILT_FROM_COMMIT={}", commit().as_deref().unwrap_or("unknown"));
}

/// Twelve digits of the commit; `-modified` when a source differs from it.
fn commit() -> Option<String> {
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let mut look = vec!["status", "--porcelain", "--untracked-files=no", "--"];
    let above = SOURCES.map(|source| format!("../{source}"));
    look.extend(above.iter().map(String::as_str));
    let changed = git(&look)?;
    Some(if changed.is_empty() { commit } else { commit + "-modified" })
}

/// What git answers, asked in this crate's folder; `None` where it cannot.
fn git(arguments: &[&str]) -> Option<String> {
    // A question must not take the lock that a commit of the same moment needs.
    let asked = Command::new("git").arg("--no-optional-locks").args(arguments).output().ok()?;
    let answer = String::from_utf8(asked.stdout).ok()?;
    asked.status.success().then(|| answer.trim().to_owned())
}
