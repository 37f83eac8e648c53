//! What a node is at a moment, computed from the clock whenever somebody asks.

use core::fmt;

use crate::ids::{LeaseEpoch, NodeId};

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Neither the lease nor a leader has been heard of yet.
    Booting,
    /// Follows and has everything that was committed when it said so.
    Follower {
        /// Whom.
        leader: NodeId,
        /// At which epoch.
        epoch: LeaseEpoch,
    },
    /// Waits for a leader, or copies from it.
    CatchingUp {
        /// The leader as far as known.
        leader: Option<NodeId>,
        /// The newest epoch known.
        epoch: LeaseEpoch,
    },
    /// Holds the lease and makes its log the cluster's (section 6 of the protocol).
    Promoting {
        /// Its reign.
        epoch: LeaseEpoch,
    },
    /// Serves.
    Leader {
        /// Its reign.
        epoch: LeaseEpoch,
    },
    /// Refuses to serve.
    Fenced(FenceReason),
}

/// Why a node refuses to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FenceReason {
    /// The lease of its reign has run out; it serves again when a heartbeat is acked or a renewal
    /// succeeds.
    LeaseRanOut,
    /// Its reign is over.
    Deposed(Deposed),
    /// It gave its reign away and waits for the successor (L11).
    Resigned,
    /// Its clock and the leader's are too far apart (L6), by this many milliseconds.
    ClockDrift {
        /// Distance, ms.
        difference_ms: u64,
    },
    /// It challenges and follows nobody meanwhile (L3).
    Challenging,
    /// The lease object cannot be used; see the report.
    LeaseUnusable,
    /// There is no lease object although this node has promised an epoch.
    LeaseVanished,
    /// The lease object is older than what this node has promised.
    LeaseBehindPromise,
    /// It lacks acknowledged events and must not lead.
    CannotLead,
}

/// Why a reign ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deposed {
    /// A message of a higher epoch arrived (L10).
    HigherEpoch {
        /// That epoch.
        seen: LeaseEpoch,
    },
    /// The lease names another reign (L10).
    LeaseLost {
        /// The epoch in the lease.
        found: LeaseEpoch,
    },
    /// The lease object is gone.
    LeaseVanished,
    /// Its chain was sealed by a successor (L10).
    ChainSealed,
    /// Promotion met a gap: this node lacks acknowledged events (P2).
    FatalGap,
    /// It took a new reign of its own accord.
    NewReign,
    /// It had resigned, and nobody showed itself; it looks at the lease and may take a new reign.
    Unanswered,
}

impl fmt::Display for Deposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HigherEpoch { seen } => write!(f, "epoch {seen} has begun"),
            Self::LeaseLost { found } => write!(f, "the lease names another reign, epoch {found}"),
            Self::LeaseVanished => f.write_str("the lease object is gone"),
            Self::ChainSealed => f.write_str("a successor has sealed the chain"),
            Self::FatalGap => f.write_str("this node lacks acknowledged events"),
            Self::NewReign => f.write_str("a new reign was asked for"),
            Self::Unanswered => f.write_str("nobody took the reign that was given away"),
        }
    }
}

impl fmt::Display for FenceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeaseRanOut => f.write_str("the lease has run out"),
            Self::Deposed(deposed) => write!(f, "deposed: {deposed}"),
            Self::Resigned => f.write_str("handed over"),
            Self::ClockDrift { difference_ms } => {
                write!(f, "the clocks of leader and follower lie {difference_ms} ms apart")
            }
            Self::Challenging => f.write_str("challenging for the lease"),
            Self::LeaseUnusable => f.write_str("the lease object cannot be used"),
            Self::LeaseVanished => f.write_str("the lease object is gone"),
            Self::LeaseBehindPromise => f.write_str("the lease object went back in time"),
            Self::CannotLead => f.write_str("this node lacks acknowledged events"),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Booting => f.write_str("booting"),
            Self::Follower { leader, epoch } => write!(f, "follower of {leader}, epoch {epoch}"),
            Self::CatchingUp { leader: Some(leader), epoch } => {
                write!(f, "catching up with {leader}, epoch {epoch}")
            }
            Self::CatchingUp { leader: None, epoch } => {
                write!(f, "waiting for a leader, epoch {epoch}")
            }
            Self::Promoting { epoch } => write!(f, "promoting, epoch {epoch}"),
            Self::Leader { epoch } => write!(f, "leader, epoch {epoch}"),
            Self::Fenced(reason) => write!(f, "fenced: {reason}"),
        }
    }
}
