//! What may be deleted from the chains of one shard, and when a new reign would free more (rules G1
//! to G3). Run by the shard's leader, once per reign; what a fault leaves goes with the next.

use std::collections::VecDeque;

use duolog_lease::in_sync::InSync;

use super::chain::ObjectPlace;
use super::chain::header::CHAIN_HEADER_BYTES;
use super::limits::{CHAIN_LONG_BYTES, CHAIN_LONG_OBJECTS, GARBAGE_DELETES_IN_FLIGHT_MAX};
use super::uploader::Wire;
use crate::ids::{LeaseEpoch, Lsn, NodeId};

/// G3: whether the running reign's chain, so many objects and bytes of one shard, is worth a new
/// reign. Only when the wire covers: else the new chain would grow like the old one.
#[must_use]
pub const fn is_worth_a_new_reign((objects, bytes): (u64, u64), wire: Wire) -> bool {
    matches!(wire, Wire::Covers) && (objects >= CHAIN_LONG_OBJECTS || bytes >= CHAIN_LONG_BYTES)
}

/// An object as a listing shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedObject {
    /// Its place.
    pub place: ObjectPlace,
    /// Its size, bytes.
    pub bytes: u64,
}

/// What the machine is told.
#[derive(Clone, Debug)]
pub enum Event {
    /// The set in force and, while its outcome is unknown, the proposed one (M2).
    Members {
        /// In force.
        in_sync: InSync,
        /// Proposed.
        proposal: Option<InSync>,
    },
    /// A node has everything up to here on its disk.
    Acked {
        /// The node.
        node: NodeId,
        /// The epoch of its ack.
        epoch: LeaseEpoch,
        /// The LSN.
        lsn: Lsn,
    },
    /// Answer to `List`: the objects behind `after` in the order of their keys. An empty list says
    /// that there are no more.
    Listed(Vec<ListedObject>),
    /// Answer to `Delete`, whatever came of it: what stays is deleted in the next reign.
    Deleted,
}

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// List objects of the shard's chains, one page, behind this place. Answer: `Listed`. On
    /// failure: again, without hurry.
    List {
        /// The place; `None` for the beginning.
        after: Option<ObjectPlace>,
    },
    /// Delete an object. Answer: `Deleted`.
    Delete(ObjectPlace),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Waiting,
    Listing,
    Deleting,
    Done,
}

/// The machine of one shard in one reign.
#[derive(Debug)]
pub struct Garbage {
    node: NodeId,
    epoch: LeaseEpoch,
    base: Lsn,
    members: Option<(InSync, Option<InSync>)>,
    /// The newest acks at this epoch: of the follower, and of a newcomer.
    acked: Vec<(NodeId, Lsn)>,
    step: Step,
    after: Option<ObjectPlace>,
    queue: VecDeque<ObjectPlace>,
    in_flight: usize,
}

impl Garbage {
    /// For the reign `epoch` of `node`, whose Open has the base `base`.
    #[must_use]
    pub const fn new(node: NodeId, epoch: LeaseEpoch, base: Lsn) -> Self {
        Self {
            node,
            epoch,
            base,
            members: None,
            acked: Vec::new(),
            step: Step::Waiting,
            after: None,
            queue: VecDeque::new(),
            in_flight: 0,
        }
    }

