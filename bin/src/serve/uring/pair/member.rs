//! One shard's part in the pair: what the lease machine has told it, and its connections.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use duolog_engine::ids::{LeaseEpoch, Lsn, NodeId, ShardId};
use duolog_engine::replica::garbage;
use duolog_engine::replica::promotion::StoredChain;
use duolog_engine::shard::{Actions, BlockRefused, Event, Role, Shard};
use duolog_lease::event::Refusal;
use duolog_lease::grant::{Admission, Grant};
use duolog_lease::in_sync::InSync;
use duolog_net::peer::Purpose;
use duolog_net::session::Session;
use duolog_net::wire::{ErrorFrame, NodeRole, Standing};

use super::bell::Bell;
use super::calls::Calls;
use super::confirm::Looks;
use super::garbage::Collector;
use super::inlink::InLink;
use super::outlink::OutLink;
use super::upload::Uploads;
use super::{inlink, lend, promote};
use crate::serve::cluster::PairSettings;
use crate::serve::cluster::message::{Target, ToControl, ToShard};
use crate::serve::inbox::Message;
use crate::serve::uring::notify::Notify;
use crate::serve::uring::shard_loop::ShardLoop;

/// See the module.
#[derive(Debug)]
pub(in crate::serve) struct Member {
    pub settings: Arc<PairSettings>,
    pub calls: Rc<Calls>,
    /// The leader and reign that may send blocks.
    pub follow: Cell<Option<(NodeId, LeaseEpoch)>>,
    /// The connection of a leader, from its hello on.
    pub inbound: RefCell<Option<Rc<InLink>>>,
    /// What the last leader that was followed has said of its chain.
    pub stored_chain: Cell<Option<StoredChain>>,
    /// The connection to the follower.
    pub outbound: RefCell<Option<Rc<OutLink>>>,
    /// Whom to connect to while this node leads.
    pub target: RefCell<Option<Target>>,
    /// Rings when `target` or the reign changed.
    pub target_changed: Notify,
    /// The reign that this node leads or is promoted to.
    pub reign: Cell<Option<LeaseEpoch>>,
    /// Where clients reach the leader.
    pub leader: RefCell<(LeaseEpoch, String)>,
    /// The follower answers heartbeats.
    pub reachable: Cell<bool>,
    pub grant: Cell<Option<Grant>>,
    pub members: Cell<Option<(InSync, Option<InSync>)>>,
    pub uploads: Uploads,
    pub collector: Collector,
    /// The reign whose draining is to be told.
    draining: Cell<Option<LeaseEpoch>>,
    /// A cut is under way: no other may begin, and no block may come.
    pub rebuilding: Cell<bool>,
    /// What is committed is on disk, so that a cut may begin.
    pub marked: Cell<bool>,
    /// Blocks are being lent to a node whose log is damaged: to one at a time.
    pub lending: Cell<bool>,
    /// Looks at the lease object for reads that want proof.
    pub looks: Looks,
    /// Rings when writes or rebuilds are over.
    pub settled: Bell,
    /// The log's end when the reign was opened, until an append follows it.
    pub opened_at: Cell<Option<Lsn>>,
    /// What the control was told about this reign, so that it is told once.
    told_caught_up: Cell<Option<LeaseEpoch>>,
    told_covered: Cell<Option<InSync>>,
    /// What clients were told.
    told_standing: RefCell<(NodeRole, (LeaseEpoch, String))>,
}

impl Member {
    pub fn new(settings: Arc<PairSettings>, calls: Rc<Calls>) -> Self {
        Self {
            settings,
            calls,
            follow: Cell::new(None),
            inbound: RefCell::default(),
            stored_chain: Cell::new(None),
            outbound: RefCell::default(),
            target: RefCell::default(),
            target_changed: Notify::default(),
            reign: Cell::new(None),
            leader: RefCell::default(),
            reachable: Cell::new(false),
            grant: Cell::new(None),
            members: Cell::new(None),
            uploads: Uploads::default(),
            collector: Collector::default(),
            draining: Cell::new(None),
            rebuilding: Cell::new(false),
            marked: Cell::new(false),
            settled: Bell::default(),
            lending: Cell::new(false),
            looks: Looks::default(),
            opened_at: Cell::new(None),
            told_caught_up: Cell::new(None),
            told_covered: Cell::new(None),
            told_standing: RefCell::default(),
        }
    }

    /// Whether the log may be read as the cluster's newest: this node leads and its grant holds.
    pub fn leads(&self, shard: &ShardLoop) -> bool {
        self.grant.get().is_some_and(|grant| grant.answers_reads(shard.now().mono.ms()))
    }

