//! The leader's side: its connections to the follower.

use duolog_engine::block::BlockHeader;
use duolog_engine::ids::{LeaseEpoch, Lsn, NodeId};
use duolog_engine::replica::EpochEnd;
use duolog_engine::replica::chain::Seq;
use duolog_engine::replica::garbage;
use duolog_engine::replica::link::Link;
use duolog_engine::segment::LogEnd;
use duolog_engine::shard::{Event as ShardEvent, Role};
use duolog_lease::event::Event as LeaseEvent;
use duolog_net::peer::{PeerCommit, PeerHello, PeerWelcome, Purpose, encode_block};

use super::collecting::Collecting;
use super::network::ConnId;
use super::node::{CLUSTER, LAYOUT, SHARD, ToNode};
use super::plan::Mistake;
use super::uploading::Uploading;
use super::world::World;

/// Pause before a connection of a shard is dialled again, us.
const REDIAL_US: u64 = 50_000;
/// The same when the follower has not welcomed it, us.
const REFUSED_US: u64 = 500_000;

/// What a hello says of this reign; fixed at promotion.
#[derive(Clone, Debug)]
pub struct ReignLog {
    pub epoch: LeaseEpoch,
    pub end: LogEnd,
    pub marks: Vec<EpochEnd>,
    pub complete: bool,
}

/// The connection to the follower.
#[derive(Debug)]
pub struct OutLink {
    pub conn: ConnId,
    epoch: LeaseEpoch,
    /// Since the follower has welcomed it.
    pub link: Option<Link>,
    told_caught_up: bool,
    pub told_chain: Seq,
}

impl OutLink {
    pub fn is_to(&self, node: NodeId) -> bool {
        self.link.as_ref().is_some_and(|link| link.node() == node)
    }

    pub fn unacked_bytes(&self) -> usize {
        self.link.as_ref().map_or(0, Link::unacked_bytes)
    }

    pub fn acked(&self) -> Lsn {
        self.link.as_ref().map_or(Lsn(0), Link::acked)
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
        let (epoch, id) = (log.epoch, self.nodes[node].id);
        let uploading = Uploading::new(log, self.plan.replication_delay_ms);
        let process = self.process(node);
        process.uploading = Some(uploading);
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
}
