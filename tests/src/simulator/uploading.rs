//! The uploads to the running reign's chain.

use std::collections::BTreeMap;

use duolog_engine::block::BlockHeader;
use duolog_engine::ids::{LeaseEpoch, Lsn};
use duolog_engine::replica::BlockEnd;
use duolog_engine::replica::chain::header::{ObjectKind, Packing};
use duolog_engine::replica::chain::object::{Found, LsnRange, ObjectParts, encode};
use duolog_engine::replica::chain::{ObjectId, ObjectPlace, Seq};
use duolog_engine::replica::promotion::{PutOutcome, StoredChain};
use duolog_engine::replica::uploader::{Action, Event, Uploader, UploaderConfig, Wire};
use duolog_engine::shard::Event as ShardEvent;
use duolog_lease::event::Event as LeaseEvent;
use duolog_net::peer::PeerChain;

use super::leading::ReignLog;
use super::node::{CLUSTER, SHARD, ToNode};
use super::plan::Mistake;
use super::store::{Ask, Asker, Key, Told};
use super::world::World;

/// Objects under way at once.
pub const UPLOADS_MAX: usize = 4;
/// A Batch takes no further block at this size.
const BATCH_BYTES: u64 = 64 << 10;

/// The uploader of a reign, and what it was told.
#[derive(Debug)]
pub struct Uploading {
    pub log: ReignLog,
    machine: Uploader,
    closed: Lsn,
    committed: Lsn,
    wire: Wire,
    kept: BTreeMap<Seq, (LsnRange, Vec<u8>)>,
}

impl Uploading {
    /// Of a reign whose Open is stored.
    pub fn new(log: ReignLog, delay_ms: u64) -> Self {
        let config = UploaderConfig {
            epoch: log.epoch,
            delay_ms,
            in_flight_max: UPLOADS_MAX,
            batch_bytes: BATCH_BYTES,
        };
        let end = log.end.lsn;
        Self {
            machine: Uploader::new(config, end),
            closed: end,
            committed: end,
            wire: Wire::Away,
            kept: BTreeMap::new(),
            log,
        }
    }

    /// Objects that are kept for another attempt; blocks that wait for one, and their bytes.
    pub fn queued(&self) -> (usize, usize, u64) {
        let (blocks, bytes) = self.machine.waiting();
        (self.kept.len(), blocks, bytes)
    }
}

pub fn place_of(epoch: LeaseEpoch, seq: Seq) -> ObjectPlace {
    ObjectPlace { shard: SHARD, epoch, seq }
}

pub fn id_of(place: ObjectPlace) -> ObjectId {
    ObjectId { cluster: CLUSTER, place }
}

pub fn put_outcome(told: &Told) -> PutOutcome {
    match told {
        Told::Stored(_) => PutOutcome::Stored,
        Told::Conflict => PutOutcome::Exists,
        _ => PutOutcome::Unknown,
    }
}

impl World {
    /// Whether another member acks in time under every set in force.
    fn wire(&mut self, node: usize) -> Wire {
        let own = self.nodes[node].id;
        let now = self.nodes[node].now(self.now_us).mono.ms();
        let limit_ms = self.plan.timings.heartbeat_lease_ms();
        let process = self.process(node);
        let Some((in_sync, proposal)) = process.members else { return Wire::Away };
        let committed = process.shard.committed().lsn;
        let link = process.outbound.as_ref().and_then(|outbound| outbound.link.as_ref());
        let caught_up = link.filter(|link| link.is_caught_up(committed));
        let silent = caught_up.is_some_and(|link| link.is_silent(now, limit_ms));
        let counts = |peer| !silent && caught_up.is_some_and(|link| link.node() == peer);
        let mut sets = [Some(in_sync), proposal].into_iter().flatten();
        let covers = sets.all(|set| set.other(own).is_some_and(counts));
        let wire = if covers && process.reachable { Wire::Covers } else { Wire::Away };
        if silent && process.reachable {
            self.saw("a follower acks heartbeats and no block");
        }
        wire
    }

