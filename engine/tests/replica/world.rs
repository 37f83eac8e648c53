//! Two nodes, one shard, one bucket, and everything that may happen to them in any order.

use std::collections::BTreeMap;

use duolog_engine::ids::{LeaseEpoch, Lsn, MonoMs, NodeId};
use duolog_engine::replica::BlockEnd;
use duolog_engine::replica::chain::header::{ObjectHeader, ObjectKind};
use duolog_engine::replica::chain::object::Object;
use duolog_engine::replica::chain::{ObjectId, ObjectPlace, Seq};
use duolog_engine::replica::hello::{Fork, HelloLog, fork};
use duolog_engine::replica::promotion::{PutOutcome, StoredChain};
use duolog_engine::segment::LogEnd;

use crate::bucket::{Bucket, Caller, Put};
use crate::chance::Chance;
use crate::leader::Leading;
use crate::log::{CLUSTER, Log, LogBlock, SHARD};
use crate::mistake::Mistake;
use crate::promoter::Promoting;

const EPOCHS_MAX: u64 = 7;
const BLOCKS_MAX: u64 = 24;

#[derive(Debug)]
pub enum Role {
    Idle,
    Following(u64),
    Promoting(Box<Promoting>),
    Leading(Box<Leading>),
}

#[derive(Debug)]
pub struct Node {
    pub id: NodeId,
    pub log: Log,
    pub promised: u64,
    /// A lower bound of what is committed, on disk.
    pub mark: Lsn,
    /// What a leader has told of its chain.
    pub stored: Option<StoredChain>,
    pub role: Role,
    pub life: u32,
}

/// What a leader sent, or may have sent, in its reign; any of it may still be under way.
#[derive(Debug)]
pub struct Reign {
    pub leader: usize,
    pub start: Log,
    pub log: Vec<LogBlock>,
    pub acked: [Lsn; 2],
    pub committed: Lsn,
}

pub struct World {
    pub chance: Chance,
    pub mistake: Option<Mistake>,
    pub now: MonoMs,
    pub bucket: Bucket,
    pub lease: (usize, u64),
    pub nodes: [Node; 2],
    pub reigns: BTreeMap<u64, Reign>,
    /// Everything that any leader ever held for committed.
    pub ghost: Vec<BlockEnd>,
    pub opened: u64,
    pub blocks: u64,
    pub violation: Option<String>,
    /// What happened how often.
    pub seen: BTreeMap<&'static str, u64>,
}

pub fn place(epoch: u64, seq: Seq) -> ObjectPlace {
    ObjectPlace { shard: SHARD, epoch: LeaseEpoch(epoch), seq }
}

pub fn object_id(place: ObjectPlace) -> ObjectId {
    ObjectId { cluster: CLUSTER, place }
}

impl World {
    pub fn new(seed: u64, mistake: Option<Mistake>) -> Self {
        let node = |id| Node {
            id: NodeId(id),
            log: Log::default(),
            promised: 0,
            mark: Lsn(0),
            stored: None,
            role: Role::Idle,
            life: 0,
        };
        Self {
            chance: Chance::new(seed),
            mistake,
            now: MonoMs(0),
            bucket: Bucket::default(),
            lease: (0, 0),
            nodes: [node(1), node(2)],
            reigns: BTreeMap::new(),
            ghost: Vec::new(),
            opened: 0,
            blocks: 0,
            violation: None,
            seen: BTreeMap::new(),
        }
    }

    pub fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    pub fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// Whether `node` holds the newest lease at `epoch`.
    pub fn holds_lease(&self, node: usize, epoch: u64) -> bool {
        self.lease == (node, epoch)
    }

    pub fn caller(&self, node: usize, reign: u64) -> Option<Caller> {
        Some(Caller { node, life: self.nodes[node].life, reign })
    }

    /// One thing happens.
    pub fn step(&mut self) {
        self.now = self.now.plus(self.chance.next() % 60);
        let node = self.chance.below(2);
        match self.chance.below(32) {
            0 if self.chance.one_in(2) => self.challenge(node),
            1 if self.chance.one_in(6) => self.crash(node),
            2..4 => self.hello(node),
            4..9 => self.receive(node),
            9..12 => self.sync(node),
            12..18 => self.land(),
            18 => self.give_up(),
            19 => self.land_delete(),
            20..26 if matches!(self.nodes[node].role, Role::Promoting(_)) => self.promote(node),
            20..32 => self.lead(node),
            _ => {}
        }
    }

    /// A node takes the lease, at whatever moment: clocks decide when, never whether it is safe.
    pub fn challenge(&mut self, node: usize) {
        let (holder, epoch) = self.lease;
        let runs = holder == node
            && match &self.nodes[node].role {
                Role::Promoting(promoting) => promoting.epoch == epoch,
                // G3: now and then a leader takes a new reign on itself.
                Role::Leading(leading) => leading.epoch == epoch && !self.chance.one_in(4),
                Role::Idle | Role::Following(_) => false,
            };
        let fresh = epoch + 1;
        if runs || fresh > EPOCHS_MAX || self.nodes[node].promised > fresh {
            return;
        }
        self.take_lease(node, fresh);
    }

