//! Finding ends of blocks and of reigns in a log without reading its events: by the headers of its
//! segments, then by those of the blocks in one segment.

use super::scan::behind_block;
use super::{LogIdentity, LogSource, RecoverError, Scan, empty_log};
use crate::ids::{Generation, Lsn, Place};
use crate::segment::{LogEnd, SegmentHeader};
use crate::shard::{Boundary, EPOCH_MARKS_MAX, EpochMarks};

/// What follows the end at which a walk stopped.
pub(crate) enum Walk {
    /// Go on.
    On,
    /// This is far enough.
    Enough,
}

impl<S: LogSource> Scan<'_, S> {
    /// Walks over the headers of the blocks of `segment`, telling where each begins and the log's
    /// end behind it. Bodies are not looked at.
    pub(crate) fn walk_headers(
        &mut self,
        segment: &SegmentHeader,
        visit: &mut dyn FnMut(Place, Boundary) -> Walk,
    ) -> Result<(), RecoverError> {
        let generation = segment.generation;
        let mut at = Place { generation, offset: segment.align_bytes };
        let mut end = segment.base;
        while let Some(header) = self.header(at)? {
            let behind = behind_block(segment, at, &header);
            let behind = behind.filter(|_| self.continues(segment, at, &end, &header));
            let Some(behind) = behind else { break };
            let (lsn, hash) = (header.last_lsn(), header.hash);
            end = LogEnd { lsn, hash, hlc: header.hlc, epoch: header.epoch };
            if let Walk::Enough = visit(at, Boundary { end, behind }) {
                break;
            }
            at = behind;
        }
        Ok(())
    }
}

/// The end of the block whose last event is `lsn`, and the place behind it; `None` if no block of
/// the log ends there. For LSNs up to the durable end of a log whose newest segment in use is
/// `newest`; files beyond it may hold anything.
pub fn block_end_at<S: LogSource>(
    source: &mut S,
    identity: LogIdentity,
    newest: Generation,
    lsn: Lsn,
) -> Result<Option<Boundary>, RecoverError> {
    if lsn == Lsn(0) {
        let behind = Place { generation: Generation(1), offset: 0 };
        return Ok(Some(Boundary { end: empty_log(identity), behind }));
    }
    let mut scan = Scan::new(source, identity);
    // The last segment that begins before the LSN lies in this range.
    let (mut low, mut high) = (1, newest.0);
    let mut found = None;
    while low <= high {
        let middle = low + (high - low) / 2;
        match scan.segment_header(Generation(middle))? {
            Some(header) if header.base.lsn < lsn => {
                found = Some(header);
                low = middle + 1;
            }
            _ => high = middle - 1,
        }
    }
    let Some(segment) = found else { return Ok(None) };
    let mut at = None;
    scan.walk_headers(&segment, &mut |_, boundary| {
        if boundary.end.lsn < lsn {
            return Walk::On;
        }
        at = (boundary.end.lsn == lsn).then_some(boundary);
        Walk::Enough
    })?;
    Ok(at)
}

/// Where the reigns end in the segments up to `last`, behind which the log's end is `end`. Only the
/// blocks of segments in which a reign ends are looked at.
pub(super) fn epoch_marks<S: LogSource>(
    source: &mut S,
    identity: LogIdentity,
    last: Generation,
    end: &LogEnd,
) -> Result<EpochMarks, RecoverError> {
    let mut scan = Scan::new(source, identity);
    let mut marks = EpochMarks::default();
    let mut behind = *end;
    for generation in (1..=last.0).rev().map(Generation) {
        let Some(segment) = scan.segment_header(generation)? else {
            marks.begin_unknown();
            break;
        };
        if segment.base.epoch != behind.epoch {
            let mut older = EpochMarks::default();
            let mut before = segment.base;
            scan.walk_headers(&segment, &mut |_, boundary| {
                older.follow(&before, boundary.end.epoch);
                before = boundary.end;
                Walk::On
            })?;
            if !marks.precede(&older) || marks.as_slice().len() >= EPOCH_MARKS_MAX {
                break;
            }
        }
        behind = segment.base;
    }
    if behind.lsn > Lsn(0) {
        marks.begin_unknown();
    }
    Ok(marks)
}
