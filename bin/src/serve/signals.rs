//! The side thread: signals, and the order in which shards stop.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::inbox::{Inbox, Message};

/// How long shards may take to finish what is in flight before the process ends anyway.
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// What a process ended by a second signal returns, as a shell would: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

/// Starts the thread. It ends with the process: whatever a stop still waits for then, a second
/// signal is heard.
pub fn start(inboxes: Arc<[Arc<Inbox>]>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (terminate, interrupt) = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let thread = std::thread::Builder::new().name("side".to_owned());
    thread.spawn(move || runtime.block_on(run(&inboxes, terminate, interrupt)))?;
    Ok(())
}

async fn run(inboxes: &[Arc<Inbox>], mut terminate: Signal, mut interrupt: Signal) {
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    };
    tracing::info!(event = "stopping", signal = name, "a second signal ends the process at once");
    tell(inboxes, || Message::Drain);
    let stop = async {
        drained(inboxes).await;
        tell(inboxes, || Message::Stop);
        std::future::pending().await
    };
    tokio::select! {
        _ = terminate.recv() => process::exit(INTERRUPTED),
        _ = interrupt.recv() => process::exit(INTERRUPTED),
        () = stop => {}
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
