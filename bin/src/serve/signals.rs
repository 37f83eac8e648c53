//! The side thread: signals, the order in which shards stop, and calls to the bucket.

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
use crate::journal::Note;

/// How long shards may take to finish what is in flight before the process ends anyway.
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// What a process ended by a second signal returns, as a shell would: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

/// Starts the thread. It ends with the process: whatever a stop still waits for then, a second
/// signal is heard.
/// `runner` makes the calls to the bucket, on the same thread.
pub fn start(
    inboxes: Arc<[Arc<Inbox>]>,
    runner: Option<Runner>,
    life: Arc<Life>,
    journal: Journal,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (terminate, interrupt) = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let thread = std::thread::Builder::new().name("side".to_owned());
    let pair = runner.is_some();
    thread.spawn(move || {
        if let Some(runner) = runner {
            runtime.spawn(runner.run());
        }
        runtime.block_on(run(&inboxes, &life, &journal, pair, terminate, interrupt));
    })?;
    Ok(())
}

async fn run(
    inboxes: &[Arc<Inbox>],
    life: &Life,
    journal: &Journal,
    pair: bool,
    mut terminate: Signal,
    mut interrupt: Signal,
) {
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    };
    life.enter(Phase::Stopping);
    tracing::info!(event = "stopping", signal = name, "a second signal ends the process at once");
    journal.note(Clock.now(), Note::new("process_stopping").because(name));
    let stop = async {
        if pair {
            hand_over(&inboxes[0]).await;
        }
        tell(inboxes, || Message::Drain);
        drained(inboxes).await;
        tell(inboxes, || Message::Stop);
        std::future::pending().await
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = stop => {}
    }
    // The process itself ends when its shards have; this is the second signal.
    let reason = "a second signal ended it at once";
    journal.end(INTERRUPTED, reason);
    process::exit(INTERRUPTED)
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