    /// What this node is to clients. A grant that has run out makes no leader (L8): whoever asks
    /// has to find the other node, which may lead by now.
    fn role(&self, shard: &ShardLoop) -> NodeRole {
        if self.grant.get().is_some_and(|grant| grant.admits(shard.now().mono.ms())) {
            NodeRole::Leader
        } else if self.follow.get().is_some() {
            NodeRole::Follower
        } else {
            NodeRole::Other
        }
    }
}

impl ShardLoop {
    /// The shard's part in the pair; only drivers of the pair call it.
    pub(in crate::serve) fn member(&self) -> &Member {
        self.pair.as_ref().expect("only a node of a pair has drivers of the pair")
    }

    /// Tells the driver of the lease machine.
    pub(in crate::serve) fn tell_control(&self, message: ToControl) {
        if let Err(message) = self.inboxes[0].send(Message::Control(message)) {
            self.send_late(ShardId(0), message);
        }
    }

    /// Tells one shard.
    pub(in crate::serve) fn tell_shard(&self, shard: ShardId, message: ToShard) {
        if let Err(message) = self.inboxes[shard.0 as usize].send(Message::Pair(message)) {
            self.send_late(shard, message);
        }
    }

    /// A message about the pair.
    pub(in crate::serve) fn hear(self: &Rc<Self>, message: ToShard) {
        let member = self.member();
        match message {
            ToShard::Told { id, told } => member.calls.told(id, told),
            ToShard::Grant(grant) => {
                let before = member.grant.replace(grant);
                self.step(Event::Grant(grant));
                self.resume_if_called_off(before, grant);
                member.uploads.granted(self);
                self.tell_standing();
            }
            ToShard::Members { in_sync, proposal } => self.take_members(in_sync, proposal),
            ToShard::Follow { leader, epoch } => self.follow(leader, epoch),
            ToShard::StopFollowing => {
                self.stop_following();
                self.tell_control(ToControl::FollowingStopped(self.id()));
            }
            ToShard::Suspend => self.stop_following(),
            ToShard::Promote { epoch } => {
                self.stop_following();
                member.reign.set(Some(epoch));
                self.undrain();
                self.step(Event::Promote { epoch });
                promote::spawn(self, epoch);
            }
            ToShard::Demote => self.demote(),
            ToShard::Drain { epoch } => {
                member.draining.set(Some(epoch));
                self.step(Event::Drain);
            }
            ToShard::Refuse { from, epoch, refusal } => self.refuse_leader(from, epoch, refusal),
            ToShard::Peer(socket) => match socket.hello.purpose {
                Purpose::Fetch { .. } => lend::accept(self, socket),
                _ => inlink::accept(self, socket),
            },
            ToShard::Target(target) => {
                member.target.replace(target);
                member.target_changed.ring();
            }
            ToShard::Reachable(reachable) => {
                member.reachable.set(reachable);
                member.uploads.look(self);
            }
            ToShard::Leader { epoch, address } => {
                member.leader.replace((epoch, address));
                self.tell_standing();
            }
            ToShard::Committed { epoch, lsn } => self.step(Event::CommitMark { epoch, lsn }),
            ToShard::Marked => {
                member.marked.set(true);
                member.settled.ring();
            }
            ToShard::Rebuilt(rebuilt) => super::rebuild::finish(self, *rebuilt),
        }
    }

    /// A handover that could not drain is called off by a grant that admits again.
    fn resume_if_called_off(self: &Rc<Self>, before: Option<Grant>, after: Option<Grant>) {
        let admits = |grant: Option<Grant>, admission| {
            grant.is_some_and(|grant| grant.admission == admission)
        };
        if admits(before, Admission::Closed) && admits(after, Admission::Open) {
            self.member().draining.set(None);
            self.undrain();
            self.step(Event::Resume);
        }
    }

    /// Nothing is drained any more, for whoever looks.
    fn undrain(&self) {
        self.drained.set(false);
        self.inbox().drained.store(false, Ordering::Release);
    }

    fn take_members(self: &Rc<Self>, in_sync: InSync, proposal: Option<InSync>) {
        let member = self.member();
        member.members.set(Some((in_sync, proposal)));
        member.told_covered.set(None);
        self.step(Event::Members { in_sync, proposal });
        member.collector.step(self, garbage::Event::Members { in_sync, proposal });
        member.uploads.look(self);
        self.tell_covered();
    }

