//! The ends of the streams that were used last, so that an append's condition costs no read.
//!
//! Owns at most two generations of entries: *young* takes what is used, *old* keeps what was used
//! before. When young is full, old is dropped and the two change places: an approximate "least
//! recently used" whose cost per entry is constant, without links between entries.
//!
//! A few entries stand in front of both, each in the one place its identity gives it.
//!
//! Promise: an entry written in a segment whose run is not on disk yet is never dropped. When the
//! flush lags behind, young grows past its half instead, by at most the streams of the segments
//! that are not flushed yet. A half with room for the streams of two segments never grows; a
//! smaller one may have to move to a larger table once. A stream without an entry is looked up in
//! the tails, then in the runs, newest first.

use hashbrown::HashTable;

use crate::ids::{Generation, Revision, StreamId};
use crate::index::tail::TailSlot;

/// What admission has to know of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Revision of the stream's next event, ordered though perhaps not durable yet.
    pub next_revision: Revision,
    /// Highest fencing token seen, 0 if none.
    pub fencing_token: u64,
    /// Segment of the last write (or any earlier flushed one, for an entry that was looked up).
    pub last_generation: Generation,
    /// Where that segment's tail keeps the stream; means nothing for a head that was looked up.
    pub tail_slot: TailSlot,
}

/// 40 bytes: a `StreamId` in one piece would be aligned to 16 and make it 48.
#[derive(Clone, Copy, Debug)]
struct Slot {
    id: [u64; 2],
    next_revision: Revision,
    fencing_token: u64,
    last_generation: Generation,
    tail_slot: TailSlot,
}

const _: () = assert!(size_of::<Slot>() == 40);

#[derive(Clone, Debug)]
struct Half {
    slots: HashTable<Slot>,
    /// No entry was written in a later segment.
    newest: Generation,
}

/// Entries in front of the halves, at most, a power of two: 192 KiB, about what a processor's
/// second cache keeps beside everything else. The halves are tens of megabytes, and each look into
/// them waits for memory.
const FRONT_MAX: usize = 4096;
/// The halves have room for this many times the entries in front: those are few beside them.
const FRONT_SHARE: usize = 64;

/// One place in front. An entry `written` there is newer than the halves' own.
#[derive(Clone, Copy, Debug)]
struct Front {
    slot: Slot,
    written: bool,
}

impl Front {
    const EMPTY: Self = Self {
        slot: Slot {
            id: [0; 2],
            next_revision: Revision(0),
            fencing_token: 0,
            last_generation: Generation(0),
            tail_slot: TailSlot::NONE,
        },
        written: false,
    };
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Heads {
    front: Box<[Front]>,
    young: Half,
    old: Half,
    half_capacity: usize,
    flushed: Generation,
}

fn split(stream: StreamId) -> [u64; 2] {
    [(stream.0 >> 64) as u64, stream.0 as u64]
}

impl Half {
    fn with_capacity(capacity: usize) -> Self {
        Self { slots: HashTable::with_capacity(capacity), newest: Generation(0) }
    }

    fn get(&self, id: [u64; 2]) -> Option<Head> {
        self.slots.find(id[0], |slot| slot.id == id).map(|slot| slot.head())
    }

    /// Overwrites an entry that is there already.
    fn update(&mut self, id: [u64; 2], head: Head) -> bool {
        let Some(slot) = self.slots.find_mut(id[0], |slot| slot.id == id) else { return false };
        debug_assert!(slot.next_revision <= head.next_revision);
        *slot = Slot::new(id, head);
        self.newest = self.newest.max(head.last_generation);
        true
    }

    fn insert(&mut self, id: [u64; 2], head: Head) {
        self.slots.insert_unique(id[0], Slot::new(id, head), |slot| slot.id[0]);
        self.newest = self.newest.max(head.last_generation);
    }

    fn clear(&mut self) {
        self.slots.clear();
        self.newest = Generation(0);
    }
}

impl Slot {
    const fn new(id: [u64; 2], head: Head) -> Self {
        let Head { next_revision, fencing_token, last_generation, tail_slot } = head;
        Self { id, next_revision, fencing_token, last_generation, tail_slot }
    }

    const fn head(&self) -> Head {
        Head {
            next_revision: self.next_revision,
            fencing_token: self.fencing_token,
            last_generation: self.last_generation,
            tail_slot: self.tail_slot,
        }
    }
}

impl Heads {
    /// Room for about `capacity` entries (at least 2), reserved at once: about 47 bytes each when
    /// half of `capacity` is just below 7/8 of a power of two, up to twice that otherwise.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let half_capacity = (capacity / 2).max(1);
        let front_count = (capacity / FRONT_SHARE).clamp(1, FRONT_MAX);
        // A power of two: the highest bit of the count.
        let front_count = 1 << front_count.ilog2();
        Self {
            front: vec![Front::EMPTY; front_count].into(),
            young: Half::with_capacity(half_capacity),
            old: Half::with_capacity(half_capacity),
            half_capacity,
            flushed: Generation(0),
        }
    }

    /// Entries in memory; a stream may count twice.
    #[must_use]
    pub fn len(&self) -> usize {
        let front = self.front.iter().filter(|entry| entry.written).count();
        front + self.young.slots.len() + self.old.slots.len()
    }

    /// Whether no entry is in memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The runs of all segments up to `generation` are on disk: entries written no later may go.
    pub fn set_flushed(&mut self, generation: Generation) {
        self.flushed = self.flushed.max(generation);
    }

