//! Numbers that shards publish for the heartbeats and for the status, on a node alone too; nobody
//! decides by them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use duolog_engine::ids::{LeaseEpoch, Lsn};
use duolog_lease::status::Status;

/// What a node of a pair is, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// Neither the lease nor a leader has been heard of yet.
    Booting = 0,
    /// Waits for a leader, or copies from it.
    CatchingUp = 1,
    /// Follows, and has everything that was committed when it said so.
    Follower = 2,
    /// Makes its log the cluster's.
    Promoting = 3,
    /// Serves, and its grant holds.
    Leader = 4,
    /// Refuses to serve.
    Fenced = 5,
}

impl Role {
    const ALL: [Self; 6] = [
        Self::Booting,
        Self::CatchingUp,
        Self::Follower,
        Self::Promoting,
        Self::Leader,
        Self::Fenced,
    ];

    /// Of a status, with its reign if it has one.
    #[must_use]
    pub const fn of(status: Status) -> (Self, Option<LeaseEpoch>) {
        match status {
            Status::Booting => (Self::Booting, None),
            Status::Follower { epoch, .. } => (Self::Follower, Some(epoch)),
            Status::CatchingUp { epoch, .. } => (Self::CatchingUp, Some(epoch)),
            Status::Promoting { epoch } => (Self::Promoting, Some(epoch)),
            Status::Leader { epoch } => (Self::Leader, Some(epoch)),
            Status::Fenced(_) => (Self::Fenced, None),
        }
    }

    /// As answers about the status have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Booting => "booting",
            Self::CatchingUp => "catching_up",
            Self::Follower => "follower",
            Self::Promoting => "promoting",
            Self::Leader => "leader",
            Self::Fenced => "fenced",
        }
    }
}

/// What the node is. The role is published by shard 0 of a pair, about every 100 ms and at every
/// change.
#[derive(Debug, Default)]
pub struct NodeGauge {
    role: AtomicU8,
    epoch: AtomicU64,
    http: OnceLock<String>,
}

impl NodeGauge {
    /// Publishes the role, and the newest reign that this node knows.
    pub fn tell(&self, role: Role, epoch: LeaseEpoch) {
        self.epoch.store(epoch.0, Ordering::Relaxed);
        self.role.store(role as u8, Ordering::Relaxed);
    }

    /// The reign that was published last; right after a change it may belong to another role.
    #[must_use]
    pub fn epoch(&self) -> LeaseEpoch {
        LeaseEpoch(self.epoch.load(Ordering::Relaxed))
    }

    /// Publishes where HTTP clients reach the node.
    pub fn tell_http(&self, address: String) {
        self.http.get_or_init(|| address);
    }

    /// Where HTTP clients reach the node; none if there is no HTTP.
    #[must_use]
    pub fn http(&self) -> Option<&str> {
        self.http.get().map(String::as_str)
    }

    /// What was published last; booting before anything was.
    #[must_use]
    pub fn role(&self) -> Role {
        let told = self.role.load(Ordering::Relaxed);
        Role::ALL.into_iter().find(|role| *role as u8 == told).unwrap_or(Role::Booting)
    }
}

/// One shard's.
#[derive(Debug, Default)]
pub struct ShardGauge {
    /// Newest event in a closed block.
    end: AtomicU64,
    /// Newest event durable on this disk.
    durable: AtomicU64,
    /// Newest committed event.
    committed: AtomicU64,
    /// As leader: newest event that the follower has acked.
    acked: AtomicU64,
    /// As leader: newest event known to be in the chain.
    chain: AtomicU64,
    /// As leader: the connection to the follower is up.
    linked: AtomicU64,
    /// Durable writes into the log since the start.
    writes: AtomicU64,
    /// Bytes that they wrote.
    written_bytes: AtomicU64,
}

impl ShardReading {
    /// Events that the other copy lacks; without the lead: that are here and not known to be
    /// committed.
    #[must_use]
    pub const fn lag(&self, leads: bool) -> u64 {
        let behind = match (leads, self.linked) {
            (true, true) => self.acked,
            (true, false) => self.chain,
            (false, _) => self.committed,
        };
        self.end.0.saturating_sub(behind.0)
    }
}

/// A reading of a [`ShardGauge`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardReading {
    /// Newest event in a closed block.
    pub end: Lsn,
    /// Newest event durable on this disk.
    pub durable: Lsn,
    /// Newest committed event.
    pub committed: Lsn,
    /// As leader: newest event that the follower has acked.
    pub acked: Lsn,
    /// As leader: newest event known to be in the chain.
    pub chain: Lsn,
    /// As leader: the connection to the follower is up.
    pub linked: bool,
    /// Durable writes into the log since the start: each is one flush of the device, or one write
    /// through its cache.
    pub writes: u64,
    /// Bytes that they wrote, with padding.
    pub written_bytes: u64,
}

impl ShardGauge {
    /// Publishes the log's ends.
    pub fn log(&self, end: Lsn, durable: Lsn, committed: Lsn) {
        self.end.store(end.0, Ordering::Relaxed);
        self.durable.store(durable.0, Ordering::Relaxed);
        self.committed.store(committed.0, Ordering::Relaxed);
    }

    /// Publishes what the follower has acked.
    pub fn acked(&self, acked: Lsn) {
        self.acked.store(acked.0, Ordering::Relaxed);
    }

    /// Publishes the end of the chain.
    pub fn chain(&self, end: Lsn) {
        self.chain.store(end.0, Ordering::Relaxed);
    }

    /// Publishes whether the follower is connected.
    pub fn linked(&self, linked: bool) {
        self.linked.store(u64::from(linked), Ordering::Relaxed);
    }

    /// Counts a durable write that is done. Only the shard's own thread calls this, so a load and a
    /// store suffice: no other writer can come between.
    pub fn wrote(&self, bytes: u64) {
        self.writes.store(self.writes.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let sum = self.written_bytes.load(Ordering::Relaxed) + bytes;
        self.written_bytes.store(sum, Ordering::Relaxed);
    }

    /// What was published last.
    #[must_use]
    pub fn read(&self) -> ShardReading {
        let lsn = |gauge: &AtomicU64| Lsn(gauge.load(Ordering::Relaxed));
        ShardReading {
            end: lsn(&self.end),
            durable: lsn(&self.durable),
            committed: lsn(&self.committed),
            acked: lsn(&self.acked),
            chain: lsn(&self.chain),
            linked: self.linked.load(Ordering::Relaxed) != 0,
            writes: self.writes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
        }
    }
}
