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
    /// Its answers to this node take nearly as long as the node waits.
    Sluggish(usize),
    /// What its control tells its shard is heard late.
    Busy(usize),
    /// Writes to its disk take seconds.
    SlowDisk(usize),
    /// There is no room on its disk.
    Full(usize),
    /// The next write to its disk fails.
    Failing(usize),
    /// The machine is suspended, and its monotonic clock with it.
    Suspended(usize),
    /// The node's process is stopped.
    Frozen(usize),
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
        match self.chance.below(34) {
            0..4 => self.crash(node),
            4 => {
                self.crash(0);
                self.crash(1);
                self.saw("both nodes are down");
            }
            5..7 => self.begin_some(Fault::Blocked(node)),
            7 => {
                self.begin_some(Fault::Blocked(0));
                self.begin_some(Fault::Blocked(1));
                self.saw("the nodes do not reach each other");
            }
            8 => self.begin_some(Fault::Outage),
            9 => self.begin_some(Fault::CutOff(node)),
            10 => self.begin_some(Fault::Slow),
            11..13 => self.begin_some(Fault::Frozen(node)),
            13 => self.turn_clock(node),
            14 => self.reset_connections(),
            15..28 => self.contest(),
            28 => self.begin_some(Fault::SlowDisk(node)),
            29 => self.begin_some(Fault::Full(node)),
            30 => self.begin_some(Fault::Failing(node)),
            31 => self.begin_some(Fault::Suspended(node)),
            32 => self.lose(node),
            _ if self.nodes[node].process.is_some() => self.soon(node, 1, ToNode::Resign),
            _ => {}
        }
    }

    fn begin_some(&mut self, fault: Fault) {
        let max_ms = self.chance.pick(&[200, 1_000, 3_000, 12_000]);
        let lasts_ms = self.chance.between(50, max_ms);
        self.begin(fault, lasts_ms);
    }

    /// A fault that begins in `in_ms` and lasts `lasts_ms`.
    pub fn begin_in(&mut self, in_ms: u64, fault: Fault, lasts_ms: u64) {
        self.after(in_ms * 1000, Due::Begin(fault, lasts_ms));
    }

    /// A fault that lasts `lasts_ms`.
    pub fn begin(&mut self, fault: Fault, lasts_ms: u64) {
        let us = lasts_ms * 1000;
        if self.healing {
            return;
        }
        self.trace.note(self.now_us, "fault", || format!("{fault:?} for {lasts_ms} ms"));
        match fault {
            Fault::Blocked(node) => self.network.blocked[node] = true,
            Fault::Outage => self.bucket.outage = true,
            Fault::CutOff(node) => self.bucket.cut_off[node] = true,
            Fault::Slow => self.bucket.slowness = 20,
            Fault::Sluggish(node) => self.bucket.sluggish[node] = true,
            Fault::Busy(node) => self.nodes[node].busy = true,
            Fault::SlowDisk(node) => self.nodes[node].slow_disk = true,
            Fault::Full(node) => self.nodes[node].full = true,
            Fault::Failing(node) => self.nodes[node].failing = true,
            Fault::Suspended(node) => return self.suspend(node, us),
            Fault::Frozen(node) => return self.freeze(node, us),
            Fault::Down(node) => {
                if self.nodes[node].process.is_none() {
                    return;
                }
                self.go_down(node);
            }
        }
        self.after(us, Due::EndOf(fault));
    }

    /// A fault is over.
    pub fn end_fault(&mut self, fault: Fault) {
        self.trace.note(self.now_us, "fault", || format!("the end of {fault:?}"));
        match fault {
            Fault::Down(node) if self.nodes[node].process.is_none() => self.start(node),
            Fault::Down(_) | Fault::Frozen(_) | Fault::Suspended(_) => {}
            Fault::Full(node) => self.nodes[node].full = false,
            Fault::Failing(node) => self.nodes[node].failing = false,
            Fault::Sluggish(node) => self.bucket.sluggish[node] = false,
            Fault::Busy(node) => self.nodes[node].busy = false,
            Fault::SlowDisk(node) => self.nodes[node].slow_disk = false,
            Fault::Blocked(node) => self.network.blocked[node] = false,
            Fault::Outage => self.bucket.outage = false,
            Fault::CutOff(node) => self.bucket.cut_off[node] = false,
            Fault::Slow => self.bucket.slowness = 1,
        }
    }

    fn crash(&mut self, node: usize) {
        self.begin_some(Fault::Down(node));
    }

    fn go_down(&mut self, node: usize) {
        let power = self.chance.percent(40);
        self.saw(if power { "the power fails" } else { "a node is killed" });
        let state = &mut self.nodes[node];
        let process = state.process.take().expect("it runs");
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
    }

    /// One that is stopped already goes on when it would have, and so does one that is stopped when
    /// everything heals: whatever waits for it comes in its order then.
    fn freeze(&mut self, node: usize, us: u64) {
        if self.nodes[node].process.is_some() && !self.is_stopped(node) {
            self.nodes[node].frozen = Some(self.now_us + us);
            self.saw("a node is stopped and goes on");
        }
    }

    fn is_stopped(&self, node: usize) -> bool {
        self.nodes[node].frozen_until(self.now_us).is_some()
    }

    /// A clock that stops with the machine is one that does what it likes.
    fn suspend(&mut self, node: usize, us: u64) {
        if self.is_stopped(node) {
            return;
        }
        self.freeze(node, us);
        if self.plan.profile == Profile::Arbitrary {
            self.saw("a machine is suspended with its clock");
            self.nodes[node].clock.stop(self.now_us, self.now_us + us);
        }
    }

    /// The process ends because a write has failed.
    pub fn die(&mut self, node: usize) {
        self.go_down(node);
        let us = self.chance.between(50_000, 3_000_000);
        self.after(us, Due::EndOf(Fault::Down(node)));
    }

    fn turn_clock(&mut self, node: usize) {
        let now_us = self.now_us;
        let (rate, ahead_ms): (u64, i64) = match self.plan.profile {
            // Together they stay within the drift that the settings allow.
            Profile::Bounded => (
                self.chance.between(MILLION - 200, MILLION + 200),
                self.chance.pick(&[0, 100, 230]),
            ),
            Profile::Arbitrary => {
                let rates = [MILLION / 4, MILLION / 2, MILLION, 2 * MILLION, 4 * MILLION];
                (self.chance.pick(&rates), self.chance.pick(&[0, 0, 400, 5_000, 3_600_000]))
            }
        };
        self.trace.note(now_us, "fault", || format!("node {}: clock {rate} {ahead_ms}", node + 1));
        let ahead = if self.chance.percent(50) { ahead_ms } else { -ahead_ms };
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
        self.bucket.sluggish = [false, false];
        self.bucket.slowness = 1;
        for node in [0, 1] {
            let now_us = self.now_us;
            self.nodes[node].busy = false;
            self.nodes[node].full = false;
            self.nodes[node].failing = false;
            self.nodes[node].slow_disk = false;
            self.nodes[node].clock.set_rate(now_us, MILLION);
            self.nodes[node].clock.set_wall(0);
            if self.nodes[node].process.is_none() {
                self.start(node);
            }
        }
    }
}
