//! Everything there is: two nodes, their disks, the store, the network, and what has been seen.

use std::cell::Cell;
use std::hash::{Hash, Hasher};

use duolog_lease::action::{Action, Actions};
use duolog_lease::event::Event;
use duolog_lease::ids::{ClusterId, LeaseEpoch, MonoMs, NodeId, Now, RunId, Token, WallMs};
use duolog_lease::in_sync::InSync;
use duolog_lease::machine::{Identity, Machine};
use duolog_lease::rules::{Mistake, Rules};

use super::bounds::{Bounds, Start, timings};
use super::network::Link;
use super::store::{Flight, Store, etag_of};

mod act;
mod choose;
mod promises;

pub use choose::Choice;

pub const CLUSTER: ClusterId = ClusterId(9);
/// Every clock shows this when a state is stored.
pub const MONO: MonoMs = MonoMs(1000);
/// And this.
pub const WALL: WallMs = WallMs(5000);
pub const NAMES: [&str; 2] = ["A", "B"];

thread_local! {
    /// The one buffer of every step.
    static ACTIONS: Cell<Actions> = Cell::new(Actions::new());
}

/// Breaks one rule or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Planted(pub Option<Mistake>);

impl Rules for Planted {
    fn breaks(&self, mistake: Mistake) -> bool {
        self.0 == Some(mistake)
    }
}

/// One node with its disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// `None`: down.
    pub machine: Option<Machine<Planted>>,
    pub runs: u8,
    pub disk: LeaseEpoch,
    pub persisting: Option<LeaseEpoch>,
    pub read: Option<Read>,
    pub stopping: bool,
    pub covering: bool,
    pub promoting: Option<LeaseEpoch>,
    pub draining: Option<LeaseEpoch>,
    /// The epoch whose blocks the shards may ack.
    pub shards: Option<LeaseEpoch>,
    /// What the shards know about the members.
    pub members: Option<(InSync, Option<InSync>)>,
    /// The write of a challenge, and whether anything was acked since it was sent.
    pub challenge: Option<(Token, bool)>,
    pub last_reign: LeaseEpoch,
}

/// A read under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Read {
    pub call: duolog_lease::ids::CallId,
    /// What the store held when it looked; `None` if it shows what the store holds when it ends.
    pub sampled: Option<Option<duolog_lease::event::Version>>,
}

/// A state.
#[derive(Clone, Debug)]
pub struct World {
    pub rules: Planted,
    pub nodes: [Node; 2],
    pub store: Store,
    pub flights: Vec<Flight>,
    /// From the first to the second node, and back.
    pub links: [Link; 2],
    /// Per epoch: the node and run that entered the reign, and that opened it.
    pub entered: [Option<(u8, u8)>; 8],
    pub opened: [Option<(u8, u8)>; 8],
    pub handovers: u8,
    pub crashes: u8,
    /// The promise that the last step broke.
    pub violation: Option<String>,
    /// Whether steps are told in words; for traces only.
    pub tells: bool,
    /// What the last step did, in words.
    pub told: Vec<String>,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.nodes, &self.store, &self.flights, &self.links).hash(state);
        (&self.entered, &self.opened, self.handovers, self.crashes, &self.violation).hash(state);
    }
}

pub fn node_id(node: usize) -> NodeId {
    NodeId(node as u128 + 1)
}

pub fn index_of(node: NodeId) -> usize {
    usize::try_from(node.0 - 1).expect("two nodes")
}

pub fn run_id(node: usize, run: u8) -> RunId {
    RunId::new((node as u128 + 1) << 96 | u128::from(run) << 32)
}

