//! One generator thread: an epoll loop over its share of the connections.
//!
//! Closed loop: an answer starts the connection's next request. Open loop: requests start by a
//! timetable, and each latency counts from the moment at which the timetable wanted it, however
//! late it was sent. A refusal is an answer like another there: the arrival is spent, and nobody
//! pauses.
//!
//! Counted are: answers that arrive within the window (`acked`, errors), and the latencies of
//! operations whose start lies in the window, also when their answer comes in the drain behind it.
//! An operation that started in the window and whose connection broke behind it is unanswered.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use duolog_net::wire::{FrameKind, Hello};
use mio::{Events, Poll, Token};

use super::answer::{Answer, Limits};
use super::clock::{Alarm, Clock, ThreadUse};
use super::connection::{Connection, ConnectionError, Flight, Stage};
use super::crew::Stop;
use super::requests::{Operation, OperationKind, Requests};
use super::schedule::Schedule;
use super::settings::Settings;
use super::streams::Owned;
use super::tally::{Tally, Window};
use super::time_line::{Live, Recorder};
use super::workload::Workload;

/// Longest wait for sockets: so late a stop is noticed.
pub(super) const WAIT_MAX: Duration = Duration::from_millis(100);
/// An open-loop request sent this much after its time counts as late.
const LATE_NS: u64 = 1_000_000;
/// Bounds of the pause that a busy server asks for.
const BUSY_RETRY_MIN_NS: u64 = 1_000_000;
const BUSY_RETRY_MAX_NS: u64 = 1_000_000_000;
pub(super) const EVENTS_MAX: usize = 1024;
pub(super) const TIMER: Token = Token(usize::MAX);

/// See the module's text.
#[derive(Debug)]
pub struct Worker {
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    pub(super) poll: Poll,
    pub(super) alarm: Alarm,
    pub(super) connections: Vec<Connection>,
    /// What each connection owns.
    pub(super) owned: Vec<Owned>,
    pub(super) requests: Requests,
    pub(super) scratch: Vec<u8>,
    /// Open loop: one entry per free slot of a ready connection.
    pub(super) available: VecDeque<u32>,
    /// Closed loop: slots that wait because the server was busy, by the time to go on.
    pub(super) delayed: BinaryHeap<Reverse<(u64, u32)>>,
    /// While streams are written for reads: appends that a busy server refused, by the time to send
    /// them again.
    pub(super) postponed: Vec<(u64, u32, Operation)>,
    /// Open loop: the arrivals that were due and not sent when the window ended.
    pub(super) at_end: Option<Schedule>,
    /// Connections with bytes to send.
    pub(super) touched: Vec<u32>,
    pub(super) answers: Vec<Answer>,
    /// Events of every append of the load.
    pub(super) events_per_append: u64,
    pub(super) schedule: Option<Schedule>,
    /// When the server last said anything, ns.
    pub(super) heard_ns: u64,
    pub(super) window: Window,
    pub(super) tally: Tally,
    pub(super) recorder: Recorder,
    pub(super) index: u32,
    /// Connections that reached [`Stage::Ready`].
    pub(super) ready: usize,
    /// Why a connection could not be opened.
    pub(super) failure: Option<String>,
    pub(super) stop: Stop,
    /// What the server grants a connection, once it said so.
    pub(super) limits: Option<Limits>,
}

