//! Faults that meet: what makes both nodes want the lease, a challenge go wrong, or a lease seem
//! longer to its owner than to the other. Single faults seldom come together like this.

use duolog_lease::document::Document;

use super::faults::Fault;
use super::node::{CLUSTER, ToNode};
use super::store::Key;
use super::world::World;

/// Milliseconds within which the parts of a contest are shifted against each other.
const SHIFT_MS: u64 = 600;

impl World {
    /// Several faults, around whoever leads now.
    pub fn contest(&mut self) {
        let leads = |node: &usize| {
            let process = self.nodes[*node].process.as_ref();
            process.is_some_and(|process| process.lease.grant().is_some())
        };
        let Some(leader) = [0, 1].into_iter().find(leads) else { return };
        self.saw("several faults at once");
        match self.chance.below(9) {
            0 => self.isolate(leader),
            1 => self.acks_come_late(leader),
            2 => self.both_want_it(leader),
            3 => self.follower_returns_at_once(leader),
            4 | 5 => self.silence(leader),
            6 => self.late_renewal(leader),
            _ => self.handover_goes_wrong(leader),
        }
    }

    /// A time that is `ms` less or more than half of the shift, ms.
    fn about(&mut self, ms: u64) -> u64 {
        (ms + self.chance.below(SHIFT_MS)).saturating_sub(SHIFT_MS / 2)
    }

    /// What is left of the lease in the bucket, by a true clock, ms.
    fn lease_rest_ms(&self) -> u64 {
        let document = self.bucket.get(Key::Lease).map(|body| Document::decode(body, CLUSTER));
        let expires = document.and_then(Result::ok).map(|document| document.expires.0);
        let true_ms = super::clock::WALL_MS + self.now_us / 1000;
        expires.map_or(0, |expires| expires.saturating_sub(true_ms))
    }

    /// The leader reaches nobody until its lease is over.
    fn isolate(&mut self, leader: usize) {
        let lease_ms = self.plan.timings.s3_lease_ms().min(10_000);
        let lasts = self.about(lease_ms + 2_000);
        let cut_off = self.chance.pick(&[0, 500, 1_500, 3_000]);
        self.begin(Fault::Blocked(0), lasts);
        self.begin(Fault::Blocked(1), lasts);
        self.begin_in(cut_off, Fault::CutOff(leader), lasts);
    }

    /// Acks of heartbeats arrive in a heap, when the follower hears nothing any more.
    fn acks_come_late(&mut self, leader: usize) {
        let follower = 1 - leader;
        self.begin(Fault::CutOff(leader), 6_000);
        let (deaf, heap) = (self.chance.between(300, 900), self.chance.between(600, 1_600));
        self.begin(Fault::Blocked(follower), deaf + heap);
        self.begin_in(deaf, Fault::Blocked(leader), 6_000);
    }

    /// The leader comes back from a crash when the other one may take its lease.
    fn both_want_it(&mut self, leader: usize) {
        let lease_ms = self.plan.timings.heartbeat_lease_ms();
        let rest = self.lease_rest_ms().max(lease_ms).min(12_000);
        let down = self.about(rest);
        self.begin(Fault::Slow, rest + 4_000);
        self.begin(Fault::Down(leader), down);
        if self.chance.percent(50) {
            // Nobody hears of the other's reign meanwhile.
            self.begin(Fault::Blocked(0), rest + 4_000);
            self.begin(Fault::Blocked(1), rest + 4_000);
        }
    }

    /// The follower has forgotten what it acked, and the leader counts on it.
    fn follower_returns_at_once(&mut self, leader: usize) {
        let (cut_off, down) = (self.chance.between(1_000, 4_000), self.chance.between(10, 600));
        self.begin(Fault::CutOff(leader), cut_off);
        if self.chance.percent(50) {
            let late = self.chance.between(500, 1_500);
            self.begin(Fault::Blocked(1 - leader), late);
        }
        let shift = self.chance.between(0, 300);
        self.begin_in(shift, Fault::Down(1 - leader), down);
    }

    /// The follower hears nothing and challenges; what happens then is up to `challenged`.
    fn silence(&mut self, leader: usize) {
        let lease_ms = self.plan.timings.heartbeat_lease_ms();
        let lasts = self.about(lease_ms + 300);
        self.begin_in(200, Fault::CutOff(leader), lasts);
        self.begin_in(200, Fault::Blocked(leader), lasts);
        match self.chance.below(4) {
            0 | 1 => self.begin(Fault::Sluggish(1 - leader), lasts + 3_000),
            // What it has begun to write may be durable after it has challenged.
            2 => {
                self.begin(Fault::SlowDisk(1 - leader), lasts + 1_000);
                self.begin(Fault::Busy(1 - leader), lasts + 1_000);
            }
            _ => {}
        }
    }

    /// The leader's renewal takes as long as it may, and then nobody answers it any more.
    fn late_renewal(&mut self, leader: usize) {
        let lease_ms = self.plan.timings.s3_lease_ms().min(10_000);
        let (first, lasts) = (self.chance.between(2_000, 3_500), self.about(lease_ms + 3_000));
        self.begin(Fault::Sluggish(leader), first);
        self.begin(Fault::Blocked(0), lasts);
        self.begin(Fault::Blocked(1), lasts);
        self.begin_in(first, Fault::CutOff(leader), lasts);
    }

    /// A leader resigns, and something happens to it or to its heir.
    fn handover_goes_wrong(&mut self, leader: usize) {
        let (node, shift) = (self.chance.index(2), self.chance.below(SHIFT_MS));
        let lasts = self.chance.between(50, 3_000);
        if self.chance.percent(40) {
            self.begin(Fault::Busy(leader), 2_000);
        }
        let fault = match self.chance.below(12) {
            0 => Fault::Down(node),
            1 => Fault::Frozen(node),
            2 => Fault::Blocked(node),
            3 => Fault::CutOff(node),
            _ => return self.soon(leader, 1, ToNode::Resign),
        };
        self.begin_in(shift, fault, lasts);
        self.soon(leader, 1, ToNode::Resign);
    }

    /// A node has begun to challenge: that is when the rest has to happen.
    pub fn challenged(&mut self, node: usize) {
        self.saw("a node challenges");
        if self.healing || !self.chance.percent(60) {
            return;
        }
        let soon = self.chance.below(1 + 4 * self.plan.store_us / 1000);
        let lasts = self.chance.between(50, 3_000);
        match self.chance.below(8) {
            0 => self.begin_in(soon, Fault::Down(node), lasts),
            1..5 => {
                // It hears its leader again while its outcome is not known.
                self.begin(Fault::Sluggish(node), 3_000);
                self.network.blocked = [false, false];
                self.saw("a challenger hears its leader again");
            }
            5 => self.begin_in(soon, Fault::CutOff(node), lasts),
            6 => self.begin_in(soon, Fault::Frozen(node), lasts),
            _ => {
                self.begin(Fault::Slow, lasts);
                self.bucket.cut_off = [false, false];
                self.end_fault(Fault::Down(1 - node));
            }
        }
    }
}
