//! Drives the lease machine, on shard 0: hands it what happens, does what it asks for, tells the
//! shards. Decides nothing itself.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use duolog_engine::ids::{LeaseEpoch, Lsn, NodeId, ShardId};
use duolog_lease::action::{Action, Actions};
use duolog_lease::document::Document;
use duolog_lease::event::{Condition, Event, ReadResult, Version, WriteOutcome};
use duolog_lease::ids::{CallId, ETag, MonoMs, Now, WallMs};
use duolog_lease::machine::Machine;
use duolog_lease::report::{Report, What};
use duolog_lease::status::FenceReason;
use duolog_net::peer::PeerRefused;

use super::calls::Calls;
use super::heartbeat::{Inbound, Outbound};
use super::history::History;
use super::tally::Tally;
use crate::journal::Note;
use crate::serve::background::FileJob;
use crate::serve::cluster::PairSettings;
use crate::serve::cluster::chronicle::{Chronicle, StoreAnswer};
use crate::serve::cluster::gauges::{Role, ShardReading};
use crate::serve::cluster::message::{Target, ToControl, ToShard};
use crate::serve::cluster::store::{Ask, Lane, Told};
use crate::serve::inbox::Message;
use crate::serve::uring::notify::Notify;
use crate::serve::uring::shard_loop::ShardLoop;

/// See the module.
#[derive(Debug)]
pub(in crate::serve) struct Control {
    pub settings: Arc<PairSettings>,
    pub shard: Rc<ShardLoop>,
    pub machine: RefCell<Machine>,
    actions: RefCell<Actions>,
    timer: Cell<Option<MonoMs>>,
    timer_moved: Notify,
    pub calls: Rc<Calls>,
    /// As leader: heartbeats to the follower.
    pub outbound: Outbound,
    /// As follower: where the newest heartbeat came from.
    pub inbound: RefCell<Option<Rc<Inbound>>>,
    /// The node that the shards send the log to.
    pub target: RefCell<Option<Target>>,
    pub history: RefCell<History>,
    /// What goes into the event log.
    pub(super) chronicle: RefCell<Chronicle>,
    stopped: RefCell<Tally<()>>,
    promoted: RefCell<Tally<LeaseEpoch>>,
    drained: RefCell<Tally<LeaseEpoch>>,
    caught_up: RefCell<Tally<LeaseEpoch>>,
    follower_caught_up: RefCell<Tally<(NodeId, LeaseEpoch)>>,
    covered: RefCell<Tally<LeaseEpoch>>,
    /// Where clients reach the leader that was met last, with its reign.
    pub leader_address: RefCell<(LeaseEpoch, String)>,
    /// The process is to end as soon as it neither leads nor hands over.
    pub stopping: Cell<bool>,
}

impl Control {
    pub fn new(settings: Arc<PairSettings>, shard: Rc<ShardLoop>, calls: Rc<Calls>) -> Rc<Self> {
        let count = settings.shard_count as usize;
        let machine = Machine::new(settings.identity, settings.timings);
        Rc::new(Self {
            settings,
            shard,
            machine: RefCell::new(machine),
            actions: RefCell::default(),
            timer: Cell::new(None),
            timer_moved: Notify::default(),
            calls,
            outbound: Outbound::default(),
            inbound: RefCell::default(),
            target: RefCell::default(),
            history: RefCell::default(),
            chronicle: RefCell::default(),
            stopped: RefCell::new(Tally::new(count)),
            promoted: RefCell::new(Tally::new(count)),
            drained: RefCell::new(Tally::new(count)),
            caught_up: RefCell::new(Tally::new(count)),
            follower_caught_up: RefCell::new(Tally::new(count)),
            covered: RefCell::new(Tally::new(count)),
            leader_address: RefCell::default(),
            stopping: Cell::new(false),
        })
    }

    /// The clocks, for the machine.
    pub fn now(&self) -> Now {
        self.shard.look_at_the_clock();
        let now = self.shard.now();
        Now { mono: now.mono.ms(), wall: WallMs(now.wall.0) }
    }

    /// Hands one event to the machine and does what it asks for. Never called from within: actions
    /// only start tasks and send messages.
    pub fn step(self: &Rc<Self>, event: Event) {
        let now = self.now();
        let mut actions = self.actions.take();
        self.machine.borrow_mut().step(now, event, &mut actions);
        let list: Vec<Action> = actions.drain().collect();
        self.actions.replace(actions);
        for action in list {
            self.perform(action);
        }
        self.publish();
        self.note_changes();
    }

