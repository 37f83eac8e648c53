//! The generator's edge: its monotonic clock, its own use of the processor, its random seed.

use std::time::Instant;

/// Nanoseconds since a common start, on the system's monotonic clock: steps of the wall clock do
/// not touch it, and it agrees between cores.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that reads zero now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the generator measures real time")]
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Nanoseconds since the start.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).expect("a run is shorter than 584 years")
    }
}

/// What a thread has consumed so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadUse {
    /// Processor time, ns.
    pub cpu_ns: u64,
    /// Time it was ready to run but had to wait for a processor, ns. 0 where the kernel does not
    /// tell.
    pub waited_ns: u64,
}

impl ThreadUse {
    /// Of the calling thread.
    #[must_use]
    pub fn now() -> Self {
        use rustix::time::{ClockId, clock_gettime};
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let cpu_ns = seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0);
        let waited_ns = std::fs::read_to_string("/proc/thread-self/schedstat")
            .ok()
            .and_then(|text| text.split_whitespace().nth(1)?.parse().ok())
            .unwrap_or(0);
        Self { cpu_ns, waited_ns }
    }

    /// What was consumed since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            waited_ns: self.waited_ns.saturating_sub(earlier.waited_ns),
        }
    }
}

/// A number that no other run has: names streams, seeds event ids and keys.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "runs must not collide")]
pub fn random_run_id() -> u64 {
    (uuid::Uuid::new_v4().as_u128() >> 64) as u64
}

/// A small generator of well-mixed numbers (splitmix64): chooses streams.
#[derive(Clone, Debug)]
pub struct Mixer(u64);

impl Mixer {
    /// Starts from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is at least 1. The bias of at most 2^-32 does not matter here.
    pub fn below(&mut self, bound: u32) -> u32 {
        (((self.next_number() >> 32) * u64::from(bound)) >> 32) as u32
    }
}
