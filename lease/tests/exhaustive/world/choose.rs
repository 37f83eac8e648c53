//! What may happen next.

use duolog_lease::event::{Event, Heartbeat, Hello, ReadResult, WriteOutcome};
use duolog_lease::ids::LeaseEpoch;
use duolog_lease::report::MemberRefusal;

use super::super::bounds::Bounds;
use super::super::network::Message;
use super::{CLUSTER, MONO, World, node_id};

/// One thing that may happen. Nodes are 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Timed: one unit of time passes for everybody.
    Pass,
    /// Untimed: a long time passes for a node, and it notices.
    Late(usize),
    Tick(usize),
    Start(usize),
    /// A promise that is being written is lost.
    Crash(usize),
    /// A promise that is being written has reached the disk.
    CrashPersisted(usize),
    /// The answer to a read arrives. Untimed: what it shows is the store as it is, unless a write
    /// has landed behind its back.
    Read(usize),
    ReadFails(usize),
    Persisted(usize),
    Stopped(usize),
    Covered(usize),
    Promoted(usize),
    Drained(usize),
    /// A write reaches the store. The reads under way of these nodes have looked before.
    Land(usize, [bool; 2]),
    Answer(usize),
    /// The answer is lost; what has not landed may land later.
    Lose(usize),
    Deliver(usize, usize),
    /// A heartbeat is taken for a hello of a replication link.
    DeliverHello(usize, usize),
    /// A heartbeat arrives, and the wall clock is far off.
    DeliverDrifted(usize, usize),
    Resign(usize),
    /// The follower of this leader has acked everything.
    CaughtUp(usize),
    /// The follower of this leader is lost.
    Lost(usize),
}

impl World {
    pub fn choices(&self, bounds: &Bounds, list: &mut Vec<Choice>) {
        if bounds.timed {
            list.push(Choice::Pass);
        }
        for node in 0..2 {
            self.node_choices(bounds, node, list);
            self.inside_choices(node, list);
            self.link_choices(bounds, node, list);
        }
        for (index, flight) in self.flights.iter().enumerate() {
            if flight.outcome.is_none() {
                self.land_choices(bounds, index, list);
            } else {
                list.push(Choice::Answer(index));
            }
            if flight.waiting.is_some() {
                list.push(Choice::Lose(index));
            }
        }
    }

    /// When a read looks matters only if the store changes while it is under way.
    fn land_choices(&self, bounds: &Bounds, index: usize, list: &mut Vec<Choice>) {
        let open = |node: usize| {
            let read = self.nodes[node].read.as_ref();
            !bounds.timed && read.is_some_and(|read| read.sampled.is_none())
        };
        for looked in [[false, false], [true, false], [false, true], [true, true]] {
            if (0..2).all(|node| open(node) || !looked[node]) {
                list.push(Choice::Land(index, looked));
            }
        }
    }

    fn node_choices(&self, bounds: &Bounds, node: usize, list: &mut Vec<Choice>) {
        let it = &self.nodes[node];
        let Some(machine) = &it.machine else {
            list.push(Choice::Start(node));
            return;
        };
        if bounds.timed {
            // Only after a step that was late itself, or when noticing late is allowed.
            if machine.timer().is_some_and(|at| at <= MONO) {
                list.push(Choice::Tick(node));
            }
        } else {
            list.push(Choice::Late(node));
        }
        if self.crashes < bounds.crashes_max {
            list.push(Choice::Crash(node));
            if it.persisting.is_some() {
                list.push(Choice::CrashPersisted(node));
            }
        }
        if let Some(read) = &it.read {
            list.push(Choice::Read(node));
            if bounds.reads_fail && read.sampled.is_none() {
                list.push(Choice::ReadFails(node));
            }
        }
        let reign = machine.reign();
        if reign.is_some() && self.handovers < bounds.handovers_max {
            list.push(Choice::Resign(node));
        }
        let other = &self.nodes[1 - node];
        if bounds.joins
            && reign.is_some()
            && machine.members().is_some_and(|(set, _)| set.is_alone())
        {
            if other.shards == reign {
                list.push(Choice::CaughtUp(node));
            }
            list.push(Choice::Lost(node));
        }
    }

    fn inside_choices(&self, node: usize, list: &mut Vec<Choice>) {
        let it = &self.nodes[node];
        let under_way = [
            (it.persisting.is_some(), Choice::Persisted(node)),
            (it.stopping, Choice::Stopped(node)),
            (it.covering, Choice::Covered(node)),
            (it.promoting.is_some(), Choice::Promoted(node)),
            (it.draining.is_some(), Choice::Drained(node)),
        ];
        list.extend(under_way.iter().filter(|(is, _)| *is).map(|(_, choice)| *choice));
    }

    fn link_choices(&self, bounds: &Bounds, from: usize, list: &mut Vec<Choice>) {
        if self.nodes[1 - from].machine.is_none() {
            return;
        }
        for (index, message) in self.links[from].messages.iter().enumerate() {
            list.push(Choice::Deliver(from, index));
            if matches!(message, Message::Heartbeat { .. }) {
                if !bounds.timed {
                    list.push(Choice::DeliverHello(from, index));
                }
                if bounds.drift {
                    list.push(Choice::DeliverDrifted(from, index));
                }
            }
        }
    }

