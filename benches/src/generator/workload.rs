//! The kinds of load: what an operation does, to which stream, under which condition, and when.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What each operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Appends events.
    Append,
    /// Reads streams; they are written before the clock starts.
    Read,
    /// Reads or appends, by a share; the streams are written before the clock starts.
    Mixed,
}

impl Workload {
    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Read => "read",
            Self::Mixed => "mixed",
        }
    }

    /// Whether the streams have to be written before the load begins.
    #[must_use]
    pub const fn needs_events(self) -> bool {
        matches!(self, Self::Read | Self::Mixed)
    }
}

/// Condition on the streams of each append.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Expectation {
    /// No condition
    Any,
    /// The exact revision of a stream that its connection owns, so that it always knows it
    Exact,
    /// The exact revision of a stream that everybody appends to; a conflict is tried again
    Hot,
}

impl Expectation {
    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Exact => "exact",
            Self::Hot => "hot",
        }
    }
}

/// What a read is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ReadMode {
    /// The first page of a stream
    Page,
    /// One event of a stream, at a random revision
    Point,
    /// A whole stream, page after page
    Replay,
    /// The last page of a stream, newest first
    Backwards,
}

/// How the stream of an operation is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum StreamOrder {
    /// At random, each as likely as any other
    Uniform,
    /// One after the other, so that each comes before any comes again
    Sequential,
}

/// How the arrivals of an open loop follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// At equal intervals
    Constant,
    /// At random, as many independent clients would send: exponential intervals
    Poisson,
}
