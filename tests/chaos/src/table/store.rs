//! A store that is away, slow, refuses, or does not answer; and copies that only it has.

use super::{C, F, L, MANY, P, PAST_LEASE, PAST_S3_LEASE};
use crate::scenario::Manner::{Away, Mute, Slow, Storm, Well};
use crate::scenario::Scenario;
use crate::scenario::Step::{
    Acked, AckedBy, HandOver, Join, Kill, Leads, NoAcks, Part, Replace, Start, Store, Wait, Whole,
    Within,
};
use crate::scenario::Who::{Follower, Leader};

/// See the module.
pub const ALL: &[Scenario] = &[
    Scenario::new(
        "s3_outage_short",
        0..=0,
        &[AckedBy(P, 200), Store(Away), AckedBy(P, 200), Wait(500, 1_500), Store(Well), Whole],
    ),
    Scenario::new(
        "s3_outage_long",
        0..=0,
        &[AckedBy(P, 200), Store(Away), PAST_S3_LEASE, AckedBy(P, 200), Store(Well), Whole],
    ),
    Scenario::new(
        "s3_slow",
        0..=MANY,
        &[
            AckedBy(P, 200),
            Store(Slow(300)),
            Kill(Follower),
            AckedBy(C, 40),
            Start(Follower),
            AckedBy(P, 50),
            Kill(Leader),
            Acked(20),
            Store(Well),
            Start(Leader),
            Whole,
        ],
    ),
    Scenario::new(
        "s3_503_storm",
        0..=MANY,
        &[
            AckedBy(P, 200),
            Store(Storm),
            Kill(Leader),
            // A healthy failover would be over by then.
            NoAcks(6_000),
            Store(Well),
            Leads(Follower),
            Start(Leader),
            Whole,
        ],
    ),
    Scenario::new(
        "s3_replies_lost",
        0..=MANY,
        &[
            AckedBy(P, 200),
            Store(Mute(3)),
            Kill(Leader),
            Leads(Follower),
            Store(Mute(3)),
            AckedBy(C, 50),
            Start(Leader),
            Whole,
        ],
    )
    .short(),
    Scenario::new(
        "apart_then_s3_outage",
        0..=MANY,
        &[
            AckedBy(P, 200),
            Part(L, F),
            AckedBy(C, 50),
            Store(Away),
            NoAcks(2_000),
            Store(Well),
            Acked(50),
            Join(L, F),
            Whole,
        ],
    ),
    Scenario::new(
        "s3_and_follower_gone",
        0..=MANY,
        &[
            AckedBy(P, 200),
            Store(Away),
            Kill(Follower),
            NoAcks(2_000),
            Store(Well),
            AckedBy(C, 50),
            Start(Follower),
            Whole,
        ],
    )
    .short(),
    Scenario::new(
        "apart_then_leader_killed",
        1..=2,
        &[
            AckedBy(P, 200),
            Part(L, F),
            PAST_LEASE,
            AckedBy(C, 300),
            Kill(Leader),
            Leads(Follower),
            Acked(100),
            Join(L, F),
            Start(Leader),
            Whole,
        ],
    )
    .short(),
    Scenario::new(
        "follower_back_as_leader",
        1..=2,
        &[
            AckedBy(P, 200),
            Kill(Follower),
            AckedBy(C, 300),
            Kill(Leader),
            Start(Follower),
            Leads(Follower),
            Acked(100),
            Start(Leader),
            Whole,
        ],
    ),
    Scenario::new(
        "leader_lost_with_its_disk",
        2..=3,
        &[
            AckedBy(P, 200),
            Part(L, F),
            PAST_LEASE,
            AckedBy(C, 300),
            Replace(Leader),
            Within(15_000, &[AckedBy(P, 100)]),
            Whole,
            HandOver,
            Whole,
            AckedBy(P, 100),
        ],
    )
    .short(),
];
