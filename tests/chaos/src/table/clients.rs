//! What clients do, and faults by chance.

use super::{HOUR_MS, MANY, P, SKEW_MS};
use crate::scenario::DiskFate::PowerCut;
use crate::scenario::Step::{
    Acked, AckedBy, Clock, Connect, Contend, Disk, Kill, Leads, Medley, MedleyWith, Replay, Start,
    Whole,
};
use crate::scenario::Who::{Follower, Leader};
use crate::scenario::{Need, Scenario, Step};

/// See the module.
pub const ALL: &[Scenario] = &[
    Scenario::new(
        "replay_everything",
        1..=1,
        &[AckedBy(P, 1_000), Kill(Leader), Leads(Follower), Replay, Start(Leader), Whole],
    ),
    Scenario::new(
        "contended_stream",
        1..=1,
        &[Contend(8, 300), Kill(Leader), Contend(8, 300), Start(Leader), Whole],
    ),
    Scenario::new(
        "many_connections",
        1..=1,
        &[
            AckedBy(P, 100),
            Connect(5_000),
            AckedBy(P, 100),
            Kill(Leader),
            Leads(Follower),
            Connect(5_000),
            Acked(100),
            Start(Leader),
            Whole,
        ],
    ),
    Scenario::new("medley", 0..=MANY, &[Medley(6)]).short(),
    Scenario::new("medley_of_three_shards", 0..=MANY, &[Medley(6)]).shards(3),
    Scenario::new("medley_of_clocks_and_power", 0..=MANY, &[MedleyWith(MORE, 6)])
        .needs(&[Need::Clocks, Need::Disks]),
];

/// Faults of [`Need::Clocks`] and [`Need::Disks`] for a medley. A disk that loses its power
/// takes its node with it.
const MORE: &[&[Step]] = &[
    &[Clock(Leader, 300)],
    &[Clock(Follower, -300)],
    &[Clock(Leader, SKEW_MS)],
    &[Clock(Follower, -SKEW_MS)],
    &[Clock(Leader, -HOUR_MS)],
    &[Clock(Follower, HOUR_MS)],
    &[Disk(Leader, PowerCut)],
    &[Disk(Follower, PowerCut)],
];
