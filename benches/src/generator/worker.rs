//! One generator thread: an epoll loop over its share of the connections.
//!
//! Closed loop: an answer starts the connection's next request. Open loop: requests start by a
//! constant schedule, and each latency counts from the moment at which the schedule wanted it,
//! however late it was sent.
//!
//! Counted are: answers that arrive within the window (`acked`, errors), and the latencies of
//! operations whose start lies in the window, also when their answer comes in the drain behind it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::clock::{Clock, ThreadUse};
use super::connection::{Connection, ConnectionError, Flight, Stage};
use super::latency::Latencies;
use super::settings::{Settings, Workload};
use super::workload::{Requests, Streams};
use crate::frame::{self, FrameHeader};

/// Connections whose handshake or hello is under way at one time: stays below listen backlogs.
const OPENING_MAX: usize = 128;
/// All connections must be open after this.
const OPENING_TIMEOUT_NS: u64 = 60_000_000_000;
/// After the window, answers are awaited this long.
pub const DRAIN_NS: u64 = 5_000_000_000;
/// An open-loop request sent this much after its time counts as late.
const LATE_NS: u64 = 1_000_000;
/// A busy server that names no time is asked again after this.
const BUSY_RETRY_NS: u64 = 1_000_000;
const EVENTS_MAX: usize = 1024;
const SCRATCH_BYTES: usize = 256 << 10;
const TIMER: Token = Token(usize::MAX);

/// The moments of a run, ns on its clock.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Load begins.
    pub load_ns: u64,
    /// Counting begins.
    pub start_ns: u64,
    /// Counting ends.
    pub end_ns: u64,
}

impl Window {
    fn contains(&self, at_ns: u64) -> bool {
        (self.start_ns..self.end_ns).contains(&at_ns)
    }
}

/// What one worker counted.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Successful answers within the window.
    pub acked: u64,
    /// Bytes of event pages within the window (read workload).
    pub page_bytes: u64,
    /// Latencies of successful operations that started in the window.
    pub latencies: Latencies,
    /// Refusals and losses within the window, by name.
    pub errors: BTreeMap<&'static str, u64>,
    /// Operations that started in the window and were not answered by the end of the drain.
    pub unanswered: u64,
    /// Open loop: operations due in the window, those sent late, those never sent.
    pub scheduled: u64,
    /// See `scheduled`.
    pub late: u64,
    /// See `scheduled`.
    pub unsent: u64,
    /// Open loop: due but not sent at the end of the window.
    pub backlog_at_end: u64,
    /// Open loop: largest delay between schedule and sending, ns.
    pub lag_max_ns: u64,
    /// The thread's consumption within the window.
    pub thread_use: ThreadUse,
}

impl Tally {
    fn count_error(&mut self, name: &'static str, count: u64) {
        *self.errors.entry(name).or_default() += count;
    }
}

/// Why a run could not begin.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The system refused a descriptor, a timer or the like.
    #[error("the load generator cannot run: {0} (open files: check `ulimit -n`)")]
    System(#[from] io::Error),
    /// No connection.
    #[error("cannot connect to {addr}: {reason}")]
    Connect {
        /// The server.
        addr: std::net::SocketAddr,
        /// Why.
        reason: String,
    },
    /// Connections did not open in time.
    #[error("only {opened} of {wanted} connections were open after {after_s} s")]
    OpenTimeout {
        /// How many were open.
        opened: usize,
        /// How many this thread should have opened.
        wanted: usize,
        /// The limit.
        after_s: u64,
    },
}

/// See the module's text.
#[derive(Debug)]
pub struct Worker {
    settings: Settings,
    clock: Clock,
    poll: Poll,
    timer: OwnedFd,
    connections: Vec<Connection>,
    streams: Vec<Streams>,
    requests: Requests,
    scratch: Vec<u8>,
    /// Open loop: one entry per free slot of a ready connection.
    available: VecDeque<u32>,
    /// Closed loop: slots that wait because the server was busy, by the time to go on.
    delayed: VecDeque<(u64, u32)>,
    /// Connections with bytes to send.
    touched: Vec<u32>,
    answers: Vec<Answer>,
    /// Open loop: arrivals sent so far.
    arrivals: u64,
    window: Window,
    tally: Tally,
    index: u32,
    /// Connections that reached [`Stage::Ready`].
    ready: usize,
    /// Why a connection could not be opened.
    failure: Option<String>,
}

