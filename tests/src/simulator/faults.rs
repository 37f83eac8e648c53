//! What goes wrong, and how it ends.

use super::network::ConnId;
use super::node::ToNode;
use super::plan::Profile;
use super::world::{Due, World};
use crate::sim::disk::Crash;

const MILLION: u64 = 1_000_000;

/// A fault that lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The node is down.
    Down(usize),
    /// Bytes from this node do not arrive at the other.
    Blocked(usize),
    /// Nobody reaches the bucket.
    Outage,
    /// This node does not reach it.
    CutOff(usize),
    /// The bucket is slow.
    Slow,
}

impl World {
    /// Something happens, and the next thing is planned.
    pub fn fault(&mut self) {
        if self.healing {
            return;
        }
        let pause = self.chance.between(50, self.plan.fault_pause_ms);
        self.after(pause * 1000, Due::Fault);
        let node = self.chance.index(2);
        match self.chance.below(16) {
            0..4 => self.crash(node),
            4 => {
                self.crash(0);
                self.crash(1);
                self.saw("both nodes are down");
            }
            5..7 => self.begin(Fault::Blocked(node)),
            7 => {
                self.begin(Fault::Blocked(0));
                self.begin(Fault::Blocked(1));
                self.saw("the nodes do not reach each other");
            }
            8 => self.begin(Fault::Outage),
            9 => self.begin(Fault::CutOff(node)),
            10 => self.begin(Fault::Slow),
            11..13 => self.freeze(node),
            13 => self.turn_clock(node),
            14 => self.reset_connections(),
            _ if self.nodes[node].process.is_some() => self.soon(node, 1, ToNode::Resign),
            _ => {}
        }
    }

    fn lasts_us(&mut self) -> u64 {
        let max_ms = self.chance.pick(&[200, 1_000, 3_000, 12_000]);
        self.chance.between(50, max_ms) * 1000
    }

    fn begin(&mut self, fault: Fault) {
        self.trace.note(self.now_us, "fault", || format!("{fault:?}"));
        match fault {
            Fault::Blocked(node) => self.network.blocked[node] = true,
            Fault::Outage => self.bucket.outage = true,
            Fault::CutOff(node) => self.bucket.cut_off[node] = true,
            Fault::Slow => self.bucket.slowness = 20,
            Fault::Down(_) => {}
        }
        let us = self.lasts_us();
        self.after(us, Due::EndOf(fault));
    }

    /// A fault is over.
    pub fn end_fault(&mut self, fault: Fault) {
        self.trace.note(self.now_us, "fault", || format!("the end of {fault:?}"));
        match fault {
            Fault::Down(node) if self.nodes[node].process.is_none() => self.start(node),
            Fault::Down(_) => {}
            Fault::Blocked(node) => self.network.blocked[node] = false,
            Fault::Outage => self.bucket.outage = false,
            Fault::CutOff(node) => self.bucket.cut_off[node] = false,
            Fault::Slow => self.bucket.slowness = 1,
        }
    }

    fn crash(&mut self, node: usize) {
        if self.nodes[node].process.is_none() {
            return;
        }
        let power = self.chance.percent(40);
        self.saw(if power { "the power fails" } else { "a node is killed" });
        let state = &mut self.nodes[node];
        let process = state.process.take().expect("looked at above");
        state.disk.crash(if power { Crash::Power } else { Crash::Kill });
        if process.promoting.is_some() {
            self.saw("a node goes down between its challenge and its Open");
        }
        if process.uploading.is_some() {
            self.saw("a leader goes down");
        }
        let conns: Vec<ConnId> = self.network.conns.keys().copied().collect();
        for conn in conns {
            let Some(known) = self.network.conns.get(&conn) else { continue };
            let life = self.nodes[node].life;
            let side = known.ends.iter().position(|end| *end == (node, life));
            match side {
                Some(side) if power => self.vanish(conn, side),
                Some(side) => self.close(conn, side),
                None => {}
            }
        }
        self.nodes[node].life += 1;
        self.forget_requests(node);
        self.begin(Fault::Down(node));
    }

    fn freeze(&mut self, node: usize) {
        if self.nodes[node].process.is_some() {
            let until = self.now_us + self.lasts_us();
            self.trace.note(self.now_us, "fault", || format!("node {} stops", node + 1));
            self.nodes[node].frozen = Some(until);
            self.saw("a node is stopped and goes on");
        }
    }

    fn turn_clock(&mut self, node: usize) {
        let now_us = self.now_us;
        let (rate, ahead_ms) = match self.plan.profile {
            // Together they stay within the drift that the settings allow.
            Profile::Bounded => {
                (self.chance.between(MILLION - 200, MILLION + 200), self.chance.between(0, 200))
            }
            Profile::Arbitrary => {
                let rates = [MILLION / 4, MILLION / 2, MILLION, 2 * MILLION, 4 * MILLION];
                (self.chance.pick(&rates), self.chance.pick(&[0, 0, 400, 5_000, 3_600_000]))
            }
        };
        self.trace.note(now_us, "fault", || format!("node {}: clock {rate} {ahead_ms}", node + 1));
        let ahead = i64::try_from(ahead_ms).expect("an hour fits");
        let ahead = if self.chance.percent(50) { ahead } else { -ahead };
        self.nodes[node].clock.set_rate(now_us, rate);
        self.nodes[node].clock.set_wall(ahead);
    }

    fn reset_connections(&mut self) {
        let conns: Vec<ConnId> = self.network.conns.keys().copied().collect();
        for conn in conns {
            if self.chance.percent(60) {
                self.saw("a connection is reset");
                for side in [0, 1] {
                    let us = self.chance.below(500_000);
                    self.after(us, Due::Closed { conn, side, since: 0 });
                }
            }
        }
    }

    /// No more faults.
    pub fn heal(&mut self) {
        self.healing = true;
        self.trace.note(self.now_us, "fault", || "no more faults".to_owned());
        self.network.blocked = [false, false];
        self.bucket.outage = false;
        self.bucket.cut_off = [false, false];
        self.bucket.slowness = 1;
        for node in [0, 1] {
            let now_us = self.now_us;
            self.nodes[node].frozen = None;
            self.nodes[node].clock.set_rate(now_us, MILLION);
            self.nodes[node].clock.set_wall(0);
            if self.nodes[node].process.is_none() {
                self.start(node);
            }
        }
    }
}
