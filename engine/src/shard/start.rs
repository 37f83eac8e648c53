//! What a shard is made of: its settings, and the state that recovery found.

use std::collections::VecDeque;

use super::epochs::EpochMarks;
use super::segments::{Active, Layout};
use crate::ids::{ClusterId, Generation, Hlc, NodeId, Place, ShardId};
use crate::index::heads::Heads;
use crate::index::key_file::SegmentKeys;
use crate::index::keys::KeyWindow;
use crate::index::tail::{Tail, TailCapacity};
use crate::recovery::{LogIdentity, empty_log};
use crate::segment::LogEnd;

/// Settings of one shard. Sizes are checked by the program's configuration.
#[derive(Clone, Copy, Debug)]
pub struct ShardConfig {
    /// The cluster.
    pub cluster: ClusterId,
    /// This shard.
    pub shard: ShardId,
    /// Number of shards in the cluster.
    pub shard_count: u32,
    /// This node in a pair, where the shard starts as follower of nobody; `None` when it is the
    /// only node.
    pub pair: Option<NodeId>,
    /// Segment sizes.
    pub layout: Layout,
    /// Blocks being written at one time, at least 1.
    pub blocks_in_flight_max: usize,
    /// A block closes at this body size, bytes.
    pub block_target_bytes: usize,
    /// Appends with a key that are remembered.
    pub idempotency_window: usize,
    /// Stream heads in memory.
    pub hot_streams_max: usize,
    /// Committed blocks kept in memory for readers, bytes.
    pub recent_max_bytes: usize,
    /// Accepted and not answered appends.
    pub in_flight_max: usize,
    /// Their bytes.
    pub in_flight_max_bytes: usize,
}

/// The index and keys of a segment that is complete, until they are saved.
#[derive(Debug)]
pub struct Sealed {
    /// The segment.
    pub generation: Generation,
    /// Its streams and the places of their events.
    pub tail: Tail,
    /// The keys of its appends and the offsets of their append records, in order.
    pub keys: SegmentKeys,
    /// The end of the log behind it.
    pub end: LogEnd,
}

/// The end of a block and the place behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// The log's end when it is the last block.
    pub end: LogEnd,
    /// Where the next block begins, if the segment has room for it.
    pub behind: Place,
}

/// What the machine starts from.
#[derive(Debug)]
pub struct ShardStart {
    /// The end of the log.
    pub end: LogEnd,
    /// The next block's stamp is above this one and the end's. It is that of blocks which were cut
    /// off: the same appends in the same order must not become the same blocks again, or what is
    /// left of the old log behind them would continue it.
    pub newest_stamp: Hlc,
    /// Newest segment in use, 0 in an empty log.
    pub newest: Generation,
    /// That segment, unless it is complete and its index saved.
    pub active: Option<Active>,
    /// Index of the active segment.
    pub tail: Tail,
    /// Keys of the active segment.
    pub tail_keys: SegmentKeys,
    /// Heads of all streams in `tail`.
    pub heads: Heads,
    /// The idempotency window.
    pub keys: KeyWindow,
    /// Complete segments whose index could not be saved, or may not be yet, in order.
    pub unsaved: Vec<Sealed>,
    /// The last block known to be committed. Standalone it is the last block.
    pub committed: Boundary,
    /// The blocks behind it, in order.
    pub uncommitted: VecDeque<Boundary>,
    /// Where the log's reigns end.
    pub epochs: EpochMarks,
}

impl ShardStart {
    /// The start of a log without events. `key_seed` spreads idempotency keys; see [`KeyWindow`].
    #[must_use]
    pub fn empty(config: &ShardConfig, key_seed: u64) -> Self {
        let size_bytes = config.layout.segment_size_bytes;
        let end = empty_log(LogIdentity { cluster: config.cluster, shard: config.shard });
        let (first, none) = (Generation(1), Generation(0));
        Self {
            end,
            newest_stamp: end.hlc,
            newest: none,
            active: None,
            tail: Tail::with_capacity(first, TailCapacity::for_segment(size_bytes)),
            tail_keys: SegmentKeys::for_segment(first, size_bytes),
            heads: Heads::with_capacity(config.hot_streams_max),
            keys: KeyWindow::new(config.idempotency_window, key_seed),
            unsaved: Vec::new(),
            committed: Boundary { end, behind: Place { generation: first, offset: 0 } },
            uncommitted: VecDeque::new(),
            epochs: EpochMarks::default(),
        }
    }
}
