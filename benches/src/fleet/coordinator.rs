//! The coordinator of a fleet: connects to the workers and carries messages between them and the
//! [`Roster`], which decides.

use std::collections::BTreeSet;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use super::link::{Link, LinkEvent, LinkSizes};
use super::message::{ASK_MAX_BYTES, Ask, REPLY_MAX_BYTES, Reply};
use super::report::FleetReport;
use super::roster::{Action, Event, Roster, SILENCE_MAX};
use super::token::Token;
use super::{FleetError, WORKERS_MAX};
use crate::generator::clock::Clock;
use crate::generator::tally::{Measured, Tally, Window};
use crate::generator::{Observer, Settings};

/// Longest wait for a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the workers are told that the coordinator is there.
const TICK_NS: u64 = 1_000_000_000;
/// How often an observer is told.
const LOOK_NS: u64 = 250_000_000;
/// How long an observer may wait for what it asks: it is told on the only thread that speaks to the
/// workers and hears them.
pub const OBSERVER_PATIENCE: Duration = Duration::from_secs(2);
// Asking takes a write and two reads at most. The workers, too, bear no longer silence.
const _: () = assert!(OBSERVER_PATIENCE.as_secs() * 3 + 1 < SILENCE_MAX.as_secs());
/// Messages that wait; the workers' connections wait with them.
const EVENTS_MAX: usize = 256;
const SIZES: LinkSizes =
    LinkSizes { sent_max_bytes: ASK_MAX_BYTES, received_max_bytes: REPLY_MAX_BYTES };

/// See the module's text. Dropped, it sets the workers free, whatever they are at.
#[derive(Debug)]
pub struct Fleet {
    workers: Vec<String>,
    clock: Clock,
    roster: Roster,
    links: Vec<Link>,
    inbox: Receiver<(usize, LinkEvent<Reply>)>,
    next_tick_ns: u64,
    /// From sending the first go to having sent the last.
    sending_ns: u64,
    report: FleetReport,
    /// Of the run that is under way.
    course: Option<Course>,
}

/// The window of a run as the coordinator's clock sees it: half a round trip too early, at most.
#[derive(Clone, Copy, Debug)]
struct Course {
    window: Window,
    told: Told,
}

/// What the observer of a run has been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    Begin,
    End,
}

/// What ends a wait.
enum End {
    Joined,
    Over(Vec<Tally>),
}

impl Fleet {
    /// Connects to all workers and waits until each has accepted this coordinator.
    pub fn join(workers: &[String], token: Option<Token>) -> Result<Self, FleetError> {
        let different = workers.iter().collect::<BTreeSet<_>>().len();
        if !(1..=WORKERS_MAX).contains(&workers.len()) || different < workers.len() {
            return Err(FleetError::Count { count: workers.len() });
        }
        let clock = Clock::start();
        let (said, inbox) = mpsc::sync_channel(EVENTS_MAX);
        let mut links = Vec::new();
        for (number, worker) in workers.iter().enumerate() {
            let said = said.clone();
            let take = move |event| {
                // Nobody is left to hear it only when the fleet is gone.
                let _ = said.send((number, event));
            };
            let link = Link::start(connect(worker)?, SIZES, clock, take).map_err(|error| {
                FleetError::Connect { worker: worker.clone(), reason: error.to_string() }
            })?;
            links.push(link);
        }
        let mut fleet = Self {
            workers: workers.to_vec(),
            clock,
            roster: Roster::new(workers, token, clock.now_ns()),
            links,
            inbox,
            next_tick_ns: 0,
            sending_ns: 0,
            report: FleetReport::default(),
            course: None,
        };
        fleet.wait(Vec::new(), None)?;
        Ok(fleet)
    }

    /// The settings of the whole fleet: `settings.threads` is what each worker has.
    #[must_use]
    pub fn whole(&self, settings: &Settings) -> Settings {
        let count = self.workers.len() as u32;
        Settings { threads: settings.threads.saturating_mul(count), ..settings.clone() }
    }

