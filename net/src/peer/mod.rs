//! The protocol of the pair (docs/WIRE.md, "Peer protocol"): what the leader and its follower say
//! to each other. The leader dials: one connection for each shard, one for heartbeats.
//!
//! Every message carries the epoch it is about; a hello, a welcome, a heartbeat and a resignation
//! also carry the cluster's id. Nothing here decides anything: epochs are compared by the lease
//! machine and the shards.
//!
//! ```
//! use duolog_engine::ids::{LeaseEpoch, Lsn};
//! use duolog_net::peer::{PeerAcked, PeerMessage, decode_peer};
//! use duolog_net::wire::Decoded;
//!
//! let acked = PeerAcked { epoch: LeaseEpoch(4), durable: Lsn(900), committed: Lsn(890) };
//! let mut buffer = Vec::new();
//! acked.encode(&mut buffer);
//! let Decoded::Complete { value, used } = decode_peer(&buffer)? else { unreachable!() };
//! assert_eq!((value, used), (PeerMessage::Acked(acked), buffer.len()));
//! # Ok::<(), duolog_net::peer::PeerError>(())
//! ```

mod frame;
mod fuzz;
mod heartbeat;
mod hello;
mod progress;
mod reader;
mod refused;

use duolog_engine::ids::LeaseEpoch;

pub use frame::{
    PeerError, PeerFrame, PeerKind, block_frame_header, decode_peer_frame, encode_block,
};
pub use fuzz::fuzz_peer;
pub use heartbeat::{PeerHeartbeat, PeerHeartbeatAcked, PeerResign};
pub use hello::{PeerHello, PeerWelcome, Purpose};
pub use progress::{PeerAcked, PeerChain, PeerCommit, PeerConfirm, PeerConfirmed, PeerSettled};
pub use reader::{PeerReader, decode_peer};
pub use refused::{PeerReason, PeerRefused};

/// Any message. Only a block borrows: the others are small or rare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerMessage<'a> {
    /// First message of whoever dials.
    Hello(PeerHello),
    /// The follower's answer to it.
    Welcome(PeerWelcome),
    /// A hello, heartbeat or block is refused.
    Refused(PeerRefused),
    /// One block of the log. Nothing of it has been checked but its length: at least a block
    /// header's.
    Block {
        /// The reign that sends it. Blocks of earlier reigns travel too when a follower catches up.
        epoch: LeaseEpoch,
        /// Header and body, without padding.
        block: &'a [u8],
    },
    /// What is committed.
    Commit(PeerCommit),
    /// What is durable on the follower.
    Acked(PeerAcked),
    /// The leader's sign of life.
    Heartbeat(PeerHeartbeat),
    /// The answer to it.
    HeartbeatAcked(PeerHeartbeatAcked),
    /// The leader gives its reign away.
    Resign(PeerResign),
    /// Does the follower still follow?
    Confirm(PeerConfirm),
    /// It does.
    Confirmed(PeerConfirmed),
    /// What the leader knows to be stored of its chain.
    Chain(PeerChain),
    /// See [`PeerSettled`].
    Settled(PeerSettled),
}

impl PeerMessage<'_> {
    /// What it is.
    #[must_use]
    pub const fn kind(&self) -> PeerKind {
        match self {
            Self::Hello(_) => PeerKind::Hello,
            Self::Welcome(_) => PeerKind::Welcome,
            Self::Refused(_) => PeerKind::Refused,
            Self::Block { .. } => PeerKind::Block,
            Self::Commit(_) => PeerKind::Commit,
            Self::Acked(_) => PeerKind::Acked,
            Self::Heartbeat(_) => PeerKind::Heartbeat,
            Self::HeartbeatAcked(_) => PeerKind::HeartbeatAcked,
            Self::Resign(_) => PeerKind::Resign,
            Self::Confirm(_) => PeerKind::Confirm,
            Self::Confirmed(_) => PeerKind::Confirmed,
            Self::Chain(_) => PeerKind::Chain,
            Self::Settled(_) => PeerKind::Settled,
        }
    }

    /// The epoch it is about.
    #[must_use]
    pub const fn epoch(&self) -> LeaseEpoch {
        match self {
            Self::Hello(message) => message.epoch,
            Self::Welcome(message) => message.epoch,
            Self::Refused(message) => message.epoch,
            Self::Block { epoch, .. } => *epoch,
            Self::Commit(message) => message.epoch,
            Self::Acked(message) => message.epoch,
            Self::Heartbeat(message) => message.epoch,
            Self::HeartbeatAcked(message) => message.epoch,
            Self::Resign(message) => message.epoch,
            Self::Confirm(message) => message.epoch,
            Self::Confirmed(message) => message.epoch,
            Self::Chain(message) => message.0.epoch,
            Self::Settled(message) => message.epoch,
        }
    }

    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(message) => message.encode(out),
            Self::Welcome(message) => message.encode(out),
            Self::Refused(message) => message.encode(out),
            Self::Block { epoch, block } => encode_block(out, *epoch, block),
            Self::Commit(message) => message.encode(out),
            Self::Acked(message) => message.encode(out),
            Self::Heartbeat(message) => message.encode(out),
            Self::HeartbeatAcked(message) => message.encode(out),
            Self::Resign(message) => message.encode(out),
            Self::Confirm(message) => message.encode(out),
            Self::Confirmed(message) => message.encode(out),
            Self::Chain(message) => message.encode(out),
            Self::Settled(message) => message.encode(out),
        }
    }
}

fn decode_message<'a>(frame: &PeerFrame<'a>) -> Result<PeerMessage<'a>, PeerError> {
    let (kind, epoch, body) = (frame.kind, frame.epoch, frame.body);
    let message = match kind {
        PeerKind::Hello => return PeerHello::decode(frame).map(PeerMessage::Hello),
        PeerKind::Block => return Ok(PeerMessage::Block { epoch, block: body }),
        PeerKind::Welcome => PeerWelcome::decode(epoch, body).map(PeerMessage::Welcome),
        PeerKind::Refused => PeerRefused::decode(epoch, body).map(PeerMessage::Refused),
        PeerKind::Commit => PeerCommit::decode(epoch, body).map(PeerMessage::Commit),
        PeerKind::Acked => PeerAcked::decode(epoch, body).map(PeerMessage::Acked),
        PeerKind::Heartbeat => PeerHeartbeat::decode(epoch, body).map(PeerMessage::Heartbeat),
        PeerKind::HeartbeatAcked => {
            PeerHeartbeatAcked::decode(epoch, body).map(PeerMessage::HeartbeatAcked)
        }
        PeerKind::Resign => PeerResign::decode(epoch, body).map(PeerMessage::Resign),
        PeerKind::Confirm => PeerConfirm::decode(epoch, body).map(PeerMessage::Confirm),
        PeerKind::Confirmed => PeerConfirmed::decode(epoch, body).map(PeerMessage::Confirmed),
        PeerKind::Chain => PeerChain::decode(epoch, body).map(PeerMessage::Chain),
        PeerKind::Settled => PeerSettled::decode(epoch, body).map(PeerMessage::Settled),
    };
    message.map_err(|error| PeerError::Body { kind, error })
}
