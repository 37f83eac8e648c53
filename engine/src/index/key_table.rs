//! A hash table of ring positions for the idempotency window.
//!
//! Owns 8-byte slots in one array that never moves. The window removes as often as it inserts, for
//! ever; a table that marks removed slots would have to be rehashed again and again, a stall on
//! the append path (measured with hashbrown: at half load it reaches that point). Here a removal
//! closes the gap instead: linear probing, at most half full, no marks.

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct KeyTable {
    /// 0 = free, else the key's hash above and position + 1 below: neither telling another key
    /// apart nor closing a gap has to look into the ring, which would be a cache miss each.
    slots: Vec<u64>,
}

fn slot(hash: u32, position: u32) -> u64 {
    u64::from(hash) << 32 | (u64::from(position) + 1)
}

fn hash_of(slot: u64) -> u32 {
    (slot >> 32) as u32
}

fn position_of(slot: u64) -> u32 {
    slot as u32 - 1
}

impl KeyTable {
    /// A table for the positions `0..capacity`.
    pub(crate) fn new(capacity: usize) -> Self {
        assert!(capacity < 1 << 31, "the window's setting is bounded below 2^31 appends");
        Self { slots: vec![0; capacity.next_power_of_two().max(2) * 2] }
    }

    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    fn home(&self, hash: u32) -> usize {
        hash as usize & self.mask()
    }

    /// The slots of the probe sequence up to the first free one (excluded).
    fn probe(&self, hash: u32) -> impl Iterator<Item = (usize, u64)> + '_ {
        let (home, mask) = (self.home(hash), self.mask());
        (0..self.slots.len())
            .map(move |step| (home + step) & mask)
            .map(|at| (at, self.slots[at]))
            .take_while(|(_, slot)| *slot != 0)
    }

    /// The position with `hash` that `is_same` accepts.
    pub(crate) fn find(&self, hash: u32, mut is_same: impl FnMut(u32) -> bool) -> Option<u32> {
        self.probe(hash)
            .filter(|(_, slot)| hash_of(*slot) == hash)
            .map(|(_, slot)| position_of(slot))
            .find(|position| is_same(*position))
    }

    /// Adds `position`, which must not be there, of a key with `hash`.
    pub(crate) fn insert(&mut self, hash: u32, position: u32) {
        let (mut at, mask) = (self.home(hash), self.mask());
        while self.slots[at] != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot(hash, position);
    }

    /// Removes `position` of a key with `hash`, if it is there.
    pub(crate) fn remove(&mut self, hash: u32, position: u32) {
        let wanted = slot(hash, position);
        let found = self.probe(hash).find(|(_, slot)| *slot == wanted);
        let Some((mut hole, _)) = found else { return };
        let mask = self.mask();
        let mut next = (hole + 1) & mask;
        while self.slots[next] != 0 {
            let home = self.home(hash_of(self.slots[next]));
            // Whoever has its home at or before the hole moves into it; others stay reachable.
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(hole) & mask {
                self.slots[hole] = self.slots[next];
                hole = next;
            }
            next = (next + 1) & mask;
        }
        self.slots[hole] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn whatever_was_inserted_and_not_removed_is_found(
            // Few different hashes: long clusters that wrap around the end.
            steps in proptest::collection::vec((0_u32..16, 0_u32..9), 0..300),
        ) {
            let mut table = KeyTable::new(16);
            let mut model: HashMap<u32, u32> = HashMap::new();
            for (position, hash) in steps {
                let hash = (hash * 7) | ((hash % 2) << 31);
                match model.get(&position).copied() {
                    Some(old) => {
                        table.remove(old, position);
                        model.remove(&position);
                    }
                    None => {
                        table.insert(hash, position);
                        model.insert(position, hash);
                    }
                }
                for position in 0..16 {
                    let hash = model.get(&position).copied().unwrap_or(3);
                    let found = table.find(hash, |other| other == position);
                    let expected = model.contains_key(&position).then_some(position);
                    prop_assert_eq!(found, expected);
                }
                let used = table.slots.iter().filter(|slot| **slot != 0).count();
                prop_assert_eq!(used, model.len());
            }
        }
    }

    #[test]
    fn removing_what_is_not_there_changes_nothing() {
        let mut table = KeyTable::new(2);
        table.insert(5, 0);
        table.remove(5, 1);
        table.remove(6, 0);
        assert_eq!(table.find(5, |_| true), Some(0));
    }
}