    /// Shows other threads what the node is; a lease runs out without an event.
    pub fn publish(&self) {
        let now = self.now();
        let (role, epoch) = Role::of(self.machine.borrow().status(now));
        self.shard.inboxes[0].node.tell(role, epoch.unwrap_or_else(|| self.promised()));
        self.show_standing(now);
    }

    fn perform(self: &Rc<Self>, action: Action) {
        match action {
            Action::ReadLease { call } => self.read_lease(call),
            Action::WriteLease { call, condition, document, .. } => {
                self.write_lease(call, condition, &document);
            }
            Action::PersistPromise { epoch } => {
                self.shard.send_file_job(FileJob::Promise(epoch));
            }
            Action::SendHeartbeat { epoch, sent, wall } => self.beat(epoch, sent, wall),
            Action::AckHeartbeat { to, epoch, sent } => {
                let wall = self.shard.now().wall;
                if let Some(inbound) = &*self.inbound.borrow() {
                    inbound.ack(to, self.settings.identity.node, epoch, sent, wall);
                }
            }
            Action::Refuse { to, epoch, refusal } => {
                let (own, promised) = (self.settings.identity.node, self.promised());
                if let Some(inbound) = &*self.inbound.borrow() {
                    inbound.refuse(to, &PeerRefused::of_lease(epoch, own, promised, refusal));
                }
                self.tell(|| ToShard::Refuse { from: to, epoch, refusal });
            }
            Action::GrantChanged(grant) => self.tell(|| ToShard::Grant(grant)),
            Action::MembershipChanged { in_sync, proposal } => {
                self.covered.borrow_mut().clear();
                self.tell(|| ToShard::Members { in_sync, proposal });
            }
            Action::StartPromotion { epoch, in_sync } => {
                self.promoted.borrow_mut().clear();
                self.chronicle.borrow_mut().promotes(self.shard.now());
                self.tell(|| ToShard::Members { in_sync, proposal: None });
                self.tell(|| ToShard::Promote { epoch });
            }
            Action::Follow { leader, epoch } => {
                self.caught_up.borrow_mut().clear();
                self.tell(|| ToShard::Follow { leader, epoch });
                self.tell_leader(epoch);
            }
            Action::StopFollowing => {
                self.stopped.borrow_mut().clear();
                self.tell(|| ToShard::StopFollowing);
            }
            Action::Fence(reason) => self.fence(reason),
            Action::Drain { epoch } => {
                self.drained.borrow_mut().clear();
                self.tell(|| ToShard::Drain { epoch });
            }
            Action::Resign { epoch } => {
                self.note(Note::new("resigned").at_epoch(epoch.0));
                self.outbound.resign(self, epoch);
            }
            Action::Report(report) => self.report(&report),
            Action::SetTimer { at } => {
                self.timer.set(Some(at));
                self.timer_moved.ring();
            }
        }
    }

    fn fence(self: &Rc<Self>, reason: FenceReason) {
        match reason {
            FenceReason::Deposed(_) => {
                self.set_target(None);
                // H1: the next reign may begin before anybody looks for the other node again. With
                // a connection left over, nobody would, and the shards would have no target.
                self.outbound.close();
                self.tell(|| ToShard::Demote);
            }
            FenceReason::ClockDrift { .. } => self.tell(|| ToShard::Suspend),
            // The grant is withdrawn, or runs out by itself; appends in flight wait for a newer
            // one of the same reign (L8).
            _ => {}
        }
    }

    /// Tells every shard.
    pub fn tell(&self, message: impl Fn() -> ToShard) {
        for (index, inbox) in self.shard.inboxes.iter().enumerate() {
            if let Err(message) = inbox.send(Message::Pair(message())) {
                let shard = ShardId(u32::try_from(index).unwrap_or(u32::MAX));
                self.shard.send_late(shard, message);
            }
        }
    }

    /// Tells the shards and their clients where the leader is.
    pub fn tell_leader(&self, epoch: LeaseEpoch) {
        let (known, address) = self.leader_address.borrow().clone();
        let address = if known == epoch { address } else { String::new() };
        self.tell(|| ToShard::Leader { epoch, address: address.clone() });
    }

