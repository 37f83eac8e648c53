//! The leader's signs of life and its farewell.

use duolog_engine::bytes::{Cursor, TooShort};
use duolog_engine::ids::{ClusterId, LeaseEpoch, Lsn, NodeId, WallMs};
use duolog_lease::event::Heartbeat;
use duolog_lease::ids::MonoMs;

use super::frame::{PeerKind, encode};
use crate::limits::PEER_SHARDS_MAX;
use crate::wire::BodyError;
use crate::wire::body::{ends, short};

const HEARTBEAT: &str = "heartbeat";
const ACKED: &str = "ack of a heartbeat";
const RESIGN: &str = "resignation";

/// The leader's sign of life (L5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerHeartbeat {
    /// Its reign.
    pub epoch: LeaseEpoch,
    /// The cluster.
    pub cluster: ClusterId,
    /// The leader.
    pub from: NodeId,
    /// The leader's clock before it sent. Means nothing to the follower, who repeats it.
    pub sent: MonoMs,
    /// The leader's wall clock at the same moment.
    pub wall: WallMs,
    /// What is committed, for each shard in order.
    pub commits: Vec<Lsn>,
}

/// The follower's answer to a heartbeat; the promise of its epoch is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerHeartbeatAcked {
    /// The heartbeat's epoch.
    pub epoch: LeaseEpoch,
    /// The follower.
    pub from: NodeId,
    /// The heartbeat's `sent`.
    pub sent: MonoMs,
    /// The follower's wall clock: for the leader's status, never for a decision.
    pub wall: WallMs,
}

/// The leader admits nothing more, is fenced for good at this epoch, and asks the follower to take
/// over at once (L11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerResign {
    /// The reign that is given away.
    pub epoch: LeaseEpoch,
    /// The cluster.
    pub cluster: ClusterId,
    /// Who gives it away.
    pub from: NodeId,
    /// What is committed, for each shard in order: the end of what the reign acknowledged.
    pub commits: Vec<Lsn>,
}

fn put_commits(out: &mut Vec<u8>, commits: &[Lsn]) {
    assert!(commits.len() <= PEER_SHARDS_MAX, "a cluster has at most 512 shards");
    out.extend_from_slice(&(commits.len() as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    for lsn in commits {
        out.extend_from_slice(&lsn.0.to_le_bytes());
    }
}

/// The commits, which are the rest of the message.
fn take_commits(message: &'static str, cursor: &mut Cursor<'_>) -> Result<Vec<Lsn>, BodyError> {
    let mut read = || Ok((cursor.u32()?, cursor.u32()?));
    let (count, reserved) = read().map_err(short(message))?;
    if reserved != 0 {
        return Err(BodyError::Reserved(message));
    }
    if count as usize > PEER_SHARDS_MAX {
        return Err(BodyError::UnknownValue { field: "number of shards", value: count.into() });
    }
    let commits: Result<_, _> = (0..count).map(|_| cursor.u64().map(Lsn)).collect();
    let commits = commits.map_err(short(message))?;
    ends(message, cursor.rest())?;
    Ok(commits)
}

impl PeerHeartbeat {
    /// What the lease machine has to hear of it.
    #[must_use]
    pub const fn head(&self) -> Heartbeat {
        let Self { epoch, cluster, from, sent, wall, .. } = *self;
        Heartbeat { from, cluster, epoch, sent, wall }
    }

    /// Appends the frame.
    ///
    /// Panics above 512 shards.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(out, PeerKind::Heartbeat, self.epoch, |out| {
            out.extend_from_slice(&self.cluster.0.to_le_bytes());
            out.extend_from_slice(&self.from.0.to_le_bytes());
            out.extend_from_slice(&self.sent.0.to_le_bytes());
            out.extend_from_slice(&self.wall.0.to_le_bytes());
            put_commits(out, &self.commits);
        });
    }

    pub(super) fn decode(epoch: LeaseEpoch, body: &[u8]) -> Result<Self, BodyError> {
        let mut cursor = Cursor::new(body);
        let mut read = || -> Result<_, TooShort> {
            let (cluster, from) = (ClusterId(cursor.u128()?), NodeId(cursor.u128()?));
            Ok((cluster, from, MonoMs(cursor.u64()?), WallMs(cursor.u64()?)))
        };
        let (cluster, from, sent, wall) = read().map_err(short(HEARTBEAT))?;
        let commits = take_commits(HEARTBEAT, &mut cursor)?;
        Ok(Self { epoch, cluster, from, sent, wall, commits })
    }
}

