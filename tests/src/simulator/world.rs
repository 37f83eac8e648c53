//! The two nodes and what is between them, in one order of time.

use std::collections::BTreeMap;

use duolog_engine::ids::{LeaseEpoch, Lsn, NodeId};
use duolog_engine::replica::promotion::Event as PromotionEvent;
use duolog_engine::replica::uploader::Event as UploaderEvent;
use duolog_engine::shard::Event as ShardEvent;
use duolog_lease::document::Document;
use duolog_lease::event::Event as LeaseEvent;
use duolog_net::peer::{
    PeerChain, PeerHello, PeerMessage, PeerReader, PeerReason, PeerWelcome, Purpose,
};

use super::checks::Ledger;
use super::clients::Clients;
use super::faults::Fault;
use super::network::{ConnId, Network, Side};
use super::node::{CLUSTER, Node, Peer, Process, ToNode, Use};
use super::plan::{Mistake, Plan};
use super::store::{Ask, Asker, Bucket, Key, Told};
use super::trace::Trace;
use crate::sim::chance::Chance;
use crate::sim::digest::Digest;

/// After the faults everything has to heal within this time, us.
const HEAL_MAX_US: u64 = 240_000_000;
/// How often is looked whether it has, us.
const LOOK_US: u64 = 200_000;
/// A dialled node that does not answer, us.
const DIAL_MAX_US: u64 = 1_000_000;
/// Pause of a shard's and a seeker's loops, us.
const TICK_US: u64 = 100_000;
const SEEK_US: u64 = 200_000;

/// Something that happens at its time.
pub enum Due {
    Node { node: usize, life: u32, what: ToNode },
    Wire { conn: ConnId, from: Side },
    Closed { conn: ConnId, side: Side, since: u64 },
    Dial { from: usize, life: u32, heartbeat: bool, hello: Vec<u8> },
    Land { ask: Ask, caller: Option<((usize, u32), Asker, u64)>, late: bool },
    Client(usize),
    Fault,
    Begin(Fault, u64),
    EndOf(Fault),
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
            self.after(us, Due::Client(client));
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
            Due::Client(client) => self.client(client),
            Due::Fault => self.fault(),
            Due::Begin(fault, lasts_ms) => self.begin(fault, lasts_ms),
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
            ToNode::Request { request, bytes } => self.request(node, request, &bytes),
            ToNode::Read { client, stream } => self.read(node, client, stream),
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

    /// Says something on a connection; false if it is closed.
    pub fn say(&mut self, node: usize, conn: ConnId, encode: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        let side = self.side_of(node, conn);
        side.is_some_and(|side| self.send(conn, side, bytes))
    }

    fn side_of(&self, node: usize, conn: ConnId) -> Option<Side> {
        let known = self.network.conns.get(&conn)?;
        known.ends.iter().position(|(end, life)| (*end, *life) == (node, self.nodes[node].life))
    }

    /// Ends a connection from this side.
    pub fn hang_up(&mut self, node: usize, conn: ConnId) {
        let side = self.side_of(node, conn);
        let process = self.process(node);
        process.peers.remove(&conn);
        if process.beat_in == Some(conn) {
            process.beat_in = None;
        }
        if process.beat_out == Some(conn) {
            process.beat_out = None;
        }
        if let Some(side) = side {
            self.close(conn, side);
        }
    }

    pub fn beat_in_of(&mut self, node: usize, from: NodeId) -> Option<ConnId> {
        let process = self.process(node);
        let conn = process.beat_in?;
        let is_of = |peer: &Peer| matches!(peer.used, Use::BeatIn(id) if id == from);
        process.peers.get(&conn).is_none_or(is_of).then_some(conn)
    }

    /// Dials the other node.
    pub fn dial(&mut self, node: usize, heartbeat: bool, hello: &PeerHello) {
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        let (from, life) = (node, self.nodes[node].life);
        let us = self.plan.wire_us;
        self.after(us, Due::Dial { from, life, heartbeat, hello: bytes });
    }

    fn dialled(&mut self, from: usize, life: u32, heartbeat: bool, hello: &[u8]) {
        if self.nodes[from].life != life || self.nodes[from].process.is_none() {
            return;
        }
        let to = 1 - from;
        let runs = self.nodes[to].process.is_some();
        if !runs
            || self.network.blocked != [false, false]
            || self.nodes[to].frozen_until(self.now_us).is_some()
        {
            return self.soon(from, DIAL_MAX_US, ToNode::NotConnected { heartbeat });
        }
        let conn = self.connect(from, to);
        let used = if heartbeat { Use::BeatOut } else { Use::BlocksOut };
        let dialler = Peer { reader: PeerReader::of_dialled(), used };
        self.process(from).peers.insert(conn, dialler);
        let acceptor = Peer { reader: PeerReader::of_accepted(), used: Use::Greeting };
        self.process(to).peers.insert(conn, acceptor);
        self.send(conn, 0, hello.to_vec());
        if heartbeat {
            let process = self.process(from);
            process.seeking = false;
            if let Some(before) = process.beat_out.replace(conn) {
                self.hang_up(from, before);
            }
        } else {
            self.blocks_connected(from, conn);
        }
    }

    /// Bytes arrive at an end.
    pub fn receive(&mut self, node: usize, conn: ConnId, bytes: &[u8]) {
        let Some(peer) = self.process(node).peers.get_mut(&conn) else { return };
        peer.reader.push(bytes);
        self.resume_reading(node, conn);
    }

