//! R5, A4, Q2: a follower shows nothing that no leader has committed; whoever reads on sees each
//! committed event once, in order, and the same as everybody else, on either node.

use duolog_engine::ids::Lsn;
use duolog_engine::record::EventRecord;
use duolog_engine::shard::Role;

use super::Kept;
use crate::simulator::tail::TAILS;
use crate::simulator::world::World;

impl World {
    /// A reader is shown an event.
    pub fn check_event_shown(&mut self, node: usize, event: &EventRecord<'_>) {
        let kept = Kept::of(event);
        let what = (kept.operation, kept.revision);
        let before = *self.ledger.shown.entry(kept.lsn).or_insert(what);
        let (who, lsn) = (node + 1, kept.lsn);
        assert_eq!(before, what, "A4: node {who} shows another event at LSN {lsn} than before");
    }

    /// Q2: everything was shown that is in the log, and nothing else.
    pub(super) fn check_tails(&mut self, end: Lsn) {
        for tail in 0..TAILS {
            self.read_on(tail, tail % 2);
            assert_eq!(self.tail_at(tail), end, "Q2: a reader comes to the end");
        }
    }

    pub(super) fn check_all_shown(&self, events: &[Kept]) {
        let shown = self.ledger.shown.iter().map(|(lsn, what)| (*lsn, *what));
        let kept = events.iter().map(|event| (event.lsn, (event.operation, event.revision)));
        assert!(shown.eq(kept), "A4: readers were shown something else than is in the log");
    }

    /// What a node shows to readers.
    pub(super) fn check_shown(&mut self, node: usize) {
        let process = self.process(node);
        let shown = process.shard.committed().lsn;
        if matches!(process.shard.role(), Role::Leader { .. }) {
            return;
        }
        let newest = self.ledger.committed.last_key_value().map_or(Lsn(0), |(lsn, _)| *lsn);
        assert!(shown <= newest, "R5: node {} shows {shown}, {newest} is committed", node + 1);
    }
}
