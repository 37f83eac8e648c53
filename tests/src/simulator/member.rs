//! The shard's part: what it hears from the control, and what follows every step.

use duolog_engine::ids::{LeaseEpoch, NodeId};
use duolog_engine::replica::garbage;
use duolog_engine::shard::Event;
use duolog_lease::event::{Event as LeaseEvent, Refusal};
use duolog_lease::grant::{Admission, Grant};
use duolog_lease::in_sync::InSync;

use super::node::ToShard;
use super::plan::Mistake;
use super::world::World;

impl World {
    /// A message from the control.
    pub fn hear(&mut self, node: usize, message: ToShard) {
        match message {
            ToShard::Grant(grant) => {
                let before = std::mem::replace(&mut self.process(node).grant, grant);
                self.shard_step(node, Event::Grant(grant));
                self.resume_if_called_off(node, before, grant);
                self.uploader_granted(node);
            }
            ToShard::Members(in_sync, proposal) => self.take_members(node, in_sync, proposal),
            ToShard::Follow(leader, epoch) => self.follow(node, leader, epoch),
            ToShard::StopFollowing => {
                self.stop_following(node);
                self.tell_control(node, LeaseEvent::FollowingStopped);
            }
            ToShard::Suspend => self.stop_following(node),
            ToShard::Promote(epoch) => {
                self.stop_following(node);
                let process = self.process(node);
                process.reign = Some(epoch);
                process.draining = None;
                self.shard_step(node, Event::Promote { epoch });
                self.begin_promotion(node, epoch);
            }
            ToShard::Demote => self.demote(node),
            ToShard::Drain(epoch) => {
                self.process(node).draining = Some(epoch);
                self.shard_step(node, Event::Drain);
            }
            ToShard::Refuse(from, epoch, refusal) => self.refuse_leader(node, from, epoch, refusal),
            ToShard::Reachable(reachable) => {
                self.process(node).reachable = reachable;
                self.look_at_chain(node);
            }
            ToShard::Committed(epoch, lsn) => {
                if lsn > self.process(node).shard.committed().lsn {
                    self.shard_step(node, Event::CommitMark { epoch, lsn });
                }
            }
        }
    }

    fn resume_if_called_off(&mut self, node: usize, before: Option<Grant>, after: Option<Grant>) {
        let admits = |grant: Option<Grant>, admission| {
            grant.is_some_and(|grant| grant.admission == admission)
        };
        if admits(before, Admission::Closed) && admits(after, Admission::Open) {
            self.process(node).draining = None;
            self.saw("a handover is called off");
            self.shard_step(node, Event::Resume);
        }
    }

    fn take_members(&mut self, node: usize, in_sync: InSync, proposal: Option<InSync>) {
        let process = self.process(node);
        process.members = Some((in_sync, proposal));
        process.told_covered = None;
        self.shard_step(node, Event::Members { in_sync, proposal });
        self.collect(node, garbage::Event::Members { in_sync, proposal });
        self.look_at_chain(node);
        self.tell_covered(node);
    }

    fn follow(&mut self, node: usize, leader: NodeId, epoch: LeaseEpoch) {
        if self.process(node).reign.is_some_and(|reign| reign < epoch) {
            self.demote(node);
        }
        let process = self.process(node);
        process.follow = Some((leader, epoch));
        process.told_caught_up = None;
        self.engage(node);
    }

    fn stop_following(&mut self, node: usize) {
        if self.makes(Mistake::FollowsOn) {
            return;
        }
        self.process(node).follow = None;
        self.shard_step(node, Event::StopFollowing);
        if let Some(inbound) = self.process(node).inbound.take() {
            self.hang_up(node, inbound.conn);
        }
    }

    pub fn demote(&mut self, node: usize) {
        let process = self.process(node);
        process.reign = None;
        process.reachable = false;
        process.promoting = None;
        process.uploading = None;
        process.collecting = None;
        let outbound = process.outbound.take();
        self.shard_step(node, Event::Demote);
        if let Some(outbound) = outbound {
            self.hang_up(node, outbound.conn);
        }
    }

    fn refuse_leader(&mut self, node: usize, from: NodeId, epoch: LeaseEpoch, refusal: Refusal) {
        let inbound = self.process(node).inbound.take_if(|link| link.is_of(from, epoch));
        if let Some(inbound) = inbound {
            self.refuse_link(node, &inbound, refusal);
        }
    }

    /// What the pair has to do after every step of the shard.
    pub fn after_step(&mut self, node: usize) {
        let process = self.process(node);
        if process.shard.end().lsn > process.shard.committed().lsn {
            self.look_at_chain(node);
        }
        self.settled_work(node);
        self.tell_caught_up(node);
        self.tell_covered(node);
    }

    fn tell_caught_up(&mut self, node: usize) {
        let process = self.process(node);
        let committed = process.shard.committed().lsn;
        let epoch = process.inbound.as_ref().and_then(|link| link.caught_up(committed));
        if let Some(epoch) = epoch
            && process.told_caught_up.replace(epoch) != Some(epoch)
        {
            self.tell_control(node, LeaseEvent::CaughtUp { epoch });
        }
    }

    /// As leader with a proposal: it counts here, and the newcomer has what was committed (M2).
    pub fn tell_covered(&mut self, node: usize) {
        let own = self.nodes[node].id;
        let process = self.process(node);
        let (Some(epoch), Some((_, Some(proposal)))) = (process.reign, process.members) else {
            return;
        };
        let committed = process.shard.committed().lsn;
        let acked = match proposal.other(own) {
            None => true,
            Some(newcomer) => {
                let link = process.outbound.as_ref().filter(|link| link.is_to(newcomer));
                link.is_some_and(|link| link.acked() >= committed)
            }
        };
        if acked && process.told_covered.replace(proposal) != Some(proposal) {
            self.tell_control(node, LeaseEvent::ProposalCovered { epoch });
        }
    }

    /// About every 100 ms.
    pub fn tick_pair(&mut self, node: usize) {
        self.tell_standing(node);
        self.settled_work(node);
        self.tell_mark(node);
        let now = self.nodes[node].now(self.now_us).mono.ms();
        let outbound = self.process(node).outbound.as_mut();
        if let Some(link) = outbound.and_then(|outbound| outbound.link.as_mut()) {
            link.look(now);
        }
        self.look_at_chain(node);
    }
}
