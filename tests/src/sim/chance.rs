//! Randomness from a seed. Every concern draws from a stream of its own, so that a change in one
//! does not shuffle the others.

/// A stream of random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Chance {
    state: u64,
}

impl Chance {
    /// The stream of `concern` in the run of `seed`.
    #[must_use]
    pub fn new(seed: u64, concern: &str) -> Self {
        let mut state = seed ^ 0xcbf2_9ce4_8422_2325;
        for byte in concern.bytes() {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let mut chance = Self { state };
        chance.draw();
        chance
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below 0");
        self.draw() % bound
    }

    /// A number between `low` and `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// An index of a list with `length` entries, at least 1.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// True in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`, which are not empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_repeats_and_differs_by_seed_and_concern() {
        let draws = |seed, concern| {
            let mut chance = Chance::new(seed, concern);
            [chance.draw(), chance.draw(), chance.draw()]
        };
        assert_eq!(draws(1, "disk"), draws(1, "disk"));
        assert_ne!(draws(1, "disk"), draws(2, "disk"));
        assert_ne!(draws(1, "disk"), draws(1, "work"));
    }

    #[test]
    fn bounds_are_kept_and_reached() {
        let mut chance = Chance::new(1, "bounds");
        let mut seen = [false; 3];
        for _ in 0..100 {
            seen[chance.between(5, 7) as usize - 5] = true;
        }
        assert_eq!(seen, [true; 3]);
        assert!(!chance.percent(0));
        assert!(chance.percent(100));
    }
}
