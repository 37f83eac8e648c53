//! What a run is to do, checked as a whole before anything starts.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::clock::random_run_id;

/// Most connections of one run: each costs a descriptor and about 1 KiB.
pub const CONNECTIONS_MAX: u32 = 65_536;
/// Most requests in flight on one connection.
pub const IN_FLIGHT_MAX: u32 = 4096;
/// Most streams of one run: each costs 8 bytes here, and memory in the server.
pub const STREAMS_MAX: u32 = 100_000_000;
/// Streams of the plain load.
const STREAMS_DEFAULT: u32 = 10_000;
/// Largest event, bytes.
pub const EVENT_SIZE_MAX_BYTES: u32 = 16 << 20;
/// Longest measured window.
pub const DURATION_MAX: Duration = Duration::from_secs(86_400);
/// How long answers are awaited behind the window, unless told otherwise.
pub const DRAIN_DEFAULT: Duration = Duration::from_secs(5);
/// Highest arrival rate of an open loop, per second.
pub const RATE_MAX_PER_S: u64 = 100_000_000;
/// Most generator threads.
pub const THREADS_MAX: u32 = 256;

/// What each operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Appends one event.
    Append,
    /// Reads a page from the start of a stream; the streams are written before the clock starts.
    Read,
}

/// Condition on the stream of each append.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expectation {
    /// None.
    Any,
    /// The exact revision: each connection owns its streams, so that it always knows it.
    Exact,
}

/// One run. Its JSON form is what generators on several machines hand each other; durations in it
/// are whole seconds and nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The server's client port.
    pub addr: SocketAddr,
    /// What to do.
    pub workload: Workload,
    /// Connections, 1..=65536.
    pub connections: u32,
    /// Requests in flight per connection, 1..=4096.
    pub in_flight: u32,
    /// Streams, chosen uniformly.
    pub streams: u32,
    /// Payload of each event, bytes.
    pub event_size_bytes: u32,
    /// Measured window, up to a day.
    pub duration: Duration,
    /// Load before the window, not counted.
    pub warm_up: Duration,
    /// Longest wait behind the window for answers that are still out.
    pub drain: Duration,
    /// Condition of appends.
    pub expectation: Expectation,
    /// Send an idempotency key with every append.
    pub with_keys: bool,
    /// Arrivals per second of an open loop; `None` is a closed loop.
    pub rate_per_s: Option<u64>,
    /// Generator threads.
    pub threads: u32,
    /// Names this run's streams.
    pub run_id: u64,
}

/// A setting that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Out of its range.
    #[error("{name} is {value}: give {min} to {max}")]
    Range {
        /// The option.
        name: &'static str,
        /// What was given.
        value: u64,
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
    },
    /// With exact expectations a stream has one append in flight at a time.
    #[error(
        "--expect exact with {connections} connections x {in_flight} in flight needs at least \
         {needed} streams, one per request in flight; --streams is {streams}"
    )]
    TooFewStreams {
        /// Connections.
        connections: u32,
        /// In flight on each.
        in_flight: u32,
        /// Their product.
        needed: u64,
        /// What was given.
        streams: u32,
    },
    /// Threads share connections, not the other way round.
    #[error("--threads is {threads} but there are only {connections} connections")]
    IdleThreads {
        /// Threads.
        threads: u32,
        /// Connections.
        connections: u32,
    },
}

impl Settings {
    /// The plain load of the comparisons: one thread, a closed loop with one append in flight per
    /// connection, no warm-up, no condition and no key. The streams are new with every call.
    #[must_use]
    pub fn appends(
        addr: SocketAddr,
        connections: u32,
        event_size_bytes: u32,
        duration: Duration,
    ) -> Self {
        Self {
            addr,
            workload: Workload::Append,
            connections,
            in_flight: 1,
            streams: STREAMS_DEFAULT,
            event_size_bytes,
            duration,
            warm_up: Duration::ZERO,
            drain: DRAIN_DEFAULT,
            expectation: Expectation::Any,
            with_keys: false,
            rate_per_s: None,
            threads: 1,
            run_id: random_run_id(),
        }
    }

    /// Checks all values together.
    pub fn check(&self) -> Result<(), SettingsError> {
        let range = |name, value: u64, min: u64, max: u64| {
            let inside = (min..=max).contains(&value);
            if inside { Ok(()) } else { Err(SettingsError::Range { name, value, min, max }) }
        };
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        range("--connections", self.connections.into(), 1, CONNECTIONS_MAX.into())?;
        range("--in-flight", self.in_flight.into(), 1, IN_FLIGHT_MAX.into())?;
        range("--streams", self.streams.into(), 1, STREAMS_MAX.into())?;
        range("--size (bytes)", self.event_size_bytes.into(), 0, EVENT_SIZE_MAX_BYTES.into())?;
        range("--duration (ms)", ms(self.duration), 100, ms(DURATION_MAX))?;
        range("--warm-up (ms)", ms(self.warm_up), 0, ms(DURATION_MAX))?;
        range("drain (ms)", ms(self.drain), 0, ms(DURATION_MAX))?;
        range("--rate", self.rate_per_s.unwrap_or(1), 1, RATE_MAX_PER_S)?;
        range("--threads", self.threads.into(), 1, THREADS_MAX.into())?;
        if self.threads > self.connections {
            let (threads, connections) = (self.threads, self.connections);
            return Err(SettingsError::IdleThreads { threads, connections });
        }
        let needed = u64::from(self.connections) * u64::from(self.in_flight);
        if self.expectation == Expectation::Exact && u64::from(self.streams) < needed {
            let &Self { connections, in_flight, streams, .. } = self;
            return Err(SettingsError::TooFewStreams { connections, in_flight, needed, streams });
        }
        Ok(())
    }
}
