//! A server process: its command line, its log, its end.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;

use super::http::Http;
use super::namespace::within;
use super::patience::until;
use super::program::{command, duolog};
use super::vitals::Vitals;

/// How long a server may take to serve or to give up.
const START_MAX: Duration = Duration::from_secs(30);
/// How long a server may take to end after a signal: its own limit for a drain is 30 s.
const STOP_MAX: Duration = Duration::from_secs(40);
/// Ports below those that the system gives to outgoing connections.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A port of the loopback that nobody listens on now.
#[must_use]
pub fn free_port() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let count = PORTS.end - PORTS.start;
    let offset = (std::process::id() % u32::from(count)) as u16;
    for _ in 0..count {
        let step = NEXT.fetch_add(7, Ordering::Relaxed);
        let port = PORTS.start + offset.wrapping_add(step) % count;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no free port in {PORTS:?}");
}

/// How a server is started.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The data directory.
    pub dir: PathBuf,
    /// Where clients connect.
    pub address: SocketAddr,
    flags: Vec<(String, String)>,
    env: Vec<(String, String)>,
    limits: Option<String>,
    namespace: Option<String>,
    log_file: Option<PathBuf>,
}

impl ServerOptions {
    /// A server with one shard on a free port.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self::of_pair(dir).flag("standalone", "true")
    }

    /// A node of a pair with one shard, on a free port for clients and one for its peer.
    #[must_use]
    pub fn of_pair(dir: impl Into<PathBuf>) -> Self {
        let options = Self {
            dir: dir.into(),
            address: free_port(),
            flags: Vec::new(),
            env: Vec::new(),
            limits: None,
            namespace: None,
            log_file: None,
        };
        // Several nodes run at one time on the machine; tests of HTTP ask for a port of their own.
        options.flag("shards-count", "1").flag("listen-http", "off")
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets a flag, given without its dashes; the last value counts.
    #[must_use]
    pub fn flag(mut self, name: &str, value: &str) -> Self {
        self.flags.retain(|(known, _)| known != name);
        self.flags.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the number of shards.
    #[must_use]
    pub fn shards(self, count: u32) -> Self {
        self.flag("shards-count", &count.to_string())
    }

    /// The smallest segments that the program takes with events of up to 64 KiB: a test that
    /// appends a few thousand events fills several.
    #[must_use]
    pub fn tiny_segments(self) -> Self {
        self.flag("limits-event-max-bytes", "64KiB").flag("log-segment-size-bytes", "2176KiB")
    }

    /// Applies the arguments of the shell's `ulimit` to the server, for example `-l 64`.
    #[must_use]
    pub fn ulimit(mut self, arguments: &str) -> Self {
        self.limits = Some(arguments.to_owned());
        self
    }

    /// Runs the server in this network namespace of the system (`ip netns`).
    #[must_use]
    pub fn namespace(mut self, name: &str) -> Self {
        self.namespace = Some(name.to_owned());
        self
    }

    /// Appends what the server says on standard error to this file, too.
    #[must_use]
    pub fn log_file(mut self, path: PathBuf) -> Self {
        self.log_file = Some(path);
        self
    }

    fn spawn(&self) -> Child {
        let mut arguments: Vec<OsString> = vec!["serve".into()];
        arguments.extend(["--data-dir".into(), self.dir.clone().into_os_string()]);
        arguments.extend(["--listen-client".into(), self.address.to_string().into()]);
        for (name, value) in &self.flags {
            arguments.push(format!("--{name}={value}").into());
        }
        let mut command = match &self.limits {
            None => command(duolog()),
            Some(limits) => {
                let mut shell = command(Path::new("/bin/sh"));
                shell.args(["-c", &format!("ulimit {limits} && exec \"$0\" \"$@\"")]);
                shell.arg(duolog());
                shell
            }
        };
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped());
        let spawned = match &self.namespace {
            None => command.spawn(),
            Some(name) => within(name, || command.spawn()).and_then(|spawned| spawned),
        };
        spawned.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
    }

    /// Starts the server and waits until it serves.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn start(&self) -> Server {
        match self.try_start() {
            Ok(server) => server,
            Err(ended) => panic!("the server did not start: {ended:?}"),
        }
    }

    /// Starts a server that is expected to give up, and waits for its end.
    ///
    /// # Panics
    /// When it serves.
    #[must_use]
    pub fn start_refused(&self) -> Ended {
        match self.try_start() {
            Ok(server) => panic!("the server serves: {:?}", server.log()),
            Err(ended) => ended,
        }
    }

    /// Starts the server without waiting for anything.
    #[must_use]
    pub fn launch(&self) -> Server {
        let mut child = self.spawn();
        let stderr = child.stderr.take().expect("it was piped");
        let log = Log::follow(stderr, self.log_file.clone());
        Server { options: self.clone(), child, log, cpu_at_serving: Duration::ZERO }
    }

    /// Starts the server: serving, or how it ended.
    pub fn try_start(&self) -> Result<Server, Ended> {
        let mut server = self.launch();
        let ready = until(START_MAX, "the server serves or gives up", || {
            if server.log.find("serving").is_some() {
                return Some(None);
            }
            server.exited().map(Some)
        });
        match ready {
            Some(status) => Err(server.ended(status)),
            None => {
                server.cpu_at_serving = server.vitals().cpu;
                Ok(server)
            }
        }
    }
}

