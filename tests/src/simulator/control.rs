//! The driver of the lease machine: hands it what happens and does what it asks for.

use duolog_engine::ids::LeaseEpoch;
use duolog_lease::action::{Action, Actions};
use duolog_lease::document::Document;
use duolog_lease::event::{Condition, Event, Heartbeat, ReadResult, Version, WriteOutcome};
use duolog_lease::grant::Grant;
use duolog_lease::ids::{CallId, ETag, MonoMs, Now, WallMs};
use duolog_lease::report::{Report, What};
use duolog_lease::status::{FenceReason, Status};
use duolog_net::peer::{PeerHeartbeat, PeerHeartbeatAcked, PeerRefused, PeerResign};

use super::node::{CLUSTER, ToNode, ToShard};
use super::plan::Mistake;
use super::store::{Ask, Asker, Key, Told};
use super::world::World;

/// How long a message between two threads of a process takes, us.
pub const MESSAGE_US: u64 = 5;
/// The same when the shard's thread has much else to do, at most.
const MESSAGE_MAX_US: u64 = 1_000_000;
/// How long a promise takes to become durable, us.
const PROMISE_US: u64 = 1_000;
/// The same on a bad day, at most.
const PROMISE_MAX_US: u64 = 300_000;

impl World {
    fn lease_now(&self, node: usize) -> Now {
        let now = self.nodes[node].now(self.now_us);
        Now { mono: now.mono.ms(), wall: WallMs(now.wall.0) }
    }

    /// Hands the machine one event.
    pub fn lease_step(&mut self, node: usize, event: Event) {
        let now = self.lease_now(node);
        let mut out = Actions::new();
        self.process(node).lease.step(now, event, &mut out);
        let list: Vec<Action> = out.drain().collect();
        for action in list {
            self.digest.add(&(node, &action));
            self.lease_act(node, action);
        }
        let lease_now = self.lease_now(node);
        let process = self.process(node);
        let status = process.lease.status(lease_now);
        process.challenge.take_if(|_| status != Status::Fenced(FenceReason::Challenging));
        self.check_lease(node);
        if let Some(at) = self.process(node).lease.timer() {
            self.set_lease_timer(node, at);
        }
    }

    fn set_lease_timer(&mut self, node: usize, at: MonoMs) {
        let due = self.nodes[node].clock.true_time(at.0 * 1000, self.now_us);
        self.node_at(node, due, ToNode::LeaseTimer(at));
    }

    /// The timer set for `at`. It comes too early when the clock became slower meanwhile; it is set
    /// anew then.
    pub fn lease_timer(&mut self, node: usize, at: MonoMs) {
        if self.process(node).lease.timer() != Some(at) {
            return;
        }
        if at <= self.lease_now(node).mono {
            self.lease_step(node, Event::Tick);
        } else {
            self.set_lease_timer(node, at);
        }
    }

    /// A message from the control to the shard.
    fn tell(&mut self, node: usize, message: ToShard) {
        let busy = self.nodes[node].busy && self.chance.percent(80);
        let us = if busy { self.chance.below(MESSAGE_MAX_US) } else { MESSAGE_US };
        let at = (self.now_us + us).max(self.process(node).heard_us);
        self.process(node).heard_us = at;
        self.node_at(node, at, ToNode::Shard(message));
    }

    /// An event for the lease machine, from elsewhere in the process.
    pub fn tell_control(&mut self, node: usize, event: Event) {
        self.soon(node, MESSAGE_US, ToNode::Lease(event));
    }