    /// Takes the messages that have come, as far as they may be taken now.
    pub fn resume_reading(&mut self, node: usize, conn: ConnId) {
        let Some(mut peer) = self.process(node).peers.remove(&conn) else { return };
        let mut blocks = false;
        let healthy = loop {
            if matches!(peer.used, Use::BlocksIn) && self.taking(node, conn).is_none() {
                break true;
            }
            match peer.reader.next_message() {
                Ok(Some(message)) => {
                    blocks |= matches!(message, PeerMessage::Block { .. });
                    if !self.take(node, conn, &mut peer.used, &message) {
                        break false;
                    }
                }
                Ok(None) => break true,
                Err(error) => panic!("the pair's own bytes are read: {error}"),
            }
        };
        if healthy
            && self.side_of(node, conn).is_some_and(|side| self.network.conns[&conn].open[side])
        {
            self.process(node).peers.insert(conn, peer);
        } else {
            self.hang_up(node, conn);
            self.connection_ended(node, conn);
        }
        if blocks {
            self.shard_step(node, ShardEvent::Flush);
        }
    }

    /// One message; false ends the connection.
    fn take(
        &mut self,
        node: usize,
        conn: ConnId,
        used: &mut Use,
        message: &PeerMessage<'_>,
    ) -> bool {
        match (&*used, message) {
            (Use::Greeting, PeerMessage::Hello(hello)) => match hello.purpose {
                Purpose::Heartbeat => {
                    *used = Use::BeatIn(hello.from);
                    self.greet_heartbeat(node, conn, hello);
                }
                _ => {
                    *used = Use::BlocksIn;
                    self.blocks_hello(node, conn, hello.clone());
                }
            },
            (Use::BeatOut, PeerMessage::Welcome(_)) => {
                self.process(node).target = true;
                self.dial_shard(node);
            }
            (Use::BeatOut, PeerMessage::HeartbeatAcked(acked)) => {
                let (from, epoch, sent) = (acked.from, acked.epoch, acked.sent);
                self.lease_step(node, LeaseEvent::HeartbeatAcked { from, epoch, sent });
            }
            (Use::BeatOut | Use::BlocksOut, PeerMessage::Refused(refused)) => {
                if let Some(refusal) = refused.lease_refusal() {
                    let (from, epoch) = (refused.from, refused.epoch);
                    self.saw("a refusal arrives");
                    self.lease_step(node, LeaseEvent::Refused { from, epoch, refusal });
                }
                let cut_refused = refused.reason() == Some(PeerReason::CutRefused);
                assert!(!cut_refused, "R4: {refused}");
                return matches!(used, Use::BeatOut);
            }
            (Use::BlocksOut, PeerMessage::Welcome(welcome)) => self.welcomed(node, welcome),
            (Use::BlocksOut, PeerMessage::Acked(acked)) => {
                self.take_ack(node, acked.epoch, acked.durable);
            }
            (Use::BeatIn(from), PeerMessage::Heartbeat(beat)) if beat.from == *from => {
                self.take_heartbeat(node, beat);
            }
            (Use::BeatIn(from), PeerMessage::Resign(resign)) if resign.from == *from => {
                self.take_resignation(node, resign);
            }
            (Use::BlocksIn, message) => {
                let Some(epoch) = self.taking(node, conn) else { return false };
                match message {
                    PeerMessage::Block { epoch: sender, block } if *sender == epoch => {
                        let event = ShardEvent::Received { epoch, block };
                        self.shard_step(node, event);
                    }
                    PeerMessage::Commit(commit) if commit.epoch == epoch => {
                        self.take_commit(node, epoch, commit.lsn);
                    }
                    PeerMessage::Chain(PeerChain(stored)) if stored.epoch == epoch => {
                        self.process(node).stored_chain = Some(*stored);
                    }
                    _ => return false,
                }
            }
            (used, message) => panic!("{used:?} brings {message:?}"),
        }
        true
    }

    fn greet_heartbeat(&mut self, node: usize, conn: ConnId, hello: &PeerHello) {
        let promised = self.process(node).lease.promised().0;
        let (epoch, cluster, from) = (hello.epoch, CLUSTER, self.nodes[node].id);
        let (end, committed) = (PeerWelcome::NO_END, Lsn(0));
        let welcome = PeerWelcome { epoch, cluster, from, promised, end, committed };
        self.say(node, conn, |frame| welcome.encode(frame));
        if let Some(before) = self.process(node).beat_in.replace(conn) {
            self.hang_up(node, before);
            self.process(node).beat_in = Some(conn);
        }
    }

    /// A connection of this node is over.
    pub fn connection_ended(&mut self, node: usize, conn: ConnId) {
        let Some(process) = self.nodes[node].process.as_mut() else { return };
        process.peers.remove(&conn);
        if process.beat_out == Some(conn) {
            process.beat_out = None;
            let sent = process.last_beat;
            self.tell_control(node, LeaseEvent::HeartbeatFailed { sent });
        } else if process.beat_in == Some(conn) {
            process.beat_in = None;
        } else if process.outbound.as_ref().is_some_and(|link| link.conn == conn) {
            self.link_lost(node);
        } else if process.inbound.as_ref().is_some_and(|link| link.conn == conn) {
            process.inbound = None;
        }
    }
}
