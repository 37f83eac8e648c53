//! Events of several shards in one order, as a machine without sockets: by stamp, then shard, then
//! LSN. An event leaves when no shard can still bring one that belongs before it (invariant O1):
//! each other shard has a later one at hand, or has said that nothing up to the stamp can come.

use std::collections::VecDeque;

use duolog_engine::ids::{Hlc, Lsn, ShardId};

use crate::client::event::RecordedEvent;
use crate::wire::Position;

/// A piece of one shard's subscription.
#[derive(Debug)]
pub(super) struct Piece {
    /// In the order of the shard's log, or of the one stream.
    pub events: Vec<RecordedEvent>,
    /// What they count in the window.
    pub bytes: u32,
    pub committed: Lsn,
    pub settled: Hlc,
    pub caught_up: bool,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// This event of the queue with this number.
    Event(usize, Box<RecordedEvent>),
    /// Everything that was committed when the subscription had caught up was delivered.
    CaughtUp,
    /// Something has to come first. Shards that have to be asked are in [`Merge::questions`].
    Wait,
}

#[derive(Debug)]
struct Queue {
    shard: ShardId,
    events: VecDeque<RecordedEvent>,
    /// For each piece that is not taken: events left, and what it counts.
    pieces: VecDeque<(usize, u32)>,
    settled: Hlc,
    asked: Hlc,
    /// Whether all was there when the last piece was made; what is settled counts only then.
    caught_up: bool,
    /// When first caught up: what had been committed.
    first_end: Option<Lsn>,
    /// The newest event that was delivered, or is none of the subscription's.
    taken: Lsn,
}

/// The machine. See the module's text.
#[derive(Debug)]
pub(super) struct Merge {
    queues: Vec<Queue>,
    told_caught_up: bool,
}

impl Merge {
    /// Of these shards, at least one.
    pub(super) fn new(shards: impl IntoIterator<Item = ShardId>) -> Self {
        let queue = |shard| Queue {
            shard,
            events: VecDeque::new(),
            pieces: VecDeque::new(),
            settled: Hlc(0),
            asked: Hlc(0),
            caught_up: false,
            first_end: None,
            taken: Lsn(0),
        };
        Self { queues: shards.into_iter().map(queue).collect(), told_caught_up: false }
    }

    /// The shard of the queue with this number.
    pub(super) fn shard(&self, index: usize) -> ShardId {
        self.queues[index].shard
    }

    /// A piece has come. Those of one shard come in order.
    pub(super) fn push(&mut self, index: usize, piece: Piece) {
        let queue = &mut self.queues[index];
        if !piece.events.is_empty() {
            queue.pieces.push_back((piece.events.len(), piece.bytes));
            queue.events.extend(piece.events);
        }
        // A promise once given holds for ever.
        queue.settled = queue.settled.max(piece.settled);
        queue.caught_up = piece.caught_up;
        if piece.caught_up && queue.first_end.is_none() {
            queue.first_end = Some(piece.committed);
        }
    }

    /// What comes next.
    pub(super) fn next(&mut self) -> Step {
        if !self.told_caught_up && self.is_caught_up() {
            self.told_caught_up = true;
            return Step::CaughtUp;
        }
        match self.first() {
            Some((index, order)) if self.holds(index, order) => {
                let queue = &mut self.queues[index];
                match queue.events.pop_front() {
                    Some(event) => {
                        queue.taken = event.lsn;
                        Step::Event(index, Box::new(event))
                    }
                    None => Step::Wait,
                }
            }
            _ => Step::Wait,
        }
    }

    /// What the event that was given last from this queue has made room for, bytes.
    pub(super) fn room(&mut self, index: usize) -> u32 {
        let pieces = &mut self.queues[index].pieces;
        let Some((left, bytes)) = pieces.front_mut() else { return 0 };
        *left -= 1;
        if *left > 0 {
            return 0;
        }
        let bytes = *bytes;
        pieces.pop_front();
        bytes
    }

    /// Shards to be asked whether a stamp is settled, while [`Step::Wait`] is what comes: the
    /// number of the queue, and the stamp. Each question comes out once.
    pub(super) fn questions(&mut self) -> Vec<(usize, Hlc)> {
        let newest = self.queues.iter().filter_map(|queue| queue.events.back());
        let Some(newest) = newest.map(|event| event.hlc).max() else { return Vec::new() };
        let mut questions = Vec::new();
        for (index, queue) in self.queues.iter_mut().enumerate() {
            let open = queue.events.is_empty() && queue.settled < newest;
            if open && queue.asked < newest {
                queue.asked = newest;
                questions.push((index, newest));
            }
        }
        questions
    }

    /// The connection of this queue's shard is another one: what it was asked is forgotten there.
    pub(super) fn reconnected(&mut self, index: usize) {
        self.queues[index].asked = Hlc(0);
        self.queues[index].caught_up = false;
    }

    fn is_caught_up(&self) -> bool {
        self.queues.iter().all(|queue| {
            let next = queue.events.front().map(|event| event.lsn);
            queue.first_end.is_some_and(|end| next.is_none_or(|next| next > end))
        })
    }

    fn first(&self) -> Option<(usize, Position)> {
        let fronts = self.queues.iter().enumerate().filter_map(|(index, queue)| {
            let event = queue.events.front()?;
            Some((index, Position { stamp: event.hlc, shard: queue.shard, lsn: event.lsn }))
        });
        fronts.min_by_key(|(_, order)| *order)
    }

