//! Subscriptions under load: how long an event takes from its publisher to each of many
//! subscribers, what subscribers that wait for other streams cost, and how fast a log is replayed.
//!
//! Publisher and subscribers run on threads of their own with the client library, as an application
//! would; they share one clock. Every subscriber checks that it gets every event once and in order.

mod publisher;
mod report;
mod subscriber;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duolog_net::client::{Client, Error, Start, SubscribeCall};
use serde::Serialize;
use serde_json::Value as Json;

pub use report::{FanOutReport, ReplayReport};

use crate::generator::clock::{Clock, random_run_id};

/// How long subscribers may take behind the last event, seconds.
const LAST_MAX: Duration = Duration::from_secs(20);

/// What subscribers follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Followed {
    /// The one stream.
    Stream,
    /// All streams whose names begin as it does, merged over the shards.
    Prefix,
    /// Everything, merged over the shards.
    All,
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct FanOutSettings {
    /// The server; both nodes of a pair separated by a comma.
    pub addr: String,
    /// Subscribers that get every event.
    pub subscribers: u32,
    /// Subscribers beside them that wait for streams to which nothing is appended.
    pub idle: u32,
    /// What the former follow.
    pub followed: Followed,
    /// Events a second.
    pub rate_per_s: u32,
    /// How long events are published.
    pub duration: Duration,
    /// Bytes of an event's data, at least 32.
    pub event_size_bytes: usize,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum FanOutError {
    /// The client library.
    #[error(transparent)]
    Client(#[from] Error),
    /// A runtime or thread.
    #[error("cannot start: {0}")]
    Start(#[from] std::io::Error),
    /// A subscriber saw what must not be.
    #[error("a subscriber was sent event {found} of the run instead of event {expected}")]
    Order {
        /// The next one.
        expected: u64,
        /// What came.
        found: u64,
    },
}

/// What the threads of one run share.
#[derive(Debug)]
struct Run {
    settings: FanOutSettings,
    clock: Clock,
    /// Name of the stream, new for each run.
    stream: String,
    /// Subscribers that have begun.
    ready: AtomicU64,
    /// Events that are acknowledged, once the last one is.
    published: AtomicU64,
}

fn runtime() -> Result<tokio::runtime::Runtime, std::io::Error> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// The processor time that the server says it has used, microseconds.
async fn server_cpu_us(client: &Client) -> Option<u64> {
    let status: Json = serde_json::from_str(&client.status().await.ok()?).ok()?;
    status["cpu_us"].as_u64()
}

/// Publishes to subscribers.
///
/// # Errors
/// See [`FanOutError`].
pub fn run(settings: &FanOutSettings) -> Result<FanOutReport, FanOutError> {
    let run = Arc::new(Run {
        settings: settings.clone(),
        clock: Clock::start(),
        stream: format!("bench-fan-{:x}", random_run_id()),
        ready: AtomicU64::new(0),
        published: AtomicU64::new(u64::MAX),
    });
    let theirs = Arc::clone(&run);
    let subscribers = std::thread::Builder::new().name("subscribers".to_owned());
    let subscribers = subscribers.spawn(move || subscriber::run(&theirs))?;
    let published = publisher::run(&run, || subscribers.is_finished());
    let heard = match subscribers.join() {
        Ok(heard) => heard?,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    Ok(FanOutReport::of(settings, &published?, &heard))
}

/// Reads everything there is through one subscription.
///
/// # Errors
/// See [`FanOutError`].
pub fn replay(addr: &str) -> Result<ReplayReport, FanOutError> {
    runtime()?.block_on(async {
        let client = Client::connect(addr).await?;
        let before = server_cpu_us(&client).await;
        let clock = Clock::start();
        let (mut events, mut bytes) = (0_u64, 0_u64);
        let mut subscription = client.subscribe_all().window(8 << 20).open()?;
        while let duolog_net::client::Delivery::Event(delivered) = subscription.next().await? {
            events += 1;
            bytes += delivered.event.data.len() as u64;
        }
        let seconds = clock.now_ns() as f64 / 1e9;
        let after = server_cpu_us(&client).await;
        let server_cpu_us = before.zip(after).map(|(before, after)| after.saturating_sub(before));
        Ok(ReplayReport::new(events, bytes, seconds, server_cpu_us))
    })
}

impl Run {
    /// A subscription of one that gets every event.
    fn call(&self, client: &Client) -> SubscribeCall {
        let call = match self.settings.followed {
            Followed::Stream => client.subscribe(&self.stream),
            Followed::Prefix => client.subscribe_prefix(&self.stream),
            Followed::All => client.subscribe_all(),
        };
        call.from(Start::End)
    }

    /// Whether every subscriber has begun.
    fn is_ready(&self) -> bool {
        let all = u64::from(self.settings.subscribers) + u64::from(self.settings.idle);
        self.ready.load(Ordering::Acquire) >= all
    }
}
