//! Time and names made relative, so that a state that differs from another only in the hour, or in
//! how many writes there were before, is the same state and the search comes to an end.

use duolog_lease::document::Document;
use duolog_lease::event::{Condition, Event, Version};
use duolog_lease::ids::{CallId, ETag, MonoMs, Now, Token, WallMs};
use duolog_lease::machine::Visitor;
use duolog_lease::status::{FenceReason, Status};

use super::bounds::{Bounds, timings};
use super::network::Message;
use super::store::{etag_of, token_of};
use super::world::{MONO, WALL, World, run_id};

/// Durations added to moments are at most the S3 lease plus the drift, 7: beyond 8 all are alike.
const MOMENT_AGE_MAX: u64 = 8;
/// Durations added to heartbeats are at most the heartbeat lease, 3.
const BEAT_AGE_MAX: u64 = 4;

/// Moves times into the past.
struct Shift {
    ms: u64,
    /// Whether documents' times and heartbeats' walls move too.
    wall: bool,
}

impl Visitor for Shift {
    fn latest(&mut self, _: &mut MonoMs) {}

    fn deadline(&mut self, at: &mut MonoMs) {
        *at = at.minus(self.ms);
    }

    fn moment(&mut self, at: &mut MonoMs) {
        *at = at.minus(self.ms);
    }

    fn beats(&mut self, heard: &mut Option<MonoMs>, last_sent: &mut Option<MonoMs>) {
        for at in heard.iter_mut().chain(last_sent) {
            *at = at.minus(self.ms);
        }
    }

    fn span(&mut self, acquired: &mut WallMs, expires: &mut WallMs) {
        if self.wall {
            *acquired = WallMs(acquired.0 - self.ms);
            *expires = WallMs(expires.0 - self.ms);
        }
    }

    fn known(&mut self, version: &mut Version) {
        version.document.visit(self);
    }

    fn seen(&mut self, _: &mut Token, since: &mut MonoMs) {
        *since = since.minus(self.ms);
    }

    fn token(&mut self, _: &mut Token) {}

    fn etag(&mut self, _: &mut ETag) {}

    fn call(&mut self, _: &mut CallId) {}
}

/// Makes alike what acts alike.
struct Rename<'a> {
    timed: bool,
    drift: bool,
    /// Whether the machine in hand looks at the version it knows, or reads another first.
    looks: bool,
    /// Tokens that somebody may still look for among a lease's recent ones.
    awaited: [Option<Token>; 2],
    /// What stands for a version that does not matter.
    nothing: Version,
    /// Old and new.
    names: &'a mut Vec<(Token, Token)>,
}

impl Rename<'_> {
    fn name(&mut self, token: Token) -> Token {
        if token == Token::default() {
            return token;
        }
        if let Some((_, new)) = self.names.iter().find(|(old, _)| *old == token) {
            return *new;
        }
        let run = token.0 >> 32;
        let count = self.names.iter().filter(|(old, _)| old.0 >> 32 == run).count();
        let new = Token(run << 32 | (count as u128 + 1));
        self.names.push((token, new));
        new
    }

    fn document(&mut self, document: &mut Document) {
        // A recent token that nobody looks for has no name.
        let mut tokens = document.recent.as_slice().to_vec();
        for token in &mut tokens {
            if !self.awaited.contains(&Some(*token)) {
                *token = Token::default();
            }
        }
        document.recent = duolog_lease::document::RecentTokens::new(&tokens);
        document.visit(self);
    }

    fn version(&mut self, version: &mut Version) {
        self.etag(&mut version.etag);
        self.document(&mut version.document);
    }
}

