//! One node: its machine, its disk, the writes under way, and its recovery.

use duolog_engine::ids::{
    ClusterId, Generation, LeaseEpoch, Lsn, NodeId, Place, ShardId, StreamId,
};
use duolog_engine::index::keys::KeyWindow;
use duolog_engine::recovery::{Checkpoint, Ending, IndexStore, LogIdentity, empty_log, recover};
use duolog_engine::segment::{LogEnd, SegmentHeader};
use duolog_engine::shard::{Layout, Sealed, Shard, ShardConfig, StoredHead};

use super::disk::Disk;

pub const LAYOUT: Layout = Layout { segment_size_bytes: 64 << 10, align_bytes: 4096 };

pub struct Writing {
    pub first_lsn: Lsn,
    pub place: Place,
    pub image: Vec<u8>,
    /// The machine has heard that it is durable.
    pub told: bool,
}

pub struct Node {
    pub id: NodeId,
    pub config: ShardConfig,
    pub shard: Shard,
    pub disk: Disk,
    pub writes: Vec<Writing>,
    pub preparing: Option<Generation>,
    pub mark: Option<LogEnd>,
    /// P1: durable.
    pub promised: LeaseEpoch,
    /// The node has challenged and acks nothing any more (L3).
    pub challenged: bool,
    /// Its log has these blocks, as a list of ends, when it was last looked at as leader.
    pub opened_with: Option<LogEnd>,
    /// What a crash leaves behind the log's end is blanked at the start.
    blanks: bool,
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

pub const IDENTITY: LogIdentity = LogIdentity { cluster: ClusterId(7), shard: ShardId(0) };

impl Node {
    pub fn new(id: NodeId, in_flight: usize, blanks: bool) -> Self {
        let config = ShardConfig {
            cluster: IDENTITY.cluster,
            shard: IDENTITY.shard,
            shard_count: 1,
            pair: Some(id),
            layout: LAYOUT,
            blocks_in_flight_max: in_flight,
            block_target_bytes: 1,
            idempotency_window: 100,
            hot_streams_max: 1000,
            recent_max_bytes: 16 << 10,
            in_flight_max: 1000,
            in_flight_max_bytes: 1 << 20,
        };
        let mut disk = Disk::default();
        let shard = recovered(&config, &mut disk, None, blanks);
        Self {
            id,
            config,
            shard,
            disk,
            writes: Vec::new(),
            preparing: None,
            mark: None,
            promised: LeaseEpoch(0),
            challenged: false,
            opened_with: None,
            blanks,
        }
    }

    /// The machine's end, made anew from what the disk has.
    pub fn restart(&mut self) {
        self.writes.clear();
        self.preparing = None;
        self.opened_with = None;
        self.shard = recovered(&self.config, &mut self.disk, self.mark, self.blanks);
    }

    /// Cuts the log behind `lsn` and makes the machine anew; nothing may be under way.
    pub fn cut(&mut self, lsn: Lsn) {
        assert_eq!(self.shard.durable(), self.shard.end(), "R3: a cut waits for the disk");
        let committed = self.shard.committed().lsn;
        assert!(lsn >= committed, "R4: cut behind {lsn}, but {committed} is committed");
        let at = self.disk.end_at(IDENTITY, lsn).expect("R3: a log is cut where a block ends");
        self.disk.cut(at, LAYOUT.align_bytes as usize);
        self.restart();
        assert_eq!(self.shard.end(), at.end, "R3: the log ends where it was cut");
    }

    /// Whether the disk has the block that ends with this hash.
    pub fn has(&mut self, end: &LogEnd) -> bool {
        self.disk.end_at(IDENTITY, end.lsn).is_some_and(|found| found.end == *end)
    }

    pub fn begin_write(
        &mut self,
        first_lsn: Lsn,
        blocks: u32,
        place: Place,
        header: Option<SegmentHeader>,
    ) {
        let align = LAYOUT.align_bytes as usize;
        let mut image = Vec::new();
        if let Some(header) = header {
            image.resize(align, 0);
            header.encode(&mut image);
        }
        for block in self.shard.write_parts(first_lsn, blocks) {
            image.extend_from_slice(block);
            image.resize(image.len().next_multiple_of(align), 0);
        }
        let offset = if header.is_some() { 0 } else { place.offset };
        let place = Place { offset, ..place };
        self.writes.push(Writing { first_lsn, place, image, told: false });
    }
}

fn recovered(config: &ShardConfig, disk: &mut Disk, mark: Option<LogEnd>, blanks: bool) -> Shard {
    let end = empty_log(IDENTITY);
    let keys = KeyWindow::new(config.idempotency_window, 0);
    let checkpoint = Checkpoint { flushed: Generation(0), end, mark, keys };
    let recovered = recover(config, disk, checkpoint, &mut NoIndex).expect("the log can be read");
    let damaged = matches!(recovered.scan.ending, Ending::Damaged(_));
    assert!(!damaged, "D4: a crash is no damage: {:?}", recovered.scan);
    disk.set_aside_beyond(recovered.start.newest);
    if blanks {
        disk.blank_behind(recovered.scan.place, LAYOUT.align_bytes as usize);
    }
    Shard::new(*config, recovered.start)
}