/// What a frame from the server says, as far as the generator cares.
#[derive(Clone, Copy, Debug)]
struct Answer {
    kind: u16,
    correlation: u64,
    /// Error code name and the pause that the server asks for.
    error: Option<(&'static str, u64)>,
    /// What the stream's next revision is now, if the answer tells.
    next_revision: Option<u64>,
    body_bytes: u64,
}

impl Answer {
    fn read(header: FrameHeader, body: &[u8]) -> Self {
        let word = |at: usize| -> u64 {
            let bytes = body.get(at..at + 8).and_then(|bytes| bytes.first_chunk::<8>());
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let (mut error, mut next_revision) = (None, None);
        match header.kind {
            frame::KIND_APPENDED => next_revision = Some(word(40) + (word(48) & 0xffff_ffff)),
            frame::KIND_ERROR => {
                let code = (word(0) & 0xffff) as u16;
                error = Some((frame::error_name(code), (word(0) >> 32) * 1_000_000));
                next_revision = (code == frame::ERROR_CONFLICT).then(|| word(16));
            }
            _ => {}
        }
        let (kind, correlation) = (header.kind, header.correlation);
        Self { kind, correlation, error, next_revision, body_bytes: body.len() as u64 }
    }
}

impl Worker {
    /// Opens this worker's share of the connections: those whose number is `index` modulo the
    /// thread count. Returns when all are ready for load.
    pub fn open(settings: &Settings, index: u32, clock: Clock) -> Result<Self, WorkerError> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(io::Error::from)?;
        let poll = Poll::new()?;
        let raw = timer.as_raw_fd();
        poll.registry().register(&mut SourceFd(&raw), TIMER, Interest::READABLE)?;
        let never = u64::MAX;
        let mut worker = Self {
            settings: settings.clone(),
            clock,
            poll,
            timer,
            connections: Vec::new(),
            streams: Vec::new(),
            requests: Requests::new(settings, index),
            scratch: vec![0; SCRATCH_BYTES],
            answers: Vec::new(),
            available: VecDeque::new(),
            delayed: VecDeque::new(),
            touched: Vec::new(),
            arrivals: 0,
            window: Window { load_ns: never, start_ns: never, end_ns: never },
            tally: Tally::default(),
            index,
            ready: 0,
            failure: None,
        };
        worker.open_all()?;
        Ok(worker)
    }

    fn open_all(&mut self) -> Result<(), WorkerError> {
        let (threads, all) = (self.settings.threads, self.settings.connections);
        let wanted = (all - self.index).div_ceil(threads) as usize;
        let deadline = self.clock.now_ns() + OPENING_TIMEOUT_NS;
        let mut events = Events::with_capacity(EVENTS_MAX);
        while self.ready < wanted {
            while self.connections.len() < wanted
                && self.connections.len() - self.ready < OPENING_MAX
            {
                self.open_one()?;
            }
            self.poll_sockets(&mut events, Duration::from_millis(100))?;
            if let Some(reason) = self.failure.take() {
                return Err(WorkerError::Connect { addr: self.settings.addr, reason });
            }
            if self.clock.now_ns() > deadline {
                let after_s = OPENING_TIMEOUT_NS / 1_000_000_000;
                return Err(WorkerError::OpenTimeout { opened: self.ready, wanted, after_s });
            }
        }
        Ok(())
    }

