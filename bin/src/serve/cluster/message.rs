//! What the lease machine's driver on shard 0 and the shards tell one another, across threads.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use duolog_engine::ids::{LeaseEpoch, Lsn, NodeId, ShardId};
use duolog_engine::shard::RequestId;
use duolog_lease::event::{PromotionFailure, Refusal};
use duolog_lease::grant::Grant;
use duolog_lease::in_sync::InSync;
use duolog_net::peer::PeerHello;

use super::chronicle::PromotionTimes;
use super::store::Told;
use crate::serve::rebuild::Rebuilt;

/// A connection of the other node, with what has been read from it.
#[derive(Debug)]
pub struct PeerSocket {
    /// The socket.
    pub socket: OwnedFd,
    /// Its first message.
    pub hello: Box<PeerHello>,
    /// Bytes that came behind it.
    pub rest: Vec<u8>,
}

/// To any shard.
#[derive(Debug)]
pub enum ToShard {
    /// Answer of the bucket.
    Told {
        /// The shard's name for the call.
        id: u64,
        /// What came of it.
        told: Told,
    },
    /// The grant, or none.
    Grant(Option<Grant>),
    /// The sets that must cover a block.
    Members {
        /// In force.
        in_sync: InSync,
        /// Perhaps soon.
        proposal: Option<InSync>,
    },
    /// Follow this leader at exactly this epoch.
    Follow {
        /// Whom.
        leader: NodeId,
        /// Its reign.
        epoch: LeaseEpoch,
    },
    /// Ack nothing more; answered by [`ToControl::FollowingStopped`].
    StopFollowing,
    /// Ack and serve nothing until the next `Follow`: the clocks are too far apart (L6).
    Suspend,
    /// Become the leader of this reign; answered by [`ToControl::PromotionEnded`].
    Promote {
        /// The reign.
        epoch: LeaseEpoch,
    },
    /// The reign is over.
    Demote,
    /// Admit no more and finish; answered by [`ToControl::Drained`].
    Drain {
        /// The reign.
        epoch: LeaseEpoch,
    },
    /// The node does not follow this leader.
    Refuse {
        /// Whom.
        from: NodeId,
        /// Its reign.
        epoch: LeaseEpoch,
        /// Why.
        refusal: Refusal,
    },
    /// A connection of the other node for this shard.
    Peer(PeerSocket),
    /// The node to send the log to, while this one leads.
    Target(Option<Target>),
    /// Whether the follower answers heartbeats.
    Reachable(bool),
    /// Where clients reach the leader; empty if nobody knows.
    Leader {
        /// Its reign.
        epoch: LeaseEpoch,
        /// `host:port`.
        address: String,
    },
    /// The leader says that this is committed.
    Committed {
        /// Its reign.
        epoch: LeaseEpoch,
        /// Up to here.
        lsn: Lsn,
    },
    /// The mark that a cut waits for is on disk.
    Marked,
    /// The log was cut and the machine made anew.
    Rebuilt(Box<Rebuilt>),
}

/// The other node, as a leader reaches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Who.
    pub node: NodeId,
    /// Where.
    pub address: SocketAddr,
    /// Where its clients reach it.
    pub client: String,
}

/// To the driver of the lease machine.
#[derive(Debug)]
pub enum ToControl {
    /// A leader said hello on a shard's connection.
    Hello {
        /// Its identity and reign.
        hello: duolog_lease::event::Hello,
        /// Where clients reach it.
        client_address: String,
    },
    /// Answer to [`ToShard::StopFollowing`].
    FollowingStopped(ShardId),
    /// Answer to [`ToShard::Promote`].
    PromotionEnded {
        /// Which shard.
        shard: ShardId,
        /// The reign.
        epoch: LeaseEpoch,
        /// Whether the shard leads now, and what took how long.
        result: Result<PromotionTimes, PromotionFailure>,
    },
    /// As leader: an append has entered since the reign was opened.
    FirstAppend {
        /// The reign.
        epoch: LeaseEpoch,
    },
    /// Answer to [`ToShard::Drain`].
    Drained {
        /// Which shard.
        shard: ShardId,
        /// The reign.
        epoch: LeaseEpoch,
    },
    /// Another's object stands in the chain of this reign.
    ChainLost {
        /// The reign.
        epoch: LeaseEpoch,
    },
    /// An upload found its permit past half.
    RenewalWanted {
        /// The reign.
        epoch: LeaseEpoch,
    },
    /// The chain of this reign is long, and the follower covers: a new reign would let it go (G3).
    NewReignWanted {
        /// The reign.
        epoch: LeaseEpoch,
    },
    /// As follower: this shard has what the leader said is committed.
    CaughtUp {
        /// Which shard.
        shard: ShardId,
        /// The leader's reign.
        epoch: LeaseEpoch,
    },
    /// As leader: the follower has acked all that is committed on this shard.
    FollowerCaughtUp {
        /// Which shard.
        shard: ShardId,
        /// Who.
        node: NodeId,
        /// The reign.
        epoch: LeaseEpoch,
    },
    /// As leader: this shard's connection to the follower is gone.
    FollowerLost {
        /// Who.
        node: NodeId,
    },
    /// The follower refused this shard's hello.
    Refused {
        /// Who.
        from: NodeId,
        /// The reign refused.
        epoch: LeaseEpoch,
        /// Why.
        refusal: Refusal,
    },
    /// A proposal counts on this shard, and the newcomer has acked what was committed before.
    ProposalCovered {
        /// Which shard.
        shard: ShardId,
        /// The reign.
        epoch: LeaseEpoch,
    },
    /// The promise of this epoch is on disk.
    Promised(LeaseEpoch),
    /// A signal wants the node to stop, handing over before.
    Stop,
    /// A command of an operator, from a connection of a shard.
    Admin {
        /// The shard that has the connection.
        from: ShardId,
        /// Its name for the request.
        id: RequestId,
        /// The client's number for it.
        correlation: u64,
        /// JSON.
        body: Vec<u8>,
    },
}