    /// Runs the load of `whole`, which [`Fleet::whole`] made. `observer` is told of the window,
    /// with figures that are up to a second old; it may wait [`OBSERVER_PATIENCE`] for an answer.
    pub fn measure(
        &mut self,
        whole: &Settings,
        observer: &mut dyn Observer,
    ) -> Result<Measured, FleetError> {
        whole.check()?;
        let mut actions = Vec::new();
        self.roster.begin(whole, self.clock.now_ns(), &mut actions);
        let End::Over(tallies) = self.wait(actions, Some((whole, observer)))? else {
            unreachable!("workers join once");
        };
        let round_trips_ns = self.roster.round_trips_ns();
        self.report = FleetReport::new(&self.workers, round_trips_ns, self.sending_ns, &tallies);
        let course = self.course.take().expect("a load that is over has had its go");
        Ok(Measured { window: course.window, tallies })
    }

    /// How the workers did in the newest run.
    #[must_use]
    pub const fn report(&self) -> &FleetReport {
        &self.report
    }

    /// Does what the roster asks for, and tells it what comes in, until it has an answer.
    fn wait(
        &mut self,
        mut actions: Vec<Action>,
        mut run: Option<(&Settings, &mut dyn Observer)>,
    ) -> Result<End, FleetError> {
        loop {
            for action in actions.drain(..) {
                match action {
                    // A failure is told by the reading side, too: once is enough.
                    Action::Send(worker, ask) => drop(self.links[worker].send(&ask)),
                    Action::Go { after_us } => self.go(after_us, run.as_ref().map(|run| run.0)),
                    Action::Joined => return Ok(End::Joined),
                    Action::Over(tallies) => {
                        if let Some((_, observer)) = run {
                            self.attend(observer, u64::MAX);
                        }
                        return Ok(End::Over(tallies));
                    }
                    Action::Failed(error) => return Err(error),
                }
            }
            let now_ns = self.clock.now_ns();
            if now_ns >= self.next_tick_ns {
                self.tick(now_ns, &mut actions);
                continue;
            }
            let mut wake_ns = self.next_tick_ns;
            if let Some((_, observer)) = &mut run {
                wake_ns = wake_ns.min(self.attend(*observer, now_ns));
            }
            // An observer may have taken its time.
            let rest_ns = wake_ns.saturating_sub(self.clock.now_ns());
            match self.inbox.recv_timeout(Duration::from_nanos(rest_ns)) {
                Ok((worker, event)) => self.hear(worker, event, &mut actions),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    unreachable!("every link says that it is lost before it ends")
                }
            }
        }
    }

    /// Tells the roster that time has passed, once it knows all that the workers have said: what
    /// was not listened to is no silence. What the roster wants before that is done first, and the
    /// tick stays due.
    fn tick(&mut self, now_ns: u64, actions: &mut Vec<Action>) {
        for _ in 0..EVENTS_MAX {
            let Ok((worker, event)) = self.inbox.try_recv() else { break };
            self.hear(worker, event, actions);
            if !actions.is_empty() {
                return;
            }
        }
        self.next_tick_ns = now_ns + TICK_NS;
        self.roster.tick(now_ns, actions);
    }

    fn hear(&mut self, worker: usize, event: LinkEvent<Reply>, actions: &mut Vec<Action>) {
        let (event, at_ns) = match event {
            LinkEvent::Said { message, at_ns } => (Event::Said(message), at_ns),
            LinkEvent::Lost(reason) => (Event::Lost(reason), self.clock.now_ns()),
        };
        self.roster.step(worker, event, at_ns, actions);
    }

    fn go(&mut self, after_us: u64, settings: Option<&Settings>) {
        let begin_ns = self.clock.now_ns();
        for link in &mut self.links {
            // As above.
            let _ = link.send(&Ask::Go { after_us });
        }
        self.sending_ns = self.clock.now_ns() - begin_ns;
        let nanoseconds = |duration: Duration| duration.as_nanos() as u64;
        self.course = settings.map(|settings| {
            let load_ns = begin_ns + after_us * 1000;
            let start_ns = load_ns + nanoseconds(settings.warm_up);
            let end_ns = start_ns + nanoseconds(settings.duration);
            Course { window: Window { load_ns, start_ns, end_ns }, told: Told::Nothing }
        });
    }

    /// Tells the observer what is due at `now_ns`; returns when it wants to be told again.
    fn attend(&mut self, observer: &mut dyn Observer, now_ns: u64) -> u64 {
        let Some(course) = &mut self.course else { return u64::MAX };
        let Window { start_ns, end_ns, .. } = course.window;
        if course.told == Told::End {
            return u64::MAX;
        }
        if now_ns < start_ns {
            return start_ns;
        }
        if course.told == Told::Nothing {
            course.told = Told::Begin;
            observer.begins(now_ns);
        }
        if now_ns >= end_ns {
            course.told = Told::End;
            observer.ends(now_ns);
            return u64::MAX;
        }
        let share = (now_ns - start_ns) as f64 / (end_ns - start_ns) as f64;
        observer.goes_on(share, self.roster.so_far());
        end_ns.min(now_ns + LOOK_NS)
    }
}

