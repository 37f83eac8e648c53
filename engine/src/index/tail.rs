//! The index of one segment in memory: which offsets the events of each stream have.
//!
//! Owns the streams and postings of exactly one generation, from the segment's first event until
//! its run file serves instead. Promises: no allocation in [`Tail::push`] within the capacity it
//! was built for (with [`TailCapacity::for_segment`]: never), at most about 64 bytes for a stream
//! of one event, and pages of a long stream cost a walk over its chunks, not over its events.
//!
//! A tail is plain data (`Send + Sync`): a frozen one can be shared with the thread that writes
//! its run while the shard still answers from it, and be cleared for reuse afterwards.

mod sorted;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::ids::{Generation, Place, Revision, StreamId};
use crate::index::posting_chain::{CHUNK_FIRST, CHUNK_LINKS, Postings, word};
use crate::index::span::{Direction, Span};
use crate::record::{RECORD_ALIGN_BYTES, RECORD_FIXED_BYTES};

pub use sorted::{SortedTail, TailStream};

/// How much a tail holds without allocating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailCapacity {
    /// Different streams.
    pub streams: usize,
    /// Events of all streams together.
    pub events: usize,
}

impl TailCapacity {
    /// Room for whatever fits into a segment of `size_bytes`. Reserved, not touched: memory is
    /// used only as far as streams and events come (and 1 byte per stream for the slot table).
    #[must_use]
    pub fn for_segment(size_bytes: u32) -> Self {
        // The smallest event record has a name and a type of one byte each.
        let smallest = (RECORD_FIXED_BYTES + 2).next_multiple_of(RECORD_ALIGN_BYTES);
        let events = size_bytes as usize / smallest;
        Self { streams: events, events }
    }
}

/// Where a tail keeps a stream; good until the tail is cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailSlot(u32);

impl TailSlot {
    /// For a stream whose slot is not known.
    pub const NONE: Self = Self(u32::MAX);
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Tail {
    generation: Generation,
    event_count: u64,
    slots: HashTable<u32>,
    streams: Vec<Postings>,
    /// Chunks: two links, then offsets. One vector for all streams, so that clearing is free.
    chunks: Vec<u32>,
}

impl Tail {
    /// An empty tail for segment `generation` that holds `capacity` without allocating.
    #[must_use]
    pub fn with_capacity(generation: Generation, capacity: TailCapacity) -> Self {
        // A stream of two events has the most chunk words per event: 2 links and 4 postings.
        let words = capacity.events * (CHUNK_LINKS + CHUNK_FIRST as usize) / 2;
        Self {
            generation,
            event_count: 0,
            slots: HashTable::with_capacity(capacity.streams),
            streams: Vec::with_capacity(capacity.streams),
            chunks: Vec::with_capacity(words),
        }
    }

    /// Forgets everything, keeps the memory, and starts segment `generation`.
    pub fn clear(&mut self, generation: Generation) {
        self.generation = generation;
        self.event_count = 0;
        self.slots.clear();
        self.streams.clear();
        self.chunks.clear();
    }

    /// The segment whose events are here.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// Number of streams with events here.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Number of events here.
    #[must_use]
    pub const fn event_count(&self) -> u64 {
        self.event_count
    }

    /// Memory in use (not only reserved), bytes.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        let slots = self.slots.capacity() / 7 * 8 * (size_of::<u32>() + 1);
        let streams = self.streams.len() * size_of::<Postings>();
        slots + streams + self.chunks.len() * size_of::<u32>()
    }

    /// Adds the event of `stream` at byte `offset` of the segment. Revisions of a stream must come
    /// gapless, offsets ascending; `fencing_token` is the append's. Returns the stream's slot, for
    /// [`Tail::push_at`].
    pub fn push(
        &mut self,
        stream: StreamId,
        revision: Revision,
        offset: u32,
        fencing_token: Option<u64>,
    ) -> TailSlot {
        let Self { slots, streams, .. } = self;
        let same = |slot: &u32| streams[*slot as usize].id == stream;
        match slots.entry(hash(stream), same, |slot| hash(streams[*slot as usize].id)) {
            Entry::Occupied(slot) => {
                let slot = TailSlot(*slot.get());
                self.push_at(slot, stream, revision, offset, fencing_token);
                slot
            }
            Entry::Vacant(slot) => {
                let new = word(streams.len());
                slot.insert(new);
                streams.push(Postings::new(stream, revision, offset, fencing_token.unwrap_or(0)));
                self.event_count += 1;
                TailSlot(new)
            }
        }
    }

