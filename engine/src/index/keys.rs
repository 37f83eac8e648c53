//! The idempotency window: where the record of each of the last appends with a key lies.
//!
//! Owns a ring of (key, place), oldest overwritten first, and a table of ring positions. Promises:
//! no allocation after construction, a bounded size (42 MB at the default capacity, touched as it
//! fills), and the same content after a restart that brings the same appends in the same order.

use crate::ids::{IdempotencyKey, Place};
use crate::index::key_table::KeyTable;

/// 24 bytes: a key in one piece would be aligned to 16 and make it 32.
#[derive(Clone, Copy, Debug)]
struct Slot {
    key: [u64; 2],
    place: u64,
}

const _: () = assert!(size_of::<Slot>() == 24);

/// See the module.
#[derive(Clone, Debug)]
pub struct KeyWindow {
    capacity: usize,
    seed: u64,
    ring: Vec<Slot>,
    /// Position in the ring of the oldest entry, once the ring is full.
    oldest: usize,
    table: KeyTable,
}

fn split(key: IdempotencyKey) -> [u64; 2] {
    [(key.0 >> 64) as u64, key.0 as u64]
}

/// Clients choose their keys, and those of one millisecond may differ in few bits (UUID version
/// 7): both halves go through one 128-bit product.
fn hash(seed: u64, key: [u64; 2]) -> u32 {
    let one = u128::from(key[0] ^ seed ^ 0x9e37_79b9_7f4a_7c15);
    let product = one * u128::from(key[1] ^ seed.rotate_left(32) ^ 0xd1b5_4a32_d192_ed03);
    ((product >> 64) as u64 ^ product as u64) as u32
}

impl KeyWindow {
    /// An empty window of `capacity` appends; 0 remembers nothing. `seed` should be random and
    /// secret, so that nobody can choose keys that all fall on one place of the table.
    #[must_use]
    pub fn new(capacity: usize, seed: u64) -> Self {
        Self {
            capacity,
            seed,
            ring: Vec::with_capacity(capacity),
            oldest: 0,
            table: KeyTable::new(capacity),
        }
    }

    /// Appends remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether no append is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// How many appends are remembered at most.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Where the append with this key has its record; `None` if it is not in the window.
    #[must_use]
    pub fn get(&self, key: IdempotencyKey) -> Option<Place> {
        let key = split(key);
        let same = |position: u32| self.ring[position as usize].key == key;
        let position = self.table.find(hash(self.seed, key), same)?;
        Some(Place::unpack(self.ring[position as usize].place))
    }

    /// Remembers an append whose key is not in the window; forgets the oldest when full.
    pub fn insert(&mut self, key: IdempotencyKey, place: Place) {
        let replaced = self.remember(key, place);
        assert!(!replaced, "admission looks a key up before it inserts it: {key:?}");
    }

    /// Remembers an append during recovery. A key may come again there, when the window was
    /// smaller at the time of its second use: then the later append is the one remembered.
    pub fn restore(&mut self, key: IdempotencyKey, place: Place) {
        self.remember(key, place);
    }

    /// The appends remembered, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (IdempotencyKey, Place)> + '_ {
        let (newer, older) = self.ring.split_at(self.oldest);
        older.iter().chain(newer).map(|slot| {
            let key = u128::from(slot.key[0]) << 64 | u128::from(slot.key[1]);
            (IdempotencyKey(key), Place::unpack(slot.place))
        })
    }

    /// Whether the key was in the window; then its earlier ring entry answers no longer, but
    /// still takes its turn as the oldest.
    fn remember(&mut self, key: IdempotencyKey, place: Place) -> bool {
        if self.capacity == 0 {
            return false;
        }
        let slot = Slot { key: split(key), place: place.pack() };
        let hash = hash(self.seed, slot.key);
        let position = self.take_position();
        let known = self.table.find(hash, |other| self.ring[other as usize].key == slot.key);
        if let Some(known) = known {
            self.forget(known);
        }
        match self.ring.get_mut(position as usize) {
            Some(oldest) => *oldest = slot,
            None => self.ring.push(slot),
        }
        self.table.insert(hash, position);
        known.is_some()
    }

    /// The ring position for a new entry; what was there is forgotten.
    fn take_position(&mut self) -> u32 {
        if self.ring.len() < self.capacity {
            return position(self.ring.len());
        }
        let taken = position(self.oldest);
        self.forget(taken);
        self.oldest = if self.oldest + 1 == self.capacity { 0 } else { self.oldest + 1 };
        taken
    }

    fn forget(&mut self, position: u32) {
        let gone = hash(self.seed, self.ring[position as usize].key);
        self.table.remove(gone, position);
    }
}

