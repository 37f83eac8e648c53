//! The systems that are compared: how each is set up with its durable setting, started and ended.

mod duolog;
mod nats;
mod plain;
mod postgres;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock::{Clock, pause};
use crate::dialect::{Condition, Language};
use crate::driver::{Driver, DriverError};
use crate::process::{Launch, Process, ProcessError};

/// A server takes appends after this at the latest.
const START_TIMEOUT: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The first port; below those that the kernel gives to clients (from 32768 on), so that none of
/// them is in the way when a server is started again.
const PORT_FIRST: u16 = 21_400;
const PORTS_PER_SYSTEM: u16 = 8;

/// Why a system cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// A program of it.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Its directory or files.
    #[error("cannot use {path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It is not installed.
    #[error("{0} is not installed")]
    Missing(String),
    /// It did not get ready.
    #[error("waited {after_s} s until {what}; last heard: {last}")]
    NotReady {
        /// For what.
        what: &'static str,
        /// How long.
        after_s: u64,
        /// The last answer.
        last: String,
    },
    /// The load.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// Which system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// With further arguments.
    Duolog(&'static [&'static str]),
    DuologPair,
    Postgres,
    PostgresPair,
    Redis(&'static str),
    Etcd,
    Umadb,
    StreamStore,
    Nats(&'static str),
}

/// In which tables a system stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// One node that says it is durable.
    Single,
    /// Two nodes.
    Pair,
    /// A setting that does not flush before it acknowledges, for orientation.
    Relaxed,
}

/// One line of the comparison.
#[derive(Clone, Copy, Debug)]
pub struct System {
    /// Its name on the command line and of its directory.
    pub id: &'static str,
    /// Its name in the tables.
    pub title: &'static str,
    /// Where it belongs.
    pub group: Group,
    /// What is sent to it.
    pub language: Language,
    /// What makes it durable, and what else was set.
    pub settings: &'static str,
    kind: Kind,
}

const fn system(
    id: &'static str,
    title: &'static str,
    group: Group,
    kind: Kind,
    language: Language,
    settings: &'static str,
) -> System {
    System { id, title, group, language, settings, kind }
}

/// All lines, in the order of the tables.
pub const SYSTEMS: [System; 15] = [
    system(
        "duolog",
        "Duolog, no condition",
        Group::Single,
        Kind::Duolog(&[]),
        Language::Duolog(Condition::None),
        "defaults, one shard, standalone; every block is written with O_DIRECT and O_DSYNC",
    ),
    system(
        "duolog-exact",
        "Duolog, exact revision",
        Group::Single,
        Kind::Duolog(&[]),
        Language::Duolog(Condition::Version),
        "as above; each append names the stream's last revision",
    ),
    system(
        "duolog-spin",
        "Duolog, spinning",
        Group::Single,
        Kind::Duolog(&["--shards-spin-us", "200"]),
        Language::Duolog(Condition::None),
        "no condition, shards.spin_us = 200: looks that long for the next requests of few clients",
    ),
    system(
        "postgres",
        "PostgreSQL, version check",
        Group::Single,
        Kind::Postgres,
        Language::Postgres,
        postgres::SETTINGS,
    ),
    system(
        "redis",
        "Redis Streams",
        Group::Single,
        Kind::Redis("always"),
        Language::Redis,
        "appendonly yes, appendfsync always, no snapshots, no rewriting of the append-only file",
    ),
    system(
        "etcd",
        "etcd",
        Group::Single,
        Kind::Etcd,
        Language::Etcd,
        "one member, defaults (its log is synced before an answer); quota 8 GiB",
    ),
    system(
        "umadb",
        "UmaDB, no condition",
        Group::Single,
        Kind::Umadb,
        Language::Umadb(Condition::None),
        "defaults; one tag per event, the stream",
    ),
    system(
        "umadb-exact",
        "UmaDB, condition",
        Group::Single,
        Kind::Umadb,
        Language::Umadb(Condition::Version),
        "defaults; each append fails if its stream has an event behind the last one known",
    ),
    system(
        "s2-lite",
        "s2-lite",
        Group::Single,
        Kind::StreamStore,
        Language::StreamStore,
        "objects in a local directory, which it syncs; its default flush interval of 5 ms there",
    ),
    system(
        "nats",
        "NATS JetStream",
        Group::Single,
        Kind::Nats("always"),
        Language::Nats,
        "one file stream, one subject per stream, sync_interval: always",
    ),
    system(
        "nats-relaxed",
        "NATS JetStream, default sync",
        Group::Relaxed,
        Kind::Nats("2m"),
        Language::Nats,
        "as above with the default sync_interval of two minutes",
    ),
    system(
        "redis-relaxed",
        "Redis Streams, everysec",
        Group::Relaxed,
        Kind::Redis("everysec"),
        Language::Redis,
        "as above with the default appendfsync everysec",
    ),
    system(
        "duolog-pair",
        "Duolog pair, no condition",
        Group::Pair,
        Kind::DuologPair,
        Language::Duolog(Condition::None),
        "two nodes and the development S3; an answer follows the write on both disks",
    ),
    system(
        "duolog-pair-exact",
        "Duolog pair, exact revision",
        Group::Pair,
        Kind::DuologPair,
        Language::Duolog(Condition::Version),
        "as above; each append names the stream's last revision",
    ),
    system(
        "postgres-pair",
        "PostgreSQL, synchronous standby",
        Group::Pair,
        Kind::PostgresPair,
        Language::Postgres,
        "as PostgreSQL above, with streaming replication and synchronous_standby_names",
    ),
];

