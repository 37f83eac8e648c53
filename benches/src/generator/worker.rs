//! One generator thread: an epoll loop over its share of the connections.
//!
//! Closed loop: an answer starts the connection's next request. Open loop: requests start by a
//! constant schedule, and each latency counts from the moment at which the schedule wanted it,
//! however late it was sent.
//!
//! Counted are: answers that arrive within the window (`acked`, errors), and the latencies of
//! operations whose start lies in the window, also when their answer comes in the drain behind it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::time::Duration;

use duolog_net::wire::{FrameKind, Hello};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::answer::Answer;
use super::clock::{Alarm, Clock, ThreadUse};
use super::connection::{Connection, ConnectionError, Flight, Stage};
use super::crew::Stop;
use super::failure::WorkerError;
use super::schedule::Schedule;
use super::settings::{Settings, Workload};
use super::tally::{Tally, Window};
use super::workload::{Requests, Streams};

/// Connections whose handshake or hello is under way at one time: stays below listen backlogs.
const OPENING_MAX: usize = 128;
/// While connections open, the server must make some progress within this.
const OPENING_TIMEOUT_NS: u64 = 30_000_000_000;
/// Longest wait for sockets: so late a stop is noticed.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// An open-loop request sent this much after its time counts as late.
const LATE_NS: u64 = 1_000_000;
/// Bounds of the pause that a busy server asks for.
const BUSY_RETRY_MIN_NS: u64 = 1_000_000;
const BUSY_RETRY_MAX_NS: u64 = 1_000_000_000;
const EVENTS_MAX: usize = 1024;
const SCRATCH_BYTES: usize = 256 << 10;
const TIMER: Token = Token(usize::MAX);

