//! The leader: the uploader and the garbage machine with their drivers, and rule R2.

use std::collections::BTreeMap;

use duolog_engine::ids::{LeaseEpoch, Lsn, MonoMs, NodeId};
use duolog_engine::replica::BlockEnd;
use duolog_engine::replica::chain::header::{ObjectKind, Packing};
use duolog_engine::replica::chain::object::{Found, LsnRange, ObjectParts, encode};
use duolog_engine::replica::chain::{ObjectPlace, Seq};
use duolog_engine::replica::garbage::{self, Garbage, ListedObject};
use duolog_engine::replica::promotion::{PutOutcome, StoredChain};
use duolog_engine::replica::uploader::{Action, Event, Uploader, UploaderConfig, Wire};
use duolog_lease::grant::{Admission, Grant};
use duolog_lease::in_sync::InSync;

use crate::bucket::Put;
use crate::log::LogBlock;
use crate::mistake::Mistake;
use crate::world::{Role, World, object_id, place};

#[derive(Debug)]
pub struct Leading {
    pub epoch: u64,
    pub committed: Lsn,
    open_end: Lsn,
    chain: Lsn,
    acked: Lsn,
    uploader: Uploader,
    garbage: Garbage,
    todo: Vec<Action>,
    deletions: Vec<garbage::Action>,
    kept: BTreeMap<Seq, (Vec<u8>, LsnRange)>,
}

impl Leading {
    pub fn new(node: NodeId, epoch: u64, base: Lsn, open_end: Lsn) -> Self {
        let config = UploaderConfig {
            epoch: LeaseEpoch(epoch),
            delay_ms: 20,
            in_flight_max: 3,
            batch_bytes: 400,
        };
        Self {
            epoch,
            committed: Lsn(0),
            open_end,
            chain: Lsn(0),
            acked: Lsn(0),
            uploader: Uploader::new(config, open_end),
            garbage: Garbage::new(node, LeaseEpoch(epoch), base),
            todo: Vec::new(),
            deletions: Vec::new(),
            kept: BTreeMap::new(),
        }
    }
}

impl World {
    fn leading(&mut self, node: usize) -> &mut Leading {
        match &mut self.nodes[node].role {
            Role::Leading(leading) => leading,
            role => panic!("{role:?} does not lead"),
        }
    }

    pub fn begin_leading(&mut self, node: usize) {
        let epoch = LeaseEpoch(self.leading(node).epoch);
        let grant = Grant {
            epoch,
            serve_until: MonoMs(u64::MAX),
            admission: Admission::Open,
            renewal_from: MonoMs(u64::MAX),
            upload_until: MonoMs(u64::MAX),
        };
        self.commit(node);
        self.tell_uploader(node, Event::Grant(Some(grant)));
        let in_sync = InSync::pair(NodeId(1), NodeId(2));
        let members = garbage::Event::Members { in_sync, proposal: None };
        self.tell_garbage(node, members);
        if self.makes(Mistake::GarbageUnconditional) && self.is_leading(node) {
            let lsn = Lsn(u64::MAX);
            let node_id = self.nodes[1 - node].id;
            self.tell_garbage(node, garbage::Event::Acked { node: node_id, epoch, lsn });
        }
    }

    fn is_leading(&self, node: usize) -> bool {
        matches!(self.nodes[node].role, Role::Leading(_))
    }

    /// The leader or its driver does something.
    pub fn lead(&mut self, node: usize) {
        if !self.is_leading(node) {
            return;
        }
        match self.chance.below(9) {
            0..2 => self.append(node),
            2..4 => self.hear_ack(node),
            4 => {
                let covers = self.chance.one_in(2);
                let wire = if covers { Wire::Covers } else { Wire::Away };
                self.tell_uploader(node, Event::Wire(wire));
            }
            5 => self.collect(node),
            6 => self.tell_chain(node),
            _ => self.tell_uploader(node, Event::Tick),
        }
    }

