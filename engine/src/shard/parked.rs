//! Appends that wait for a cold stream's head. A queue per stream keeps the order in which appends
//! to one stream came (invariant A2): an append runs when it is first in the queues of all its
//! streams and all their heads are known.

use std::collections::{HashMap, HashSet, VecDeque};

use super::actions::RequestId;
use super::admission::Turn;
use crate::ids::{BuildAlreadyHashed, StreamId, StreamMap};

#[derive(Debug)]
pub(super) struct ParkedAppend {
    pub to: RequestId,
    pub bytes: Vec<u8>,
    pub streams: Vec<StreamId>,
}

#[derive(Debug, Default)]
pub(super) struct Parked {
    appends: HashMap<u64, ParkedAppend>,
    queues: StreamMap<VecDeque<u64>>,
    loading: HashSet<StreamId, BuildAlreadyHashed>,
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

    pub(super) fn park(&mut self, append: ParkedAppend, turn: Turn) {
        let id = self.next_id;
        self.next_id += 1;
        for stream in &append.streams {
            let queue = self.queues.entry(*stream).or_default();
            match turn {
                Turn::First => queue.push_front(id),
                Turn::Last => queue.push_back(id),
            }
        }
        self.appends.insert(id, append);
    }

    /// Notes that the head of `stream` is wanted; whether it has to be asked for.
    pub(super) fn start_loading(&mut self, stream: StreamId) -> bool {
        self.loading.insert(stream)
    }

    /// The head of `stream` has come.
    pub(super) fn loaded(&mut self, stream: StreamId) {
        self.loading.remove(&stream);
    }

    /// The append at the front of `stream`'s queue, if it is at the front of all its queues.
    pub(super) fn candidate(&self, stream: StreamId) -> Option<(u64, &ParkedAppend)> {
        let id = *self.queues.get(&stream)?.front()?;
        let append = self.appends.get(&id)?;
        let first = |stream| self.queues.get(stream).and_then(VecDeque::front) == Some(&id);
        append.streams.iter().all(first).then_some((id, append))
    }

    /// Takes an append out of all its queues.
    pub(super) fn remove(&mut self, id: u64) -> ParkedAppend {
        let append = self.appends.remove(&id).expect("the id comes from candidate()");
        for stream in &append.streams {
            let queue = self.queues.get_mut(stream).expect("a parked append is in its queues");
            queue.retain(|other| *other != id);
            if queue.is_empty() {
                self.queues.remove(stream);
            }
        }
        append
    }

    /// Takes out everything, in the order in which it came.
    pub(super) fn drain(&mut self) -> Vec<ParkedAppend> {
        let mut ids: Vec<u64> = self.appends.keys().copied().collect();
        ids.sort_unstable();
        self.queues.clear();
        self.loading.clear();
        ids.into_iter().filter_map(|id| self.appends.remove(&id)).collect()
    }

    /// Takes out everything that waits for `stream`.
    pub(super) fn drain_stream(&mut self, stream: StreamId) -> Vec<ParkedAppend> {
        let ids: Vec<u64> = self
            .queues
            .get(&stream)
            .map(|queue| queue.iter().copied().collect())
            .unwrap_or_default();
        ids.into_iter().map(|id| self.remove(id)).collect()
    }
}
