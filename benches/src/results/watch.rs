//! Watches a run from the outside: asks the server what the window costs it, and shows on a
//! terminal how far the run is.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::cost::{ServerCost, Told};
use super::line::Line;
use crate::generator::clock::Clock;
use crate::generator::observer::Observer;
use crate::generator::report::Report;
use crate::generator::time_line::Reading;

/// Steps of the bar: thousandths of the window.
const STEPS: u64 = 1000;

/// See the module's text.
#[derive(Debug)]
pub struct Watch {
    /// The connection beside the load's; none once the server does not answer.
    line: Option<Line>,
    clock: Clock,
    before: Option<Told>,
    after: Option<Told>,
    /// Only where standard error is a terminal.
    bar: Option<ProgressBar>,
    window_s: f64,
}

impl Watch {
    /// For a run against `addr` whose window is that long. A server that does not answer costs
    /// nothing that is known; the run itself will find out.
    #[must_use]
    pub fn new(addr: SocketAddr, window: Duration) -> Self {
        Self {
            line: Line::open(addr).ok(),
            clock: Clock::start(),
            before: None,
            after: None,
            bar: std::io::stderr().is_terminal().then(bar),
            window_s: window.as_secs_f64(),
        }
    }

    /// Waits no longer than about that for what it asks; ten seconds unless told otherwise.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        if self.line.as_mut().is_some_and(|line| line.set_patience(patience).is_err()) {
            self.line = None;
        }
        self
    }

    /// What the window cost the server.
    #[must_use]
    pub fn cost(&self, report: &Report) -> ServerCost {
        let appends = report.acked.saturating_sub(report.acked_reads);
        let appends_per_s = appends as f64 / report.window_s;
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => {
                ServerCost::between(before, after, report.throughput_per_s, appends_per_s)
            }
            _ => ServerCost::default(),
        }
    }

    fn ask(&mut self) -> Option<Told> {
        let status = self.line.as_mut()?.status();
        if status.is_err() {
            self.line = None;
        }
        Some(Told { at_ns: self.clock.now_ns(), status: status.ok()? })
    }
}

impl Observer for Watch {
    fn begins(&mut self, _: u64) {
        self.before = self.ask();
    }

    fn goes_on(&mut self, share: f64, all: Reading) {
        let Some(bar) = &self.bar else { return };
        bar.set_position((share * STEPS as f64) as u64);
        bar.set_message(message(all, share * self.window_s));
    }

    fn ends(&mut self, _: u64) {
        self.after = self.ask();
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{elapsed:>4} {wide_bar} {percent:>3} %  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message("warming up");
    // Drawn before the window begins, too.
    bar.tick();
    bar
}

/// `50123 /s  p99 1.2 ms`, and errors if there are any.
fn message(all: Reading, past_s: f64) -> String {
    let rate = if past_s > 0.0 { all.acked as f64 / past_s } else { 0.0 };
    let p99 = match all.p99_ns {
        0 => "-".to_owned(),
        ns if ns < 1_000_000 => format!("{} us", ns / 1000),
        ns => format!("{:.1} ms", ns as f64 / 1e6),
    };
    let errors = if all.errors > 0 { format!("  {} errors", all.errors) } else { String::new() };
    format!("{rate:.0} /s  p99 {p99}{errors}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_beside_the_bar_tells_rate_latency_and_errors() {
        let reading = Reading { acked: 1000, errors: 0, p99_ns: 250_000 };
        assert_eq!(message(reading, 0.5), "2000 /s  p99 250 us");
        let slow = Reading { errors: 3, p99_ns: 12_340_000, ..reading };
        assert_eq!(message(slow, 2.0), "500 /s  p99 12.3 ms  3 errors");
        assert_eq!(message(Reading::default(), 0.0), "0 /s  p99 -");
    }
}
