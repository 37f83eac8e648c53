//! What is promised (docs/INVARIANTS.md), looked at whenever something happens that could break it.

use std::collections::BTreeMap;

use duolog_engine::block::{Block, BlockHash};
use duolog_engine::ids::{LeaseEpoch, Lsn};
use duolog_engine::record::Record;
use duolog_engine::replica::BlockEnd;
use duolog_engine::replica::chain::header::ObjectHeader;
use duolog_engine::replica::chain::object::Object;
use duolog_engine::replica::chain::{ObjectPlace, Seq};
use duolog_engine::shard::{Copies, Receipt, Role};
use duolog_lease::document::Document;

use super::clients::{STREAMS, stream_name};
use super::leading::{id_of, place_of};
use super::node::{CLUSTER, IN_FLIGHT_MAX};
use super::store::{Ask, Key};
use super::world::World;

/// What anybody was told.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Ends of blocks that a leader has committed.
    committed: BTreeMap<Lsn, BlockHash>,
    /// The newest end that a client or another node may rely on.
    acked: Option<BlockEnd>,
    /// First LSN that an operation was told.
    receipts: BTreeMap<u64, Lsn>,
    /// Revision behind the last acknowledged event of each stream.
    ends: BTreeMap<usize, u64>,
    /// The highest epoch of the lease so far.
    epoch: LeaseEpoch,
    /// Blocks that the chain of an epoch has held at some time.
    stored: BTreeMap<Lsn, Vec<BlockHash>>,
}

impl World {
    /// L1: the lease's epoch only grows. R2: what the chain holds.
    pub fn check_stored(&mut self, ask: &Ask) {
        let (Ask::Create(key, body) | Ask::Replace(key, body, _)) = ask else { return };
        match key {
            Key::Lease => {
                let document = Document::decode(body, CLUSTER).expect("L4: the lease can be read");
                let before = self.ledger.epoch;
                assert!(document.epoch >= before, "L1: {} after {before}", document.epoch);
                self.ledger.epoch = document.epoch;
            }
            Key::Object(place) => self.check_object(*place, body),
        }
    }

    fn check_object(&mut self, place: ObjectPlace, body: &[u8]) {
        let header = ObjectHeader::decode(body).expect("C1: objects can be read");
        if header.reign != place.epoch {
            return self.saw("a Seal is stored");
        }
        let mut room = Vec::new();
        let object = Object::decode(body, id_of(place), &mut room).expect("C1: objects are whole");
        for end in object.ends() {
            self.ledger.stored.entry(end.lsn).or_default().push(end.hash);
        }
        if place.seq != Seq::OPEN {
            self.saw("a Batch is stored");
        }
    }

    /// L8, R2: what an answer rests on at the moment it leaves.
    pub fn check_ack(&mut self, node: usize, receipt: &Receipt) {
        if receipt.replayed {
            self.saw("a retry is answered as before");
        }
        let now = self.nodes[node].now(self.now_us).mono.ms();
        let lease = self.process(node).lease.grant();
        let serves = lease.is_some_and(|grant| grant.serves(now));
        assert!(serves, "L8: LSN {} is acked without a grant", receipt.last_lsn);
        if receipt.replayed {
            return;
        }
        let end = self.block_of(node, receipt.last_lsn);
        assert!(self.nodes[node].has(end), "R2: {} is acked and not on the own disk", end.lsn);
        let stored = self.ledger.stored.get(&end.lsn).is_some_and(|all| all.contains(&end.hash));
        let peer = self.nodes[1 - node].has(end);
        assert!(stored || peer, "R2: LSN {} is acked with one copy", end.lsn);
        match receipt.copies {
            Copies::Peer => self.saw("an append is acked by the wire"),
            Copies::Chain => self.saw("an append is acked by the chain"),
            Copies::Disk => panic!("R2: one disk is not enough"),
        }
        if self.ledger.acked.is_none_or(|known| known.lsn < end.lsn) {
            self.ledger.acked = Some(end);
        }
        let flying = self.process(node).shard.in_flight();
        assert!(flying <= IN_FLIGHT_MAX, "A8: {flying} requests are in flight");
    }

    /// The end of the block with this LSN, in the node's log.
    fn block_of(&mut self, node: usize, lsn: Lsn) -> BlockEnd {
        let block = self.process(node).shard.in_memory_block_up_to(lsn).map(<[u8]>::to_vec);
        let block = block.expect("a block that commits is in memory");
        let header = duolog_engine::block::BlockHeader::decode(&block).expect("it is whole");
        BlockEnd { lsn: header.last_lsn(), hash: header.hash }
    }

