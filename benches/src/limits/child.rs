//! A server as a child process of the benchmark: the skeleton and Duolog are started, awaited and
//! ended in the same way.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::generator::clock::{Clock, pause};

/// A server takes clients after this at the latest.
const START_TIMEOUT_NS: u64 = 60_000_000_000;
/// Between two looks whether it does.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Of the server's own messages, so much is shown when it ended too early, bytes.
const MESSAGES_MAX_BYTES: usize = 2000;

/// Why a server could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The system refused something.
    #[error("cannot start the {name}: {source}")]
    Start {
        /// Which server.
        name: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// It ended by itself.
    #[error("the {name} ended with {status} before it took clients; it said: {messages}")]
    Ended {
        /// Which server.
        name: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// The end of its messages.
        messages: String,
    },
    /// It neither served nor ended.
    #[error("the {name} took no client on {addr} within {after_s} s; its messages are in {log}")]
    Silent {
        /// Which server.
        name: &'static str,
        /// Where it should listen.
        addr: SocketAddr,
        /// How long it was given.
        after_s: u64,
        /// Where its messages are.
        log: PathBuf,
    },
}

/// Servers that run, for the watch of [`end_with_signals`].
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

fn running() -> MutexGuard<'static, Vec<u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on SIGINT, SIGTERM and SIGHUP kill every running server, by its process id, and then
/// end this process with 128 + the signal's number.
pub fn end_with_signals() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut terminate, mut interrupt, mut hangup) = {
        let _context = runtime.enter();
        (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::hangup())?,
        )
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let number = runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => 15,
                _ = interrupt.recv() => 2,
                _ = hangup.recv() => 1,
            }
        });
        for process_id in running().iter() {
            let process_id =
                i32::try_from(*process_id).ok().and_then(rustix::process::Pid::from_raw);
            if let Some(process_id) = process_id {
                // It may have ended by itself; it is not collected while it is listed here.
                let _ = rustix::process::kill_process(process_id, rustix::process::Signal::KILL);
            }
        }
        std::process::exit(128 + number);
    })?;
    Ok(())
}

/// A running server. Dropping it kills the process and waits for its end.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Where it takes clients.
    pub addr: SocketAddr,
}

impl Server {
    /// Starts this very program with `arguments`, whose `{addr}` stands for a free loopback
    /// address, and waits until it takes clients. Its messages go to a file in `dir`.
    pub fn start(name: &'static str, dir: &Path, arguments: &[&str]) -> Result<Self, ChildError> {
        let addr = free_address().map_err(|source| ChildError::Start { name, source })?;
        Self::start_at(name, dir, addr, arguments)
    }

    /// Starts this program as a standalone server of one shard with its data in `data` and the
    /// flags in `more`.
    pub fn standalone(
        name: &'static str,
        dir: &Path,
        data: &Path,
        more: &[&str],
    ) -> Result<Self, ChildError> {
        let data = data.to_string_lossy();
        let arguments = ["serve", "--standalone", "--data-dir", &data];
        let listen = ["--listen-client", "{addr}", "--listen-http", "off"];
        let shards = ["--shards-count", "1"];
        Self::start(name, dir, &[&arguments[..], &listen, &shards, more].concat())
    }

    /// Like [`Server::start`] on a given address: a server that is started again keeps its place.
    /// Its messages go behind those of the time before.
    pub fn start_at(
        name: &'static str,
        dir: &Path,
        addr: SocketAddr,
        arguments: &[&str],
    ) -> Result<Self, ChildError> {
        let refused = |source| ChildError::Start { name, source };
        let log = dir.join(format!("{name}.messages"));
        let messages = File::options().create(true).append(true).open(&log).map_err(refused)?;
        let spoken = messages.try_clone().map_err(refused)?;
        let program = std::env::current_exe().map_err(refused)?;
        let child = Command::new(program)
            .args(arguments.iter().map(|argument| argument.replace("{addr}", &addr.to_string())))
            .stdin(Stdio::null())
            .stdout(spoken)
            .stderr(messages)
            .spawn()
            .map_err(refused)?;
        running().push(child.id());
        let mut server = Self { child, addr };
        server.wait_until_it_serves(name, &log)?;
        Ok(server)
    }

    /// The process.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    fn wait_until_it_serves(&mut self, name: &'static str, log: &Path) -> Result<(), ChildError> {
        let clock = Clock::start();
        while TcpStream::connect_timeout(&self.addr, Duration::from_secs(1)).is_err() {
            let ended =
                self.child.try_wait().map_err(|source| ChildError::Start { name, source })?;
            if let Some(status) = ended {
                let messages = std::fs::read(log).unwrap_or_default();
                let tail = &messages[messages.len().saturating_sub(MESSAGES_MAX_BYTES)..];
                let messages = String::from_utf8_lossy(tail).trim().to_owned();
                return Err(ChildError::Ended { name, status, messages });
            }
            if clock.now_ns() > START_TIMEOUT_NS {
                let (addr, log) = (self.addr, log.to_owned());
                let after_s = START_TIMEOUT_NS / 1_000_000_000;
                return Err(ChildError::Silent { name, addr, after_s, log });
            }
            pause(LOOK_EVERY);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.child.kill();
        running().retain(|process_id| *process_id != self.child.id());
        let _ = self.child.wait();
    }
}

/// A loopback address that nobody listens on now.
pub fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}
