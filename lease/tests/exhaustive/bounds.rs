//! How large a world may grow, and what may go wrong in it.

use duolog_lease::timings::{TimingValues, Timings};

/// Limits of one search.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Whether time is modelled: see the head of `main.rs`.
    pub timed: bool,
    /// Timed: the second node's wall clock minus the first one's.
    pub offset: i64,
    /// What the store holds at first.
    pub start: Start,
    /// Highest epoch.
    pub epoch_max: u64,
    /// Crashes of both nodes together.
    pub crashes_max: u8,
    /// Writes of the lease under way at once, abandoned ones included.
    pub flights_max: usize,
    /// Handovers that are asked for.
    pub handovers_max: u8,
    /// Whether a follower of a leader alone may join or be lost.
    pub joins: bool,
    /// Untimed: promises, stops and promotions take time, so that anything may come between.
    pub slow_disks: bool,
    /// Untimed: heartbeats may show a wall clock that is far off.
    pub drift: bool,
    /// Timed: a node may notice late that time has passed.
    pub lazy: bool,
    /// Reads may fail; else they may only take for ever.
    pub reads_fail: bool,
    /// Messages of one kind under way in one direction; a further one pushes the oldest out.
    pub messages_max: usize,
}

/// What was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Nothing: two empty directories.
    Empty,
    /// The first node led a pair; its lease has run out; both are down.
    Pair,
    /// The first node has just begun to lead at epoch 2, the second follows, and both are up.
    Warm,
    /// The first node led alone; its lease has run out; both are down.
    Alone,
}

/// One unit of time is one heartbeat interval; the drift is one unit.
pub fn timings() -> Timings {
    TIMINGS.with(|timings| *timings)
}

thread_local! {
    static TIMINGS: Timings = smallest();
}

fn smallest() -> Timings {
    let values = TimingValues {
        heartbeat_interval_ms: 1,
        heartbeat_lease_duration_ms: 3,
        max_clock_drift_ms: 1,
        s3_lease_duration_ms: 6,
    };
    Timings::new(values).expect("the smallest timings allowed").with_retry_ms(1)
}

impl Bounds {
    /// Both restart after a long healthy time, and one may crash; clocks jump.
    pub const fn untimed_pair() -> Self {
        Self {
            timed: false,
            offset: 0,
            start: Start::Pair,
            epoch_max: 2,
            crashes_max: 1,
            flights_max: 1,
            handovers_max: 0,
            joins: true,
            slow_disks: false,
            drift: false,
            lazy: false,
            reads_fail: false,
            messages_max: 1,
        }
    }

    /// The same without a crash; writes that were given up may land late, beside new ones.
    pub const fn untimed_late_writes() -> Self {
        Self { crashes_max: 0, flights_max: 2, ..Self::untimed_pair() }
    }

    /// The same; promises, stops and promotions take time.
    pub const fn untimed_slow_disks() -> Self {
        Self { crashes_max: 0, slow_disks: true, ..Self::untimed_pair() }
    }

    /// The first creates the lease, or the second does, and one may crash.
    pub const fn untimed_beginning() -> Self {
        Self { start: Start::Empty, joins: false, ..Self::untimed_pair() }
    }

    /// The second joins a leader alone.
    pub const fn untimed_membership() -> Self {
        Self { start: Start::Alone, crashes_max: 0, ..Self::untimed_pair() }
    }

    /// A leader and its follower are well at epoch 2 until either falls silent.
    pub const fn untimed_warm() -> Self {
        Self { start: Start::Warm, epoch_max: 3, crashes_max: 0, ..Self::untimed_pair() }
    }

    /// The same in time; the second node's wall clock is ahead by `offset`.
    pub const fn timed(offset: i64) -> Self {
        Self { timed: true, offset, ..Self::untimed_warm() }
    }

    /// The follower, or the leader, restarts.
    pub const fn timed_restart() -> Self {
        Self { crashes_max: 1, ..Self::timed(0) }
    }

    /// A leader gives its reign away.
    pub const fn timed_handover() -> Self {
        Self { handovers_max: 1, ..Self::timed(0) }
    }

    /// One more of everything: too wide to be explored fully within a test.
    pub const fn wider(self) -> Self {
        Self {
            epoch_max: self.epoch_max + 1,
            crashes_max: 1,
            flights_max: 2,
            slow_disks: !self.timed,
            ..self
        }
    }
}