    /// A6: an operation has one place in the log, however often it is sent.
    pub fn check_receipt(&mut self, node: usize, operation: u64, receipt: &Receipt) {
        let first = *self.ledger.receipts.entry(operation).or_insert(receipt.first_lsn);
        assert_eq!(first, receipt.first_lsn, "A6: operation {operation} is in the log twice");
        if receipt.replayed {
            return;
        }
        let parts = self.clients.operations[&operation].parts.clone();
        for (stream, _) in parts {
            let id = duolog_engine::ids::StreamId::of(stream_name(stream).as_bytes());
            let shard = &mut self.process(node).shard;
            if let duolog_engine::shard::StreamEnd::Known(end) = shard.stream_end(id) {
                let known = self.ledger.ends.entry(stream).or_default();
                *known = (*known).max(end.0);
            }
        }
    }

    /// Q5: a linearizable read sees whatever was acknowledged before.
    pub fn check_read(&mut self, node: usize, stream: usize, end: u64) {
        let known = self.ledger.ends.get(&stream).copied().unwrap_or_default();
        let who = node + 1;
        assert!(end >= known, "Q5: node {who} reads {end} of stream {stream}, {known} are acked");
    }

    /// R2, R5: a leader decides what is committed; a follower shows nothing else.
    pub fn check_commit(&mut self, node: usize) {
        let process = self.process(node);
        let end = process.shard.committed();
        let leads = matches!(process.shard.role(), Role::Leader { .. });
        let before = self.nodes[node].committed;
        assert!(end.lsn >= before, "R5: the commit mark goes back from {before} to {}", end.lsn);
        self.nodes[node].committed = end.lsn;
        let known = self.ledger.committed.get(&end.lsn).copied();
        let same = known.is_none_or(|hash| hash == end.hash);
        assert!(same, "R2: two blocks are committed at LSN {}", end.lsn);
        if leads {
            self.ledger.committed.insert(end.lsn, end.hash);
            return;
        }
        let newest = self.ledger.committed.last_key_value().map_or(Lsn(0), |(lsn, _)| *lsn);
        let shown = end.lsn;
        assert!(shown <= newest, "R5: node {} shows {shown}, {newest} is committed", node + 1);
    }

    /// R4: nobody cuts what anybody was told.
    pub fn check_cut(&mut self, node: usize, lsn: Lsn) {
        let committed = self.process(node).shard.committed().lsn;
        assert!(lsn >= committed, "R4: node {} cuts to {lsn}, {committed} is committed", node + 1);
        if let Some(acked) = self.ledger.acked.filter(|acked| acked.lsn > lsn) {
            let has = self.nodes[node].has(acked);
            assert!(!has, "R4: node {} cuts {} that was acknowledged", node + 1, acked.lsn);
        }
        self.note(node, || format!("cuts its log behind LSN {lsn}"));
    }

    /// P5: whoever opens a reign has everything that was acknowledged.
    pub fn check_opened(&mut self, node: usize, epoch: LeaseEpoch) {
        if !self.holds_lease(node, epoch) {
            self.saw("a reign opens after the next one was won");
        }
        if let Some(acked) = self.ledger.acked {
            let newest = self.bucket_has_later_open(epoch);
            let has = self.nodes[node].has(acked);
            let (who, lsn) = (node + 1, acked.lsn);
            assert!(has || newest, "P5: node {who} opens {epoch} without {lsn}, acknowledged");
        }
    }

    fn bucket_has_later_open(&self, epoch: LeaseEpoch) -> bool {
        let open = |epoch| self.bucket.get(Key::Object(place_of(epoch, Seq::OPEN)));
        (epoch.0 + 1..=self.ledger.epoch.0).any(|later| open(LeaseEpoch(later)).is_some())
    }

    /// D3: what a node has committed or promised survives its end.
    pub fn check_started(&mut self, node: usize) {
        let before = self.nodes[node].committed;
        let end = self.process(node).shard.end().lsn;
        assert!(end >= before, "D3: node {} comes back with {end}, had {before}", node + 1);
        self.nodes[node].committed = self.process(node).shard.committed().lsn;
    }

