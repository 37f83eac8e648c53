//! What the requests contain: which stream, which condition, which bytes.

use duolog_net::wire::{FrameKind, OpenFrame, ReadStream};

use super::clock::Mixer;
use super::settings::{Expectation, Settings, Workload};

/// The type of every event written here.
const EVENT_TYPE: &str = "bench";
/// Events that each stream of a read workload gets, and bytes that they may have together.
const READ_EVENTS: u32 = 100;
const READ_EVENTS_MAX_BYTES: u32 = 1 << 20;

/// One connection's choice of streams.
#[derive(Debug)]
pub struct Streams {
    /// Exact mode: the streams of this connection that have no append in flight.
    idle: Vec<u32>,
    /// Exact mode: next revision of each owned stream, by position in the ownership order.
    next_revisions: Vec<u64>,
    /// Read workload: the next owned stream to write before the clock starts.
    next_to_prepare: u32,
    first: u32,
}

/// Makes the requests of one worker.
#[derive(Debug)]
pub struct Requests {
    workload: Workload,
    expectation: Expectation,
    with_keys: bool,
    connections: u32,
    streams: u32,
    name_prefix: String,
    data: Vec<u8>,
    mixer: Mixer,
    /// Event ids and keys are this plus a counter.
    identity: u128,
    name: String,
}

impl Requests {
    /// For worker number `worker` of a run.
    #[must_use]
    pub fn new(settings: &Settings, worker: u32) -> Self {
        let mut mixer = Mixer::new(settings.run_id ^ (u64::from(worker) << 40));
        let data = (0..settings.event_size_bytes).map(|_| mixer.next_number() as u8).collect();
        Self {
            workload: settings.workload,
            expectation: settings.expectation,
            with_keys: settings.with_keys,
            connections: settings.connections,
            streams: settings.streams,
            name_prefix: format!("bench-{:016x}-", settings.run_id),
            data,
            mixer,
            identity: (u128::from(settings.run_id) << 64) | (u128::from(worker) << 48),
            name: String::new(),
        }
    }

    /// The streams of connection number `connection` (of the whole run).
    #[must_use]
    pub fn streams_of(&self, connection: u32) -> Streams {
        let owned = (self.streams.saturating_sub(connection)).div_ceil(self.connections);
        let exact = self.workload == Workload::Append && self.expectation == Expectation::Exact;
        Streams {
            idle: if exact { (0..owned).collect() } else { Vec::new() },
            next_revisions: if exact { vec![0; owned as usize] } else { Vec::new() },
            next_to_prepare: 0,
            first: connection,
        }
    }

    /// Chooses the stream of the next operation. `None` when all owned ones are in use.
    pub fn choose(&mut self, streams: &mut Streams) -> Option<u32> {
        if streams.next_revisions.is_empty() {
            return Some(self.mixer.below(self.streams));
        }
        let count = u32::try_from(streams.idle.len()).ok().filter(|count| *count > 0)?;
        let position = streams.idle.swap_remove(self.mixer.below(count) as usize);
        Some(streams.first + position * self.connections)
    }

    /// The next owned stream that has to be written before a read workload; `None` = all done.
    pub fn choose_to_prepare(&self, streams: &mut Streams) -> Option<u32> {
        let position = u64::from(streams.next_to_prepare);
        let stream = u64::from(streams.first) + position * u64::from(self.connections);
        streams.next_to_prepare += 1;
        u32::try_from(stream).ok().filter(|stream| *stream < self.streams)
    }

    /// Tells how an append to `stream` ended: its next revision now, if the server said so.
    pub fn ended(&self, streams: &mut Streams, stream: u32, next_revision: Option<u64>) {
        if streams.next_revisions.is_empty() {
            return;
        }
        let position = (stream - streams.first) / self.connections;
        if let Some(next) = next_revision {
            streams.next_revisions[position as usize] = next;
        }
        streams.idle.push(position);
    }

    /// Encodes the operation on `stream`.
    pub fn encode(&mut self, out: &mut Vec<u8>, correlation: u64, streams: &Streams, stream: u32) {
        self.name_stream(stream);
        match self.workload {
            Workload::Read => ReadStream::new(&self.name)
                .encode(out, correlation)
                .expect("the names made here have 1 to 255 bytes"),
            Workload::Append => {
                let position = stream.wrapping_sub(streams.first) / self.connections;
                let condition = match streams.next_revisions.get(position as usize) {
                    None => Condition::ANY,
                    Some(0) => Condition::NO_STREAM,
                    Some(next) => Condition::exact(next - 1),
                };
                self.encode_append(out, correlation, condition, 1);
            }
        }
    }

    /// Encodes the append that prepares `stream` for reading.
    pub fn encode_preparation(&mut self, out: &mut Vec<u8>, correlation: u64, stream: u32) {
        self.name_stream(stream);
        let event_bytes = (self.data.len() as u32).max(1);
        let count = READ_EVENTS.min(READ_EVENTS_MAX_BYTES / event_bytes).max(1);
        self.encode_append(out, correlation, Condition::ANY, count);
    }

