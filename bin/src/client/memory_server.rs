//! A server in memory for tests of the commands: real frames over a real socket, appends with
//! conditions and idempotency keys, reads; no disk.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use duolog_engine::append::AppendView;
use duolog_engine::ids::{ClusterId, Hlc, LeaseEpoch, Lsn, NodeId, Revision, ShardId};
use duolog_engine::limits::EVENT_MAX_BYTES_DEFAULT;
use duolog_engine::record::{EventParts, encode_event};
use duolog_engine::route::shard_of;
use duolog_net::wire::{
    Appended, Copies, Direction, ErrorCode, ErrorFrame, FrameBuffer, HelloAccepted, LogPage,
    LogTail, Message, NodeRole, ReadLog, ReadStream, StreamPage, StreamSpan, StreamTail,
    encode_admin_answer, encode_frame,
};

const SHARDS: u32 = 2;

#[derive(Clone)]
struct Stored {
    stream: String,
    kind: String,
    record: Vec<u8>,
}

#[derive(Default)]
struct State {
    shards: [Vec<Stored>; SHARDS as usize],
    keys: HashMap<u128, (Vec<u8>, Appended, StreamSpan)>,
    /// Appends still served before every connection is cut.
    left: Option<u64>,
}

/// The server; it stops with the test's process.
pub struct MemoryServer {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl MemoryServer {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { address, state }
    }

    /// Serves `appends` more appends; the next one is lost with its connection.
    pub fn cut_after(&self, appends: Option<u64>) {
        self.state.lock().unwrap().left = appends;
    }

    /// Forgets all idempotency keys, as a server does when its window has moved on.
    pub fn forget_keys(&self) {
        self.state.lock().unwrap().keys.clear();
    }

    /// Events stored, without those of the program's own streams.
    pub fn event_count(&self) -> usize {
        let state = self.state.lock().unwrap();
        state.shards.iter().flatten().filter(|event| !event.stream.starts_with('$')).count()
    }
}

fn serve(mut stream: TcpStream, state: &Mutex<State>) {
    let mut frames = FrameBuffer::new(32 << 20);
    loop {
        let mut out = Vec::new();
        while let Some(frame) = frames.next_frame().unwrap() {
            let message = Message::decode(&frame).unwrap();
            if !answer(&message, frame.correlation, state, &mut out) {
                return;
            }
        }
        if stream.write_all(&out).is_err() {
            return;
        }
        match stream.read(frames.space()) {
            Ok(count) if count > 0 => frames.filled(count),
            _ => return,
        }
    }
}

