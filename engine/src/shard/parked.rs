//! Appends that wait: for a cold stream's head, for a segment, or behind an append that does. A
//! queue per stream keeps the order in which appends to one stream came (invariant A2): an append
//! runs when it is first in the queues of all its streams, and stays first until it has run.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use super::actions::{RequestId, StoredHead};
use crate::ids::{BuildAlreadyHashed, StreamId, StreamMap};

#[derive(Debug)]
pub(super) struct ParkedAppend {
    pub to: RequestId,
    pub bytes: Vec<u8>,
    pub streams: Vec<StreamId>,
}

#[derive(Debug, Default)]
pub(super) struct Parked {
    /// In the order in which they came.
    appends: BTreeMap<u64, ParkedAppend>,
    queues: StreamMap<VecDeque<u64>>,
    /// Those that wait for a segment.
    stalled: BTreeSet<u64>,
    loading: HashSet<StreamId, BuildAlreadyHashed>,
    /// Heads that were loaded for appends in the queues. The cache of heads may be smaller than
    /// the number of streams of one append; without these it could wait for ever.
    heads: StreamMap<StoredHead>,
    next_id: u64,
}

impl Parked {
    pub(super) fn is_empty(&self) -> bool {
        self.appends.is_empty()
    }

    /// Whether an append to `stream` must wait behind another one.
    pub(super) fn holds(&self, stream: StreamId) -> bool {
        self.queues.contains_key(&stream)
    }

    /// Whether some append waits for a segment: then later ones wait behind it, so that it finds
    /// room in the next.
    pub(super) fn is_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// Adds an append behind all others; its number.
    pub(super) fn park(&mut self, append: ParkedAppend) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        for stream in &append.streams {
            self.queues.entry(*stream).or_default().push_back(id);
        }
        self.appends.insert(id, append);
        id
    }

    /// Notes that an append waits for a segment.
    pub(super) fn stall(&mut self, id: u64) {
        self.stalled.insert(id);
    }

    /// Notes that an append waits for a segment no longer; whether it did.
    pub(super) fn unstall(&mut self, id: u64) -> bool {
        self.stalled.remove(&id)
    }

    /// Whether this append waits for a segment.
    pub(super) fn is_stalled_itself(&self, id: u64) -> bool {
        self.stalled.contains(&id)
    }

    /// The appends that wait for a segment, in the order in which they came.
    pub(super) fn stalled(&self) -> Vec<u64> {
        self.stalled.iter().copied().collect()
    }

    /// Notes that the head of `stream` is wanted; whether it has to be asked for.
    pub(super) fn start_loading(&mut self, stream: StreamId) -> bool {
        self.loading.insert(stream)
    }

    /// The head of `stream` has come; whether it was asked for.
    pub(super) fn finish_loading(&mut self, stream: StreamId) -> bool {
        self.loading.remove(&stream)
    }

    /// Keeps the loaded head of `stream` for the appends that wait for it.
    pub(super) fn keep(&mut self, stream: StreamId, head: StoredHead) {
        if self.holds(stream) {
            self.heads.insert(stream, head);
        }
    }

    /// The loaded head of `stream`, if an append waits for it.
    pub(super) fn head(&self, stream: StreamId) -> Option<StoredHead> {
        self.heads.get(&stream).copied()
    }

    /// The stream has a newer head now.
    pub(super) fn outdate(&mut self, stream: StreamId) {
        self.heads.remove(&stream);
    }

    /// Whether an append is first in the queues of all its streams.
    pub(super) fn is_first(&self, id: u64) -> bool {
        let first = |stream| self.queues.get(stream).and_then(VecDeque::front) == Some(&id);
        self.appends.get(&id).is_some_and(|append| append.streams.iter().all(first))
    }

    /// The append that may run now at the front of `stream`'s queue.
    // A2: first in all its queues.
    pub(super) fn candidate(&self, stream: StreamId) -> Option<u64> {
        let id = *self.queues.get(&stream)?.front()?;
        (self.is_first(id) && !self.stalled.contains(&id)).then_some(id)
    }

    /// Lends an append to be run; it keeps its place in the queues until it [leaves](Self::leave)
    /// or is given [back](Self::give_back).
    pub(super) fn lend(&mut self, id: u64) -> ParkedAppend {
        self.appends.remove(&id).expect("the number comes from candidate() or is_first()")
    }

    /// It has to wait on.
    pub(super) fn give_back(&mut self, id: u64, append: ParkedAppend) {
        self.appends.insert(id, append);
    }

    /// It has run: takes it out of its queues.
    pub(super) fn leave(&mut self, id: u64, streams: &[StreamId]) {
        self.stalled.remove(&id);
        for stream in streams {
            let queue = self.queues.get_mut(stream).expect("a parked append is in its queues");
            queue.retain(|other| *other != id);
            if queue.is_empty() {
                self.queues.remove(stream);
                self.heads.remove(stream);
            }
        }
    }

    /// Takes out everything, in the order in which it came. What is being loaded stays known: an
    /// answer is taken only once, as there may be newer events when a second one comes.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = ParkedAppend> {
        let loading = std::mem::take(&mut self.loading);
        let Self { appends, .. } = std::mem::replace(self, Self { loading, ..Self::default() });
        appends.into_values()
    }

    /// Takes out everything that waits for `stream`, in order.
    pub(super) fn drain_stream(&mut self, stream: StreamId) -> Vec<ParkedAppend> {
        let queue = self.queues.get(&stream).cloned().unwrap_or_default();
        let mut drained = Vec::with_capacity(queue.len());
        for id in queue {
            let append = self.lend(id);
            self.leave(id, &append.streams);
            drained.push(append);
        }
        drained
    }
}