    /// The end of `stream`, and marks it as used. `None` says nothing about the stream.
    pub fn get(&mut self, stream: StreamId) -> Option<Head> {
        let id = split(stream);
        let place = self.front_place(id);
        if self.front[place].slot.id == id {
            return Some(self.front[place].slot.head());
        }
        let head = self.find(id)?;
        self.occupy(place, Front { slot: Slot::new(id, head), written: false });
        Some(head)
    }

    fn front_place(&self, id: [u64; 2]) -> usize {
        // The lowest bits of this half choose the place in a half, so take others.
        (id[0] >> 32) as usize & (self.front.len() - 1)
    }

    /// Puts an entry in front; what was there goes back to the halves if it is newer there.
    fn occupy(&mut self, place: usize, entry: Front) {
        let before = std::mem::replace(&mut self.front[place], entry);
        if before.written {
            self.store(before.slot.id, before.slot.head());
        }
    }

    fn find(&mut self, id: [u64; 2]) -> Option<Head> {
        if let Some(head) = self.young.get(id) {
            return Some(head);
        }
        let head = self.old.get(id)?;
        // A read alone never makes young grow. The copy left in old cannot be seen behind young's.
        if self.make_room() {
            self.young.insert(id, head);
        }
        Some(head)
    }

    /// Remembers the end of `stream`.
    pub fn put(&mut self, stream: StreamId, head: Head) {
        let id = split(stream);
        let place = self.front_place(id);
        let entry = Front { slot: Slot::new(id, head), written: true };
        if self.front[place].slot.id == id {
            debug_assert!(self.front[place].slot.next_revision <= head.next_revision);
            self.front[place] = entry;
        } else {
            self.occupy(place, entry);
        }
    }

    fn store(&mut self, id: [u64; 2], head: Head) {
        if !self.young.update(id, head) {
            self.make_room();
            self.young.insert(id, head);
        }
    }

    /// Whether young has room, after dropping old where that loses nothing.
    fn make_room(&mut self) -> bool {
        if self.young.slots.len() < self.half_capacity {
            return true;
        }
        if self.old.newest > self.flushed {
            return false;
        }
        self.old.clear();
        std::mem::swap(&mut self.young, &mut self.old);
        true
    }

    /// Forgets everything, keeps the memory: for a shard whose log was replaced.
    pub fn clear(&mut self) {
        self.front.fill(Front::EMPTY);
        self.young.clear();
        self.old.clear();
        self.flushed = Generation(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn head(next: u64, generation: u32) -> Head {
        Head {
            next_revision: Revision(next),
            fencing_token: next * 3,
            last_generation: Generation(generation),
            tail_slot: TailSlot::NONE,
        }
    }

    fn stream(number: u64) -> StreamId {
        StreamId::of(&number.to_le_bytes())
    }

    #[test]
    fn entries_in_use_outlive_those_that_are_not() {
        let mut heads = Heads::with_capacity(20);
        heads.set_flushed(Generation(9));
        for number in 0..1000 {
            heads.put(stream(number), head(1, 1));
            if number > 0 {
                assert_eq!(heads.get(stream(0)), Some(head(1, 1)), "after {number}");
            }
            // One stands in front.
            assert!(heads.len() <= 21);
        }
        assert_eq!(heads.get(stream(500)), None);
    }

    #[test]
    fn memory_shrinks_to_its_bound_when_the_flush_catches_up() {
        let mut heads = Heads::with_capacity(20);
        for number in 0..100 {
            heads.put(stream(number), head(1, 1));
        }
        assert_eq!(heads.len(), 100);
        heads.set_flushed(Generation(1));
        for number in 100..120 {
            heads.put(stream(number), head(1, 1));
        }
        assert!(heads.len() <= 21, "{}", heads.len());
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Put(u64),
        Get(u64),
        Seal,
        Flush,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0_u64..60).prop_map(Step::Put),
            8 => (0_u64..60).prop_map(Step::Get),
            1 => Just(Step::Seal),
            1 => Just(Step::Flush),
        ]
    }

    proptest! {
        #[test]
        fn unflushed_entries_are_never_lost_and_no_entry_is_ever_stale(
            steps in proptest::collection::vec(step(), 0..800), capacity in 2_usize..40,
        ) {
            let mut heads = Heads::with_capacity(capacity);
            let mut model: HashMap<u64, Head> = HashMap::new();
            let (mut current, mut flushed) = (1_u32, 0_u32);
            for step in steps {
                match step {
                    Step::Put(number) => {
                        let next = model.get(&number).map_or(1, |head| head.next_revision.0 + 1);
                        model.insert(number, head(next, current));
                        heads.put(stream(number), head(next, current));
                    }
                    Step::Get(number) => {
                        let expected = model.get(&number).copied();
                        let found = heads.get(stream(number));
                        let may_miss =
                            expected.is_none_or(|head| head.last_generation.0 <= flushed);
                        prop_assert!(found == expected || (found.is_none() && may_miss));
                    }
                    Step::Seal => current += 1,
                    Step::Flush => {
                        flushed = current - 1;
                        heads.set_flushed(Generation(flushed));
                    }
                }
                let mut later = heads.clone();
                for (number, expected) in &model {
                    if expected.last_generation.0 > flushed {
                        prop_assert_eq!(later.get(stream(*number)), Some(*expected));
                    }
                }
            }
        }
    }
}