    fn lease_act(&mut self, node: usize, action: Action) {
        let id = self.nodes[node].id;
        match action {
            Action::ReadLease { call } => {
                self.ask(node, Ask::Get(Key::Lease), Asker::LeaseRead(call));
            }
            Action::WriteLease { call, condition, document, .. } => {
                let process = self.process(node);
                if process.lease.reign().is_none() {
                    process.challenge = Some(document.epoch);
                }
                self.write_lease(node, call, &condition, document.encode());
            }
            Action::PersistPromise { epoch } => {
                let slow = !self.healing && self.chance.percent(10);
                let us = if slow { self.chance.below(PROMISE_MAX_US) } else { PROMISE_US };
                // One thread writes them, one after the other.
                let at = (self.now_us + us).max(self.process(node).promised_us);
                self.process(node).promised_us = at;
                self.node_at(node, at, ToNode::Promised(epoch));
            }
            Action::SendHeartbeat { epoch, sent, wall } => self.beat(node, epoch, sent, wall),
            Action::AckHeartbeat { to, epoch, sent } => {
                self.check_promised(node, epoch);
                self.check_not_challenging(node, epoch);
                let wall = self.nodes[node].now(self.now_us).wall;
                let acked = PeerHeartbeatAcked { epoch, from: id, sent, wall };
                if let Some(conn) = self.beat_in_of(node, to) {
                    self.say(node, conn, |frame| acked.encode(frame));
                }
            }
            Action::Refuse { to, epoch, refusal } => {
                let promised = self.process(node).lease.promised().0;
                let refused = PeerRefused::of_lease(epoch, id, promised, refusal);
                if let Some(conn) = self.beat_in_of(node, to) {
                    self.say(node, conn, |frame| refused.encode(frame));
                }
                self.tell(node, ToShard::Refuse(to, epoch, refusal));
            }
            Action::GrantChanged(grant) => {
                let grant = self.twist_grant(grant);
                self.tell(node, ToShard::Grant(grant));
            }
            Action::MembershipChanged { in_sync, proposal } => {
                self.tell(node, ToShard::Members(in_sync, proposal));
            }
            Action::StartPromotion { epoch, in_sync } => {
                self.check_promised(node, epoch);
                self.tell(node, ToShard::Members(in_sync, None));
                self.tell(node, ToShard::Promote(epoch));
            }
            Action::Follow { leader, epoch } => self.tell(node, ToShard::Follow(leader, epoch)),
            Action::StopFollowing => self.tell(node, ToShard::StopFollowing),
            Action::Fence(FenceReason::Deposed(_)) => {
                self.process(node).target = false;
                if let Some(conn) = self.process(node).beat_out.take() {
                    self.hang_up(node, conn);
                }
                self.tell(node, ToShard::Demote);
            }
            Action::Fence(FenceReason::ClockDrift { .. }) => self.tell(node, ToShard::Suspend),
            Action::Fence(_) => {}
            Action::Drain { epoch } => self.tell(node, ToShard::Drain(epoch)),
            Action::Resign { epoch } => self.resign(node, epoch),
            Action::Report(report) => self.report(node, &report),
            Action::SetTimer { .. } => {}
        }
    }

    fn write_lease(&mut self, node: usize, call: CallId, condition: &Condition, bytes: Vec<u8>) {
        let ask = match condition {
            Condition::Absent => Ask::Create(Key::Lease, bytes),
            Condition::Matches(tag) => {
                let tag = tag.0.parse().expect("tags of this store are numbers");
                Ask::Replace(Key::Lease, bytes, tag)
            }
        };
        self.ask(node, ask, Asker::LeaseWritten(call));
    }

    fn beat(&mut self, node: usize, epoch: LeaseEpoch, sent: MonoMs, wall: WallMs) {
        let commits = vec![self.process(node).shard.committed().lsn];
        let (cluster, from) = (CLUSTER, self.nodes[node].id);
        let beat = PeerHeartbeat { epoch, cluster, from, sent, wall, commits };
        self.process(node).last_beat = sent;
        let conn = self.process(node).beat_out;
        if !conn.is_some_and(|conn| self.say(node, conn, |frame| beat.encode(frame))) {
            self.tell_control(node, Event::HeartbeatFailed { sent });
        }
    }

    fn resign(&mut self, node: usize, epoch: LeaseEpoch) {
        let commits = vec![self.process(node).shard.committed().lsn];
        let (cluster, from) = (CLUSTER, self.nodes[node].id);
        let resign = PeerResign { epoch, cluster, from, commits };
        if let Some(conn) = self.process(node).beat_out {
            self.saw("a leader resigns");
            self.say(node, conn, |frame| resign.encode(frame));
        }
    }

