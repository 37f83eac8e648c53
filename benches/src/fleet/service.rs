//! A worker: waits for a coordinator, applies the load it is told, sends back what was counted.
//! One coordinator at a time; others are refused while it is there. Between coordinators it sleeps
//! in the kernel.

use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use super::FleetError;
use super::link::{Link, LinkEvent, LinkSizes, write_message};
use super::message::{ASK_MAX_BYTES, Ask, REPLY_MAX_BYTES, Reply, Version};
use super::roster::SILENCE_MAX;
use super::token::Token;
use crate::generator::clock::{Clock, random_run_id};
use crate::generator::crew::{Crew, Stop};
use crate::generator::tally::Tally;
use crate::generator::time_line::{Live, Reading};
use crate::generator::{RunError, Settings, WorkerError};

/// How often a coordinator is told that its worker is there.
const TICK: Duration = Duration::from_secs(1);
const SIZES: LinkSizes =
    LinkSizes { sent_max_bytes: REPLY_MAX_BYTES, received_max_bytes: ASK_MAX_BYTES };
/// Events that wait; whoever has more waits with them.
const EVENTS_MAX: usize = 64;

/// How a worker is started.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// Host and port.
    pub listen: String,
    /// End after the first coordinator.
    pub once: bool,
    /// What a coordinator has to know. Needed if `listen` is reachable from other hosts.
    pub token: Option<Token>,
}

enum Event {
    /// Somebody connected.
    Knock(TcpStream, SocketAddr),
    /// From the coordinator of session number …
    Link(u64, LinkEvent<Ask>),
    /// Of run number …
    Opened(u64, Result<Vec<Arc<Live>>, RunError>),
    /// Of run number …
    Done(u64, Vec<Tally>),
}

/// A coordinator, and what it wants.
struct Session {
    number: u64,
    link: Link,
    peer: SocketAddr,
    nonce: String,
    is_joined: bool,
    heard_ns: u64,
    run: Option<Run>,
}

