//! Where each worker of a fleet stands: a machine that is told what the workers say, and says what
//! they are to be asked and whether the run is over or has failed.
//!
//! Every worker joins once. A run then goes through three phases, each entered by all together:
//! opening connections, measuring round trips, load. A worker that fails, is lost or says nothing
//! for ten seconds ends the run, and the error names it.

use std::ops::Range;
use std::time::Duration;

use super::FleetError;
use super::message::{Ask, Reply, Version};
use super::token::Token;
use crate::generator::Settings;
use crate::generator::tally::Tally;
use crate::generator::time_line::Reading;

/// Pings of each worker before a run; the shortest round trip counts, since all that can happen
/// to a round trip makes it longer.
const PINGS: u32 = 5;
/// A worker that says nothing for so long is lost. Each says something every second.
pub const SILENCE_MAX: Duration = Duration::from_secs(10);
/// The load begins this much after the go, so that the go is with all workers before.
const HEAD_START: Duration = Duration::from_millis(50);
/// Hand-in of tallies, behind the last moment at which a worker may still drain.
const HAND_IN_MAX: Duration = Duration::from_secs(30);

/// What a worker did.
#[derive(Debug)]
pub enum Event {
    /// Said something.
    Said(Reply),
    /// The connection ended.
    Lost(String),
}

/// What the coordinator is to do.
#[derive(Debug)]
pub enum Action {
    /// Send this to that worker.
    Send(usize, Box<Ask>),
    /// Send [`Ask::Go`] to all workers, one directly after the other.
    Go {
        /// Its delay.
        after_us: u64,
    },
    /// All workers have joined: [`Roster::begin`] may be called.
    Joined,
    /// The run is over: every thread's tally, in the order of the threads.
    Over(Vec<Tally>),
    /// The run has failed, and with it the fleet; nothing more will come.
    Failed(FleetError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Joining,
    Idle,
    Opening,
    Pinging,
    Load,
    Failed,
}

#[derive(Debug)]
struct Member {
    name: String,
    heard_ns: u64,
    /// Has done what the phase asks of it.
    is_through: bool,
    ping_sent_ns: u64,
    pings: u32,
    round_trip_ns: u64,
    so_far: Reading,
    tallies: Vec<Tally>,
}

/// See the module's text.
#[derive(Debug)]
pub struct Roster {
    members: Vec<Member>,
    token: Option<Token>,
    phase: Phase,
    settings: Option<Box<Settings>>,
    deadline_ns: u64,
}

impl Roster {
    /// Waits for the hello of workers with these names.
    #[must_use]
    pub fn new(names: &[String], token: Option<Token>, now_ns: u64) -> Self {
        let member = |name: &String| Member {
            name: name.clone(),
            heard_ns: now_ns,
            is_through: false,
            ping_sent_ns: 0,
            pings: 0,
            round_trip_ns: u64::MAX,
            so_far: Reading::default(),
            tallies: Vec::new(),
        };
        let members = names.iter().map(member).collect();
        Self { members, token, phase: Phase::Joining, settings: None, deadline_ns: u64::MAX }
    }

    /// Begins a run. `settings.threads` is the number of threads of the whole fleet, a multiple of
    /// its size.
    ///
    /// # Panics
    /// If the workers have not joined or are at another run.
    pub fn begin(&mut self, settings: &Settings, now_ns: u64, out: &mut Vec<Action>) {
        assert_eq!(self.phase, Phase::Idle, "a run begins when all workers are idle");
        let count = self.members.len() as u32;
        assert_eq!(settings.threads % count, 0, "each worker has the same number of threads");
        self.settings = Some(Box::new(settings.clone()));
        self.enter(Phase::Opening);
        // Between two runs nobody listened to what they said.
        for member in &mut self.members {
            (member.heard_ns, member.so_far) = (now_ns, Reading::default());
        }
        for worker in 0..self.members.len() {
            let share = share(worker, settings.threads, self.members.len());
            out.push(send(
                worker,
                Ask::Prepare {
                    settings: Box::new(settings.clone()),
                    first_thread: share.start,
                    thread_count: share.end - share.start,
                },
            ));
        }
    }

    /// Takes what worker number `worker` did at `now_ns`.
    pub fn step(&mut self, worker: usize, event: Event, now_ns: u64, out: &mut Vec<Action>) {
        if self.phase == Phase::Failed {
            return;
        }
        let heard_ns = &mut self.members[worker].heard_ns;
        *heard_ns = now_ns.max(*heard_ns);
        let name = self.members[worker].name.clone();
        match event {
            Event::Lost(reason) => self.fail(FleetError::Lost { worker: name, reason }, out),
            Event::Said(reply) => {
                if let Err(error) = self.take(worker, reply, now_ns, out) {
                    self.fail(error, out);
                }
            }
        }
        self.advance(now_ns, out);
    }

    /// Time has passed: is to be called about every second.
    pub fn tick(&mut self, now_ns: u64, out: &mut Vec<Action>) {
        if self.phase == Phase::Failed {
            return;
        }
        let silence_ns = SILENCE_MAX.as_nanos() as u64;
        let silent = |member: &&Member| now_ns.saturating_sub(member.heard_ns) > silence_ns;
        if let Some(member) = self.members.iter().find(silent) {
            let (worker, after_s) = (member.name.clone(), SILENCE_MAX.as_secs());
            self.fail(FleetError::Silent { worker, after_s }, out);
        } else if now_ns > self.deadline_ns {
            let late = self.members.iter().find(|member| !member.is_through);
            let worker = late.map_or_else(String::new, |member| member.name.clone());
            self.fail(FleetError::Late { worker }, out);
        } else if self.phase != Phase::Joining {
            out.extend((0..self.members.len()).map(|worker| send(worker, Ask::Alive)));
        }
    }

