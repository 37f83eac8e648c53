//! Two lanes to one bucket. Owns the connections.
//!
//! Promise: a call in the lease lane waits for no other call: not for a place in a queue, and not
//! for a connection that a transfer holds.

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::limits::BULK_CALLS_MAX;
use crate::transport::Transport;

/// Which connections a call uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Small requests that cannot wait: the lease, the probe, commands. No limit; a node has one
    /// such call under way.
    #[default]
    Lease,
    /// Transfers and listings, so many at a time as [`BULK_CALLS_MAX`]; further ones wait.
    Bulk,
}

impl Lane {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Lease, Self::Bulk];

    /// Name for metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Bulk => "bulk",
        }
    }
}

#[derive(Debug)]
pub(super) struct Lanes {
    lease: Transport,
    bulk: Transport,
    bulk_turns: Semaphore,
}

impl Lanes {
    pub(super) const fn new(lease: Transport, bulk: Transport) -> Self {
        Self { lease, bulk, bulk_turns: Semaphore::const_new(BULK_CALLS_MAX) }
    }

    /// Waits until a request may leave; `None` where nobody waits.
    pub(super) async fn turn(&self, lane: Lane) -> Option<SemaphorePermit<'_>> {
        match lane {
            Lane::Lease => None,
            // The semaphore is never closed.
            Lane::Bulk => self.bulk_turns.acquire().await.ok(),
        }
    }

    pub(super) const fn transport(&self, lane: Lane) -> &Transport {
        match lane {
            Lane::Lease => &self.lease,
            Lane::Bulk => &self.bulk,
        }
    }
}
