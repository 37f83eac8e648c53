//! The load: an epoll loop on one thread over all connections, each with one append in flight.
//!
//! Closed loop: an answer starts the connection's next append. Counted are the answers that arrive
//! within the window, and the latencies of appends that started in it, also when their answer
//! comes in the drain behind it. `acked_in_all` counts from the first append to the end of the
//! drain: the server's consumption is measured over the same time.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::{Events, Interest, Poll, Token};

use crate::clock::{Clock, ThreadUse, nanoseconds};
use crate::connection::{Connection, ConnectionError, Flight, Stage};
use crate::dialect::{Append, Language, Said};
use crate::latency::Latencies;
use crate::streams::{Mixer, STREAM_COUNT, Streams};

/// Payload of every event, bytes.
pub const EVENT_SIZE_BYTES: usize = 100;
/// Connections whose handshake or session is being opened at one time: below listen backlogs.
const OPENING_MAX: usize = 64;
/// While connections open, the server must make some progress within this.
const OPENING_TIMEOUT: Duration = Duration::from_secs(30);
/// Appends on every connection before anything is measured, so that sessions have their caches and
/// plans: PostgreSQL settles on a plan with a session's sixth call.
const PRIMING_APPENDS: u32 = 8;
const PRIMING_TIMEOUT: Duration = Duration::from_secs(60);
/// How long answers are awaited behind the window.
const DRAIN: Duration = Duration::from_secs(5);
/// All streams have their first event within this.
const FILL_TIMEOUT: Duration = Duration::from_secs(120);
const EVENTS_MAX: usize = 1024;
const SCRATCH_BYTES: usize = 64 << 10;

/// Why there is no load.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The system refused a descriptor or the like.
    #[error("the load generator cannot run: {0} (open files: check `ulimit -n`)")]
    System(#[from] io::Error),
    /// No connection.
    #[error("cannot connect to {addr}: {reason}")]
    Connect {
        /// The server.
        addr: SocketAddr,
        /// Why.
        reason: String,
    },
    /// Connections did not open in time.
    #[error("{opened} of {wanted} connections are open, and the server was silent for 30 s")]
    OpenTimeout {
        /// How many were open.
        opened: usize,
        /// How many there should be.
        wanted: usize,
    },
    /// Streams have no first event.
    #[error("{filled} of {wanted} streams have an event after the filling; errors: {errors:?}")]
    Fill {
        /// Those that have one.
        filled: usize,
        /// All.
        wanted: usize,
        /// What was counted.
        errors: BTreeMap<String, u64>,
    },
    /// The first appends of the connections.
    #[error("the connections' first appends: {unanswered} unanswered, errors: {errors:?}")]
    Prime {
        /// Appends without an answer.
        unanswered: u64,
        /// Refusals and losses.
        errors: BTreeMap<String, u64>,
    },
}

/// What a load counted.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Acknowledged within the window.
    pub acked: u64,
    /// Acknowledged from the first append to the end of the drain.
    pub acked_in_all: u64,
    /// Latencies of acknowledged appends that started in the window.
    pub latencies: Latencies,
    /// Refusals and losses, by name.
    pub errors: BTreeMap<String, u64>,
    /// Appends without an answer at the end of the drain.
    pub unanswered: u64,
    /// What the driver's thread used in the window.
    pub thread_use: ThreadUse,
}

/// When load begins, counts and ends, ns on the driver's clock.
#[derive(Clone, Copy, Debug)]
struct Window {
    start_ns: u64,
    end_ns: u64,
    drained_ns: u64,
}

/// Which stream is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// Each once.
    Fill,
    /// Uniformly, a few on every connection.
    Prime,
    /// Uniformly.
    Uniform,
}

/// See the module's text. Its connections are open as long as it lives.
#[derive(Debug)]
pub struct Driver {
    clock: Clock,
    poll: Poll,
    addr: SocketAddr,
    language: Language,
    connections: Vec<Connection>,
    names: Vec<String>,
    data: Vec<u8>,
    identity: u128,
    scratch: Vec<u8>,
    heard_ns: u64,
    failure: Option<String>,
}

impl Driver {
    /// Opens so many connections and their sessions. Sends no append.
    ///
    /// # Errors
    /// The server takes no connections, or refuses a session.
    pub fn open(addr: SocketAddr, language: Language, count: u32) -> Result<Self, DriverError> {
        let clock = Clock::start();
        let seed = crate::clock::unix_seconds() ^ u64::from(std::process::id()) << 40;
        let mut mixer = Mixer(seed);
        let letter = |_| b'a' + (mixer.next_number() % 26) as u8;
        let data = (0..EVENT_SIZE_BYTES).map(letter).collect();
        let mut driver = Self {
            clock,
            poll: Poll::new()?,
            addr,
            language,
            connections: Vec::new(),
            names: (0..STREAM_COUNT).map(|number| format!("bench.{number}")).collect(),
            data,
            identity: u128::from(mixer.next_number()) << 64,
            scratch: vec![0; SCRATCH_BYTES],
            heard_ns: 0,
            failure: None,
        };
        driver.open_all(count)?;
        Ok(driver)
    }

