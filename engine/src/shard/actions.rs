//! What the shard machine is told and what it asks for.
//!
//! [`Actions`] is reused by the driver from step to step: after warm-up no step allocates.

use duolog_lease::grant::Grant;
use duolog_lease::in_sync::InSync;

use super::coverage::Copies;
use super::follow::BlockRefused;
use crate::append::{AppendView, Expect};
use crate::ids::{Generation, Hlc, LeaseEpoch, Lsn, NodeId, Place, Revision, ShardId, StreamId};
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
    /// The write that begins with this block is durable.
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
    /// Takes back [`Event::Drain`], also when it is complete.
    Resume,
    /// Leave to serve, or none. Counts while its epoch is the shard's reign (L8).
    Grant(Option<Grant>),
    /// The sets that must cover a block (M2).
    Members {
        /// The set in force.
        in_sync: InSync,
        /// The set that a renewal of unknown outcome may have put in its place.
        proposal: Option<InSync>,
    },
    /// The promise for `epoch` is durable and its leader's hello is accepted: takes its blocks. The
    /// log up to [`super::Shard::end`] is the beginning of the leader's (R3). Ignored below a reign
    /// that was followed, led or written before.
    Follow {
        /// The leader's reign.
        epoch: LeaseEpoch,
    },
    /// This node challenges: from now on no [`Action::Durable`] leaves (L3).
    StopFollowing,
    /// A block from the leader that is followed, or for a promoting node from a chain. Refused ones
    /// are answered by [`Action::BlockRefused`]. Written at the next [`Event::Flush`].
    Received {
        /// The sender's reign; when promoting the own one.
        epoch: LeaseEpoch,
        /// The block; copied before the step returns.
        block: &'a [u8],
    },
    /// The leader has committed everything up to here (R5).
    CommitMark {
        /// The leader's reign.
        epoch: LeaseEpoch,
        /// Up to here.
        lsn: Lsn,
    },
    /// The promise for the reign that this node has won is durable (P1): takes what the chains
    /// hold, and nothing from leaders any more.
    Promote {
        /// The own reign.
        epoch: LeaseEpoch,
    },
    /// The Open of the reign is stored (P5). It ends with [`super::Shard::end`], and all of that
    /// was durable when it was made.
    Opened {
        /// The own reign.
        epoch: LeaseEpoch,
    },
    /// `node` has everything up to here on its disk and follows `epoch`.
    PeerAcked {
        /// Which node.
        node: NodeId,
        /// The reign that it follows.
        epoch: LeaseEpoch,
        /// Up to here; never takes anything back.
        lsn: Lsn,
    },
    /// The chain of `epoch` holds everything up to here, and all seqs below are known stored.
    ChainStored {
        /// The reign.
        epoch: LeaseEpoch,
        /// Up to here.
        lsn: Lsn,
    },
    /// This node leads no longer, or does not come to lead (L10). Appends in flight are answered
    /// [`Refusal::Unknown`]; the log stays as it is.
    Demote,
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
    /// Write these blocks durably, each padded with zeros to the alignment (bytes from
    /// [`super::Shard::write_parts`]); answer [`Event::BlockWritten`] or [`Event::WriteFailed`].
    /// Several writes may be under way.
    Write {
        /// Names the first block.
        first_lsn: Lsn,
        /// How many blocks; they lie behind each other. A leader's are written one by one.
        blocks: u32,
        /// Where the first goes.
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
    /// Tell the leader of `epoch` that everything up to here is durable. No answer.
    Durable {
        /// The reign that is followed.
        epoch: LeaseEpoch,
        /// Up to here.
        lsn: Lsn,
    },
    /// A received block was not taken. Unless it was known already, the sender's log is another
    /// one or it has skipped blocks: begin anew with a hello. No answer.
    BlockRefused {
        /// Why.
        reason: BlockRefused,
    },
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
    /// Where its copies were when it was answered.
    pub copies: Copies,
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
    /// The node does not lead, or its leave to do so has run out; nothing was done.
    NotLeader,
    /// The outcome is unknown: the write failed, or the node stopped leading meanwhile.
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