    /// Tells the uploader what has changed.
    pub fn look_at_chain(&mut self, node: usize) {
        let now_wire = self.wire(node);
        let process = self.process(node);
        let Some(uploading) = &mut process.uploading else { return };
        let (end, now_committed) = (process.shard.end().lsn, process.shard.committed().lsn);
        if now_wire == Wire::Away && now_committed > uploading.committed {
            uploading.committed = now_committed;
            self.upload_step(node, Event::Committed { lsn: now_committed });
        }
        let Some(uploading) = &mut self.process(node).uploading else { return };
        if uploading.wire != now_wire {
            uploading.wire = now_wire;
            self.upload_step(node, Event::Wire(now_wire));
        }
        let Some(uploading) = &mut self.process(node).uploading else { return };
        uploading.closed = uploading.closed.max(now_committed);
        if now_wire == Wire::Covers {
            return;
        }
        loop {
            let process = self.process(node);
            let Some(uploading) = &mut process.uploading else { return };
            if uploading.closed >= end {
                return;
            }
            let block = process.shard.in_memory_block(uploading.closed.next());
            let Some(header) = block.and_then(|block| BlockHeader::decode(block).ok()) else {
                return;
            };
            let (last_lsn, bytes) = (header.last_lsn(), header.length() as u64);
            uploading.closed = last_lsn;
            self.upload_step(node, Event::Closed { last_lsn, bytes });
        }
    }

    pub fn uploader_granted(&mut self, node: usize) {
        let grant = self.process(node).grant;
        self.upload_step(node, Event::Grant(grant));
    }

    pub fn upload_step(&mut self, node: usize, event: Event) {
        let now = self.nodes[node].now(self.now_us).mono.ms();
        let Some(uploading) = &mut self.process(node).uploading else { return };
        let mut actions = Vec::new();
        uploading.machine.step(now, event, &mut actions);
        uploading.machine.check();
        let epoch = uploading.log.epoch;
        if let Some(at) = uploading.machine.deadline() {
            let due = self.nodes[node].clock.true_time(at.0 * 1000, self.now_us + 1000);
            self.node_at(node, due, ToNode::UploadTick);
        }
        for action in actions {
            self.upload(node, epoch, action);
        }
        self.tell_chain(node);
    }

    fn upload(&mut self, node: usize, epoch: LeaseEpoch, action: Action) {
        match action {
            Action::Upload { seq, range } => {
                let bytes = self.make_batch(node, epoch, seq, range);
                let uploading = self.process(node).uploading.as_mut().expect("it was stepped");
                uploading.kept.insert(seq, (range, bytes));
                self.put_batch(node, epoch, seq);
            }
            Action::Repeat { seq } => self.put_batch(node, epoch, seq),
            Action::ReadBack { seq } => {
                let place = place_of(epoch, seq);
                let back = Asker::BatchRead(epoch.0, place);
                self.ask(node, Ask::Get(Key::Object(place)), back);
            }
            Action::Release { seq } => {
                let Some(uploading) = &mut self.process(node).uploading else { return };
                let kept = uploading.kept.remove(&seq);
                if let Some((range, _)) = kept.filter(|_| self.makes(Mistake::HolesIgnored)) {
                    let lsn = range.last;
                    self.shard_step(node, ShardEvent::ChainStored { epoch, lsn });
                }
            }
            Action::ChainStored { lsn } => {
                self.saw("the chain covers");
                self.shard_step(node, ShardEvent::ChainStored { epoch, lsn });
                if self.makes(Mistake::RunningChainDeleted) {
                    let last = place_of(epoch, Seq::OPEN.next());
                    self.ask(node, Ask::Delete(Key::Object(last)), Asker::GarbageDeleted(0));
                }
            }
            Action::AskRenewal => {
                self.saw("an upload asks for a renewal");
                self.tell_control(node, LeaseEvent::RenewalWanted { epoch });
            }
            Action::Deposed { .. } => {
                self.saw("a leader meets a Seal in its chain");
                self.tell_control(node, LeaseEvent::ChainLost { epoch });
            }
        }
    }

