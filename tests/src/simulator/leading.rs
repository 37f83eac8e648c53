//! The leader's side: its connections, the uploads to its chain, the collector.

use std::collections::BTreeMap;

use duolog_engine::block::BlockHeader;
use duolog_engine::ids::{LeaseEpoch, Lsn, NodeId};
use duolog_engine::replica::chain::header::{ObjectKind, Packing};
use duolog_engine::replica::chain::object::{Found, LsnRange, ObjectParts, encode};
use duolog_engine::replica::chain::{ObjectId, ObjectPlace, Seq};
use duolog_engine::replica::garbage;
use duolog_engine::replica::link::Link;
use duolog_engine::replica::promotion::{PutOutcome, StoredChain};
use duolog_engine::replica::uploader::{Action, Event, Uploader, UploaderConfig, Wire};
use duolog_engine::replica::{BlockEnd, EpochEnd};
use duolog_engine::segment::LogEnd;
use duolog_engine::shard::{Event as ShardEvent, Role};
use duolog_lease::event::Event as LeaseEvent;
use duolog_net::peer::{PeerChain, PeerCommit, PeerHello, PeerWelcome, Purpose, encode_block};

use super::collecting::Collecting;
use super::network::ConnId;
use super::node::{CLUSTER, LAYOUT, SHARD, ToNode};
use super::plan::Mistake;
use super::store::{Ask, Asker, Key, Told};
use super::world::World;

/// Pause before a connection of a shard is dialled again, us.
const REDIAL_US: u64 = 50_000;
/// The same when the follower has not welcomed it, us.
const REFUSED_US: u64 = 500_000;
/// A Batch takes no further block at this size.
const BATCH_BYTES: u64 = 64 << 10;

/// What a hello says of this reign; fixed at promotion.
#[derive(Clone, Debug)]
pub struct ReignLog {
    pub epoch: LeaseEpoch,
    pub end: LogEnd,
    pub marks: Vec<EpochEnd>,
    pub complete: bool,
}

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

/// The connection to the follower.
#[derive(Debug)]
pub struct OutLink {
    pub conn: ConnId,
    epoch: LeaseEpoch,
    /// Since the follower has welcomed it.
    link: Option<Link>,
    told_caught_up: bool,
    told_chain: Seq,
}

impl OutLink {
    pub fn is_to(&self, node: NodeId) -> bool {
        self.link.as_ref().is_some_and(|link| link.node() == node)
    }