    /// [`Tail::push`] for a stream whose slot in this very generation is known: no search.
    pub fn push_at(
        &mut self,
        slot: TailSlot,
        stream: StreamId,
        revision: Revision,
        offset: u32,
        fencing_token: Option<u64>,
    ) {
        debug_assert!(offset.is_multiple_of(RECORD_ALIGN_BYTES as u32));
        let postings = &mut self.streams[slot.0 as usize];
        assert_eq!(postings.id, stream, "a slot belongs to one stream of one generation");
        assert_eq!(revision, postings.span().next(), "revisions of {stream:?} have a gap");
        postings.push(&mut self.chunks, offset, fencing_token.unwrap_or(0));
        self.event_count += 1;
    }

    fn postings(&self, stream: StreamId) -> Option<&Postings> {
        let same = |slot: &u32| self.streams[*slot as usize].id == stream;
        let slot = self.slots.find(hash(stream), same)?;
        Some(&self.streams[*slot as usize])
    }

    /// What this segment has of `stream`; `None` if nothing.
    #[must_use]
    pub fn span(&self, stream: StreamId) -> Option<Span> {
        self.postings(stream).map(Postings::span)
    }

    /// Appends to `out` the places of at most `max` events of `stream`, from the one with revision
    /// `from` (inclusive; see [`Span::window`]) in `direction`.
    pub fn places(
        &self,
        stream: StreamId,
        from: Revision,
        direction: Direction,
        max: usize,
        out: &mut Vec<Place>,
    ) {
        let Some(postings) = self.postings(stream) else { return };
        let window = postings.span().window(from, direction, max as u64);
        // A window lies in its span, whose count is a u32 here.
        let (start, count) = (window.start as u32, window.count as u32);
        let generation = self.generation;
        let at = |offset| Place { generation, offset };
        match direction {
            Direction::Forwards => {
                for run in postings.forwards(&self.chunks, start, count) {
                    out.extend(run.iter().map(|offset| at(*offset)));
                }
            }
            Direction::Backwards => {
                for run in postings.backwards(&self.chunks, start, count) {
                    out.extend(run.iter().rev().map(|offset| at(*offset)));
                }
            }
        }
    }
}

