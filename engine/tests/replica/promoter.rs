//! The promotion machine and its driver, which is slow, out of order, and sometimes unheard.

use std::collections::{BTreeMap, BTreeSet};

use duolog_engine::ids::{LeaseEpoch, Lsn, NodeId};
use duolog_engine::replica::BlockEnd;
use duolog_engine::replica::chain::header::{ObjectKind, Packing};
use duolog_engine::replica::chain::object::{Object, ObjectParts, encode, encode_seal};
use duolog_engine::replica::chain::{ObjectPlace, Seq};
use duolog_engine::replica::promotion::{
    Action, Ended, Event, GetAnswer, ObjectFacts, Promotion, PromotionStart, PutOutcome,
};

use crate::bucket::{Bucket, Put};
use crate::leader::Leading;
use crate::log::{CLUSTER, SHARD};
use crate::mistake::Mistake;
use crate::world::{Node, Reign, Role, World, object_id, place};

#[derive(Debug)]
pub struct Promoting {
    pub epoch: u64,
    machine: Promotion,
    todo: Vec<Action>,
    kept: BTreeMap<ObjectPlace, Vec<u8>>,
    /// What a listing showed when it began.
    listing: BTreeSet<ObjectPlace>,
}

impl Promoting {
    pub fn new(node: &Node, epoch: u64, bucket: &Bucket) -> Self {
        let machine = Promotion::new(PromotionStart {
            cluster: CLUSTER,
            shard: SHARD,
            node: node.id,
            epoch: LeaseEpoch(epoch),
            end: node.log.end(),
            committed: node.mark,
            stored: node.stored,
        });
        let listing = bucket.objects.keys().copied().collect();
        let mut promoting =
            Self { epoch, machine, todo: Vec::new(), kept: BTreeMap::new(), listing };
        promoting.machine.step(duolog_engine::ids::MonoMs(0), Event::Begin, &mut promoting.todo);
        promoting
    }
}

impl World {
    fn promoting(&mut self, node: usize) -> &mut Promoting {
        match &mut self.nodes[node].role {
            Role::Promoting(promoting) => promoting,
            role => panic!("{role:?} does not promote"),
        }
    }

    fn tell_promotion(&mut self, node: usize, event: Event) {
        let now = self.now;
        let promoting = self.promoting(node);
        promoting.machine.step(now, event, &mut promoting.todo);
        // In order and at once: an object that is released may be asked for again.
        let kept = &mut promoting.kept;
        promoting.todo.retain(|action| match action {
            Action::Release { epoch, seq } => {
                kept.remove(&place(epoch.0, *seq));
                false
            }
            _ => true,
        });
        if let Some(Action::Ended(how)) = promoting.todo.last().copied() {
            self.promotion_ended(node, how);
        }
    }

    /// The driver does one of the things it was told to do.
    pub fn promote(&mut self, node: usize) {
        let now = self.now;
        let promoting = self.promoting(node);
        if promoting.machine.deadline().is_some_and(|at| at <= now) {
            return self.tell_promotion(node, Event::Tick);
        }
        let count = promoting.todo.len();
        if count == 0 {
            return;
        }
        let at = self.chance.below(count);
        let action = self.promoting(node).todo.remove(at);
        self.perform(node, action);
    }

    fn perform(&mut self, node: usize, action: Action) {
        match action {
            Action::Get { epoch, seq } => self.get(node, epoch, seq),
            Action::PutSeal { epoch, seq } => self.put_seal(node, place(epoch.0, seq)),
            Action::PutOpen { base, end } => {
                let epoch = self.promoting(node).epoch;
                let base = if self.makes(Mistake::BaseTooHigh) { end } else { base };
                let state = &self.nodes[node];
                let place = place(epoch, Seq::OPEN);
                let (id, kind) = (object_id(place), ObjectKind::Open);
                let parts = ObjectParts { id, kind, node: state.id, base };
                let mut bytes = Vec::new();
                let blocks = state.log.slices(base.lsn, end.lsn);
                encode(&parts, blocks, Packing::Lz4, &mut bytes).unwrap();
                let opens = Some(state.log.ends());
                let caller = self.caller(node, epoch);
                self.send(Put { place, bytes, caller, opens });
                if self.makes(Mistake::OpenNotAwaited) {
                    let event = Event::Put {
                        epoch: LeaseEpoch(epoch),
                        seq: Seq::OPEN,
                        outcome: PutOutcome::Stored,
                    };
                    self.tell_promotion(node, event);
                }
            }
            Action::FindEnd { ask, lsn } => {
                let mut end = self.nodes[node].log.end_at(lsn);
                if self.makes(Mistake::HashesNotCompared) {
                    end = self.point_at(node, lsn).or(end);
                }
                self.tell_promotion(node, Event::EndFound { ask, end });
            }
            Action::CutTo { end } => {
                self.saw("promotion cuts");
                self.cut(node, end.lsn, "a promotion");
                let end = self.nodes[node].log.end();
                self.tell_promotion(node, Event::Cut { end });
            }
            Action::Apply { epoch, seq, after } => {
                self.saw("promotion applies blocks of the chain");
                let place = place(epoch.0, seq);
                let bytes = self.promoting(node).kept[&place].clone();
                for (end, block) in self.decode_ends(place, &bytes) {
                    if end.lsn > after {
                        self.nodes[node].log.push(block);
                    }
                }
                let log = &mut self.nodes[node].log;
                log.durable = log.blocks.len();
                let end = log.end();
                self.tell_promotion(node, Event::Applied { end });
            }
            Action::ListEpochs => {
                let opens = self.bucket.objects.keys().filter(|place| place.seq == Seq::OPEN);
                let epochs = opens.map(|place| place.epoch).collect();
                self.tell_promotion(node, Event::Epochs(epochs));
            }
            Action::Release { .. } | Action::Ended(_) => {}
        }
    }

