//! Pages of the shard's log, in LSN order.

use std::rc::Rc;

use duolog_engine::block::BLOCK_HEADER_BYTES;
use duolog_engine::ids::{Lsn, Place};
use duolog_engine::record::{EventRecord, Record};
use duolog_engine::shard::RequestId;
use duolog_net::wire::{ErrorCode, ErrorFrame, LogPage, LogTail, OpenPage, ReadLog};

use super::fetch::FetchError;
use super::freshness::Freshness;
use super::log_walk::LogWalk;
use super::shard_loop::ShardLoop;

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
        let selection = Selection {
            events_max: read.events_max,
            bytes_max: read.page_bytes(),
            looked_at_max: usize::MAX,
            choice: &|_| true,
        };
        match fill(&shard, &selection, &mut open, &mut frame, &mut next).await {
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

/// What one page takes.
#[derive(Clone, Copy)]
pub(super) struct Selection<'a> {
    /// Events, 0 = as many as fit.
    pub events_max: u32,
    /// Bytes of records; one larger event comes alone.
    pub bytes_max: u32,
    /// Bytes of blocks that are looked at before the page ends, whatever was chosen.
    pub looked_at_max: usize,
    /// Which events are taken.
    pub choice: &'a dyn Fn(&EventRecord<'_>) -> bool,
}

/// Walks the log from `next` on and copies the chosen events into the page.
pub(super) async fn fill(
    shard: &ShardLoop,
    selection: &Selection<'_>,
    open: &mut OpenPage,
    out: &mut Vec<u8>,
    next: &mut Lsn,
) -> Result<LogTail, FetchError> {
    let committed = shard.shard.borrow().committed().lsn;
    let tail = |next, end| LogTail { next, committed, end };
    if *next > committed {
        return Ok(tail(*next, true));
    }
    let mut walk = LogWalk::to(shard, *next)?;
    let mut looked_at = 0;
    loop {
        let header = walk.load(shard, *next).await?;
        looked_at += walk.block().len();
        let full = looked_at > selection.looked_at_max;
        if header.last_lsn() >= *next
            && (!take(walk.block(), walk.place(), selection, open, out, next)? || full)
        {
            // The block holds `next`, or lies before it: the next page walks in from there.
            shard.log_map.borrow_mut().hint(*next, walk.place(), header.first_lsn);
            return Ok(tail(*next, false));
        }
        walk.pass(shard, &header)?;
        let lsn = header.last_lsn().next();
        if lsn > committed {
            shard.log_map.borrow_mut().hint(lsn, walk.place(), lsn);
            return Ok(tail(*next, true));
        }
    }
}

/// Copies the block's events from `next` on into the page; false when the page is full.
fn take(
    block: &[u8],
    place: Place,
    selection: &Selection<'_>,
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
            if (selection.choice)(&event) {
                let count = open.record_count();
                let enough = selection.events_max != 0 && count >= selection.events_max;
                let full = open.record_bytes(out) + taken > selection.bytes_max as usize;
                if enough || (full && count > 0) {
                    return Ok(false);
                }
                open.push(out, &block[at..(at + taken).min(block.len())]);
            }
            *next = next.next();
        }
        at += taken;
    }
    Ok(true)
}