/// A share of a run. Stopped when dropped.
struct Run {
    number: u64,
    stop: Stop,
    /// When the load begins, ns.
    go: SyncSender<u64>,
    /// Of its threads, once all connections are open.
    lives: Vec<Arc<Live>>,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

struct Service<T: Fn(&str)> {
    settings: ServiceSettings,
    clock: Clock,
    events: SyncSender<Event>,
    session: Option<Session>,
    /// Of sessions and runs.
    numbers: u64,
    tell: T,
}

/// Why a session ends.
type Ending = String;

/// Serves coordinators until the process ends; with `once` until the first has gone. `tell` is
/// given what a person may want to know.
pub fn serve(settings: &ServiceSettings, tell: impl Fn(&str)) -> Result<(), FleetError> {
    let failed = |reason: std::io::Error| FleetError::Listen {
        listen: settings.listen.clone(),
        reason: reason.to_string(),
    };
    let listener = TcpListener::bind(&*resolve(settings)?).map_err(failed)?;
    let addr = listener.local_addr().map_err(failed)?;
    let (events, inbox) = mpsc::sync_channel(EVENTS_MAX);
    let knocks = events.clone();
    let accept = move || {
        for socket in listener.incoming().flatten() {
            let Ok(peer) = socket.peer_addr() else { continue };
            if knocks.send(Event::Knock(socket, peer)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("bench-accept".to_owned()).spawn(accept).map_err(failed)?;
    tell(&format!("listening on {addr}"));
    let (settings, clock) = (settings.clone(), Clock::start());
    Service { settings, clock, events, session: None, numbers: 0, tell }.work(&inbox);
    Ok(())
}

/// The addresses to listen on, all of them only reachable from here unless there is a token.
fn resolve(settings: &ServiceSettings) -> Result<Vec<SocketAddr>, FleetError> {
    let listen = &settings.listen;
    let refused = |reason: String| FleetError::Address { worker: listen.clone(), reason };
    let found = listen.to_socket_addrs().map_err(|error| refused(error.to_string()))?;
    let found: Vec<SocketAddr> = found.collect();
    if settings.token.is_none() && !found.iter().all(|addr| addr.ip().is_loopback()) {
        return Err(FleetError::OpenToAll { listen: listen.clone() });
    }
    Ok(found)
}

impl<T: Fn(&str)> Service<T> {
    fn work(mut self, inbox: &Receiver<Event>) {
        let mut next_tick_ns = 0;
        loop {
            let now_ns = self.clock.now_ns();
            let event = if self.session.is_none() {
                inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else if now_ns >= next_tick_ns {
                next_tick_ns = now_ns + TICK.as_nanos() as u64;
                Err(RecvTimeoutError::Timeout)
            } else {
                inbox.recv_timeout(Duration::from_nanos(next_tick_ns - now_ns))
            };
            let outcome = match event {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => self.tick(now_ns),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if let Err(ending) = outcome
                && let Some(session) = self.session.take()
            {
                (self.tell)(&format!("coordinator {} is gone: {ending}", session.peer));
                if self.settings.once && session.is_joined {
                    return;
                }
            }
        }
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), Ending> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let is_due = session.run.is_some() || !session.is_joined;
        if is_due && now_ns.saturating_sub(session.heard_ns) > SILENCE_MAX.as_nanos() as u64 {
            return Err(format!("it said nothing for {} s", SILENCE_MAX.as_secs()));
        }
        let so_far = session.run.iter().flat_map(|run| &run.lives);
        let so_far = Reading::sum(so_far.map(|live| live.read()));
        session.say(&Reply::Alive { so_far })
    }

    fn take(&mut self, event: Event) -> Result<(), Ending> {
        match event {
            Event::Knock(socket, peer) => {
                self.open(socket, peer);
                Ok(())
            }
            Event::Link(number, event) => match &mut self.session {
                Some(session) if session.number == number => match event {
                    LinkEvent::Lost(reason) => Err(reason),
                    LinkEvent::Said { message, at_ns } => self.answer(message, at_ns),
                },
                _ => Ok(()),
            },
            Event::Opened(number, opened) => match self.session_of(number) {
                None => Ok(()),
                Some(session) => match opened {
                    Ok(lives) => {
                        session.run.iter_mut().for_each(|run| run.lives.clone_from(&lives));
                        session.say(&Reply::Ready)
                    }
                    Err(error) => session.give_up(&error),
                },
            },
            Event::Done(number, tallies) => match self.session_of(number) {
                None => Ok(()),
                Some(session) => {
                    session.run = None;
                    let acked: u64 = tallies.iter().map(|tally| tally.acked).sum();
                    let said = session.say(&Reply::Done { tallies });
                    (self.tell)(&format!("run is over: {acked} acked"));
                    said
                }
            },
        }
    }

    /// The session with run number `number`; none if it is over.
    fn session_of(&mut self, number: u64) -> Option<&mut Session> {
        let is_its = |run: &Run| run.number == number;
        self.session.as_mut().filter(|session| session.run.as_ref().is_some_and(is_its))
    }

    fn open(&mut self, mut socket: TcpStream, peer: SocketAddr) {
        if let Some(session) = &self.session {
            let reason = format!("it works for the coordinator {}", session.peer);
            // Whoever does not take it learns from the end of the connection.
            let _ = write_message(&mut socket, &Reply::Refused { reason }, REPLY_MAX_BYTES);
            return;
        }
        self.numbers += 1;
        let (number, events) = (self.numbers, self.events.clone());
        let take = move |event| {
            // Nobody is left to hear it only when the worker ends.
            let _ = events.send(Event::Link(number, event));
        };
        let Ok(link) = Link::start(socket, SIZES, self.clock, take) else { return };
        let nonce = format!("{:016x}{:016x}", random_run_id(), random_run_id());
        let heard_ns = self.clock.now_ns();
        let mut session =
            Session { number, link, peer, nonce, is_joined: false, heard_ns, run: None };
        let hello = Reply::Hello {
            version: Version::ours(),
            nonce: session.nonce.clone(),
            needs_token: self.settings.token.is_some(),
        };
        if session.say(&hello).is_ok() {
            self.session = Some(session);
        }
    }

    fn answer(&mut self, ask: Ask, at_ns: u64) -> Result<(), Ending> {
        let Some(session) = &mut self.session else { return Ok(()) };
        session.heard_ns = at_ns;
        match ask {
            Ask::Join { version, proof } if !session.is_joined => {
                if let Err(reason) = self.settings.accept(&version, &session.nonce, proof) {
                    return session.refuse(reason);
                }
                session.is_joined = true;
                (self.tell)(&format!("coordinator {} has joined", session.peer));
                session.say(&Reply::Welcome)
            }
            _ if !session.is_joined => session.refuse("join first".to_owned()),
            Ask::Ping { number } => session.say(&Reply::Pong { number }),
            Ask::Prepare { settings, first_thread, thread_count }
                if session.run.is_none()
                    && thread_count > 0
                    && first_thread.saturating_add(thread_count) <= settings.threads =>
            {
                self.numbers += 1;
                let share = first_thread..first_thread + thread_count;
                let run = Run::start(self.numbers, *settings, share, self.clock, &self.events);
                match run {
                    Ok(run) => {
                        (self.tell)(&format!("opens connections for {thread_count} threads"));
                        session.run = Some(run);
                        Ok(())
                    }
                    Err(error) => session.give_up(&RunError::Thread(error)),
                }
            }
            Ask::Go { after_us } if session.run.is_some() => {
                let load_ns = at_ns.saturating_add(after_us.saturating_mul(1000));
                // A crew that is not ready, or gone, takes no second word: the run fails by time.
                if let Some(run) = &session.run {
                    let _ = run.go.try_send(load_ns);
                }
                (self.tell)("load begins");
                Ok(())
            }
            Ask::Alive => Ok(()),
            Ask::Join { .. } | Ask::Prepare { .. } | Ask::Go { .. } => {
                session.refuse("that was asked out of turn".to_owned())
            }
        }
    }
}

impl ServiceSettings {
    /// Whether a coordinator may join; if not, what it is told.
    fn accept(&self, theirs: &Version, nonce: &str, proof: Option<String>) -> Result<(), String> {
        let ours = Version::ours();
        if *theirs != ours {
            return Err(format!("the coordinator is {theirs}, the worker {ours}"));
        }
        match (&self.token, proof) {
            (None, _) => Ok(()),
            (Some(_), None) => Err("it wants a token, and the coordinator gave none".to_owned()),
            (Some(token), Some(proof)) if token.accepts(nonce, &proof) => Ok(()),
            (Some(_), Some(_)) => Err("the coordinator has another token".to_owned()),
        }
    }
}

impl Session {
    fn say(&mut self, reply: &Reply) -> Result<(), Ending> {
        self.link.send(reply).map_err(|error| error.to_string())
    }

    /// Says why, and ends.
    fn refuse(&mut self, reason: String) -> Result<(), Ending> {
        self.say(&Reply::Refused { reason: reason.clone() })?;
        Err(reason)
    }

    /// Tells that the run cannot be done here; the coordinator stays.
    fn give_up(&mut self, error: &RunError) -> Result<(), Ending> {
        self.run = None;
        let unreachable = matches!(
            error,
            RunError::Worker(WorkerError::Connect { .. } | WorkerError::OpenTimeout { .. })
        );
        self.say(&Reply::Failed { unreachable, reason: error.to_string() })
    }
}

impl Run {
    fn start(
        number: u64,
        settings: Settings,
        share: Range<u32>,
        clock: Clock,
        events: &SyncSender<Event>,
    ) -> std::io::Result<Self> {
        let stop = Stop::default();
        let (go, wait_go) = mpsc::sync_channel(1);
        let (events, stopped) = (events.clone(), stop.clone());
        let work = move || {
            let crew = match Crew::open(&settings, share, clock, &stopped) {
                Ok(crew) => crew,
                Err(error) => {
                    // Nobody is left to hear it only when the worker ends.
                    let _ = events.send(Event::Opened(number, Err(error)));
                    return;
                }
            };
            if events.send(Event::Opened(number, Ok(crew.lives()))).is_err() {
                return;
            }
            // Without a go the run was called off.
            if let Ok(load_ns) = wait_go.recv() {
                let _ = events.send(Event::Done(number, crew.run(load_ns)));
            }
        };
        thread::Builder::new().name("bench-crew".to_owned()).spawn(work)?;
        Ok(Self { number, stop, go, lives: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::link::read_message;
    use super::*;

    /// A worker on a port of its own; ends with the tests.
    fn worker(token: Option<Token>) -> SocketAddr {
        let (told, tells) = mpsc::channel();
        let settings = ServiceSettings { listen: "127.0.0.1:0".to_owned(), once: false, token };
        thread::spawn(move || serve(&settings, |line| drop(told.send(line.to_owned()))));
        let line = tells.recv().unwrap();
        line.strip_prefix("listening on ").unwrap().parse().unwrap()
    }

    fn say(socket: &mut TcpStream, ask: &Ask) -> Reply {
        write_message(socket, ask, ASK_MAX_BYTES).unwrap();
        hear(socket)
    }

    /// The next message that is not only a sign of life.
    fn hear(socket: &mut TcpStream) -> Reply {
        loop {
            match read_message(socket, REPLY_MAX_BYTES).unwrap() {
                Reply::Alive { .. } => {}
                reply => return reply,
            }
        }
    }

    fn prepare(first_thread: u32, thread_count: u32) -> Ask {
        // Nobody listens there: a share that is taken fails with other words.
        let nowhere = "127.0.0.1:1".parse().unwrap();
        let plain = Settings::appends(nowhere, 4, 1, Duration::from_secs(1));
        let settings = Box::new(Settings { threads: 2, ..plain });
        Ask::Prepare { settings, first_thread, thread_count }
    }

    /// A share lies within the run. Broken if a worker takes on threads that the run does not have,
    /// whose connections and streams would be those of others, or no thread at all.
    #[test]
    fn a_share_outside_of_the_run_is_refused() {
        let addr = worker(None);
        for (first, count) in [(0, 0), (0, 3), (1, 2), (2, 1), (u32::MAX, 1), (1, u32::MAX)] {
            let mut socket = TcpStream::connect(addr).unwrap();
            assert!(matches!(hear(&mut socket), Reply::Hello { needs_token: false, .. }));
            let join = Ask::Join { version: Version::ours(), proof: None };
            assert!(matches!(say(&mut socket, &join), Reply::Welcome));
            let reply = say(&mut socket, &prepare(first, count));
            assert!(matches!(reply, Reply::Refused { .. }), "{first}+{count}: {reply:?}");
        }
        let mut socket = TcpStream::connect(addr).unwrap();
        hear(&mut socket);
        say(&mut socket, &Ask::Join { version: Version::ours(), proof: None });
        let reply = say(&mut socket, &prepare(1, 1));
        assert!(matches!(reply, Reply::Failed { unreachable: true, .. }), "{reply:?}");
    }

    /// Nothing is done for somebody who has not shown that he knows the token. Broken if a proof
    /// that is none, or that was made for another connection, or none at all, is welcome.
    #[test]
    fn whoever_has_no_proof_is_refused() {
        let token = Token::new("0123456789abcdef").unwrap();
        let addr = worker(Some(token.clone()));
        let greeted = || {
            let mut socket = TcpStream::connect(addr).unwrap();
            match hear(&mut socket) {
                Reply::Hello { nonce, needs_token: true, .. } => (socket, nonce),
                other => panic!("{other:?}"),
            }
        };
        let (mut socket, old_nonce) = greeted();
        let reply = say(&mut socket, &prepare(0, 1));
        assert!(matches!(reply, Reply::Refused { .. }), "{reply:?}");
        for proof in [None, Some("00".repeat(32)), Some(token.prove(&old_nonce))] {
            let (mut socket, _) = greeted();
            let reply = say(&mut socket, &Ask::Join { version: Version::ours(), proof });
            assert!(matches!(reply, Reply::Refused { .. }), "{reply:?}");
        }
        let (mut socket, nonce) = greeted();
        let proof = Some(token.prove(&nonce));
        let reply = say(&mut socket, &Ask::Join { version: Version::ours(), proof });
        assert!(matches!(reply, Reply::Welcome), "{reply:?}");
    }
}