    /// The follower hears what is stored of the chain, at whatever moment.
    fn tell_chain(&mut self, node: usize) {
        let too_early = self.makes(Mistake::ChainToldTooEarly);
        let leading = self.leading(node);
        let (mut next, mut lsn) = leading.uploader.stored_chain();
        if too_early && let Some((seq, (_, range))) = leading.kept.last_key_value() {
            (next, lsn) = (seq.next(), range.last);
        }
        let epoch = leading.epoch;
        let follows = matches!(self.nodes[1 - node].role, Role::Following(at) if at == epoch);
        if let Some(end) = self.nodes[node].log.end_at(lsn).filter(|_| follows) {
            let stored = StoredChain { epoch: LeaseEpoch(epoch), next, end };
            self.nodes[1 - node].stored = Some(stored);
            self.saw("a follower hears of the chain");
        }
    }

    fn append(&mut self, node: usize) {
        let Some(salt) = self.append_allowed() else { return };
        let epoch = self.leading(node).epoch;
        let count = 1 + self.chance.below(2) as u32;
        let log = &mut self.nodes[node].log;
        let block = LogBlock::new(&log.end(), epoch, count, salt);
        let (last_lsn, bytes) = (block.end.lsn, block.bytes.len() as u64);
        log.push(block.clone());
        self.reigns.get_mut(&epoch).unwrap().log.push(block);
        self.tell_uploader(node, Event::Closed { last_lsn, bytes });
    }

    fn hear_ack(&mut self, node: usize) {
        let epoch = self.leading(node).epoch;
        let older = self.makes(Mistake::OlderAcksCount);
        let epochs = if older { 0..=epoch } else { epoch..=epoch };
        let acks = self.reigns.range(epochs).map(|(_, reign)| reign.acked[1 - node]);
        let lsn = acks.max().unwrap_or_default().min(self.nodes[node].log.end().lsn);
        let leading = self.leading(node);
        leading.acked = leading.acked.max(lsn);
        let peer = self.nodes[1 - node].id;
        let event = garbage::Event::Acked { node: peer, epoch: LeaseEpoch(epoch), lsn };
        self.tell_garbage(node, event);
        if self.makes(Mistake::AckedPredecessor) {
            self.tell_uploader(node, Event::Committed { lsn });
        }
        if self.is_leading(node) {
            self.commit(node);
        }
    }

    /// R2: durable here, and covered by an ack of this epoch, or by the chain.
    pub fn commit(&mut self, node: usize) {
        let durable = self.nodes[node].log.durable_end().lsn;
        let own_disk = !self.makes(Mistake::OwnDiskNotAwaited);
        let leading = self.leading(node);
        let covered = leading.open_end.max(leading.acked).max(leading.chain);
        let lsn = if own_disk { covered.min(durable) } else { covered };
        if lsn <= leading.committed {
            return;
        }
        leading.committed = lsn;
        let (epoch, by_wire) = (leading.epoch, leading.acked > leading.chain);
        self.saw(if by_wire { "committed by the wire" } else { "committed by the chain" });
        self.note_committed(node, lsn);
        self.reigns.get_mut(&epoch).unwrap().committed = lsn;
        if self.chance.one_in(2) {
            self.nodes[node].mark = lsn.min(durable);
        }
        self.tell_uploader(node, Event::Committed { lsn });
    }

    fn tell_uploader(&mut self, node: usize, event: Event) {
        let now = self.now;
        if !self.is_leading(node) {
            return;
        }
        let leading = self.leading(node);
        leading.uploader.step(now, event, &mut leading.todo);
        for action in std::mem::take(&mut leading.todo) {
            if self.is_leading(node) {
                self.upload(node, action);
            }
        }
    }