    fn open_one(&mut self) -> Result<(), WorkerError> {
        let addr = self.settings.addr;
        let refused = |error: io::Error| WorkerError::Connect { addr, reason: error.to_string() };
        let mut socket = mio::net::TcpStream::connect(addr).map_err(refused)?;
        let number = self.connections.len();
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut socket, Token(number), interest)?;
        self.connections.push(Connection::new(socket, self.settings.in_flight));
        let of_the_run = self.index + number as u32 * self.settings.threads;
        self.streams.push(self.requests.streams_of(of_the_run));
        Ok(())
    }

    /// Applies load through `window` and drains.
    pub fn run(mut self, window: Window) -> Tally {
        self.window = window;
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut before = None;
        let mut after = None;
        self.begin();
        loop {
            let now = self.clock.now_ns();
            if now >= window.start_ns && before.is_none() {
                before = Some(ThreadUse::now());
            }
            if now >= window.end_ns && after.is_none() {
                after = Some(ThreadUse::now());
                self.tally.backlog_at_end = self.backlog(now);
            }
            let everything_in = now >= window.end_ns && self.backlog(now) == 0 && self.is_quiet();
            if everything_in || now >= window.end_ns + DRAIN_NS || self.all_dead() {
                break;
            }
            self.resume_delayed(now);
            self.dispatch_due();
            self.flush_touched();
            let timeout = self.next_wake(self.clock.now_ns());
            if self.poll_sockets(&mut events, timeout).is_err() {
                break;
            }
        }
        if let (Some(before), Some(after)) = (before, after) {
            self.tally.thread_use = after.since(before);
        }
        self.count_leftovers()
    }

    fn begin(&mut self) {
        for number in 0..self.connections.len() as u32 {
            for _ in 0..self.settings.in_flight {
                match self.settings.rate_per_s {
                    Some(_) => self.available.push_back(number),
                    None => self.delayed.push_back((self.window.load_ns, number)),
                }
            }
        }
    }

    fn is_quiet(&self) -> bool {
        self.connections.iter().all(|connection| connection.in_flight() == 0)
    }

    fn all_dead(&self) -> bool {
        self.connections.iter().all(|connection| connection.stage == Stage::Dead)
    }

    fn next_wake(&mut self, now: u64) -> Duration {
        let Window { load_ns, start_ns, end_ns } = self.window;
        let edges = [load_ns, start_ns, end_ns, end_ns + DRAIN_NS];
        let mut next = edges.into_iter().find(|edge| *edge > now).unwrap_or(now);
        if let Some((due, _)) = self.delayed.front() {
            next = next.min(*due);
        }
        if self.settings.rate_per_s.is_some() && !self.available.is_empty() {
            let due = self.due_ns(self.arrivals);
            if due < end_ns {
                self.arm_timer(due.saturating_sub(now));
            }
        }
        Duration::from_nanos(next.saturating_sub(now))
    }

