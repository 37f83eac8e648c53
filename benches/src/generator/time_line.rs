//! How a run went over time: completions, errors and latencies of each interval of the window.
//! A completion belongs to the interval in which its answer came.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::sketch::{Outline, Sketch};
use super::tally::Window;

/// Intervals, milliseconds: the finest that makes no more than [`POINTS_WANTED`] of the window, but
/// none coarser than a second as long as that makes no more than [`POINTS_MAX`].
const INTERVALS_MS: [u64; 11] = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000];
/// Points that a picture of usual width can show.
const POINTS_WANTED: u64 = 200;
/// Most points of a time line, however long the run: an hour in seconds.
const POINTS_MAX: u64 = 3600;

/// One interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Successful answers.
    pub acked: u64,
    /// Refusals and losses.
    pub errors: u64,
    /// Latencies of the successful answers.
    pub latencies: Outline,
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeLine {
    /// Length of each, ns; the last one ends with the window.
    pub interval_ns: u64,
    /// Length of the window, ns.
    pub window_ns: u64,
    /// In order, from the start of the window.
    pub points: Vec<Point>,
}

/// What one worker has done so far, for a progress bar; exact to an interval.
#[derive(Debug, Default)]
pub struct Live {
    acked: AtomicU64,
    errors: AtomicU64,
    p99_ns: AtomicU64,
}

/// A reading of a [`Live`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Successful answers since the window began.
    pub acked: u64,
    /// Refusals and losses since then.
    pub errors: u64,
    /// Of the newest whole interval, ns; 0 without answers.
    pub p99_ns: u64,
}

/// Fills a time line. Recording allocates nothing; an interval's end does.
#[derive(Debug, Default)]
pub struct Recorder {
    line: TimeLine,
    start_ns: u64,
    current: usize,
    sketch: Sketch,
    so_far: Reading,
    live: Arc<Live>,
}

impl Live {
    /// What was published last.
    #[must_use]
    pub fn read(&self) -> Reading {
        Reading {
            acked: self.acked.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            p99_ns: self.p99_ns.load(Ordering::Relaxed),
        }
    }
}

impl Reading {
    /// All workers' together; the slowest one's percentile.
    #[must_use]
    pub fn sum(readings: impl Iterator<Item = Self>) -> Self {
        readings.fold(Self::default(), |sum, reading| Self {
            acked: sum.acked + reading.acked,
            errors: sum.errors + reading.errors,
            p99_ns: sum.p99_ns.max(reading.p99_ns),
        })
    }
}

impl TimeLine {
    /// An empty one for a window of that length.
    #[must_use]
    pub fn new(window_ns: u64) -> Self {
        let interval_ns = interval_ns(window_ns);
        let count = usize::try_from(window_ns.div_ceil(interval_ns)).unwrap_or(usize::MAX);
        Self { interval_ns, window_ns, points: vec![Point::default(); count] }
    }

    /// Adds another worker's, of the same window. An empty one adds nothing.
    pub fn merge(&mut self, other: &Self) {
        if self.points.is_empty() {
            self.clone_from(other);
            return;
        }
        for (point, more) in self.points.iter_mut().zip(&other.points) {
            point.acked += more.acked;
            point.errors += more.errors;
            point.latencies.merge(&more.latencies);
        }
    }

    /// Start and length of each point, seconds.
    pub fn spans(&self) -> impl Iterator<Item = (f64, f64)> {
        (0..self.points.len() as u64).map(|index| {
            let start_ns = index * self.interval_ns;
            let span_ns = self.interval_ns.min(self.window_ns.saturating_sub(start_ns));
            (start_ns as f64 / 1e9, span_ns as f64 / 1e9)
        })
    }
}

impl Recorder {
    /// For a window; `live` is told of each interval that ends.
    #[must_use]
    pub fn new(window: Window, live: Arc<Live>) -> Self {
        let line = TimeLine::new(window.end_ns - window.start_ns);
        Self { line, start_ns: window.start_ns, live, ..Self::default() }
    }

    /// A successful answer within the window.
    pub fn acked(&mut self, at_ns: u64, latency_ns: u64) {
        self.go_on_to(at_ns);
        self.sketch.record(latency_ns);
        self.line.points[self.current].acked += 1;
    }

    /// Refusals or losses within the window.
    pub fn errors(&mut self, at_ns: u64, count: u64) {
        self.go_on_to(at_ns);
        self.line.points[self.current].errors += count;
    }

