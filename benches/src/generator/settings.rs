//! What a run is to do, checked as a whole before anything starts.

use std::net::SocketAddr;
use std::time::Duration;

use duolog_engine::limits::{APPEND_EVENTS_MAX, APPEND_STREAMS_MAX};
use serde::{Deserialize, Serialize};

use super::clock::random_run_id;
use super::workload::{Arrivals, Expectation, ReadMode, StreamOrder, Workload};

/// Most connections of one run: each costs a descriptor and about 1 KiB.
pub const CONNECTIONS_MAX: u32 = 65_536;
/// Most requests in flight on one connection.
pub const IN_FLIGHT_MAX: u32 = 4096;
/// Most streams of one run. Here a stream costs nothing, except with exact expectations: 12 bytes
/// (its next revision and its place among the idle ones), and 8 in a hot load. The server pays
/// more.
pub const STREAMS_MAX: u32 = 100_000_000;
/// Streams of the plain load.
const STREAMS_DEFAULT: u32 = 10_000;
/// Streams of a hot load: everybody wants the same one.
pub const HOT_STREAMS_DEFAULT: u32 = 1;
/// Events that a stream is given before reads begin, and bytes that they may have together, unless
/// told otherwise.
const STREAM_EVENTS_DEFAULT: u32 = 100;
const STREAM_EVENTS_MAX_BYTES: u32 = 1 << 20;
/// Most events that a stream is given before reads begin.
pub const STREAM_EVENTS_MAX: u32 = 100_000_000;
/// Largest event, bytes.
pub const EVENT_SIZE_MAX_BYTES: u32 = 16 << 20;
/// Longest measured window.
pub const DURATION_MAX: Duration = Duration::from_secs(86_400);
/// How long answers are awaited behind the window, unless told otherwise.
pub const DRAIN_DEFAULT: Duration = Duration::from_secs(5);
/// Arrival rate of an open loop when nobody says one, per second: light for any server, so that the
/// first figures a person sees are latencies and not the length of a queue.
pub const RATE_DEFAULT_PER_S: u64 = 1000;
/// Highest arrival rate of an open loop, per second.
pub const RATE_MAX_PER_S: u64 = 100_000_000;
/// Most generator threads.
pub const THREADS_MAX: u32 = 256;

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
    /// Streams of the run.
    pub streams: u32,
    /// How they are chosen.
    pub stream_order: StreamOrder,
    /// Streams of one append, 1..=256; they lie in one shard.
    pub streams_per_append: u32,
    /// Events that an append has for each of its streams.
    pub batch: u32,
    /// What a read is. Mixed loads read points.
    pub read_mode: ReadMode,
    /// Mixed: share of the operations that are reads, percent.
    pub reads_percent: u32,
    /// Read and mixed: events that each stream is given before the load begins.
    pub stream_events: u32,
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
    /// How an open loop's arrivals follow each other.
    pub arrivals: Arrivals,
    /// Generator threads.
    pub threads: u32,
    /// Names this run's streams; event ids and keys begin with it.
    pub run_id: u64,
    /// Read and mixed: use the streams that the run with this id has written, instead of writing
    /// own ones. It must have had the same number of streams, of the same length.
    pub streams_of_run: Option<u64>,
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
         {needed} streams, one (or --streams-per-append) per request in flight; --streams is \
         {streams}"
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
    /// An append has all its streams at once.
    #[error("--streams-per-append is {streams_per_append} but there are only {streams} streams")]
    NarrowAppend {
        /// Streams of one append.
        streams_per_append: u32,
        /// Streams of the run.
        streams: u32,
    },
    /// The server takes only so many events in one append.
    #[error("--streams-per-append x --batch is {events} events: an append has up to 65536")]
    WideAppend {
        /// Their product.
        events: u64,
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
            stream_order: StreamOrder::Uniform,
            streams_per_append: 1,
            batch: 1,
            read_mode: ReadMode::Page,
            reads_percent: 50,
            stream_events: Self::stream_events_default(event_size_bytes),
            event_size_bytes,
            duration,
            warm_up: Duration::ZERO,
            drain: DRAIN_DEFAULT,
            expectation: Expectation::Any,
            with_keys: false,
            rate_per_s: None,
            arrivals: Arrivals::Constant,
            threads: 1,
            run_id: random_run_id(),
            streams_of_run: None,
        }
    }

    /// Events that a stream gets before reads begin when nobody says how many: 100, or 1 MiB of
    /// larger ones.
    #[must_use]
    pub fn stream_events_default(event_size_bytes: u32) -> u32 {
        STREAM_EVENTS_DEFAULT.min(STREAM_EVENTS_MAX_BYTES / event_size_bytes.max(1)).max(1)
    }

    /// What the streams are appended to in: groups of those that one append has together.
    #[must_use]
    pub const fn groups(&self) -> u32 {
        self.streams / self.streams_per_append
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
        range("--reads", self.reads_percent.into(), 0, 100)?;
        range("--events", self.stream_events.into(), 1, STREAM_EVENTS_MAX.into())?;
        let (wide, batch) = (self.streams_per_append, self.batch);
        range("--streams-per-append", wide.into(), 1, APPEND_STREAMS_MAX as u64)?;
        range("--batch", batch.into(), 1, APPEND_EVENTS_MAX as u64)?;
        range("--threads", self.threads.into(), 1, THREADS_MAX.into())?;
        if self.threads > self.connections {
            let (threads, connections) = (self.threads, self.connections);
            return Err(SettingsError::IdleThreads { threads, connections });
        }
        self.check_width()
    }

    /// Whether the streams suffice for what appends do with them.
    fn check_width(&self) -> Result<(), SettingsError> {
        let &Self { connections, in_flight, streams, streams_per_append, .. } = self;
        let events = u64::from(streams_per_append) * u64::from(self.batch);
        if events > APPEND_EVENTS_MAX as u64 {
            return Err(SettingsError::WideAppend { events });
        }
        if streams_per_append > streams {
            return Err(SettingsError::NarrowAppend { streams_per_append, streams });
        }
        let appends = u64::from(connections) * u64::from(in_flight);
        let needed = appends * u64::from(streams_per_append);
        if self.expectation == Expectation::Exact && u64::from(self.groups()) < appends {
            return Err(SettingsError::TooFewStreams { connections, in_flight, needed, streams });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What cannot be is refused before anything starts, by the option's name.
    #[test]
    fn streams_have_to_suffice_for_the_appends() {
        let addr = "127.0.0.1:1".parse().unwrap();
        let plain = Settings::appends(addr, 4, 100, Duration::from_secs(1));
        assert_eq!(plain.check(), Ok(()));
        let narrow = Settings { streams: 2, streams_per_append: 3, ..plain.clone() };
        let exact = Settings {
            expectation: Expectation::Exact,
            streams: 11,
            streams_per_append: 3,
            ..plain.clone()
        };
        let wide = Settings { streams_per_append: 256, batch: 257, ..plain.clone() };
        let reads = Settings { reads_percent: 101, ..plain };
        for (settings, option) in [
            (&narrow, "--streams-per-append is 3"),
            (&exact, "at least 12 streams"),
            (&wide, "65792 events"),
            (&reads, "--reads is 101"),
        ] {
            let text = settings.check().unwrap_err().to_string();
            assert!(text.contains(option), "{text}");
        }
        assert_eq!(Settings { streams: 12, ..exact }.check(), Ok(()));
    }
}
