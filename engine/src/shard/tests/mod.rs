//! A shard on a bench: requests in, whole lists of actions out.

mod commits;
mod follower;
pub(crate) mod leader;
mod readers;
mod retries;
mod stamps;
mod waits;

use std::sync::Arc;

use super::*;
use crate::append::{AppendBuilder, AppendView, Expect};
use crate::ids::{ClusterId, MonoUs, Revision, ShardId, StreamId, WallMs};
use crate::index::lookup::Run;
use crate::index::run::RunScope;
use crate::index::run_view::RunView;
use crate::index::run_writer::write_tail;
use crate::index::tail::TailCapacity;
use crate::recovery::{LogIdentity, empty_log};

pub(crate) fn config() -> ShardConfig {
    ShardConfig {
        cluster: ClusterId(7),
        shard: ShardId(0),
        shard_count: 1,
        pair: None,
        layout: Layout { segment_size_bytes: 64 << 10, align_bytes: 4096 },
        blocks_in_flight_max: 4,
        block_target_bytes: 128 << 10,
        idempotency_window: 100,
        hot_streams_max: 1000,
        recent_max_bytes: 1 << 20,
        in_flight_max: 1000,
        in_flight_max_bytes: 1 << 20,
    }
}

/// A request in the making.
#[derive(Default)]
pub(crate) struct Ask {
    builder: AppendBuilder,
}

pub(crate) fn ask() -> Ask {
    Ask::default()
}

impl Ask {
    pub(crate) fn key(mut self, key: u128) -> Self {
        self.builder.key(IdempotencyKey(key));
        self
    }

    pub(crate) fn token(mut self, token: u64) -> Self {
        self.builder.fencing_token(token);
        self
    }

    /// One event for a stream.
    pub(crate) fn event(self, stream: &str, expect: Expect) -> Self {
        self.data(stream, expect, &[1; 10])
    }

    pub(crate) fn data(mut self, stream: &str, expect: Expect, data: &[u8]) -> Self {
        self.builder.stream(stream, expect).unwrap().event(1, "happened", &[], data).unwrap();
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.builder.encode(&mut bytes);
        bytes
    }
}

pub(crate) fn any(stream: &str) -> Ask {
    ask().event(stream, Expect::Any)
}

pub(crate) struct Bench {
    pub(crate) shard: Shard,
    pub(crate) now: Now,
    next: u64,
    /// The segment that was asked for last.
    wanted: Option<Generation>,
}

impl Bench {
    /// A shard without a log, its first segments ready.
    pub(crate) fn new(config: ShardConfig) -> Self {
        let now = Now { mono: MonoUs(0), wall: WallMs(1_000) };
        Self::start(config, ShardStart::empty(&config, 0), now)
    }

    /// A shard with its next segments ready.
    pub(crate) fn start(config: ShardConfig, start: ShardStart, now: Now) -> Self {
        let first = start.newest.0 + 1;
        let mut bench = Self { shard: Shard::new(config, start), now, next: 0, wanted: None };
        bench.step(Event::Tick);
        bench.ready(first);
        bench.ready(first + 1);
        bench
    }

    /// What the machine does, but for asking for segments, which comes in between everywhere.
    pub(crate) fn step(&mut self, event: Event<'_>) -> Vec<Action> {
        let mut out = Actions::default();
        self.shard.step(self.now, event, &mut out);
        self.shard.check();
        for action in &out.list {
            if let Action::PrepareSegment { generation } = action {
                self.wanted = Some(*generation);
            }
        }
        out.list.retain(|action| !matches!(action, Action::PrepareSegment { .. }));
        out.list
    }

    /// Hands a request in; its number, and what the machine did.
    pub(crate) fn ask(&mut self, ask: &Ask) -> (RequestId, Vec<Action>) {
        let bytes = ask.bytes();
        let view = AppendView::parse(&bytes, 1 << 28).unwrap();
        self.next += 1;
        let to = RequestId(self.next);
        (to, self.step(Event::Append { to, view }))
    }

    /// Hands a request in of which nothing is heard yet.
    pub(crate) fn quiet(&mut self, ask: &Ask) -> RequestId {
        let (to, actions) = self.ask(ask);
        assert_eq!(actions, []);
        to
    }

    pub(crate) fn ready(&mut self, generation: u32) -> Vec<Action> {
        self.wanted = None;
        self.step(Event::SegmentReady { generation: Generation(generation) })
    }

    /// The segment that was asked for and is not made yet.
    pub(crate) const fn wanted(&self) -> Option<Generation> {
        self.wanted
    }

    /// Makes the segment that was asked for.
    pub(crate) fn prepare(&mut self) {
        if let Some(Generation(generation)) = self.wanted.take() {
            self.ready(generation);
        }
    }

    pub(crate) fn written(&mut self, first_lsn: u64) -> Vec<Action> {
        self.step(Event::BlockWritten { first_lsn: Lsn(first_lsn) })
    }

    /// Flushes, and lets the block be durable at once.
    pub(crate) fn commit(&mut self) -> Vec<Action> {
        let mut actions = self.step(Event::Flush);
        let writes: Vec<Lsn> = actions.iter().filter_map(write_of).collect();
        for first_lsn in writes {
            actions.extend(self.step(Event::BlockWritten { first_lsn }));
        }
        actions
    }

    /// Makes these streams, of one event each, look as if they were saved long ago and forgotten.
    pub(crate) fn make_cold(&mut self, names: &[&str]) {
        let config = *self.shard.config();
        let capacity = TailCapacity { streams: names.len(), events: names.len() };
        let mut tail = Tail::with_capacity(Generation(1), capacity);
        for (name, offset) in names.iter().zip(0..) {
            tail.push(StreamId::of(name.as_bytes()), Revision(0), offset * 8, None);
        }
        let (first, last) = (Generation(1), Generation(1));
        let (cluster, shard) = (config.cluster, config.shard);
        let state = empty_log(LogIdentity { cluster, shard });
        let scope = RunScope { cluster, shard, first, last, state };
        let (_, file) = write_tail(&tail, scope, Vec::new()).unwrap();
        let run: Run = RunView::new(&file).unwrap().open().unwrap();
        self.shard.set_runs(vec![Arc::new(run)]);
    }

    pub(crate) fn loaded(&mut self, stream: &str) -> Vec<Action> {
        let head = Ok(Some(StoredHead { next: Revision(1), fencing_token: 0 }));
        self.step(Event::HeadLoaded { stream: id(stream), head })
    }
}

pub(crate) fn id(stream: &str) -> StreamId {
    StreamId::of(stream.as_bytes())
}

pub(crate) fn write_of(action: &Action) -> Option<Lsn> {
    match action {
        Action::Write { first_lsn, .. } => Some(*first_lsn),
        _ => None,
    }
}

/// Who was answered, and with which LSN if it was appended.
pub(crate) fn answers(actions: &[Action]) -> Vec<(u64, Result<u64, Refusal>)> {
    let answer = |action: &Action| match action {
        Action::Reply { to, outcome: Outcome::Appended(receipt) } => {
            Some((to.0, Ok(receipt.first_lsn.0)))
        }
        Action::Reply { to, outcome: Outcome::Refused(refusal) } => Some((to.0, Err(*refusal))),
        _ => None,
    };
    actions.iter().filter_map(answer).collect()
}