/// Identities are hashes; their lower halves are alike within a shard, so the upper one counts.
const fn hash(stream: StreamId) -> u64 {
    (stream.0 >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const SMALL: TailCapacity = TailCapacity { streams: 4, events: 4 };

    fn stream(number: u64) -> StreamId {
        StreamId::of(&number.to_le_bytes())
    }

    /// Pushes one event per number in `order`, at consecutive offsets.
    fn filled(order: &[u64]) -> (Tail, HashMap<u64, Vec<Place>>) {
        let generation = Generation(3);
        let mut tail = Tail::with_capacity(generation, SMALL);
        let mut model: HashMap<u64, Vec<Place>> = HashMap::new();
        for (index, number) in order.iter().enumerate() {
            let places = model.entry(*number).or_default();
            let offset = index as u32 * 72;
            tail.push(stream(*number), Revision(5 + places.len() as u64), offset, None);
            places.push(Place { generation, offset });
        }
        (tail, model)
    }

    #[test]
    fn reserved_words_suffice_for_streams_of_any_length() {
        for count in 1_u64..5000 {
            let (tail, _) = filled(&vec![1; count as usize]);
            let words = tail.chunks.len() as u64;
            assert!(words <= count * 3, "{words} words for {count} events");
        }
    }

    #[test]
    fn a_stream_of_one_event_takes_at_most_64_bytes() {
        let count = 900_000_u64;
        let capacity = TailCapacity::for_segment(64 << 20);
        let mut tail = Tail::with_capacity(Generation(1), capacity);
        for number in 0..count {
            let id = StreamId(u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64);
            tail.push(id, Revision(0), number as u32 * 72, None);
        }
        assert!(tail.used_bytes() as u64 <= count * 64, "{} bytes", tail.used_bytes());
    }

    #[test]
    fn a_cleared_tail_knows_nothing() {
        let (mut tail, _) = filled(&[1, 2, 1]);
        tail.clear(Generation(4));
        assert_eq!(tail.span(stream(1)), None);
        assert_eq!((tail.stream_count(), tail.event_count()), (0, 0));
        tail.push(stream(1), Revision(7), 8, Some(3));
        let expected = Span { first: Revision(7), count: 1, fencing_token: 3 };
        assert_eq!(tail.span(stream(1)), Some(expected));
        let mut places = Vec::new();
        tail.places(stream(1), Revision(0), Direction::Forwards, 9, &mut places);
        assert_eq!(places, [Place { generation: Generation(4), offset: 8 }]);
    }

    #[test]
    fn the_highest_fencing_token_stays() {
        let mut tail = Tail::with_capacity(Generation(1), SMALL);
        for (revision, token) in [None, Some(4), Some(2), None].into_iter().enumerate() {
            tail.push(stream(1), Revision(revision as u64), revision as u32 * 8, token);
        }
        assert_eq!(tail.span(stream(1)).map(|span| span.fencing_token), Some(4));
    }

    #[test]
    #[should_panic(expected = "have a gap")]
    fn a_gap_in_the_revisions_is_caught() {
        let mut tail = Tail::with_capacity(Generation(1), SMALL);
        tail.push(stream(1), Revision(0), 0, None);
        tail.push(stream(1), Revision(2), 8, None);
    }

    #[test]
    fn streams_whose_hashes_are_equal_stay_apart() {
        let mut tail = Tail::with_capacity(Generation(1), SMALL);
        for low in 0..100 {
            tail.push(StreamId((7 << 64) | u128::from(low)), Revision(0), low * 8, None);
        }
        for low in 0..100 {
            let mut places = Vec::new();
            let id = StreamId((7 << 64) | u128::from(low));
            tail.places(id, Revision(0), Direction::Forwards, 9, &mut places);
            assert_eq!(places, [Place { generation: Generation(1), offset: low * 8 }]);
        }
        let sorted: Vec<u128> = tail.sorted().streams().map(|stream| stream.id().0).collect();
        assert!(sorted.is_sorted());
    }

    #[test]
    fn a_long_stream_reads_the_same_in_pages_of_any_size() {
        let count = 9_000;
        let (tail, model) = filled(&vec![1; count]);
        let mut places = Vec::new();
        for page in [1, 7, 1000, 1024, 5000, count] {
            places.clear();
            while places.len() < count {
                let from = Revision(5 + places.len() as u64);
                tail.places(stream(1), from, Direction::Forwards, page, &mut places);
            }
            assert_eq!(places, model[&1]);
            places.clear();
            let mut from = Revision(u64::MAX);
            while places.len() < count {
                tail.places(stream(1), from, Direction::Backwards, page, &mut places);
                from = Revision((5 + count - places.len()) as u64 - 1);
            }
            places.reverse();
            assert_eq!(places, model[&1]);
        }
    }

    proptest! {
        #[test]
        fn places_are_those_of_a_map_of_lists(
            order in proptest::collection::vec(0_u64..20, 1..600),
            from in 0_u64..100, max in 0_usize..80,
        ) {
            let (tail, model) = filled(&order);
            prop_assert_eq!(tail.stream_count(), model.len());
            prop_assert_eq!(tail.event_count(), order.len() as u64);
            let mut places = Vec::new();
            for (number, expected) in &model {
                let revision = |index: usize| 5 + index as u64;
                let (id, start) = (stream(*number), Revision(from));
                places.clear();
                tail.places(id, start, Direction::Forwards, max, &mut places);
                let forwards: Vec<Place> = expected.iter().enumerate()
                    .filter(|(index, _)| revision(*index) >= from)
                    .map(|(_, place)| *place).take(max).collect();
                prop_assert_eq!(&places, &forwards);
                places.clear();
                tail.places(id, start, Direction::Backwards, max, &mut places);
                let backwards: Vec<Place> = expected.iter().enumerate().rev()
                    .filter(|(index, _)| revision(*index) <= from)
                    .map(|(_, place)| *place).take(max).collect();
                prop_assert_eq!(&places, &backwards);
            }
            let sorted = tail.sorted();
            let mut previous = None;
            for frozen in sorted.streams() {
                prop_assert!(previous < Some(frozen.id()));
                previous = Some(frozen.id());
                let number = (0..20).find(|number| stream(*number) == frozen.id()).unwrap();
                prop_assert!(frozen.places().eq(model[&number].iter().copied()));
                prop_assert_eq!(frozen.span().count, model[&number].len() as u64);
            }
            prop_assert_eq!(sorted.streams().count(), model.len());
        }
    }
}
