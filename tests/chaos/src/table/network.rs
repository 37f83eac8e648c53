//! Who does not reach whom.

use super::{C, F, L, MANY, P, PAST_LEASE, PAST_S3_LEASE, S};
use crate::scenario::Scenario;
use crate::scenario::Step::{
    AckedBy, Cut, Deposed, Join, Kill, Leads, NoAcks, Part, Start, Times, Wait, Whole,
};
use crate::scenario::Who::{Follower, Leader};

/// See the module.
pub const ALL: &[Scenario] = &[
    Scenario::new(
        "leader_without_s3",
        0..=1,
        &[
            AckedBy(P, 200),
            Part(L, S),
            PAST_S3_LEASE,
            AckedBy(P, 200),
            Kill(Follower),
            NoAcks(2_000),
            Join(L, S),
            AckedBy(C, 50),
            Start(Follower),
            Whole,
        ],
    ),
    Scenario::new(
        "follower_without_s3",
        1..=1,
        &[
            AckedBy(P, 200),
            Part(F, S),
            PAST_S3_LEASE,
            AckedBy(P, 200),
            Kill(Leader),
            NoAcks(4_000),
            Join(F, S),
            Leads(Follower),
            AckedBy(C, 50),
            Start(Leader),
            Whole,
        ],
    ),
    Scenario::new(
        "peers_apart",
        0..=2,
        &[AckedBy(P, 200), Part(L, F), PAST_LEASE, AckedBy(C, 200), Join(L, F), AckedBy(P, 200)],
    )
    .short(),
    Scenario::new(
        "peers_apart_one_way_to_follower",
        0..=3,
        &[AckedBy(P, 200), Cut(L, F), PAST_LEASE, AckedBy(C, 200), Join(L, F), Whole],
    ),
    Scenario::new(
        "peers_apart_one_way_to_leader",
        0..=3,
        &[AckedBy(P, 200), Cut(F, L), PAST_LEASE, AckedBy(C, 200), Join(L, F), Whole],
    ),
    Scenario::new(
        "leader_isolated",
        1..=1,
        &[
            AckedBy(P, 200),
            Part(L, F),
            Part(L, S),
            Leads(Follower),
            AckedBy(C, 200),
            Join(L, F),
            Join(L, S),
            Deposed(Leader),
            Whole,
        ],
    )
    .short(),
    Scenario::new(
        "follower_isolated",
        0..=0,
        &[
            AckedBy(P, 200),
            Part(L, F),
            Part(F, S),
            AckedBy(C, 200),
            Join(L, F),
            Join(F, S),
            AckedBy(P, 200),
        ],
    ),
    Scenario::new(
        "flapping_peers",
        0..=MANY,
        &[
            AckedBy(P, 100),
            Times(8, &[Part(L, F), Wait(100, 1_500), Join(L, F), Wait(50, 1_000)]),
            Whole,
        ],
    ),
    Scenario::new(
        "flapping_s3",
        0..=0,
        &[
            AckedBy(P, 100),
            Times(8, &[Part(L, S), Part(F, S), Wait(100, 1_500), Join(L, S), Join(F, S)]),
            AckedBy(P, 100),
        ],
    ),
];
