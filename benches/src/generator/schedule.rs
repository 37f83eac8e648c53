//! The open loop's timetable: arrivals at a constant rate, dealt to the workers in turn. Pure
//! arithmetic in whole numbers, so that the millionth arrival is as exact as the first.

use super::tally::Window;

const SECOND_NS: u128 = 1_000_000_000;

/// One worker's arrivals: number `index`, `index + threads`, … of the run.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    rate_per_s: u64,
    threads: u32,
    index: u32,
    window: Window,
    sent: u64,
}

impl Schedule {
    /// Arrivals begin with the load and end with the window.
    #[must_use]
    pub const fn new(rate_per_s: u64, threads: u32, index: u32, window: Window) -> Self {
        Self { rate_per_s, threads, index, window, sent: 0 }
    }

    /// When the next arrival is due, ns; `None` when the window holds no further one.
    #[must_use]
    pub fn next_due_ns(&self) -> Option<u64> {
        let number = u128::from(self.sent) * u128::from(self.threads) + u128::from(self.index);
        let after = number * SECOND_NS / u128::from(self.rate_per_s);
        let due = u64::try_from(u128::from(self.window.load_ns) + after).ok()?;
        (due < self.window.end_ns).then_some(due)
    }

    /// The next arrival was sent.
    pub const fn advance(&mut self) {
        self.sent += 1;
    }

    /// Arrivals due at `now` or before, and not sent.
    #[must_use]
    pub fn backlog(&self, now_ns: u64) -> u64 {
        let until = now_ns.saturating_add(1).min(self.window.end_ns);
        self.count_before(until).saturating_sub(self.sent)
    }

    /// Arrivals due within the window.
    #[must_use]
    pub fn count_in_window(&self) -> u64 {
        self.count_before(self.window.end_ns) - self.count_before(self.window.start_ns)
    }

    fn count_before(&self, at_ns: u64) -> u64 {
        let span = u128::from(at_ns.saturating_sub(self.window.load_ns));
        // Arrival n of the run is due before `at` exactly if n * second / rate < span.
        let of_the_run = (span * u128::from(self.rate_per_s)).div_ceil(SECOND_NS);
        let mine = of_the_run.saturating_sub(u128::from(self.index));
        u64::try_from(mine.div_ceil(u128::from(self.threads))).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { load_ns: 500, start_ns: 1_000_000_500, end_ns: 3_000_000_500 };

    /// Counting by formula and by walking agree, for rates that divide a second and those that do
    /// not, and for every share. Broken if any arrival is counted twice or not at all.
    #[test]
    fn counts_are_those_of_the_walk() {
        for rate in [1, 3, 7, 1000, 1001] {
            for threads in 1..4 {
                for index in 0..threads {
                    let fresh = Schedule::new(rate, threads, index, WINDOW);
                    let mut walked = fresh;
                    let (mut all, mut inside) = (0, 0);
                    while let Some(due) = walked.next_due_ns() {
                        assert_eq!(fresh.backlog(due), all + 1);
                        assert_eq!(fresh.backlog(due - 1), all);
                        all += 1;
                        inside += u64::from(WINDOW.contains(due));
                        walked.advance();
                    }
                    assert_eq!(fresh.backlog(u64::MAX), all);
                    assert_eq!(fresh.count_in_window(), inside);
                    assert_eq!(walked.backlog(u64::MAX), 0);
                }
            }
        }
    }

    /// Workers together keep the rate. Broken if their shares do not add up.
    #[test]
    fn shares_add_up_to_the_rate() {
        let share = |index| Schedule::new(1000, 3, index, WINDOW).count_in_window();
        assert_eq!((0..3).map(share).sum::<u64>(), 2000);
    }
}
