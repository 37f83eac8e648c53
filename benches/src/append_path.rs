//! An append's way through session, shard and block and back, without sockets, disk and runtime:
//! the work that is ours. A program that counts instructions runs it (`.ci/instructions`): the
//! same number every time, however busy the machine is.
//!
//! The driver's part is played in the driver's order: every connection's bytes, one flush, the
//! block copied to where the kernel would write from, then the answers.

use std::hint::black_box;

use duolog_engine::append::{AppendBuilder, AppendView, Expect};
use duolog_engine::ids::{ClusterId, Lsn, MonoUs, Now, ShardId, WallMs};
use duolog_engine::limits::{
    BLOCK_BODY_TARGET_BYTES, IDEMPOTENCY_WINDOW_DEFAULT, SEGMENT_SIZE_BYTES_DEFAULT,
    SHARD_IN_FLIGHT_MAX, SHARD_IN_FLIGHT_MAX_BYTES,
};
use duolog_engine::shard::{
    Action, Actions, Event, Layout, Outcome, RequestId, Shard, ShardConfig, ShardStart,
};
use duolog_net::session::{Request, Session, Settings as SessionSettings, Ticket};
use duolog_net::wire::{Appended, FrameKind, Hello, StreamSpan, encode_frame};
use serde::Serialize;

use crate::generator::clock::Mixer;

/// Requests made beforehand and sent again and again, so that making them is the same work however
/// many are sent.
const REQUESTS: usize = 4096;
/// Streams they are for.
const STREAMS: u32 = 10_000;
const EVENT_BYTES: usize = 100;
const ALIGN_BYTES: u32 = 4096;
/// Any number: the streams are the same ones each time.
const SEED: u64 = 7;
/// Most appends in one block here.
pub const GROUP_MAX: u32 = 4096;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct AppendPathSettings {
    /// Appends, rounded up to whole groups.
    pub appends: u32,
    /// Appends in one block, each from a connection of its own, 1 to 4096.
    pub group: u32,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AppendPathReport {
    /// Appends acknowledged.
    pub appends: u64,
    /// Blocks they came to.
    pub blocks: u64,
    /// Bytes of these blocks, padding included.
    pub block_bytes: u64,
    /// Bytes of the answers.
    pub answer_bytes: u64,
}

/// Runs the appends.
///
/// Panics when one is refused: nothing here can refuse one.
#[must_use]
pub fn run(settings: &AppendPathSettings) -> AppendPathReport {
    let frames = frames();
    let mut path = Path::new(settings.group.clamp(1, GROUP_MAX) as usize);
    let mut frames = frames.iter().cycle();
    while path.report.appends < u64::from(settings.appends) {
        path.round(&mut frames);
    }
    path.report
}

fn frames() -> Vec<Vec<u8>> {
    let mut mixer = Mixer::new(SEED);
    let data = [b'x'; EVENT_BYTES];
    let frame = |number: usize| {
        let mut append = AppendBuilder::new();
        let name = format!("bench-{SEED:016x}-{}", mixer.below(STREAMS));
        let stream = append.stream(&name, Expect::Any).expect("the name is short");
        stream.event(number as u128 + 1, "bench", b"", &data).expect("the event is small");
        let (mut body, mut frame) = (Vec::new(), Vec::new());
        append.encode(&mut body);
        encode_frame(&mut frame, FrameKind::Append, number as u64, &body);
        frame
    };
    (0..REQUESTS).map(frame).collect()
}

struct Path {
    shard: Shard,
    actions: Actions,
    sessions: Vec<Session>,
    /// Who waits for which answer; request n of a round is that of connection n.
    tickets: Vec<Option<Ticket>>,
    /// Where the kernel would write from.
    buffer: Vec<u8>,
    now_us: u64,
    written: Vec<Lsn>,
    report: AppendPathReport,
}

impl Path {
    fn new(group: usize) -> Self {
        let config = config();
        let mut path = Self {
            shard: Shard::new(config, ShardStart::empty(&config, 3)),
            actions: Actions::default(),
            sessions: (0..group).map(|_| greeted()).collect(),
            tickets: Vec::with_capacity(group),
            buffer: Vec::new(),
            now_us: 0,
            written: Vec::new(),
            report: AppendPathReport { appends: 0, blocks: 0, block_bytes: 0, answer_bytes: 0 },
        };
        path.step(Event::Tick);
        path
    }

    fn now(&self) -> Now {
        Now { mono: MonoUs(self.now_us), wall: WallMs(self.now_us / 1000) }
    }

    /// One request of every connection, one block, all answers.
    fn round<'a>(&mut self, frames: &mut impl Iterator<Item = &'a Vec<u8>>) {
        self.now_us += 100;
        self.tickets.clear();
        for connection in 0..self.sessions.len() {
            self.receive(connection, frames.next().expect("the requests never end"));
        }
        self.step(Event::Flush);
        while let Some(first_lsn) = self.written.pop() {
            self.step(Event::BlockWritten { first_lsn });
            self.step(Event::Flush);
        }
        for session in &mut self.sessions {
            let count = black_box(session.answers().unsent()).len();
            session.answers().sent(count);
            self.report.answer_bytes += count as u64;
        }
    }

    fn receive(&mut self, connection: usize, bytes: &[u8]) {
        let now = self.now();
        let Self { shard, actions, sessions, tickets, .. } = self;
        sessions[connection].receive(bytes, &mut |ticket, request, _| {
            let Request::Append(body) = request else { panic!("only appends are sent") };
            let view = AppendView::parse(body, 1 << 20).expect("the requests are well-formed");
            let to = RequestId(tickets.len() as u64);
            tickets.push(Some(ticket));
            shard.step(now, Event::Append { to, view }, actions);
        });
        self.perform();
    }

    fn step(&mut self, event: Event<'_>) {
        let now = self.now();
        self.shard.step(now, event, &mut self.actions);
        self.perform();
    }

    fn perform(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        let mut list = std::mem::take(&mut actions.list);
        let (mut ready, mut saved) = (None, None);
        for action in list.drain(..) {
            match action {
                Action::Write { first_lsn, blocks, .. } => self.write(first_lsn, blocks),
                Action::Reply { to, outcome } => self.reply(to, &outcome, &actions),
                Action::PrepareSegment { generation } => ready = Some(generation),
                Action::SaveIndex { generation } => saved = Some(generation),
                _ => {}
            }
        }
        actions.list = list;
        actions.clear();
        self.actions = actions;
        if let Some(generation) = saved {
            self.step(Event::IndexSaved { generation });
        }
        if let Some(generation) = ready {
            self.step(Event::SegmentReady { generation });
        }
    }

    fn write(&mut self, first_lsn: Lsn, blocks: u32) {
        self.buffer.clear();
        for block in self.shard.write_parts(first_lsn, blocks) {
            self.buffer.extend_from_slice(block);
            self.buffer.resize(self.buffer.len().next_multiple_of(ALIGN_BYTES as usize), 0);
        }
        self.report.blocks += u64::from(blocks);
        self.report.block_bytes += black_box(&self.buffer).len() as u64;
        self.written.push(first_lsn);
    }

    fn reply(&mut self, to: RequestId, outcome: &Outcome, actions: &Actions) {
        let Outcome::Appended(receipt) = outcome else { panic!("refused: {outcome:?}") };
        let ticket = self.tickets[to.0 as usize].take().expect("one answer for each request");
        let spans = actions.ranges_of(receipt).iter().map(StreamSpan::from);
        let appended = Appended::of(receipt, ShardId(0));
        let answers = self.sessions[to.0 as usize].answers();
        answers.answer(ticket, |out, correlation| appended.encode(out, correlation, spans));
        self.report.appends += 1;
    }
}

