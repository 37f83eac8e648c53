//! What the requests contain: which stream, which condition, which bytes.

use super::clock::Mixer;
use super::settings::{Expectation, Settings, Workload};
use crate::frame;

/// The type of every event written here.
const EVENT_TYPE: &[u8] = b"bench";
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
            Workload::Read => {
                frame::write_frame(out, frame::KIND_READ_STREAM, correlation, |out| {
                    out.extend_from_slice(&[0; 16]);
                    out.extend_from_slice(&[0, self.name.len() as u8, 0, 0, 0, 0, 0, 0]);
                    out.extend_from_slice(self.name.as_bytes());
                })
            }
            Workload::Append => {
                let expectation = match streams
                    .next_revisions
                    .get((stream.wrapping_sub(streams.first) / self.connections) as usize)
                {
                    None => (0_u8, 0_u64),
                    Some(0) => (1, 0),
                    Some(next) => (3, next - 1),
                };
                self.encode_append(out, correlation, expectation, 1);
            }
        }
    }

    /// Encodes the append that prepares `stream` for reading.
    pub fn encode_preparation(&mut self, out: &mut Vec<u8>, correlation: u64, stream: u32) {
        self.name_stream(stream);
        let event_bytes = (self.data.len() as u32).max(1);
        let count = READ_EVENTS.min(READ_EVENTS_MAX_BYTES / event_bytes).max(1);
        self.encode_append(out, correlation, (0, 0), count);
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
        expect: (u8, u64),
        count: u32,
    ) {
        self.identity += 1 << 16;
        let key = if self.with_keys { self.identity } else { 0 };
        frame::write_frame(out, frame::KIND_APPEND, correlation, |out| {
            out.extend_from_slice(&u16::from(self.with_keys).to_le_bytes());
            out.extend_from_slice(&1_u16.to_le_bytes());
            out.extend_from_slice(&count.to_le_bytes());
            out.extend_from_slice(&key.to_le_bytes());
            out.extend_from_slice(&0_u64.to_le_bytes());
            out.extend_from_slice(&[expect.0, self.name.len() as u8, 0, 0]);
            out.extend_from_slice(&count.to_le_bytes());
            out.extend_from_slice(&expect.1.to_le_bytes());
            out.extend_from_slice(self.name.as_bytes());
            for number in 0..count {
                out.extend_from_slice(&(self.identity + u128::from(number)).to_le_bytes());
                out.extend_from_slice(&[EVENT_TYPE.len() as u8, 0, 0, 0]);
                out.extend_from_slice(&0_u32.to_le_bytes());
                out.extend_from_slice(&(self.data.len() as u32).to_le_bytes());
                out.extend_from_slice(EVENT_TYPE);
                out.extend_from_slice(&self.data);
            }
        });
    }
}