    fn name_stream(&mut self, stream: u32) {
        use std::fmt::Write;
        self.name.clear();
        write!(self.name, "{}{stream}", self.name_prefix).expect("a String takes all text");
    }

    fn encode_append(
        &mut self,
        out: &mut Vec<u8>,
        correlation: u64,
        condition: Condition,
        count: u32,
    ) {
        self.identity += 1 << 16;
        let key = if self.with_keys { self.identity } else { 0 };
        let frame = OpenFrame::begin(out, FrameKind::Append, correlation);
        out.extend_from_slice(&u16::from(self.with_keys).to_le_bytes());
        out.extend_from_slice(&1_u16.to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&key.to_le_bytes());
        out.extend_from_slice(&0_u64.to_le_bytes());
        out.extend_from_slice(&[condition.code, self.name.len() as u8, 0, 0]);
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&condition.revision.to_le_bytes());
        out.extend_from_slice(self.name.as_bytes());
        for number in 0..count {
            out.extend_from_slice(&(self.identity + u128::from(number)).to_le_bytes());
            out.extend_from_slice(&[EVENT_TYPE.len() as u8, 0, 0, 0]);
            out.extend_from_slice(&0_u32.to_le_bytes());
            out.extend_from_slice(&(self.data.len() as u32).to_le_bytes());
            out.extend_from_slice(EVENT_TYPE.as_bytes());
            out.extend_from_slice(&self.data);
        }
        frame.finish(out);
    }
}

/// An expectation as its two fields in the request.
#[derive(Clone, Copy, Debug)]
struct Condition {
    code: u8,
    revision: u64,
}

impl Condition {
    const ANY: Self = Self { code: 0, revision: 0 };
    const NO_STREAM: Self = Self { code: 1, revision: 0 };

    const fn exact(revision: u64) -> Self {
        Self { code: 3, revision }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use duolog_engine::append::{AppendView, Expect};
    use duolog_engine::ids::Revision;
    use duolog_net::wire::{Decoded, decode_frame};

    use super::*;

    fn settings(expectation: Expectation) -> Settings {
        let addr = "127.0.0.1:1".parse().unwrap();
        Settings {
            in_flight: 2,
            streams: 10,
            expectation,
            with_keys: true,
            run_id: 7,
            ..Settings::appends(addr, 4, 100, Duration::from_secs(1))
        }
    }

    /// The requests written here byte by byte are what the engine's parser reads, and carry the
    /// revision that the last answer told. Broken if a field is off or an expectation is stale.
    #[test]
    fn requests_are_well_formed_and_expect_what_was_answered() {
        let mut requests = Requests::new(&settings(Expectation::Exact), 0);
        let mut streams = requests.streams_of(1);
        let mut wanted = std::collections::HashMap::new();
        for number in 0..50_u64 {
            let stream = requests.choose(&mut streams).unwrap();
            assert_eq!(stream % 4, 1, "connection 1 owns streams 1, 5 and 9");
            let mut out = Vec::new();
            requests.encode(&mut out, number, &streams, stream);
            let Decoded::Complete { value, used } = decode_frame(&out, 1 << 20).unwrap() else {
                panic!("the frame is not whole")
            };
            assert_eq!(
                (value.kind, value.correlation, used),
                (FrameKind::Append, number, out.len())
            );
            let append = AppendView::parse(value.body, 1 << 20).unwrap();
            assert!(append.key().is_some());
            let view = append.streams().next().unwrap();
            assert_eq!(view.name, format!("bench-0000000000000007-{stream}").as_bytes());
            let next = wanted.entry(stream).or_insert(0_u64);
            let expect =
                next.checked_sub(1).map_or(Expect::NoStream, |last| Expect::Exact(Revision(last)));
            assert_eq!(view.expect, expect);
            assert_eq!(append.events().next().unwrap().data.len(), 100);
            *next += 1;
            requests.ended(&mut streams, stream, Some(*next));
        }
        assert!(wanted.len() > 1, "streams are chosen, not repeated");
    }

    /// With exact expectations a stream has one append in flight. Broken if it is chosen twice.
    #[test]
    fn a_stream_in_use_is_not_chosen() {
        let mut requests = Requests::new(&settings(Expectation::Exact), 0);
        let mut streams = requests.streams_of(1);
        let mut chosen: Vec<u32> =
            std::iter::from_fn(|| requests.choose(&mut streams)).take(10).collect();
        chosen.sort_unstable();
        assert_eq!(chosen, [1, 5, 9]);
    }

    /// Every stream of a read workload is prepared by exactly one connection.
    #[test]
    fn preparation_covers_every_stream_once() {
        let requests = Requests::new(&settings(Expectation::Any), 0);
        let mut all = Vec::new();
        for connection in 0..4 {
            let mut streams = requests.streams_of(connection);
            while let Some(stream) = requests.choose_to_prepare(&mut streams) {
                all.push(stream);
            }
        }
        all.sort_unstable();
        assert_eq!(all, (0..10).collect::<Vec<u32>>());
    }
}
