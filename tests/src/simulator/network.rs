//! Connections between the two nodes: bytes arrive in order or the connection ends, which the two
//! ends may learn at different times, or one of them never by itself.

use std::collections::{BTreeMap, VecDeque};

use super::world::{Due, World};

/// How long bytes may be stuck before the sender gives the connection up, us.
const USER_TIMEOUT_US: u64 = 3_000_000;
/// How long an end that sends nothing believes in a dead connection, us.
const KEEP_ALIVE_US: u64 = 10_000_000;
/// Between two attempts to get bytes across, us.
const RETRANSMIT_US: u64 = 100_000;

/// Names a connection.
pub type ConnId = u64;
/// The end that dialled is 0.
pub type Side = usize;

/// One connection.
#[derive(Debug)]
pub struct Conn {
    /// The node at each end, and which of its lives.
    pub ends: [(usize, u32); 2],
    /// Whether that end still uses it.
    pub open: [bool; 2],
    /// What is under way from each end.
    under_way: [VecDeque<Vec<u8>>; 2],
    last_us: [u64; 2],
    stuck_since: [Option<u64>; 2],
}

impl Conn {
    /// Bytes under way from one end.
    pub fn under_way_bytes(&self, side: Side) -> usize {
        self.under_way[side].iter().map(Vec::len).sum()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Network {
    pub conns: BTreeMap<ConnId, Conn>,
    next: ConnId,
    /// From node to node: nothing gets through.
    pub blocked: [bool; 2],
}

impl World {
    fn wire_delay_us(&mut self) -> u64 {
        let usual = self.plan.wire_us;
        let slow = self.chance.percent(2);
        self.chance.between(usual / 2, if slow { 50 * usual } else { 2 * usual })
    }

    /// A connection between two nodes that run.
    pub fn connect(&mut self, from: usize, to: usize) -> ConnId {
        let id = self.network.next;
        self.network.next += 1;
        let conn = Conn {
            ends: [from, to].map(|node| (node, self.nodes[node].life)),
            open: [true, true],
            under_way: Default::default(),
            last_us: [self.now_us; 2],
            stuck_since: [None; 2],
        };
        self.network.conns.insert(id, conn);
        id
    }

    /// Sends from one end; false if that end is closed.
    pub fn send(&mut self, conn: ConnId, side: Side, bytes: Vec<u8>) -> bool {
        let delay = self.wire_delay_us();
        let now = self.now_us;
        let Some(known) = self.network.conns.get_mut(&conn).filter(|known| known.open[side]) else {
            return false;
        };
        known.under_way[side].push_back(bytes);
        let at = (now + delay).max(known.last_us[side]);
        known.last_us[side] = at;
        self.at(at, Due::Wire { conn, from: side });
        self.check_wire(conn, side);
        true
    }

    /// The oldest bytes under way arrive, if they get through.
    pub fn deliver(&mut self, conn: ConnId, from: Side) {
        let now = self.now_us;
        let Some(known) = self.network.conns.get_mut(&conn) else { return };
        let ((sender, _), (receiver, life)) = (known.ends[from], known.ends[1 - from]);
        let there = self.nodes[receiver].life == life && known.open[1 - from];
        let blocked = self.network.blocked[sender];
        if blocked || !there {
            let since = *known.stuck_since[from].get_or_insert(now);
            if now - since >= USER_TIMEOUT_US {
                self.saw("a sender gives a silent connection up");
                // The other end sends nothing, perhaps, and asks whether anybody is there.
                let at = now + KEEP_ALIVE_US;
                self.at(at, Due::Closed { conn, side: 1 - from, since: 0 });
                return self.end_reached(conn, from);
            }
            return self.at(now + RETRANSMIT_US, Due::Wire { conn, from });
        }
        if let Some(thawed) = self.nodes[receiver].frozen_until(now) {
            return self.at(thawed, Due::Wire { conn, from });
        }
        known.stuck_since[from] = None;
        if let Some(bytes) = known.under_way[from].pop_front() {
            self.receive(receiver, conn, &bytes);
        }
    }

    /// One end closes; the other one learns it when that gets through, or by its silence.
    pub fn close(&mut self, conn: ConnId, side: Side) {
        let delay = self.wire_delay_us();
        let Some(known) = self.network.conns.get_mut(&conn) else { return };
        if std::mem::replace(&mut known.open[side], false) && known.open[1 - side] {
            let at = known.last_us[side].max(self.now_us + delay);
            self.at(at, Due::Closed { conn, side: 1 - side, since: self.now_us });
        }
        self.forget(conn);
    }

    /// A node's end is gone without a word.
    pub fn vanish(&mut self, conn: ConnId, side: Side) {
        let Some(known) = self.network.conns.get_mut(&conn) else { return };
        known.open[side] = false;
        let at = self.now_us + KEEP_ALIVE_US;
        self.at(at, Due::Closed { conn, side: 1 - side, since: 0 });
        self.forget(conn);
    }

    fn forget(&mut self, conn: ConnId) {
        if self.network.conns.get(&conn).is_some_and(|known| known.open == [false, false]) {
            self.network.conns.remove(&conn);
        }
    }

    /// The news that the other end has closed arrives.
    pub fn hear_closed(&mut self, conn: ConnId, side: Side, since: u64) {
        let Some(known) = self.network.conns.get(&conn) else { return };
        let ((node, _), (other, _)) = (known.ends[side], known.ends[1 - side]);
        if self.network.blocked[other] && self.now_us - since < KEEP_ALIVE_US {
            self.saw("a half-open connection");
            return self.at(self.now_us + RETRANSMIT_US, Due::Closed { conn, side, since });
        }
        if let Some(thawed) = self.nodes[node].frozen_until(self.now_us) {
            return self.at(thawed, Due::Closed { conn, side, since });
        }
        self.end_reached(conn, side);
    }

    /// An end learns that its connection is over.
    fn end_reached(&mut self, conn: ConnId, side: Side) {
        let Some(known) = self.network.conns.get_mut(&conn) else { return };
        if std::mem::replace(&mut known.open[side], false) {
            let (node, life) = known.ends[side];
            if self.nodes[node].life == life {
                self.connection_ended(node, conn);
            }
        }
        self.forget(conn);
    }
}
