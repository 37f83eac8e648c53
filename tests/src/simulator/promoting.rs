//! The driver of a promotion.

use std::collections::{BTreeMap, VecDeque};

use duolog_engine::block::BlockHeader;
use duolog_engine::ids::{LeaseEpoch, Lsn};
use duolog_engine::replica::BlockEnd;
use duolog_engine::replica::chain::ObjectPlace;
use duolog_engine::replica::chain::Seq;
use duolog_engine::replica::chain::header::ObjectKind;
use duolog_engine::replica::chain::object::{LsnRange, Object, encode_seal};
use duolog_engine::replica::promotion::{
    Action, Ended, Event, GetAnswer, ObjectFacts, Promotion, PromotionStart, PutOutcome,
};
use duolog_engine::shard::Event as ShardEvent;
use duolog_lease::event::{Event as LeaseEvent, PromotionFailure};

use super::leading::ReignLog;
use super::node::{CLUSTER, SHARD, ToNode};
use super::plan::Mistake;
use super::store::{Ask, Asker, Key, Told};
use super::uploading::{id_of, place_of, put_outcome};
use super::world::World;

/// A promotion under way.
pub struct Promoting {
    epoch: LeaseEpoch,
    /// Since nothing is under way to the disk any more.
    machine: Option<Promotion>,
    held: BTreeMap<ObjectPlace, Vec<u8>>,
    open: Option<Vec<u8>>,
    /// Epochs of the pages of a listing so far.
    listed: Vec<LeaseEpoch>,
    /// Cuts and applies that wait for the disk.
    waiting: VecDeque<Waiting>,
    stepping: bool,
}

enum Waiting {
    Cut(BlockEnd),
    Applied,
}

impl World {
    pub fn begin_promotion(&mut self, node: usize, epoch: LeaseEpoch) {
        self.process(node).promoting = Some(Promoting {
            epoch,
            machine: None,
            held: BTreeMap::new(),
            open: None,
            listed: Vec::new(),
            waiting: VecDeque::new(),
            stepping: false,
        });
        self.settled_work(node);
    }

    /// What had to wait until nothing is under way to the disk.
    pub fn settled_work(&mut self, node: usize) {
        if !self.process(node).is_settled() {
            return;
        }
        let own = self.nodes[node].id;
        let process = self.process(node);
        let Some(promoting) = &mut process.promoting else { return self.fit(node) };
        if promoting.stepping {
            return;
        }
        if promoting.machine.is_none() {
            let start = PromotionStart {
                cluster: CLUSTER,
                shard: SHARD,
                node: own,
                epoch: promoting.epoch,
                end: process.shard.durable(),
                committed: process.shard.committed().lsn,
                stored: process.stored_chain,
            };
            promoting.machine = Some(Promotion::new(start));
            return self.promotion_step(node, Event::Begin);
        }
        match promoting.waiting.pop_front() {
            Some(Waiting::Cut(end)) => {
                self.saw("a promotion cuts");
                if let Some(promoting) = &mut self.process(node).promoting {
                    promoting.stepping = true;
                }
                self.cut(node, end.lsn);
                if let Some(promoting) = &mut self.process(node).promoting {
                    promoting.stepping = false;
                }
                let end = self.process(node).shard.durable();
                self.promotion_step(node, Event::Cut { end });
            }
            Some(Waiting::Applied) => {
                let end = self.process(node).shard.durable();
                self.promotion_step(node, Event::Applied { end });
            }
            None => {}
        }
    }

    pub fn promotion_step(&mut self, node: usize, event: Event) {
        let now = self.nodes[node].now(self.now_us).mono.ms();
        let process = self.process(node);
        let reign = process.reign;
        let Some(promoting) = &mut process.promoting else { return };
        let epoch = promoting.epoch;
        if reign != Some(epoch) {
            process.promoting = None;
            return;
        }
        let Some(machine) = &mut promoting.machine else { return };
        let mut actions = Vec::new();
        machine.step(now, event, &mut actions);
        if let Some(at) = machine.deadline() {
            let due = self.nodes[node].clock.true_time(at.0 * 1000, self.now_us + 1000);
            self.node_at(node, due, ToNode::PromotionTick);
        }
        for action in actions {
            self.digest.add(&(node, &action));
            self.promote(node, epoch, action);
        }
    }