    /// The block end at `lsn` in whatever object is at hand.
    fn point_at(&mut self, node: usize, lsn: Lsn) -> Option<BlockEnd> {
        self.promoting(node).kept.iter().find_map(|(place, bytes)| {
            let mut room = Vec::new();
            let object = Object::decode(bytes, object_id(*place), &mut room).ok()?;
            object.ends().chain([object.header.base]).find(|end| end.lsn == lsn)
        })
    }

    fn get(&mut self, node: usize, epoch: LeaseEpoch, seq: Seq) {
        let place = place(epoch.0, seq);
        let listed = self.promoting(node).listing.contains(&place);
        let hidden = self.makes(Mistake::ListingTrusted) && !listed;
        let bytes = self.bucket.objects.get(&place).filter(|_| !hidden).cloned();
        let answer = if self.chance.one_in(10) {
            GetAnswer::Unknown
        } else if let Some(bytes) = bytes {
            let mut room = Vec::new();
            let object = Object::decode(&bytes, object_id(place), &mut room).unwrap();
            let facts = ObjectFacts::of(&object);
            self.promoting(node).kept.insert(place, bytes);
            GetAnswer::Object(facts)
        } else {
            GetAnswer::Nothing
        };
        self.tell_promotion(node, Event::Got { epoch, seq, answer: answer.clone() });
        if self.chance.one_in(10) && matches!(self.nodes[node].role, Role::Promoting(_)) {
            self.tell_promotion(node, Event::Got { epoch, seq, answer });
        }
    }

    fn put_seal(&mut self, node: usize, place: ObjectPlace) {
        let reign = self.promoting(node).epoch;
        let id: NodeId = self.nodes[node].id;
        let mut bytes = Vec::new();
        encode_seal(object_id(place), id, LeaseEpoch(reign), &mut bytes);
        if self.makes(Mistake::NoSeal) {
            return self.promotion_put(node, place, PutOutcome::Stored);
        }
        let caller = self.caller(node, reign);
        self.send(Put { place, bytes, caller, opens: None });
    }

    pub fn promotion_put(&mut self, node: usize, place: ObjectPlace, outcome: PutOutcome) {
        let is_seal = place.epoch.0 < self.promoting(node).epoch;
        let mut outcome = outcome;
        if outcome == PutOutcome::Exists && is_seal {
            self.saw("a Seal met an object");
            if self.makes(Mistake::SealConflictIgnored) || self.makes(Mistake::ListingTrusted) {
                outcome = PutOutcome::Stored;
            }
        }
        let (epoch, seq) = (place.epoch, place.seq);
        self.tell_promotion(node, Event::Put { epoch, seq, outcome });
    }

    fn promotion_ended(&mut self, node: usize, how: Ended) {
        let epoch = self.promoting(node).epoch;
        self.nodes[node].role = Role::Idle;
        match how {
            Ended::Opened { base, end } => {
                self.saw("opened");
                let state = &self.nodes[node];
                assert_eq!(end, state.log.end());
                let (start, log) = (state.log.clone(), state.log.blocks.clone());
                let acked = [Lsn(0); 2];
                let committed = base.lsn;
                let reign = Reign { leader: node, start, log, acked, committed };
                self.reigns.insert(epoch, reign);
                let leading = Leading::new(state.id, epoch, base.lsn, end.lsn);
                self.nodes[node].role = Role::Leading(Box::new(leading));
                self.begin_leading(node);
            }
            Ended::Deposed if self.holds_lease(node, epoch) => {
                self.violate(format!("the holder of epoch {epoch} was sealed off"));
            }
            Ended::Deposed => self.saw("an Open met a Seal"),
            Ended::Failed(failure) if self.holds_lease(node, epoch) => {
                self.violate(format!("the holder of epoch {epoch} cannot lead: {failure}"));
            }
            Ended::Failed(_) => self.saw("a late promoter failed"),
        }
    }
}
