//! Single ends of nodes, and ends again and again.

use super::{C, MANY, P, PAST_S3_LEASE};
use crate::scenario::Scenario;
use crate::scenario::Step::{
    Acked, AckedBy, Freeze, HandOver, Kill, Leads, Start, Stop, Thaw, Times, Wait, Whole,
};
use crate::scenario::Who::{Either, Follower, Leader};

/// See the module.
pub const ALL: &[Scenario] = &[
    Scenario::new("baseline", 0..=0, &[AckedBy(P, 2_000), Wait(5_000, 5_000), AckedBy(P, 200)])
        .s3_requests(0)
        .short(),
    Scenario::new(
        "leader_sigkill",
        1..=1,
        &[AckedBy(P, 300), Kill(Leader), Leads(Follower), AckedBy(C, 100), Start(Leader), Whole],
    )
    .short(),
    Scenario::new(
        "follower_sigkill",
        0..=0,
        &[AckedBy(P, 300), Kill(Follower), AckedBy(C, 300), Start(Follower), AckedBy(P, 200)],
    )
    .short(),
    Scenario::new(
        "leader_sigterm",
        1..=1,
        &[AckedBy(P, 300), Stop(Leader), Leads(Follower), Acked(100), Start(Leader), Whole],
    ),
    Scenario::new(
        "follower_sigterm",
        0..=0,
        &[AckedBy(P, 300), Stop(Follower), AckedBy(C, 100), Start(Follower), AckedBy(P, 100)],
    ),
    Scenario::new(
        "sigstop_leader",
        1..=1,
        &[AckedBy(P, 300), Freeze(Leader), Leads(Follower), Acked(100), Thaw(Leader), Whole],
    )
    .short(),
    Scenario::new(
        "sigstop_leader_past_s3_lease",
        1..=1,
        &[AckedBy(P, 300), Freeze(Leader), PAST_S3_LEASE, Acked(100), Thaw(Leader), Whole],
    ),
    Scenario::new(
        "sigstop_follower",
        0..=0,
        &[AckedBy(P, 300), Freeze(Follower), AckedBy(C, 200), Thaw(Follower), AckedBy(P, 200)],
    ),
    Scenario::new(
        "kill_loop",
        0..=MANY,
        &[Times(5, &[AckedBy(P, 150), Kill(Either), Acked(50), Start(Either), Whole])],
    )
    .shards(2),
    Scenario::new(
        "rolling_restart",
        1..=3,
        &[
            AckedBy(P, 200),
            Times(2, &[Stop(Follower), Acked(50), Start(Follower), Whole]),
            Stop(Leader),
            Acked(50),
            Start(Leader),
            Whole,
        ],
    )
    .short(),
    Scenario::new("handovers", 6..=6, &[Times(6, &[AckedBy(P, 100), HandOver, Whole])]),
    Scenario::new(
        "both_killed",
        0..=MANY,
        &[Times(
            3,
            &[AckedBy(P, 200), Kill(Leader), Kill(Follower), Start(Leader), Start(Follower), Whole],
        )],
    )
    .short(),
];