    /// Whether nothing can come any more that belongs before this event.
    // O1: asked of every other shard.
    fn holds(&self, index: usize, order: Position) -> bool {
        self.queues.iter().enumerate().all(|(other, queue)| {
            other == index || !queue.events.is_empty() || queue.settled >= order.stamp
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use duolog_engine::ids::Revision;

    fn event(lsn: u64, stamp: u64) -> RecordedEvent {
        RecordedEvent {
            stream: "s".to_owned(),
            revision: Revision(lsn - 1),
            lsn: Lsn(lsn),
            hlc: Hlc(stamp),
            timestamp_ms: 0,
            id: Uuid::nil(),
            kind: "t".to_owned(),
            metadata: Vec::new(),
            data: Vec::new(),
        }
    }

    fn piece(events: Vec<RecordedEvent>, settled: u64, caught_up: bool) -> Piece {
        let committed = events.last().map_or(Lsn(0), |event| event.lsn);
        Piece { events, bytes: 100, committed, settled: Hlc(settled), caught_up }
    }

    fn merge() -> Merge {
        Merge::new([ShardId(0), ShardId(1)])
    }

    /// Promise O1: an event waits until the other shard cannot bring an earlier one. Provoked by
    /// the other shard's silence; broken if the event leaves before.
    #[test]
    fn an_event_waits_for_what_may_come_before_it() {
        let mut merge = merge();
        merge.push(0, piece(vec![event(1, 10)], 10, false));
        assert_eq!((merge.next(), merge.questions()), (Step::Wait, vec![(1, Hlc(10))]));
        assert_eq!(merge.questions(), [], "asked once");
        merge.push(1, piece(vec![], 9, true));
        assert_eq!(merge.next(), Step::Wait);
        merge.push(1, piece(vec![event(1, 10)], 0, false));
        // The same stamp: the lower shard goes first.
        assert_eq!(merge.next(), Step::Event(0, Box::new(event(1, 10))));
        assert_eq!(merge.next(), Step::Event(1, Box::new(event(1, 10))));
        assert_eq!(merge.next(), Step::Wait);
    }

    #[test]
    fn caught_up_is_told_once_and_behind_what_there_was() {
        let mut merge = merge();
        merge.push(0, piece(vec![event(1, 10)], 20, true));
        merge.push(1, piece(vec![event(1, 11), event(2, 12)], 20, true));
        let steps: Vec<_> = std::iter::repeat_with(|| merge.next()).take(5).collect();
        assert!(matches!(steps[..3], [Step::Event(0, _), Step::Event(1, _), Step::Event(1, _)]));
        assert_eq!(steps[3..], [Step::CaughtUp, Step::Wait]);
        merge.push(0, piece(vec![event(2, 15)], 20, true));
        assert!(matches!(merge.next(), Step::Event(0, _)), "the other shard has settled 20");
        assert_eq!(merge.next(), Step::Wait);
    }

    #[test]
    fn room_is_given_back_piece_by_piece() {
        let mut merge = Merge::new([ShardId(3)]);
        merge.push(0, piece(vec![event(1, 10), event(2, 10)], 0, false));
        merge.push(0, piece(vec![event(3, 11)], 0, false));
        let mut rooms = Vec::new();
        while let Step::Event(index, _) = merge.next() {
            rooms.push(merge.room(index));
        }
        assert_eq!(rooms, [0, 100, 100]);
        assert_eq!(merge.shard(0), ShardId(3));
    }

    proptest! {
        /// Promise O1: whatever the pieces are and however they interleave, the order is that of
        /// stamp, shard and LSN, and nothing is lost.
        #[test]
        fn the_order_is_total_and_complete(
            logs in proptest::collection::vec(
                proptest::collection::vec((1_u64..4, 1_usize..4), 0..12), 1..4),
            turns in proptest::collection::vec(0_usize..4, 0..80),
        ) {
            // Per shard: blocks of one stamp each, stamps growing.
            let mut shards: Vec<VecDeque<Vec<RecordedEvent>>> = Vec::new();
            let mut all = Vec::new();
            for (shard, blocks) in logs.iter().enumerate() {
                let (mut stamp, mut lsn) = (0, 0);
                let mut log = VecDeque::new();
                for (gap, count) in blocks {
                    stamp += gap;
                    let lsns = lsn + 1..=lsn + *count as u64;
                    lsn += *count as u64;
                    let events: Vec<_> = lsns.map(|lsn| event(lsn, stamp)).collect();
                    all.extend(events.iter().map(|event| (event.hlc, shard, event.lsn)));
                    log.push_back(events);
                }
                shards.push(log);
            }
            all.sort_unstable();
            let mut merge = Merge::new((0..shards.len() as u32).map(ShardId));
            let mut got = Vec::new();
            let mut take = |merge: &mut Merge| loop {
                match merge.next() {
                    Step::Event(index, event) => got.push((event.hlc, index, event.lsn)),
                    Step::CaughtUp => {}
                    Step::Wait => break,
                }
            };
            let end = (0..shards.len()).cycle().take(40 * shards.len());
            for turn in turns.into_iter().chain(end) {
                let index = turn % shards.len();
                let events = shards[index].pop_front().unwrap_or_default();
                let next = shards[index].front().map_or(u64::MAX, |block| block[0].hlc.0);
                merge.push(index, piece(events, next - 1, true));
                take(&mut merge);
            }
            prop_assert_eq!(got, all);
        }
    }
}
