//! Results that can be trusted later: where they were measured, with what, and what speaks against
//! them. [`Recording`] makes a [`Document`] of a run, [`write`] the files of it.
//!
//! ```text
//! let recording = Recording::begin(program, addr, dir)?;      // before the run
//! let mut watch = Watch::new(addr, settings.duration);
//! let tallies = generator::measure_watched(&settings, clock, &mut watch)?.tallies;
//! let report = Report::new(&settings, &tallies);
//! let cost = watch.cost(&report);
//! let (report, tallies, cost, curve) = (&report, &*tallies, &cost, &[]);
//! let run = Run { report, tallies, cost, curve, sweep: None, fleet: None };
//! results::write(out, &recording.finish(&run)?)?;             // probes again, then the files
//! ```

pub mod cost;
pub mod document;
#[cfg(test)]
pub(crate) mod example;
mod files;
pub mod host;
pub mod line;
pub mod moment;
pub mod page;
pub mod probe;
mod recording;
pub mod storage;
pub mod sweep_note;
pub mod warning;
mod watch;

use std::io;
use std::path::PathBuf;

pub use document::Document;
pub use files::{DOCUMENT, read, write};
pub use recording::{Recorded, Recording, Run};
pub use watch::Watch;

/// The program that measures.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its version.
    pub version: &'static str,
    /// The commit that it was built from.
    pub commit: &'static str,
}

impl From<Program> for document::Build {
    fn from(program: Program) -> Self {
        Self { version: program.version.to_owned(), commit: program.commit.to_owned() }
    }
}

/// Why a result could not be made, written or read.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// The disk could not be looked at.
    #[error("--dir {dir:?}: cannot measure a durable write there: {error}")]
    Probe {
        /// As given.
        dir: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file could not be written or read.
    #[error("{path:?}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Not a result, or one of another form.
    #[error("{path:?} is no result of this version: {reason}")]
    Form {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}