fn connect(worker: &str) -> Result<TcpStream, FleetError> {
    let address = |reason: String| FleetError::Address { worker: worker.to_owned(), reason };
    let found = worker.to_socket_addrs().map_err(|error| address(error.to_string()))?;
    let mut failure = address("the name has no address".to_owned());
    for addr in found {
        match TcpStream::connect_timeout(&addr, CONNECT_TIMEOUT) {
            Ok(socket) => return Ok(socket),
            Err(error) => {
                let reason = error.to_string();
                failure = FleetError::Connect { worker: worker.to_owned(), reason };
            }
        }
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::SyncSender;

    use super::*;
    use crate::generator::time_line::Reading;

    const SECOND: u64 = 1_000_000_000;

    /// A coordinator whose workers have not said hello, and their way to it.
    fn fleet(names: &[&str]) -> (Fleet, SyncSender<(usize, LinkEvent<Reply>)>) {
        let workers: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let (said, inbox) = mpsc::sync_channel(EVENTS_MAX);
        let fleet = Fleet {
            roster: Roster::new(&workers, None, 0),
            workers,
            clock: Clock::start(),
            links: Vec::new(),
            inbox,
            next_tick_ns: 0,
            sending_ns: 0,
            report: FleetReport::default(),
            course: None,
        };
        (fleet, said)
    }

    /// A coordinator that was kept from its inbox for longer than silence is borne, say by a server
    /// that did not tell its status, finds there what the workers have said meanwhile. Broken if it
    /// calls a worker silent before it looks.
    #[test]
    fn what_waits_in_the_inbox_is_no_silence() {
        let (mut fleet, said) = fleet(&["a:1", "b:2"]);
        let alive = |worker: usize, at_ns: u64| {
            let message = Reply::Alive { so_far: Reading::default() };
            said.send((worker, LinkEvent::Said { message, at_ns })).unwrap();
        };
        let mut actions = Vec::new();
        for at_ns in (1..=11).map(|second| second * SECOND) {
            (0..2).for_each(|worker| alive(worker, at_ns));
        }
        fleet.tick(12 * SECOND, &mut actions);
        assert!(actions.is_empty(), "{actions:?}");
        assert_eq!(fleet.next_tick_ns, 13 * SECOND);
        // Whoever does not speak is silent all the same.
        alive(0, 20 * SECOND);
        fleet.tick(22 * SECOND, &mut actions);
        let [Action::Failed(error)] = actions.as_slice() else { panic!("{actions:?}") };
        assert!(error.to_string().contains("b:2 said nothing"), "{error}");
    }

    /// What comes of a message is done before time goes on: a load that is over cannot be late.
    #[test]
    fn a_loss_in_the_inbox_is_told_before_silence_is_looked_for() {
        let (mut fleet, said) = fleet(&["a:1"]);
        said.send((0, LinkEvent::Lost("reset".to_owned()))).unwrap();
        let mut actions = Vec::new();
        fleet.tick(30 * SECOND, &mut actions);
        let [Action::Failed(error)] = actions.as_slice() else { panic!("{actions:?}") };
        assert!(error.to_string().contains("lost worker a:1: reset"), "{error}");
        assert_eq!(fleet.next_tick_ns, 0, "the tick is yet to come");
    }
}
