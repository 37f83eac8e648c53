//! Pages of the shard's log, in LSN order.

use std::collections::HashMap;
use std::rc::Rc;

use duolog_engine::block::{BLOCK_HEADER_BYTES, BlockHeader};
use duolog_engine::bytes::align_up;
use duolog_engine::ids::{Generation, Lsn, Place};
use duolog_engine::record::Record;
use duolog_engine::shard::RequestId;
use duolog_engine::waymarks::Waymarks;
use duolog_net::wire::{ErrorCode, ErrorFrame, LogPage, LogTail, OpenPage, ReadLog};

use super::fetch::{FetchError, RecordFetch};
use super::freshness::Freshness;
use super::shard_loop::ShardLoop;

/// Where pages that were served ended, for the reader who comes back for the next one.
const HINTS_MAX: usize = 1024;
/// Read ahead while walking, bytes.
const AHEAD_BYTES: usize = 256 << 10;

/// Where the segments begin, and where recent pages ended.
#[derive(Debug, Default)]
pub struct LogMap {
    /// Segment and the LSN before its first, in order.
    segments: Vec<(Generation, Lsn)>,
    waymarks: Waymarks,
    /// By the LSN asked for next: a block's place and its first LSN.
    hints: HashMap<Lsn, (Place, Lsn)>,
}

impl LogMap {
    /// Without segments.
    pub fn new(waymarks: Waymarks) -> Self {
        Self { waymarks, ..Self::default() }
    }

    /// Notes a segment: it begins behind `base`.
    pub fn segment(&mut self, generation: Generation, base: Lsn) {
        debug_assert!(self.segments.last().is_none_or(|(last, _)| *last < generation));
        self.segments.push((generation, base));
    }

    /// Notes that the block that begins with `first` goes to `place`, behind all others.
    pub(super) fn block(&mut self, first: Lsn, place: Place) {
        self.waymarks.note(first, place);
    }

    /// Where a walk to `lsn` begins, and the next LSN there.
    pub(super) fn start(&self, lsn: Lsn, align_bytes: u32) -> Option<(Place, Lsn)> {
        if let Some(hint) = self.hints.get(&lsn) {
            return Some(*hint);
        }
        let behind = self.segments.partition_point(|(_, base)| *base < lsn);
        let (generation, base) = self.segments.get(behind.checked_sub(1)?)?;
        if let Some((first, place)) = self.waymarks.before(lsn).filter(|(first, _)| first > base) {
            return Some((place, first));
        }
        Some((Place { generation: *generation, offset: align_bytes }, base.next()))
    }

    pub(super) fn next_segment(&self, generation: Generation) -> Option<(Generation, Lsn)> {
        let behind = self.segments.partition_point(|(known, _)| *known <= generation);
        self.segments.get(behind).copied()
    }

    fn hint(&mut self, lsn: Lsn, place: Place, first_lsn: Lsn) {
        if self.hints.len() >= HINTS_MAX {
            self.hints.clear();
        }
        self.hints.insert(lsn, (place, first_lsn));
    }
}

/// Serves a page in a task of its own.
pub(super) fn spawn(shard: &Rc<ShardLoop>, id: RequestId, correlation: u64, read: ReadLog) {
    let shard = Rc::clone(shard);
    glommio::spawn_local(async move {
        // A spawned task runs at once, here inside a session that is borrowed: wait a turn.
        futures_lite::future::yield_now().await;
        // Before the permit: a proof may take long, and other reads need none.
        let freshness = Freshness::of(&shard, read.consistency).await;
        shard.reads.take().await;
        let mut frame = Vec::new();
        let mut open = LogPage::begin(&mut frame, correlation);
        let mut next = Lsn(read.from.0.max(1));
        match fill(&shard, &read, &mut open, &mut frame, &mut next).await {
            _ if freshness.refuse(&shard, &mut frame, correlation) => {}
            Ok(tail) => open.finish_log(&mut frame, &tail),
            // What lies before the damage is given; the next page begins with the error.
            Err(_) if open.record_count() > 0 => {
                let committed = shard.shard.borrow().committed().lsn;
                open.finish_log(&mut frame, &LogTail { next, committed, end: false });
            }
            Err(error) => {
                open.abandon(&mut frame);
                tracing::error!(shard = shard.id().0, lsn = next.0, %error, event = "read_failed");
                let text = format_args!(
                    "the log cannot give the event with LSN {next} ({error}); `duolog verify` on \
                     the data directory tells what else is damaged"
                );
                let damaged = ErrorFrame::new(ErrorCode::Damaged).numbers(next.0, next.0);
                damaged.encode(&mut frame, correlation, text);
            }
        }
        shard.reads.release();
        shard.answer_frame(id, frame);
    })
    .detach();
}

