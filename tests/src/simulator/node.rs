//! A node: what stays when its process ends, and the process.

use std::collections::BTreeMap;

use duolog_engine::block::{BLOCK_HEADER_BYTES, BlockHeader};
use duolog_engine::ids::{
    ClusterId, Generation, LeaseEpoch, Lsn, NodeId, Now, Place, ShardId, StreamId,
};
use duolog_engine::index::keys::KeyWindow;
use duolog_engine::recovery::{
    Checkpoint, Ending, IndexStore, LogIdentity, Recovered, empty_log, recover,
};
use duolog_engine::replica::BlockEnd;
use duolog_engine::replica::promotion::StoredChain;
use duolog_engine::segment::LogEnd;
use duolog_engine::shard::{Boundary, Layout, Sealed, Shard, ShardConfig, StoredHead};
use duolog_lease::event::{Event as LeaseEvent, Refusal};
use duolog_lease::grant::Grant;
use duolog_lease::ids::{MonoMs, RunId};
use duolog_lease::in_sync::InSync;
use duolog_lease::machine::{Identity, Machine};
use duolog_lease::timings::Timings;
use duolog_net::peer::PeerReader;
use duolog_net::session::Ticket;

use super::clock::Clock;
use super::collecting::Collecting;
use super::following::InLink;
use super::leading::OutLink;
use super::network::ConnId;
use super::plan::{Plan, Planted};
use super::promoting::Promoting;
use super::sessions::{Guest, LineId};
use super::store::{Asker, Told};
use super::uploading::Uploading;
use crate::sim::chance::Chance;
use crate::sim::disk::{SimDisk, WriteId};

pub const CLUSTER: ClusterId = ClusterId(7);
pub const SHARD: ShardId = ShardId(0);
pub const LAYOUT: Layout = Layout { segment_size_bytes: 64 << 10, align_bytes: 4096 };
pub const IDENTITY: LogIdentity = LogIdentity { cluster: CLUSTER, shard: SHARD };
/// Appends that a shard may have in flight.
pub const IN_FLIGHT_MAX: usize = 100;
/// Their bytes.
pub const IN_FLIGHT_MAX_BYTES: usize = 1 << 20;

/// What a shard is told by the control, in order.
#[derive(Clone, Debug)]
pub enum ToShard {
    Grant(Option<Grant>),
    Members(InSync, Option<InSync>),
    Follow(NodeId, LeaseEpoch),
    StopFollowing,
    Suspend,
    Promote(LeaseEpoch),
    Demote,
    Drain(LeaseEpoch),
    Refuse(NodeId, LeaseEpoch, Refusal),
    Reachable(bool),
    Committed(LeaseEpoch, Lsn),
}

/// Something that happens to a process after a while.
#[derive(Clone, Debug)]
pub enum ToNode {
    Lease(LeaseEvent),
    /// The lease machine's timer, as it was set.
    LeaseTimer(MonoMs),
    Shard(ToShard),
    Flush,
    Written(WriteId, Lsn),
    Prepared(Generation),
    /// An index is saved, for the machine that was made by this cut.
    IndexSaved(Generation, u32),
    Marked(LogEnd),
    Promised(LeaseEpoch),
    /// Every 100 ms.
    Tick,
    /// Every 200 ms: as leader, look for the other node.
    Seek,
    /// The shard's connection to the follower is dialled.
    DialShard,
    /// A connection was not made.
    NotConnected {
        heartbeat: bool,
    },
    Told(Asker, Told),
    UploadTick,
    PromotionTick,
    /// Bytes of a client arrive.
    FromClient {
        client: usize,
        line: LineId,
        bytes: Vec<u8>,
    },
    /// The process ends after a failed write.
    Died,
    /// The end was asked for with a signal.
    Resign,
}

/// What a connection is to its process.
#[derive(Debug)]
pub enum Use {
    /// Accepted, before its hello.
    Greeting,
    BeatOut,
    BeatIn(NodeId),
    BlocksOut,
    BlocksIn,
}

#[derive(Debug)]
pub struct Peer {
    pub reader: PeerReader,
    pub used: Use,
}

