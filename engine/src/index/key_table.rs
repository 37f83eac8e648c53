//! A hash table of ring positions for the idempotency window.
//!
//! Owns 4-byte slots in one array that never moves. The window removes as often as it inserts, for
//! ever; a table that marks removed slots would have to be rehashed again and again, a stall on
//! the append path (measured with hashbrown: at half load it reaches that point). Here a removal
//! closes the gap instead: linear probing, at most half full, no marks.

/// See the module. The caller knows each position's hash and passes it in.
#[derive(Clone, Debug)]
pub(crate) struct KeyTable {
    /// 0 = free, else position + 1 below and some bits of the hash above, so that a slot of
    /// another key is nearly always told without looking into the ring.
    slots: Vec<u32>,
    position_mask: u32,
}

impl KeyTable {
    /// A table for the positions `0..capacity`.
    pub(crate) fn new(capacity: usize) -> Self {
        let limit = u32::try_from(capacity).ok().filter(|limit| *limit < u32::MAX);
        let limit = limit.expect("the window's setting is bounded below 2^32 appends");
        let slot_count = capacity.next_power_of_two().max(2) * 2;
        let position_mask = u32::MAX.unbounded_shr(limit.leading_zeros());
        Self { slots: vec![0; slot_count], position_mask }
    }

    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    fn home(&self, hash: u64) -> usize {
        hash as usize & self.mask()
    }

    fn tag(&self, hash: u64) -> u32 {
        (hash >> 32) as u32 & !self.position_mask
    }

    fn position(&self, slot: u32) -> u32 {
        (slot & self.position_mask) - 1
    }

    /// The slots of the probe sequence up to the first free one (excluded).
    fn probe(&self, hash: u64) -> impl Iterator<Item = (usize, u32)> + '_ {
        let (home, mask) = (self.home(hash), self.mask());
        (0..self.slots.len())
            .map(move |step| (home + step) & mask)
            .map(|at| (at, self.slots[at]))
            .take_while(|(_, slot)| *slot != 0)
    }

    /// The position with `hash` that `is_same` accepts.
    pub(crate) fn find(&self, hash: u64, mut is_same: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = self.tag(hash);
        self.probe(hash)
            .filter(|(_, slot)| slot & !self.position_mask == tag)
            .map(|(_, slot)| self.position(slot))
            .find(|position| is_same(*position))
    }

    /// Adds `position`, which must not be there, of a key with `hash`.
    pub(crate) fn insert(&mut self, hash: u64, position: u32) {
        let (mut at, mask) = (self.home(hash), self.mask());
        while self.slots[at] != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at] = self.tag(hash) | (position + 1);
    }

    /// Removes `position`, if it is there; `hash_of` tells the hash of any position's key.
    pub(crate) fn remove(&mut self, hash: u64, position: u32, hash_of: impl Fn(u32) -> u64) {
        let wanted = self.tag(hash) | (position + 1);
        let found = self.probe(hash).find(|(_, slot)| *slot == wanted);
        let Some((mut hole, _)) = found else { return };
        let mask = self.mask();
        let mut next = (hole + 1) & mask;
        while self.slots[next] != 0 {
            let home = self.home(hash_of(self.position(self.slots[next])));
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
            steps in proptest::collection::vec((0_u32..16, 0_u64..9), 0..300),
        ) {
            let mut table = KeyTable::new(16);
            let mut model: HashMap<u32, u64> = HashMap::new();
            for (position, hash) in steps {
                let hash = hash.wrapping_mul(7) | (hash % 2) << 33;
                match model.get(&position).copied() {
                    Some(old) => {
                        table.remove(old, position, |other| model[&other]);
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
        table.remove(5, 1, |_| 5);
        table.remove(6, 0, |_| 5);
        assert_eq!(table.find(5, |_| true), Some(0));
    }
}