    fn promote(&mut self, node: usize, epoch: LeaseEpoch, action: Action) {
        match action {
            Action::Get { epoch: of, seq } => {
                let place = place_of(of, seq);
                let back = Asker::PromotionGot(epoch.0, place);
                self.ask(node, Ask::Get(Key::Object(place)), back);
            }
            Action::PutSeal { epoch: of, seq } => self.put_seal(node, epoch, place_of(of, seq)),
            Action::PutOpen { base, end } => self.put_open(node, epoch, base, end),
            Action::FindEnd { ask, lsn } => {
                let mut end = self.nodes[node].end_at(lsn).map(|end| BlockEnd::of(&end));
                if end.is_some() && self.makes(Mistake::HashesNotCompared) {
                    end = self.point_at(node, lsn).or(end);
                }
                self.promotion_step(node, Event::EndFound { ask, end });
            }
            Action::CutTo { end } => self.wait_settled(node, Waiting::Cut(end)),
            Action::Apply { epoch: of, seq, after } => {
                self.saw("a promotion applies blocks of a chain");
                let place = place_of(of, seq);
                let Some(promoting) = &self.process(node).promoting else { return };
                let body = promoting.held[&place].clone();
                let mut room = Vec::new();
                let object = Object::decode(&body, id_of(place), &mut room).expect("read before");
                let blocks: Vec<(BlockHeader, &[u8])> =
                    object.blocks().filter(|(header, _)| header.first_lsn > after).collect();
                for (_, block) in blocks {
                    self.shard_step(node, ShardEvent::Received { epoch, block });
                }
                self.shard_step(node, ShardEvent::Flush);
                self.wait_settled(node, Waiting::Applied);
            }
            Action::Release { epoch: of, seq } => {
                if let Some(promoting) = &mut self.process(node).promoting {
                    promoting.held.remove(&place_of(of, seq));
                }
            }
            Action::ListEpochs => {
                self.ask(node, Ask::List(None), Asker::PromotionListed(epoch.0));
            }
            Action::Ended(ended) => self.promotion_ended(node, epoch, ended),
        }
    }

    /// The block end at `lsn` in whatever object is at hand.
    fn point_at(&mut self, node: usize, lsn: Lsn) -> Option<BlockEnd> {
        let promoting = self.process(node).promoting.as_ref()?;
        promoting.held.iter().find_map(|(place, bytes)| {
            let mut room = Vec::new();
            let object = Object::decode(bytes, id_of(*place), &mut room).ok()?;
            object.ends().chain([object.header.base]).find(|end| end.lsn == lsn)
        })
    }

    fn wait_settled(&mut self, node: usize, what: Waiting) {
        if let Some(promoting) = &mut self.process(node).promoting {
            promoting.waiting.push_back(what);
        }
        // Not within the step that asked for it.
        self.soon(node, 1, ToNode::Flush);
    }

    fn put_seal(&mut self, node: usize, epoch: LeaseEpoch, place: ObjectPlace) {
        let mut body = Vec::new();
        encode_seal(id_of(place), self.nodes[node].id, epoch, &mut body);
        let back = Asker::PromotionPut(epoch.0, place);
        if self.makes(Mistake::NoSeal) {
            let told = Told::Stored(0);
            return self.soon(node, 1, ToNode::Told(back, told));
        }
        self.ask(node, Ask::Create(Key::Object(place), body), back);
    }

    fn put_open(&mut self, node: usize, epoch: LeaseEpoch, base: BlockEnd, end: BlockEnd) {
        let place = place_of(epoch, Seq::OPEN);
        let made = self.process(node).promoting.as_ref().and_then(|known| known.open.clone());
        let body = made.unwrap_or_else(|| {
            let range = LsnRange { first: base.lsn.next(), last: end.lsn };
            self.make_object(node, place, ObjectKind::Open, Some(base), range)
        });
        if let Some(promoting) = &mut self.process(node).promoting {
            promoting.open = Some(body.clone());
        }
        let back = Asker::PromotionPut(epoch.0, place);
        self.ask(node, Ask::Create(Key::Object(place), body), back);
        if self.makes(Mistake::OpenNotAwaited) {
            let outcome = PutOutcome::Stored;
            self.promotion_step(node, Event::Put { epoch, seq: Seq::OPEN, outcome });
        }
    }