    fn make_batch(&mut self, node: usize, epoch: LeaseEpoch, seq: Seq, range: LsnRange) -> Vec<u8> {
        self.make_object(node, place_of(epoch, seq), ObjectKind::Batch, None, range)
    }

    /// Makes an object of the blocks of `range`, which may be empty if there is a `base`.
    pub fn make_object(
        &mut self,
        node: usize,
        place: ObjectPlace,
        kind: ObjectKind,
        base: Option<BlockEnd>,
        range: LsnRange,
    ) -> Vec<u8> {
        let (mut blocks, mut base, mut next) = (Vec::new(), base, range.first);
        while next <= range.last {
            let block = self.nodes[node].block_behind(Lsn(next.0 - 1));
            let header = BlockHeader::decode(&block).expect("own blocks are whole");
            base.get_or_insert(BlockEnd { lsn: Lsn(next.0 - 1), hash: header.previous_hash });
            next = header.last_lsn().next();
            blocks.push(block);
        }
        let base = base.expect("C1: a Batch has blocks");
        let parts = ObjectParts { id: id_of(place), kind, node: self.nodes[node].id, base };
        let mut body = Vec::new();
        let made = encode(&parts, blocks.iter().map(Vec::as_slice), Packing::Lz4, &mut body);
        made.expect("C1: blocks that follow each other make an object");
        body
    }

    fn put_batch(&mut self, node: usize, epoch: LeaseEpoch, seq: Seq) {
        let Some(uploading) = &self.process(node).uploading else { return };
        let Some((_, bytes)) = uploading.kept.get(&seq) else { return };
        let (place, bytes) = (place_of(epoch, seq), bytes.clone());
        let back = Asker::BatchPut(epoch.0, place);
        self.ask(node, Ask::Create(Key::Object(place), bytes), back);
    }

    /// What became of a Batch.
    pub fn batch_told(&mut self, node: usize, back: &Asker, told: Told) {
        let (unknown, conflict) =
            (self.makes(Mistake::UnknownMeansStored), self.makes(Mistake::ConflictMeansStored));
        let Some(uploading) = &self.process(node).uploading else { return };
        let reign = uploading.log.epoch.0;
        let event = match back {
            Asker::BatchPut(epoch, place) if *epoch == reign => {
                let mut outcome = put_outcome(&told);
                if unknown && outcome == PutOutcome::Unknown {
                    outcome = PutOutcome::Stored;
                }
                Event::Put { seq: place.seq, outcome }
            }
            Asker::BatchRead(epoch, place) if *epoch == reign => {
                let Some((_, sent)) = uploading.kept.get(&place.seq) else { return };
                let mut found = match told {
                    Told::Found(body, _) => Some(Found::of(sent, Some(&body))),
                    Told::Absent => Some(Found::of(sent, None)),
                    _ => None,
                };
                if conflict && found.is_some() {
                    found = Some(Found::Own);
                }
                Event::ReadBack { seq: place.seq, found }
            }
            _ => return,
        };
        self.upload_step(node, event);
    }

    /// A follower that covers learns what is stored of the chain (P2a).
    fn tell_chain(&mut self, node: usize) {
        let process = self.process(node);
        let Some(uploading) = &process.uploading else { return };
        let (next, lsn) = uploading.machine.stored_chain();
        let epoch = uploading.log.epoch;
        if uploading.wire != Wire::Covers {
            return;
        }
        let Some(outbound) = &mut process.outbound else { return };
        if outbound.link.is_none() || std::mem::replace(&mut outbound.told_chain, next) == next {
            return;
        }
        let conn = outbound.conn;
        if let Some(end) = self.nodes[node].end_at(lsn) {
            let stored = StoredChain { epoch, next, end: BlockEnd::of(&end) };
            self.saw("a follower is told of the chain");
            self.say(node, conn, |frame| PeerChain(stored).encode(frame));
        }
    }
}
