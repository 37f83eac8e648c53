//! What readers may see: committed events only (invariant A4). Answers from memory; where the
//! sealed segments' indexes have to be asked it says so, and the driver asks them.

use super::Shard;
use crate::ids::{Place, Revision, StreamId};
use crate::index::span::Direction;
use crate::index::tail::Tail;

/// The revision behind a stream's last committed event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// Known.
    Known(Revision),
    /// Not in memory: the newest run that has the stream tells; no run, no events.
    Sealed,
}

/// Where the next events of a stream are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Located {
    /// In segments whose index is in memory; their places were put out.
    Places,
    /// In a sealed segment, if anywhere: ask the runs.
    Sealed,
    /// Nothing committed lies further in this direction.
    End,
}

/// How many places are looked at in one go when uncommitted ones are skipped.
const PROBE: usize = 64;

impl Shard {
    /// The end of `stream` as a reader may see it.
    #[must_use]
    pub fn stream_end(&mut self, stream: StreamId) -> StreamEnd {
        let mut lowest_uncommitted = None;
        for tail in self.tails_newest_first() {
            let Some(span) = tail.span(stream) else { continue };
            let next = self.committed_end(tail, stream, span.next());
            if next > span.first {
                return StreamEnd::Known(next);
            }
            lowest_uncommitted = Some(span.first);
        }
        if let Some(revision) = lowest_uncommitted {
            return StreamEnd::Known(revision);
        }
        match self.heads.get(stream) {
            Some(head) => StreamEnd::Known(head.next_revision),
            None if self.runs.iter().any(|run| run.may_contain(stream)) => StreamEnd::Sealed,
            None => StreamEnd::Known(Revision(0)),
        }
    }

    /// The revision behind the last committed event of `stream` in `tail`; `next` is behind the
    /// last ordered one.
    fn committed_end(&self, tail: &Tail, stream: StreamId, next: Revision) -> Revision {
        let mut places = Vec::new();
        let mut next = next;
        while next.0 > 0 {
            places.clear();
            let from = Revision(next.0 - 1);
            tail.places(stream, from, Direction::Backwards, PROBE, &mut places);
            // A4, Q1: an event that is ordered and not committed is not there yet.
            let open = places.iter().take_while(|place| **place >= self.committed_place).count();
            next = Revision(next.0 - open as u64);
            if open < PROBE {
                break;
            }
        }
        next
    }

    /// Puts out the places of at most `max` committed events of `stream` from `from` on.
    pub fn locate(
        &self,
        stream: StreamId,
        from: Revision,
        direction: Direction,
        max: usize,
        out: &mut Vec<Place>,
    ) -> Located {
        let mut from = from;
        for tail in self.tails_newest_first() {
            let Some(span) = tail.span(stream) else { continue };
            if from < span.first {
                continue;
            }
            let end = self.committed_end(tail, stream, span.next());
            if from >= end {
                match direction {
                    Direction::Forwards => return Located::End,
                    // Nothing behind it is committed: the read begins with the one before.
                    Direction::Backwards if end.0 == 0 => return Located::End,
                    Direction::Backwards => from = Revision(end.0 - 1),
                }
            }
            if end == span.first {
                continue;
            }
            let left = usize::try_from(end.0 - from.0).unwrap_or(max);
            let max = if direction == Direction::Forwards { max.min(left) } else { max };
            tail.places(stream, from, direction, max, out);
            return Located::Places;
        }
        Located::Sealed
    }

    fn tails_newest_first(&self) -> impl Iterator<Item = &Tail> {
        std::iter::once(&self.tail).chain(self.sealed.iter().rev().map(|sealed| &sealed.tail))
    }

    /// The bytes from `place` to the end of its block, when that block is in memory. Only for
    /// places that were put out as committed.
    #[must_use]
    pub fn recent(&self, place: Place) -> Option<&[u8]> {
        self.recent.bytes_at(place)
    }

    /// Everything before this place is committed.
    #[must_use]
    pub const fn committed_place(&self) -> Place {
        self.committed_place
    }

    /// The saved indexes, oldest first.
    #[must_use]
    pub fn runs(&self) -> &[std::sync::Arc<crate::index::lookup::Run>] {
        &self.runs
    }
}