    /// The bucket answers.
    pub fn promotion_told(&mut self, node: usize, back: &Asker, told: Told) {
        let Some(promoting) = &mut self.process(node).promoting else { return };
        let own = promoting.epoch.0;
        let event = match back {
            Asker::PromotionGot(by, place) if *by == own => {
                let (epoch, seq) = (place.epoch, place.seq);
                let answer = match told {
                    Told::Found(body, _) => {
                        let mut room = Vec::new();
                        let answer = match Object::decode(&body, id_of(*place), &mut room) {
                            Ok(object) => GetAnswer::Object(ObjectFacts::of(&object)),
                            Err(error) => GetAnswer::Unusable(error),
                        };
                        promoting.held.insert(*place, body);
                        answer
                    }
                    Told::Absent => GetAnswer::Nothing,
                    _ => GetAnswer::Unknown,
                };
                let skipped = self.makes(Mistake::ChainIgnored) && seq != Seq::OPEN;
                let answer = if skipped { GetAnswer::Nothing } else { answer };
                Event::Got { epoch, seq, answer }
            }
            Asker::PromotionPut(by, place) if *by == own => {
                let (epoch, seq) = (place.epoch, place.seq);
                let mut outcome = put_outcome(&told);
                if outcome == PutOutcome::Exists && seq != Seq::OPEN {
                    self.saw("a Seal meets an object");
                    if self.makes(Mistake::ChainIgnored) {
                        outcome = PutOutcome::Stored;
                    }
                }
                Event::Put { epoch, seq, outcome }
            }
            Asker::PromotionListed(by) if *by == own => {
                self.saw("a promotion lists epochs");
                let Told::Listed(listed) = told else {
                    return self.promote(node, LeaseEpoch(own), Action::ListEpochs);
                };
                let Some(promoting) = &mut self.process(node).promoting else { return };
                let opens = listed.iter().filter(|(place, _)| place.seq == Seq::OPEN);
                promoting.listed.extend(opens.map(|(place, _)| place.epoch));
                if let Some((last, _)) = listed.last() {
                    return self.ask(node, Ask::List(Some(*last)), back.clone());
                }
                Event::Epochs(std::mem::take(&mut promoting.listed))
            }
            _ => return,
        };
        self.promotion_step(node, event);
    }

    fn promotion_ended(&mut self, node: usize, epoch: LeaseEpoch, ended: Ended) {
        self.process(node).promoting = None;
        match ended {
            Ended::Opened { base, end } => {
                self.check_opened(node, epoch);
                self.shard_step(node, ShardEvent::Opened { epoch });
                let shard = &self.process(node).shard;
                let (marks, complete) =
                    (shard.epoch_marks().to_vec(), shard.epoch_marks_complete());
                self.note(node, || format!("opened epoch {} at LSN {}", epoch.0, end.lsn));
                self.saw("a reign is opened");
                self.begin_leading(node, ReignLog { epoch, end, marks, complete }, base.lsn);
                self.tell_control(node, LeaseEvent::PromotionFinished { epoch });
            }
            Ended::Deposed => {
                self.saw("an Open meets a Seal");
                let failure = PromotionFailure::Sealed;
                self.tell_control(node, LeaseEvent::PromotionFailed { epoch, failure });
            }
            Ended::Failed(failure) => {
                assert!(
                    !self.holds_lease(node, epoch),
                    "P2: {node} cannot lead {epoch}: {failure}"
                );
                self.saw("a late promoter fails");
                let failure = PromotionFailure::Gap;
                self.tell_control(node, LeaseEvent::PromotionFailed { epoch, failure });
            }
        }
    }
}