    /// Whom the shards send the log to.
    pub fn set_target(&self, target: Option<Target>) {
        if *self.target.borrow() != target {
            self.target.replace(target.clone());
            self.tell(|| ToShard::Target(target.clone()));
        }
    }

    fn read_lease(self: &Rc<Self>, call: CallId) {
        let control = Rc::clone(self);
        let ask = Ask::Get(self.settings.keys.lease());
        self.chronicle.borrow_mut().looks(self.shard.now());
        glommio::spawn_local(async move {
            let told = control.calls.ask(Lane::Lease, ask).await;
            let result = match told {
                Told::Found(body, etag) => {
                    match Document::decode(&body, control.settings.identity.cluster) {
                        Ok(document) => {
                            let etag = ETag::new(etag.as_given());
                            ReadResult::Found(Version { etag, document })
                        }
                        Err(error) => ReadResult::Unusable(error),
                    }
                }
                Told::Absent => ReadResult::Absent,
                told => {
                    tracing::warn!(event = "lease_not_read", outcome = ?told);
                    ReadResult::Failed
                }
            };
            let failed = matches!(result, ReadResult::Failed);
            control.note_answer(if failed { StoreAnswer::None } else { StoreAnswer::Clear });
            let skew_ms = control.settings.store.counters().skew_ms.load(Ordering::Relaxed);
            control.step(Event::SkewSeen { difference_ms: skew_ms.unsigned_abs() });
            control.step(Event::LeaseRead { call, result, jitter: jitter() });
        })
        .detach();
    }

    fn write_lease(self: &Rc<Self>, call: CallId, condition: Condition, document: &Document) {
        let control = Rc::clone(self);
        let (key, body) = (self.settings.keys.lease(), Bytes::from(document.encode()));
        let ask = match condition {
            Condition::Absent => Some(Ask::Create(key, body)),
            Condition::Matches(tag) => duolog_s3client::etag::ETag::new(&*tag.0)
                .ok()
                .map(|tag| Ask::Replace(key, body, tag)),
        };
        self.chronicle.borrow_mut().writes(self.shard.now());
        glommio::spawn_local(async move {
            let told = match ask {
                Some(ask) => control.calls.ask(Lane::Lease, ask).await,
                None => Told::Conflict,
            };
            let outcome = match told {
                Told::Stored(tag) => WriteOutcome::Stored { etag: ETag::new(tag.as_given()) },
                Told::Conflict => WriteOutcome::Conflict,
                told => {
                    // Certainly not done counts as unknown too: the machine reads back.
                    tracing::warn!(event = "lease_not_written", outcome = ?told);
                    WriteOutcome::Unknown
                }
            };
            let unknown = matches!(outcome, WriteOutcome::Unknown);
            control.note_answer(if unknown { StoreAnswer::None } else { StoreAnswer::Clear });
            control.step(Event::LeaseWritten { call, outcome, jitter: jitter() });
        })
        .detach();
    }

    fn beat(self: &Rc<Self>, epoch: LeaseEpoch, sent: MonoMs, wall: WallMs) {
        if !self.outbound.beat(self, epoch, sent, wall) {
            let control = Rc::clone(self);
            glommio::spawn_local(async move {
                // Not within the step that asked for the heartbeat.
                futures_lite::future::yield_now().await;
                control.step(Event::HeartbeatFailed { sent });
            })
            .detach();
        }
    }

    /// The lowest epoch that this node still accepts.
    pub fn promised(&self) -> LeaseEpoch {
        self.machine.borrow().promised().0
    }

    /// How far every shard is, in order.
    pub fn readings(&self) -> Vec<ShardReading> {
        self.shard.inboxes.iter().map(|inbox| inbox.gauge.read()).collect()
    }

    /// What is committed on every shard, in order.
    pub fn commits(&self) -> Vec<Lsn> {
        self.readings().into_iter().map(|reading| reading.committed).collect()
    }