    pub fn acked(&self) -> Lsn {
        self.link.as_ref().map_or(Lsn(0), Link::acked)
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
    /// The reign in which this node's shard leads.
    pub fn leading(&mut self, node: usize) -> Option<LeaseEpoch> {
        match self.process(node).shard.role() {
            Role::Leader { epoch } => Some(epoch),
            _ => None,
        }
    }

    /// The Open is stored: uploads, collecting and sending begin.
    pub fn begin_leading(&mut self, node: usize, log: ReignLog, base: Lsn) {
        let config = UploaderConfig {
            epoch: log.epoch,
            delay_ms: self.plan.replication_delay_ms,
            in_flight_max: 4,
            batch_bytes: BATCH_BYTES,
        };
        let (end, epoch) = (log.end.lsn, log.epoch);
        let id = self.nodes[node].id;
        let process = self.process(node);
        process.uploading = Some(Uploading {
            machine: Uploader::new(config, end),
            closed: end,
            committed: end,
            wire: Wire::Away,
            kept: BTreeMap::new(),
            log,
        });
        process.collecting = Some(Collecting::new(id, epoch, base));
        let members = process.members;
        self.uploader_granted(node);
        if let Some((in_sync, proposal)) = members {
            self.collect(node, garbage::Event::Members { in_sync, proposal });
        }
        if self.makes(Mistake::GarbageUnconditional) {
            let (peer, lsn) = (self.nodes[1 - node].id, Lsn(u64::MAX));
            self.collect(node, garbage::Event::Acked { node: peer, epoch, lsn });
        }
        self.dial_shard(node);
    }

    /// Looks for the other node while this one leads.
    pub fn seek(&mut self, node: usize) {
        let other = self.nodes[1 - node].id;
        let process = self.process(node);
        let leads = process.lease.grant().and_then(|_| process.lease.reign());
        let Some(epoch) = leads else {
            if let Some(conn) = process.beat_out.take() {
                self.hang_up(node, conn);
            }
            return;
        };
        let wanted = process.lease.admits(other).is_ok();
        if process.beat_out.is_some() || process.seeking || !wanted {
            return;
        }
        process.seeking = true;
        let hello = self.hello(node, epoch, Purpose::Heartbeat);
        self.dial(node, true, &hello);
    }

    fn hello(&self, node: usize, epoch: LeaseEpoch, purpose: Purpose) -> PeerHello {
        PeerHello {
            epoch,
            cluster: CLUSTER,
            from: self.nodes[node].id,
            shard_count: 1,
            segment_size_bytes: LAYOUT.segment_size_bytes,
            align_bytes: LAYOUT.align_bytes,
            purpose,
            client_address: String::new(),
        }
    }

    /// Keeps a connection to the target while this node leads.
    pub fn dial_shard(&mut self, node: usize) {
        let leading = self.leading(node);
        let process = self.process(node);
        let log = process.uploading.as_ref().map(|uploading| uploading.log.clone());
        let Some(log) = log.filter(|log| leading == Some(log.epoch)) else { return };
        if !process.target || process.dialling || process.outbound.is_some() {
            return;
        }
        process.dialling = true;
        let (end, marks, complete) = (log.end, log.marks, log.complete);
        let hello =
            self.hello(node, log.epoch, Purpose::Shard { shard: SHARD, end, marks, complete });
        self.dial(node, false, &hello);
    }

    pub fn redial_shard(&mut self, node: usize) {
        self.soon(node, REDIAL_US, ToNode::DialShard);
    }

    /// A connection for blocks is made; the hello has gone.
    pub fn blocks_connected(&mut self, node: usize, conn: ConnId) {
        let process = self.process(node);
        process.dialling = false;
        let epoch = process.uploading.as_ref().map(|uploading| uploading.log.epoch);
        let Some(epoch) = epoch.filter(|_| process.outbound.is_none()) else {
            return self.hang_up(node, conn);
        };
        let told_chain = Seq::OPEN;
        process.outbound =
            Some(OutLink { conn, epoch, link: None, told_caught_up: false, told_chain });
    }

    /// The follower's log is the beginning of this one.
    pub fn welcomed(&mut self, node: usize, welcome: &PeerWelcome) {
        let process = self.process(node);
        let Some(outbound) = &mut process.outbound else { return };
        let (from, epoch, end) = (welcome.from, outbound.epoch, welcome.end.lsn);
        outbound.link = Some(Link::new(from, epoch, end));
        self.saw("a follower is linked");
        self.peer_acked(node, from, epoch, end);
        self.judge(node);
        self.send_new(node);
    }

    /// Sends whatever the follower has not been sent.
    pub fn send_new(&mut self, node: usize) {
        loop {
            let process = self.process(node);
            let end = process.shard.end().lsn;
            let Some(outbound) = &process.outbound else { return };
            let (conn, epoch) = (outbound.conn, outbound.epoch);
            let Some(link) = &outbound.link else { return };
            let next = link.next();
            if next > end || !link.has_room() {
                return;
            }
            let in_memory = process.shard.in_memory_block(next).is_some();
            if !in_memory {
                self.saw("a follower is sent blocks from the disk");
            }
            let block = self.nodes[node].block_behind(Lsn(next.0 - 1));
            let header = BlockHeader::decode(&block).expect("own blocks are whole");
            let outbound = self.process(node).outbound.as_mut().expect("looked at above");
            let link = outbound.link.as_mut().expect("looked at above");
            link.sent(header.first_lsn, header.last_lsn(), block.len(), header.commit_mark);
            self.say(node, conn, |frame| encode_block(frame, epoch, &block));
            if self.makes(Mistake::AckWithoutCoverage) {
                let peer = self.nodes[1 - node].id;
                self.peer_acked(node, peer, epoch, header.last_lsn());
            }
        }
    }

    /// The follower says what is durable there.
    pub fn take_ack(&mut self, node: usize, epoch: LeaseEpoch, durable: Lsn) {
        let Some(outbound) = &mut self.process(node).outbound else { return };
        let Some(link) = &mut outbound.link else { return };
        let (peer, reign) = (link.node(), outbound.epoch);
        if link.acked_by_peer(epoch, durable) {
            self.peer_acked(node, peer, reign, durable);
            self.judge(node);
            self.send_new(node);
        }
    }

    fn peer_acked(&mut self, node: usize, peer: NodeId, epoch: LeaseEpoch, lsn: Lsn) {
        self.shard_step(node, ShardEvent::PeerAcked { node: peer, epoch, lsn });
        self.collect(node, garbage::Event::Acked { node: peer, epoch, lsn });
    }

    fn judge(&mut self, node: usize) {
        let process = self.process(node);
        let committed = process.shard.committed().lsn;
        let Some(outbound) = &mut process.outbound else { return };
        let Some(link) = &outbound.link else { return };
        if link.is_caught_up(committed) && !outbound.told_caught_up {
            outbound.told_caught_up = true;
            let (peer, epoch) = (link.node(), outbound.epoch);
            self.tell_control(node, LeaseEvent::FollowerCaughtUp { node: peer, epoch });
            self.look_at_chain(node);
        }
        self.tell_covered(node);
    }

    /// Tells the follower what is committed when no block carries it.
    pub fn tell_mark(&mut self, node: usize) {
        let shows_end = self.makes(Mistake::ShowsUncommitted);
        let process = self.process(node);
        let end = process.shard.end().lsn;
        let committed = if shows_end { end } else { process.shard.committed().lsn };
        let Some(outbound) = &mut process.outbound else { return };
        let (conn, epoch) = (outbound.conn, outbound.epoch);
        let Some(link) = &mut outbound.link else { return };
        if let Some(lsn) = link.mark_to_tell(committed, end) {
            self.say(node, conn, |frame| PeerCommit { epoch, lsn }.encode(frame));
        }
    }

    /// The connection to the follower is over.
    pub fn link_lost(&mut self, node: usize) {
        let mut pause_us = REFUSED_US;
        if let Some(OutLink { link: Some(link), .. }) = self.process(node).outbound.take() {
            self.tell_control(node, LeaseEvent::FollowerLost { node: link.node() });
            self.look_at_chain(node);
            pause_us = REDIAL_US;
        }
        self.soon(node, pause_us, ToNode::DialShard);
    }

    /// Whether another member acks in time under every set in force.
    fn wire(&mut self, node: usize) -> Wire {
        let own = self.nodes[node].id;
        let process = self.process(node);
        let Some((in_sync, proposal)) = process.members else { return Wire::Away };
        let committed = process.shard.committed().lsn;
        let link = process.outbound.as_ref().and_then(|outbound| outbound.link.as_ref());
        let counts =
            |peer| link.is_some_and(|link| link.node() == peer && link.is_caught_up(committed));
        let mut sets = [Some(in_sync), proposal].into_iter().flatten();
        let covers = sets.all(|set| set.other(own).is_some_and(counts));
        if covers && process.reachable { Wire::Covers } else { Wire::Away }
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