impl Worker {
    /// Applies load through `window` and drains; `live` tells others meanwhile how it goes.
    pub fn run(mut self, window: Window, live: Arc<Live>) -> Tally {
        self.window = window;
        self.recorder = Recorder::new(window, live);
        self.schedule = Schedule::new(&self.settings, self.index, window);
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
                self.at_end = self.schedule.clone();
            }
            let all_sent = self.next_due_ns().is_none();
            let everything_in = now >= window.end_ns && all_sent && self.is_quiet();
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
        // A load whose connections all broke ends before its window does. What it would still have
        // had to send is its backlog.
        if after.is_none() {
            after = Some(ThreadUse::now());
            self.at_end = self.schedule.clone();
        }
        if let (Some(before), Some(after)) = (before, after) {
            self.tally.thread_use = after.since(before);
        }
        self.count_leftovers()
    }

    fn begin(&mut self) {
        let slots = |connection: &Connection| connection.slots();
        let most = self.connections.iter().map(slots).max().unwrap_or(0);
        // Slot by slot, not connection by connection: arrivals take the connections in turn.
        for slot in 0..most {
            for (number, connection) in (0_u32..).zip(&self.connections) {
                match self.settings.rate_per_s {
                    _ if slot >= connection.slots() => {}
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
        if let Some(due) = self.next_due_ns()
            && !self.available.is_empty()
            && self.alarm.set(due.saturating_sub(now)).is_err()
        {
            // Without the alarm the wait is in whole milliseconds: late, and counted as late.
            next = next.min(due);
        }
        Duration::from_nanos(next.saturating_sub(now))
    }

    pub(super) fn poll_sockets(
        &mut self,
        events: &mut Events,
        timeout: Duration,
    ) -> io::Result<()> {
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
                self.take_answer(number, answer, now)?;
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
        answer: &Answer,
        now: u64,
    ) -> Result<(), ConnectionError> {
        // A node of a pair tells unasked what it has become.
        if answer.kind == FrameKind::Standing {
            return Ok(());
        }
        match self.connections[number].stage {
            Stage::Greeting => self.greeted(number, answer),
            Stage::Preparing => self.prepared(number, answer, now),
            Stage::Ready => self.answered(number, answer, now),
            Stage::Connecting | Stage::Dead => Ok(()),
        }
    }

    fn answered(
        &mut self,
        number: usize,
        answer: &Answer,
        now: u64,
    ) -> Result<(), ConnectionError> {
        let flight = self.connections[number].land(answer.correlation)?;
        let fault = answer.fault(&flight.operation, self.requests.read_mode());
        let next = self.requests.answered(&mut self.owned[number], flight.operation, answer);
        let next = next.filter(|_| fault.is_none());
        match fault {
            Some(name) => self.count_errors(name, 1, now),
            None => self.count(&flight, answer, next.is_none(), now),
        }
        if let Some(operation) = next {
            // The same operation goes on: its latency counts from its own start.
            self.launch(number, flight.start_ns, now, operation);
            return Ok(());
        }
        if self.schedule.is_some() {
            self.available.push_back(number as u32);
            return Ok(());
        }
        let pause = answer.refusal.filter(|refusal| refusal.is_busy);
        if let Some(refusal) = pause {
            let pause_ns = refusal.pause_ns.clamp(BUSY_RETRY_MIN_NS, BUSY_RETRY_MAX_NS);
            self.delayed.push(Reverse((now + pause_ns, number as u32)));
        } else if now < self.window.end_ns {
            self.send(number, now, now);
        }
        Ok(())
    }

    /// Errors at this moment; they count within the window.
    fn count_errors(&mut self, name: &str, count: u64, now: u64) {
        if self.window.contains(now) {
            self.tally.count_error(name, count);
            self.recorder.errors(now, count);
        }
    }

    /// Counts an answer; `last` says that nothing further follows for its operation.
    fn count(&mut self, flight: &Flight, answer: &Answer, last: bool, now: u64) {
        let (in_window, started_in) =
            (self.window.contains(now), self.window.contains(flight.start_ns));
        let reads = flight.operation.kind == OperationKind::Read;
        let took_ns = now.saturating_sub(flight.start_ns);
        if let Some(refusal) = answer.refusal {
            if last {
                self.count_errors(refusal.name, 1, now);
            } else {
                self.tally.retries += u64::from(in_window);
            }
            if last && started_in {
                self.tally.refusals.record(now.saturating_sub(flight.sent_ns));
            }
            return;
        }
        let tally = &mut self.tally;
        if in_window && reads {
            tally.events += u64::from(answer.page_events);
            tally.page_bytes += answer.body_bytes;
        } else if in_window {
            tally.events += self.events_per_append;
        }
        if !last {
            return;
        }
        if in_window {
            tally.acked += 1;
            tally.acked_reads += u64::from(reads);
            self.recorder.acked(now, took_ns);
        }
        if started_in {
            tally.latencies.record(took_ns);
            if self.settings.workload == Workload::Mixed {
                let of_kind =
                    if reads { &mut tally.read_latencies } else { &mut tally.append_latencies };
                of_kind.record(took_ns);
            }
        }
    }

    fn send(&mut self, number: usize, start_ns: u64, now: u64) {
        let operation = self.requests.choose(&mut self.owned[number]);
        let operation = operation.expect("there are as many owned streams as requests in flight");
        self.launch(number, start_ns, now, operation);
    }

    fn launch(&mut self, number: usize, start_ns: u64, sent_ns: u64, operation: Operation) {
        let connection = &mut self.connections[number];
        let slot = connection.take_off(start_ns, sent_ns, operation);
        let correlation = slot.expect("the caller knows of a free slot");
        let owned = &self.owned[number];
        self.requests.encode(connection.out(), correlation, owned, &operation);
    }

    /// Closed loop: sends on connections whose pause is over.
    fn resume_delayed(&mut self, now: u64) {
        while let Some(Reverse((due, number))) = self.delayed.peek().copied() {
            if due > now {
                break;
            }
            self.delayed.pop();
            if now < self.window.end_ns && self.is_alive(number) {
                self.send(number as usize, now, now);
                self.touched.push(number);
            }
        }
    }

    fn is_alive(&self, number: u32) -> bool {
        self.connections[number as usize].stage == Stage::Ready
    }

    fn next_due_ns(&self) -> Option<u64> {
        self.schedule.as_ref().and_then(Schedule::next_due_ns)
    }

    /// Open loop: sends every arrival that is due, as long as connections have room.
    fn dispatch_due(&mut self) {
        let mut now = self.clock.now_ns();
        while let Some(due) = self.next_due_ns() {
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
            self.send(number as usize, due, now);
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

    pub(super) fn flush_touched(&mut self) {
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
        let now = self.clock.now_ns();
        self.tally.connections_lost += 1;
        if now >= self.window.end_ns {
            // Behind the window nothing is an error any more, but what it began had no answer.
            self.tally.unanswered += count_started(connection, self.window);
        }
        connection.forget_flights();
        self.count_errors(error.name(), lost.max(1), now);
    }

    fn count_leftovers(mut self) -> Tally {
        let left = self.connections.iter().map(|connection| count_started(connection, self.window));
        self.tally.unanswered += left.sum::<u64>();
        let left = |schedule: &Option<Schedule>, count: fn(&Schedule) -> u64| {
            schedule.as_ref().map_or(0, count)
        };
        let unsent = left(&self.schedule, Schedule::count_left_in_window);
        self.tally.scheduled = self.tally.sent + unsent;
        self.tally.backlog_at_end = left(&self.at_end, Schedule::count_left);
        self.tally.time_line = self.recorder.finish();
        self.tally.in_flight_max =
            self.connections.iter().map(|connection| connection.slots() as u32).min().unwrap_or(0);
        self.tally
    }
}

/// Requests in flight whose operations started in the window.
fn count_started(connection: &Connection, window: Window) -> u64 {
    connection.flights().filter(|flight| window.contains(flight.start_ns)).count() as u64
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}
