//! How a worker's connections are opened, and what is written before reads begin.

use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::time::Duration;

use duolog_net::wire::FrameKind;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::answer::{Answer, Limits};
use super::clock::{Alarm, Clock};
use super::connection::{Connection, ConnectionError, Stage};
use super::crew::Stop;
use super::failure::WorkerError;
use super::requests::{Operation, Requests};
use super::settings::Settings;
use super::streams::Preparation;
use super::tally::{Tally, Window};
use super::time_line::Recorder;
use super::worker::{EVENTS_MAX, TIMER, WAIT_MAX, Worker};

/// Connections whose handshake or hello is under way at one time: stays below listen backlogs.
const OPENING_MAX: usize = 128;
/// While connections open, the server must make some progress within this.
const OPENING_TIMEOUT_NS: u64 = 30_000_000_000;
/// Longest wait for sockets while a busy server is to be asked again.
const WAIT_BUSY: Duration = Duration::from_millis(1);
/// A busy server is asked again after at least this.
const BUSY_RETRY_MIN_NS: u64 = 1_000_000;
/// Room for one receive. All connections of a worker share it.
const SCRATCH_BYTES: usize = 256 << 10;

impl Worker {
    /// Opens this worker's share of the connections: those whose number is `index` modulo the
    /// thread count. Returns when all are ready for load.
    pub fn open(
        settings: &Settings,
        index: u32,
        clock: Clock,
        stop: Stop,
    ) -> Result<Self, WorkerError> {
        let alarm = Alarm::new()?;
        let poll = Poll::new()?;
        let timer = alarm.descriptor();
        poll.registry().register(&mut SourceFd(&timer), TIMER, Interest::READABLE)?;
        let never = u64::MAX;
        let mut worker = Self {
            settings: settings.clone(),
            clock,
            poll,
            alarm,
            connections: Vec::new(),
            owned: Vec::new(),
            requests: Requests::new(settings, index),
            scratch: vec![0; SCRATCH_BYTES],
            answers: Vec::new(),
            events_per_append: u64::from(settings.streams_per_append) * u64::from(settings.batch),
            available: VecDeque::new(),
            delayed: BinaryHeap::new(),
            postponed: Vec::new(),
            at_end: None,
            touched: Vec::new(),
            schedule: None,
            heard_ns: clock.now_ns(),
            window: Window { load_ns: never, start_ns: never, end_ns: never },
            tally: Tally::default(),
            recorder: Recorder::default(),
            index,
            ready: 0,
            failure: None,
            stop,
            limits: None,
        };
        worker.open_all()?;
        Ok(worker)
    }

