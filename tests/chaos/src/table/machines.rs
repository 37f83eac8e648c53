//! Clocks that are wrong, disks that are full, fail, lose their power or are lost.

use super::{C, HOUR_MS, MANY, NO_SPACE, P, SKEW_MS};
use crate::scenario::DiskFate::{Fails, Free, Full, PowerCut};
use crate::scenario::Step::{
    Acked, AckedBy, Clock, Disk, Kill, Leads, Logged, Mend, Replace, Stalls, Start, Times, Whole,
};
use crate::scenario::Who::{Follower, Leader};
use crate::scenario::{Need, Scenario, Step};

/// See the module.
pub const ALL: &[Scenario] = &[
    turned("clock_leader_ahead", &[Clock(Leader, HOUR_MS)]),
    turned("clock_leader_behind", &[Clock(Leader, -HOUR_MS)]),
    turned("clock_follower_ahead", &[Clock(Follower, HOUR_MS)]).short(),
    turned("clock_follower_behind", &[Clock(Follower, -HOUR_MS)]),
    turned("clock_leader_skewed", &[Clock(Leader, SKEW_MS)]),
    turned("clock_follower_skewed", &[Clock(Follower, SKEW_MS)]),
    Scenario::new(
        "disk_full_leader",
        0..=MANY,
        &[
            AckedBy(P, 100),
            Disk(Leader, Full),
            Logged(Leader, NO_SPACE),
            // There is room in the segments that are prepared.
            Stalls(1_000),
            Disk(Leader, Free),
            Acked(200),
            Whole,
        ],
    )
    .needs(&[Need::Disks]),
    Scenario::new(
        "disk_full_follower",
        0..=MANY,
        &[
            AckedBy(P, 100),
            Disk(Follower, Full),
            Logged(Follower, NO_SPACE),
            AckedBy(C, 300),
            Disk(Follower, Free),
            AckedBy(P, 200),
            Whole,
        ],
    )
    .needs(&[Need::Disks]),
    leader_ends_by("disk_fails_leader", &[AckedBy(P, 200), Disk(Leader, Fails)]),
    Scenario::new(
        "disk_fails_follower",
        0..=0,
        &[
            AckedBy(P, 200),
            Disk(Follower, Fails),
            AckedBy(C, 100),
            Start(Follower),
            AckedBy(P, 100),
        ],
    )
    .needs(&[Need::Disks]),
    leader_ends_by("power_cut_leader", &[AckedBy(P, 500), Disk(Leader, PowerCut)]),
    Scenario::new(
        "power_cut_both",
        0..=MANY,
        &[Times(
            2,
            &[
                AckedBy(P, 500),
                Kill(Leader),
                Kill(Follower),
                Disk(Leader, PowerCut),
                Disk(Follower, PowerCut),
                Start(Leader),
                Start(Follower),
                Whole,
            ],
        )],
    )
    .needs(&[Need::Disks])
    .short(),
    Scenario::new(
        "blank_node",
        0..=0,
        &[AckedBy(P, 1_000), Replace(Follower), AckedBy(P, 300), Whole],
    )
    .short(),
];

/// A clock is turned under load, the leader dies, comes back, and the clock is right again. A node
/// whose clock is too far off does not follow: meanwhile the second copy is in the bucket.
const fn turned(name: &'static str, turn: &'static [Step]) -> Scenario {
    let mut scenario = Scenario::new(
        name,
        1..=MANY,
        &[
            Logged(Follower, "clock_drift"),
            AckedBy(C, 200),
            Kill(Leader),
            Acked(100),
            Start(Leader),
            Acked(50),
            Mend,
            Whole,
            AckedBy(P, 100),
        ],
    );
    scenario.first = turn;
    scenario.needs(&[Need::Clocks])
}

/// The leader's disk takes the leader with it; it comes back with the disk.
const fn leader_ends_by(name: &'static str, end: &'static [Step]) -> Scenario {
    let mut scenario =
        Scenario::new(name, 1..=2, &[Leads(Follower), AckedBy(C, 100), Start(Leader), Whole]);
    scenario.first = end;
    scenario.needs(&[Need::Disks])
}