impl Visitor for Rename<'_> {
    fn latest(&mut self, at: &mut MonoMs) {
        *at = MONO;
    }

    fn deadline(&mut self, at: &mut MonoMs) {
        *at = (*at).max(MONO);
    }

    fn moment(&mut self, at: &mut MonoMs) {
        *at = (*at).max(MONO.minus(MOMENT_AGE_MAX));
    }

    fn beats(&mut self, heard: &mut Option<MonoMs>, last_sent: &mut Option<MonoMs>) {
        let missed = *heard < *last_sent;
        let floor = MONO.minus(BEAT_AGE_MAX);
        for at in last_sent.iter_mut() {
            *at = (*at).max(floor);
        }
        for at in heard.iter_mut() {
            *at = (*at).max(if missed { floor.minus(1) } else { floor });
        }
    }

    fn span(&mut self, acquired: &mut WallMs, expires: &mut WallMs) {
        let duration_ms = expires.since(*acquired);
        let oldest = WALL.0 - 2 * timings().drift_ms();
        *expires = WallMs(if self.timed { expires.0.max(oldest) } else { WALL.0 + duration_ms });
        *acquired = WallMs(expires.0 - duration_ms);
    }

    fn known(&mut self, version: &mut Version) {
        if !self.looks {
            *version = self.nothing.clone();
            return;
        }
        self.version(version);
        version.document.acquired = WallMs(WALL.0 - 1);
        version.document.expires = WALL;
    }

    fn seen(&mut self, token: &mut Token, since: &mut MonoMs) {
        if self.drift {
            self.token(token);
            self.moment(since);
        } else {
            (*token, *since) = (Token::default(), MONO);
        }
    }

    fn token(&mut self, token: &mut Token) {
        *token = self.name(*token);
    }

    fn etag(&mut self, etag: &mut ETag) {
        *etag = etag_of(self.name(token_of(etag)));
    }

    fn call(&mut self, call: &mut CallId) {
        *call = CallId(1);
    }
}

impl World {
    /// One unit of time passes for everybody.
    pub fn pass(&mut self, bounds: &Bounds) {
        let mut shift = Shift { ms: 1, wall: true };
        for node in &mut self.nodes {
            if let Some(machine) = &mut node.machine {
                machine.visit(&mut shift);
            }
            if let Some(version) =
                node.read.iter_mut().filter_map(|it| it.sampled.as_mut()).flatten().next()
            {
                version.document.visit(&mut shift);
            }
        }
        if let Some(version) = &mut self.store.version {
            version.document.visit(&mut shift);
        }
        for flight in &mut self.flights {
            flight.document.visit(&mut shift);
        }
        for message in self.links.iter_mut().flat_map(|link| &mut link.messages) {
            match message {
                Message::Heartbeat { sent, wall, .. } => {
                    *sent = sent.minus(1);
                    *wall = WallMs(wall.0 - 1);
                }
                Message::Ack { sent, .. } => *sent = sent.minus(1),
                Message::Refusal { .. } | Message::Resign { .. } => {}
            }
        }
        for node in 0..2 {
            let timer = self.nodes[node].machine.as_ref().and_then(|machine| machine.timer());
            if !bounds.lazy && timer.is_some_and(|at| at <= MONO) {
                self.give(bounds, node, 0, Event::Tick);
            }
        }
    }

    /// Time passes for one node only.
    pub fn jump(&mut self, bounds: &Bounds, node: usize, ms: u64) {
        if let Some(machine) = &mut self.nodes[node].machine {
            machine.visit(&mut Shift { ms, wall: false });
        }
        for message in &mut self.links[node].messages {
            if let Message::Heartbeat { sent, .. } = message {
                *sent = sent.minus(ms);
            }
        }
        for message in &mut self.links[1 - node].messages {
            if let Message::Ack { sent, .. } = message {
                *sent = sent.minus(ms);
            }
        }
        self.give(bounds, node, 0, Event::Tick);
    }

    pub fn canonicalize(&mut self, bounds: &Bounds) {
        self.forget_answers();
        self.forget_messages(bounds);
        let awaited = |node: usize| self.nodes[node].machine.as_ref()?.awaited_write();
        let awaited = [awaited(0), awaited(1)];
        for (node, awaited) in self.nodes.iter_mut().zip(awaited) {
            node.challenge = node.challenge.filter(|(token, _)| Some(*token) == awaited);
        }
        let mut names = Vec::with_capacity(8);
        let mut rename = Rename {
            timed: bounds.timed,
            drift: bounds.drift,
            looks: true,
            awaited,
            nothing: nothing(),
            names: &mut names,
        };
        if let Some(version) = &mut self.store.version {
            rename.version(version);
        }
        for flight in &mut self.flights {
            if let Condition::Matches(etag) = &mut flight.condition {
                rename.etag(etag);
            }
            rename.document(&mut flight.document);
            if let Some(duolog_lease::event::WriteOutcome::Stored { etag }) = &mut flight.outcome {
                rename.etag(etag);
            }
            flight.waiting = flight.waiting.map(|_| CallId(1));
        }
        for node in &mut self.nodes {
            if let Some(read) = &mut node.read {
                read.call = CallId(1);
                read.sampled.iter_mut().flatten().for_each(|version| rename.version(version));
            }
            if let Some(machine) = &mut node.machine {
                let now = Now { mono: MONO, wall: WALL };
                let challenges = Status::Fenced(FenceReason::Challenging);
                rename.looks = machine.reign().is_some() || machine.status(now) == challenges;
                machine.visit(&mut rename);
            }
            if let Some((token, _)) = &mut node.challenge {
                rename.token(token);
            }
        }
        self.recount(&names);
        self.flights.dedup_by(|a, b| a.waiting.is_none() && a == b);
    }

