//! What a seed decides before a run begins.

use duolog_lease::rules::{Mistake as LeaseMistake, Rules};
use duolog_lease::timings::{TimingValues, Timings};

use crate::sim::chance::Chance;

/// What clocks may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// They keep the bounds that the settings name: reads are fresh, too.
    Bounded,
    /// They do what they like: only safety is promised.
    Arbitrary,
}

/// Mistakes that can be made in place of a rule, to see that they are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// P3: a Seal is said to be stored and is not sent.
    NoSeal,
    /// P5: writes begin before the Open is stored.
    OpenNotAwaited,
    /// L1: a leader that comes back leads on at its old epoch.
    PromiseForgotten,
    /// L8: the grant never runs out.
    EndlessGrant,
    /// R2: what was sent to the follower counts as acked.
    AckWithoutCoverage,
    /// R3: a hello never cuts.
    AckWithoutCut,
    /// D3: a write counts as durable when it begins.
    DurableTooEarly,
    /// L3: a node that challenges goes on acking.
    FollowsOn,
    /// P3: chains are not read.
    ChainIgnored,
    /// C2: an unknown outcome counts as stored.
    UnknownMeansStored,
    /// G1: objects of the running chain are deleted.
    RunningChainDeleted,
    /// R5: the leader's end is told as its commit mark.
    ShowsUncommitted,
    /// C2: a refused object counts as stored.
    ConflictMeansStored,
    /// R2: an object counts although a lower one is not stored.
    HolesIgnored,
    /// G2: older chains are deleted before the follower has the base.
    GarbageUnconditional,
    /// P2, P3: logs are compared by LSN, not by hash.
    HashesNotCompared,
    /// D4: the mark on disk names what is not committed.
    MarkTooHigh,
    /// L11, Q5: a shard that has drained answers linearizable reads.
    ReadsWhileHandingOver,
    /// D3: a write that failed counts as done.
    FailedWriteCounts,
    /// D4: a log with damage is cut before it.
    DamageIsCut,
    /// A rule of the lease machine.
    Lease(LeaseMistake),
}

/// The lease machine's rules, one of them broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Planted(pub Option<LeaseMistake>);

impl Rules for Planted {
    fn breaks(&self, mistake: LeaseMistake) -> bool {
        self.0 == Some(mistake)
    }
}

impl Mistake {
    /// All of them.
    pub const ALL: [Self; 40] = [
        // Those that take the most seeds come first: the others fit beside them.
        Self::Lease(LeaseMistake::StopNotAwaited),
        Self::Lease(LeaseMistake::GivenUpLeads),
        Self::NoSeal,
        Self::OpenNotAwaited,
        Self::PromiseForgotten,
        Self::EndlessGrant,
        Self::AckWithoutCoverage,
        Self::AckWithoutCut,
        Self::DurableTooEarly,
        Self::FollowsOn,
        Self::ChainIgnored,
        Self::UnknownMeansStored,
        Self::RunningChainDeleted,
        Self::ShowsUncommitted,
        Self::ConflictMeansStored,
        Self::HolesIgnored,
        Self::GarbageUnconditional,
        Self::HashesNotCompared,
        Self::MarkTooHigh,
        Self::ReadsWhileHandingOver,
        Self::FailedWriteCounts,
        Self::DamageIsCut,
        Self::Lease(LeaseMistake::RestartKeepsEpoch),
        Self::Lease(LeaseMistake::EpochNotRaised),
        Self::Lease(LeaseMistake::AckWhileChallenging),
        Self::Lease(LeaseMistake::StopForgotten),
        Self::Lease(LeaseMistake::OutsiderChallenges),
        Self::Lease(LeaseMistake::UnknownMeansWon),
        Self::Lease(LeaseMistake::TokensNotCompared),
        Self::Lease(LeaseMistake::LeaseFromAck),
        Self::Lease(LeaseMistake::LeaseFromAnswer),
        Self::Lease(LeaseMistake::NoFenceMargin),
        Self::Lease(LeaseMistake::S3ExpiryIgnored),
        Self::Lease(LeaseMistake::RestartWaitSkipped),
        Self::Lease(LeaseMistake::ConflictIgnored),
        Self::Lease(LeaseMistake::ResignEpochUnchecked),
        Self::Lease(LeaseMistake::ServeAfterResign),
        Self::Lease(LeaseMistake::ProposalUncounted),
        Self::Lease(LeaseMistake::PromiseUnchecked),
        Self::Lease(LeaseMistake::PromiseNotAwaited),
    ];

    /// What it makes of the lease machine.
    #[must_use]
    pub const fn planted(mistake: Option<Self>) -> Planted {
        match mistake {
            Some(Self::Lease(mistake)) => Planted(Some(mistake)),
            _ => Planted(None),
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// What clocks may do.
    pub profile: Profile,
    /// The mistake, if any.
    pub mistake: Option<Mistake>,
    /// How long faults happen, ms.
    pub faulty_ms: u64,
    /// The lease's settings.
    pub timings: Timings,
    /// Pause between two faults, ms, at most.
    pub fault_pause_ms: u64,
    /// Ordinary round trip to the store, us.
    pub store_us: u64,
    /// Of 100 calls to the store so many meet a fault.
    pub store_fault_percent: u64,
    /// Ordinary one-way time between the nodes, us.
    pub wire_us: u64,
    /// Longest ordinary write to a disk, us.
    pub disk_us: u64,
    /// Blocks that may be under way to a disk.
    pub blocks_in_flight: usize,
    /// How long uploads wait for company, ms.
    pub replication_delay_ms: u64,
    /// Clients.
    pub clients: usize,
    /// Their longest pause, us.
    pub think_us: u64,
    /// Whether lines are kept for a reader.
    pub trace: bool,
}

impl Plan {
    /// The plan of a seed: `faulty_ms` of faults under `profile`.
    #[must_use]
    pub fn new(seed: u64, profile: Profile, faulty_ms: u64) -> Self {
        let mut chance = Chance::new(seed, "plan");
        let values = TimingValues {
            s3_lease_duration_ms: chance.pick(&[3_000, 3_000, 5_000, 10_000, 30_000]),
            ..TimingValues::default()
        };
        Self {
            seed,
            profile,
            mistake: None,
            faulty_ms,
            timings: Timings::new(values).expect("these settings fit together"),
            fault_pause_ms: chance.pick(&[2_000, 5_000, 15_000]),
            store_us: chance.pick(&[500, 5_000, 20_000]),
            store_fault_percent: chance.pick(&[0, 2, 10]),
            wire_us: chance.pick(&[50, 200, 2_000]),
            disk_us: chance.pick(&[200, 2_000]),
            blocks_in_flight: chance.pick(&[1, 2, 8]),
            replication_delay_ms: chance.pick(&[0, 5]),
            clients: chance.between(2, 6) as usize,
            think_us: chance.pick(&[20_000, 50_000, 200_000]),
            trace: false,
        }
    }
}
