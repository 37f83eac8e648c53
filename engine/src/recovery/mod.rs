//! From the files of a shard to the state that the shard machine starts from.
//!
//! Starts behind the newest saved index, so that the work follows the unsealed tail, not the log.
//! Runs before the shard's executor starts and may therefore block; the files are behind
//! [`LogSource`], which the simulator implements too.

mod ending;
mod find;
mod marks;
mod scan;

pub use ending::{Damage, Ending, Proof};
pub use find::block_end_at;
pub use scan::{Found, LogIdentity, Scan, ScanEnd, ScanStart};

use crate::block::{Block, genesis};
use crate::ids::{
    ClusterId, Generation, Hlc, IdempotencyKey, LeaseEpoch, Lsn, Place, Revision, StreamId,
};
use crate::index::heads::{Head, Heads};
use crate::index::key_file::SegmentKeys;
use crate::index::keys::KeyWindow;
use crate::index::tail::{Tail, TailCapacity};
use crate::record::{EventRecord, RecordError};
use crate::segment::LogEnd;
use crate::shard::{
    Active, BlockSink, Boundary, EpochMarks, RecordMisfit, Sealed, ShardConfig, ShardStart,
    StoredHead, walk,
};
use crate::waymarks::Waymarks;
use marks::Committed;
use std::collections::VecDeque;

/// The files of one shard's log.
pub trait LogSource {
    /// The segment files that exist, with their sizes in bytes, in order of their generations.
    fn segments(&mut self) -> std::io::Result<Vec<(Generation, u64)>>;

    /// Waits until writes of an earlier process have landed, and makes everything durable that can
    /// be read from the segments from `first` on. A process that was killed leaves writes behind
    /// that land later, and others that the disk shows and would lose with the power.
    fn settle(&mut self, first: Generation) -> std::io::Result<()>;

    /// Fills `buffer` from `offset` of a segment file; the number of bytes read is smaller only at
    /// the end of the file, 0 when there is no such file.
    fn read(
        &mut self,
        generation: Generation,
        offset: u64,
        buffer: &mut [u8],
    ) -> std::io::Result<usize>;
}

/// The saved indexes during recovery.
pub trait IndexStore {
    /// Saves the index and keys of a complete segment; the run counts as saved when this returns.
    /// After an error (a full disk) recovery goes on and leaves the saving to the shard machine.
    fn save(&mut self, sealed: &Sealed) -> std::io::Result<()>;

    /// What the saved indexes know of `stream`.
    fn head(&mut self, stream: StreamId) -> std::io::Result<Option<StoredHead>>;
}

/// Why recovery cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The files cannot be read.
    #[error("reading the log: {0}")]
    Io(#[from] std::io::Error),
    /// A file of another cluster lies in the directory.
    #[error("a segment belongs to cluster {found:?}, this directory to {own:?}")]
    OtherCluster {
        /// As the file says.
        found: ClusterId,
        /// As the directory says.
        own: ClusterId,
    },
    /// A whole block (its hash is right) whose records cannot be decoded or do not follow those
    /// before: written by a newer or faulty program.
    #[error("the log holds at LSN {lsn} a record that this program cannot read: {error}")]
    Record {
        /// The event's LSN, or the first of its block.
        lsn: Lsn,
        /// What is wrong with it.
        error: RecordError,
    },
    /// The log goes on in a form of a later version.
    #[error(
        "segment {} has at offset {} data of version {version}, which this program does not \
         know: start the program that wrote it, or a newer one", place.generation, place.offset
    )]
    Newer {
        /// Where.
        place: Place,
        /// Its version.
        version: u16,
    },
}

impl From<RecordMisfit> for RecoverError {
    fn from(RecordMisfit { lsn, error }: RecordMisfit) -> Self {
        Self::Record { lsn, error }
    }
}

/// What is known without reading the log's tail.
#[derive(Debug)]
pub struct Checkpoint {
    /// Newest segment whose index is saved; 0 if none.
    pub flushed: Generation,
    /// The end of the log behind it.
    pub end: LogEnd,
    /// Newest durable mark.
    pub mark: Option<LogEnd>,
    /// The idempotency window up to there.
    pub keys: KeyWindow,
}

/// The end of a log without events.
#[must_use]
pub fn empty_log(identity: LogIdentity) -> LogEnd {
    let hash = genesis(identity.cluster, identity.shard);
    LogEnd { lsn: Lsn(0), hash, hlc: Hlc(0), epoch: LeaseEpoch(0) }
}