    fn arm_timer(&self, after_ns: u64) {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        // Zero would disarm it.
        let after_ns = after_ns.max(1);
        let it_value = Timespec {
            tv_sec: i64::try_from(after_ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (after_ns % 1_000_000_000) as _,
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let when = Itimerspec { it_interval, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &when)
            .expect("the timer is open and the time is in range");
    }

    fn poll_sockets(&mut self, events: &mut Events, timeout: Duration) -> io::Result<()> {
        match self.poll.poll(events, Some(timeout)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        for event in events.iter() {
            if event.token() == TIMER {
                let _ = rustix::io::read(&self.timer, &mut [0_u8; 8]);
                continue;
            }
            let number = event.token().0;
            if self.connections[number].stage == Stage::Dead {
                continue;
            }
            let mut outcome = Ok(());
            if event.is_writable() {
                outcome = self.writable(number);
            }
            if outcome.is_ok() && event.is_readable() {
                outcome = self.readable(number);
            }
            if let Err(error) = outcome {
                self.bury(number, &error);
            }
        }
        Ok(())
    }

    fn writable(&mut self, number: usize) -> Result<(), ConnectionError> {
        let connection = &mut self.connections[number];
        if connection.stage == Stage::Connecting {
            if let Some(error) = connection.socket.take_error()? {
                return Err(error.into());
            }
            connection.socket.set_nodelay(true)?;
            connection.stage = Stage::Greeting;
            frame::write_hello(connection.out(), 0);
        }
        connection.flush()
    }

    fn readable(&mut self, number: usize) -> Result<(), ConnectionError> {
        if self.connections[number].stage == Stage::Connecting {
            return Ok(());
        }
        loop {
            let mut answers = std::mem::take(&mut self.answers);
            answers.clear();
            let more = self.connections[number].receive(&mut self.scratch, |header, body| {
                answers.push(Answer::read(header, body));
            })?;
            let now = self.clock.now_ns();
            for answer in &answers {
                self.take_answer(number, *answer, now)?;
            }
            self.answers = answers;
            self.connections[number].flush()?;
            if !more {
                return Ok(());
            }
        }
    }

    fn take_answer(
        &mut self,
        number: usize,
        answer: Answer,
        now: u64,
    ) -> Result<(), ConnectionError> {
        match self.connections[number].stage {
            Stage::Greeting => self.greeted(number, answer),
            Stage::Preparing => {
                if let Some((name, _)) = answer.error {
                    return Err(ConnectionError::Refused(name));
                }
                self.connections[number].land(answer.correlation)?;
                self.prepare(number);
                Ok(())
            }
            Stage::Ready => self.answered(number, answer, now),
            Stage::Connecting | Stage::Dead => Ok(()),
        }
    }

    fn greeted(&mut self, number: usize, answer: Answer) -> Result<(), ConnectionError> {
        if let Some((name, _)) = answer.error {
            return Err(ConnectionError::Refused(name));
        }
        if answer.kind != frame::KIND_HELLO_ACCEPTED {
            return Err(ConnectionError::Correlation(answer.correlation));
        }
        if self.settings.workload == Workload::Append {
            self.connections[number].stage = Stage::Ready;
            self.ready += 1;
            return Ok(());
        }
        self.connections[number].stage = Stage::Preparing;
        for _ in 0..self.settings.in_flight {
            self.prepare(number);
        }
        Ok(())
    }

    fn prepare(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        if let Some(stream) = self.requests.choose_to_prepare(&mut self.streams[number]) {
            let slot = connection.take_off(0, stream);
            let correlation = slot.expect("an answer has just freed a slot");
            self.requests.encode_preparation(connection.out(), correlation, stream);
        } else if connection.in_flight() == 0 && connection.stage == Stage::Preparing {
            connection.stage = Stage::Ready;
            self.ready += 1;
        }
    }

    fn answered(&mut self, number: usize, answer: Answer, now: u64) -> Result<(), ConnectionError> {
        let flight = self.connections[number].land(answer.correlation)?;
        let streams = &mut self.streams[number];
        self.requests.ended(streams, flight.stream, answer.next_revision);
        let in_window = self.window.contains(now);
        let mut resume_ns = now;
        if let Some((name, pause_ns)) = answer.error {
            if in_window {
                self.tally.count_error(name, 1);
            }
            if name == frame::BUSY {
                resume_ns += pause_ns.max(BUSY_RETRY_NS);
            }
        } else {
            if self.window.contains(flight.start_ns) {
                self.tally.latencies.record(now.saturating_sub(flight.start_ns));
            }
            if in_window {
                self.tally.acked += 1;
                if answer.kind == frame::KIND_STREAM_PAGE {
                    self.tally.page_bytes += answer.body_bytes;
                }
            }
        }
        if self.settings.rate_per_s.is_some() {
            self.available.push_back(number as u32);
        } else if resume_ns > now {
            self.delayed.push_back((resume_ns, number as u32));
        } else if now < self.window.end_ns {
            self.send(number, now);
        }
        Ok(())
    }

    fn send(&mut self, number: usize, start_ns: u64) {
        let connection = &mut self.connections[number];
        let streams = &mut self.streams[number];
        let stream = self.requests.choose(streams);
        let stream = stream.expect("there are as many owned streams as requests in flight");
        let slot = connection.take_off(start_ns, stream);
        let correlation = slot.expect("the caller knows of a free slot");
        self.requests.encode(connection.out(), correlation, streams, stream);
    }

    /// Closed loop: sends on connections whose pause is over.
    fn resume_delayed(&mut self, now: u64) {
        while let Some((due, number)) = self.delayed.front().copied() {
            if due > now {
                break;
            }
            self.delayed.pop_front();
            if now < self.window.end_ns && self.is_alive(number) {
                self.send(number as usize, now);
                self.touched.push(number);
            }
        }
    }

    fn is_alive(&self, number: u32) -> bool {
        self.connections[number as usize].stage == Stage::Ready
    }

    /// Open loop: when arrival number `arrival` of this worker is due, ns.
    fn due_ns(&self, arrival: u64) -> u64 {
        let rate = u128::from(self.settings.rate_per_s.unwrap_or(1));
        let of_the_run =
            u128::from(arrival) * u128::from(self.settings.threads) + u128::from(self.index);
        let after = of_the_run * 1_000_000_000 / rate;
        self.window.load_ns.saturating_add(u64::try_from(after).unwrap_or(u64::MAX))
    }

    /// Open loop: arrivals that are due and not sent.
    fn backlog(&self, now: u64) -> u64 {
        let Some(rate) = self.settings.rate_per_s else { return 0 };
        let until = now.min(self.window.end_ns);
        if self.due_ns(self.arrivals) >= until {
            return 0;
        }
        let span = u128::from(until - self.due_ns(self.arrivals));
        let step = u128::from(self.settings.threads) * 1_000_000_000;
        u64::try_from((span * u128::from(rate)).div_ceil(step)).unwrap_or(u64::MAX)
    }

    /// Open loop: sends every arrival that is due, as long as connections have room.
    fn dispatch_due(&mut self) {
        if self.settings.rate_per_s.is_none() {
            return;
        }
        let mut now = self.clock.now_ns();
        loop {
            let due = self.due_ns(self.arrivals);
            if due > now {
                now = self.clock.now_ns();
                if due > now {
                    return;
                }
            }
            if due >= self.window.end_ns {
                return;
            }
            let Some(number) = self.available.pop_front() else { return };
            if !self.is_alive(number) {
                continue;
            }
            self.send(number as usize, due);
            self.touched.push(number);
            self.arrivals += 1;
            if due >= self.window.start_ns {
                let lag = now - due;
                self.tally.scheduled += 1;
                self.tally.late += u64::from(lag > LATE_NS);
                self.tally.lag_max_ns = self.tally.lag_max_ns.max(lag);
            }
        }
    }

    fn flush_touched(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for number in touched.drain(..) {
            if let Err(error) = self.connections[number as usize].flush() {
                self.bury(number as usize, &error);
            }
        }
        self.touched = touched;
    }

    /// Closes a connection; what it had in flight is lost.
    fn bury(&mut self, number: usize, error: &ConnectionError) {
        let connection = &mut self.connections[number];
        if connection.stage == Stage::Dead {
            return;
        }
        if connection.stage != Stage::Ready {
            self.failure.get_or_insert_with(|| error.to_string());
        }
        let _ = self.poll.registry().deregister(&mut connection.socket);
        let _ = connection.socket.shutdown(std::net::Shutdown::Both);
        connection.stage = Stage::Dead;
        let lost = connection.in_flight() as u64;
        if self.window.contains(self.clock.now_ns()) {
            self.tally.count_error(error.name(), lost.max(1));
        }
        connection.forget_flights();
    }

    fn count_leftovers(mut self) -> Tally {
        let counted = |flight: &&Flight| self.window.contains(flight.start_ns);
        let flights = self.connections.iter().flat_map(Connection::flights);
        self.tally.unanswered = flights.filter(counted).count() as u64;
        self.tally.unsent = self.backlog(u64::MAX);
        self.tally.scheduled += self.tally.unsent;
        self.tally
    }
}
