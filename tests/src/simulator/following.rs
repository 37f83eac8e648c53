//! The follower's side of the shard's connection: fits its log to the leader's, then takes blocks.

use duolog_engine::ids::{LeaseEpoch, Lsn, NodeId};
use duolog_engine::replica::hello::{Fork, HelloLog, fork};
use duolog_engine::shard::{BlockRefused, Event, Role};
use duolog_lease::event::{Event as LeaseEvent, Hello, Refusal};
use duolog_net::peer::{PeerAcked, PeerHello, PeerReason, PeerRefused, PeerWelcome, Purpose};

use super::network::ConnId;
use super::node::CLUSTER;
use super::plan::Mistake;
use super::world::World;

/// The connection of a leader, from its hello on.
#[derive(Debug)]
pub struct InLink {
    pub conn: ConnId,
    hello: PeerHello,
    /// The lease machine follows this leader.
    engaged: bool,
    /// The log is fitted to the leader's.
    fitted: bool,
    told_committed: Option<Lsn>,
    /// Since the leader was welcomed.
    acked: Option<Lsn>,
}

impl InLink {
    pub fn is_of(&self, from: NodeId, epoch: LeaseEpoch) -> bool {
        (self.hello.from, self.hello.epoch) == (from, epoch)
    }

    pub fn caught_up(&self, committed: Lsn) -> Option<LeaseEpoch> {
        (committed >= self.told_committed?).then_some(self.hello.epoch)
    }
}

impl World {
    /// A leader's hello for the shard.
    pub fn blocks_hello(&mut self, node: usize, conn: ConnId, hello: PeerHello) {
        let (from, epoch) = (hello.from, hello.epoch);
        let link = InLink {
            conn,
            hello,
            engaged: false,
            fitted: false,
            told_committed: None,
            acked: None,
        };
        let process = self.process(node);
        let engaged = process.inbound.as_ref().filter(|known| known.engaged);
        if let Some(newest) = engaged.map(|known| known.hello.epoch).filter(|at| *at > epoch) {
            self.saw("a late hello of an older reign");
            return self.refuse_link(node, &link, Refusal::Promised(newest));
        }
        if let Some(before) = process.inbound.replace(link) {
            self.hang_up(node, before.conn);
        }
        if self.process(node).follow == Some((from, epoch)) {
            return self.engage(node);
        }
        let hello = Hello { from, cluster: CLUSTER, epoch };
        self.tell_control(node, LeaseEvent::HelloReceived(hello));
    }

    pub fn refuse_link(&mut self, node: usize, link: &InLink, refusal: Refusal) {
        let own = self.nodes[node].id;
        let promised = match refusal {
            Refusal::Promised(promised) => promised,
            _ => LeaseEpoch(0),
        };
        let refused = PeerRefused::of_lease(link.hello.epoch, own, promised, refusal);
        self.say(node, link.conn, |frame| refused.encode(frame));
        self.hang_up(node, link.conn);
    }

    /// The lease machine follows this leader: fit the log to its, and take blocks.
    pub fn engage(&mut self, node: usize) {
        let process = self.process(node);
        let follow = process.follow;
        let Some(link) = &mut process.inbound else { return };
        if follow == Some((link.hello.from, link.hello.epoch)) && !link.engaged {
            link.engaged = true;
            self.settled_work(node);
        }
    }

