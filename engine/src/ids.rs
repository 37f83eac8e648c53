//! Newtypes for everything that could be mixed up. No `Deref`; arithmetic through named methods.

use std::fmt;

pub use duolog_lease::ids::{ClusterId, LeaseEpoch, MonoMs, NodeId, WallMs};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            /// The bare number, for codecs and messages.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }

            /// The number `count` further on. Panics on overflow: 2^64 steps do not happen.
            #[must_use]
            pub fn plus(self, count: $inner) -> Self {
                Self(self.0.checked_add(count).expect("counter stays below its type's range"))
            }

            /// The next number.
            #[must_use]
            pub fn next(self) -> Self {
                self.plus(1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// A shard: one core, one log directory. 0-based, below the cluster's shard count.
    ShardId(u32)
);
number!(
    /// Position of an event in its shard's log: 1-based, gapless. 0 means "before the first".
    Lsn(u64)
);
number!(
    /// Position of an event in its stream: 0-based, gapless.
    Revision(u64)
);
number!(
    /// Hybrid logical clock: milliseconds since 1970 in the upper 48 bits, a counter below.
    /// Grows strictly from block to block of a shard, whatever the wall clock does.
    Hlc(u64)
);
number!(
    /// Number of a segment in its shard, 1-based; the same on every node of the cluster.
    Generation(u32)
);
number!(
    /// Microseconds on a clock that never runs backwards. Its zero means nothing. It is the clock
    /// of the lease's [`MonoMs`].
    MonoUs(u64)
);

impl MonoUs {
    /// The same moment in whole milliseconds, rounded down: before a millisecond exactly if it lies
    /// before its beginning.
    #[must_use]
    pub const fn ms(self) -> MonoMs {
        MonoMs(self.0 / 1000)
    }
}

impl Hlc {
    /// The clock's next stamp: above `self`, and not behind `wall`.
    #[must_use]
    pub fn tick(self, wall: WallMs) -> Self {
        let now = wall.0.min((1 << 48) - 1) << 16;
        Self(now.max(self.0.saturating_add(1)))
    }

    /// The wall-clock part, milliseconds since 1970.
    #[must_use]
    pub const fn wall_ms(self) -> u64 {
        self.0 >> 16
    }
}

/// What the driver's clocks say at the moment of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For durations.
    pub mono: MonoUs,
    /// For stamps only; never for decisions.
    pub wall: WallMs,
}

/// Identity of a stream: the first 128 bits of BLAKE3 over its name. Two names with one identity
/// would take about 2^64 hash computations to find, so the name itself is not kept in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u128);

impl StreamId {
    /// Identity of the stream called `name`.
    #[must_use]
    pub fn of(name: &[u8]) -> Self {
        let hash = blake3::hash(name);
        let mut first = [0; 16];
        first.copy_from_slice(&hash.as_bytes()[..16]);
        Self(u128::from_le_bytes(first))
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A map's hasher for keys that are hashes already (or uniformly random, like UUIDs).
#[derive(Clone, Copy, Debug, Default)]
pub struct AlreadyHashed(u64);

impl std::hash::Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = (self.0 ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn write_u128(&mut self, value: u128) {
        // The upper half: the lower bits choose the shard and are alike within one.
        self.0 = (value >> 64) as u64;
    }
}

/// Builds [`AlreadyHashed`].
pub type BuildAlreadyHashed = std::hash::BuildHasherDefault<AlreadyHashed>;

/// A map keyed by stream.
pub type StreamMap<V> = std::collections::HashMap<StreamId, V, BuildAlreadyHashed>;

/// Sixteen random bytes that name one append, so that a retry is recognised.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdempotencyKey(pub u128);

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Where a record starts: segment and byte offset in it. Places order like the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The segment.
    pub generation: Generation,
    /// Bytes from the start of the segment file; a multiple of 8.
    pub offset: u32,
}

impl Place {
    /// One number, ordered like the place.
    #[must_use]
    pub const fn pack(self) -> u64 {
        ((self.generation.0 as u64) << 32) | self.offset as u64
    }

    /// The place that [`Place::pack`] made.
    #[must_use]
    pub const fn unpack(packed: u64) -> Self {
        Self {
            generation: Generation((packed >> 32) as u32),
            offset: (packed & 0xffff_ffff) as u32,
        }
    }
}
