//! What clients want and how they ask: operations, and the submissions that carry them.
//!
//! An operation has fixed events; a client may submit one with an idempotency key again and again,
//! with other expectations and another fencing token. The event's id tells operation and position.

use duolog_engine::append::{AppendBuilder, Expect};
use duolog_engine::ids::{IdempotencyKey, Place, StreamId, StreamMap};
use duolog_engine::limits::EVENT_MAX_BYTES_DEFAULT;
use duolog_engine::route::shard_of;
use duolog_engine::shard::Refusal;

use super::chance::Chance;
use super::plan::Plan;

/// The streams of a run.
#[derive(Debug)]
pub struct Streams {
    /// Names; all but the last live in the simulated shard.
    pub names: Vec<String>,
    /// Their identities.
    pub ids: Vec<StreamId>,
    by_id: StreamMap<usize>,
}

impl Streams {
    /// The streams of `plan`; behind them one of another shard, if there are several.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let own =
            |name: &String| shard_of(name.as_bytes(), plan.config.shard_count) == plan.config.shard;
        let all = |number: u32| format!("order-{number}");
        let mut names: Vec<String> = (0..).map(all).filter(own).take(plan.stream_count).collect();
        if plan.config.shard_count > 1 {
            names.extend((0..).map(all).find(|name| !own(name)));
        }
        let ids: Vec<StreamId> = names.iter().map(|name| StreamId::of(name.as_bytes())).collect();
        let by_id = ids.iter().copied().zip(0..).collect();
        Self { names, ids, by_id }
    }

    /// The stream with this identity.
    #[must_use]
    pub fn index_of(&self, id: StreamId) -> usize {
        self.by_id.get(&id).copied().expect("D2: only known streams are in the log")
    }
}

/// The events of one stream in an operation; none makes it check-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which stream.
    pub stream: usize,
    /// How many events.
    pub event_count: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Its idempotency key.
    pub key: Option<IdempotencyKey>,
    /// Its streams.
    pub parts: Vec<Part>,
    /// Lengths of the events' data, bytes.
    pub data_lengths: Vec<usize>,
}

/// How a submission was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Appended by this very submission.
    Appended,
    /// Appended by an earlier one.
    Replayed,
    /// Nothing was done.
    Refused(Refusal),
}

/// One request to the machine.
#[derive(Clone, Debug)]
pub struct Submission {
    /// What for.
    pub operation: usize,
    /// One per part.
    pub expects: Vec<Expect>,
    /// Fencing token.
    pub token: Option<u64>,
    /// In which life.
    pub life: u32,
    /// Next revision and token of each part's stream as committed when it was submitted.
    pub seen: Vec<(u64, u64)>,
    /// The append with its key in the committed window when it was submitted.
    pub key_seen: Option<Place>,
    /// The answer; `None` if there is none (yet).
    pub answer: Option<Answer>,
}

/// All operations and submissions of a run.
#[derive(Debug)]
pub struct Work {
    chance: Chance,
    plan: Plan,
    /// Operations by number.
    pub operations: Vec<Operation>,
    /// Submissions by number, which is the request's id.
    pub submissions: Vec<Submission>,
    token_clock: u64,
}

/// What the committed log says when a submission is made.
pub trait Known {
    /// Next revision and highest token of a stream.
    fn stream(&self, stream: usize) -> (u64, u64);
    /// Where the append with this key has its record, if it is in the window.
    fn key(&self, key: IdempotencyKey) -> Option<Place>;
}

