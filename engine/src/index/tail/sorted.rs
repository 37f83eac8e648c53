//! A tail in the order in which a run file has its streams, and what is learnt of a stream later.

use super::{Tail, hash};
use crate::ids::{Place, StreamId};
use crate::index::posting_chain::Postings;
use crate::index::span::Span;

impl Tail {
    /// The streams in the order of their identities, for a run file. Allocates and sorts: not for
    /// the shard's thread when the tail is large.
    #[must_use]
    pub fn sorted(&self) -> SortedTail<'_> {
        let prefix = |postings: &Postings| (postings.id.0 >> 64) as u64;
        let mut order: Vec<(u64, u32)> =
            self.streams.iter().zip(0..).map(|(postings, slot)| (prefix(postings), slot)).collect();
        order.sort_unstable_by(|one, other| {
            one.0.cmp(&other.0).then_with(|| {
                self.streams[one.1 as usize].id.cmp(&self.streams[other.1 as usize].id)
            })
        });
        SortedTail { tail: self, order }
    }

    /// Notes that a token of `stream` was seen before the events here. Does nothing if it has none.
    pub fn raise_token(&mut self, stream: StreamId, fencing_token: u64) {
        let Self { slots, streams, .. } = self;
        let same = |slot: &u32| streams[*slot as usize].id == stream;
        if let Some(slot) = slots.find(hash(stream), same).copied() {
            streams[slot as usize].raise_token(fencing_token);
        }
    }
}

/// A tail's streams in the order of their identities.
#[derive(Clone, Debug)]
pub struct SortedTail<'a> {
    tail: &'a Tail,
    order: Vec<(u64, u32)>,
}

impl<'a> SortedTail<'a> {
    /// The streams, lowest identity first. May be walked several times.
    pub fn streams(&self) -> impl Iterator<Item = TailStream<'a>> + '_ {
        self.order.iter().map(|(_, slot)| TailStream {
            tail: self.tail,
            postings: &self.tail.streams[*slot as usize],
        })
    }
}

/// One stream of a tail.
#[derive(Clone, Copy, Debug)]
pub struct TailStream<'a> {
    tail: &'a Tail,
    postings: &'a Postings,
}

impl<'a> TailStream<'a> {
    /// Which stream.
    #[must_use]
    pub const fn id(&self) -> StreamId {
        self.postings.id
    }

    /// What the segment has of it.
    #[must_use]
    pub fn span(&self) -> Span {
        self.postings.span()
    }

    /// Places of its events, in the order of their revisions.
    pub fn places(&self) -> impl Iterator<Item = Place> + use<'a> {
        let generation = self.tail.generation;
        self.postings
            .forwards(&self.tail.chunks, 0, self.postings.count)
            .flatten()
            .map(move |offset| Place { generation, offset: *offset })
    }
}
