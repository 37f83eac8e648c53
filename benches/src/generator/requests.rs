//! What the requests contain: which bytes, which condition, which place in a stream.

use duolog_engine::ids::Revision;
use duolog_net::limits::PAGE_BYTES_DEFAULT;
use duolog_net::wire::{Direction, FrameKind, OpenFrame, ReadStream};

use super::answer::Answer;
use super::settings::Settings;
use super::streams::{Groups, Owned, Preparation};
use super::workload::{Expectation, ReadMode, Workload};

/// The type of every event written here.
const EVENT_TYPE: &str = "bench";
/// Bytes of an append's stream beside its events, at most: header, name of up to 48.
const STREAM_HEADER_MAX_BYTES: u64 = 64;
/// Bytes of an append's event beside its payload.
const EVENT_HEADER_BYTES: u64 = 28 + EVENT_TYPE.len() as u64;
/// Bytes of an append beside its streams.
const APPEND_HEADER_BYTES: u64 = 32;
/// Bytes of a stored event beside its payload, at most: header, name, type, padding.
const RECORD_OVERHEAD_MAX_BYTES: u32 = 256;
/// Bytes of events that one append has before reads begin.
const PREPARATION_MAX_BYTES: u32 = 1 << 20;
/// And their number.
const PREPARATION_EVENTS_MAX: u32 = 10_000;

/// What an operation is for: enough to send it, or its next part, again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operation {
    /// Group of an append, stream of a read.
    pub target: u32,
    /// Whether it reads or appends.
    pub kind: OperationKind,
    /// Read: the revision to start from.
    pub from: u64,
}

/// See [`Operation`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OperationKind {
    /// It appends.
    #[default]
    Append,
    /// It reads.
    Read,
}

/// Makes the requests of one worker.
#[derive(Debug)]
pub struct Requests {
    settings: Settings,
    groups: Groups,
    name_prefix: String,
    data: Vec<u8>,
    /// Event ids and keys are this plus a counter.
    identity: u128,
    name: String,
}

impl Requests {
    /// For worker number `worker` of a run.
    #[must_use]
    pub fn new(settings: &Settings, worker: u32) -> Self {
        let mut groups = Groups::new(settings, worker);
        let random = |_| groups.mixer().next_number() as u8;
        let data = (0..settings.event_size_bytes).map(random).collect();
        Self {
            settings: settings.clone(),
            groups,
            name_prefix: format!(
                "bench-{:016x}-",
                settings.streams_of_run.unwrap_or(settings.run_id)
            ),
            data,
            identity: (u128::from(settings.run_id) << 64) | (u128::from(worker) << 48),
            name: String::new(),
        }
    }

    /// What connection number `connection` (of the whole run) owns.
    #[must_use]
    pub fn owned_by(&self, connection: u32) -> Owned {
        Owned::new(&self.settings, connection)
    }

    /// Chooses the next operation of a connection. `None` when all owned streams are in use.
    pub fn choose(&mut self, owned: &mut Owned) -> Option<Operation> {
        let kind = match self.settings.workload {
            Workload::Append => OperationKind::Append,
            Workload::Read => OperationKind::Read,
            Workload::Mixed => {
                let reads = self.groups.mixer().below(100) < self.settings.reads_percent;
                if reads { OperationKind::Read } else { OperationKind::Append }
            }
        };
        let target = self.groups.choose(owned)?;
        let mut from = 0;
        if kind == OperationKind::Read {
            from = match self.read_mode() {
                ReadMode::Page | ReadMode::Replay => 0,
                ReadMode::Point => self.groups.mixer().below(self.settings.stream_events).into(),
                ReadMode::Backwards => ReadStream::END.0,
            };
        }
        Some(Operation { target, kind, from })
    }

    /// What its reads are.
    pub const fn read_mode(&self) -> ReadMode {
        match self.settings.workload {
            Workload::Mixed => ReadMode::Point,
            Workload::Append | Workload::Read => self.settings.read_mode,
        }
    }

    /// Takes note of an answer. The operation that has to follow for `operation` to succeed: the
    /// next page of a replay, or the same append under the revision that a conflict told.
    pub fn answered(
        &mut self,
        owned: &mut Owned,
        operation: Operation,
        answer: &Answer,
    ) -> Option<Operation> {
        if operation.kind == OperationKind::Append {
            self.groups.answered(owned, operation.target, answer.next_revision);
            let hot = self.settings.expectation == Expectation::Hot;
            let conflict = answer.refusal.is_some_and(|refusal| refusal.is_conflict);
            return (hot && conflict).then_some(operation);
        }
        if answer.refusal.is_some() {
            return None;
        }
        let replay = self.read_mode() == ReadMode::Replay;
        let from = answer.next_revision.filter(|_| replay && !answer.page_end)?;
        Some(Operation { from, ..operation })
    }