async fn fill(
    shard: &ShardLoop,
    read: &ReadLog,
    open: &mut OpenPage,
    out: &mut Vec<u8>,
    next: &mut Lsn,
) -> Result<LogTail, FetchError> {
    let committed = shard.shard.borrow().committed().lsn;
    let layout = shard.shard.borrow().config().layout;
    let tail = |next, end| LogTail { next, committed, end };
    if *next > committed {
        return Ok(tail(*next, true));
    }
    let start = shard.log_map.borrow().start(*next, layout.align_bytes);
    let Some((mut place, mut lsn)) = start else {
        return Err(FetchError::Io(std::io::Error::other("no segment has this LSN")));
    };
    let mut fetch = RecordFetch::default();
    let mut block = Vec::new();
    loop {
        let following = shard.log_map.borrow().next_segment(place.generation);
        if let Some((generation, base)) = following.filter(|(_, base)| *base < lsn) {
            // The segment ends here, whatever lies behind: what a crash cut off may be left there,
            // with the very LSN that is looked for.
            if base.next() != lsn {
                return Err(FetchError::Misplaced(place));
            }
            place = Place { generation, offset: layout.align_bytes };
            continue;
        }
        let header = load_block(shard, &mut fetch, place, lsn, *next, &mut block).await?;
        if header.last_lsn() >= *next && !take(&block, place, read, open, out, next)? {
            // The block holds `next`, or begins behind it: the next page walks in from there.
            shard.log_map.borrow_mut().hint(*next, place, header.first_lsn);
            return Ok(tail(*next, false));
        }
        lsn = header.last_lsn().next();
        let end = u64::from(place.offset) + header.length() as u64;
        let end = align_up(end, u64::from(layout.align_bytes)).and_then(|end| end.try_into().ok());
        place.offset = end.ok_or(FetchError::Misplaced(place))?;
        if lsn > committed {
            shard.log_map.borrow_mut().hint(lsn, place, lsn);
            return Ok(tail(*next, true));
        }
    }
}

/// Reads the block at `place` into `block` (nothing, if it ends before `wanted`); its header.
async fn load_block(
    shard: &ShardLoop,
    fetch: &mut RecordFetch,
    place: Place,
    lsn: Lsn,
    wanted: Lsn,
    block: &mut Vec<u8>,
) -> Result<BlockHeader, FetchError> {
    block.clear();
    if let Some(bytes) = shard.shard.borrow().recent(place) {
        block.extend_from_slice(bytes);
        return BlockHeader::decode(block).map_err(|_| FetchError::Misplaced(place));
    }
    let bytes = fetch.bytes(shard, place, BLOCK_HEADER_BYTES, AHEAD_BYTES).await?;
    let header = match BlockHeader::decode(bytes) {
        Ok(header) if header.first_lsn == lsn => header,
        Ok(_) | Err(_) => return Err(FetchError::Misplaced(place)),
    };
    if header.last_lsn() >= wanted {
        let bytes = fetch.bytes(shard, place, header.length(), AHEAD_BYTES).await?;
        let whole = bytes.get(..header.length()).ok_or(FetchError::Misplaced(place))?;
        block.extend_from_slice(whole);
    }
    Ok(header)
}

/// Copies the block's events from `next` on into the page; false when the page is full.
fn take(
    block: &[u8],
    place: Place,
    read: &ReadLog,
    open: &mut OpenPage,
    out: &mut Vec<u8>,
    next: &mut Lsn,
) -> Result<bool, FetchError> {
    let mut at = BLOCK_HEADER_BYTES;
    while at < block.len() {
        let (record, taken) =
            Record::decode(&block[at..]).map_err(|error| FetchError::Record { place, error })?;
        if let Record::Event(event) = record
            && event.lsn == *next
        {
            let count = open.record_count();
            let enough = read.events_max != 0 && count >= read.events_max;
            let full = open.record_bytes(out) + taken > read.page_bytes() as usize;
            if enough || (full && count > 0) {
                return Ok(false);
            }
            open.push(out, &block[at..(at + taken).min(block.len())]);
            *next = next.next();
        }
        at += taken;
    }
    Ok(true)
}
