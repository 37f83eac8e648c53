//! The order of events over all shards of a node (invariant O1). Events are ordered by stamp, then
//! shard, then LSN; a reader of several shards needs to know when nothing can come before what it
//! holds. Two rules give that without one shard waiting for another:
//!
//! * an event's stamp is above that of every event that was committed, in any shard, when its
//!   append came ([`Shard::note_newest`]): whoever saw one event before appending another finds
//!   them in that order, whatever the clocks do;
//! * a shard promises that its next events are stamped above some committed event's stamp
//!   ([`Shard::settle_stamps`]). Whoever leads later has that event, and has heard its stamp before
//!   it admits the first append: so the promise outlives the reign.

use super::{Actions, Role, Shard};
use crate::ids::{Hlc, LeaseEpoch, Lsn};

/// What the leader of a follower's shard has promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// Everything stamped up to `settled` has this LSN or a lower one.
    lsn: Lsn,
    settled: Hlc,
}

impl Shard {
    /// Tells the newest stamp of any event that is committed in any shard of this node: what is
    /// admitted from now on is stamped above it.
    pub fn note_newest(&mut self, newest: Hlc) {
        self.stamp_floor = self.stamp_floor.max(newest);
    }

    /// Closes the open block if a newer event than its stamp says was committed meanwhile: the
    /// next append may have been sent by somebody who saw that event.
    // O1: called before an append is written.
    pub(super) fn close_outrun_block(&mut self, out: &mut Actions) {
        if self.open_started && !self.open.is_empty() && self.open.hlc <= self.stamp_floor {
            self.close_block(out);
        }
    }

    /// Promises that every event of this shard that is not committed now will be stamped above the
    /// stamp given back, which is at most `newest`: the newest stamp of any event that is committed
    /// in any shard of this node. It never goes back while the node leads.
    // O1: bounded by a committed event's stamp, which every later leader knows.
    pub fn settle_stamps(&mut self, newest: Hlc) -> Hlc {
        if self.role.makes_blocks() {
            let settled = match self.first_uncommitted() {
                Some(stamp) => newest.min(Hlc(stamp.0 - 1)),
                None => newest,
            };
            self.stamp_floor = self.stamp_floor.max(settled);
            return settled.max(self.committed.hlc);
        }
        let heard = if self.heard.lsn <= self.committed.lsn { self.heard.settled } else { Hlc(0) };
        heard.max(self.committed.hlc)
    }

    /// As follower of `epoch`: the leader promises that every event behind `lsn` is stamped above
    /// `settled`.
    pub fn hear_settled(&mut self, epoch: LeaseEpoch, lsn: Lsn, settled: Hlc) {
        let follows = self.role == (Role::Follower { epoch: Some(epoch) });
        if follows && settled > self.heard.settled {
            self.heard = Heard { lsn, settled };
        }
    }

    /// The stamp of the first block that is not committed.
    fn first_uncommitted(&self) -> Option<Hlc> {
        let inherited = self.uncommitted.front().map(|boundary| boundary.end.hlc);
        let closed = self.closed.front().map(|block| block.hlc);
        let open = (self.open_started && !self.open.is_empty()).then_some(self.open.hlc);
        inherited.or(closed).or(open)
    }
}