/// Lines of a server's standard error, as they come.
#[derive(Clone, Debug)]
struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    reader: Arc<Mutex<Option<std::thread::JoinHandle<()>>>>,
}

impl Log {
    fn follow(stderr: std::process::ChildStderr, copy: Option<PathBuf>) -> Self {
        let open = |path| fs::OpenOptions::new().create(true).append(true).open(path);
        let mut copy = copy.map(|path| open(path).expect("the log file can be written"));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let target = Arc::clone(&lines);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if let Some(copy) = &mut copy {
                    writeln!(copy, "{line}").expect("the log file can be written");
                }
                target.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Self { lines, reader: Arc::new(Mutex::new(Some(reader))) }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All lines; call it when the process has ended.
    fn whole(&self) -> Vec<String> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reader) = reader {
            reader.join().expect("the reader does not panic");
        }
        self.lines()
    }

    fn find(&self, event: &str) -> Option<Json> {
        self.lines().iter().find_map(|line| {
            let line: Json = serde_json::from_str(line).ok()?;
            (line["event"] == event).then_some(line)
        })
    }
}

/// How a server ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// The signal, if one ended it.
    pub signal: Option<i32>,
    /// Everything it said on standard error.
    pub log: Vec<String>,
}

impl Ended {
    /// What it said to a person at its end: the lines that are no log.
    #[must_use]
    pub fn words(&self) -> String {
        let plain = self.log.iter().filter(|line| !line.starts_with('{'));
        plain.cloned().collect::<Vec<_>>().join("\n")
    }
}

/// A running server. Killed when dropped.
#[derive(Debug)]
pub struct Server {
    options: ServerOptions,
    child: Child,
    log: Log,
    cpu_at_serving: Duration,
}

impl Server {
    /// Where clients connect.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.options.address
    }

    /// Where HTTP clients connect, once it has said so.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn http(&self) -> Http {
        let told = until(START_MAX, "the server opens its HTTP port", || self.log.find("http"));
        let address = told["address"].as_str().and_then(|address| address.parse().ok());
        Http::at(address.unwrap_or_else(|| panic!("no address in {told}")))
    }

    /// How it was started.
    #[must_use]
    pub const fn options(&self) -> &ServerOptions {
        &self.options
    }

    /// Its data directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.options.dir
    }

    /// Its number.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// What the system says about it.
    #[must_use]
    pub fn vitals(&self) -> Vitals {
        Vitals::of(self.process())
    }

    /// CPU time from its start until it served.
    #[must_use]
    pub const fn cpu_at_serving(&self) -> Duration {
        self.cpu_at_serving
    }

    /// Its log so far.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.log.lines()
    }

    /// The first log line with this `event`, if it has come.
    #[must_use]
    pub fn logged(&self, event: &str) -> Option<Json> {
        self.log.find(event)
    }

    fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the system tells of own children")
    }

    /// Whether it still runs.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        self.exited().is_none()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let process = Pid::from_child(&self.child);
        // It may just have ended; then there is nobody to tell.
        let _ = kill_process(process, signal);
    }

    fn ended(&self, status: ExitStatus) -> Ended {
        Ended { code: status.code(), signal: status.signal(), log: self.log.whole() }
    }

    /// Waits until it ends by itself.
    pub fn wait(mut self) -> Ended {
        let status = until(STOP_MAX, "the server ends", || self.exited());
        self.ended(status)
    }

    /// Asks it to stop (SIGTERM) and waits for its end.
    pub fn stop(self) -> Ended {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Kills it (SIGKILL), as a power cut would as far as the process goes; returns how to start
    /// it again.
    pub fn kill(self) -> ServerOptions {
        self.signal(Signal::KILL);
        let options = self.options.clone();
        let ended = self.wait();
        assert_eq!(ended.signal, Some(9), "the server ended before it was killed: {ended:?}");
        options
    }

    /// Stops it cleanly and starts it again.
    #[must_use]
    pub fn restart(self) -> Self {
        let options = self.options.clone();
        let ended = self.stop();
        assert_eq!(ended.code, Some(0), "a clean stop: {ended:?}");
        options.start()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.exited().is_none() {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
