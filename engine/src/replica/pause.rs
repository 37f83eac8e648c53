//! How long to wait before a call to the store whose outcome is not known is made again.

use super::limits::{CHAIN_RETRY_MS_MAX, CHAIN_RETRY_MS_MIN};
use crate::ids::MonoMs;

/// Pauses that double from the shortest to the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    next_ms: u64,
}

impl Pause {
    pub(super) const fn new() -> Self {
        Self { next_ms: CHAIN_RETRY_MS_MIN }
    }

    /// When to try again after a failure at `now`; the next pause is longer.
    pub(super) fn after(&mut self, now: MonoMs) -> MonoMs {
        let at = now.plus(self.next_ms);
        self.next_ms = (2 * self.next_ms).min(CHAIN_RETRY_MS_MAX);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit() {
        let mut pause = Pause::new();
        let pauses: Vec<u64> = (0..8).map(|_| pause.after(MonoMs(7)).0 - 7).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
    }
}