    /// The compare-and-swap was won, and its promise is on disk (P1).
    pub fn take_lease(&mut self, node: usize, fresh: u64) {
        self.lease = (node, fresh);
        let state = &mut self.nodes[node];
        state.promised = fresh;
        // All of the own log is durable before a promotion begins.
        state.log.durable = state.log.blocks.len();
        let promoting = Promoting::new(state, fresh, &self.bucket);
        state.role = Role::Promoting(Box::new(promoting));
        self.saw("challenge");
    }

    pub fn crash(&mut self, node: usize) {
        let state = &mut self.nodes[node];
        let durable = state.log.durable;
        state.log.blocks.truncate(durable);
        state.role = Role::Idle;
        state.stored = None;
        state.life += 1;
        self.saw("crash");
    }

    fn current(&self, node: usize) -> u64 {
        match &self.nodes[node].role {
            Role::Idle => 0,
            Role::Following(epoch) => *epoch,
            Role::Promoting(promoting) => promoting.epoch,
            Role::Leading(leading) => leading.epoch,
        }
    }

    /// A hello of any reign, early or late, once or again.
    pub fn hello(&mut self, node: usize) {
        let epochs: Vec<u64> = self.reigns.keys().copied().collect();
        if epochs.is_empty() {
            return;
        }
        let newest = self.chance.one_in(2);
        let at = if newest { epochs.len() - 1 } else { self.chance.below(epochs.len()) };
        self.hello_of(epochs[at], node);
    }

    pub fn hello_of(&mut self, epoch: u64, node: usize) {
        let current = self.current(node);
        let refused = epoch < self.nodes[node].promised && !self.makes(Mistake::PromiseIgnored);
        if refused || epoch < current || self.reigns[&epoch].leader == node {
            return;
        }
        if matches!(self.nodes[node].role, Role::Promoting(_) | Role::Leading(_)) {
            self.saw("a leader or promoter follows");
        }
        let reign = &self.reigns[&epoch];
        let marks = reign.start.marks();
        let end = reign.start.end();
        let hello = HelloLog { epoch: LeaseEpoch(epoch), end, marks: &marks, complete: true };
        let own = &self.nodes[node].log;
        let mut fork = fork(&own.marks(), true, &own.end(), &hello);
        if self.makes(Mistake::AckWithoutCut) {
            fork = Fork::Keep;
        }
        if self.makes(Mistake::SecondHelloCuts) && current == epoch && own.end().lsn > end.lsn {
            fork = Fork::CutAfter { lsn: end.lsn };
        }
        if !self.makes(Mistake::PromiseForgotten) {
            self.nodes[node].promised = self.nodes[node].promised.max(epoch);
        }
        match fork {
            Fork::Keep => {}
            Fork::CutAfter { lsn } => {
                self.saw("hello cuts");
                self.cut(node, lsn, "a hello");
            }
            Fork::TooOld | Fork::Impossible { .. } => {
                return self.violate(format!("no fork: {fork:?}"));
            }
        }
        self.nodes[node].role = Role::Following(epoch);
        self.ack(node, epoch);
    }

    /// R4 and more: no node of the pair ever cuts what anybody acknowledged.
    pub fn cut(&mut self, node: usize, lsn: Lsn, by: &str) {
        let log = &self.nodes[node].log;
        if let Some(lost) = self.ghost.iter().find(|end| end.lsn > lsn && log.contains(**end)) {
            let what = format!("R4: {by} cut node {node} to {lsn}; {} is acknowledged", lost.lsn);
            self.violate(what);
        }
        self.nodes[node].log.cut(lsn);
    }

    fn ack(&mut self, node: usize, epoch: u64) {
        let durable = self.nodes[node].log.durable_end().lsn;
        if let Some(reign) = self.reigns.get_mut(&epoch) {
            let sent = reign.log.last().map_or(Lsn(0), |block| block.end.lsn);
            reign.acked[node] = reign.acked[node].max(durable.min(sent));
        }
    }

    /// A follower receives the next block of the reign it follows.
    pub fn receive(&mut self, node: usize) {
        let Role::Following(epoch) = self.nodes[node].role else { return };
        let reign = &self.reigns[&epoch];
        let end = BlockEnd::of(&self.nodes[node].log.end());
        let next = reign.log.iter().find(|block| block.previous == end).cloned();
        let committed = reign.committed;
        if let Some(block) = next {
            self.nodes[node].log.push(block);
        }
        if self.chance.one_in(2) {
            let state = &mut self.nodes[node];
            state.mark = state.mark.max(committed.min(state.log.durable_end().lsn));
            state.mark = state.log.end_at(state.mark).map_or(Lsn(0), |end| end.lsn);
        }
    }

