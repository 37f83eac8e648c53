//! `--sweep` of the loads.

use std::time::Duration;

use clap::Args;

use super::duration::parse_duration;
use crate::sweep::SweepSettings;
use crate::sweep::search::SearchLimits;

/// Most steps of a search; about fifteen are usual.
const STEPS_MAX: u32 = 60;

/// What a load takes for a sweep.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Sweep")]
pub struct SweepArgs {
    /// Find the highest rate that the server keeps, then measure at 10 to 120 % of it (each for
    /// --duration), at 300 %, and how soon it recovers; the loop is open and --rate not needed
    #[arg(long, conflicts_with_all = ["rate", "closed"])]
    pub sweep: bool,
    /// A rate is kept only with p99 up to this [default: 10 x the p99 at light load, at least 1ms]
    #[arg(long, requires = "sweep", value_parser = parse_duration, value_name = "T")]
    pub slo_p99: Option<Duration>,
    /// Measured time of each step of the search; longer at low rates
    #[arg(long, requires = "sweep", default_value = "2s", value_name = "T")]
    #[arg(value_parser = parse_duration)]
    pub sweep_step: Duration,
    /// The search ends after this much time with what it knows
    #[arg(long, requires = "sweep", default_value = "5m", value_name = "T")]
    #[arg(value_parser = parse_duration)]
    pub sweep_time: Duration,
    /// Requests in flight per connection at 300 %: more of them reach the server, fewer wait in
    /// the generator [default: --in-flight]
    #[arg(long, requires = "sweep", value_name = "K")]
    pub overload_in_flight: Option<u32>,
}

impl SweepArgs {
    /// The sweep of a load with so many requests in flight; `None` without `--sweep`.
    pub(super) fn settings(&self, in_flight: u32) -> Option<SweepSettings> {
        let limits = SearchLimits {
            step: self.sweep_step,
            steps_max: STEPS_MAX,
            time_max: self.sweep_time,
            slo_p99_us: self.slo_p99.map(|slo| slo.as_secs_f64() * 1e6),
        };
        let overload_in_flight = self.overload_in_flight.unwrap_or(in_flight);
        self.sweep.then_some(SweepSettings { limits, overload_in_flight })
    }
}