    fn twist_grant(&self, grant: Option<Grant>) -> Option<Grant> {
        let mut grant = grant?;
        if self.makes(Mistake::EndlessGrant) {
            grant.serve_until = MonoMs(u64::MAX);
        }
        Some(grant)
    }

    fn report(&mut self, node: usize, report: &Report) {
        self.note(node, || format!("epoch {}: {}", report.epoch.0, report.what));
        match &report.what {
            What::FollowerReachable => self.tell(node, ToShard::Reachable(true)),
            What::FollowerUnreachable => self.tell(node, ToShard::Reachable(false)),
            What::Challenges(_) => self.challenged(node),
            What::ChallengeLost(_) => self.saw("a challenge is lost"),
            What::ChallengeGivenUp => self.saw("a challenge is given up"),
            What::ChallengeOverwritten(_) => self.saw("a challenge is overwritten"),
            What::Leads => self.saw("a node leads"),
            What::LeaseRanOut => self.saw("a lease runs out"),
            What::LeaseResumed => self.saw("a lease is extended after it ran out"),
            What::ClockDrift { .. } => self.saw("a clock is too far off"),
            _ => {}
        }
    }

    /// What the bucket said of the lease.
    pub fn lease_told(&mut self, node: usize, back: &Asker, told: Told) {
        let jitter = self.chance.below(1 << 16) as u16;
        let event = match (back, told) {
            (Asker::LeaseRead(call), told) => {
                let result = match told {
                    Told::Found(body, tag) => match Document::decode(&body, CLUSTER) {
                        Ok(document) => ReadResult::Found(Version { etag: tag_of(tag), document }),
                        Err(error) => ReadResult::Unusable(error),
                    },
                    Told::Absent => ReadResult::Absent,
                    _ => ReadResult::Failed,
                };
                Event::LeaseRead { call: *call, result, jitter }
            }
            (Asker::LeaseWritten(call), told) => {
                Event::LeaseWritten { call: *call, outcome: outcome(&told), jitter }
            }
            (other, _) => unreachable!("{other:?} does not ask for the lease"),
        };
        self.lease_step(node, event);
    }

    /// A heartbeat arrives, with what is committed.
    pub fn take_heartbeat(&mut self, node: usize, beat: &PeerHeartbeat) {
        let PeerHeartbeat { epoch, cluster, from, sent, wall, .. } = *beat;
        let heartbeat = Heartbeat { from, cluster, epoch, sent, wall };
        self.lease_step(node, Event::HeartbeatReceived(heartbeat));
        if self.process(node).lease.following() == Some((from, epoch)) {
            self.tell(node, ToShard::Committed(epoch, beat.commits[0]));
        }
    }

    /// The leader gives its reign away.
    pub fn take_resignation(&mut self, node: usize, resign: &PeerResign) {
        let (from, epoch) = (resign.from, resign.epoch);
        if self.process(node).lease.following() == Some((from, epoch)) {
            self.tell(node, ToShard::Committed(epoch, resign.commits[0]));
        }
        self.lease_step(node, Event::ResignReceived { from, epoch });
    }

    /// The promise is on disk.
    pub fn promise_durable(&mut self, node: usize, epoch: LeaseEpoch) {
        if !self.makes(Mistake::PromiseForgotten) {
            self.check_promise_grows(node, epoch);
            self.nodes[node].promised = epoch;
        }
        self.lease_step(node, Event::PromisePersisted { epoch });
    }
}

fn tag_of(tag: u64) -> ETag {
    ETag::new(&tag.to_string())
}

fn outcome(told: &Told) -> WriteOutcome {
    match told {
        Told::Stored(tag) => WriteOutcome::Stored { etag: tag_of(*tag) },
        Told::Conflict => WriteOutcome::Conflict,
        _ => WriteOutcome::Unknown,
    }
}