impl World {
    pub fn new(bounds: &Bounds, mistake: Option<Mistake>) -> Self {
        let node = Node {
            machine: None,
            runs: 0,
            disk: LeaseEpoch::NONE,
            persisting: None,
            read: None,
            stopping: false,
            covering: false,
            promoting: None,
            draining: None,
            shards: None,
            members: None,
            challenge: None,
            last_reign: LeaseEpoch::NONE,
        };
        let mut world = Self {
            rules: Planted(mistake),
            nodes: [node.clone(), node],
            store: Store::default(),
            flights: Vec::new(),
            links: Default::default(),
            entered: [None; 8],
            opened: [None; 8],
            handovers: 0,
            crashes: 0,
            violation: None,
            tells: false,
            told: Vec::new(),
        };
        let in_sync = match bounds.start {
            Start::Empty => return world,
            Start::Alone => InSync::alone(node_id(0)),
            Start::Pair | Start::Warm => InSync::pair(node_id(0), node_id(1)),
        };
        let token = Token::new(run_id(0, 0), 1);
        let document = duolog_lease::document::Document {
            cluster: CLUSTER,
            leader: node_id(0),
            epoch: LeaseEpoch::FIRST,
            in_sync,
            acquired: WallMs(WALL.0 - 20),
            expires: WallMs(WALL.0 - 14),
            token,
            recent: Default::default(),
            unknown: Default::default(),
        };
        let etag = etag_of(token);
        world.store.version = Some(duolog_lease::event::Version { etag, document });
        world.nodes[0].disk = LeaseEpoch::FIRST;
        if bounds.start != Start::Alone {
            world.nodes[1].disk = LeaseEpoch::FIRST;
        }
        world.canonicalize(bounds);
        if bounds.start == Start::Warm {
            super::heal::warm_up(bounds, &mut world);
        }
        world
    }

    pub fn now(&self, bounds: &Bounds, node: usize, ahead_ms: u64) -> Now {
        let offset = if bounds.timed && node == 1 { bounds.offset } else { 0 };
        let wall = WallMs(WALL.0.saturating_add_signed(offset)).plus(ahead_ms);
        Now { mono: MONO, wall }
    }

    pub fn start(&mut self, bounds: &Bounds, node: usize) {
        let it = &mut self.nodes[node];
        it.runs += 1;
        let run = run_id(node, it.runs);
        let identity = Identity { node: node_id(node), cluster: CLUSTER, run };
        it.machine = Some(Machine::with_rules(identity, timings(), self.rules));
        let promised = it.disk;
        self.give(bounds, node, 0, Event::Boot { promised });
    }

    /// `persisted`: whether a promise that was being written has reached the disk.
    pub fn crash(&mut self, node: usize, persisted: bool) {
        self.crashes += 1;
        let it = &mut self.nodes[node];
        if let Some(epoch) = it.persisting.take().filter(|_| persisted) {
            it.disk = epoch;
        }
        it.machine = None;
        it.read = None;
        it.stopping = false;
        it.covering = false;
        it.promoting = None;
        it.draining = None;
        it.shards = None;
        it.members = None;
        it.challenge = None;
        for flight in self.flights.iter_mut().filter(|flight| flight.node == node) {
            flight.waiting = None;
        }
    }

    /// Steps a machine and does what it says.
    pub fn give(&mut self, bounds: &Bounds, node: usize, ahead_ms: u64, event: Event) {
        let now = self.now(bounds, node, ahead_ms);
        let mut events = vec![event];
        let mut out = ACTIONS.take();
        while !events.is_empty() {
            let event = events.remove(0);
            let Some(machine) = &mut self.nodes[node].machine else {
                break;
            };
            let before = machine.awaited_write();
            machine.step(now, event, &mut out);
            for action in out.drain() {
                self.tell_action(node, &action);
                self.act(bounds, node, before, action, &mut events);
            }
            self.watch_reign(node);
        }
        ACTIONS.set(out);
    }

    fn tell_action(&mut self, node: usize, action: &Action) {
        if self.tells {
            self.told.push(format!("{}: {action:?}", NAMES[node]));
        }
    }

    pub fn fail(&mut self, what: impl Into<String>) {
        if self.violation.is_none() {
            self.violation = Some(what.into());
        }
    }

    /// A step of a trace in words.
    pub fn tell(&self, choice: Choice) -> String {
        let mut text = format!("{choice:?}");
        for line in &self.told {
            text += "\n        ";
            text += line;
        }
        if let Some(version) = &self.store.version {
            let document = &version.document;
            text += &format!(
                "\n        lease: {} epoch {} expires in {}",
                NAMES[index_of(document.leader)],
                document.epoch,
                document.expires.0 as i64 - WALL.0 as i64
            );
        }
        text
    }
}
