//! How far a node of a pair knows its log to be committed when it starts: as far as its own commit
//! mark says, or the commit marks in the blocks that are part of its log. The rest is a tail that
//! another node may have to confirm or to cut (rules R3, P4).

use std::collections::VecDeque;

use super::ScanStart;
use crate::ids::{Generation, Lsn, Place};
use crate::segment::LogEnd;
use crate::shard::Boundary;

/// See the module.
#[derive(Debug)]
pub(super) struct Committed {
    committed: Boundary,
    /// The blocks behind it, in order.
    rest: VecDeque<Boundary>,
    /// The newest durable mark.
    mark: Option<LogEnd>,
}

impl Committed {
    /// Everything before `start` is in saved indexes, which hold committed events only (D7).
    pub(super) fn new(start: ScanStart, mark: Option<LogEnd>) -> Self {
        let behind = Place { generation: start.generation, offset: 0 };
        let committed = Boundary { end: start.end, behind };
        Self { committed, rest: VecDeque::new(), mark }
    }

    /// The log goes on with a block that ends at `boundary`. Everything up to `commit_mark` was
    /// committed when it was made.
    pub(super) fn block(&mut self, boundary: Boundary, commit_mark: Lsn) {
        self.rest.push_back(boundary);
        // Another log's mark says nothing of this one.
        let marked = self.mark.filter(|mark| mark.hash == boundary.end.hash);
        let known = marked.map_or(commit_mark, |mark| mark.lsn);
        while let Some(boundary) = self.rest.front().filter(|block| block.end.lsn <= known) {
            self.committed = *boundary;
            self.rest.pop_front();
        }
    }

    /// Everything up to here is known to be committed.
    pub(super) const fn lsn(&self) -> Lsn {
        self.committed.end.lsn
    }

    /// The last committed block, and those behind it.
    pub(super) fn finish(self) -> (Boundary, VecDeque<Boundary>) {
        (self.committed, self.rest)
    }
}

impl ScanStart {
    /// The newest segment that is not looked at.
    pub(super) const fn flushed(&self) -> Generation {
        Generation(self.generation.0 - 1)
    }
}