/// See the module's text.
#[derive(Debug)]
pub struct Worker {
    settings: Settings,
    clock: Clock,
    poll: Poll,
    alarm: Alarm,
    connections: Vec<Connection>,
    streams: Vec<Streams>,
    requests: Requests,
    scratch: Vec<u8>,
    /// Open loop: one entry per free slot of a ready connection.
    available: VecDeque<u32>,
    /// Closed loop: slots that wait because the server was busy, by the time to go on.
    delayed: BinaryHeap<Reverse<(u64, u32)>>,
    /// Connections with bytes to send.
    touched: Vec<u32>,
    answers: Vec<Answer>,
    schedule: Option<Schedule>,
    /// When the server last said anything, ns.
    heard_ns: u64,
    window: Window,
    tally: Tally,
    index: u32,
    /// Connections that reached [`Stage::Ready`].
    ready: usize,
    /// Why a connection could not be opened.
    failure: Option<String>,
    stop: Stop,
}

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
            streams: Vec::new(),
            requests: Requests::new(settings, index),
            scratch: vec![0; SCRATCH_BYTES],
            answers: Vec::new(),
            available: VecDeque::new(),
            delayed: BinaryHeap::new(),
            touched: Vec::new(),
            schedule: None,
            heard_ns: clock.now_ns(),
            window: Window { load_ns: never, start_ns: never, end_ns: never },
            tally: Tally::default(),
            index,
            ready: 0,
            failure: None,
            stop,
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
            self.poll_sockets(&mut events, WAIT_MAX)?;
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
        self.streams.push(self.requests.streams_of(of_the_run));
        Ok(())
    }

    /// Applies load through `window` and drains.
    pub fn run(mut self, window: Window) -> Tally {
        self.window = window;
        let (threads, index) = (self.settings.threads, self.index);
        self.schedule =
            self.settings.rate_per_s.map(|rate| Schedule::new(rate, threads, index, window));
        let drained_ns = window.end_ns + nanoseconds(self.settings.drain);
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
            let over = everything_in || now >= drained_ns || self.all_dead();
            if over || self.stop.is_stopped() {
                break;
            }
            self.resume_delayed(now);
            self.dispatch_due();
            self.flush_touched();
            let timeout = self.next_wake(self.clock.now_ns()).min(WAIT_MAX);
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
                    None => self.delayed.push(Reverse((self.window.load_ns, number))),
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
        let edges = [load_ns, start_ns, end_ns, end_ns + nanoseconds(self.settings.drain)];
        let mut next = edges.into_iter().find(|edge| *edge > now).unwrap_or(now);
        if let Some(Reverse((due, _))) = self.delayed.peek() {
            next = next.min(*due);
        }
        if let Some(due) = self.schedule.as_ref().and_then(Schedule::next_due_ns)
            && !self.available.is_empty()
            && self.alarm.set(due.saturating_sub(now)).is_err()
        {
            // Without the alarm the wait is in whole milliseconds: late, and counted as late.
            next = next.min(due);
        }
        Duration::from_nanos(next.saturating_sub(now))
    }

    fn poll_sockets(&mut self, events: &mut Events, timeout: Duration) -> io::Result<()> {
        match self.poll.poll(events, Some(timeout)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        for event in events.iter() {
            if event.token() == TIMER {
                self.alarm.clear();
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
            Hello::new(None).encode(connection.out(), 0);
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
            let more = self.connections[number].receive(&mut self.scratch, |frame| {
                answers.push(Answer::read(frame)?);
                Ok(())
            })?;
            let now = self.clock.now_ns();
            self.heard_ns = now;
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
        // A node of a pair tells unasked what it has become.
        if answer.kind == FrameKind::Standing {
            return Ok(());
        }
        match self.connections[number].stage {
            Stage::Greeting => self.greeted(number, answer),
            Stage::Preparing => {
                if let Some(refusal) = answer.refusal {
                    return Err(ConnectionError::Refused(refusal.name));
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
        if let Some(refusal) = answer.refusal {
            return Err(ConnectionError::Refused(refusal.name));
        }
        if answer.kind != FrameKind::HelloAccepted {
            return Err(ConnectionError::NotAccepted);
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
        if let Some(refusal) = answer.refusal {
            if in_window {
                self.tally.count_error(refusal.name, 1);
            }
            if refusal.is_busy {
                resume_ns += refusal.pause_ns.clamp(BUSY_RETRY_MIN_NS, BUSY_RETRY_MAX_NS);
            }
        } else {
            if self.window.contains(flight.start_ns) {
                self.tally.latencies.record(now.saturating_sub(flight.start_ns));
            }
            if in_window {
                self.tally.acked += 1;
                if answer.kind == FrameKind::StreamPage {
                    self.tally.page_bytes += answer.body_bytes;
                }
            }
        }
        if self.schedule.is_some() {
            self.available.push_back(number as u32);
        } else if resume_ns > now {
            self.delayed.push(Reverse((resume_ns, number as u32)));
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
        while let Some(Reverse((due, number))) = self.delayed.peek().copied() {
            if due > now {
                break;
            }
            self.delayed.pop();
            if now < self.window.end_ns && self.is_alive(number) {
                self.send(number as usize, now);
                self.touched.push(number);
            }
        }
    }

    fn is_alive(&self, number: u32) -> bool {
        self.connections[number as usize].stage == Stage::Ready
    }

    /// Open loop: arrivals that are due and not sent.
    fn backlog(&self, now: u64) -> u64 {
        self.schedule.map_or(0, |schedule| schedule.backlog(now))
    }

    /// Open loop: sends every arrival that is due, as long as connections have room.
    fn dispatch_due(&mut self) {
        let mut now = self.clock.now_ns();
        while let Some(due) = self.schedule.as_ref().and_then(Schedule::next_due_ns) {
            if due > now {
                // Sending took time; the next arrival may be due by now.
                now = self.clock.now_ns();
                if due > now {
                    return;
                }
            }
            let Some(number) = self.available.pop_front() else { return };
            if !self.is_alive(number) {
                continue;
            }
            self.send(number as usize, due);
            self.touched.push(number);
            self.schedule.iter_mut().for_each(Schedule::advance);
            if self.window.contains(due) {
                let lag = now - due;
                self.tally.sent += 1;
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
        self.tally.scheduled = self.schedule.map_or(0, |schedule| schedule.count_in_window());
        self.tally
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}
