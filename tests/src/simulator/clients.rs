//! Clients: each has one operation at a time, knows its outcome or does not, and tries again what
//! it may try again.

use std::collections::BTreeMap;

use duolog_engine::append::{AppendBuilder, Expect};
use duolog_engine::ids::{IdempotencyKey, Lsn, Revision};
use duolog_net::wire::{ErrorCode, FrameKind, encode_frame};

use super::plan::Plan;
use super::sessions::{Heard, Line, LineId};
use super::world::{Due, World};
use crate::process::end_of;

/// How many streams there are.
pub const STREAMS: usize = 6;
/// A client waits so long for an answer, us.
const ANSWER_MAX_US: u64 = 2_000_000;
/// Pause after a refusal, us.
const REFUSED_US: u64 = 100_000;

pub fn stream_name(stream: usize) -> String {
    format!("stream-{stream}")
}

/// The number of the stream with this name.
pub fn stream_number(name: &str) -> usize {
    let found = (0..STREAMS).find(|stream| stream_name(*stream) == name);
    found.expect("A5: nobody invents a stream")
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
    /// The request it waits for.
    waiting: Option<u64>,
    /// When it does its next thing.
    wakes_us: u64,
    /// Stream ends that it has seen.
    known: BTreeMap<usize, u64>,
    /// Its connection.
    line: Option<Line>,
    /// The reads that it waits for, and their streams.
    reads: BTreeMap<u64, usize>,
}

/// See the module.
#[derive(Debug)]
pub struct Clients {
    list: Vec<Client>,
    next_operation: u64,
    next_request: u64,
    next_line: u64,
    /// Requests that wait in a node: who asked, for which operation, where.
    pub requests: BTreeMap<u64, (usize, u64, usize)>,
    /// Every operation ever begun.
    pub operations: BTreeMap<u64, Operation>,
}

impl Clients {
    pub fn new(plan: &Plan) -> Self {
        let list = (0..plan.clients).map(|_| Client::default()).collect();
        let (requests, operations) = (BTreeMap::new(), BTreeMap::new());
        Self { list, next_operation: 1, next_request: 1, next_line: 1, requests, operations }
    }

    /// A client's connection.
    pub fn line(&mut self, client: usize) -> &mut Option<Line> {
        &mut self.list[client].line
    }

    /// A number for a new connection.
    pub fn next_line(&mut self) -> LineId {
        self.next_line += 1;
        LineId(self.next_line)
    }

    fn next_request(&mut self) -> u64 {
        self.next_request += 1;
        self.next_request
    }

    /// The operation that a request is for, if its client still wants to know.
    pub fn operation_of(&self, request: u64) -> Option<u64> {
        self.requests.get(&request).map(|(_, operation, _)| *operation)
    }
}

impl World {
    /// A client's next thing comes after so long, whatever it was to do before.
    pub fn wake(&mut self, client: usize, us: u64) {
        let due = self.now_us + us;
        self.clients.list[client].wakes_us = due;
        self.at(due, Due::Client(client));
    }