impl PeerHeartbeatAcked {
    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(out, PeerKind::HeartbeatAcked, self.epoch, |out| {
            out.extend_from_slice(&self.from.0.to_le_bytes());
            out.extend_from_slice(&self.sent.0.to_le_bytes());
            out.extend_from_slice(&self.wall.0.to_le_bytes());
        });
    }

    pub(super) fn decode(epoch: LeaseEpoch, body: &[u8]) -> Result<Self, BodyError> {
        let mut cursor = Cursor::new(body);
        let mut read = || -> Result<_, TooShort> {
            let (from, sent) = (NodeId(cursor.u128()?), MonoMs(cursor.u64()?));
            Ok(Self { epoch, from, sent, wall: WallMs(cursor.u64()?) })
        };
        let acked = read().map_err(short(ACKED))?;
        ends(ACKED, cursor.rest())?;
        Ok(acked)
    }
}

impl PeerResign {
    /// Appends the frame.
    ///
    /// Panics above 512 shards.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(out, PeerKind::Resign, self.epoch, |out| {
            out.extend_from_slice(&self.cluster.0.to_le_bytes());
            out.extend_from_slice(&self.from.0.to_le_bytes());
            put_commits(out, &self.commits);
        });
    }

    pub(super) fn decode(epoch: LeaseEpoch, body: &[u8]) -> Result<Self, BodyError> {
        let mut cursor = Cursor::new(body);
        let mut read = || Ok((ClusterId(cursor.u128()?), NodeId(cursor.u128()?)));
        let (cluster, from) = read().map_err(short(RESIGN))?;
        let commits = take_commits(RESIGN, &mut cursor)?;
        Ok(Self { epoch, cluster, from, commits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_that_of_the_table() {
        let heartbeat = PeerHeartbeat {
            epoch: LeaseEpoch(1),
            cluster: ClusterId(2),
            from: NodeId(3),
            sent: MonoMs(4),
            wall: WallMs(5),
            commits: vec![Lsn(6), Lsn(7)],
        };
        let mut out = Vec::new();
        heartbeat.encode(&mut out);
        let body = &out[24..];
        assert_eq!(body.len(), 48 + 8 + 16);
        assert_eq!((body[0], body[16], body[32], body[40], body[48]), (2, 3, 4, 5, 2));
        assert_eq!((body[56], body[64]), (6, 7));
        assert_eq!(PeerHeartbeat::decode(LeaseEpoch(1), body), Ok(heartbeat));
        for end in 0..body.len() {
            let short = PeerHeartbeat::decode(LeaseEpoch(1), &body[..end]);
            assert_eq!(short, Err(BodyError::TooShort("heartbeat")));
        }
        let mut many = body.to_vec();
        many[48..50].copy_from_slice(&513_u16.to_le_bytes());
        let wrong = BodyError::UnknownValue { field: "number of shards", value: 513 };
        assert_eq!(PeerHeartbeat::decode(LeaseEpoch(1), &many), Err(wrong));
        many[48..53].copy_from_slice(&[2, 0, 0, 0, 1]);
        let wrong = BodyError::Reserved("heartbeat");
        assert_eq!(PeerHeartbeat::decode(LeaseEpoch(1), &many), Err(wrong));
    }
}