fn answer(
    message: &Message<'_>,
    correlation: u64,
    state: &Mutex<State>,
    out: &mut Vec<u8>,
) -> bool {
    let mut state = state.lock().unwrap();
    match message {
        Message::Hello(_) => accepted().encode(out, correlation, ""),
        Message::Ping(body) => {
            encode_frame(out, duolog_net::wire::FrameKind::Pong, correlation, body);
        }
        Message::Append(body) => {
            if state.left == Some(0) {
                return false;
            }
            state.left = state.left.map(|left| left - 1);
            state.append(body, correlation, out);
        }
        Message::ReadStream(read) => state.read_stream(read, correlation, out),
        Message::ReadLog(read) => state.read_log(read, correlation, out),
        Message::Admin(json) if json.contains("status") => {
            encode_admin_answer(out, correlation, r#"{"role":"standalone","node":"n"}"#);
        }
        Message::Admin(_) => {
            ErrorFrame::new(ErrorCode::Refused).encode(out, correlation, "there is no other node");
        }
        other => panic!("a client sends no {other:?}"),
    }
    true
}

fn accepted() -> HelloAccepted {
    HelloAccepted {
        version: 1,
        shard_count: SHARDS,
        cluster: ClusterId(1),
        node: NodeId(2),
        capabilities: 0,
        frame_body_max_bytes: 17 << 20,
        requests_max: 1024,
        shard: ShardId(0),
        bytes_max: 64 << 20,
        role: NodeRole::Standalone,
        epoch: LeaseEpoch(0),
    }
}

impl State {
    /// Appends to one stream; more are not needed here.
    fn append(&mut self, body: &[u8], correlation: u64, out: &mut Vec<u8>) {
        let append = AppendView::parse(body, EVENT_MAX_BYTES_DEFAULT).unwrap();
        let stream = append.streams().next().unwrap();
        if let Some((known, receipt, span)) = append.key().and_then(|key| self.keys.get(&key.0)) {
            assert_eq!(known, body, "a key comes back with the same request only");
            let receipt = Appended { replayed: true, ..*receipt };
            return receipt.encode(out, correlation, [*span]);
        }
        let shard = shard_of(stream.name, SHARDS);
        let log = &mut self.shards[shard.0 as usize];
        let next = log.iter().filter(|event| event.stream.as_bytes() == stream.name).count() as u64;
        if !stream.expect.holds(Revision(next)) {
            let error = ErrorFrame::conflict(0, stream.expect, Revision(next));
            return error.encode(out, correlation, "not as expected");
        }
        let first_lsn = Lsn(log.len() as u64 + 1);
        let hlc = Hlc((1_000_000_000_000 + first_lsn.0) << 16);
        for (index, event) in append.events().enumerate() {
            let parts = EventParts {
                lsn: first_lsn.plus(index as u64),
                revision: Revision(next + index as u64),
                hlc,
                id: event.id,
                stream: stream.name,
                type_length: event.kind.len() as u8,
                metadata_length: event.metadata.len() as u32,
                body: event.body,
            };
            let mut record = Vec::new();
            encode_event(&mut record, &parts);
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let (stream, kind) = (text(stream.name), text(event.kind));
            log.push(Stored { stream, kind, record });
        }
        let receipt = Appended {
            first_lsn,
            last_lsn: Lsn(log.len() as u64),
            hlc,
            epoch: LeaseEpoch(0),
            shard,
            copies: Copies::ThisDisk,
            replayed: false,
        };
        let span = StreamSpan { first: Revision(next), event_count: append.event_count() };
        if let Some(key) = append.key() {
            self.keys.insert(key.0, (body.to_vec(), receipt, span));
        }
        receipt.encode(out, correlation, [span]);
    }

    fn read_stream(&self, read: &ReadStream<'_>, correlation: u64, out: &mut Vec<u8>) {
        let log = &self.shards[shard_of(read.stream.as_bytes(), SHARDS).0 as usize];
        let events: Vec<&Stored> = log.iter().filter(|event| event.stream == read.stream).collect();
        let from = usize::try_from(read.from.0).unwrap_or(usize::MAX);
        let mut chosen: Vec<(usize, &Stored)> = events.iter().copied().enumerate().collect();
        match read.direction {
            Direction::Forwards => chosen.retain(|(revision, _)| *revision >= from),
            Direction::Backwards => {
                chosen.retain(|(revision, _)| *revision <= from);
                chosen.reverse();
            }
        }
        chosen.retain(|(_, event)| read.kind.is_none_or(|kind| kind == event.kind));
        let max = if read.events_max == 0 { usize::MAX } else { read.events_max as usize };
        let mut page = StreamPage::begin(out, correlation);
        chosen.iter().take(max).for_each(|(_, event)| page.push(out, &event.record));
        let next = chosen.get(max).map_or(0, |(revision, _)| *revision as u64);
        let tail = StreamTail {
            next: Revision(next),
            stream_next: Revision(events.len() as u64),
            committed: Lsn(log.len() as u64),
            end: chosen.len() <= max,
        };
        page.finish_stream(out, &tail);
    }

    /// Pages of at most 100 events, so that readers have to turn pages.
    fn read_log(&self, read: &ReadLog, correlation: u64, out: &mut Vec<u8>) {
        let log = &self.shards[read.shard.0 as usize];
        let from = (read.from.0 as usize - 1).min(log.len());
        let max = if read.events_max == 0 { 100 } else { read.events_max.min(100) as usize };
        let to = (from + max).min(log.len());
        let mut page = LogPage::begin(out, correlation);
        log[from..to].iter().for_each(|event| page.push(out, &event.record));
        let (next, committed) = (Lsn(to as u64 + 1), Lsn(log.len() as u64));
        page.finish_log(out, &LogTail { next, committed, end: to == log.len() });
    }
}
