//! The scenarios.

use duolog_net::wire::Copies;

use crate::scenario::DiskFate::{Fails, Free, Full, PowerCut};
use crate::scenario::End::{self, Node};
use crate::scenario::Manner::{Away, Mute, Slow, Storm, Well};
use crate::scenario::Step::{
    Acked, AckedBy, Clock, Connect, Contend, Cut, Deposed, Disk, Freeze, HandOver, Join, Kill,
    Leads, Logged, Medley, MedleyWith, Mend, NoAcks, Part, Replace, Replay, Start, Stop, Store,
    Thaw, Times, Wait, Whole, Within,
};
use crate::scenario::Who::{Either, Follower, Leader};
use crate::scenario::{Need, Scenario, Step};

/// Longer than the lease by heartbeats, ms: 1500, and 500 for the clocks.
const PAST_LEASE: Step = Wait(2_500, 4_000);
/// Longer than the lease by S3, ms: 4000, and the clocks.
const PAST_S3_LEASE: Step = Wait(6_000, 8_000);
/// What a node says of a disk without space.
const NO_SPACE: &str = "segment_not_prepared";
/// More than any number of elections that a scenario may have.
const MANY: u64 = 100;
const HOUR_MS: i64 = 3_600_000;
/// Beyond the drift of 500 ms that the settings allow.
const SKEW_MS: i64 = 2_500;

const L: End = Node(Leader);
const F: End = Node(Follower);
const S: End = End::Store;
/// Acknowledged by the other node.
const P: Copies = Copies::ThisDiskAndPeer;
/// Acknowledged by the chain in the bucket.
const C: Copies = Copies::ThisDiskAndS3;

/// All of them, in the order of their telling. What each has to show stands in its steps: a step
/// that waits for something fails the scenario when it does not come.
pub const TABLE: &[Scenario] = &[
    // ---- nothing, and single ends ----
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
    // ---- again and again ----
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
    // ---- the network ----
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
    // ---- the store ----
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
    // ---- clocks ----
    turned("clock_leader_ahead", LEADER_AHEAD),
    turned("clock_leader_behind", LEADER_BEHIND),
    turned("clock_follower_ahead", FOLLOWER_AHEAD).short(),
    turned("clock_follower_behind", FOLLOWER_BEHIND),
    turned("clock_leader_skewed", LEADER_SKEWED),
    turned("clock_follower_skewed", FOLLOWER_SKEWED),
    // ---- disks ----
    Scenario::new(
        "disk_full_leader",
        0..=MANY,
        &[
            AckedBy(P, 100),
            Disk(Leader, Full),
            Logged(Leader, NO_SPACE),
            NoAcks(1_000),
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
    Scenario::new(
        "disk_fails_leader",
        1..=2,
        &[
            AckedBy(P, 200),
            Disk(Leader, Fails),
            Leads(Follower),
            AckedBy(C, 100),
            Start(Leader),
            Whole,
        ],
    )
    .needs(&[Need::Disks]),
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
    Scenario::new(
        "power_cut_leader",
        1..=2,
        &[
            AckedBy(P, 500),
            Disk(Leader, PowerCut),
            Leads(Follower),
            AckedBy(C, 100),
            Start(Leader),
            Whole,
        ],
    )
    .needs(&[Need::Disks]),
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
    // ---- the copy in the bucket is the only other one ----
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
    // ---- clients ----
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
    // ---- by chance ----
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

const LEADER_AHEAD: &[Step] = &[Clock(Leader, HOUR_MS)];
const LEADER_BEHIND: &[Step] = &[Clock(Leader, -HOUR_MS)];
const FOLLOWER_AHEAD: &[Step] = &[Clock(Follower, HOUR_MS)];
const FOLLOWER_BEHIND: &[Step] = &[Clock(Follower, -HOUR_MS)];
const LEADER_SKEWED: &[Step] = &[Clock(Leader, SKEW_MS)];
const FOLLOWER_SKEWED: &[Step] = &[Clock(Follower, SKEW_MS)];

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

/// The scenario of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Scenario> {
    TABLE.iter().find(|scenario| scenario.name == name)
}