impl Work {
    /// No operation yet.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let chance = Chance::new(plan.seed, "work");
        let (operations, submissions, token_clock) = (Vec::new(), Vec::new(), 1);
        Self { chance, plan: *plan, operations, submissions, token_clock }
    }

    /// Makes the next submission; its number.
    pub fn submit(&mut self, life: u32, streams: &Streams, known: &dyn Known) -> usize {
        let operation = match self.old_operation() {
            Some(operation) => operation,
            None => self.new_operation(streams),
        };
        let parts = self.operations[operation].parts.clone();
        let seen: Vec<_> = parts.iter().map(|part| known.stream(part.stream)).collect();
        let expects = seen.iter().map(|(next, _)| self.expect(*next)).collect();
        let token = self.token(&seen);
        let key_seen = self.operations[operation].key.and_then(|key| known.key(key));
        let answer = None;
        let new = Submission { operation, expects, token, life, seen, key_seen, answer };
        self.submissions.push(new);
        self.submissions.len() - 1
    }

    /// Submits again what `earlier` did, as it was; its number.
    pub fn submit_again(&mut self, earlier: usize, life: u32, known: &dyn Known) -> usize {
        let Submission { operation, expects, token, .. } = self.submissions[earlier].clone();
        let parts = &self.operations[operation].parts;
        let seen = parts.iter().map(|part| known.stream(part.stream)).collect();
        let key_seen = self.operations[operation].key.and_then(|key| known.key(key));
        let answer = None;
        let again = Submission { operation, expects, token, life, seen, key_seen, answer };
        self.submissions.push(again);
        self.submissions.len() - 1
    }

    /// A retry, or a key that is used again for something else.
    fn old_operation(&mut self) -> Option<usize> {
        let recent = self.operations.len().min(80);
        if recent == 0 || !self.chance.percent(25) {
            return None;
        }
        let chosen = self.operations.len() - 1 - self.chance.index(recent);
        self.operations[chosen].key?;
        if self.chance.percent(85) {
            return Some(chosen);
        }
        let mut reused = self.operations[chosen].clone();
        // Long enough to differ: an event's data begins with its operation's number.
        reused.data_lengths[0] += 8;
        self.operations.push(reused);
        Some(self.operations.len() - 1)
    }

    fn new_operation(&mut self, streams: &Streams) -> usize {
        let chance = &mut self.chance;
        let key = chance
            .percent(60)
            .then(|| IdempotencyKey(u128::from(chance.draw()) << 64 | u128::from(chance.draw())));
        let part_count = match chance.below(100) {
            _ if self.plan.uniform => 1,
            0..75 => 1,
            75..95 => chance.between(1, 4),
            _ => chance.between(1, 12),
        };
        let mut parts: Vec<Part> = Vec::new();
        for _ in 0..part_count {
            let hot = chance.percent(50);
            let last = streams.names.len() - 1;
            let stream = if hot { chance.index(last.min(5) + 1) } else { chance.index(last + 1) };
            // The last one may live in another shard; then it should be rare.
            let foreign = self.plan.config.shard_count > 1 && stream == last;
            if parts.iter().any(|part| part.stream == stream) || foreign && chance.percent(90) {
                continue;
            }
            let event_count = match chance.below(100) {
                _ if self.plan.uniform => 1,
                0..15 if !parts.is_empty() => 0,
                0..80 => 1,
                80..98 => chance.between(1, 5) as u32,
                _ => chance.between(20, 120) as u32,
            };
            parts.push(Part { stream, event_count });
        }
        if parts.is_empty() {
            parts.push(Part { stream: 0, event_count: 1 });
        }
        let event_count = parts.iter().map(|part| part.event_count).sum();
        let data_lengths = (0..event_count).map(|_| self.data_length()).collect();
        self.operations.push(Operation { key, parts, data_lengths });
        self.operations.len() - 1
    }

    fn data_length(&mut self) -> usize {
        let chance = &mut self.chance;
        let length = match chance.below(1000) {
            _ if self.plan.uniform => chance.below(60),
            0..970 => chance.below(self.plan.data_max + 1),
            970..995 => chance.between(3_000, 20_000),
            _ => chance.between(30_000, 170_000),
        };
        length as usize
    }

    fn expect(&mut self, next: u64) -> Expect {
        let exact = |next: u64| match next {
            0 => Expect::NoStream,
            next => Expect::Exact(duolog_engine::ids::Revision(next - 1)),
        };
        match self.chance.below(100) {
            0..50 => Expect::Any,
            50..80 => exact(next),
            80..85 => exact(next + self.chance.between(1, 3)),
            85..90 => exact(next.saturating_sub(self.chance.between(1, 3))),
            90..95 => Expect::NoStream,
            _ => Expect::StreamExists,
        }
    }

    fn token(&mut self, seen: &[(u64, u64)]) -> Option<u64> {
        if !self.chance.percent(25) {
            return None;
        }
        self.token_clock += self.chance.below(2);
        let highest = seen.iter().map(|(_, token)| *token).max().unwrap_or(0);
        Some(match self.chance.below(3) {
            0 => self.token_clock,
            1 => highest,
            _ => highest.saturating_sub(self.chance.below(3)),
        })
    }

    /// The bytes of a submission's request.
    #[must_use]
    pub fn encode(&self, submission: usize, streams: &Streams) -> Vec<u8> {
        let made = &self.submissions[submission];
        let operation = &self.operations[made.operation];
        let mut builder = AppendBuilder::new();
        if let Some(key) = operation.key {
            builder.key(key);
        }
        if let Some(token) = made.token {
            builder.fencing_token(token);
        }
        let mut index = 0;
        for (part, expect) in operation.parts.iter().zip(&made.expects) {
            let name = &streams.names[part.stream];
            builder.stream(name, *expect).expect("names are short");
            for _ in 0..part.event_count {
                let event = self.event(made.operation, index);
                let Event { id, kind, metadata, data } = &event;
                builder.event(*id, kind, metadata, data).expect("events are small enough");
                index += 1;
            }
        }
        let mut bytes = Vec::new();
        builder.encode(&mut bytes);
        assert!(bytes.len() < EVENT_MAX_BYTES_DEFAULT, "requests stay below the default limit");
        bytes
    }

    /// An event of an operation.
    #[must_use]
    pub fn event(&self, operation: usize, index: usize) -> Event {
        let length = self.operations[operation].data_lengths[index];
        let mut word = (operation as u64) << 20 | index as u64;
        let mut data = Vec::with_capacity(length + 8);
        while data.len() < length {
            data.extend_from_slice(&word.to_le_bytes());
            word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
        }
        data.truncate(length);
        Event {
            id: (operation as u128) << 32 | index as u128,
            kind: ["placed", "paid", "sent"][index % 3],
            metadata: vec![b'm'; operation % 5],
            data,
        }
    }
}

/// An event as a client gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Operation and position.
    pub id: u128,
    /// Type.
    pub kind: &'static str,
    /// Metadata.
    pub metadata: Vec<u8>,
    /// Payload.
    pub data: Vec<u8>,
}
