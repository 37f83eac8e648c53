//! Where the process stands between its start and its end, for probes; nobody decides by it.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use super::metrics::Sources;
use super::progress::Progress;

/// A stretch of the process's life. They come in this order, none twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Finds out who it is; a node of a pair asks the bucket.
    Joining = 0,
    /// Reads the shards' logs.
    Recovering = 1,
    /// Starts the shards' threads.
    Opening = 2,
    /// The shards run.
    Serving = 3,
    /// A signal has come.
    Stopping = 4,
}

impl Phase {
    const ALL: [Self; 5] =
        [Self::Joining, Self::Recovering, Self::Opening, Self::Serving, Self::Stopping];

    /// For answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Recovering => "recovering",
            Self::Opening => "opening",
            Self::Serving => "serving",
            Self::Stopping => "stopping",
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Life {
    phase: AtomicU8,
    /// How far each shard's recovery is.
    pub shards: Vec<Progress>,
    /// Where metrics are read from, once the shards are about to run.
    pub metrics: OnceLock<Sources>,
    /// Where clients connect, once they can.
    pub client: OnceLock<SocketAddr>,
}

impl Life {
    /// A process that begins.
    #[must_use]
    pub fn new(shard_count: u32) -> Self {
        let shards = (0..shard_count).map(|_| Progress::default()).collect();
        let phase = AtomicU8::new(Phase::Joining as u8);
        Self { phase, shards, metrics: OnceLock::new(), client: OnceLock::new() }
    }

    /// The process has come to `phase`; one that it has left behind is not entered again.
    pub fn enter(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::Relaxed);
    }

    /// Where it is.
    #[must_use]
    pub fn phase(&self) -> Phase {
        let told = self.phase.load(Ordering::Relaxed);
        Phase::ALL.into_iter().find(|phase| *phase as u8 == told).unwrap_or(Phase::Joining)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn life_goes_on_and_never_back() {
        let life = Life::new(2);
        assert_eq!((life.phase(), life.shards.len()), (Phase::Joining, 2));
        life.enter(Phase::Stopping);
        life.enter(Phase::Serving);
        assert_eq!(life.phase(), Phase::Stopping);
    }
}
