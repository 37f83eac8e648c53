//! What a part of the index knows of one stream, and which of its events a read selects.

use crate::ids::Revision;

/// Which way a stream is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From older to newer events.
    Forwards,
    /// From newer to older events.
    Backwards,
}

/// The events of one stream in one part of the index (a tail, a run): gapless revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Revision of the first event here.
    pub first: Revision,
    /// Number of events here, at least 1.
    pub count: u64,
    /// Highest fencing token given with these events, 0 if none was. Because a lower token than
    /// the stream's highest is refused, a token that is not 0 is also the highest of all earlier
    /// parts; only for 0 do older parts have to be asked.
    pub fencing_token: u64,
}

/// A gapless selection of a span's events, in the order in which they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Lowest selected position, counted from the span's first event.
    pub start: u64,
    /// Number of selected events.
    pub count: u64,
}

impl Span {
    /// Revision behind the last event here.
    #[must_use]
    pub fn next(&self) -> Revision {
        self.first.plus(self.count)
    }

    /// The events here that a read starting at `from` (inclusive) takes: at most `max`, the ones
    /// nearest to `from`. Forwards, a `from` below the span starts at its first event; backwards,
    /// one above it starts at its last, so `Revision(u64::MAX)` means "from the end".
    #[must_use]
    pub fn window(&self, from: Revision, direction: Direction, max: u64) -> Window {
        match direction {
            Direction::Forwards => {
                let start = from.0.saturating_sub(self.first.0).min(self.count);
                Window { start, count: max.min(self.count - start) }
            }
            Direction::Backwards if from < self.first => Window { start: 0, count: 0 },
            Direction::Backwards => {
                let end = (from.0 - self.first.0).saturating_add(1).min(self.count);
                let count = max.min(end);
                Window { start: end - count, count }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_read_that_misses_the_span_selects_nothing() {
        let span = Span { first: Revision(10), count: 5, fencing_token: 0 };
        assert_eq!(span.window(Revision(15), Direction::Forwards, 9).count, 0);
        assert_eq!(span.window(Revision(u64::MAX), Direction::Forwards, 9).count, 0);
        assert_eq!(span.window(Revision(9), Direction::Backwards, 9).count, 0);
    }

    #[test]
    fn the_largest_revision_backwards_means_the_end() {
        for first in [0, 1, 7] {
            let span = Span { first: Revision(first), count: 5, fencing_token: 0 };
            let window = span.window(Revision(u64::MAX), Direction::Backwards, 2);
            assert_eq!(window, Window { start: 3, count: 2 });
        }
    }

    proptest! {
        #[test]
        fn a_window_is_what_a_filter_over_all_revisions_would_take(
            first in 0_u64..50, count in 1_u64..50, from in 0_u64..120, max in 0_u64..60,
        ) {
            let span = Span { first: Revision(first), count, fencing_token: 0 };
            let all = first..first + count;
            let forwards: Vec<u64> =
                all.clone().filter(|r| *r >= from).take(max as usize).collect();
            let mut backwards: Vec<u64> =
                all.rev().filter(|r| *r <= from).take(max as usize).collect();
            backwards.reverse();
            for (direction, expected) in
                [(Direction::Forwards, forwards), (Direction::Backwards, backwards)]
            {
                let window = span.window(Revision(from), direction, max);
                let start = first + window.start;
                let taken: Vec<u64> = (start..start + window.count).collect();
                prop_assert_eq!(taken, expected);
            }
        }
    }
}