    /// Encodes an operation.
    pub fn encode(
        &mut self,
        out: &mut Vec<u8>,
        correlation: u64,
        owned: &Owned,
        operation: &Operation,
    ) {
        if operation.kind == OperationKind::Append {
            let condition = match self.groups.next_revision(owned, operation.target) {
                None => Condition::ANY,
                Some(0) => Condition::NO_STREAM,
                Some(next) => Condition::exact(next - 1),
            };
            let width = self.settings.streams_per_append;
            let append = Append {
                first_stream: operation.target * width,
                streams: width,
                condition,
                events: self.settings.batch,
            };
            return self.encode_append(out, correlation, &append);
        }
        self.name_stream(operation.target);
        let mut read = ReadStream::new(&self.name);
        read.from = Revision(operation.from);
        match self.read_mode() {
            ReadMode::Page | ReadMode::Replay => {}
            ReadMode::Point => {
                // A small page keeps the server from setting aside a large one.
                read.events_max = 1;
                read.bytes_max = self.point_bytes();
            }
            ReadMode::Backwards => read.direction = Direction::Backwards,
        }
        read.encode(out, correlation).expect("the names made here have 1 to 255 bytes");
    }

    /// Encodes an append that is made before reads begin.
    pub fn encode_preparation(
        &mut self,
        out: &mut Vec<u8>,
        correlation: u64,
        preparation: Preparation,
    ) {
        let Preparation { stream, events } = preparation;
        let append = Append { first_stream: stream, streams: 1, condition: Condition::ANY, events };
        self.encode_append(out, correlation, &append);
    }

    /// The next append of a connection before reads begin; `None` = all done.
    pub fn prepare(&self, owned: &mut Owned) -> Option<Preparation> {
        owned.prepare(&self.settings, self.preparation_events())
    }

    /// What the server counts a request of this load as, at most, bytes: an append as its body, a
    /// read as the page that it asks for.
    #[must_use]
    pub fn request_max_bytes(&self) -> u64 {
        let &Settings { workload, streams_per_append, batch, .. } = &self.settings;
        let append = self.append_max_bytes(streams_per_append, batch);
        let read = match self.read_mode() {
            ReadMode::Point => self.point_bytes(),
            ReadMode::Page | ReadMode::Replay | ReadMode::Backwards => PAGE_BYTES_DEFAULT,
        };
        match workload {
            Workload::Append => append,
            Workload::Read => read.into(),
            Workload::Mixed => append.max(read.into()),
        }
    }

    /// The largest request body that will be sent, bytes.
    #[must_use]
    pub fn body_max_bytes(&self) -> u64 {
        match self.settings.workload {
            Workload::Append => self.request_max_bytes(),
            // Reads are small; what is written before them is not.
            Workload::Read | Workload::Mixed => self.preparation_max_bytes(),
        }
    }

    /// The largest append before reads begin, bytes.
    #[must_use]
    pub fn preparation_max_bytes(&self) -> u64 {
        let events = self.preparation_events().min(self.settings.stream_events);
        self.append_max_bytes(1, events)
    }

    fn preparation_events(&self) -> u32 {
        let events = PREPARATION_MAX_BYTES / self.settings.event_size_bytes.max(1);
        events.clamp(1, PREPARATION_EVENTS_MAX)
    }

    fn append_max_bytes(&self, streams: u32, events: u32) -> u64 {
        let event = u64::from(self.settings.event_size_bytes) + EVENT_HEADER_BYTES;
        let stream = STREAM_HEADER_MAX_BYTES + u64::from(events) * event;
        APPEND_HEADER_BYTES + u64::from(streams) * stream
    }

    const fn point_bytes(&self) -> u32 {
        self.settings.event_size_bytes + RECORD_OVERHEAD_MAX_BYTES
    }

    /// Streams that are appended to together have their group in braces, which alone decides the
    /// shard.
    fn name_stream(&mut self, stream: u32) {
        use std::fmt::Write;
        self.name.clear();
        let prefix = &self.name_prefix;
        match self.settings.streams_per_append {
            1 => write!(self.name, "{prefix}{stream}"),
            width => write!(self.name, "{prefix}{{{}}}-{}", stream / width, stream % width),
        }
        .expect("a String takes all text");
    }

