//! The two nodes and what is between them, in one order of time.

use std::collections::BTreeMap;

use super::checks::Ledger;
use super::clients::Clients;
use super::faults::Fault;
use super::network::{ConnId, Network, Side};
use super::node::{CLUSTER, Node, Process, ToNode};
use super::plan::{Mistake, Plan};
use super::sessions::LineId;
use super::store::{Ask, Asker, Bucket, Key, Told};
use super::tail::{TAILS, Tail};
use super::trace::Trace;
use crate::sim::chance::Chance;
use crate::sim::digest::Digest;
use duolog_engine::ids::{LeaseEpoch, NodeId};
use duolog_engine::replica::promotion::Event as PromotionEvent;
use duolog_engine::replica::uploader::Event as UploaderEvent;
use duolog_engine::shard::Event as ShardEvent;
use duolog_lease::document::Document;
use duolog_lease::event::Event as LeaseEvent;

/// After the faults everything has to heal within this time, us.
const HEAL_MAX_US: u64 = 240_000_000;
/// How often is looked whether it has, us.
const LOOK_US: u64 = 200_000;
/// Pause of a shard's and a seeker's loops, us.
const TICK_US: u64 = 100_000;
const SEEK_US: u64 = 200_000;

/// Something that happens at its time.
pub enum Due {
    Node {
        node: usize,
        life: u32,
        what: ToNode,
    },
    Wire {
        conn: ConnId,
        from: Side,
    },
    Closed {
        conn: ConnId,
        side: Side,
        since: u64,
    },
    Dial {
        from: usize,
        life: u32,
        heartbeat: bool,
        hello: Vec<u8>,
    },
    Land {
        ask: Ask,
        caller: Option<((usize, u32), Asker, u64)>,
        late: bool,
    },
    Client(usize),
    /// Bytes of a node arrive at a client.
    ToClient {
        client: usize,
        line: LineId,
        bytes: Vec<u8>,
    },
    Fault,
    Begin(Fault, u64),
    EndOf(Fault),
    /// Somebody asks for a lost node, this one, to be replaced by the one in its place.
    Operator(usize, NodeId),
    Tail(usize),
    Look,
}

/// See the module.
pub struct World {
    pub plan: Plan,
    pub chance: Chance,
    pub now_us: u64,
    queue: BTreeMap<(u64, u64), Due>,
    queued: u64,
    pub nodes: [Node; 2],
    pub network: Network,
    pub bucket: Bucket,
    pub clients: Clients,
    pub ledger: Ledger,
    pub digest: Digest,
    pub trace: Trace,
    pub seen: BTreeMap<&'static str, u64>,
    /// No more faults; everything has to become well.
    pub healing: bool,
    pub done: bool,
    /// A disk was lost already: a pair survives one at a time.
    pub lost: bool,
    /// The node whose disk is lost, until another one has taken its place.
    pub gone: Option<usize>,
    pub tails: Vec<Tail>,
}

impl World {
    pub fn new(plan: Plan) -> Self {
        let trace = Trace { wanted: plan.trace };
        Self {
            chance: Chance::new(plan.seed, "world"),
            now_us: 0,
            queue: BTreeMap::new(),
            queued: 0,
            nodes: [Node::new(&plan, 0), Node::new(&plan, 1)],
            network: Network::default(),
            bucket: Bucket::default(),
            clients: Clients::new(&plan),
            ledger: Ledger::default(),
            digest: Digest::new(plan.seed),
            trace,
            seen: BTreeMap::new(),
            healing: false,
            done: false,
            lost: false,
            gone: None,
            tails: vec![Tail::default(); TAILS],
            plan,
        }
    }

    /// Faults for the plan's time, then peace until all is well.
    pub fn run(&mut self) {
        for node in [0, 1] {
            self.start(node);
        }
        for client in 0..self.plan.clients {
            let us = self.chance.below(self.plan.think_us);
            self.wake(client, us);
        }
        for tail in 0..TAILS {
            self.after(LOOK_US, Due::Tail(tail));
        }
        self.after(self.plan.fault_pause_ms * 1000, Due::Fault);
        let calm_us = self.plan.faulty_ms * 1000;
        self.after(calm_us, Due::Look);
        while let Some(((at, _), due)) = self.queue.pop_first() {
            self.now_us = at;
            if !self.healing && at >= calm_us {
                self.heal();
            }
            assert!(at < calm_us + HEAL_MAX_US, "H1: not healed: {:?}", self.ailment());
            self.happen(due);
            if self.done {
                break;
            }
        }
        assert!(self.done, "H1: nothing happens any more");
        self.check_end();
    }

    pub fn at(&mut self, at_us: u64, due: Due) {
        self.queued += 1;
        self.queue.insert((at_us.max(self.now_us), self.queued), due);
    }

    pub fn after(&mut self, us: u64, due: Due) {
        self.at(self.now_us + us, due);
    }

    pub fn node_at(&mut self, node: usize, at_us: u64, what: ToNode) {
        let life = self.nodes[node].life;
        self.at(at_us, Due::Node { node, life, what });
    }

    pub fn soon(&mut self, node: usize, us: u64, what: ToNode) {
        self.node_at(node, self.now_us + us, what);
    }

    pub fn process(&mut self, node: usize) -> &mut Process {
        self.nodes[node].process.as_mut().expect("only a running node is asked")
    }