    /// Whether all is deleted that may be.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.step == Step::Done
    }

    /// Takes in an event and appends what is to be done to `out`.
    pub fn step(&mut self, event: Event, out: &mut Vec<Action>) {
        match event {
            Event::Members { in_sync, proposal } => self.members = Some((in_sync, proposal)),
            Event::Acked { node, epoch, lsn } if epoch == self.epoch => self.acked(node, lsn),
            Event::Acked { .. } => {}
            Event::Listed(objects) => self.listed(&objects),
            Event::Deleted => self.in_flight = self.in_flight.saturating_sub(1),
        }
        if self.step == Step::Waiting && self.is_free() {
            self.step = Step::Listing;
            out.push(Action::List { after: None });
        }
        if self.step == Step::Deleting {
            self.delete(out);
        }
    }

    fn acked(&mut self, node: NodeId, lsn: Lsn) {
        let members =
            self.members.iter().flat_map(|(set, proposal)| [Some(set), proposal.as_ref()]);
        if !members.flatten().any(|set| set.contains(node)) {
            return;
        }
        match self.acked.iter_mut().find(|(known, _)| *known == node) {
            Some((_, acked)) => *acked = (*acked).max(lsn),
            None => self.acked.push((node, lsn)),
        }
    }

    /// G2: no node that may lead needs an older chain to find its way to this one.
    fn is_free(&self) -> bool {
        let Some((in_sync, proposal)) = self.members else { return false };
        let others = [Some(in_sync), proposal].into_iter().flatten();
        others.filter_map(|set| set.other(self.node)).all(|other| {
            self.acked.iter().any(|(node, acked)| *node == other && *acked >= self.base)
        })
    }

    fn listed(&mut self, objects: &[ListedObject]) {
        if self.step != Step::Listing {
            return;
        }
        self.step = if objects.is_empty() { Step::Done } else { Step::Deleting };
        self.after = objects.last().map(|object| object.place);
        let free = objects.iter().filter(|object| {
            // G1: nothing of the running reign. G2: Seals stay for ever, so that no late PUT finds
            // its place free; they are what has no body (and Opens without blocks, as small).
            object.place.epoch < self.epoch && object.bytes > CHAIN_HEADER_BYTES as u64
        });
        self.queue.extend(free.map(|object| object.place));
    }

    fn delete(&mut self, out: &mut Vec<Action>) {
        while self.in_flight < GARBAGE_DELETES_IN_FLIGHT_MAX
            && let Some(place) = self.queue.pop_front()
        {
            self.in_flight += 1;
            out.push(Action::Delete(place));
        }
        if self.in_flight == 0 {
            self.step = Step::Listing;
            out.push(Action::List { after: self.after });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ShardId;
    use crate::replica::chain::Seq;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);
    const C: NodeId = NodeId(3);

    /// Leader A of epoch 5, whose Open has base 100.
    struct Case(Garbage, Vec<Action>);

    impl Case {
        fn new() -> Self {
            Self(Garbage::new(A, LeaseEpoch(5), Lsn(100)), Vec::new())
        }

        fn tell(&mut self, event: Event) -> Vec<Action> {
            self.0.step(event, &mut self.1);
            std::mem::take(&mut self.1)
        }

        fn members(&mut self, in_sync: InSync, proposal: Option<InSync>) -> Vec<Action> {
            self.tell(Event::Members { in_sync, proposal })
        }

        fn acked(&mut self, node: NodeId, epoch: u64, lsn: u64) -> Vec<Action> {
            self.tell(Event::Acked { node, epoch: LeaseEpoch(epoch), lsn: Lsn(lsn) })
        }
    }

    fn place(epoch: u64, seq: u32) -> ObjectPlace {
        ObjectPlace { shard: ShardId(0), epoch: LeaseEpoch(epoch), seq: Seq(seq) }
    }

    fn listed(objects: &[(u64, u32, u64)]) -> Event {
        let object = |(epoch, seq, bytes): &(u64, u32, u64)| ListedObject {
            place: place(*epoch, *seq),
            bytes: *bytes,
        };
        Event::Listed(objects.iter().map(object).collect())
    }

    const BEGIN: [Action; 1] = [Action::List { after: None }];

    #[test]
    fn g2_nothing_is_deleted_before_the_follower_has_the_base() {
        let mut case = Case::new();
        assert_eq!(case.acked(B, 5, 100), [], "who that is is not known yet");
        assert_eq!(case.members(InSync::pair(A, B), None), []);
        assert_eq!(case.acked(B, 4, 200), [], "G2: an ack of an older reign");
        assert_eq!(case.acked(C, 5, 200), [], "not a member");
        assert_eq!(case.acked(B, 5, 99), []);
        assert_eq!(case.acked(B, 5, 100), BEGIN);
        assert_eq!(case.acked(B, 5, 101), [], "once");
    }

    #[test]
    fn g2_a_newcomer_counts_before_it_is_known_to_be_in() {
        let mut case = Case::new();
        assert_eq!(case.members(InSync::pair(A, B), Some(InSync::pair(A, C))), []);
        assert_eq!(case.acked(B, 5, 100), []);
        assert_eq!(case.acked(C, 5, 100), BEGIN);
        let mut alone = Case::new();
        assert_eq!(alone.members(InSync::alone(A), Some(InSync::pair(A, B))), []);
        assert_eq!(alone.members(InSync::alone(A), None), BEGIN, "nobody else may lead");
    }

    #[test]
    fn g1_g2_the_running_chain_and_all_seals_stay() {
        let mut case = Case::new();
        assert_eq!(case.members(InSync::alone(A), None), BEGIN);
        let (seal, body) = (CHAIN_HEADER_BYTES as u64, 1000);
        let page = [(3, 0, seal), (4, 0, body), (4, 1, body), (4, 2, seal), (5, 0, body)];
        let delete = |epoch, seq| Action::Delete(place(epoch, seq));
        assert_eq!(case.tell(listed(&page)), [delete(4, 0), delete(4, 1)]);
        assert_eq!(case.tell(Event::Deleted), []);
        let after = Some(place(5, 0));
        assert_eq!(case.tell(Event::Deleted), [Action::List { after }]);
        assert_eq!(
            case.tell(listed(&[(5, 1, body), (6, 0, body)])),
            [Action::List { after: Some(place(6, 0)) }]
        );
        assert!(!case.0.is_done());
        assert_eq!(case.tell(listed(&[])), []);
        assert!(case.0.is_done());
    }

    #[test]
    fn few_deletions_are_under_way_at_one_time() {
        let mut case = Case::new();
        case.members(InSync::alone(A), None);
        let page: Vec<(u64, u32, u64)> = (1..10).map(|seq| (2, seq, 500)).collect();
        let mut deleted = case.tell(listed(&page)).len();
        assert_eq!(deleted, GARBAGE_DELETES_IN_FLIGHT_MAX);
        for _ in 0..9 {
            let next = case.tell(Event::Deleted);
            deleted += next.iter().filter(|action| matches!(action, Action::Delete(_))).count();
        }
        assert_eq!(deleted, 9);
    }

    #[test]
    fn g3_a_long_chain_is_left_when_the_follower_is_back() {
        assert!(is_worth_a_new_reign((CHAIN_LONG_OBJECTS, 0), Wire::Covers));
        assert!(is_worth_a_new_reign((1, CHAIN_LONG_BYTES), Wire::Covers));
        assert!(!is_worth_a_new_reign((CHAIN_LONG_OBJECTS, 0), Wire::Away));
        assert!(!is_worth_a_new_reign((1, 1), Wire::Covers));
    }
}