/// Where the programs are; a bare name is looked for in PATH.
#[derive(Clone, Debug)]
pub struct Programs {
    pub duolog: PathBuf,
    /// The folder with `initdb`, `postgres` and `pg_basebackup`.
    pub postgres_folder: PathBuf,
    pub redis: PathBuf,
    pub etcd: PathBuf,
    pub umadb: PathBuf,
    pub s2_lite: PathBuf,
    pub nats: PathBuf,
}

/// One system's place on this machine.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its own directory.
    pub dir: PathBuf,
    /// The first of its ports.
    pub port: u16,
    /// The core of all its processes.
    pub cpu: u32,
    /// All programs.
    pub programs: Programs,
}

/// A system that takes load.
#[derive(Debug)]
pub struct Running {
    /// Where.
    pub addr: SocketAddr,
    /// In the order in which they were started.
    processes: Vec<Process>,
    /// The command lines.
    pub lines: Vec<String>,
}

impl System {
    /// The line with this name.
    #[must_use]
    pub fn named(id: &str) -> Option<&'static Self> {
        SYSTEMS.iter().find(|system| system.id == id)
    }

    /// Makes its place in `dir`.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn site(&self, dir: &Path, cpu: u32, programs: &Programs) -> Result<Site, SystemError> {
        let index = SYSTEMS.iter().position(|system| system.id == self.id).unwrap_or(0);
        let port = PORT_FIRST + PORTS_PER_SYSTEM * index as u16;
        let dir = dir.join(self.id);
        make_folder(&dir)?;
        Ok(Site { dir, port, cpu, programs: programs.clone() })
    }

    /// What the program says of its version.
    ///
    /// # Errors
    /// It is not installed.
    pub fn version(&self, site: &Site) -> Result<String, SystemError> {
        let programs = &site.programs;
        let (program, argument) = match self.kind {
            Kind::Duolog(_) | Kind::DuologPair => (programs.duolog.clone(), "--version"),
            Kind::Postgres | Kind::PostgresPair => {
                (programs.postgres_folder.join("postgres"), "--version")
            }
            Kind::Redis(_) => (programs.redis.clone(), "--version"),
            Kind::Etcd => (programs.etcd.clone(), "--version"),
            Kind::Umadb => (programs.umadb.clone(), "--version"),
            // This server does not tell its version.
            Kind::StreamStore => return plain::s2_lite_version(site),
            Kind::Nats(_) => (programs.nats.clone(), "--version"),
        };
        let words = [&*program.to_string_lossy(), argument];
        let said = Launch::new("version", site.cpu, words).run(&site.dir);
        let said = said.map_err(|_| SystemError::Missing(program.display().to_string()))?;
        // Redis goes on with its build and its allocator.
        let line = said.lines().next().unwrap_or_default();
        Ok(line.split(" sha=").next().unwrap_or_default().trim().to_owned())
    }

    /// Starts it with what it has on disk, and waits until it takes sessions.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(&self, site: &Site) -> Result<Running, SystemError> {
        let mut running = match self.kind {
            Kind::Duolog(arguments) => duolog::start(site, arguments)?,
            Kind::DuologPair => return duolog::start_pair(site),
            Kind::Postgres => postgres::start(site)?,
            Kind::PostgresPair => return postgres::start_pair(site),
            Kind::Redis(sync) => plain::redis(site, sync)?,
            Kind::Etcd => plain::etcd(site)?,
            Kind::Umadb => plain::umadb(site)?,
            Kind::StreamStore => plain::s2_lite(site)?,
            Kind::Nats(sync) => nats::start(site, sync)?,
        };
        running.wait_until_it_serves(self.language)?;
        if matches!(self.kind, Kind::Nats(_)) {
            nats::make_stream(running.addr)?;
        }
        Ok(running)
    }
}

