//! Numbers that shards publish for the heartbeats and for the status, on a node alone too; nobody
//! decides by them.

use std::sync::atomic::{AtomicU64, Ordering};

use duolog_engine::ids::Lsn;

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
