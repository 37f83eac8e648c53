//! The two nodes, what is between them, and the checker.

use std::collections::{BTreeMap, VecDeque};

use duolog_engine::append::{AppendBuilder, AppendView, Expect};
use duolog_engine::block::{BlockHash, BlockHeader};
use duolog_engine::ids::{LeaseEpoch, Lsn, MonoMs, MonoUs, NodeId, Now, WallMs};
use duolog_engine::segment::LogEnd;
use duolog_engine::shard::{
    Action, Actions, Copies, Event, Outcome, Receipt, Refusal, RequestId, Role,
};
use duolog_lease::grant::{Admission, Grant};

use super::chance::Chance;
use super::node::Node;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    None,
    /// What was sent counts as acked.
    AckWithoutCoverage,
    /// An ack of another reign is passed on as one of this.
    AckOfAnotherEpoch,
    /// The grant never runs out.
    CommitWithoutGrant,
    /// The disk's answer is given before the write is durable.
    DurableTooEarly,
    /// The leader's end is sent as its commit mark.
    ShowsUncommitted,
    /// The machine is not told that the node challenges.
    FollowsOn,
    /// The follower's log is cut behind what the hello has in common less one block.
    CutTooMuch,
    /// The new leader does not read the chain.
    IgnoredChain,
    /// What a crash has left behind the log's end stays there.
    StraysLeft,
}

impl Mistake {
    pub const ALL: [Self; 9] = [
        Self::AckWithoutCoverage,
        Self::AckOfAnotherEpoch,
        Self::CommitWithoutGrant,
        Self::DurableTooEarly,
        Self::ShowsUncommitted,
        Self::FollowsOn,
        Self::CutTooMuch,
        Self::IgnoredChain,
        Self::StraysLeft,
    ];
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    pub acked_by_peer: u64,
    pub acked_by_chain: u64,
    pub unknown: u64,
    pub reigns: u64,
    pub crashes: u64,
    pub cuts: u64,
    pub caught_up: u64,
    pub rotations: u64,
}

impl Report {
    pub fn add(&mut self, other: &Self) {
        self.acked_by_peer += other.acked_by_peer;
        self.acked_by_chain += other.acked_by_chain;
        self.unknown += other.unknown;
        self.reigns += other.reigns;
        self.crashes += other.crashes;
        self.cuts += other.cuts;
        self.caught_up += other.caught_up;
        self.rotations += other.rotations;
    }
}

/// A reign's objects in the bucket.
#[derive(Default)]
pub struct Chain {
    pub base: Option<LogEnd>,
    pub blocks: Vec<Vec<u8>>,
    pub sealed: bool,
}

/// The connection on which `leader` sends to the other node.
pub struct Link {
    pub leader: usize,
    pub epoch: LeaseEpoch,
    pub blocks: VecDeque<Vec<u8>>,
    pub marks: VecDeque<Lsn>,
    /// Last LSN put into `blocks`.
    pub sent: Lsn,
    /// The follower has taken the hello.
    pub follows: bool,
}

pub struct World {
    pub chance: Chance,
    pub mistake: Mistake,
    pub nodes: [Node; 2],
    /// The lease: who reigns, and until when it may serve.
    pub leader: usize,
    pub epoch: LeaseEpoch,
    pub serve_until: [u64; 2],
    pub now_ms: u64,
    pub link: Option<Link>,
    /// Acks under way: to whom, reign, LSN. They outlive their connection.
    pub acks: Vec<(usize, LeaseEpoch, Lsn)>,
    pub chains: BTreeMap<LeaseEpoch, Chain>,
    /// Ends of blocks that a leader has committed.
    pub committed: BTreeMap<Lsn, BlockHash>,
    /// Last LSN of each acknowledged append, and the block's hash.
    pub acked: BTreeMap<Lsn, BlockHash>,
    next_request: u64,
    pub report: Report,
}

