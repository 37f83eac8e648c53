//! The side thread: signals, the order in which shards stop, calls to the bucket, and what the
//! service manager is told.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::clock::Clock;
use super::cluster::message::ToControl;
use super::cluster::store::Runner;
use super::inbox::{Inbox, Message};
use super::journal::Journal;
use super::life::{Life, Phase};
use super::reload::Reload;
use super::supervisor::{self, Event, Herald, Socket};
use crate::journal::Note;

/// How long shards may take to finish what is in flight before the process ends anyway.
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// What a process ended by a second signal returns, as a shell would: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

/// What the thread starts with.
#[derive(Debug)]
pub struct Side {
    /// The shards.
    pub inboxes: Arc<[Arc<Inbox>]>,
    /// In a pair: makes the calls to the bucket.
    pub runner: Option<Runner>,
    /// Where the process stands.
    pub life: Arc<Life>,
    /// For the lines about its end.
    pub journal: Journal,
    /// The service manager.
    pub socket: Socket,
    /// For SIGHUP.
    pub reload: Reload,
}

/// Starts the thread. It ends with the process: whatever a stop still waits for then, a second
/// signal is heard.
pub fn start(side: Side) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = {
        let _inside = runtime.enter();
        Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        }
    };
    let thread = std::thread::Builder::new().name("side".to_owned());
    thread.spawn(move || runtime.block_on(run(side, signals)))?;
    Ok(())
}

#[derive(Debug)]
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

async fn run(side: Side, signals: Signals) {
    let Side { inboxes, runner, life, journal, socket, reload } = side;
    let client = runner.as_ref().map(|runner| runner.client().clone());
    let pair = runner.is_some();
    if let Some(runner) = runner {
        tokio::spawn(runner.run());
    }
    let herald = RefCell::new(Herald::new(socket, Arc::clone(&inboxes), pair));
    let Signals { mut terminate, mut interrupt, hangup } = signals;
    let serve = async {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            never = reload.attend(hangup, client, &herald) => match never {},
        };
        life.enter(Phase::Stopping);
        let advice = "a second signal ends the process at once";
        tracing::info!(event = "stopping", signal = name, "{advice}");
        journal.note(Clock.now(), Note::new("process_stopping").because(name));
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            never = stop(&inboxes, pair, &herald) => match never {},
        }
        // The process itself ends when its shards have; this is the second signal.
        journal.end(INTERRUPTED, "a second signal ended it at once");
        process::exit(INTERRUPTED)
    };
    tokio::select! {
        never = serve => match never {},
        never = supervisor::attend(&herald) => match never {},
    }
}

/// Brings the shards to their end. The process ends when they have.
async fn stop(inboxes: &[Arc<Inbox>], pair: bool, herald: &RefCell<Herald>) -> Infallible {
    if pair {
        herald.borrow_mut().tell(Event::Stopping("handing over"));
        hand_over(&inboxes[0]).await;
    }
    herald.borrow_mut().tell(Event::Stopping("finishing requests"));
    tell(inboxes, || Message::Drain);
    drained(inboxes).await;
    herald.borrow_mut().tell(Event::Stopping("finishing indexes"));
    tell(inboxes, || Message::Stop);
    std::future::pending().await
}

/// Lets the other node take over, if it is there; shard 0 bounds how long that may take.
async fn hand_over(inbox: &Inbox) {
    inbox.send_waiting(Message::Control(ToControl::Stop));
    let handed_over = async {
        while !inbox.handed_over.load(Ordering::Acquire) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    if tokio::time::timeout(DRAIN_MAX, handed_over).await.is_err() {
        tracing::warn!(event = "handover_cut", limit_s = DRAIN_MAX.as_secs());
    }
}

async fn drained(inboxes: &[Arc<Inbox>]) {
    let all = async {
        while !inboxes.iter().all(|inbox| inbox.drained.load(Ordering::Acquire)) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    if tokio::time::timeout(DRAIN_MAX, all).await.is_err() {
        tracing::warn!(event = "drain_cut", limit_s = DRAIN_MAX.as_secs(), "requests are left");
    }
}

fn tell(inboxes: &[Arc<Inbox>], message: impl Fn() -> Message) {
    for inbox in inboxes {
        inbox.send_waiting(message());
    }
}
