//! The generator's edge: its monotonic clock, its own use of the processor, its random seed.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use serde::{Deserialize, Serialize};

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

/// Waits. Not for a thread that measures.
#[expect(clippy::disallowed_methods, reason = "the benchmark waits for its servers")]
pub fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// What a thread has consumed so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// A timer that makes its descriptor readable; finer than the whole milliseconds of `epoll_wait`.
#[derive(Debug)]
pub struct Alarm {
    timer: OwnedFd,
}

impl Alarm {
    /// A timer that is not set.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self { timer: timerfd_create(TimerfdClockId::Monotonic, flags)? })
    }

    /// For registration.
    #[must_use]
    pub fn descriptor(&self) -> RawFd {
        self.timer.as_raw_fd()
    }

    /// Fires once `after_ns` from now; at once for 0.
    pub fn set(&self, after_ns: u64) -> io::Result<()> {
        // All zero would disarm it. Nanoseconds below one second fit every integer type.
        let after_ns = after_ns.max(1);
        let it_value = Timespec {
            tv_sec: i64::try_from(after_ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (after_ns % 1_000_000_000) as _,
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let when = Itimerspec { it_interval, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &when)?;
        Ok(())
    }

    /// Takes note that it fired.
    pub fn clear(&self) {
        // Not fired is as good as cleared.
        let _ = rustix::io::read(&self.timer, &mut [0_u8; 8]);
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