    fn follow(self: &Rc<Self>, leader: NodeId, epoch: LeaseEpoch) {
        let member = self.member();
        if member.reign.get().is_some_and(|reign| reign < epoch) {
            self.demote();
        }
        member.follow.set(Some((leader, epoch)));
        member.told_caught_up.set(None);
        let inbound = member.inbound.borrow().clone();
        if let Some(inbound) = inbound {
            inlink::engage(self, &inbound);
        }
    }

    fn stop_following(self: &Rc<Self>) {
        let member = self.member();
        member.follow.set(None);
        self.step(Event::StopFollowing);
        if let Some(inbound) = member.inbound.borrow_mut().take() {
            inbound.close();
        }
    }

    fn demote(self: &Rc<Self>) {
        let member = self.member();
        member.reign.set(None);
        member.opened_at.set(None);
        member.reachable.set(false);
        self.step(Event::Demote);
        self.blocks.borrow_mut().forget();
        member.uploads.end();
        member.collector.end();
        if let Some(outbound) = member.outbound.borrow_mut().take() {
            outbound.close();
        }
        member.target_changed.ring();
    }

    fn refuse_leader(&self, from: NodeId, epoch: LeaseEpoch, refusal: Refusal) {
        let inbound = self.member().inbound.borrow().clone();
        if let Some(inbound) = inbound.filter(|inbound| inbound.is_of(from, epoch)) {
            inbound.refuse_lease(self, refusal);
        }
    }

    /// The reign in which this shard's machine leads, whatever the clock says of the grant.
    pub(in crate::serve) fn leading(&self) -> Option<LeaseEpoch> {
        match self.shard.borrow().role() {
            Role::Leader { epoch } => Some(epoch),
            _ => None,
        }
    }

    /// Whether this node leads and its grant holds at this moment.
    pub(in crate::serve) fn leads_now(&self) -> bool {
        self.look_at_the_clock();
        self.member().leads(self)
    }

    /// Puts out the refusal of what only the leader does.
    pub(in crate::serve) fn refuse_as_follower(
        &self,
        out: &mut Vec<u8>,
        correlation: u64,
        text: impl std::fmt::Display,
    ) {
        let (epoch, leader) = match &self.pair {
            Some(member) => member.leader.borrow().clone(),
            None => (LeaseEpoch(0), String::new()),
        };
        ErrorFrame::not_leader(epoch).encode_with(out, correlation, text, &leader);
    }

    /// Tells a connection that is new here what the node is.
    pub(in crate::serve) fn introduce(&self, session: &mut Session) {
        if let Some(member) = &self.pair {
            let leader = member.leader.borrow();
            let (role, epoch) = (member.role(self), leader.0);
            session.set_standing(&Standing { role, epoch, leader: &leader.1 });
        }
    }

    /// Tells every client if the node has become something else.
    fn tell_standing(self: &Rc<Self>) {
        let member = self.member();
        let role = member.role(self);
        if let (known, leader) = &*member.told_standing.borrow()
            && (*known, leader) == (role, &*member.leader.borrow())
        {
            return;
        }
        member.told_standing.replace((role, member.leader.borrow().clone()));
        let connections: Vec<_> =
            self.connections.borrow().iter().map(|(_, known)| Rc::clone(known)).collect();
        for connection in connections {
            self.introduce(&mut connection.session.borrow_mut());
            connection.send(self);
        }
    }

    /// Whether somebody waits for this shard although no request does: clients for a promotion, the
    /// leader for what is being written here, a follower for the log.
    pub(in crate::serve) fn works_for_the_pair(&self) -> bool {
        let Some(member) = &self.pair else { return false };
        let shard = self.shard.borrow();
        matches!(shard.role(), Role::Promoting { .. })
            || shard.durable() != shard.end()
            || member.outbound.borrow().as_ref().is_some_and(|link| link.feeds())
    }

    /// What the pair has to do after every step of the machine: upload, and tell whom it concerns.
    pub(in crate::serve) fn after_step(self: &Rc<Self>) {
        let Some(member) = &self.pair else { return };
        let (end, durable, committed) = {
            let shard = self.shard.borrow();
            (shard.end().lsn, shard.durable().lsn, shard.committed().lsn)
        };
        if end > committed {
            self.tell_first_append(end);
            member.uploads.look(self);
        }
        if durable == end {
            member.settled.ring();
        }
        self.tell_caught_up(committed);
        self.tell_covered();
    }

    /// As leader: the reign has its first append on this shard.
    fn tell_first_append(&self, end: Lsn) {
        let opened_at = &self.member().opened_at;
        if opened_at.get().is_some_and(|opened| end > opened) {
            opened_at.set(None);
            if let Some(epoch) = self.member().reign.get() {
                self.tell_control(ToControl::FirstAppend { epoch });
            }
        }
    }