    fn encode_append(&mut self, out: &mut Vec<u8>, correlation: u64, append: &Append) {
        let Append { first_stream, streams, condition, events } = *append;
        let count = streams * events;
        let key = if self.settings.with_keys { self.identity + 1 } else { 0 };
        let frame = OpenFrame::begin(out, FrameKind::Append, correlation);
        out.extend_from_slice(&u16::from(self.settings.with_keys).to_le_bytes());
        out.extend_from_slice(&(streams as u16).to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&key.to_le_bytes());
        out.extend_from_slice(&0_u64.to_le_bytes());
        for stream in first_stream..first_stream + streams {
            self.name_stream(stream);
            out.extend_from_slice(&[condition.code, self.name.len() as u8, 0, 0]);
            out.extend_from_slice(&events.to_le_bytes());
            out.extend_from_slice(&condition.revision.to_le_bytes());
            out.extend_from_slice(self.name.as_bytes());
        }
        for _ in 0..count {
            self.identity += 1;
            out.extend_from_slice(&self.identity.to_le_bytes());
            out.extend_from_slice(&[EVENT_TYPE.len() as u8, 0, 0, 0]);
            out.extend_from_slice(&0_u32.to_le_bytes());
            out.extend_from_slice(&(self.data.len() as u32).to_le_bytes());
            out.extend_from_slice(EVENT_TYPE.as_bytes());
            out.extend_from_slice(&self.data);
        }
        frame.finish(out);
    }
}

/// One append, to streams side by side.
#[derive(Clone, Copy, Debug)]
struct Append {
    first_stream: u32,
    streams: u32,
    condition: Condition,
    /// For each stream.
    events: u32,
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
    use duolog_engine::route::shard_of;
    use duolog_net::wire::{Decoded, decode_frame};

    use super::super::answer::Refusal;
    use super::*;

    fn settings() -> Settings {
        let addr = "127.0.0.1:1".parse().unwrap();
        Settings {
            in_flight: 2,
            streams: 10,
            with_keys: true,
            run_id: 7,
            ..Settings::appends(addr, 4, 100, Duration::from_secs(1))
        }
    }

    fn encoded(requests: &mut Requests, owned: &Owned, operation: &Operation) -> Vec<u8> {
        let mut out = Vec::new();
        requests.encode(&mut out, 5, owned, operation);
        let Decoded::Complete { value, used } = decode_frame(&out, 1 << 24).unwrap() else {
            panic!("the frame is not whole")
        };
        assert_eq!((value.correlation, used), (5, out.len()));
        let kind = match operation.kind {
            OperationKind::Append => FrameKind::Append,
            OperationKind::Read => FrameKind::ReadStream,
        };
        assert_eq!(value.kind, kind);
        assert!(value.body.len() as u64 <= requests.body_max_bytes());
        value.body.to_vec()
    }

    fn told(next_revision: u64) -> Answer {
        Answer { next_revision: Some(next_revision), ..Answer::default() }
    }

    fn refused(name: &'static str, next_revision: Option<u64>) -> Answer {
        let is_conflict = name == "Conflict";
        let refusal = Some(Refusal { name, is_busy: !is_conflict, is_conflict, pause_ns: 0 });
        Answer { refusal, next_revision, ..Answer::default() }
    }

    /// The requests written here byte by byte are what the engine's parser reads, and carry the
    /// revision that the last answer told. Broken if a field is off or an expectation is stale.
    #[test]
    fn requests_are_well_formed_and_expect_what_was_answered() {
        let settings = Settings { expectation: Expectation::Exact, ..settings() };
        let mut requests = Requests::new(&settings, 0);
        let mut owned = requests.owned_by(1);
        let mut wanted = std::collections::HashMap::new();
        for _ in 0..50 {
            let operation = requests.choose(&mut owned).unwrap();
            let stream = operation.target;
            assert_eq!(stream % 4, 1, "connection 1 owns streams 1, 5 and 9");
            let body = encoded(&mut requests, &owned, &operation);
            let append = AppendView::parse(&body, 1 << 20).unwrap();
            assert!(append.key().is_some());
            let view = append.streams().next().unwrap();
            assert_eq!(view.name, format!("bench-0000000000000007-{stream}").as_bytes());
            let next = wanted.entry(stream).or_insert(0_u64);
            let expect =
                next.checked_sub(1).map_or(Expect::NoStream, |last| Expect::Exact(Revision(last)));
            assert_eq!(view.expect, expect);
            assert_eq!(append.events().next().unwrap().data.len(), 100);
            *next += 1;
            assert_eq!(requests.answered(&mut owned, operation, &told(*next)), None);
        }
        assert!(wanted.len() > 1, "streams are chosen, not repeated");
    }

