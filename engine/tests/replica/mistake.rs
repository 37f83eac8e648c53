//! Mistakes that can be made around the machines, or in place of one of their rules.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// P3: the end of a chain is believed without a Seal.
    NoSeal,
    /// P3: what a listing did not show when the promotion began does not exist.
    ListingTrusted,
    /// P3: a refused Seal counts as a Seal, without another look.
    SealConflictIgnored,
    /// P2, P3: logs are compared by LSN, not by hash.
    HashesNotCompared,
    /// P5: the Open's base is the log's end, whatever is committed.
    BaseTooHigh,
    /// P5: writes begin before the Open is stored.
    OpenNotAwaited,
    /// R3: the follower acks what it has without cutting what is not in the leader's log.
    AckWithoutCut,
    /// R3: a second hello cuts a log that follows its reign already.
    SecondHelloCuts,
    /// R2: acks of older epochs count.
    OlderAcksCount,
    /// R2: an object counts although a lower one is not stored.
    HolesIgnored,
    /// R2: commits do not wait for the leader's own disk.
    OwnDiskNotAwaited,
    /// C1: a Batch begins behind what the follower acked, committed or not.
    AckedPredecessor,
    /// C2: a repeated PUT carries newer blocks, too.
    RepeatWithMore,
    /// C2: an unknown outcome counts as stored.
    UnknownMeansStored,
    /// C2: a refused object counts as stored.
    ConflictMeansStored,
    /// P2: the follower is told of objects that are only under way.
    ChainToldTooEarly,
    /// G2: older chains are deleted before the follower has the base.
    GarbageUnconditional,
    /// G1: the running chain is shortened.
    RunningChainDeleted,
    /// Section 2: the promise is not on disk when a hello is answered.
    PromiseForgotten,
    /// P1: a promoted node goes on following older reigns.
    PromiseIgnored,
}

pub const MISTAKES: &[Mistake] = &[
    Mistake::NoSeal,
    Mistake::ListingTrusted,
    Mistake::SealConflictIgnored,
    Mistake::HashesNotCompared,
    Mistake::BaseTooHigh,
    Mistake::OpenNotAwaited,
    Mistake::AckWithoutCut,
    Mistake::SecondHelloCuts,
    Mistake::OlderAcksCount,
    Mistake::HolesIgnored,
    Mistake::OwnDiskNotAwaited,
    Mistake::AckedPredecessor,
    Mistake::RepeatWithMore,
    Mistake::UnknownMeansStored,
    Mistake::ConflictMeansStored,
    Mistake::ChainToldTooEarly,
    Mistake::GarbageUnconditional,
    Mistake::RunningChainDeleted,
    Mistake::PromiseForgotten,
    Mistake::PromiseIgnored,
];