    /// As follower: this shard has what it was told is committed.
    fn tell_caught_up(&self, committed: Lsn) {
        let member = self.member();
        let Some(inbound) = &*member.inbound.borrow() else { return };
        let Some(epoch) = inbound.caught_up(committed) else { return };
        if member.told_caught_up.replace(Some(epoch)) != Some(epoch) {
            self.tell_control(ToControl::CaughtUp { shard: self.id(), epoch });
        }
    }

    /// As leader with a proposal: it counts here, and the newcomer has what was committed (M2).
    pub(in crate::serve) fn tell_covered(&self) {
        let member = self.member();
        let (Some(epoch), Some((_, Some(proposal)))) = (member.reign.get(), member.members.get())
        else {
            return;
        };
        let own = member.settings.identity.node;
        let acked = match proposal.other(own) {
            None => true,
            Some(newcomer) => {
                let committed = self.shard.borrow().committed().lsn;
                let outbound = member.outbound.borrow();
                let link = outbound.as_ref().filter(|link| link.node() == newcomer);
                link.is_some_and(|link| link.acked() >= committed)
            }
        };
        if acked && member.told_covered.replace(Some(proposal)) != Some(proposal) {
            self.tell_control(ToControl::ProposalCovered { shard: self.id(), epoch });
        }
    }

    /// This follower's disk has everything up to `lsn`.
    pub(in crate::serve) fn ack(&self, epoch: LeaseEpoch, lsn: Lsn) {
        let Some(member) = &self.pair else { return };
        if let Some(inbound) = &*member.inbound.borrow() {
            inbound.ack(epoch, lsn, self.shard.borrow().committed().lsn);
        }
    }

    /// A block was not the next one. What is known already does no harm.
    pub(in crate::serve) fn refuse_block(&self, reason: &BlockRefused) {
        let Some(member) = &self.pair else { return };
        if matches!(reason, BlockRefused::Known { .. }) {
            return;
        }
        tracing::warn!(event = "block_refused", shard = self.id().0, %reason);
        if let Some(inbound) = &*member.inbound.borrow() {
            inbound.refuse_block(self, reason.to_string());
        }
    }

    /// As leader: a block goes to the own disk, and at the same time to the peer's (R1).
    pub(in crate::serve) fn send_to_peer(&self, shard: &Shard, first_lsn: Lsn) {
        let Some(member) = &self.pair else { return };
        if let Some(outbound) = &*member.outbound.borrow()
            && let Some(block) = shard.in_memory_block(first_lsn)
        {
            outbound.written(first_lsn, block);
        }
    }

    /// As leader: the follower has everything up to `lsn`.
    pub(in crate::serve) fn peer_acked(self: &Rc<Self>, node: NodeId, epoch: LeaseEpoch, lsn: Lsn) {
        self.answered.set(0);
        self.sweeping.set(true);
        self.step(Event::PeerAcked { node, epoch, lsn });
        self.member().collector.step(self, garbage::Event::Acked { node, epoch, lsn });
        self.sweep();
        self.linger();
        self.cool_if_idle();
    }

    /// About every 100 ms: what no block has carried is told, what has to be looked at is.
    pub(in crate::serve) fn tick_pair(self: &Rc<Self>) {
        let Some(member) = &self.pair else { return };
        member.settled.ring();
        self.tell_standing();
        let control = self.control.borrow().clone();
        if let Some(control) = control {
            control.publish();
        }
        let (end, committed) = {
            let machine = self.shard.borrow();
            (machine.end().lsn, machine.committed().lsn)
        };
        if let Some(outbound) = &*member.outbound.borrow() {
            outbound.tell_committed(committed, end);
            if self.leading() == Some(outbound.epoch()) {
                outbound.tell_settled(committed, end, self.settled());
            }
            outbound.report_progress(self, end);
            outbound.look(self.now().mono.ms());
        }
        member.uploads.look(self);
    }

    /// The machine has drained: tell whoever asked.
    pub(in crate::serve) fn tell_drained(&self) {
        let Some(member) = &self.pair else { return };
        if let Some(epoch) = member.draining.take() {
            self.tell_control(ToControl::Drained { shard: self.id(), epoch });
        }
    }

    /// Steps the machine with several events and performs once.
    pub(in crate::serve) fn step_many(
        self: &Rc<Self>,
        feed: impl FnOnce(&ShardLoop, &mut Actions),
    ) {
        self.look_at_the_clock();
        let mut actions = self.actions.take();
        feed(self, &mut actions);
        self.perform(actions);
    }
}