fn position(index: usize) -> u32 {
    u32::try_from(index).expect("KeyTable::new bounds the capacity")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Generation;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn place(number: u32) -> Place {
        Place { generation: Generation(number / 100 + 1), offset: number % 100 * 8 }
    }

    #[test]
    #[should_panic(expected = "looks a key up")]
    fn inserting_a_key_twice_is_caught() {
        let mut window = KeyWindow::new(4, 0);
        window.insert(IdempotencyKey(1), place(1));
        window.insert(IdempotencyKey(1), place(2));
    }

    #[test]
    fn a_key_is_free_again_once_it_left_the_window() {
        let mut window = KeyWindow::new(2, 0);
        for number in 1..=3 {
            window.insert(IdempotencyKey(u128::from(number)), place(number));
        }
        assert_eq!(window.get(IdempotencyKey(1)), None);
        window.insert(IdempotencyKey(1), place(4));
        assert_eq!(window.get(IdempotencyKey(1)), Some(place(4)));
    }

    #[test]
    fn a_window_of_nothing_remembers_nothing() {
        let mut window = KeyWindow::new(0, 0);
        window.insert(IdempotencyKey(1), place(1));
        window.insert(IdempotencyKey(1), place(2));
        assert_eq!((window.get(IdempotencyKey(1)), window.len()), (None, 0));
    }

    #[test]
    fn keys_of_one_millisecond_spread() {
        // Version 7 layout: 48 bits of time, 4 of version, 12 + 62 random; here only a counter.
        let time = 0x0199_aaaa_bbbb_u128 << 80 | 7 << 76;
        for shift in [0, 40, 64] {
            let mut buckets = vec![0_u32; 1 << 12];
            for counter in 0..1_u128 << 12 {
                let key = split(IdempotencyKey(time | counter << shift));
                buckets[hash(11, key) as usize & 0xfff] += 1;
            }
            let fullest = buckets.iter().max().copied();
            assert!(fullest <= Some(12), "{fullest:?} keys in one of 4096 places at {shift}");
        }
    }

    proptest! {
        #[test]
        fn the_window_is_a_queue_of_the_last_appends(
            keys in proptest::collection::vec(0_u128..64, 0..400), capacity in 1_usize..40,
        ) {
            let mut window = KeyWindow::new(capacity, 5);
            let mut model: VecDeque<(IdempotencyKey, Place)> = VecDeque::new();
            for (number, key) in keys.into_iter().enumerate() {
                let key = IdempotencyKey(key);
                let known = model.iter().find(|entry| entry.0 == key).map(|entry| entry.1);
                prop_assert_eq!(window.get(key), known);
                if known.is_none() {
                    window.insert(key, place(number as u32));
                    model.push_back((key, place(number as u32)));
                }
                if model.len() > capacity {
                    model.pop_front();
                }
                prop_assert_eq!(window.len(), model.len());
            }
            prop_assert!(window.iter().eq(model));
        }

        #[test]
        fn a_restored_key_answers_with_its_latest_append(
            keys in proptest::collection::vec(0_u128..30, 0..400), capacity in 1_usize..40,
        ) {
            let mut window = KeyWindow::new(capacity, 5);
            let mut model: VecDeque<(IdempotencyKey, Place)> = VecDeque::new();
            for (number, key) in keys.into_iter().enumerate() {
                let entry = (IdempotencyKey(key), place(number as u32));
                window.restore(entry.0, entry.1);
                model.push_back(entry);
                if model.len() > capacity {
                    model.pop_front();
                }
                for key in (0..30).map(IdempotencyKey) {
                    let last = model.iter().rev().find(|entry| entry.0 == key);
                    prop_assert_eq!(window.get(key), last.map(|entry| entry.1));
                }
            }
        }
    }
}
