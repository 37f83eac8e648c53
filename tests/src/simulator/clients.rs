//! Clients: each has one operation at a time, knows its outcome or does not, and tries again what
//! it may try again.

use std::collections::BTreeMap;

use duolog_engine::append::{AppendBuilder, Expect};
use duolog_engine::ids::{IdempotencyKey, Revision, StreamId};
use duolog_engine::shard::{Outcome, Refusal, StreamEnd};

use super::node::ToNode;
use super::plan::{Mistake, Plan, Profile};
use super::world::{Due, World};

/// How many streams there are.
pub const STREAMS: usize = 6;
/// A client waits so long for an answer, us.
const ANSWER_MAX_US: u64 = 2_000_000;
/// Pause after a refusal, us.
const REFUSED_US: u64 = 100_000;

pub fn stream_name(stream: usize) -> String {
    format!("stream-{stream}")
}

/// One operation of a client.
#[derive(Clone, Debug)]
pub struct Operation {
    pub id: u64,
    pub key: Option<IdempotencyKey>,
    /// Streams, and how many events each gets.
    pub parts: Vec<(usize, u64)>,
    pub expected: Option<u64>,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct Client {
    /// The node it believes to lead.
    node: usize,
    /// What it has not got done.
    open: Option<Operation>,
    /// The request it waits for, and until when.
    waiting: Option<(u64, u64)>,
    /// Stream ends that it has seen.
    known: BTreeMap<usize, u64>,
}

/// See the module.
#[derive(Debug)]
pub struct Clients {
    list: Vec<Client>,
    next_operation: u64,
    next_request: u64,
    /// Requests that wait in a node: who asked, for which operation, where.
    pub requests: BTreeMap<u64, (usize, u64, usize)>,
    /// Every operation ever begun.
    pub operations: BTreeMap<u64, Operation>,
}

impl Clients {
    pub fn new(plan: &Plan) -> Self {
        let list = (0..plan.clients).map(|_| Client::default()).collect();
        let (requests, operations) = (BTreeMap::new(), BTreeMap::new());
        Self { list, next_operation: 1, next_request: 1, requests, operations }
    }
}

impl World {
    /// A client does its next thing.
    pub fn client(&mut self, client: usize) {
        let now = self.now_us;
        let state = &mut self.clients.list[client];
        if let Some((request, until)) = state.waiting {
            if now < until {
                return;
            }
            // Nobody answers: the outcome is not known.
            state.waiting = None;
            state.node = 1 - state.node;
            self.clients.requests.remove(&request);
            self.unknown(client);
        }
        if self.healing {
            return;
        }
        if self.clients.list[client].open.is_none() && self.chance.percent(30) {
            let stream = self.chance.index(STREAMS);
            let node = self.clients.list[client].node;
            self.soon(node, self.plan.wire_us, ToNode::Read { client, stream });
            return self.after(self.plan.think_us, Due::Client(client));
        }
        let operation = match self.clients.list[client].open.take() {
            Some(operation) => operation,
            None => self.new_operation(client),
        };
        self.submit(client, operation);
    }

    fn new_operation(&mut self, client: usize) -> Operation {
        let id = self.clients.next_operation;
        self.clients.next_operation += 1;
        let key = self.chance.percent(60).then(|| IdempotencyKey(u128::from(id)));
        let several = self.chance.percent(20);
        let first = self.chance.index(STREAMS);
        let mut parts = vec![(first, 1 + self.chance.below(2))];
        if several {
            parts.push(((first + 1) % STREAMS, 1));
        }
        let known = self.clients.list[client].known.get(&first).copied();
        let expected = known.filter(|_| self.chance.percent(40));
        let mut builder = AppendBuilder::new();
        if let Some(key) = key {
            builder.key(key);
        }
        for (index, (stream, events)) in parts.iter().enumerate() {
            let expect = match expected.filter(|_| index == 0) {
                None => Expect::Any,
                Some(0) => Expect::NoStream,
                Some(next) => Expect::Exact(Revision(next - 1)),
            };
            builder.stream(&stream_name(*stream), expect).expect("a short name");
            for _ in 0..*events {
                let mut data = id.to_le_bytes().to_vec();
                data.resize(8 + self.chance.index(600), 7);
                let event = u128::from(self.chance.draw());
                builder.event(event, "kind", &[], &data).expect("a small event");
            }
        }
        let mut bytes = Vec::new();
        builder.encode(&mut bytes);
        let operation = Operation { id, key, parts, expected, bytes };
        self.clients.operations.insert(id, operation.clone());
        operation
    }

