//! Blocks that were made elsewhere: checked against the own log (rules R1, R3), applied, and put
//! where their maker put them. A follower hears them from its leader, a promoting node from the
//! chains.

use super::apply::{BlockSink, RecordMisfit, walk};
use super::assembly::Assembly;
use super::{Action, Actions, Role, Shard, State};
use crate::block::{Block, BlockError, BlockHeader};
use crate::ids::{Generation, IdempotencyKey, LeaseEpoch, Lsn, Now, Place, ShardId};
use crate::limits::WRITE_JOIN_MAX_BYTES;
use crate::record::{EventRecord, RecordError};

/// Why a block was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockRefused {
    /// R3: blocks are taken at exactly the epoch that is followed.
    #[error("a block came at epoch {given}, but the shard follows {followed:?}")]
    NotFollowed {
        /// The sender's reign.
        given: LeaseEpoch,
        /// The reign followed, if any.
        followed: Option<LeaseEpoch>,
    },
    /// It is part of the log already, or lies before its end.
    #[error("the log has LSN {end} already; the block ends at {last}")]
    Known {
        /// Its last LSN.
        last: Lsn,
        /// The log's last LSN.
        end: Lsn,
    },
    /// Blocks before it are missing.
    #[error("the block begins at LSN {first}, the log ends at {end}")]
    Gap {
        /// Its first LSN.
        first: Lsn,
        /// The log's last LSN.
        end: Lsn,
    },
    /// R1: it continues another log.
    #[error("the block at LSN {first} names another block before it than the log's last")]
    Fork {
        /// Its first LSN.
        first: Lsn,
    },
    /// It belongs to another shard.
    #[error("a block of shard {found} was sent to another shard")]
    OtherShard {
        /// As its header says.
        found: ShardId,
    },
    /// Its reign lies before the log's or is not over for its sender.
    #[error("a block of epoch {epoch} cannot follow here")]
    Epoch {
        /// The block's own reign.
        epoch: LeaseEpoch,
    },
    /// It does not go where its maker put it: the nodes' segment sizes or alignments differ.
    #[error("a block of {length} bytes of segment {generation} does not fit behind the log's end")]
    Misplaced {
        /// Its segment.
        generation: Generation,
        /// Its length, bytes.
        length: usize,
    },
    /// It is damaged.
    #[error("a received block: {0}")]
    Damaged(#[from] BlockError),
    /// Its hash is right, but its records do not belong together: its maker is faulty or newer.
    #[error("the block holds at LSN {lsn} a record that this program cannot read: {error}")]
    Record {
        /// The event's LSN, or the block's first.
        lsn: Lsn,
        /// What is wrong.
        error: RecordError,
    },
}

impl From<RecordMisfit> for BlockRefused {
    fn from(RecordMisfit { lsn, error }: RecordMisfit) -> Self {
        Self::Record { lsn, error }
    }
}

/// Looks at records without doing anything.
struct Look;

impl BlockSink for Look {
    type Error = BlockRefused;

    fn key(&mut self, _: IdempotencyKey, _: Place) {}

    fn event(&mut self, _: Place, _: &EventRecord<'_>, _: Option<u64>) -> Result<(), BlockRefused> {
        Ok(())
    }
}

impl Shard {
    /// Whether [`super::Event::Received`] would take the block; its header. Changes nothing.
    pub fn check_block(
        &self,
        epoch: LeaseEpoch,
        block: &[u8],
    ) -> Result<BlockHeader, BlockRefused> {
        self.checked(epoch, block).map(|block| block.header)
    }

    fn checked<'a>(&self, epoch: LeaseEpoch, bytes: &'a [u8]) -> Result<Block<'a>, BlockRefused> {
        let followed = match self.role {
            Role::Follower { epoch } => epoch,
            Role::Promoting { epoch } => Some(epoch),
            Role::Standalone | Role::Leader { .. } => None,
        };
        if followed != Some(epoch) || self.state == State::Poisoned {
            return Err(BlockRefused::NotFollowed { given: epoch, followed });
        }
        let header = BlockHeader::decode(bytes)?;
        let (first, last) = (header.first_lsn, header.last_lsn());
        if header.shard != self.config.shard {
            return Err(BlockRefused::OtherShard { found: header.shard });
        }
        if last <= self.end.lsn {
            return Err(BlockRefused::Known { last, end: self.end.lsn });
        }
        if first != self.end.lsn.next() {
            return Err(BlockRefused::Gap { first, end: self.end.lsn });
        }
        if header.previous_hash != self.end.hash {
            return Err(BlockRefused::Fork { first });
        }
        // What a promoting node takes was made before its own reign.
        let newest = match self.role {
            Role::Promoting { epoch } => LeaseEpoch(epoch.0 - 1),
            _ => epoch,
        };
        if header.epoch < self.end.epoch || header.epoch > newest {
            return Err(BlockRefused::Epoch { epoch: header.epoch });
        }
        if header.hlc <= self.end.hlc {
            return Err(BlockError::Malformed("stamp").into());
        }
        if header.commit_mark > self.end.lsn {
            return Err(BlockError::Malformed("commit mark").into());
        }
        let (generation, length) = (header.generation, header.length());
        if self.segments.fit(generation, length).is_none() {
            return Err(BlockRefused::Misplaced { generation, length });
        }
        let block = Block::decode(bytes)?;
        walk(Place { generation, offset: 0 }, &block, &mut Look)?;
        Ok(block)
    }

    pub(super) fn received(
        &mut self,
        now: Now,
        epoch: LeaseEpoch,
        bytes: &[u8],
        out: &mut Actions,
    ) {
        let block = match self.checked(epoch, bytes) {
            Ok(block) => block,
            Err(reason) => return out.list.push(Action::BlockRefused { reason }),
        };
        let header = block.header;
        if self.segments.fit(header.generation, header.length()) == Some(Fit::Next) {
            self.rotate();
        }
        let (place, segment_header) = self.segments.place_block(header.length());
        if let Err(reason) = self.apply(place, &block, out) {
            // Half of it is applied. No right leader makes such a block, so nothing can follow.
            out.list.push(Action::BlockRefused { reason });
            return self.poison(out);
        }
        self.epochs.follow(&self.end, header.epoch);
        let mut assembly = self.spare_blocks.pop().unwrap_or_else(Assembly::new);
        assembly.receive(place, segment_header, &header, &bytes[..header.length()]);
        self.end = assembly.end();
        self.ordered = self.end.lsn;
        self.mark = self.mark.max(header.commit_mark);
        self.queue(assembly);
        self.commit(now, out);
        // What has arrived together is written together, at the next flush or when it is enough.
        if self.waiting_bytes >= WRITE_JOIN_MAX_BYTES {
            self.start_writes(out);
        }
    }

    pub(super) fn commit_mark(&mut self, now: Now, epoch: LeaseEpoch, lsn: Lsn, out: &mut Actions) {
        // R5: committed is what the leader says it is, as far as it is durable here.
        if self.role == (Role::Follower { epoch: Some(epoch) }) && self.state != State::Poisoned {
            self.mark = self.mark.max(lsn);
            self.commit(now, out);
        }
    }

    /// Tells the leader how far the log is durable, as long as one is followed.
    pub(super) fn acknowledge(&self, out: &mut Actions) {
        // L3, R3: only while still following.
        if let Role::Follower { epoch: Some(epoch) } = self.role {
            out.list.push(Action::Durable { epoch, lsn: self.durable.lsn });
        }
    }
}

/// Where a block goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Behind the last one.
    Here,
    /// At the beginning of the next segment.
    Next,
}