/// A recovered shard.
#[derive(Debug)]
pub struct Recovered {
    /// For the shard machine.
    pub start: ShardStart,
    /// How the log ended.
    pub scan: ScanEnd,
    /// Blocks and events read.
    pub blocks: u64,
    /// Events in them.
    pub events: u64,
    /// Why indexes could not be saved, if so.
    pub save_error: Option<std::io::Error>,
    /// Where blocks begin that were read.
    pub waymarks: Waymarks,
}

/// Reads the tail of the log behind `checkpoint`.
pub fn recover<S: LogSource>(
    config: &ShardConfig,
    source: &mut S,
    checkpoint: Checkpoint,
    store: &mut dyn IndexStore,
) -> Result<Recovered, RecoverError> {
    let identity = LogIdentity { cluster: config.cluster, shard: config.shard };
    // First of all, because everything found counts as durable from here on (invariant D3).
    source.settle(checkpoint.flushed.next())?;
    let start = ScanStart { generation: checkpoint.flushed.next(), end: checkpoint.end };
    let older = match config.pair {
        Some(_) => find::epoch_marks(source, identity, checkpoint.flushed, &checkpoint.end)?,
        None => EpochMarks::default(),
    };
    let mut rebuild = Rebuild::new(config, start, checkpoint.keys, checkpoint.mark);
    let mut scan = Scan::new(source, identity).in_pair(config.pair.is_some());
    let scan = scan.run(start, checkpoint.mark, &mut |found| match found {
        Found::Block(place, block, behind) => rebuild.block(place, block, behind, store),
        Found::Rotated(generation, end) => rebuild.rotated(generation, end, store),
    })?;
    let Place { generation: newest, mut offset } = scan.place;
    let layout = config.layout;
    if (scan.size_bytes, scan.align_bytes) != (layout.segment_size_bytes, layout.align_bytes) {
        // Made with other settings: it takes no more blocks, the log goes on in the next segment.
        offset = offset.max(layout.segment_size_bytes);
    }
    let active = Active { generation: newest, offset, header_pending: None };
    let active = (newest > start.flushed()).then_some(active);
    let (end, newest_stamp) = (scan.end, scan.newest_stamp);
    let (blocks, events) = (rebuild.blocks, rebuild.events);
    let Rebuild { tail, heads, keys, tail_keys, unsaved, save_error, committed, .. } = rebuild;
    let Rebuild { epochs, waymarks, .. } = rebuild;
    let mut epochs = epochs;
    epochs.precede(&older);
    let (committed, uncommitted) = match config.pair {
        Some(_) => committed.finish(),
        // Standalone everything durable is committed.
        None => {
            let first = Place { generation: start.generation, offset: 0 };
            let behind = if active.is_some() { scan.place } else { first };
            (Boundary { end, behind }, VecDeque::new())
        }
    };
    let start = ShardStart {
        end,
        newest_stamp,
        newest,
        active,
        tail,
        tail_keys,
        heads,
        keys,
        unsaved: unsaved.into(),
        committed,
        uncommitted,
        epochs,
    };
    Ok(Recovered { start, scan, blocks, events, save_error, waymarks })
}

struct Rebuild {
    segment_size_bytes: u32,
    /// Whether blocks may be uncommitted.
    pair: bool,
    tail: Tail,
    heads: Heads,
    keys: KeyWindow,
    tail_keys: SegmentKeys,
    /// Complete segments whose index is not saved, in order.
    unsaved: VecDeque<Sealed>,
    save_error: Option<std::io::Error>,
    committed: Committed,
    end: LogEnd,
    epochs: EpochMarks,
    waymarks: Waymarks,
    blocks: u64,
    events: u64,
}

impl Rebuild {
    fn new(config: &ShardConfig, start: ScanStart, keys: KeyWindow, mark: Option<LogEnd>) -> Self {
        let segment_size_bytes = config.layout.segment_size_bytes;
        let capacity = TailCapacity::for_segment(segment_size_bytes);
        let mut heads = Heads::with_capacity(config.hot_streams_max);
        heads.set_flushed(start.flushed());
        Self {
            segment_size_bytes,
            pair: config.pair.is_some(),
            tail: Tail::with_capacity(start.generation, capacity),
            heads,
            keys,
            tail_keys: SegmentKeys::for_segment(start.generation, segment_size_bytes),
            unsaved: VecDeque::new(),
            save_error: None,
            committed: Committed::new(start, mark),
            end: start.end,
            epochs: EpochMarks::default(),
            waymarks: Waymarks::default(),
            blocks: 0,
            events: 0,
        }
    }