    /// One append to several streams names them all, in one shard, each with its whole batch, and
    /// no event id comes twice. Broken if the streams of a group route apart.
    #[test]
    fn an_append_to_several_streams_is_one_of_one_shard() {
        let settings = Settings { streams_per_append: 3, batch: 4, ..settings() };
        let mut requests = Requests::new(&settings, 0);
        let mut owned = requests.owned_by(0);
        let mut ids = std::collections::HashSet::new();
        for _ in 0..20 {
            let operation = requests.choose(&mut owned).unwrap();
            assert!(operation.target < 3, "ten streams are three groups of three");
            let body = encoded(&mut requests, &owned, &operation);
            let append = AppendView::parse(&body, 1 << 20).unwrap();
            let names: Vec<&[u8]> = append.streams().map(|stream| stream.name).collect();
            assert_eq!(names.len(), 3);
            for name in &names {
                assert_eq!(shard_of(name, 1000), shard_of(names[0], 1000));
            }
            assert!(append.streams().all(|stream| stream.event_count == 4));
            assert!(append.events().all(|event| ids.insert(event.id)));
        }
        assert_eq!(ids.len(), 20 * 12);
    }

    /// A conflict on a hot stream is tried again under the revision that it told, anything else is
    /// not. Broken if a retry expects what has just failed, or if a refusal is sent again.
    #[test]
    fn a_conflict_on_a_hot_stream_is_tried_again_with_what_it_told() {
        let settings = Settings { expectation: Expectation::Hot, streams: 1, ..settings() };
        let mut requests = Requests::new(&settings, 0);
        let mut owned = requests.owned_by(2);
        let operation = requests.choose(&mut owned).unwrap();
        let conflict = refused("Conflict", Some(9));
        let again = requests.answered(&mut owned, operation, &conflict).unwrap();
        let body = encoded(&mut requests, &owned, &again);
        let append = AppendView::parse(&body, 1 << 20).unwrap();
        assert_eq!(append.streams().next().unwrap().expect, Expect::Exact(Revision(8)));
        // An older answer that comes later takes nothing back.
        assert_eq!(requests.answered(&mut owned, operation, &told(5)), None);
        let body = encoded(&mut requests, &owned, &again);
        let append = AppendView::parse(&body, 1 << 20).unwrap();
        assert_eq!(append.streams().next().unwrap().expect, Expect::Exact(Revision(8)));
        assert_eq!(requests.answered(&mut owned, operation, &refused("Busy", None)), None);
    }

    /// Each kind of read asks for what its name says.
    #[test]
    fn reads_ask_for_what_their_mode_says() {
        let read = |read_mode, answer: Option<Answer>| {
            let settings =
                Settings { workload: Workload::Read, read_mode, stream_events: 50, ..settings() };
            let mut requests = Requests::new(&settings, 0);
            let mut owned = requests.owned_by(0);
            let mut operation = requests.choose(&mut owned).unwrap();
            let body = encoded(&mut requests, &owned, &operation);
            let next = answer.and_then(|answer| requests.answered(&mut owned, operation, &answer));
            let asked = ReadStream::decode(&body).unwrap();
            let first = (asked.from.0, asked.events_max, asked.direction);
            operation = next.unwrap_or(operation);
            let body = encoded(&mut requests, &owned, &operation);
            (first, next.map(|_| ReadStream::decode(&body).unwrap().from.0))
        };
        let page = Some(told(30));
        let last = Some(Answer { page_end: true, ..told(50) });
        let forwards = Direction::Forwards;
        assert_eq!(read(ReadMode::Page, page.clone()), ((0, 0, forwards), None));
        assert_eq!(read(ReadMode::Replay, page.clone()), ((0, 0, forwards), Some(30)));
        assert_eq!(read(ReadMode::Replay, last), ((0, 0, forwards), None));
        assert_eq!(read(ReadMode::Replay, Some(refused("Busy", None))).1, None);
        assert_eq!(read(ReadMode::Backwards, page.clone()).0, (u64::MAX, 0, Direction::Backwards));
        let ((from, events, direction), next) = read(ReadMode::Point, page);
        assert!(from < 50 && (events, direction, next) == (1, forwards, None));
    }

    /// The share of reads is what was asked for, and points lie everywhere in a stream.
    #[test]
    fn a_mixed_load_has_its_share_of_reads() {
        let settings = Settings {
            workload: Workload::Mixed,
            reads_percent: 80,
            stream_events: 50,
            ..settings()
        };
        let mut requests = Requests::new(&settings, 0);
        let mut owned = requests.owned_by(0);
        let (mut reads, mut seen) = (0, [false; 50]);
        for _ in 0..10_000 {
            let operation = requests.choose(&mut owned).unwrap();
            if operation.kind == OperationKind::Read {
                reads += 1;
                seen[operation.from as usize] = true;
            }
        }
        assert!((7800..8200).contains(&reads), "{reads} of 10000");
        assert!(seen.iter().all(|seen| *seen));
    }
}