    /// What all workers had done by the last time they told.
    #[must_use]
    pub fn so_far(&self) -> Reading {
        Reading::sum(self.members.iter().map(|member| member.so_far))
    }

    /// The shortest round trip to each worker before the newest run, ns.
    pub fn round_trips_ns(&self) -> impl Iterator<Item = u64> {
        self.members.iter().map(|member| member.round_trip_ns)
    }

    fn take(
        &mut self,
        worker: usize,
        reply: Reply,
        now_ns: u64,
        out: &mut Vec<Action>,
    ) -> Result<(), FleetError> {
        let member = &mut self.members[worker];
        let name = || member.name.clone();
        match (self.phase, reply) {
            (_, Reply::Alive { so_far }) => member.so_far = so_far,
            (_, Reply::Refused { reason }) => {
                return Err(FleetError::Refused { worker: name(), reason });
            }
            (_, Reply::Failed { unreachable, reason }) => {
                return Err(FleetError::Run { worker: name(), unreachable, reason });
            }
            (Phase::Joining, Reply::Hello { version, nonce, needs_token }) => {
                let ask = join(&member.name, self.token.as_ref(), version, &nonce, needs_token)?;
                out.push(send(worker, ask));
            }
            (Phase::Joining, Reply::Welcome) | (Phase::Opening, Reply::Ready) => {
                member.is_through = true;
            }
            (Phase::Pinging, Reply::Pong { number }) if number == member.pings => {
                let round_trip_ns = now_ns.saturating_sub(member.ping_sent_ns);
                member.round_trip_ns = member.round_trip_ns.min(round_trip_ns);
                member.pings += 1;
                member.is_through = member.pings == PINGS;
                if !member.is_through {
                    out.push(ping(worker, member, now_ns));
                }
            }
            (Phase::Load, Reply::Done { tallies }) => {
                member.tallies = tallies;
                member.is_through = true;
            }
            (_, reply) => {
                return Err(FleetError::OutOfTurn { worker: name(), what: reply.name() });
            }
        }
        Ok(())
    }

    /// Enters the next phase when all members are through with this one.
    fn advance(&mut self, now_ns: u64, out: &mut Vec<Action>) {
        if self.phase == Phase::Idle || !self.members.iter().all(|member| member.is_through) {
            return;
        }
        match self.phase {
            Phase::Joining => {
                self.enter(Phase::Idle);
                out.push(Action::Joined);
            }
            Phase::Opening => {
                self.enter(Phase::Pinging);
                for (worker, member) in self.members.iter_mut().enumerate() {
                    (member.pings, member.round_trip_ns) = (0, u64::MAX);
                    out.push(ping(worker, member, now_ns));
                }
            }
            Phase::Pinging => self.go(now_ns, out),
            Phase::Load => {
                self.enter(Phase::Idle);
                self.deadline_ns = u64::MAX;
                let parts =
                    self.members.iter_mut().map(|member| std::mem::take(&mut member.tallies));
                out.push(Action::Over(parts.flatten().collect()));
            }
            Phase::Idle | Phase::Failed => {}
        }
    }

    fn go(&mut self, now_ns: u64, out: &mut Vec<Action>) {
        let settings = self.settings.take().expect("a run that is opened has settings");
        let slowest = self.round_trips_ns().max().unwrap_or(0);
        let after = HEAD_START + Duration::from_nanos(slowest);
        let whole = after + settings.warm_up + settings.duration + settings.drain + HAND_IN_MAX;
        let whole_ns = u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX);
        self.deadline_ns = now_ns.saturating_add(whole_ns);
        self.enter(Phase::Load);
        let after_us = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
        out.push(Action::Go { after_us });
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.members.iter_mut().for_each(|member| member.is_through = false);
    }

    fn fail(&mut self, error: FleetError, out: &mut Vec<Action>) {
        self.enter(Phase::Failed);
        out.push(Action::Failed(error));
    }
}

/// The threads of worker number `worker` of `workers`.
fn share(worker: usize, threads: u32, workers: usize) -> Range<u32> {
    let each = threads / workers as u32;
    let first = worker as u32 * each;
    first..first + each
}

fn send(worker: usize, ask: Ask) -> Action {
    Action::Send(worker, Box::new(ask))
}

fn ping(worker: usize, member: &mut Member, now_ns: u64) -> Action {
    member.ping_sent_ns = now_ns;
    send(worker, Ask::Ping { number: member.pings })
}

/// The answer to a worker's hello.
fn join(
    name: &str,
    token: Option<&Token>,
    theirs: Version,
    nonce: &str,
    needs_token: bool,
) -> Result<Ask, FleetError> {
    let (worker, ours) = (name.to_owned(), Version::ours());
    if theirs != ours {
        let (theirs, ours) = (Box::new(theirs), Box::new(ours));
        return Err(FleetError::Versions { worker, theirs, ours });
    }
    if needs_token && token.is_none() {
        return Err(FleetError::TokenWanted { worker });
    }
    Ok(Ask::Join { version: ours, proof: token.map(|token| token.prove(nonce)) })
}

#[cfg(test)]
mod tests;