    /// L2: a reign belongs to whoever has it in the lease.
    pub fn check_lease(&mut self, node: usize) {
        let process = self.process(node);
        let (promised, _) = process.lease.promised();
        if let Some(reign) = process.lease.reign() {
            assert!(promised >= reign, "L3: it leads {reign} and has promised {promised}");
        }
    }

    /// What lacks for one to lead, the other to follow, and both to have everything.
    pub fn ailment(&mut self) -> Option<String> {
        for node in [0, 1] {
            if self.nodes[node].process.is_none() {
                return Some(format!("node {} does not run", node + 1));
            }
        }
        let now = [0, 1].map(|node: usize| self.nodes[node].now(self.now_us).mono.ms());
        let Some(leader) = [0, 1].into_iter().find(|node| {
            let process = self.nodes[*node].process.as_ref().expect("it runs");
            matches!(process.shard.role(), Role::Leader { .. })
                && process.grant.is_some_and(|grant| grant.admits(now[*node]))
        }) else {
            let phases = [0, 1].map(|node: usize| {
                let process = self.nodes[node].process.as_ref().expect("it runs");
                let lease_now =
                    duolog_lease::ids::Now { mono: now[node], wall: duolog_lease::ids::WallMs(0) };
                (process.lease.status(lease_now), process.shard.role())
            });
            return Some(format!("nobody leads: {phases:?}"));
        };
        let [own, other] = [leader, 1 - leader].map(|node| {
            let shard = &self.nodes[node].process.as_ref().expect("it runs").shard;
            (shard.end(), shard.committed(), shard.role())
        });
        if own.0 != other.0 || own.0 != own.1 || other.0 != other.1 {
            return Some(format!("node {} leads; {own:?} and {other:?}", leader + 1));
        }
        let Some(members) = self.nodes[leader].process.as_ref().expect("it runs").members else {
            return Some("no members".to_owned());
        };
        if members.1.is_some() || members.0.other(self.nodes[leader].id).is_none() {
            return Some(format!("the members are {members:?}"));
        }
        None
    }

    /// Everything in the end, from the leader's disk.
    pub fn check_end(&mut self) {
        let end = self.process(0).shard.end();
        if let Some(acked) = self.ledger.acked {
            for node in [0, 1] {
                let who = node + 1;
                assert!(self.nodes[node].has(acked), "A5: node {who} lacks LSN {}", acked.lsn);
            }
        }
        let mut next = [0; STREAMS];
        let mut found: BTreeMap<u64, (Lsn, u64)> = BTreeMap::new();
        let mut at = Lsn(0);
        while at < end.lsn {
            let bytes = self.nodes[0].block_behind(at);
            let block = Block::decode(&bytes).expect("D1: blocks are whole");
            for record in block.records() {
                let (_, record) = record.expect("D1: records are whole");
                let Record::Event(event) = record else { continue };
                let stream = (0..STREAMS).find(|stream| stream_name(*stream) == event.stream);
                let stream = stream.expect("A5: nobody invents a stream");
                assert_eq!(event.revision.0, next[stream], "A2: revisions have no gap");
                next[stream] += 1;
                let id = u64::from_le_bytes(event.data[..8].try_into().expect("eight bytes"));
                let expected = self.clients.operations[&id].expected;
                if let Some(expected) = expected.filter(|_| !found.contains_key(&id)) {
                    let got = event.revision.0;
                    assert_eq!(got, expected, "A5: operation {id} expected another revision");
                }
                let entry = found.entry(id).or_insert((event.lsn, 0));
                assert_eq!(event.lsn.0, entry.0.0 + entry.1, "A6: operation {id} is there twice");
                entry.1 += 1;
            }
            at = block.header.last_lsn();
        }
        for (id, (first, events)) in &found {
            let operation = &self.clients.operations[id];
            let wanted: u64 = operation.parts.iter().map(|(_, events)| events).sum();
            assert_eq!(*events, wanted, "A5: operation {id} is there in part");
            if let Some(told) = self.ledger.receipts.get(id) {
                assert_eq!(told, first, "A5: operation {id} is elsewhere");
            }
        }
        for id in self.ledger.receipts.keys() {
            assert!(found.contains_key(id), "A5: operation {id} was acknowledged and is lost");
        }
        self.digest.add(&(end, next, found.len()));
        if self.ledger.receipts.len() > 20 {
            self.saw("a run with many appends");
        }
    }
}