/// What ends with the process.
pub struct Process {
    pub lease: Machine<Planted>,
    pub shard: Shard,
    pub flush_due: bool,
    pub peers: BTreeMap<ConnId, Peer>,
    /// Connections of clients.
    pub guests: BTreeMap<usize, Guest>,
    /// Appends that wait in the shard.
    pub tickets: BTreeMap<u64, (usize, LineId, Ticket)>,
    pub beat_out: Option<ConnId>,
    pub beat_in: Option<ConnId>,
    pub last_beat: MonoMs,
    pub seeking: bool,
    pub follow: Option<(NodeId, LeaseEpoch)>,
    pub reign: Option<LeaseEpoch>,
    pub grant: Option<Grant>,
    pub members: Option<(InSync, Option<InSync>)>,
    pub reachable: bool,
    pub target: bool,
    pub dialling: bool,
    pub inbound: Option<InLink>,
    pub outbound: Option<OutLink>,
    pub uploading: Option<Uploading>,
    pub collecting: Option<Collecting>,
    pub promoting: Option<Promoting>,
    pub stored_chain: Option<StoredChain>,
    pub draining: Option<LeaseEpoch>,
    pub told_caught_up: Option<LeaseEpoch>,
    pub told_covered: Option<InSync>,
    pub preparing: usize,
    /// How often the log was cut, and its machine made anew, in this life.
    pub cuts: u32,
    /// When the last message of the control reaches the shard, us.
    pub heard_us: u64,
    /// When the last promise is durable, us.
    pub promised_us: u64,
    /// The challenge that has left, while its outcome is open.
    pub challenge: Option<LeaseEpoch>,
}

/// See the module.
pub struct Node {
    pub id: NodeId,
    pub config: ShardConfig,
    pub clock: Clock,
    pub disk: SimDisk,
    pub promised: LeaseEpoch,
    pub mark: Option<LogEnd>,
    pub life: u32,
    /// Until then the process does not run.
    pub frozen: Option<u64>,
    /// Its shard hears late what its control says.
    pub busy: bool,
    /// Writes to its disk take long.
    pub slow_disk: bool,
    /// There is no room for another segment.
    pub full: bool,
    /// The next write fails.
    pub failing: bool,
    /// What was committed has decayed, perhaps.
    pub rotten: bool,
    pub process: Option<Box<Process>>,
    /// What it last held for committed.
    pub committed: Lsn,
}

struct NoIndex;

impl IndexStore for NoIndex {
    fn save(&mut self, _: &Sealed) -> std::io::Result<()> {
        Err(std::io::Error::other("never"))
    }

    fn head(&mut self, _: StreamId) -> std::io::Result<Option<StoredHead>> {
        Ok(None)
    }
}

impl Node {
    pub fn new(plan: &Plan, index: usize) -> Self {
        let id = NodeId(index as u128 + 1);
        let config = ShardConfig {
            cluster: CLUSTER,
            shard: SHARD,
            shard_count: 1,
            pair: Some(id),
            layout: LAYOUT,
            blocks_in_flight_max: plan.blocks_in_flight,
            block_target_bytes: 8 << 10,
            idempotency_window: 10_000,
            hot_streams_max: 1000,
            recent_max_bytes: 32 << 10,
            in_flight_max: IN_FLIGHT_MAX,
            in_flight_max_bytes: IN_FLIGHT_MAX_BYTES,
        };
        let mut chance = Chance::new(plan.seed, ["disk 1", "disk 2"][index]);
        Self {
            id,
            config,
            clock: Clock::new(chance.between(1_000_000, 9_000_000_000)),
            disk: SimDisk::new(chance, 512),
            promised: LeaseEpoch(0),
            mark: None,
            life: 0,
            frozen: None,
            busy: false,
            slow_disk: false,
            full: false,
            failing: false,
            rotten: false,
            process: None,
            committed: Lsn(0),
        }
    }

    pub fn now(&self, at_us: u64) -> Now {
        self.clock.read(at_us)
    }

    pub fn frozen_until(&self, now_us: u64) -> Option<u64> {
        self.frozen.filter(|until| *until > now_us)
    }

    /// A mark is durable.
    pub fn keep_mark(&mut self, end: LogEnd) {
        if self.mark.is_none_or(|known| known.lsn < end.lsn) {
            self.mark = Some(end);
        }
    }

    /// Everything is gone; another node comes in its place.
    pub fn wipe(&mut self, plan: &Plan, index: usize) {
        let blank = Self::new(plan, index);
        self.id = NodeId(index as u128 + 3);
        self.config.pair = Some(self.id);
        self.disk = blank.disk;
        (self.promised, self.mark, self.committed) = (LeaseEpoch(0), None, Lsn(0));
    }

    fn recover(&mut self) -> Option<Recovered> {
        let keys = KeyWindow::new(self.config.idempotency_window, 0);
        let end = empty_log(IDENTITY);
        let checkpoint = Checkpoint { flushed: Generation(0), end, mark: self.mark, keys };
        recover(&self.config, &mut self.disk, checkpoint, &mut NoIndex).ok()
    }

