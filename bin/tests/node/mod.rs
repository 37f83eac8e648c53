//! The real program for tests: one-shot commands and a server that ends with the test.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

/// A command line of the program, without settings of the surroundings.
pub fn duolog(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duolog"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("DUOLOG_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs a command to its end: exit code, standard output, standard error.
pub fn run(arguments: &[&str]) -> (i32, String, String) {
    finish(duolog(arguments).output().expect("the program starts"))
}

/// The same for a command that was made ready by hand.
pub fn finish(output: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the program writes UTF-8");
    let code = output.status.code().expect("the program exits instead of being killed");
    (code, text(output.stdout), text(output.stderr))
}

/// A directory on the disk that holds the build: tests of direct I/O need no tmpfs.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build folder is writable")
}

/// A port that nobody listens on now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound port").port()
}

/// Small files, so that a test does not fill the disk.
pub const SMALL: [&str; 4] =
    ["--log-segment-size-bytes", "4MiB", "--limits-event-max-bytes", "1MiB"];

/// A running server.
pub struct Node {
    child: Child,
    pub address: String,
    // Kept open: a server whose log nobody reads would stop at a full pipe.
    _log: BufReader<ChildStderr>,
}

impl Node {
    /// Serves `data_dir` with two shards and waits until it is ready.
    pub fn start(data_dir: &Path) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let data_dir = data_dir.to_str().expect("a path in UTF-8");
        let fixed = ["serve", "--standalone", "--data-dir", data_dir, "--shards-count", "2"];
        let listen = ["--listen-client", &address, "--listen-http", "off"];
        let mut command = duolog(&[&fixed[..], &listen, &SMALL].concat());
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the program starts");
        let mut log = BufReader::new(child.stderr.take().expect("standard error is a pipe"));
        let mut told = String::new();
        while !told.contains("serving") {
            let before = told.len();
            log.read_line(&mut told).expect("the log is UTF-8");
            assert!(told.len() > before, "the server ended: {told}");
        }
        Self { child, address, _log: log }
    }

    /// Ends it at once, as a power cut of the process would.
    pub fn kill(mut self) {
        self.child.kill().expect("the server was running");
        self.child.wait().expect("a killed child ends");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