    /// Gives every stream its first event.
    ///
    /// # Errors
    /// Some have none within two minutes.
    pub fn fill(&mut self, streams: &mut Streams) -> Result<(), DriverError> {
        let now = self.clock.now_ns();
        let end_ns = now + nanoseconds(FILL_TIMEOUT);
        let window = Window { start_ns: now, end_ns, drained_ns: end_ns };
        let tally = self.load(streams, Choice::Fill, window);
        let (filled, wanted) = (streams.filled(), STREAM_COUNT as usize);
        if filled < wanted {
            return Err(DriverError::Fill { filled, wanted, errors: tally.errors });
        }
        Ok(())
    }

    /// Makes a few appends on every connection; nothing of them is counted.
    ///
    /// # Errors
    /// One was refused, lost or not answered: the load would not be the one asked for.
    pub fn prime(&mut self, streams: &mut Streams) -> Result<(), DriverError> {
        let now = self.clock.now_ns();
        let end_ns = now + nanoseconds(PRIMING_TIMEOUT);
        let window = Window { start_ns: now, end_ns, drained_ns: end_ns };
        let tally = self.load(streams, Choice::Prime, window);
        if tally.errors.is_empty() && tally.unanswered == 0 {
            return Ok(());
        }
        Err(DriverError::Prime { unanswered: tally.unanswered, errors: tally.errors })
    }

    /// Applies the load and waits for its last answers.
    pub fn measure(
        &mut self,
        streams: &mut Streams,
        warm_up: Duration,
        duration: Duration,
    ) -> Tally {
        let start_ns = self.clock.now_ns() + nanoseconds(warm_up);
        let end_ns = start_ns + nanoseconds(duration);
        let window = Window { start_ns, end_ns, drained_ns: end_ns + nanoseconds(DRAIN) };
        self.load(streams, Choice::Uniform, window)
    }

    fn open_all(&mut self, count: u32) -> Result<(), DriverError> {
        let wanted = count as usize;
        let mut events = Events::with_capacity(EVENTS_MAX);
        loop {
            let opened = self.count_in(Stage::Open);
            if opened == wanted {
                return Ok(());
            }
            while self.connections.len() < wanted && self.connections.len() < opened + OPENING_MAX {
                self.open_one()?;
            }
            self.poll(&mut events, Duration::from_millis(100))?;
            for event in &events {
                let number = event.token().0;
                if let Err(error) = self.opening(number, event.is_writable(), event.is_readable()) {
                    self.failure.get_or_insert_with(|| error.to_string());
                }
            }
            if let Some(reason) = self.failure.take() {
                return Err(DriverError::Connect { addr: self.addr, reason });
            }
            if self.clock.now_ns() > self.heard_ns + nanoseconds(OPENING_TIMEOUT) {
                return Err(DriverError::OpenTimeout { opened, wanted });
            }
        }
    }