    fn block(
        &mut self,
        place: Place,
        block: &Block<'_>,
        behind: Place,
        store: &mut dyn IndexStore,
    ) -> Result<(), RecoverError> {
        self.blocks += 1;
        walk(place, block, &mut Rebuilding { rebuild: self, store })?;
        let header = &block.header;
        self.waymarks.note(header.first_lsn, place);
        self.epochs.follow(&self.end, header.epoch);
        let (lsn, hash) = (header.last_lsn(), header.hash);
        self.end = LogEnd { lsn, hash, hlc: header.hlc, epoch: header.epoch };
        if self.pair {
            self.committed.block(Boundary { end: self.end, behind }, header.commit_mark);
            self.save(store);
        }
        Ok(())
    }

    fn event(
        &mut self,
        place: Place,
        event: &EventRecord<'_>,
        token: Option<u64>,
        store: &mut dyn IndexStore,
    ) -> Result<(), RecoverError> {
        let Place { generation, offset } = place;
        let stream = StreamId::of(event.stream.as_bytes());
        let known = match self.heads.get(stream) {
            Some(head) => Some((head.next_revision, head.fencing_token)),
            None => store.head(stream)?.map(|head| (head.next, head.fencing_token)),
        };
        let next_revision = event.revision.0.checked_add(1).map(Revision);
        let next_revision =
            next_revision.filter(|_| known.is_none_or(|(next, _)| next == event.revision));
        let next_revision = next_revision.ok_or(RecoverError::Record {
            lsn: event.lsn,
            error: RecordError::Malformed("revision"),
        })?;
        let highest = known.map_or(0, |(_, token)| token);
        let fencing_token = highest.max(token.unwrap_or(0));
        let highest = (fencing_token > 0).then_some(fencing_token);
        let tail_slot = self.tail.push(stream, event.revision, offset, highest);
        let last_generation = generation;
        let head = Head { next_revision, fencing_token, last_generation, tail_slot };
        self.heads.put(stream, head);
        self.events += 1;
        Ok(())
    }

    fn rotated(
        &mut self,
        generation: Generation,
        end: LogEnd,
        store: &mut dyn IndexStore,
    ) -> Result<(), RecoverError> {
        let size_bytes = self.segment_size_bytes;
        let next = generation.next();
        let tail = Tail::with_capacity(next, TailCapacity::for_segment(size_bytes));
        let tail = std::mem::replace(&mut self.tail, tail);
        let keys = SegmentKeys::for_segment(next, size_bytes);
        let keys = std::mem::replace(&mut self.tail_keys, keys);
        self.unsaved.push_back(Sealed { generation, tail, keys, end });
        self.save(store);
        Ok(())
    }

    /// Saves what may be saved. Indexes are saved in order: those behind one that could not be wait
    /// with it.
    fn save(&mut self, store: &mut dyn IndexStore) {
        while self.save_error.is_none()
            && let Some(sealed) = self.unsaved.front()
        {
            // D7: an index is saved of committed events only.
            if self.pair && sealed.end.lsn > self.committed.lsn() {
                break;
            }
            match store.save(sealed) {
                Ok(()) => {
                    self.heads.set_flushed(sealed.generation);
                    self.unsaved.pop_front();
                }
                Err(error) => self.save_error = Some(error),
            }
        }
    }
}

struct Rebuilding<'a> {
    rebuild: &'a mut Rebuild,
    store: &'a mut dyn IndexStore,
}

impl BlockSink for Rebuilding<'_> {
    type Error = RecoverError;

    fn key(&mut self, key: IdempotencyKey, place: Place) {
        self.rebuild.keys.restore(key, place);
        self.rebuild.tail_keys.push(key, place.offset);
    }

    fn event(
        &mut self,
        place: Place,
        event: &EventRecord<'_>,
        token: Option<u64>,
    ) -> Result<(), RecoverError> {
        self.rebuild.event(place, event, token, self.store)
    }
}

#[cfg(test)]
mod tests;
