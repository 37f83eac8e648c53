//! What the store's `Date` headers say about this machine's clock. Pure.
//!
//! Promise: used for signing and for warnings only, never for lease arithmetic.

use crate::limits::SKEW_WARNING_MS;

/// How far the server's clock is ahead of ours, as an interval: it told whole seconds, at some
/// moment between sending and receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    /// At least, milliseconds.
    pub least_ms: i64,
    /// At most, milliseconds.
    pub most_ms: i64,
}

impl Skew {
    /// From one answer: our clock when the request left and when the answer came, and its `Date`.
    #[must_use]
    pub const fn new(sent_ms: i64, received_ms: i64, server_ms: i64) -> Self {
        Self {
            least_ms: server_ms.saturating_sub(received_ms),
            most_ms: server_ms.saturating_add(1000).saturating_sub(sent_ms),
        }
    }

    /// The best guess, milliseconds; positive if the server is ahead.
    #[must_use]
    pub const fn middle_ms(self) -> i64 {
        self.least_ms.saturating_add(self.most_ms) / 2
    }

    /// How far apart the clocks are for certain, milliseconds; 0 if they may agree.
    #[must_use]
    pub const fn certain_ms(self) -> i64 {
        match (self.least_ms, self.most_ms) {
            (least, _) if least > 0 => least,
            (_, most) if most < 0 => most,
            _ => 0,
        }
    }

    /// Whether somebody should be told.
    #[must_use]
    pub const fn is_alarming(self) -> bool {
        self.certain_ms().saturating_abs() > SKEW_WARNING_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_within_its_second_proves_nothing() {
        // Ours 10.200 to 10.250 s; the server says 10 s: it may have been 10.0 to 10.999.
        let skew = Skew::new(10_200, 10_250, 10_000);
        assert_eq!((skew.least_ms, skew.most_ms, skew.certain_ms()), (-250, 800, 0));
        assert!(!skew.is_alarming());
    }

    #[test]
    fn clocks_that_differ_are_told_apart_in_both_directions() {
        let behind = Skew::new(1_000_000, 1_000_100, 1_060_000);
        assert_eq!((behind.certain_ms(), behind.middle_ms()), (59_900, 60_450));
        let ahead = Skew::new(1_000_000, 1_000_100, 940_000);
        assert_eq!(ahead.certain_ms(), -59_000);
        assert!(behind.is_alarming() && ahead.is_alarming());
    }

    #[test]
    fn a_slow_answer_makes_the_witness_less_certain() {
        assert!(Skew::new(0, 100, 3_000).is_alarming());
        assert!(!Skew::new(0, 4_000, 3_000).is_alarming());
        let _ = Skew::new(i64::MIN, i64::MAX, i64::MIN).middle_ms();
    }
}