/// A connection whose hello has been answered.
fn greeted() -> Session {
    let mut session = Session::new(SessionSettings::default());
    let mut hello = Vec::new();
    Hello::new(None).encode(&mut hello, 0);
    session.receive(&hello, &mut |_, _, _| {});
    let count = session.answers().unsent().len();
    session.answers().sent(count);
    session
}

/// A standalone server's settings, as they are by default, but for the memory of recent blocks.
fn config() -> ShardConfig {
    ShardConfig {
        cluster: ClusterId(1),
        shard: ShardId(0),
        shard_count: 1,
        pair: None,
        layout: Layout { segment_size_bytes: SEGMENT_SIZE_BYTES_DEFAULT, align_bytes: ALIGN_BYTES },
        blocks_in_flight_max: 2,
        block_target_bytes: BLOCK_BODY_TARGET_BYTES,
        idempotency_window: IDEMPOTENCY_WINDOW_DEFAULT,
        hot_streams_max: 1 << 19,
        // Small, so that buffers are reused after a few thousand appends already.
        recent_max_bytes: 256 << 10,
        in_flight_max: SHARD_IN_FLIGHT_MAX,
        in_flight_max_bytes: SHARD_IN_FLIGHT_MAX_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every append is acknowledged and lies in a block with the others of its group. Broken if the
    /// path that is counted does something else than appending.
    #[test]
    fn the_path_appends_group_by_group() {
        let report = run(&AppendPathSettings { appends: 1000, group: 64 });
        assert_eq!((report.appends, report.blocks), (1024, 16));
        assert!(report.block_bytes / report.blocks >= 64 * EVENT_BYTES as u64);
        let alone = run(&AppendPathSettings { appends: 100, group: 1 });
        assert_eq!((alone.appends, alone.blocks, alone.block_bytes), (100, 100, 100 * 4096));
        assert_eq!(alone.answer_bytes * 1024, report.answer_bytes * 100);
    }
}
