//! Who belongs to the pair: only the leader changes it, by compare-and-swap (M0 to M3).

use super::Machine;
use super::state::{Change, Phase, Reign, Stage};
use crate::action::{Action, Actions};
use crate::event::{Force, Replace};
use crate::ids::{LeaseEpoch, NodeId};
use crate::in_sync::InSync;
use crate::report::{MemberRefusal, What};
use crate::rules::{Mistake, Rules};

impl<R: Rules> Machine<R> {
    /// Whether the leader lets this node copy. Its acks count only when it is a member (M1).
    ///
    /// # Errors
    /// Why not; the node is told.
    pub fn admits(&self, node: NodeId) -> Result<(), MemberRefusal> {
        let Phase::Reign(reign) = &self.phase else {
            return Err(MemberRefusal::NotLeader);
        };
        let named = match reign.change {
            Change::Named { newcomer } => newcomer == node,
            change => change.proposal().is_some_and(|next| next.contains(node)),
        };
        if reign.in_sync.contains(node) || named {
            return Ok(());
        }
        // M0: while there is room, any node of the cluster may come; the first to catch up stays.
        match reign.change {
            Change::None if reign.in_sync.is_alone() => Ok(()),
            _ => Err(MemberRefusal::ThirdNode),
        }
    }

    fn leading(&mut self, at: LeaseEpoch) -> Option<&mut Reign> {
        match &mut self.phase {
            Phase::Reign(reign) if reign.epoch == at && reign.stage == Stage::Leading => {
                Some(reign)
            }
            _ => None,
        }
    }

    pub(super) fn follower_caught_up(
        &mut self,
        node: NodeId,
        epoch: LeaseEpoch,
        out: &mut Actions,
    ) {
        let admitted = self.admits(node);
        let me = self.identity.node;
        let Some(reign) = self.leading(epoch) else {
            return;
        };
        if reign.in_sync.contains(node) {
            return;
        }
        if let Err(refusal) = admitted {
            return self.report(epoch, What::MemberRefused { node, refusal }, out);
        }
        if reign.change.proposal().is_none() {
            self.propose(InSync::pair(me, node), out);
        }
    }

    fn propose(&mut self, next: InSync, out: &mut Actions) {
        if let Phase::Reign(reign) = &mut self.phase {
            reign.change = Change::Adopting { next };
            let epoch = reign.epoch;
            self.tell_members(out);
            self.report(epoch, What::MembersProposed(next), out);
        }
    }

    fn tell_members(&self, out: &mut Actions) {
        if let Phase::Reign(reign) = &self.phase {
            let uncounted = self.rules.breaks(Mistake::ProposalUncounted);
            let proposal = reign.change.proposal().filter(|_| !uncounted);
            out.push(Action::MembershipChanged { in_sync: reign.in_sync, proposal });
        }
    }

    pub(super) fn proposal_covered(&mut self, epoch: LeaseEpoch) {
        if let Some(reign) = self.leading(epoch)
            && let Change::Adopting { next } = reign.change
        {
            reign.change = Change::Covered { next };
        }
    }

    /// A newcomer that goes away before the write is sent is no newcomer any more.
    pub(super) fn follower_lost(&mut self, node: NodeId, out: &mut Actions) {
        let Phase::Reign(reign) = &mut self.phase else {
            return;
        };
        if let Change::Adopting { next } | Change::Covered { next } = reign.change
            && next.contains(node)
            && !reign.in_sync.contains(node)
        {
            // A replacement that the operator named may come back.
            let replaces = !reign.in_sync.is_alone();
            reign.change = if replaces { Change::Named { newcomer: node } } else { Change::None };
            self.tell_members(out);
        }
    }

    /// The lease is known to hold these members.
    pub(super) fn members_stored(&mut self, in_sync: InSync, out: &mut Actions) {
        let Phase::Reign(reign) = &mut self.phase else {
            return;
        };
        let Change::Written { next } = reign.change else {
            return;
        };
        let epoch = reign.epoch;
        if in_sync != next {
            reign.change = Change::Covered { next }; // that write never lands: send another
            return;
        }
        reign.in_sync = next;
        reign.change = Change::None;
        // Acks of heartbeats by a member that has left count no more; the newcomer's will.
        reign.reachable = false;
        self.tell_members(out);
        self.report(epoch, What::MembersChanged(next), out);
    }

    pub(super) fn replace_requested(&mut self, replace: Replace, out: &mut Actions) {
        let Replace { dead, newcomer, .. } = replace;
        let refusal = match &self.phase {
            Phase::Reign(reign) if reign.stage == Stage::Leading => {
                replace_refusal(reign, self.identity.node, replace)
            }
            _ => Some(MemberRefusal::NotLeader),
        };
        let epoch = self.promise.asked;
        if let Some(refusal) = refusal {
            let what = What::MemberRefused { node: dead, refusal };
            return self.report(epoch, what, out);
        }
        if let Phase::Reign(reign) = &mut self.phase {
            reign.change = Change::Named { newcomer };
        }
    }
}

fn replace_refusal(reign: &Reign, me: NodeId, replace: Replace) -> Option<MemberRefusal> {
    let Replace { dead, newcomer, force } = replace;
    let busy = !matches!(reign.change, Change::None | Change::Named { .. });
    if busy {
        Some(MemberRefusal::Busy)
    } else if reign.in_sync.other(me) != Some(dead) || newcomer == dead {
        Some(MemberRefusal::NotMember)
    } else if reign.reachable && force == Force::No {
        Some(MemberRefusal::Reachable)
    } else {
        None
    }
}
