//! Which blocks have a second copy (rules R2 and M2): what the peers have acked at this reign, what
//! the chain holds, and which sets of nodes have to agree. Pure bookkeeping; who leads and whether
//! answers may leave is `role`'s.

use duolog_lease::in_sync::InSync;

use crate::ids::{LeaseEpoch, Lsn, NodeId};

/// Nodes whose acks are remembered: the pair, and at most two that copy the log before they are
/// admitted. When more come, those outside of the sets in force are forgotten.
const PEERS_MAX: usize = 4;

/// Where the copies of an event were when its append was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// On this disk: a standalone node.
    Disk,
    /// On this disk and the peer's.
    Peer,
    /// On this disk and in the chain.
    Chain,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Coverage {
    own: Option<NodeId>,
    /// The reign whose acks and chain count.
    epoch: LeaseEpoch,
    in_sync: Option<InSync>,
    proposal: Option<InSync>,
    acked: Vec<(NodeId, Lsn)>,
    chain: Lsn,
}

impl Coverage {
    /// Nothing is covered. `own` is this node; `None` if it is standalone.
    pub(super) fn new(own: Option<NodeId>) -> Self {
        Self { own, acked: Vec::with_capacity(PEERS_MAX), ..Self::default() }
    }

    /// This node's reign `epoch` begins.
    pub(super) fn begin(&mut self, epoch: LeaseEpoch) {
        // R2: acks of another epoch do not count.
        self.acked.clear();
        (self.epoch, self.chain) = (epoch, Lsn(0));
    }

    /// The sets that must cover a block: the one in force, and the one that a renewal of unknown
    /// outcome may have put in its place (M2).
    pub(super) fn set_members(&mut self, in_sync: InSync, proposal: Option<InSync>) {
        (self.in_sync, self.proposal) = (Some(in_sync), proposal);
    }

    /// Everything up to `lsn` is durable at `node`, which follows `epoch`.
    pub(super) fn peer_acked(&mut self, node: NodeId, epoch: LeaseEpoch, lsn: Lsn) {
        if epoch != self.epoch || Some(node) == self.own {
            return;
        }
        if let Some((_, acked)) = self.acked.iter_mut().find(|(known, _)| *known == node) {
            *acked = lsn.max(*acked);
            return;
        }
        if self.acked.len() >= PEERS_MAX {
            let sets = [self.in_sync, self.proposal];
            let member = |node| sets.iter().flatten().any(|set| set.contains(node));
            self.acked.retain(|(node, _)| member(*node));
        }
        if self.acked.len() < PEERS_MAX {
            self.acked.push((node, lsn));
        }
    }

    /// The chain of `epoch` holds everything up to `lsn`.
    pub(super) fn chain_stored(&mut self, epoch: LeaseEpoch, lsn: Lsn) {
        if epoch == self.epoch {
            self.chain = self.chain.max(lsn);
        }
    }

    /// The last LSN that has its second copy under every set in force; 0 before they are known.
    pub(super) fn covered(&self) -> Lsn {
        let Some(in_sync) = self.in_sync else { return Lsn(0) };
        let covered = self.covered_under(&in_sync);
        // M2: while it is not known which set is in force, both have to cover.
        self.proposal.map_or(covered, |proposal| covered.min(self.covered_under(&proposal)))
    }

    fn covered_under(&self, set: &InSync) -> Lsn {
        // A set of this node alone, or without it, needs the chain (M0).
        let other = self.own.filter(|own| set.contains(*own)).and_then(|own| set.other(own));
        other.map_or(self.chain, |other| self.acked_by(other).max(self.chain))
    }

    fn acked_by(&self, node: NodeId) -> Lsn {
        let acked = self.acked.iter().find(|(known, _)| *known == node);
        acked.map_or(Lsn(0), |(_, lsn)| *lsn)
    }