    pub fn makes(&self, mistake: Mistake) -> bool {
        self.plan.mistake == Some(mistake)
    }

    pub fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub fn note(&mut self, node: usize, text: impl FnOnce() -> String) {
        self.trace.note(self.now_us, ["node 1", "node 2"][node], text);
    }

    /// What the bucket says of the lease.
    pub fn holds_lease(&self, node: usize, epoch: LeaseEpoch) -> bool {
        let document = self.bucket.get(Key::Lease).map(|body| Document::decode(body, CLUSTER));
        let document = document.and_then(Result::ok);
        document.is_some_and(|lease| (lease.leader, lease.epoch) == (self.nodes[node].id, epoch))
    }

    /// A node starts with what its disk has.
    pub fn start(&mut self, node: usize) {
        self.nodes[node].life += 1;
        self.nodes[node].frozen = None;
        self.look_for_damage(node);
        let process = self.nodes[node].boot(
            &mut self.chance,
            self.plan.timings,
            Mistake::planted(self.plan.mistake),
        );
        self.nodes[node].process = Some(Box::new(process));
        let promised = self.nodes[node].promised;
        self.note(node, || format!("starts; it has promised epoch {}", promised.0));
        self.check_started(node);
        self.lease_step(node, LeaseEvent::Boot { promised });
        self.shard_step(node, ShardEvent::Tick);
        self.soon(node, TICK_US, ToNode::Tick);
        self.soon(node, SEEK_US, ToNode::Seek);
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Node { node, life, what } => self.node_happens(node, life, what),
            Due::Wire { conn, from } => self.deliver(conn, from),
            Due::Closed { conn, side, since } => self.hear_closed(conn, side, since),
            Due::Dial { from, life, heartbeat, hello } => {
                self.dialled(from, life, heartbeat, &hello);
            }
            Due::Land { ask, caller, late } => self.land(&ask, caller, late),
            Due::ToClient { client, line, bytes } => self.hear_node(client, line, &bytes),
            Due::Client(client) => self.client(client),
            Due::Fault => self.fault(),
            Due::Begin(fault, lasts_ms) => self.begin(fault, lasts_ms),
            Due::Operator(node, dead) => self.operator(node, dead),
            Due::Tail(tail) => self.tail(tail),
            Due::EndOf(fault) => self.end_fault(fault),
            Due::Look => {
                self.done = self.healing && self.ailment().is_none();
                self.after(LOOK_US, Due::Look);
            }
        }
    }

    fn node_happens(&mut self, node: usize, life: u32, what: ToNode) {
        if self.nodes[node].life != life || self.nodes[node].process.is_none() {
            return;
        }
        if let Some(thawed) = self.nodes[node].frozen_until(self.now_us) {
            // A write that the kernel has goes on without the process.
            return self.node_at(node, thawed, what);
        }
        match what {
            ToNode::Lease(event) => self.lease_step(node, event),
            ToNode::LeaseTimer(at) => self.lease_timer(node, at),
            ToNode::Shard(message) => self.hear(node, message),
            ToNode::Flush => {
                self.process(node).flush_due = false;
                self.shard_step(node, ShardEvent::Flush);
            }
            ToNode::Written(write, first_lsn) => self.written(node, write, first_lsn),
            ToNode::Prepared(generation) => self.prepared(node, generation),
            ToNode::IndexSaved(generation, cuts) => {
                if self.process(node).cuts == cuts {
                    self.shard_step(node, ShardEvent::IndexSaved { generation });
                }
            }
            ToNode::Marked(end) => self.nodes[node].keep_mark(end),
            ToNode::Promised(epoch) => self.promise_durable(node, epoch),
            ToNode::Tick => {
                self.soon(node, TICK_US, ToNode::Tick);
                self.shard_step(node, ShardEvent::Tick);
                self.tick_pair(node);
            }
            ToNode::Seek => {
                self.soon(node, SEEK_US, ToNode::Seek);
                self.seek(node);
            }
            ToNode::DialShard => self.dial_shard(node),
            ToNode::NotConnected { heartbeat: true } => self.process(node).seeking = false,
            ToNode::NotConnected { heartbeat: false } => {
                self.process(node).dialling = false;
                self.redial_shard(node);
            }
            ToNode::Told(back, told) => self.told(node, &back, told),
            ToNode::UploadTick => {
                self.upload_step(node, UploaderEvent::Tick);
            }
            ToNode::PromotionTick => {
                self.promotion_step(node, PromotionEvent::Tick);
            }
            ToNode::FromClient { client, line, bytes } => {
                self.hear_client(node, client, line, &bytes);
            }
            ToNode::Died => self.die(node),
            ToNode::Resign => self.lease_step(node, LeaseEvent::ResignRequested),
        }
    }

    /// The bucket answers.
    fn told(&mut self, node: usize, back: &Asker, told: Told) {
        match back {
            Asker::LeaseRead(_) | Asker::LeaseWritten(_) => self.lease_told(node, back, told),
            Asker::PromotionGot(..) | Asker::PromotionPut(..) | Asker::PromotionListed(_) => {
                self.promotion_told(node, back, told);
            }
            Asker::BatchPut(..) | Asker::BatchRead(..) => self.batch_told(node, back, told),
            Asker::GarbageListed(_) | Asker::GarbageDeleted(_) => {
                self.garbage_told(node, back, told);
            }
        }
    }
}
