//! The machine's output that shards check by themselves.

use crate::ids::{LeaseEpoch, MonoMs};

/// Leave to serve, for one reign. A shard compares it with its own reading of the clock before an
/// append enters the pipeline and again before each ack (L8), and before each linearizable read:
/// it needs no timer to have fired. A newer grant of the same epoch only ever moves the times on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The reign; goes on every block.
    pub epoch: LeaseEpoch,
    /// First moment at which nothing may be acknowledged or read any more. The margin for clock
    /// drift is taken off already.
    pub serve_until: MonoMs,
    /// Whether new appends may enter.
    pub admission: Admission,
    /// From here on an upload to the chain should ask for a renewal.
    pub renewal_from: MonoMs,
    /// First moment at which uploads to the chain must wait for a renewal (rule C3).
    pub upload_until: MonoMs,
}

/// Whether new appends may enter the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Admission {
    /// Yes.
    Open,
    /// No: the leader is handing over (L11). What is in flight may still be acknowledged.
    Closed,
}

/// What an upload to the chain may do at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UploadPermit {
    /// Start.
    Go,
    /// Start, and hand the machine a `RenewalWanted`.
    GoAndAskRenewal,
    /// Hand the machine a `RenewalWanted` and wait for a newer grant.
    WaitForRenewal,
}

impl Grant {
    /// Whether acks may leave at `now`.
    #[must_use]
    pub fn serves(&self, now: MonoMs) -> bool {
        now < self.serve_until
    }

    /// Whether linearizable reads may leave at `now` (Q5). Not while it hands over: the `Resign`
    /// leaves when every shard has drained, and the grant is withdrawn in the same moment, which a
    /// shard with much else to do may hear when the successor serves already (L11).
    #[must_use]
    pub fn answers_reads(&self, now: MonoMs) -> bool {
        self.admits(now)
    }

    /// Whether new appends may enter at `now`.
    #[must_use]
    pub fn admits(&self, now: MonoMs) -> bool {
        self.admission == Admission::Open && self.serves(now)
    }

    /// Whether an upload to the chain may start at `now`.
    #[must_use]
    pub fn upload(&self, now: MonoMs) -> UploadPermit {
        if now >= self.upload_until {
            UploadPermit::WaitForRenewal
        } else if now >= self.renewal_from {
            UploadPermit::GoAndAskRenewal
        } else {
            UploadPermit::Go
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_sees_the_end_of_its_grant_with_its_own_clock() {
        let mut grant = Grant {
            epoch: LeaseEpoch(3),
            serve_until: MonoMs(1000),
            admission: Admission::Open,
            renewal_from: MonoMs(15_001),
            upload_until: MonoMs(30_000),
        };
        assert!(grant.serves(MonoMs(999)) && grant.admits(MonoMs(999)));
        assert!(grant.answers_reads(MonoMs(999)) && !grant.answers_reads(MonoMs(1000)));
        assert!(!grant.serves(MonoMs(1000)) && !grant.admits(MonoMs(1000)));
        grant.admission = Admission::Closed;
        assert!(grant.serves(MonoMs(999)) && !grant.admits(MonoMs(999)));
        assert!(!grant.answers_reads(MonoMs(999)), "L11: it hands over");
        assert_eq!(grant.upload(MonoMs(15_000)), UploadPermit::Go);
        assert_eq!(grant.upload(MonoMs(15_001)), UploadPermit::GoAndAskRenewal);
        assert_eq!(grant.upload(MonoMs(29_999)), UploadPermit::GoAndAskRenewal);
        assert_eq!(grant.upload(MonoMs(30_000)), UploadPermit::WaitForRenewal);
    }
}
