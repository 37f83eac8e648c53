//! Writers that keep a server busy and write down what they were told, across its deaths.
//!
//! Each writer has a connection with several appends in flight. When the connection ends it
//! connects again and sends what was not answered again, with the same keys and in the same order;
//! now and then it gives one up, whose outcome is then unknown, and asks for an old one again.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use duolog_engine::append::Expect;
use duolog_engine::ids::Revision;
use duolog_net::wire::{Copies, ErrorCode};

use super::ledger::{Fate, Ledger, Operation, StreamPart};
use super::moment::{Span, moment_us};
use super::patience::{Stopwatch, pause};
use super::wire::{Answer, Receipt, Wire};

/// Streams that all writers share.
const SHARED: u64 = 5;
/// How long a writer may go without a server.
const ALONE_MAX: Duration = Duration::from_secs(60);
/// How long a writer waits at most because a server asked it to.
const RETRY_MAX: Duration = Duration::from_millis(200);
/// How long an answer of a node of a pair may take before the other one is asked.
const PAIR_PATIENCE: Duration = Duration::from_secs(2);

/// What a crowd does.
#[derive(Clone, Copy, Debug)]
pub struct CrowdPlan {
    /// The server.
    pub address: SocketAddr,
    /// The other server, of a pair: whichever serves is written to.
    pub other: Option<SocketAddr>,
    /// Writers, each with a connection.
    pub writers: u32,
    /// Appends in flight per writer.
    pub window: usize,
    /// Largest event data, bytes; few events are that large.
    pub data_max_bytes: usize,
    /// Pause of a writer after each answer.
    pub pace: Duration,
    /// Decides what is written.
    pub seed: u64,
    /// The first writer's number. Keys and own streams belong to a number: crowds that write one
    /// after the other into one log have different ones.
    pub first: u32,
}

impl CrowdPlan {
    /// Six writers with up to eight appends of up to 2,000 bytes in flight, at full speed.
    #[must_use]
    pub const fn new(address: SocketAddr, seed: u64) -> Self {
        let pace = Duration::ZERO;
        let (other, data_max_bytes) = (None, 2000);
        Self { address, other, writers: 6, window: 8, data_max_bytes, pace, seed, first: 0 }
    }
}

/// Writers at work.
#[derive(Debug)]
pub struct Crowd {
    writers: Vec<JoinHandle<Ledger>>,
    stop: Arc<AtomicBool>,
    acked: Arc<Acked>,
}

/// Acknowledged appends, by where their copies were.
#[derive(Debug, Default)]
struct Acked {
    alone: AtomicU64,
    by_peer: AtomicU64,
    by_s3: AtomicU64,
}

impl Acked {
    const fn of(&self, copies: Copies) -> &AtomicU64 {
        match copies {
            Copies::ThisDisk => &self.alone,
            Copies::ThisDiskAndPeer => &self.by_peer,
            Copies::ThisDiskAndS3 => &self.by_s3,
        }
    }
}

impl Crowd {
    /// Sets them to work.
    #[must_use]
    pub fn start(plan: CrowdPlan) -> Self {
        let (stop, acked) = (Arc::new(AtomicBool::new(false)), Arc::<Acked>::default());
        let writers = (plan.first..plan.first + plan.writers).map(|number| {
            let (stop, acked) = (Arc::clone(&stop), Arc::clone(&acked));
            std::thread::spawn(move || Writer::new(plan, number, acked).run(&stop))
        });
        Self { writers: writers.collect(), stop, acked }
    }

    /// Appends acknowledged so far.
    #[must_use]
    pub fn acked(&self) -> u64 {
        let all = [Copies::ThisDisk, Copies::ThisDiskAndPeer, Copies::ThisDiskAndS3];
        all.into_iter().map(|copies| self.acked_by(copies)).sum()
    }

    /// Appends acknowledged so far whose receipt says so.
    #[must_use]
    pub fn acked_by(&self, copies: Copies) -> u64 {
        self.acked.of(copies).load(Ordering::Relaxed)
    }