    fn submit(&mut self, client: usize, operation: Operation) {
        let request = self.clients.next_request;
        self.clients.next_request += 1;
        let node = self.clients.list[client].node;
        let until = self.now_us + ANSWER_MAX_US;
        let bytes = operation.bytes.clone();
        self.clients.requests.insert(request, (client, operation.id, node));
        self.clients.list[client].waiting = Some((request, until));
        self.clients.list[client].open = Some(operation);
        self.at(until, Due::Client(client));
        if self.nodes[node].process.is_some() {
            self.soon(node, self.plan.wire_us, ToNode::Request { request, bytes });
        }
    }

    /// The outcome of the open operation is not known: with a key it is tried again.
    fn unknown(&mut self, client: usize) {
        self.saw("a client does not learn what became of its append");
        let keyed = self.clients.list[client].open.as_ref().is_some_and(|open| open.key.is_some());
        if !keyed {
            self.clients.list[client].open = None;
        }
    }

    /// What waits in a node that has gone is not answered.
    pub fn forget_requests(&mut self, node: usize) {
        self.clients.requests.retain(|_, (_, _, at)| *at != node);
    }

    /// A node answers a request.
    pub fn reply(&mut self, node: usize, request: u64, outcome: &Outcome) {
        let Some((client, operation, _)) = self.clients.requests.remove(&request) else { return };
        if let Outcome::Appended(receipt) = outcome {
            self.check_receipt(node, operation, receipt);
        }
        let lost = self.chance.percent(2);
        let state = &mut self.clients.list[client];
        if lost || state.waiting.is_none_or(|(waited, _)| waited != request) {
            // The answer is lost on its way; the client gives up later.
            return;
        }
        state.waiting = None;
        let mut pause = self.plan.think_us;
        match outcome {
            Outcome::Appended(_) => state.open = None,
            Outcome::Refused(Refusal::Conflict { next, .. }) => {
                let open = state.open.take();
                if let Some((stream, _)) = open.and_then(|open| open.parts.first().copied()) {
                    state.known.insert(stream, next.0);
                }
            }
            Outcome::Refused(Refusal::NotLeader | Refusal::ShuttingDown) => {
                state.node = 1 - state.node;
                pause = REFUSED_US;
            }
            Outcome::Refused(Refusal::Busy { .. } | Refusal::DiskFull) => pause = REFUSED_US,
            Outcome::Refused(Refusal::Unknown) => {
                state.node = 1 - state.node;
                self.unknown(client);
                pause = REFUSED_US;
            }
            Outcome::Refused(other) => panic!("A5: nobody asked for {other:?}"),
        }
        let us = 1 + self.chance.below(pause);
        self.after(us, Due::Client(client));
    }

    /// A linearizable read of a stream's end: the leader's, under its grant.
    pub fn read(&mut self, node: usize, client: usize, stream: usize) {
        let now = self.nodes[node].now(self.now_us).mono.ms();
        let hands_over = self.makes(Mistake::ReadsWhileHandingOver);
        let process = self.process(node);
        let leads = process.grant.is_some_and(|grant| {
            if hands_over { grant.serves(now) } else { grant.answers_reads(now) }
        });
        let id = StreamId::of(stream_name(stream).as_bytes());
        let StreamEnd::Known(end) = process.shard.stream_end(id) else {
            panic!("D7: all heads stay in memory");
        };
        if !leads {
            return;
        }
        self.saw("a linearizable read");
        self.clients.list[client].known.insert(stream, end.0);
        if self.plan.profile == Profile::Bounded {
            self.check_read(node, stream, end.0);
        }
    }
}
