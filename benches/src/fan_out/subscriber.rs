//! Subscribers: each counts what comes, how late it is, and that nothing is missing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use duolog_net::client::{Client, Delivery, Start, Subscription};
use tokio::task::JoinSet;

use super::{FanOutError, LAST_MAX, Run, runtime};
use crate::generator::latency::Latencies;

/// How often a subscriber without events looks whether the last one was published.
const LOOK: Duration = Duration::from_millis(100);

/// What the subscribers saw, together.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// From the moment an append was due until a subscriber had the event.
    pub latencies: Latencies,
    /// Events that did not come to somebody in time.
    pub missing: u64,
    pub cut_offs: u64,
}

/// Runs all of them on this thread.
pub(super) fn run(run: &Arc<Run>) -> Result<Heard, FanOutError> {
    runtime()?.block_on(async {
        let client = Client::connect(&run.settings.addr).await?;
        let mut tasks: JoinSet<Result<Heard, FanOutError>> = JoinSet::new();
        let mut idle = JoinSet::new();
        for number in 0..run.settings.idle {
            let call = client.subscribe(format!("{}-idle-{number}", run.stream)).from(Start::End);
            let (subscription, run) = (call.open()?, Arc::clone(run));
            idle.spawn(async move { wait(subscription, &run).await });
        }
        for _ in 0..run.settings.subscribers {
            let (subscription, run) = (run.call(&client).open()?, Arc::clone(run));
            tasks.spawn(async move { follow(subscription, &run).await });
        }
        let mut all = Heard::default();
        while let Some(heard) = tasks.join_next().await {
            let heard = heard.map_err(std::io::Error::other)??;
            all.latencies.merge(&heard.latencies);
            all.missing += heard.missing;
            all.cut_offs += heard.cut_offs;
        }
        // Without any of those, for as long as events are published.
        while run.published.load(Ordering::Acquire) == u64::MAX {
            tokio::time::sleep(LOOK).await;
        }
        idle.shutdown().await;
        Ok(all)
    })
}

/// Follows until everything that was published has come.
async fn follow(mut subscription: Subscription, run: &Run) -> Result<Heard, FanOutError> {
    let mut heard = Heard::default();
    let (mut next, mut ready) = (0_u64, false);
    let mut quiet = Duration::ZERO;
    loop {
        let published = run.published.load(Ordering::Acquire);
        if next >= published || quiet >= LAST_MAX && published < u64::MAX {
            heard.missing = published.saturating_sub(next);
            heard.cut_offs = subscription.cut_offs();
            return Ok(heard);
        }
        match tokio::time::timeout(LOOK, subscription.next()).await {
            Err(_) => quiet += LOOK,
            Ok(Ok(Delivery::CaughtUp)) => {
                if !std::mem::replace(&mut ready, true) {
                    run.ready.fetch_add(1, Ordering::AcqRel);
                }
            }
            Ok(Ok(Delivery::Event(delivered))) if delivered.event.stream == run.stream => {
                quiet = Duration::ZERO;
                let number = |at: usize| {
                    let bytes = delivered.event.data.get(at..at + 8)?;
                    Some(u64::from_le_bytes(bytes.try_into().ok()?))
                };
                let (found, due_ns) = (number(0).unwrap_or(u64::MAX), number(8).unwrap_or(0));
                if found != next {
                    return Err(FanOutError::Order { expected: next, found });
                }
                next += 1;
                heard.latencies.record(run.clock.now_ns().saturating_sub(due_ns));
            }
            // Somebody else's, on a subscription to everything.
            Ok(Ok(Delivery::Event(_))) => {}
            Ok(Err(error)) => return Err(error.into()),
        }
    }
}

/// Waits for a stream to which nothing is appended.
async fn wait(mut subscription: Subscription, run: &Run) {
    while let Ok(delivery) = subscription.next().await {
        if delivery == Delivery::CaughtUp {
            run.ready.fetch_add(1, Ordering::AcqRel);
        }
    }
}
