//! The built program: where it is, and running it to its end.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::TempDir;

use super::patience::until;

/// How long a command other than a server may take.
const COMMAND_MAX: Duration = Duration::from_secs(60);

/// What a finished command left.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub errors: String,
}

impl Ran {
    /// Standard output as one JSON document.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        match serde_json::from_str(&self.output) {
            Ok(value) => value,
            Err(error) => panic!("the output is not JSON ({error}): {self:?}"),
        }
    }
}

/// The program, built by the same `cargo` run as this test; built now if it was not.
#[must_use]
pub fn duolog() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let folder = profile_folder();
        let program = folder.join("duolog");
        if !program.is_file() {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let mut build = Command::new(cargo);
            build.args(["build", "--package", "duolog", "--target-dir"]);
            build.arg(folder.parent().unwrap_or(&folder));
            if folder.ends_with("release") {
                build.arg("--release");
            }
            let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status();
            assert!(status.is_ok_and(|status| status.success()), "{build:?} failed");
        }
        program
    })
}

/// `target/release` or `target/debug`: where this program lies, or the folder above that of a test.
fn profile_folder() -> PathBuf {
    let program = std::env::current_exe().expect("the system knows the running program");
    let folder = program.ancestors().find(|folder| folder.ends_with("deps")).or(Some(&program));
    let folder = folder.and_then(Path::parent);
    folder.unwrap_or_else(|| panic!("{} is not in a folder", program.display())).to_owned()
}

/// A directory that vanishes with the value, on a file system that does direct I/O.
#[must_use]
pub fn scratch() -> TempDir {
    let place = match std::env::var_os("DUOLOG_TEST_DIR") {
        Some(place) => PathBuf::from(place),
        None => profile_folder().with_file_name("tmp"),
    };
    let made = std::fs::create_dir_all(&place)
        .and_then(|()| tempfile::Builder::new().prefix("duolog-").tempdir_in(&place));
    made.unwrap_or_else(|error| panic!("no scratch directory in {}: {error}", place.display()))
}

/// A command line that begins with `program`, free of settings from this process's environment.
pub(super) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("DUOLOG_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// Runs `duolog` with these arguments to its end.
pub fn run<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Ran {
    let mut command = command(duolog());
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    finish(child)
}

/// Collects what `child` says and waits for its end.
pub(super) fn finish(mut child: Child) -> Ran {
    let output = child.stdout.take().map(collect);
    let errors = child.stderr.take().map(collect);
    let status = until(COMMAND_MAX, "the command ends", || {
        child.try_wait().expect("the system tells of own children")
    });
    let text = |thread: Option<std::thread::JoinHandle<String>>| {
        thread.map(|thread| thread.join().expect("the reader does not panic")).unwrap_or_default()
    };
    Ran { code: status.code(), output: text(output), errors: text(errors) }
}

fn collect(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A pipe that breaks ends what can be collected.
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