    /// Makes it happen.
    pub fn take(&mut self, bounds: &Bounds, choice: Choice) {
        match choice {
            Choice::Pass => self.pass(bounds),
            Choice::Late(node) => self.jump(bounds, node, 20),
            Choice::Tick(node) => self.give(bounds, node, 0, Event::Tick),
            Choice::Start(node) => self.start(bounds, node),
            Choice::Crash(node) => self.crash(node, false),
            Choice::CrashPersisted(node) => self.crash(node, true),
            // Untimed: every lease may seem to have run out; that it has not is just a delay.
            Choice::Read(node) => self.read(bounds, node, if bounds.timed { 0 } else { 100 }, true),
            Choice::ReadFails(node) => self.read(bounds, node, 0, false),
            Choice::Land(index, looked) => {
                let looked = self.nodes.iter_mut().zip(looked).filter(|(_, looked)| *looked);
                for read in looked.filter_map(|(node, _)| node.read.as_mut()) {
                    read.sampled = Some(self.store.version.clone());
                }
                self.land(index);
            }
            Choice::Answer(index) => self.answer(bounds, index),
            Choice::Lose(index) => self.lose(bounds, index),
            Choice::Deliver(from, index) => self.deliver(bounds, from, index, Guise::Itself),
            Choice::DeliverHello(from, index) => self.deliver(bounds, from, index, Guise::Hello),
            Choice::DeliverDrifted(from, index) => {
                self.deliver(bounds, from, index, Guise::Drifted);
            }
            Choice::Resign(node) => {
                self.handovers += 1;
                self.give(bounds, node, 0, Event::ResignRequested);
            }
            Choice::CaughtUp(node) => {
                let epoch = self.reign(node);
                let event = Event::FollowerCaughtUp { node: node_id(1 - node), epoch };
                self.give(bounds, node, 0, event);
            }
            Choice::Lost(node) => {
                let event = Event::FollowerLost { node: node_id(1 - node) };
                self.give(bounds, node, 0, event);
            }
            choice => self.finish(bounds, choice),
        }
        self.canonicalize(bounds);
    }

    fn finish(&mut self, bounds: &Bounds, choice: Choice) {
        let (node, event) = match choice {
            Choice::Persisted(node) => (node, self.finish_persisting(node)),
            Choice::Stopped(node) => (node, self.finish_stopping(node)),
            Choice::Covered(node) => (node, self.finish_covering(node)),
            Choice::Promoted(node) => (node, self.finish_promoting(node)),
            Choice::Drained(node) => (node, self.finish_draining(node)),
            other => unreachable!("{other:?} is taken before"),
        };
        if let Some(event) = event {
            self.give(bounds, node, 0, event);
        }
    }

    fn reign(&self, node: usize) -> LeaseEpoch {
        let machine = self.nodes[node].machine.as_ref();
        machine.and_then(|machine| machine.reign()).unwrap_or(LeaseEpoch::NONE)
    }

    pub fn read(&mut self, bounds: &Bounds, node: usize, ahead_ms: u64, succeeds: bool) {
        let Some(read) = self.nodes[node].read.take() else {
            return;
        };
        let version = read.sampled.unwrap_or_else(|| self.store.version.clone());
        let result = match version {
            _ if !succeeds => ReadResult::Failed,
            None => ReadResult::Absent,
            Some(version) => ReadResult::Found(version),
        };
        let event = Event::LeaseRead { call: read.call, result, jitter: 0 };
        self.give(bounds, node, ahead_ms, event);
    }

    pub fn answer(&mut self, bounds: &Bounds, index: usize) {
        let flight = self.flights.remove(index);
        if let (Some(call), Some(outcome)) = (flight.waiting, flight.outcome) {
            let event = Event::LeaseWritten { call, outcome, jitter: 0 };
            self.give(bounds, flight.node, 0, event);
        }
    }

    fn lose(&mut self, bounds: &Bounds, index: usize) {
        let flight = &mut self.flights[index];
        let node = flight.node;
        let Some(call) = flight.waiting.take() else {
            return;
        };
        if flight.outcome.is_some() {
            self.flights.remove(index);
        }
        let event = Event::LeaseWritten { call, outcome: WriteOutcome::Unknown, jitter: 0 };
        self.give(bounds, node, 0, event);
    }

    fn deliver(&mut self, bounds: &Bounds, from: usize, index: usize, guise: Guise) {
        let to = 1 - from;
        let message = self.links[from].messages[index];
        let sender = node_id(from);
        let ahead_ms = if guise == Guise::Drifted { 50 } else { 0 };
        let event = match message {
            Message::Heartbeat { epoch, .. } if guise == Guise::Hello => {
                Event::HelloReceived(Hello { from: sender, cluster: CLUSTER, epoch })
            }
            Message::Heartbeat { epoch, sent, wall } => {
                let cluster = CLUSTER;
                Event::HeartbeatReceived(Heartbeat { from: sender, cluster, epoch, sent, wall })
            }
            Message::Ack { epoch, sent } => Event::HeartbeatAcked { from: sender, epoch, sent },
            Message::Refusal { epoch, refusal } => Event::Refused { from: sender, epoch, refusal },
            Message::Resign { epoch } => Event::ResignReceived { from: sender, epoch },
        };
        let outsider = matches!(message, Message::Ack { .. }) && self.is_outsider(to, from);
        let until = |world: &Self| {
            let machine = world.nodes[to].machine.as_ref();
            machine.and_then(|machine| machine.grant()).map(|grant| grant.serve_until)
        };
        let before = until(self);
        self.give(bounds, to, ahead_ms, event);
        if outsider && until(self) > before {
            self.fail("the ack of a node outside of in_sync extends the lease (M1)");
        }
    }

    fn is_outsider(&self, leader: usize, node: usize) -> bool {
        let machine = self.nodes[leader].machine.as_ref();
        machine.is_some_and(|machine| machine.admits(node_id(node)) != Ok::<(), MemberRefusal>(()))
            || machine
                .and_then(|machine| machine.members())
                .is_some_and(|(set, _)| !set.contains(node_id(node)))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Guise {
    Itself,
    Hello,
    Drifted,
}