    /// A disk finishes some writes; a follower acks while it follows.
    pub fn sync(&mut self, node: usize) {
        let log = &mut self.nodes[node].log;
        let under_way = log.blocks.len() - log.durable;
        if under_way == 0 {
            return;
        }
        log.durable += 1 + self.chance.below(under_way);
        match self.nodes[node].role {
            Role::Following(epoch) => self.ack(node, epoch),
            Role::Leading(_) => self.commit(node),
            Role::Idle | Role::Promoting(_) => {}
        }
    }

    pub fn send(&mut self, put: Put) {
        self.bucket.puts.push(put);
    }

    /// A PUT arrives.
    pub fn land(&mut self) {
        if self.bucket.puts.is_empty() {
            return;
        }
        let at = self.chance.below(self.bucket.puts.len());
        let mut put = self.bucket.puts.swap_remove(at);
        let outcome = self.store(&put);
        let answered = !self.chance.one_in(5);
        if self.chance.one_in(8) {
            // Something on the way sends it again, later.
            self.send(Put { caller: None, ..put.clone() });
        }
        if let Some(caller) = put.caller.take() {
            let outcome = if answered { outcome } else { PutOutcome::Unknown };
            self.answer(caller, put.place, outcome);
        }
    }

    pub fn store(&mut self, put: &Put) -> PutOutcome {
        if self.bucket.objects.contains_key(&put.place) {
            return PutOutcome::Exists;
        }
        let header = ObjectHeader::decode(&put.bytes).unwrap();
        let late = match put.caller {
            None => true,
            Some(Caller { node, life, reign }) => {
                self.nodes[node].life != life || self.current(node) != reign
            }
        };
        if late {
            self.saw("a PUT landed after its caller had gone");
        }
        let epoch = put.place.epoch.0;
        if header.kind == ObjectKind::Open && epoch > self.opened {
            self.opened = epoch;
            let opens = put.opens.as_ref().unwrap();
            if let Some(lost) = self.ghost.iter().find(|end| !opens.contains(end)) {
                let lsn = lost.lsn;
                self.violate(format!("P5: epoch {epoch} opens without LSN {lsn}, acknowledged"));
            }
        }
        self.bucket.objects.insert(put.place, put.bytes.clone());
        PutOutcome::Stored
    }

    /// A caller hears nothing of its PUT, which may land later or never.
    fn give_up(&mut self) {
        if self.bucket.puts.is_empty() {
            return;
        }
        let at = self.chance.below(self.bucket.puts.len());
        let put = &mut self.bucket.puts[at];
        let (caller, place) = (put.caller.take(), put.place);
        if self.chance.one_in(2) {
            self.bucket.puts.swap_remove(at);
        }
        if let Some(caller) = caller {
            self.answer(caller, place, PutOutcome::Unknown);
        }
    }

    fn answer(&mut self, caller: Caller, place: ObjectPlace, outcome: PutOutcome) {
        let state = &self.nodes[caller.node];
        if state.life != caller.life || self.current(caller.node) != caller.reign {
            return;
        }
        match state.role {
            Role::Promoting(_) => self.promotion_put(caller.node, place, outcome),
            Role::Leading(_) => self.uploader_put(caller.node, place, outcome),
            Role::Idle | Role::Following(_) => {}
        }
    }

    fn land_delete(&mut self) {
        if self.bucket.deletes.is_empty() {
            return;
        }
        let at = self.chance.below(self.bucket.deletes.len());
        let place = self.bucket.deletes.swap_remove(at);
        if self.bucket.objects.remove(&place).is_some() {
            self.saw("an object was deleted");
        }
    }

    /// Everything up to `lsn` of `node`'s log is committed.
    pub fn note_committed(&mut self, node: usize, lsn: Lsn) {
        let log = &self.nodes[node].log;
        let committed = &log.ends()[..log.count(lsn)];
        let common = committed.iter().zip(&self.ghost).take_while(|(own, all)| own == all).count();
        if common < committed.len().min(self.ghost.len()) {
            let other = committed[common].lsn;
            return self.violate(format!("two different blocks are committed at LSN {other}"));
        }
        let news = committed[common..].to_vec();
        self.ghost.extend(news);
    }

    pub fn append_allowed(&mut self) -> Option<u64> {
        if self.blocks == BLOCKS_MAX {
            return None;
        }
        self.blocks += 1;
        Some(self.blocks)
    }

    pub fn decode_ends(&self, place: ObjectPlace, bytes: &[u8]) -> Vec<(LogEnd, LogBlock)> {
        let mut room = Vec::new();
        let object = Object::decode(bytes, object_id(place), &mut room).unwrap();
        let blocks = object.blocks().map(|(_, block)| LogBlock::of(block));
        blocks.map(|block| (block.end, block)).collect()
    }
}