    /// Lets them finish what is in flight; what they wrote down.
    ///
    /// # Panics
    /// When one of them was told something wrong.
    #[must_use]
    pub fn finish(self) -> Ledger {
        self.stop.store(true, Ordering::Relaxed);
        let mut ledger = Ledger::default();
        for writer in self.writers {
            match writer.join() {
                Ok(own) => ledger.join(own),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        ledger
    }
}

/// A small generator of numbers that look random (the SplitMix64 sequence).
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    const fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

#[derive(Debug)]
struct InFlight {
    correlation: u64,
    operation: Operation,
    sent_before: bool,
    /// When it was sent first.
    sent_us: u64,
    /// The answer of the first time, if this is an old append asked for again.
    echo_of: Option<Receipt>,
    /// A stream of this writer alone: it must not be given up, and never conflicts.
    own: bool,
}

impl InFlight {
    /// From when it was sent to now.
    fn span(&self) -> Span {
        Span { sent_us: self.sent_us, answered_us: moment_us() }
    }
}

#[derive(Debug)]
struct Writer {
    plan: CrowdPlan,
    number: u32,
    dice: Dice,
    acked: Arc<Acked>,
    sequence: u64,
    /// Events of the writer's own stream, in flight or acknowledged.
    own_next: u64,
    window: VecDeque<InFlight>,
    old: Vec<(Operation, Receipt)>,
    ledger: Ledger,
    /// The server said that it is stopping.
    dismissed: bool,
    /// Where the last connection led.
    address: SocketAddr,
}

impl Writer {
    fn new(plan: CrowdPlan, number: u32, acked: Arc<Acked>) -> Self {
        let dice = Dice(plan.seed ^ (u64::from(number) << 32));
        Self {
            plan,
            number,
            dice,
            acked,
            sequence: 0,
            own_next: 0,
            window: VecDeque::new(),
            old: Vec::new(),
            ledger: Ledger::default(),
            dismissed: false,
            address: plan.address,
        }
    }

    fn run(mut self, stop: &AtomicBool) -> Ledger {
        let ended = |writer: &Self| stop.load(Ordering::Relaxed) && writer.window.is_empty();
        while !self.dismissed && !ended(&self) {
            let mut wire = self.reach();
            // The connection's end is what this loop is about.
            let silent = |error: &io::Error| {
                matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
            };
            if self.serve(&mut wire, stop).is_err_and(|error| silent(&error)) {
                self.turn_to_the_other();
            }
            self.give_some_up();
        }
        for waiting in std::mem::take(&mut self.window) {
            self.forget(waiting);
        }
        self.ledger
    }

    /// A connection on which everything in flight has been sent again.
    fn reach(&mut self) -> Wire {
        let watch = Stopwatch::start();
        loop {
            if let Ok(wire) = self.dial().and_then(|wire| self.resend(wire)) {
                return wire;
            }
            assert!(watch.elapsed() < ALONE_MAX, "no server for {ALONE_MAX:?}");
            self.turn_to_the_other();
            pause(Duration::from_millis(10));
        }
    }

    fn turn_to_the_other(&mut self) {
        if let Some(other) = self.plan.other {
            let here = self.address == self.plan.address;
            self.address = if here { other } else { self.plan.address };
        }
    }

    fn dial(&self) -> io::Result<Wire> {
        if self.plan.other.is_none() {
            return Wire::connect(self.address);
        }
        let (wire, accepted) = Wire::connect_within(self.address, None, PAIR_PATIENCE)?;
        if accepted.role.serves() { Ok(wire) } else { Err(io::Error::other("it does not lead")) }
    }

    /// Whether this answer sends the writer to look for a node that serves. What was asked stays in
    /// its place in the window.
    const fn sends_on(&self, code: ErrorCode) -> bool {
        match code {
            ErrorCode::Unknown => true,
            ErrorCode::NotLeader
            | ErrorCode::ShuttingDown
            | ErrorCode::Busy
            | ErrorCode::DiskFull => self.plan.other.is_some(),
            _ => false,
        }
    }

    fn resend(&mut self, mut wire: Wire) -> io::Result<Wire> {
        for waiting in &mut self.window {
            waiting.correlation = wire.send_append(&waiting.operation.request())?;
            waiting.sent_before = true;
        }
        Ok(wire)
    }

    fn serve(&mut self, wire: &mut Wire, stop: &AtomicBool) -> io::Result<()> {
        while !self.dismissed {
            while self.window.len() < self.plan.window && !stop.load(Ordering::Relaxed) {
                let mut next = self.invent();
                // In the window before it is sent: a send that fails may have arrived.
                next.correlation = u64::MAX;
                self.window.push_back(next);
                let sent = self.window.back_mut().expect("it was pushed");
                sent.correlation = wire.send_append(&sent.operation.request())?;
            }
            if self.window.is_empty() {
                return Ok(());
            }
            let (correlation, answer) = wire.receive()?;
            let at = self.window.iter().position(|waiting| waiting.correlation == correlation);
            let at = at.unwrap_or_else(|| panic!("an answer to nothing: {answer:?}"));
            if let Answer::Refused(refused) = &answer
                && self.sends_on(refused.code)
            {
                pause(Duration::from_millis(refused.retry_after_ms.into()).min(RETRY_MAX));
                return Err(io::Error::other("to be asked for again on another connection"));
            }
            let waiting = self.window.remove(at).expect("it was found there");
            self.settle(waiting, answer);
            if !self.plan.pace.is_zero() {
                pause(self.plan.pace);
            }
        }
        Ok(())
    }

    fn settle(&mut self, waiting: InFlight, answer: Answer) {
        let span = Some(waiting.span());
        let InFlight { operation, sent_before, echo_of, own, .. } = waiting;
        match answer {
            Answer::Appended(receipt) => {
                if let Some(first) = echo_of {
                    let mut receipt = receipt;
                    if self.plan.other.is_some() {
                        receipt.head.copies = first.head.copies; // there may be more by now
                    }
                    assert_eq!(receipt, first.replayed(), "a retry of {operation:?}");
                    return;
                }
                let replayed = receipt.head.replayed;
                assert!(sent_before || !replayed, "the first try was a replay: {operation:?}");
                let mut receipt = receipt;
                receipt.head.replayed = false;
                self.acked.of(receipt.head.copies).fetch_add(1, Ordering::Relaxed);
                if self.old.len() < 1000 || self.dice.one_in(8) {
                    self.old.push((operation.clone(), receipt.clone()));
                }
                self.ledger.note(operation, Fate::Acked(receipt), span);
            }
            Answer::Refused(refused) => match refused.code {
                // An answer while stopping says nothing about an earlier try of the same append.
                ErrorCode::ShuttingDown if echo_of.is_none() && sent_before => {
                    self.ledger.note(operation, Fate::Unknown, span);
                    self.dismissed = true;
                }
                ErrorCode::ShuttingDown => {
                    if echo_of.is_none() {
                        self.ledger.note(operation, Fate::Refused(refused.code), span);
                    }
                    self.dismissed = true;
                }
                ErrorCode::Conflict if !own && echo_of.is_none() => {
                    self.ledger.note(operation, Fate::Refused(refused.code), span);
                }
                code => panic!("{operation:?} was refused with {code:?}: {}", refused.text),
            },
            other => panic!("{operation:?} was answered by {other:?}"),
        }
    }

    /// The connection is gone: some appends are never asked about again.
    fn give_some_up(&mut self) {
        for waiting in std::mem::take(&mut self.window) {
            if waiting.own || !self.dice.one_in(4) {
                self.window.push_back(waiting);
            } else {
                self.forget(waiting);
            }
        }
    }

    fn forget(&mut self, waiting: InFlight) {
        if waiting.echo_of.is_none() {
            let span = waiting.span();
            self.ledger.note(waiting.operation, Fate::Unknown, Some(span));
        }
    }

    fn invent(&mut self) -> InFlight {
        if !self.old.is_empty() && self.dice.one_in(12) {
            let index = self.dice.below(self.old.len() as u64) as usize;
            let (operation, receipt) = self.old[index].clone();
            return InFlight {
                correlation: 0,
                operation,
                sent_before: true,
                sent_us: moment_us(),
                echo_of: Some(receipt),
                own: false,
            };
        }
        self.sequence += 1;
        let key = (u128::from(self.number) + 1) << 96 | u128::from(self.sequence) << 32;
        let (parts, own) = match self.dice.below(20) {
            0..8 => (vec![self.own_part()], true),
            8..13 => (vec![self.shared_part(Expect::Any)], false),
            13 => (vec![self.shared_part(Expect::StreamExists)], false),
            14 => (vec![self.shared_part(Expect::NoStream)], false),
            15 => {
                let guess = Expect::Exact(Revision(self.dice.below(self.sequence * 4)));
                (vec![self.shared_part(guess)], false)
            }
            _ => (self.family(), false),
        };
        let token = (own && self.dice.one_in(4)).then_some(self.sequence);
        let operation = Operation { key, token, parts };
        let sent_us = moment_us();
        InFlight { correlation: 0, operation, sent_before: false, sent_us, echo_of: None, own }
    }

    fn data(&mut self) -> Vec<u8> {
        let length = match self.dice.below(40) {
            0 => self.plan.data_max_bytes as u64,
            1..4 => self.dice.below(self.plan.data_max_bytes as u64),
            _ => 16 + self.dice.below(600),
        };
        let seed = self.dice.next().to_le_bytes();
        seed.iter().copied().cycle().take(length as usize).collect()
    }

    fn events(&mut self) -> Vec<Vec<u8>> {
        let count = if self.dice.one_in(4) { 2 + self.dice.below(4) } else { 1 };
        (0..count).map(|_| self.data()).collect()
    }

    /// The writer's own stream, at the revision it must have.
    fn own_part(&mut self) -> StreamPart {
        let expect = match self.own_next {
            0 => Expect::NoStream,
            next => Expect::Exact(Revision(next - 1)),
        };
        let events = self.events();
        self.own_next += events.len() as u64;
        StreamPart { name: format!("own-{}", self.number), expect, events }
    }

    fn shared_part(&mut self, expect: Expect) -> StreamPart {
        let name = format!("shared-{}", self.dice.below(SHARED));
        StreamPart { name, expect, events: self.events() }
    }

    /// Streams of one routing key, the last one only checked.
    fn family(&mut self) -> Vec<StreamPart> {
        let key = self.dice.below(4);
        let part = |member: &str, events| {
            let name = format!("{{family-{key}}}.{member}");
            StreamPart { name, expect: Expect::Any, events }
        };
        let (first, second) = (self.events(), self.events());
        vec![part("a", first), part("b", second), part("c", Vec::new())]
    }
}
