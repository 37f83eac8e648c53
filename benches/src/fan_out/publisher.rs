//! Appends at a fixed rate, whatever the answers do.

use std::sync::atomic::Ordering;
use std::time::Duration;

use duolog_net::client::{Client, Event};
use tokio::task::JoinSet;

use super::{FanOutError, Run, runtime, server_cpu_us};
use crate::generator::clock::{Clock, pause};
use crate::generator::latency::Latencies;

/// Appends without an answer; the next one waits, and its latency with it.
const IN_FLIGHT_MAX: usize = 512;

/// What the publisher saw.
#[derive(Debug, Default)]
pub(super) struct Published {
    /// From the moment an append was due until its receipt.
    pub latencies: Latencies,
    pub errors: u64,
    pub seconds: f64,
    pub server_cpu_us: Option<u64>,
}

/// Publishes when all subscribers have begun. `gave_up`: they ended early.
pub(super) fn run(run: &Run, gave_up: impl Fn() -> bool) -> Result<Published, FanOutError> {
    while !run.is_ready() && !gave_up() {
        pause(Duration::from_millis(10));
    }
    let published = runtime()?.block_on(publish(run));
    // Subscribers wait for this number, also when there was an error.
    let count = published.as_ref().map_or(0, |published| published.latencies.count());
    run.published.store(count, Ordering::Release);
    published
}

async fn publish(run: &Run) -> Result<Published, FanOutError> {
    let settings = &run.settings;
    let client = Client::connect(&settings.addr).await?;
    let before = server_cpu_us(&client).await;
    let begin_ns = run.clock.now_ns();
    let every_ns = 1_000_000_000 / u64::from(settings.rate_per_s.max(1));
    let count = settings.duration.as_nanos() as u64 / every_ns;
    let mut published = Published::default();
    let mut appends: JoinSet<Result<u64, ()>> = JoinSet::new();
    for number in 0..count {
        let due_ns = begin_ns + number * every_ns;
        wait_until(&run.clock, due_ns).await;
        while let Some(done) = appends.try_join_next() {
            published.note(done);
        }
        while appends.len() >= IN_FLIGHT_MAX {
            match appends.join_next().await {
                Some(done) => published.note(done),
                None => break,
            }
        }
        let call =
            client.append(&run.stream).event(event(settings.event_size_bytes, number, due_ns));
        let clock: Clock = run.clock;
        appends.spawn(async move {
            let sent = call.send().await;
            sent.map(|_| clock.now_ns().saturating_sub(due_ns)).map_err(drop)
        });
    }
    while let Some(done) = appends.join_next().await {
        published.note(done);
    }
    published.seconds = (run.clock.now_ns() - begin_ns) as f64 / 1e9;
    let after = server_cpu_us(&client).await;
    published.server_cpu_us = before.zip(after).map(|(before, after)| after.saturating_sub(before));
    Ok(published)
}

/// The runtime's timer counts milliseconds: the last of them are spent looking.
async fn wait_until(clock: &Clock, due_ns: u64) {
    loop {
        let left_ns = due_ns.saturating_sub(clock.now_ns());
        match left_ns {
            0 => return,
            1..3_000_000 => tokio::task::yield_now().await,
            _ => tokio::time::sleep(Duration::from_nanos(left_ns - 2_000_000)).await,
        }
    }
}

/// The event with this number, due at that time: both are in its data.
fn event(size_bytes: usize, number: u64, due_ns: u64) -> Event {
    let mut data = vec![b'.'; size_bytes.max(16)];
    data[..8].copy_from_slice(&number.to_le_bytes());
    data[8..16].copy_from_slice(&due_ns.to_le_bytes());
    Event::new("published", data)
}

impl Published {
    fn note(&mut self, done: Result<Result<u64, ()>, tokio::task::JoinError>) {
        match done {
            Ok(Ok(latency_ns)) => self.latencies.record(latency_ns),
            Ok(Err(())) | Err(_) => self.errors += 1,
        }
    }
}
