//! What a node says and hears on its connections to the other one.

use duolog_engine::ids::{Lsn, NodeId};
use duolog_engine::shard::Event as ShardEvent;
use duolog_lease::event::Event as LeaseEvent;
use duolog_net::peer::{
    PeerChain, PeerHello, PeerMessage, PeerReader, PeerReason, PeerWelcome, Purpose,
};

use super::network::{ConnId, Side};
use super::node::{CLUSTER, Peer, ToNode, Use};
use super::world::{Due, World};

/// A dialled node that does not answer, us.
const DIAL_MAX_US: u64 = 1_000_000;

impl World {
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

    pub fn dialled(&mut self, from: usize, life: u32, heartbeat: bool, hello: &[u8]) {
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
