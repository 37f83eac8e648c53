//! How much the rest of the machine worked during a measurement: programs that have nothing to do
//! with it take processor time from the server and from the generator, and turn the few
//! microseconds of a wake-up into whole scheduler ticks.
//!
//! Measured is user time, which is told apart by process; kernel time is not (interrupts and
//! kernel workers belong to nobody).

use crate::generator::clock::Clock;

/// The kernel counts in hundredths of a second here, whatever its own tick is.
const TICK_NS: f64 = 10_000_000.0;
/// Position of the user time among the fields behind the name in `/proc/PID/stat`.
const USER_TIME_FIELD: usize = 11;

/// User time so far, of everything and of the processes that belong to the measurement.
#[derive(Clone, Debug)]
pub struct Noise {
    clock: Clock,
    process_ids: Vec<u32>,
    others_ticks: Option<i64>,
}

impl Noise {
    /// Begins to watch. `process_ids`: the servers; this process belongs to the measurement too.
    #[must_use]
    pub fn watch(mut process_ids: Vec<u32>) -> Self {
        process_ids.push(std::process::id());
        let others_ticks = others_ticks(&process_ids);
        Self { clock: Clock::start(), process_ids, others_ticks }
    }

    /// User time of all other processes since the beginning, percent of one core. `None` where
    /// the system does not tell.
    #[must_use]
    pub fn percent(&self) -> Option<f64> {
        let ticks = others_ticks(&self.process_ids)? - self.others_ticks?;
        let elapsed_ns = self.clock.now_ns().max(1);
        let percent = ticks.max(0) as f64 * TICK_NS / elapsed_ns as f64 * 100.0;
        Some((percent * 10.0).round() / 10.0)
    }
}

fn others_ticks(process_ids: &[u32]) -> Option<i64> {
    let all = all_user_ticks(&std::fs::read_to_string("/proc/stat").ok()?)?;
    let mut own = 0;
    for id in process_ids {
        own += user_ticks(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?;
    }
    Some(all - own)
}

/// User and low-priority user time in the first line of `/proc/stat`.
fn all_user_ticks(text: &str) -> Option<i64> {
    let mut fields = text.lines().next()?.split_whitespace().skip(1);
    Some(fields.next()?.parse::<i64>().ok()? + fields.next()?.parse::<i64>().ok()?)
}

fn user_ticks(text: &str) -> Option<i64> {
    // The name is in brackets and may itself contain brackets and spaces.
    let behind_name = &text[text.rfind(')')? + 1..];
    behind_name.split_whitespace().nth(USER_TIME_FIELD)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read_at_the_right_fields() {
        assert_eq!(all_user_ticks("cpu  10 3 7 100 0 0 1\ncpu0 5 1 3 50\n"), Some(13));
        let line = "77 (a b) c) S 1 2 3 4 5 6 7 8 9 10 42 17 0 0 20";
        assert_eq!(user_ticks(line), Some(42));
        assert_eq!(all_user_ticks(""), None);
        assert_eq!(user_ticks("nothing"), None);
    }
}