    /// A client does its next thing.
    pub fn client(&mut self, client: usize) {
        let state = &mut self.clients.list[client];
        if state.wakes_us != self.now_us {
            return;
        }
        if let Some(request) = state.waiting {
            // Nobody answers: the outcome is not known.
            state.waiting = None;
            state.line = None;
            state.node = 1 - state.node;
            self.clients.requests.remove(&request);
            self.unknown(client);
        }
        if self.healing {
            return;
        }
        if self.clients.list[client].open.is_none() && self.chance.percent(30) {
            let stream = self.chance.index(STREAMS);
            self.ask_for_end(client, stream);
            return self.wake(client, self.plan.think_us);
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

    /// Asks whom it believes to lead for the end of a stream.
    fn ask_for_end(&mut self, client: usize, stream: usize) {
        let node = self.clients.list[client].node;
        if self.nodes[node].process.is_none() {
            self.clients.list[client].node = 1 - node;
            return;
        }
        self.line_to(client, node);
        let request = self.clients.next_request();
        self.clients.list[client].reads.insert(request, stream);
        let mut frame = Vec::new();
        end_of(&stream_name(stream)).encode(&mut frame, request).expect("a short name");
        self.client_sends(client, &frame);
    }

    fn submit(&mut self, client: usize, operation: Operation) {
        let request = self.clients.next_request();
        let node = self.clients.list[client].node;
        let mut frame = Vec::new();
        encode_frame(&mut frame, FrameKind::Append, request, &operation.bytes);
        self.clients.requests.insert(request, (client, operation.id, node));
        self.clients.list[client].waiting = Some(request);
        self.clients.list[client].open = Some(operation);
        self.wake(client, ANSWER_MAX_US);
        if self.nodes[node].process.is_some() {
            self.line_to(client, node);
            self.client_sends(client, &frame);
        }
    }

    /// A client's connection has ended: it asks again on another one.
    pub fn client_is_cut_off(&mut self, client: usize) {
        let state = &mut self.clients.list[client];
        state.reads.clear();
        if let Some(request) = state.waiting.take() {
            self.clients.requests.remove(&request);
            self.unknown(client);
            let us = 1 + self.chance.below(REFUSED_US);
            self.wake(client, us);
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

    /// A client hears from a node.
    pub fn client_hears(&mut self, client: usize, node: usize, heard: Heard) {
        match heard {
            Heard::Role(role) => {
                let state = &mut self.clients.list[client];
                if !role.serves() && state.waiting.is_none() && state.node == node {
                    state.node = 1 - node;
                    self.saw("a client is told that its node does not lead");
                }
            }
            Heard::End { request, next } => {
                let state = &mut self.clients.list[client];
                if let Some(stream) = state.reads.remove(&request) {
                    state.known.insert(stream, next.0);
                }
            }
            Heard::Appended { request, first, last, .. } => {
                self.client_settles(client, request, |world, operation| {
                    world.check_told(operation, first, last);
                    world.clients.list[client].open = None;
                    world.plan.think_us
                });
            }
            Heard::Refused { request, code, next } => {
                let state = &mut self.clients.list[client];
                if state.reads.remove(&request).is_some() {
                    assert_eq!(code, ErrorCode::NotLeader, "A5: a read is refused otherwise");
                    return;
                }
                self.client_settles(client, request, |world, _| {
                    world.client_is_refused(client, code, next)
                });
            }
        }
    }

    /// A request has its answer, which `how` takes; it returns the longest pause, us.
    fn client_settles(
        &mut self,
        client: usize,
        request: u64,
        how: impl FnOnce(&mut Self, u64) -> u64,
    ) {
        let Some((_, operation, _)) = self.clients.requests.remove(&request) else { return };
        let state = &mut self.clients.list[client];
        if state.waiting != Some(request) {
            return;
        }
        state.waiting = None;
        let pause = how(self, operation);
        let us = 1 + self.chance.below(pause);
        self.wake(client, us);
    }

    fn client_is_refused(&mut self, client: usize, code: ErrorCode, next: Revision) -> u64 {
        let state = &mut self.clients.list[client];
        match code {
            ErrorCode::Conflict => {
                let open = state.open.take();
                if let Some((stream, _)) = open.and_then(|open| open.parts.first().copied()) {
                    state.known.insert(stream, next.0);
                }
                return self.plan.think_us;
            }
            ErrorCode::NotLeader | ErrorCode::ShuttingDown => state.node = 1 - state.node,
            ErrorCode::Busy | ErrorCode::DiskFull => {}
            ErrorCode::Unknown => {
                state.node = 1 - state.node;
                self.unknown(client);
            }
            other => panic!("A5: nobody asked for {other:?}"),
        }
        REFUSED_US
    }

    /// A6: the answer that arrives is the one that was given.
    fn check_told(&self, operation: u64, first: Lsn, last: Lsn) {
        let given = self.receipt_of(operation);
        assert_eq!(given, Some(first), "A6: operation {operation} was told another place");
        let parts = &self.clients.operations[&operation].parts;
        let events: u64 = parts.iter().map(|(_, events)| events).sum();
        assert_eq!(last.0 + 1 - first.0, events, "A5: operation {operation} was told in part");
    }
}