    fn recount(&mut self, names: &[(Token, Token)]) {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let run = run_id(index, node.runs);
            if let Some(machine) = &mut node.machine {
                let (calls, writes) = machine.counters();
                *calls = 1;
                let count = names.iter().filter(|(old, _)| old.is_of(run)).count();
                *writes = u32::try_from(count).expect("few");
            }
        }
    }

    /// Answers that the machine does not wait for any more, and writes that can never land.
    fn forget_answers(&mut self) {
        for node in 0..2 {
            let machine = self.nodes[node].machine.as_ref();
            let call = machine.and_then(|machine| machine.awaited_call());
            let it = &mut self.nodes[node];
            it.read = it.read.take().filter(|read| Some(read.call) == call);
            for flight in self.flights.iter_mut().filter(|flight| flight.node == node) {
                flight.waiting = flight.waiting.filter(|waiting| Some(*waiting) == call);
            }
        }
        let store = &self.store;
        self.flights.retain(|flight| {
            let may_land = flight.outcome.is_none() && store.allows(&flight.condition);
            flight.waiting.is_some() || may_land
        });
        // No tag comes back: the condition of a write under way will never hold again.
        for flight in &mut self.flights {
            if flight.outcome.is_none() && !store.allows(&flight.condition) {
                flight.outcome = Some(duolog_lease::event::WriteOutcome::Conflict);
            }
        }
    }

    /// Messages that nobody can act upon any more.
    fn forget_messages(&mut self, bounds: &Bounds) {
        for from in 0..2 {
            let wall_there = self.now_wall(bounds, 1 - from);
            let receiver = &self.nodes[1 - from];
            let reign = receiver.machine.as_ref().and_then(|machine| machine.reign());
            self.links[from].messages.retain(|message| match message {
                Message::Heartbeat { wall, .. } => {
                    // Without drift in the bounds, what would be refused for it is lost.
                    let drift_ms = wall_there.distance(*wall);
                    let drift_max = if bounds.drift { 3 } else { timings().drift_ms() };
                    !bounds.timed || drift_ms <= drift_max
                }
                Message::Ack { epoch, sent } => {
                    reign == Some(*epoch) && MONO.since(*sent) < BEAT_AGE_MAX
                }
                Message::Refusal { epoch, .. } => reign == Some(*epoch),
                Message::Resign { .. } => true,
            });
            for message in &mut self.links[from].messages {
                if let Message::Heartbeat { sent, wall, .. } = message
                    && !bounds.timed
                {
                    *sent = (*sent).max(MONO.minus(BEAT_AGE_MAX));
                    *wall = WALL;
                }
            }
        }
    }

    fn now_wall(&self, bounds: &Bounds, node: usize) -> WallMs {
        self.now(bounds, node, 0).wall
    }

    /// Whether the state lies outside of the bounds.
    pub fn is_beyond(&self, bounds: &Bounds) -> bool {
        let high = |epoch: duolog_lease::ids::LeaseEpoch| epoch.0 > bounds.epoch_max;
        self.flights.len() > bounds.flights_max
            || self.flights.iter().any(|flight| high(flight.document.epoch))
    }
}

fn nothing() -> Version {
    let node = duolog_lease::ids::NodeId(0);
    let document = Document {
        cluster: super::world::CLUSTER,
        leader: node,
        epoch: duolog_lease::ids::LeaseEpoch::NONE,
        in_sync: duolog_lease::in_sync::InSync::alone(node),
        acquired: WALL,
        expires: WALL,
        token: Token::default(),
        recent: Default::default(),
        unknown: Default::default(),
    };
    Version { etag: etag_of(Token::default()), document }
}
