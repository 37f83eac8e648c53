//! Who watches a run from outside: the thread that started it has nothing to do meanwhile.

use std::time::Duration;

use super::clock::{Clock, pause};
use super::tally::Window;
use super::time_line::{Live, Reading};

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Told of a run's course, on the thread that started it. What it does there costs a processor, so
/// it does little.
pub trait Observer {
    /// The window begins. `now_ns`: the run's clock.
    fn begins(&mut self, now_ns: u64);

    /// It is under way: `share` (0..=1) of it has passed, all workers together have done this.
    fn goes_on(&mut self, share: f64, all: Reading);

    /// The window has ended; answers that are still out are awaited.
    fn ends(&mut self, now_ns: u64);
}

/// Tells `observer` of the window as it passes. Returns at its end, or soon after all workers are
/// `over`.
pub(super) fn attend(
    observer: &mut dyn Observer,
    clock: Clock,
    window: Window,
    lives: &[&Live],
    over: impl Fn() -> bool,
) {
    let sleep_until = |at_ns: u64, most: Duration| {
        pause(Duration::from_nanos(at_ns.saturating_sub(clock.now_ns())).min(most));
    };
    while clock.now_ns() < window.start_ns && !over() {
        sleep_until(window.start_ns, LOOK_EVERY);
    }
    observer.begins(clock.now_ns());
    while clock.now_ns() < window.end_ns && !over() {
        sleep_until(window.end_ns, LOOK_EVERY);
        let past_ns = clock.now_ns().saturating_sub(window.start_ns);
        let share = past_ns as f64 / (window.end_ns - window.start_ns) as f64;
        observer.goes_on(share.min(1.0), Reading::sum(lives.iter().map(|live| live.read())));
    }
    observer.ends(clock.now_ns());
}