    fn upload(&mut self, node: usize, action: Action) {
        match action {
            Action::Upload { seq, range } => {
                let bytes = self.encode(node, seq, range);
                self.leading(node).kept.insert(seq, (bytes, range));
                self.put_batch(node, seq);
            }
            Action::Repeat { seq } => {
                if self.makes(Mistake::RepeatWithMore) {
                    let end = self.nodes[node].log.end().lsn;
                    let (_, range) = self.leading(node).kept[&seq];
                    let range = LsnRange { last: end, ..range };
                    let bytes = self.encode(node, seq, range);
                    self.leading(node).kept.insert(seq, (bytes, range));
                }
                self.put_batch(node, seq);
            }
            Action::ReadBack { seq } => {
                let place = place(self.leading(node).epoch, seq);
                let stored = self.bucket.objects.get(&place).cloned();
                let sent = self.leading(node).kept[&seq].0.clone();
                let mut found = Some(Found::of(&sent, stored.as_deref()));
                if self.makes(Mistake::ConflictMeansStored) {
                    found = Some(Found::Own);
                }
                if self.chance.one_in(6) {
                    found = None;
                }
                self.tell_uploader(node, Event::ReadBack { seq, found });
            }
            Action::Release { seq } => {
                let (_, range) = self.leading(node).kept.remove(&seq).unwrap();
                if self.makes(Mistake::HolesIgnored) {
                    let leading = self.leading(node);
                    leading.chain = leading.chain.max(range.last);
                    self.commit(node);
                }
            }
            Action::ChainStored { lsn } => {
                self.leading(node).chain = lsn;
                self.commit(node);
                if self.makes(Mistake::RunningChainDeleted) && self.is_leading(node) {
                    let epoch = self.leading(node).epoch;
                    let chain = place(epoch, Seq::OPEN.next())..place(epoch + 1, Seq::OPEN);
                    let chain = self.bucket.objects.range(chain).map(|(place, _)| *place);
                    let chain: Vec<ObjectPlace> = chain.collect();
                    self.bucket.deletes.extend(chain);
                }
            }
            Action::AskRenewal => {}
            Action::Deposed { .. } => {
                let epoch = self.leading(node).epoch;
                if self.holds_lease(node, epoch) {
                    self.violate(format!("the chain of the running reign {epoch} was ended"));
                }
                self.saw("a leader met a Seal");
                self.nodes[node].role = Role::Idle;
            }
        }
    }

    fn encode(&mut self, node: usize, seq: Seq, range: LsnRange) -> Vec<u8> {
        let place = place(self.leading(node).epoch, seq);
        let state = &self.nodes[node];
        let before = Lsn(range.first.0 - 1);
        let base: BlockEnd = state.log.end_at(before).expect("C1: behind a block's end");
        let (id, kind) = (object_id(place), ObjectKind::Batch);
        let parts = ObjectParts { id, kind, node: state.id, base };
        let mut bytes = Vec::new();
        let blocks = state.log.slices(before, range.last);
        let header = encode(&parts, blocks, Packing::Plain, &mut bytes).unwrap();
        assert_eq!(header.last_lsn, range.last);
        bytes
    }

    fn put_batch(&mut self, node: usize, seq: Seq) {
        let reign = self.leading(node).epoch;
        let bytes = self.leading(node).kept[&seq].0.clone();
        let caller = self.caller(node, reign);
        self.send(Put { place: place(reign, seq), bytes, caller, opens: None });
    }

    pub fn uploader_put(&mut self, node: usize, place: ObjectPlace, outcome: PutOutcome) {
        let unknown = outcome == PutOutcome::Unknown && self.makes(Mistake::UnknownMeansStored);
        let outcome = if unknown { PutOutcome::Stored } else { outcome };
        if place.seq != Seq::OPEN && place.epoch.0 == self.leading(node).epoch {
            self.tell_uploader(node, Event::Put { seq: place.seq, outcome });
        }
    }

    fn tell_garbage(&mut self, node: usize, event: garbage::Event) {
        if self.is_leading(node) {
            let leading = self.leading(node);
            leading.garbage.step(event, &mut leading.deletions);
        }
    }

    /// Lists or deletes. Requests that are under way outlive their caller.
    fn collect(&mut self, node: usize) {
        let Some(action) = self.leading(node).deletions.pop() else { return };
        let event = match action {
            garbage::Action::List { after } => {
                let objects = self.bucket.objects.iter();
                let behind = objects.filter(|(place, _)| after.is_none_or(|at| **place > at));
                let listed = behind.take(3).map(|(place, bytes)| ListedObject {
                    place: *place,
                    bytes: bytes.len() as u64,
                });
                garbage::Event::Listed(listed.collect())
            }
            garbage::Action::Delete(place) => {
                self.bucket.deletes.push(place);
                garbage::Event::Deleted
            }
        };
        self.tell_garbage(node, event);
    }
}