impl Site {
    /// The address with the port of this index.
    #[must_use]
    pub fn addr(&self, index: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port + index))
    }

    /// A path in the system's directory, as text.
    #[must_use]
    pub fn path(&self, name: &str) -> String {
        self.dir.join(name).to_string_lossy().into_owned()
    }

    fn launch(&self, launches: &[Launch]) -> Result<Running, SystemError> {
        let mut running = Running { addr: self.addr(0), processes: Vec::new(), lines: Vec::new() };
        for launch in launches {
            running.add(self, launch)?;
        }
        Ok(running)
    }
}

impl Running {
    fn add(&mut self, site: &Site, launch: &Launch) -> Result<(), SystemError> {
        self.processes.push(launch.start(&site.dir)?);
        self.lines.push(launch.line());
        Ok(())
    }

    /// The processes whose families are the system.
    #[must_use]
    pub fn process_ids(&self) -> Vec<u32> {
        self.processes.iter().map(Process::id).collect()
    }

    /// Ends all processes, the last one first.
    ///
    /// # Errors
    /// One had to be killed.
    pub fn end(mut self) -> Result<(), SystemError> {
        while let Some(process) = self.processes.pop() {
            process.ask_to_end();
            process.wait_for_end()?;
        }
        Ok(())
    }

    fn wait_until_it_serves(&mut self, language: Language) -> Result<(), SystemError> {
        let addr = self.addr;
        self.wait("it takes sessions", || {
            Driver::open(addr, language, 1).map(drop).map_err(|error| error.to_string())
        })
    }

    /// Asks again and again, while all processes run.
    fn wait(
        &mut self,
        what: &'static str,
        mut ask: impl FnMut() -> Result<(), String>,
    ) -> Result<(), SystemError> {
        let clock = Clock::start();
        loop {
            let last = match ask() {
                Ok(()) => return Ok(()),
                Err(last) => last,
            };
            for process in &mut self.processes {
                if let Some(status) = process.ended() {
                    return Err(process.error(status).into());
                }
            }
            if clock.is_past(START_TIMEOUT) {
                let after_s = START_TIMEOUT.as_secs();
                return Err(SystemError::NotReady { what, after_s, last });
            }
            pause(LOOK_EVERY);
        }
    }
}

fn make_folder(path: &Path) -> Result<(), SystemError> {
    let refused = |source| SystemError::File { path: path.to_owned(), source };
    fs::create_dir_all(path).map_err(refused)
}

fn write_file(path: &Path, text: &str) -> Result<(), SystemError> {
    fs::write(path, text).map_err(|source| SystemError::File { path: path.to_owned(), source })
}
