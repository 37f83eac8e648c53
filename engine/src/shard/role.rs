//! Standalone, follower, promoting or leader: who may append, what lets a block commit, and whose
//! blocks are taken. The moves between roles are the lease machine's decisions, told as events.

use duolog_lease::grant::Grant;

use super::assembly::Answer;
use super::{Actions, Refusal, Shard, State};
use crate::ids::{LeaseEpoch, Lsn, Now};

/// What the shard is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The only node: a block commits when it is written.
    Standalone,
    /// Takes blocks of the leader of `epoch`, or of nobody.
    Follower {
        /// The reign followed.
        epoch: Option<LeaseEpoch>,
    },
    /// Has won the reign and takes what the chains hold; no appends yet (rules P2 to P4).
    Promoting {
        /// The reign.
        epoch: LeaseEpoch,
    },
    /// Takes appends as far as its grant goes.
    Leader {
        /// The reign.
        epoch: LeaseEpoch,
    },
}

impl Role {
    /// The reign that goes on own blocks; 0 where there are none.
    pub(super) const fn block_epoch(self) -> LeaseEpoch {
        match self {
            Self::Leader { epoch } => epoch,
            _ => LeaseEpoch(0),
        }
    }

    /// Whether blocks are made here.
    pub(super) const fn makes_blocks(self) -> bool {
        matches!(self, Self::Standalone | Self::Leader { .. })
    }
}

impl Shard {
    /// The shard's role.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Why no append may enter now; `None` if it may.
    pub(super) fn closed_to_appends(&self, now: Now) -> Option<Refusal> {
        match self.role {
            Role::Standalone | Role::Leader { .. } if self.state != State::Serving => {
                Some(Refusal::ShuttingDown)
            }
            Role::Standalone => None,
            // L8: the grant is held against the clock, not against a timer.
            Role::Leader { .. }
                if self.grant_in_force().is_some_and(|g| g.admits(now.mono.ms())) =>
            {
                None
            }
            _ => Some(Refusal::NotLeader),
        }
    }

    fn grant_in_force(&self) -> Option<Grant> {
        self.grant.filter(|grant| self.role == Role::Leader { epoch: grant.epoch })
    }

    /// Everything up to here may commit once it is durable here.
    pub(super) fn commit_limit(&self, now: Now) -> Lsn {
        match self.role {
            Role::Standalone => Lsn(u64::MAX),
            // L8: without a grant nothing is acknowledged; a newer one may come.
            Role::Leader { .. }
                if self.grant_in_force().is_some_and(|g| g.serves(now.mono.ms())) =>
            {
                self.coverage.covered()
            }
            Role::Leader { .. } => Lsn(0),
            Role::Follower { .. } | Role::Promoting { .. } => self.mark,
        }
    }

    /// Whether events of a pair concern this shard.
    fn in_pair(&self) -> bool {
        self.role != Role::Standalone && self.state != State::Poisoned
    }

    pub(super) fn set_grant(&mut self, now: Now, grant: Option<Grant>, out: &mut Actions) {
        if self.in_pair() {
            self.grant = grant;
            self.commit(now, out);
        }
    }

    pub(super) fn follow(&mut self, epoch: LeaseEpoch, out: &mut Actions) {
        // R3: never below a reign that was followed, led or written before.
        if !self.in_pair() || epoch < self.reign {
            return;
        }
        match self.role {
            Role::Follower { epoch: Some(followed) } if followed == epoch => return,
            // Nobody else has this node's own reign.
            Role::Leader { epoch: own } | Role::Promoting { epoch: own } if own == epoch => return,
            _ => {}
        }
        self.step_down(out);
        self.reign = epoch;
        self.role = Role::Follower { epoch: Some(epoch) };
    }

    /// L3: from here on no ack leaves this node, whatever is still under way to the disk.
    pub(super) fn stop_following(&mut self) {
        if let Role::Follower { epoch: Some(_) } = self.role {
            self.leave_the_leader();
            self.role = Role::Follower { epoch: None };
        }
    }

    pub(super) fn promote(&mut self, epoch: LeaseEpoch, out: &mut Actions) {
        if !self.in_pair() || epoch <= self.reign {
            return;
        }
        self.step_down(out);
        self.reign = epoch;
        self.role = Role::Promoting { epoch };
        self.coverage.begin(epoch);
        // It is to serve, also when it was drained in an earlier reign.
        self.state = State::Serving;
    }

    /// P5: the Open of the reign is stored. What is durable in the log is committed by that; what
    /// is still under way to the disk is covered.
    pub(super) fn opened(&mut self, epoch: LeaseEpoch, out: &mut Actions) {
        if !self.in_pair() || self.role != (Role::Promoting { epoch }) {
            return;
        }
        self.role = Role::Leader { epoch };
        self.coverage.chain_stored(epoch, self.end.lsn);
        self.commit_up_to(self.durable.lsn, out);
    }

    /// L10: stops being leader at once, or stops becoming one. What was appended stays in memory as
    /// it stays in the log: an uncommitted tail, which the next leader keeps or cuts.
    pub(super) fn demote(&mut self, out: &mut Actions) {
        if self.in_pair() && !matches!(self.role, Role::Follower { .. }) {
            self.step_down(out);
        }
    }

    /// Becomes the follower of nobody.
    fn step_down(&mut self, out: &mut Actions) {
        match self.role {
            Role::Leader { .. } => self.abdicate(out),
            Role::Follower { .. } | Role::Promoting { .. } => self.leave_the_leader(),
            Role::Standalone => {}
        }
        self.role = Role::Follower { epoch: None };
    }

    fn leave_the_leader(&mut self) {
        // A mark beyond this log's end is about the leader's log; the next one's may be another.
        self.mark = self.mark.min(self.end.lsn);
    }

    fn abdicate(&mut self, out: &mut Actions) {
        if self.open_started && !self.open.is_empty() {
            self.close_block(out);
        }
        self.grant = None;
        self.mark = self.committed.lsn;
        for block in &mut self.closed {
            for pending in block.pending.drain(..) {
                self.in_flight -= 1;
                self.in_flight_bytes -= pending.request_bytes as usize;
                // L10: the block may live on. What was refused left nothing behind for certain.
                let refusal = match pending.answer {
                    Answer::Appended { .. } => Refusal::Unknown,
                    Answer::Refuse(_) => Refusal::NotLeader,
                };
                out.refuse(pending.to, refusal);
            }
        }
        for append in self.parked.drain() {
            self.in_flight -= 1;
            self.in_flight_bytes -= append.bytes.len();
            out.refuse(append.to, Refusal::NotLeader);
        }
        // Replays that are being read are answered when they are: committed, whoever leads.
    }
}