    fn open_one(&mut self) -> Result<(), DriverError> {
        let number = self.connections.len();
        let refused =
            |error: io::Error| DriverError::Connect { addr: self.addr, reason: error.to_string() };
        let mut socket = mio::net::TcpStream::connect(self.addr).map_err(refused)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut socket, Token(number), interest)?;
        let speaker = self.language.speaker(number as u32);
        self.connections.push(Connection::new(socket, speaker));
        Ok(())
    }

    fn opening(
        &mut self,
        number: usize,
        writable: bool,
        readable: bool,
    ) -> Result<(), ConnectionError> {
        self.heard_ns = self.clock.now_ns();
        let connection = &mut self.connections[number];
        if writable {
            connection.writable()?;
        }
        if readable && connection.stage != Stage::Connecting {
            connection.receive(&mut self.scratch)?;
        }
        Ok(())
    }

    fn poll(&mut self, events: &mut Events, timeout: Duration) -> io::Result<()> {
        match self.poll.poll(events, Some(timeout)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    fn count_in(&self, stage: Stage) -> usize {
        self.connections.iter().filter(|connection| connection.stage == stage).count()
    }

    fn load(&mut self, streams: &mut Streams, choice: Choice, window: Window) -> Tally {
        let sent = vec![0; self.connections.len()];
        let mut round = Round { streams, choice, window, sent, tally: Tally::default() };
        let mut events = Events::with_capacity(EVENTS_MAX);
        let (mut before, mut after) = (None, None);
        for number in 0..self.connections.len() {
            self.send(number, &mut round);
        }
        loop {
            let now = self.clock.now_ns();
            if now >= window.start_ns && before.is_none() {
                before = Some(ThreadUse::now());
            }
            if now >= window.end_ns && after.is_none() {
                after = Some(ThreadUse::now());
            }
            let idle = self.connections.iter().all(|connection| connection.flight.is_none());
            if idle || now >= window.drained_ns {
                break;
            }
            let edges = [window.start_ns, window.end_ns, window.drained_ns];
            let next = edges.into_iter().find(|edge| *edge > now).unwrap_or(now);
            if self.poll(&mut events, Duration::from_nanos(next - now)).is_err() {
                break;
            }
            for event in &events {
                self.serve(event.token().0, event.is_writable(), event.is_readable(), &mut round);
            }
        }
        let after = after.unwrap_or_else(ThreadUse::now);
        round.tally.thread_use = before.map_or_else(Default::default, |before| after.since(before));
        for connection in &mut self.connections {
            if let Some(flight) = connection.flight.take() {
                round.tally.unanswered += 1;
                round.streams.unanswered(flight.stream);
            }
        }
        round.tally
    }

    fn serve(&mut self, number: usize, writable: bool, readable: bool, round: &mut Round<'_>) {
        let connection = &mut self.connections[number];
        if connection.stage == Stage::Dead {
            return;
        }
        let mut outcome = Ok(None);
        if writable && let Err(error) = connection.writable() {
            outcome = Err(error);
        }
        if readable && outcome.is_ok() {
            outcome = connection.receive(&mut self.scratch);
        }
        match outcome {
            Ok(None) => {}
            Ok(Some(said)) => {
                let flight = connection.flight.take();
                let flight = flight.expect("an answer belongs to an append in flight");
                round.answered(flight, said, self.clock.now_ns());
                self.send(number, round);
            }
            Err(error) => self.bury(number, &error, round),
        }
    }

    fn send(&mut self, number: usize, round: &mut Round<'_>) {
        let start_ns = self.clock.now_ns();
        if start_ns >= round.window.end_ns || self.connections[number].stage != Stage::Open {
            return;
        }
        let stream = match round.choice {
            Choice::Fill => round.streams.next_to_fill(),
            Choice::Prime if round.sent[number] >= PRIMING_APPENDS => None,
            Choice::Prime | Choice::Uniform => round.streams.choose(),
        };
        let Some(stream) = stream else { return };
        round.sent[number] += 1;
        self.identity += 1;
        let append = Append {
            stream: &self.names[stream as usize],
            expected: round.streams.expected(stream),
            identity: self.identity,
            data: &self.data,
        };
        let flight = Flight { start_ns, stream };
        if let Err(error) = self.connections[number].append(flight, &append) {
            self.bury(number, &error, round);
        }
    }

    /// Closes a connection; what it had in flight is lost.
    fn bury(&mut self, number: usize, error: &ConnectionError, round: &mut Round<'_>) {
        let connection = &mut self.connections[number];
        let _ = self.poll.registry().deregister(&mut connection.socket);
        let _ = connection.socket.shutdown(std::net::Shutdown::Both);
        connection.stage = Stage::Dead;
        round.count_error(error.name());
        if let Some(flight) = connection.flight.take() {
            round.streams.unanswered(flight.stream);
        }
    }
}

/// One load while it runs.
#[derive(Debug)]
struct Round<'a> {
    streams: &'a mut Streams,
    choice: Choice,
    window: Window,
    /// By connection.
    sent: Vec<u32>,
    tally: Tally,
}

impl Round<'_> {
    fn answered(&mut self, flight: Flight, said: Said, now: u64) {
        let inside = self.window.start_ns..self.window.end_ns;
        match said {
            Said::Appended(version) => {
                self.streams.acknowledged(flight.stream, version);
                self.tally.acked_in_all += 1;
                self.tally.acked += u64::from(inside.contains(&now));
                if inside.contains(&flight.start_ns) {
                    self.tally.latencies.record(now - flight.start_ns);
                }
            }
            Said::Refused(name) => {
                self.streams.refused(flight.stream);
                self.count_error(name);
            }
            Said::Nothing | Said::Open => {}
        }
    }

    fn count_error(&mut self, name: &str) {
        *self.tally.errors.entry(name.to_owned()).or_default() += 1;
    }
}
