//! What the shard machine is told and what it asks for.
//!
//! [`Actions`] is reused by the driver from step to step: after warm-up no step allocates.

use crate::append::{AppendView, Expect};
use crate::ids::{Generation, Hlc, LeaseEpoch, Lsn, Place, Revision, ShardId, StreamId};
use crate::record::StreamRange;
use crate::segment::{LogEnd, SegmentHeader};

/// Names a request: chosen by the driver, unique among those not answered; only handed back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

/// What happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// A client wants to append. Answered by one [`Action::Reply`] with the same `to`.
    Append {
        /// Where the answer goes.
        to: RequestId,
        /// The checked request; its bytes are copied before the step returns.
        view: AppendView<'a>,
    },
    /// Everything that had arrived has been handed in: the open block may be closed.
    Flush,
    /// The write of this block is durable.
    BlockWritten {
        /// The first LSN of the block, as in [`Action::Write`].
        first_lsn: Lsn,
    },
    /// A write or sync failed. The shard is poisoned; nothing is retried.
    WriteFailed,
    /// The file for this segment is ready to be written into.
    SegmentReady {
        /// As in [`Action::PrepareSegment`].
        generation: Generation,
    },
    /// There is no space for the segment; the driver tries again later.
    SegmentRefused,
    /// Answers [`Action::LoadHead`].
    HeadLoaded {
        /// The stream.
        stream: StreamId,
        /// What the sealed segments know of it; `None` when it is in none of them.
        head: Result<Option<StoredHead>, LoadFailed>,
    },
    /// Answers [`Action::LoadReplay`]: the bytes of the append record.
    ReplayLoaded {
        /// Where the answer goes.
        to: RequestId,
        /// The record, or why it could not be read.
        record: Result<&'a [u8], LoadFailed>,
    },
    /// Answers [`Action::SaveIndex`]: the run is durable and part of the catalogue.
    IndexSaved {
        /// The generation saved.
        generation: Generation,
    },
    /// Some time has passed (about every 100 ms).
    Tick,
    /// No new appends; what has been accepted is finished.
    Drain,
}

/// A stream's head as found in a sealed segment's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredHead {
    /// Revision that the next event gets.
    pub next: Revision,
    /// Highest fencing token seen, 0 if none.
    pub fencing_token: u64,
}

/// An index or log page could not be read or is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadFailed;

/// What the driver has to do. Each variant says which event answers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write the block durably (bytes from [`super::Shard::block_bytes`]); answer
    /// [`Event::BlockWritten`] or [`Event::WriteFailed`]. Several may be under way.
    Write {
        /// Names the block.
        first_lsn: Lsn,
        /// Where it goes.
        place: Place,
        /// When given: write this header's page at offset 0 in the same write.
        header: Option<SegmentHeader>,
    },
    /// Answer a client. The outcome is final and rests on durable state only.
    Reply {
        /// Whom.
        to: RequestId,
        /// What.
        outcome: Outcome,
    },
    /// Make the file for this generation; answer [`Event::SegmentReady`] or
    /// [`Event::SegmentRefused`] (then try again until it works).
    PrepareSegment {
        /// The generation.
        generation: Generation,
    },
    /// Find the stream in the sealed segments; answer [`Event::HeadLoaded`].
    LoadHead {
        /// The stream.
        stream: StreamId,
    },
    /// Read the append record at `place`; answer [`Event::ReplayLoaded`].
    LoadReplay {
        /// Where the answer will go.
        to: RequestId,
        /// Where the record is.
        place: Place,
    },
    /// Write the index of this generation ([`super::Shard::sealed`]); answer [`Event::IndexSaved`].
    SaveIndex {
        /// The generation.
        generation: Generation,
    },
    /// Note durably, when convenient, that everything up to here is committed. No answer.
    WriteMark {
        /// LSN and hash of a committed block's end.
        end: LogEnd,
    },
    /// The committed LSN has moved: wake readers. No answer.
    Committed {
        /// Up to here.
        lsn: Lsn,
    },
    /// A write failed: stop the process with the documented exit code.
    Poisoned,
    /// [`Event::Drain`] is complete: nothing is in flight any more.
    Drained,
}

/// The answer to an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Durable, or a replay of what is.
    Appended(Receipt),
    /// Nothing was appended.
    Refused(Refusal),
}

/// Where an append's events are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// LSN of the first event.
    pub first_lsn: Lsn,
    /// LSN of the last event.
    pub last_lsn: Lsn,
    /// Stamp of the block.
    pub hlc: Hlc,
    /// Reign of the block.
    pub epoch: LeaseEpoch,
    /// Whether this answers an earlier append with the same key.
    pub replayed: bool,
    /// First of its entries in [`Actions::ranges`].
    pub ranges_at: u32,
    /// Number of its entries there: one per stream with events, in the request's order.
    pub ranges_count: u32,
}

/// Why an append was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Expected revision not met.
    Conflict {
        /// Which stream of the request.
        stream_index: u16,
        /// What the request expected.
        expected: Expect,
        /// The revision that the stream's next event will get; 0 = there is no stream.
        next: Revision,
    },
    /// Fencing token below the stream's.
    Fenced {
        /// Which stream of the request.
        stream_index: u16,
        /// The request's token.
        given: u64,
        /// The highest seen.
        highest: u64,
    },
    /// The shard has as many requests in flight as it may; try again after this many ms.
    Busy {
        /// Milliseconds.
        retry_after_ms: u32,
    },
    /// The key came before with another request.
    KeyReused,
    /// The streams live in several shards.
    CrossShard {
        /// Which stream of the request differs.
        stream_index: u16,
        /// Shard of the first stream.
        first: ShardId,
        /// Shard of that stream.
        other: ShardId,
    },
    /// No space for the next segment.
    DiskFull,
    /// The node is stopping; nothing was done.
    ShuttingDown,
    /// The outcome is unknown: the write failed.
    Unknown,
    /// The index or the log could not be read.
    Damaged,
    /// The append can never fit into a segment.
    TooLarge {
        /// Bytes that it takes in a block.
        size: u64,
        /// Bytes that a segment has.
        limit: u64,
    },
}

/// What a step produced. Reused: the driver takes the list, acts, and clears it.
#[derive(Debug, Default)]
pub struct Actions {
    /// In order.
    pub list: Vec<Action>,
    /// Stream ranges of the receipts in `list`.
    pub ranges: Vec<StreamRange>,
}

impl Actions {
    /// Empties the buffers, keeping their room.
    pub fn clear(&mut self) {
        self.list.clear();
        self.ranges.clear();
    }

    /// The ranges of a receipt in this buffer.
    #[must_use]
    pub fn ranges_of(&self, receipt: &Receipt) -> &[StreamRange] {
        let start = receipt.ranges_at as usize;
        &self.ranges[start..start + receipt.ranges_count as usize]
    }

    pub(super) fn refuse(&mut self, to: RequestId, refusal: Refusal) {
        self.list.push(Action::Reply { to, outcome: Outcome::Refused(refusal) });
    }
}