    /// A message of a shard or of another thread.
    pub fn hear(self: &Rc<Self>, message: ToControl) {
        match message {
            ToControl::Hello { hello, client_address } => {
                self.met(hello.epoch, client_address);
                self.step(Event::HelloReceived(hello));
            }
            ToControl::FollowingStopped(shard) => {
                if self.stopped.borrow_mut().count(shard, ()) {
                    self.step(Event::FollowingStopped);
                }
            }
            ToControl::PromotionEnded { shard, epoch, result: Ok(times) } => {
                self.chronicle.borrow_mut().promoted(times);
                if self.promoted.borrow_mut().count(shard, epoch) {
                    self.leader_address.replace((epoch, self.settings.client_address.clone()));
                    self.step(Event::PromotionFinished { epoch });
                    self.tell_leader(epoch);
                }
            }
            ToControl::PromotionEnded { epoch, result: Err(failure), .. } => {
                self.step(Event::PromotionFailed { epoch, failure });
            }
            ToControl::Drained { shard, epoch } => {
                if self.drained.borrow_mut().count(shard, epoch) {
                    self.note(Note::new("drained").at_epoch(epoch.0));
                    self.step(Event::Drained { epoch });
                }
            }
            ToControl::FirstAppend { epoch } => self.note_append(epoch.0),
            ToControl::ChainLost { epoch } => self.step(Event::ChainLost { epoch }),
            ToControl::RenewalWanted { epoch } => self.step(Event::RenewalWanted { epoch }),
            ToControl::NewReignWanted { epoch } => {
                if self.machine.borrow().reign() == Some(epoch) {
                    self.step(Event::NewReignRequested);
                }
            }
            ToControl::CaughtUp { shard, epoch } => {
                if self.caught_up.borrow_mut().count(shard, epoch) {
                    self.step(Event::CaughtUp { epoch });
                }
            }
            ToControl::FollowerCaughtUp { shard, node, epoch } => {
                if self.follower_caught_up.borrow_mut().count(shard, (node, epoch)) {
                    self.step(Event::FollowerCaughtUp { node, epoch });
                }
            }
            ToControl::FollowerLost { node } => {
                self.follower_caught_up.borrow_mut().clear();
                self.step(Event::FollowerLost { node });
            }
            ToControl::Refused { from, epoch, refusal } => {
                self.step(Event::Refused { from, epoch, refusal });
            }
            ToControl::ProposalCovered { shard, epoch } => {
                if self.covered.borrow_mut().count(shard, epoch) {
                    self.step(Event::ProposalCovered { epoch });
                }
            }
            ToControl::Promised(epoch) => self.step(Event::PromisePersisted { epoch }),
            ToControl::Stop => super::stop::begin(self),
            ToControl::Admin { from, id, correlation, body } => {
                super::admin::answer(self, from, id, correlation, &body);
            }
        }
    }

    /// A leader was met: remember where clients reach it.
    pub fn met(&self, epoch: LeaseEpoch, client_address: String) {
        let mut known = self.leader_address.borrow_mut();
        if epoch >= known.0 && !client_address.is_empty() {
            *known = (epoch, client_address);
        }
    }

    fn report(self: &Rc<Self>, report: &Report) {
        let (event, epoch, reason) = (report.what.name(), report.epoch.0, report.what.to_string());
        tracing::info!(event, epoch, reason);
        let wall = self.shard.now().wall;
        self.history.borrow_mut().note(wall, report);
        self.settings.metrics.count(report);
        self.note_report(report);
        match &report.what {
            What::FollowerReachable => self.tell(|| ToShard::Reachable(true)),
            What::FollowerUnreachable => self.tell(|| ToShard::Reachable(false)),
            What::LeaseUnusable(error) => super::rejoin::consider(self, error),
            _ => {}
        }
    }

    /// Boots the machine and hands it ticks for ever.
    pub async fn run(self: Rc<Self>, promised: LeaseEpoch) {
        self.step(Event::Boot { promised });
        loop {
            let wait = match self.timer.get() {
                Some(at) => Duration::from_millis(at.since(self.now().mono)),
                None => Duration::from_secs(1),
            };
            let due = self.shard.now().mono.plus(wait.as_micros() as u64);
            let moved = async {
                self.timer_moved.wait().await;
                false
            };
            let rung = async {
                glommio::timer::sleep(wait).await;
                true
            };
            let rung = futures_lite::future::or(moved, rung).await;
            self.note_stall(due);
            if rung {
                self.timer.set(self.timer.get().filter(|at| *at > self.now().mono));
                self.step(Event::Tick);
            }
        }
    }
}

/// Spreads retries of two nodes.
#[expect(clippy::disallowed_methods, reason = "a random number at the edge")]
fn jitter() -> u16 {
    uuid::Uuid::new_v4().as_u64_pair().0 as u16
}
