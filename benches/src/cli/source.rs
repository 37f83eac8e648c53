//! Where load comes from: threads of this process, or a fleet of workers.

use std::time::Duration;

use super::BenchError;
use crate::fleet::{Fleet, FleetReport, OBSERVER_PATIENCE};
use crate::generator::clock::Clock;
use crate::generator::{self, Measured, Observer, Settings};
use crate::results::line;

/// See the module's text.
#[derive(Debug)]
pub(super) enum Source {
    /// This process, by this clock.
    Here(Clock),
    /// Workers that have joined.
    Fleet(Box<Fleet>),
}

impl Source {
    /// This process.
    pub(super) fn here() -> Self {
        Self::Here(Clock::start())
    }

    /// The settings of a run from here: a fleet has as many threads on each worker as were asked
    /// for.
    pub(super) fn whole(&self, settings: Settings) -> Settings {
        match self {
            Self::Here(_) => settings,
            Self::Fleet(fleet) => fleet.whole(&settings),
        }
    }

    /// How long an observer of a run may wait for what it asks.
    pub(super) fn patience(&self) -> Duration {
        match self {
            // The thread that it is told on has nothing else to do.
            Self::Here(_) => line::PATIENCE,
            Self::Fleet(_) => OBSERVER_PATIENCE,
        }
    }

    /// Runs the load that [`Source::whole`] has made. `observer` is told of the window; the windows
    /// of all loads are on one clock.
    pub(super) fn measure(
        &mut self,
        whole: &Settings,
        observer: &mut dyn Observer,
    ) -> Result<Measured, BenchError> {
        match self {
            Self::Here(clock) => Ok(generator::measure_watched(whole, *clock, observer)?),
            Self::Fleet(fleet) => Ok(fleet.measure(whole, observer)?),
        }
    }

    /// How the workers did in the newest run.
    pub(super) fn fleet(&self) -> Option<&FleetReport> {
        match self {
            Self::Here(_) => None,
            Self::Fleet(fleet) => Some(fleet.report()),
        }
    }
}