    /// Where the second copy of the event at `lsn`, which is committed, is.
    pub(super) fn copies(&self, lsn: Lsn) -> Copies {
        let Some(own) = self.own else { return Copies::Disk };
        let peer = self.in_sync.and_then(|set| set.other(own));
        let acked = peer.is_some_and(|peer| self.acked_by(peer) >= lsn);
        if acked { Copies::Peer } else { Copies::Chain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: NodeId = NodeId(1);
    const PEER: NodeId = NodeId(2);
    const NEWCOMER: NodeId = NodeId(3);
    const EPOCH: LeaseEpoch = LeaseEpoch(5);

    fn coverage(in_sync: InSync, proposal: Option<InSync>) -> Coverage {
        let mut coverage = Coverage::new(Some(OWN));
        coverage.begin(EPOCH);
        coverage.chain_stored(EPOCH, Lsn(10));
        coverage.set_members(in_sync, proposal);
        coverage
    }

    /// Rule R2: an ack of another reign, or of a node outside of `in_sync`, is no second copy.
    #[test]
    fn only_acks_of_this_reign_by_members_count() {
        let mut coverage = coverage(InSync::pair(OWN, PEER), None);
        coverage.peer_acked(PEER, LeaseEpoch(4), Lsn(20));
        coverage.peer_acked(PEER, LeaseEpoch(6), Lsn(20));
        coverage.peer_acked(NEWCOMER, EPOCH, Lsn(20));
        coverage.peer_acked(OWN, EPOCH, Lsn(20));
        assert_eq!(coverage.covered(), Lsn(10), "the chain's end at the beginning of the reign");
        coverage.peer_acked(PEER, EPOCH, Lsn(15));
        coverage.peer_acked(PEER, EPOCH, Lsn(12));
        assert_eq!(coverage.covered(), Lsn(15), "a late ack takes nothing back");
        coverage.begin(LeaseEpoch(6));
        assert_eq!(coverage.covered(), Lsn(0), "a new reign counts anew");
    }

    /// Rule R2: wire and chain may alternate inside one reign.
    #[test]
    fn the_chain_covers_what_the_peer_has_not_acked() {
        let mut coverage = coverage(InSync::pair(OWN, PEER), None);
        coverage.peer_acked(PEER, EPOCH, Lsn(15));
        coverage.chain_stored(LeaseEpoch(4), Lsn(30));
        assert_eq!((coverage.covered(), coverage.copies(Lsn(15))), (Lsn(15), Copies::Peer));
        coverage.chain_stored(EPOCH, Lsn(20));
        assert_eq!((coverage.covered(), coverage.copies(Lsn(16))), (Lsn(20), Copies::Chain));
    }

    /// Rule M0: a node alone in its set needs the chain.
    #[test]
    fn a_node_alone_needs_the_chain() {
        let mut coverage = coverage(InSync::alone(OWN), None);
        coverage.peer_acked(PEER, EPOCH, Lsn(20));
        assert_eq!(coverage.covered(), Lsn(10));
        coverage.chain_stored(EPOCH, Lsn(12));
        assert_eq!(coverage.covered(), Lsn(12));
        assert_eq!(Coverage::new(Some(OWN)).covered(), Lsn(0), "before the sets are known");
    }

    /// Rule M2: while the outcome of a change is unknown both sets must cover.
    #[test]
    fn both_sets_must_cover_while_one_may_replace_the_other() {
        let alone = InSync::alone(OWN);
        let mut coverage = coverage(alone, Some(InSync::pair(OWN, NEWCOMER)));
        coverage.peer_acked(NEWCOMER, EPOCH, Lsn(20));
        assert_eq!(coverage.covered(), Lsn(10), "the old set still needs the chain");
        coverage.chain_stored(EPOCH, Lsn(13));
        assert_eq!(coverage.covered(), Lsn(13));
        coverage.set_members(InSync::pair(OWN, NEWCOMER), None);
        assert_eq!(coverage.covered(), Lsn(20), "what it acked before it was admitted counts");
    }

    /// Rule M2, the other way round: the new set may be in force already.
    #[test]
    fn the_set_that_may_be_in_force_already_must_cover_too() {
        let swapped = InSync::pair(OWN, NEWCOMER);
        let mut coverage = coverage(InSync::pair(OWN, PEER), Some(swapped));
        coverage.peer_acked(PEER, EPOCH, Lsn(20));
        assert_eq!(coverage.covered(), Lsn(10), "M2: the newcomer has not acked");
        coverage.peer_acked(NEWCOMER, EPOCH, Lsn(14));
        assert_eq!(coverage.covered(), Lsn(14));
    }

    #[test]
    fn acks_of_many_strangers_displace_no_member() {
        let mut coverage = coverage(InSync::pair(OWN, PEER), None);
        coverage.peer_acked(PEER, EPOCH, Lsn(15));
        for stranger in 10..30 {
            coverage.peer_acked(NodeId(stranger), EPOCH, Lsn(20));
            assert!(coverage.acked.len() <= PEERS_MAX);
        }
        assert_eq!(coverage.covered(), Lsn(15));
    }
}