    /// The whole line.
    #[must_use]
    pub fn finish(mut self) -> TimeLine {
        self.close();
        self.line
    }

    fn go_on_to(&mut self, at_ns: u64) {
        let index = at_ns.saturating_sub(self.start_ns) / self.line.interval_ns;
        let index = usize::try_from(index).unwrap_or(usize::MAX).min(self.line.points.len() - 1);
        // A worker's clock never goes back.
        if index > self.current {
            self.close();
            self.current = index;
        }
    }

    fn close(&mut self) {
        let Some(point) = self.line.points.get_mut(self.current) else { return };
        point.latencies = self.sketch.take();
        self.so_far.acked += point.acked;
        self.so_far.errors += point.errors;
        self.live.acked.store(self.so_far.acked, Ordering::Relaxed);
        self.live.errors.store(self.so_far.errors, Ordering::Relaxed);
        let p99_ns = point.latencies.percentile_ns(99.0).unwrap_or(0);
        self.live.p99_ns.store(p99_ns, Ordering::Relaxed);
    }
}

fn interval_ns(window_ns: u64) -> u64 {
    let second = Duration::from_secs(1).as_nanos() as u64;
    let intervals = INTERVALS_MS.map(|ms| ms * 1_000_000);
    let fits = |interval: &u64| {
        let points = window_ns.div_ceil(*interval);
        points <= if *interval < second { POINTS_WANTED } else { POINTS_MAX }
    };
    // The longest window is a day: 2880 points of half a minute.
    intervals.into_iter().find(fits).unwrap_or_else(|| window_ns.div_ceil(POINTS_MAX).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn window(seconds: u64) -> Window {
        Window { load_ns: 0, start_ns: SECOND, end_ns: (1 + seconds) * SECOND }
    }

    /// A short run is seen in detail, a long one is bounded.
    #[test]
    fn points_are_neither_few_nor_many() {
        for (window_ns, interval_ms, points) in [
            (SECOND / 10, 10, 10),
            (10 * SECOND, 50, 200),
            (60 * SECOND, 500, 120),
            (3600 * SECOND, 1000, 3600),
            (86_400 * SECOND, 30_000, 2880),
        ] {
            let line = TimeLine::new(window_ns);
            let found = (line.interval_ns / 1_000_000, line.points.len());
            assert_eq!(found, (interval_ms, points), "{window_ns} ns");
        }
        assert_eq!(TimeLine::new(1000 * 86_400 * SECOND).points.len(), 3600);
    }

    /// Whatever is counted is counted in the interval of its moment, and nothing is lost between.
    #[test]
    fn answers_fall_into_their_interval() {
        let live = Arc::new(Live::default());
        let mut recorder = Recorder::new(window(10), Arc::clone(&live));
        recorder.acked(SECOND, 2_000_000);
        recorder.acked(SECOND + 49_999_999, 1_000_000);
        assert_eq!(live.read(), Reading::default(), "an interval is told when it is whole");
        recorder.acked(SECOND + 50_000_000, 7_000_000);
        let reading = live.read();
        assert_eq!((reading.acked, reading.p99_ns), (2, 2_000_000));
        recorder.errors(11 * SECOND - 1, 3);
        let line = recorder.finish();
        assert_eq!((line.points[0].acked, line.points[1].acked), (2, 1));
        assert_eq!(line.points[0].latencies.max_ns(), 2_000_000);
        assert_eq!(line.points[199].errors, 3);
        assert_eq!(line.points.iter().map(|point| point.acked).sum::<u64>(), 3);
        let reading = live.read();
        assert_eq!((reading.acked, reading.errors), (3, 3));
    }

    #[test]
    fn lines_of_several_workers_are_one() {
        let line = |latency_ns: u64| {
            let mut recorder = Recorder::new(window(1), Arc::default());
            (0..100).for_each(|at| recorder.acked(SECOND + at * 10_000_000, latency_ns));
            recorder.finish()
        };
        let mut all = TimeLine::default();
        all.merge(&line(1_000_000));
        all.merge(&line(3_000_000));
        all.merge(&TimeLine::default());
        assert_eq!(all.points.len(), 100);
        for point in &all.points {
            assert_eq!((point.acked, point.latencies.count()), (2, 2));
            assert_eq!(point.latencies.max_ns(), 3_000_000);
        }
        let (start, span) = all.spans().last().unwrap();
        assert!((start - 0.99).abs() < 1e-9 && (span - 0.01).abs() < 1e-9, "{start} {span}");
    }
}
