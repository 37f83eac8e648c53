//! The open loop's timetable: when each operation of a worker is to start. Pure: a schedule is a
//! function of the settings, the worker and the window.

use super::poisson::Poisson;
use super::settings::Settings;
use super::tally::Window;
use super::workload::Arrivals;

const SECOND_NS: u128 = 1_000_000_000;

/// One worker's arrivals. They begin with the load and end with the window.
#[derive(Clone, Debug)]
pub struct Schedule {
    arrivals: Timetable,
    window: Window,
    next_ns: Option<u64>,
}

#[derive(Clone, Debug)]
enum Timetable {
    Constant(Constant),
    Poisson(Poisson),
}

impl Schedule {
    /// The arrivals of worker number `index`; `None` in a closed loop.
    #[must_use]
    pub fn new(settings: &Settings, index: u32, window: Window) -> Option<Self> {
        let &Settings { rate_per_s, threads, run_id, .. } = settings;
        let rate_per_s = rate_per_s?;
        let arrivals = match settings.arrivals {
            Arrivals::Constant => {
                Timetable::Constant(Constant { rate_per_s, threads, index, number: 0 })
            }
            Arrivals::Poisson => {
                let share_per_s = rate_per_s as f64 / f64::from(threads);
                Timetable::Poisson(Poisson::new(share_per_s, run_id, index))
            }
        };
        let mut schedule = Self { arrivals, window, next_ns: None };
        schedule.advance();
        Some(schedule)
    }

    /// When the next arrival is due, ns; `None` when the window holds no further one.
    #[must_use]
    pub const fn next_due_ns(&self) -> Option<u64> {
        self.next_ns
    }

    /// The next arrival was sent.
    pub fn advance(&mut self) {
        let after_ns = match &mut self.arrivals {
            Timetable::Constant(constant) => constant.next_ns(),
            Timetable::Poisson(poisson) => poisson.next_ns(),
        };
        let due_ns = self.window.load_ns.saturating_add(after_ns);
        self.next_ns = (due_ns < self.window.end_ns).then_some(due_ns);
    }

    /// Arrivals that were not sent, up to the window's end.
    #[must_use]
    pub fn count_left(&self) -> u64 {
        self.count_from(0)
    }

    /// Of the arrivals that were not sent those within the window.
    #[must_use]
    pub fn count_left_in_window(&self) -> u64 {
        self.count_from(self.window.start_ns)
    }

    /// A constant rate is counted by a formula. A Poisson process is drawn to its end, 10 ns for
    /// each arrival: who has many left has asked for far more than anybody can send.
    fn count_from(&self, from_ns: u64) -> u64 {
        let Some(next_ns) = self.next_ns else { return 0 };
        match &self.arrivals {
            Timetable::Constant(constant) => {
                let Window { load_ns, end_ns, .. } = self.window;
                let until = constant.count_before(end_ns - load_ns);
                let from = constant.count_before(from_ns.max(next_ns).saturating_sub(load_ns));
                until.saturating_sub(from)
            }
            Timetable::Poisson(_) => {
                let mut ahead = self.clone();
                let mut count = 0;
                while let Some(due_ns) = ahead.next_ns {
                    count += u64::from(due_ns >= from_ns);
                    ahead.advance();
                }
                count
            }
        }
    }
}

/// Arrivals at a constant rate, dealt to the workers in turn: number `index`, `index + threads`, …
/// of the run. Whole numbers, so that the millionth is as exact as the first.
#[derive(Clone, Debug)]
struct Constant {
    rate_per_s: u64,
    threads: u32,
    index: u32,
    number: u64,
}

impl Constant {
    /// When the next arrival is due, ns after the load's beginning.
    fn next_ns(&mut self) -> u64 {
        let of_the_run =
            u128::from(self.number) * u128::from(self.threads) + u128::from(self.index);
        self.number += 1;
        u64::try_from(of_the_run * SECOND_NS / u128::from(self.rate_per_s)).unwrap_or(u64::MAX)
    }

    /// Arrivals of this worker in the first `span_ns` of the load.
    fn count_before(&self, span_ns: u64) -> u64 {
        // Arrival n of the run comes before the span's end exactly if n * second / rate < span.
        let of_the_run = (u128::from(span_ns) * u128::from(self.rate_per_s)).div_ceil(SECOND_NS);
        let mine = of_the_run.saturating_sub(u128::from(self.index));
        u64::try_from(mine.div_ceil(u128::from(self.threads))).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const WINDOW: Window = Window { load_ns: 500, start_ns: 1_000_000_500, end_ns: 3_000_000_500 };

    fn schedule(rate: u64, threads: u32, index: u32, arrivals: Arrivals) -> Schedule {
        let addr = "127.0.0.1:1".parse().unwrap();
        let settings = Settings {
            rate_per_s: Some(rate),
            threads,
            arrivals,
            run_id: 42,
            ..Settings::appends(addr, threads, 1, Duration::from_secs(2))
        };
        Schedule::new(&settings, index, WINDOW).unwrap()
    }

    fn walk(mut schedule: Schedule) -> Vec<u64> {
        let mut walked = Vec::new();
        while let Some(due_ns) = schedule.next_due_ns() {
            walked.push(due_ns);
            schedule.advance();
        }
        walked
    }

    /// Arrivals come at their exact moments, for rates that divide a second and those that do not,
    /// and the workers together keep the rate. Broken if one is counted twice or not at all.
    #[test]
    fn constant_arrivals_of_all_workers_are_those_of_the_rate() {
        for rate in [1_u64, 3, 7, 1000, 1001] {
            for threads in 1..4 {
                let worker = |index| walk(schedule(rate, threads, index, Arrivals::Constant));
                let mut all: Vec<u64> = (0..threads).flat_map(worker).collect();
                all.sort_unstable();
                let wanted: Vec<u64> =
                    (0..3 * rate).map(|number| 500 + number * 1_000_000_000 / rate).collect();
                assert_eq!(all, wanted, "{rate}/s on {threads} threads");
            }
        }
    }

    /// Counting what is left and walking it agree, after any number of arrivals, for both kinds
    /// and every share. Broken if a report misses arrivals or counts sent ones again.
    #[test]
    fn counts_are_those_of_the_walk() {
        for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
            for (rate, threads, index) in [(1, 1, 0), (7, 3, 1), (100, 1, 0), (101, 2, 1)] {
                let mut schedule = schedule(rate, threads, index, arrivals);
                for left in (0..=walk(schedule.clone()).len()).rev() {
                    let walked = walk(schedule.clone());
                    let inside = walked.iter().filter(|due| WINDOW.contains(**due)).count();
                    assert_eq!(walked.len(), left);
                    assert_eq!(schedule.count_left(), left as u64);
                    assert_eq!(schedule.count_left_in_window(), inside as u64);
                    schedule.advance();
                }
            }
        }
    }
}