impl World {
    pub fn new(seed: u64, mistake: Mistake) -> Self {
        let mut chance = Chance::new(seed + 1);
        let in_flight = 1 + chance.below(4) as usize;
        let blanks = mistake != Mistake::StraysLeft;
        Self {
            chance,
            mistake,
            nodes: [1, 2].map(|id| Node::new(NodeId(id), in_flight, blanks)),
            leader: 0,
            epoch: LeaseEpoch(0),
            serve_until: [0; 2],
            now_ms: 1_000,
            link: None,
            acks: Vec::new(),
            chains: BTreeMap::new(),
            committed: BTreeMap::new(),
            acked: BTreeMap::new(),
            next_request: 0,
            report: Report::default(),
        }
    }

    pub fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            let node = self.chance.below(2) as usize;
            match self.chance.below(100) {
                0..25 => self.append(node),
                25..50 => self.complete_write(node),
                50..58 => self.prepare(node),
                58..72 => self.deliver_block(),
                72..80 => self.deliver_ack(),
                80..84 => self.deliver_mark(),
                84..88 => self.upload(),
                88..91 => self.connect(),
                91 => self.link = None,
                92..95 => self.renew(),
                95..97 => self.now_ms += self.chance.below(400),
                97 => self.reign(node),
                98 => self.notice_deposed(node),
                _ if self.chance.percent(60) => self.crash(node),
                _ => self.step(node, Event::Tick),
            }
            self.check_logs();
        }
    }

    pub fn now(&self) -> Now {
        Now { mono: MonoUs(self.now_ms * 1000), wall: WallMs(self.now_ms) }
    }

    pub fn step(&mut self, node: usize, event: Event<'_>) {
        let now = self.now();
        let mut out = Actions::default();
        self.nodes[node].shard.step(now, event, &mut out);
        self.nodes[node].shard.check();
        self.perform(node, &out);
    }

    fn perform(&mut self, node: usize, actions: &Actions) {
        let mut saved = Vec::new();
        for action in &actions.list {
            match action {
                Action::Write { first_lsn, blocks, place, header } => {
                    self.report.rotations += u64::from(header.is_some());
                    self.nodes[node].begin_write(*first_lsn, *blocks, *place, *header);
                    self.send(node);
                }
                Action::Reply { outcome: Outcome::Appended(receipt), .. } => {
                    self.check_ack(node, receipt);
                }
                Action::Reply { outcome: Outcome::Refused(Refusal::Unknown), .. } => {
                    self.report.unknown += 1;
                }
                Action::PrepareSegment { generation } => {
                    self.nodes[node].preparing = Some(*generation);
                }
                Action::Committed { .. } => self.check_commit(node),
                Action::WriteMark { end } => self.nodes[node].mark = Some(*end),
                Action::Durable { epoch, lsn } => {
                    assert!(!self.nodes[node].challenged, "L3: an ack after the challenge");
                    self.acks.push((1 - node, *epoch, *lsn));
                }
                Action::BlockRefused { reason } => panic!("R3: {reason}"),
                // Nobody looks a stream up in them: the heads of all streams stay in memory.
                Action::SaveIndex { generation } => saved.push(*generation),
                _ => {}
            }
        }
        for generation in saved {
            self.step(node, Event::IndexSaved { generation });
        }
    }

    fn append(&mut self, node: usize) {
        let Role::Leader { .. } = self.nodes[node].shard.role() else { return };
        let stream = format!("stream-{}", self.chance.below(5));
        let mut builder = AppendBuilder::new();
        let data = vec![1; 1 + self.chance.below(6_000) as usize];
        builder.stream(&stream, Expect::Any).unwrap().event(1, "kind", &[], &data).unwrap();
        let mut bytes = Vec::new();
        builder.encode(&mut bytes);
        self.next_request += 1;
        let to = RequestId(self.next_request);
        let view = AppendView::parse(&bytes, 1 << 20).unwrap();
        self.step(node, Event::Append { to, view });
        self.step(node, Event::Flush);
    }

    pub fn complete_write(&mut self, node: usize) {
        if self.nodes[node].writes.is_empty() {
            return;
        }
        let at = self.chance.below(self.nodes[node].writes.len() as u64) as usize;
        if self.mistake == Mistake::DurableTooEarly && !self.nodes[node].writes[at].told {
            self.nodes[node].writes[at].told = true;
            let first_lsn = self.nodes[node].writes[at].first_lsn;
            return self.step(node, Event::BlockWritten { first_lsn });
        }
        let write = self.nodes[node].writes.swap_remove(at);
        self.nodes[node].disk.write(write.place, &write.image);
        if !write.told {
            self.step(node, Event::BlockWritten { first_lsn: write.first_lsn });
        }
    }

    pub fn prepare(&mut self, node: usize) {
        if let Some(generation) = self.nodes[node].preparing.take() {
            let layout = self.nodes[node].config.layout;
            self.nodes[node].disk.prepare(generation, layout);
            self.step(node, Event::SegmentReady { generation });
        } else {
            self.step(node, Event::Tick);
        }
    }

    fn renew(&mut self) {
        let (leader, epoch) = (self.leader, self.epoch);
        if self.nodes[leader].shard.role() != (Role::Leader { epoch }) {
            return;
        }
        self.serve_until[leader] = self.now_ms + 500;
        self.grant(leader);
    }

    pub fn grant(&mut self, node: usize) {
        let endless = self.mistake == Mistake::CommitWithoutGrant;
        let until = if endless { u64::MAX } else { self.serve_until[node] };
        let grant = Grant {
            epoch: self.epoch,
            serve_until: MonoMs(until),
            admission: Admission::Open,
            renewal_from: MonoMs(until),
            upload_until: MonoMs(until),
        };
        self.step(node, Event::Grant(Some(grant)));
    }

    /// R2, L8: what an answer rests on at the moment it leaves.
    fn check_ack(&mut self, node: usize, receipt: &Receipt) {
        let lsn = receipt.last_lsn;
        let found = self.nodes[node].disk.end_at(super::node::IDENTITY, lsn);
        let own = found.filter(|at| (at.end.hlc, at.end.epoch) == (receipt.hlc, receipt.epoch));
        let end = own.unwrap_or_else(|| panic!("R2: {lsn} is acked and not on the own disk")).end;
        assert!(self.now_ms < self.serve_until[node], "L8: {lsn} is acked without a grant");
        let chain = self.chains.get(&end.epoch);
        let stored = chain.is_some_and(|chain| {
            chain.blocks.iter().any(|bytes| BlockHeader::decode(bytes).unwrap().hash == end.hash)
        });
        let peer = self.nodes[1 - node].has(&end);
        assert!(stored || peer, "R2: {lsn} is acked with one copy");
        match receipt.copies {
            Copies::Peer => self.report.acked_by_peer += 1,
            Copies::Chain => self.report.acked_by_chain += 1,
            Copies::Disk => panic!("R2: one disk is not enough"),
        }
        self.acked.insert(lsn, end.hash);
    }

    /// R5: a leader decides what is committed; a follower shows nothing else.
    fn check_commit(&mut self, node: usize) {
        let end = self.nodes[node].shard.committed();
        let known = self.committed.get(&end.lsn);
        let leads = matches!(self.nodes[node].shard.role(), Role::Leader { .. });
        if leads {
            assert!(known.is_none_or(|hash| *hash == end.hash), "R2: {} is two blocks", end.lsn);
            self.committed.insert(end.lsn, end.hash);
        } else {
            let newest = self.committed.last_key_value().map_or(Lsn(0), |(lsn, _)| *lsn);
            assert!(end.lsn <= newest, "R5: a follower shows {}, {newest} is committed", end.lsn);
            assert!(known.is_none_or(|hash| *hash == end.hash), "R5: another block");
        }
    }

    /// Whatever was acknowledged is in the log of whoever leads.
    fn check_logs(&mut self) {
        let (leader, epoch) = (self.leader, self.epoch);
        let leads = self.nodes[leader].shard.role() == Role::Leader { epoch };
        let Some(opened) = self.nodes[leader].opened_with.take_if(|_| leads) else { return };
        for (lsn, hash) in &self.acked {
            let found = self.nodes[leader].disk.end_at(super::node::IDENTITY, *lsn);
            let kept = found.is_some_and(|found| found.end.hash == *hash);
            assert!(kept, "P5: {lsn} was acked; the leader of {epoch} opened at {}", opened.lsn);
        }
    }
}