    /// Once nothing is under way: cuts what is not the leader's, and follows.
    pub fn fit(&mut self, node: usize) {
        let process = self.process(node);
        let follow = process.follow;
        let Some(link) = process.inbound.as_ref().filter(|link| link.engaged && !link.fitted)
        else {
            return;
        };
        let epoch = link.hello.epoch;
        if follow != Some((link.hello.from, epoch)) {
            return self.refuse_fit(node, PeerReason::NotReady, "another reign has begun");
        }
        let Purpose::Shard { end, marks, complete, .. } = &link.hello.purpose else { return };
        let shard = &process.shard;
        let leader = HelloLog { epoch, end: *end, marks, complete: *complete };
        let (own, whole) = (shard.epoch_marks(), shard.epoch_marks_complete());
        let mut decision = fork(own, whole, &shard.end(), &leader);
        if self.makes(Mistake::AckWithoutCut) {
            decision = Fork::Keep;
        }
        match decision {
            Fork::Keep => self.start_taking(node, epoch),
            Fork::CutAfter { lsn } => {
                let committed = self.process(node).shard.committed().lsn;
                assert!(lsn >= committed, "R4: a hello cuts to {lsn}, {committed} is committed");
                self.saw("a hello cuts");
                self.cut(node, lsn);
                self.fit(node);
            }
            other => panic!("R3: {other:?}"),
        }
    }

    fn start_taking(&mut self, node: usize, epoch: LeaseEpoch) {
        if let Some(link) = &mut self.process(node).inbound {
            link.fitted = true;
        }
        self.shard_step(node, Event::Follow { epoch });
        let process = self.process(node);
        if process.shard.role() != (Role::Follower { epoch: Some(epoch) }) {
            return self.refuse_fit(node, PeerReason::NotReady, "the shard does not follow");
        }
        let (end, committed) = (process.shard.durable(), process.shard.committed().lsn);
        let Some(link) = &mut process.inbound else { return };
        link.acked = Some(end.lsn);
        let conn = link.conn;
        let (cluster, from, promised) = (CLUSTER, self.nodes[node].id, epoch);
        let welcome = PeerWelcome { epoch, cluster, from, promised, end, committed };
        self.note(node, || format!("follows epoch {} from LSN {}", epoch.0, end.lsn));
        self.say(node, conn, |frame| welcome.encode(frame));
        self.resume_reading(node, conn);
    }

    fn refuse_fit(&mut self, node: usize, reason: PeerReason, text: &str) {
        let own = self.nodes[node].id;
        if let Some(link) = self.process(node).inbound.take() {
            let refused = PeerRefused::new(link.hello.epoch, own, reason, text.to_owned());
            self.say(node, link.conn, |frame| refused.encode(frame));
            self.hang_up(node, link.conn);
        }
    }

    /// Whether blocks of this connection are taken, and in which reign.
    pub fn taking(&mut self, node: usize, conn: ConnId) -> Option<LeaseEpoch> {
        let process = self.process(node);
        let follow = process.follow;
        let link = process.inbound.as_ref().filter(|link| link.conn == conn && link.fitted)?;
        (follow == Some((link.hello.from, link.hello.epoch))).then_some(link.hello.epoch)
    }

    /// The leader says what is committed.
    pub fn take_commit(&mut self, node: usize, epoch: LeaseEpoch, lsn: Lsn) {
        if let Some(link) = &mut self.process(node).inbound {
            link.told_committed = Some(lsn);
        }
        self.shard_step(node, Event::CommitMark { epoch, lsn });
    }

    /// Everything up to `durable` is on this disk.
    pub fn ack_leader(&mut self, node: usize, epoch: LeaseEpoch, durable: Lsn) {
        let process = self.process(node);
        let committed = process.shard.committed().lsn;
        let Some(link) = &mut process.inbound else { return };
        if epoch == link.hello.epoch && link.acked.is_some_and(|told| durable > told) {
            link.acked = Some(durable);
            let conn = link.conn;
            let acked = PeerAcked { epoch, durable, committed };
            self.check_not_challenging(node, epoch);
            self.say(node, conn, |frame| acked.encode(frame));
        }
    }

    /// A block is not the next one: the leader has to begin anew.
    pub fn refuse_block(&mut self, node: usize, reason: &BlockRefused) {
        if matches!(reason, BlockRefused::Known { .. }) {
            return;
        }
        self.saw("a block is refused");
        self.refuse_fit(node, PeerReason::Discontinuous, &reason.to_string());
    }
}