    fn open_all(&mut self) -> Result<(), WorkerError> {
        let (threads, all) = (self.settings.threads, self.settings.connections);
        let wanted = (all - self.index).div_ceil(threads) as usize;
        let mut events = Events::with_capacity(EVENTS_MAX);
        while self.ready < wanted {
            while self.connections.len() < wanted
                && self.connections.len() - self.ready < OPENING_MAX
            {
                self.open_one()?;
            }
            self.send_postponed();
            let wait = if self.postponed.is_empty() { WAIT_MAX } else { WAIT_BUSY };
            self.poll_sockets(&mut events, wait)?;
            if self.stop.is_stopped() {
                return Err(WorkerError::Stopped);
            }
            if let Some(reason) = self.failure.take() {
                return Err(WorkerError::Connect { addr: self.settings.addr, reason });
            }
            if self.clock.now_ns() > self.heard_ns + OPENING_TIMEOUT_NS {
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
        self.owned.push(self.requests.owned_by(of_the_run));
        Ok(())
    }

    pub(super) fn greeted(
        &mut self,
        number: usize,
        answer: &Answer,
    ) -> Result<(), ConnectionError> {
        if let Some(refusal) = answer.refusal {
            return Err(ConnectionError::Refused(refusal.name));
        }
        let limits = answer.limits.as_deref().filter(|_| answer.kind == FrameKind::HelloAccepted);
        let limits = limits.ok_or(ConnectionError::WrongKind("a hello"))?;
        let (body_bytes, limit_bytes) =
            (self.requests.body_max_bytes(), limits.frame_body_max_bytes);
        if body_bytes > limit_bytes {
            return Err(ConnectionError::TooLarge { body_bytes, limit_bytes });
        }
        if !self.settings.workload.needs_events() || self.settings.streams_of_run.is_some() {
            self.make_ready(number, limits);
            return Ok(());
        }
        self.connections[number].stage = Stage::Preparing;
        let in_flight = self.granted(limits, self.requests.preparation_max_bytes());
        self.connections[number].resize(in_flight);
        self.limits.get_or_insert(*limits);
        for _ in 0..in_flight {
            self.prepare(number);
        }
        Ok(())
    }

    /// Requests of that size that a connection may have in flight.
    fn granted(&self, limits: &Limits, request_bytes: u64) -> u32 {
        let by_bytes = u32::try_from(limits.bytes_max / request_bytes.max(1)).unwrap_or(u32::MAX);
        self.settings.in_flight.min(limits.requests_max).min(by_bytes).max(1)
    }

    /// A closed loop keeps to what the server grants, as its own clients do. An open loop is a
    /// crowd that does not: what is over the limits is refused, and counted.
    fn make_ready(&mut self, number: usize, limits: &Limits) {
        let in_flight = match self.settings.rate_per_s {
            Some(_) => self.settings.in_flight,
            None => self.granted(limits, self.requests.request_max_bytes()),
        };
        let connection = &mut self.connections[number];
        connection.resize(in_flight);
        connection.stage = Stage::Ready;
        self.ready += 1;
    }

    fn prepare(&mut self, number: usize) {
        if let Some(preparation) = self.requests.prepare(&mut self.owned[number]) {
            let Preparation { stream, events } = preparation;
            let operation =
                Operation { target: stream, from: events.into(), ..Operation::default() };
            self.send_preparation(number, operation);
            return;
        }
        let connection = &self.connections[number];
        let postponed = self.postponed.iter().any(|(_, waiting, _)| *waiting as usize == number);
        if connection.in_flight() == 0 && connection.stage == Stage::Preparing && !postponed {
            let limits = self.limits.expect("the hello came before the first append");
            self.make_ready(number, &limits);
        }
    }

    fn send_preparation(&mut self, number: usize, operation: Operation) {
        let connection = &mut self.connections[number];
        let correlation = connection.take_off(0, 0, operation).expect("an answer freed a slot");
        let events = u32::try_from(operation.from).expect("it was made from such a number");
        let preparation = Preparation { stream: operation.target, events };
        self.requests.encode_preparation(connection.out(), correlation, preparation);
    }

    /// An append that was made before reads begin has an answer.
    pub(super) fn prepared(
        &mut self,
        number: usize,
        answer: &Answer,
        now: u64,
    ) -> Result<(), ConnectionError> {
        let flight = self.connections[number].land(answer.correlation)?;
        match answer.refusal {
            None if answer.kind == FrameKind::Appended => self.prepare(number),
            None => return Err(ConnectionError::WrongKind("an append")),
            Some(refusal) if refusal.is_busy => {
                let due_ns = now + refusal.pause_ns.max(BUSY_RETRY_MIN_NS);
                self.postponed.push((due_ns, number as u32, flight.operation));
            }
            Some(refusal) => return Err(ConnectionError::Refused(refusal.name)),
        }
        Ok(())
    }

    fn send_postponed(&mut self) {
        let now = self.clock.now_ns();
        let mut waiting = std::mem::take(&mut self.postponed);
        waiting.retain(|&(due_ns, number, operation)| {
            if due_ns > now {
                return true;
            }
            if self.connections[number as usize].stage == Stage::Preparing {
                self.send_preparation(number as usize, operation);
                self.touched.push(number);
            }
            false
        });
        self.postponed = waiting;
        self.flush_touched();
    }
}