    /// Whether recovery finds that committed events are missing.
    pub fn is_damaged(&mut self) -> bool {
        let recovered = self.recover();
        recovered.is_none_or(|found| matches!(found.scan.ending, Ending::Damaged(_)))
    }

    /// The log as the disk has it.
    pub fn recovered(&mut self) -> Shard {
        let recovered = self.recover().expect("D4: a crash leaves a log that can be read");
        let damaged = matches!(recovered.scan.ending, Ending::Damaged(_));
        assert!(!damaged || self.rotten, "D4: a crash is no damage: {:?}", recovered.scan);
        self.disk.set_aside_beyond(recovered.start.newest);
        self.disk.blank_behind(recovered.scan.place, LAYOUT.align_bytes as usize);
        Shard::new(self.config, recovered.start)
    }

    /// A process begins with what the disk has.
    pub fn boot(&mut self, chance: &mut Chance, timings: Timings, rules: Planted) -> Process {
        let shard = self.recovered();
        let run = RunId::new(u128::from(chance.draw()) << 64 | u128::from(self.life) << 32);
        let identity = Identity { node: self.id, cluster: CLUSTER, run };
        Process {
            lease: Machine::with_rules(identity, timings, rules),
            shard,
            flush_due: false,
            guests: BTreeMap::new(),
            tickets: BTreeMap::new(),
            peers: BTreeMap::new(),
            beat_out: None,
            beat_in: None,
            last_beat: MonoMs(0),
            seeking: false,
            follow: None,
            reign: None,
            grant: None,
            members: None,
            reachable: false,
            target: false,
            dialling: false,
            inbound: None,
            outbound: None,
            uploading: None,
            collecting: None,
            promoting: None,
            stored_chain: None,
            draining: None,
            told_caught_up: None,
            told_covered: None,
            preparing: 0,
            cuts: 0,
            heard_us: 0,
            promised_us: 0,
            challenge: None,
        }
    }

    /// The block of the disk's log that ends exactly at `lsn`, and the place behind it.
    pub fn boundary_at(&self, lsn: Lsn) -> Option<Boundary> {
        self.disk.end_at(IDENTITY, LAYOUT.align_bytes as usize, lsn)
    }

    pub fn end_at(&self, lsn: Lsn) -> Option<LogEnd> {
        self.boundary_at(lsn).map(|found| found.end)
    }

    pub fn has(&self, end: BlockEnd) -> bool {
        self.end_at(end.lsn).is_some_and(|found| found.hash == end.hash)
    }

    /// The block behind the one that ends with `lsn`: from memory or from the disk.
    pub fn block_behind(&self, lsn: Lsn) -> Vec<u8> {
        let process = self.process.as_ref().expect("it runs");
        if let Some(block) = process.shard.in_memory_block(lsn.next()) {
            return block.to_vec();
        }
        let behind = self.boundary_at(lsn).expect("R1: a block ends there").behind;
        self.block_at(behind, lsn).0
    }

    /// The block behind `lsn`, which begins at `behind` or in the next segment, and what is behind
    /// it.
    fn block_at(&self, behind: Place, lsn: Lsn) -> (Vec<u8>, Place) {
        let align = LAYOUT.align_bytes;
        let next = Place { generation: behind.generation.next(), offset: align };
        let here = Place { offset: behind.offset.max(align), ..behind };
        for at in [here, next] {
            let header = BlockHeader::decode(self.disk.visible(at, BLOCK_HEADER_BYTES)).ok();
            if let Some(header) = header.filter(|header| header.first_lsn == lsn.next()) {
                let length = header.length() as u32;
                let behind = Place { offset: at.offset + length.next_multiple_of(align), ..at };
                return (self.disk.visible(at, header.length()).to_vec(), behind);
            }
        }
        panic!("D1: the block behind {lsn} is not on the disk")
    }

    /// The blocks from behind `from` up to `to`, from the disk.
    pub fn blocks(&self, from: Lsn, to: Lsn) -> Vec<Vec<u8>> {
        let (mut blocks, mut at) = (Vec::new(), from);
        if at >= to {
            return blocks;
        }
        let mut place = self.boundary_at(at).expect("R1: a block ends there").behind;
        while at < to {
            let (block, behind) = self.block_at(place, at);
            let header = BlockHeader::decode(&block).expect("D1: it was decoded before");
            (at, place) = (header.last_lsn(), behind);
            blocks.push(block);
        }
        blocks
    }
}

impl Process {
    /// Whether nothing is under way to the disk or to a client.
    pub fn is_settled(&self) -> bool {
        self.preparing == 0
            && self.shard.durable() == self.shard.end()
            && self.shard.in_flight() == 0
    }
}
