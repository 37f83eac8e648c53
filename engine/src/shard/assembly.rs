//! The block being filled, and the answers that wait for it.

use super::actions::{Receipt, Refusal, RequestId};
use crate::block::{self, BLOCK_HEADER_BYTES, BlockHash, BlockHeader, BlockSeal};
use crate::ids::{Hlc, LeaseEpoch, Lsn, Place};
use crate::record::StreamRange;
use crate::segment::{LogEnd, SegmentHeader};

/// An answer that may leave only once its block is committed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub to: RequestId,
    /// Size of the request, for the in-flight account.
    pub request_bytes: u32,
    pub answer: Answer,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// An append of this block, or a retry of one that was not committed yet when it came. The
    /// receipt's ranges lie in the block's own list.
    Appended { receipt: Receipt },
    /// A refusal that rests on state of this block or an earlier one.
    Refuse(Refusal),
}

/// A block from its first append, or its arrival, to its commit.
#[derive(Debug)]
pub(super) struct Assembly {
    /// Room for the header, then records.
    pub bytes: Vec<u8>,
    pub place: Place,
    /// Set when this block opens its segment: the header is written with it.
    pub header: Option<SegmentHeader>,
    pub first_lsn: Lsn,
    pub event_count: u32,
    pub hlc: Hlc,
    pub epoch: LeaseEpoch,
    pub hash: BlockHash,
    pub pending: Vec<Pending>,
    pub ranges: Vec<StreamRange>,
    /// Blocks that were handed to the driver as one write with this one, which is the first.
    pub joined: u32,
    pub written: bool,
}

impl Assembly {
    pub(super) fn new() -> Self {
        Self {
            bytes: Vec::new(),
            place: Place::default(),
            header: None,
            first_lsn: Lsn(0),
            event_count: 0,
            hlc: Hlc(0),
            epoch: LeaseEpoch(0),
            hash: [0; 32],
            pending: Vec::new(),
            ranges: Vec::new(),
            joined: 0,
            written: false,
        }
    }

    /// Makes it an empty block that starts at `place`; keeps its buffers.
    pub(super) fn open(&mut self, place: Place, first_lsn: Lsn, hlc: Hlc) {
        assert!(self.pending.is_empty(), "a block is reused only when its answers have left");
        self.bytes.clear();
        self.bytes.resize(BLOCK_HEADER_BYTES, 0);
        self.place = place;
        self.header = None;
        self.first_lsn = first_lsn;
        self.event_count = 0;
        self.hlc = hlc;
        self.ranges.clear();
        self.written = false;
    }

    /// Makes it the block `bytes` that was made elsewhere.
    pub(super) fn receive(
        &mut self,
        place: Place,
        segment: Option<SegmentHeader>,
        header: &BlockHeader,
        bytes: &[u8],
    ) {
        assert!(self.pending.is_empty(), "a block is reused only when its answers have left");
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.place = place;
        self.header = segment;
        self.first_lsn = header.first_lsn;
        self.event_count = header.event_count;
        self.hlc = header.hlc;
        self.epoch = header.epoch;
        self.hash = header.hash;
        self.ranges.clear();
        self.written = false;
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.event_count == 0
    }

    pub(super) fn last_lsn(&self) -> Lsn {
        Lsn(self.first_lsn.0 + u64::from(self.event_count) - 1)
    }

    /// The end of the log when this is its last block.
    pub(super) fn end(&self) -> LogEnd {
        let Self { hash, hlc, epoch, .. } = *self;
        LogEnd { lsn: self.last_lsn(), hash, hlc, epoch }
    }

    /// Where a record written now will be.
    pub(super) fn record_place(&self) -> Place {
        let offset = u64::from(self.place.offset) + self.bytes.len() as u64;
        let offset = u32::try_from(offset).expect("admission checked the segment's room");
        Place { generation: self.place.generation, offset }
    }

    pub(super) fn seal(&mut self, seal: &BlockSeal) {
        self.hash = block::seal(&mut self.bytes, seal);
        self.epoch = seal.epoch;
    }
}
