//! Where load comes from: threads of this process, or a fleet of workers.

use super::BenchError;
use crate::fleet::{Fleet, FleetReport};
use crate::generator::tally::Tally;
use crate::generator::{self, Observer, Settings};

/// See the module's text.
#[derive(Debug)]
pub(super) enum Source {
    /// This process.
    Here,
    /// Workers that have joined.
    Fleet(Box<Fleet>),
}

impl Source {
    /// The settings of a run from here: a fleet has as many threads on each worker as were asked
    /// for.
    pub(super) fn whole(&self, settings: Settings) -> Settings {
        match self {
            Self::Here => settings,
            Self::Fleet(fleet) => fleet.whole(&settings),
        }
    }

    /// Runs the load that [`Source::whole`] has made: one tally of each thread. `observer` is told
    /// of the window.
    pub(super) fn measure(
        &mut self,
        whole: &Settings,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Tally>, BenchError> {
        match self {
            Self::Here => Ok(generator::measure_watched(whole, observer)?),
            Self::Fleet(fleet) => Ok(fleet.measure(whole, observer)?),
        }
    }

    /// How the workers did in the newest run.
    pub(super) fn fleet(&self) -> Option<&FleetReport> {
        match self {
            Self::Here => None,
            Self::Fleet(fleet) => Some(fleet.report()),
        }
    }
}
