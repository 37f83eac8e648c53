//! How far a shard's replication has come, in both directions.

use duolog_engine::bytes::{Cursor, TooShort};
use duolog_engine::ids::{Hlc, LeaseEpoch, Lsn};
use duolog_engine::replica::BlockEnd;
use duolog_engine::replica::chain::Seq;
use duolog_engine::replica::promotion::StoredChain;

use super::frame::{PeerKind, encode};
use crate::wire::BodyError;
use crate::wire::body::{ends, short};

const COMMIT: &str = "commit mark";
const ACKED: &str = "ack";
const CONFIRM: &str = "confirmation";
const CHAIN: &str = "state of the chain";
const SETTLED: &str = "settled stamp";

/// Leader to follower: everything up to here is committed. Blocks carry it too; this is for the
/// moment when no further block is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCommit {
    /// The leader's reign.
    pub epoch: LeaseEpoch,
    /// The newest committed event.
    pub lsn: Lsn,
}

/// Follower to leader: everything up to here is durable. Cumulative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAcked {
    /// The reign that the follower follows; an ack of another one does not count (R2).
    pub epoch: LeaseEpoch,
    /// The newest durable event.
    pub durable: Lsn,
    /// The newest event that its readers can see.
    pub committed: Lsn,
}

/// Leader to follower: do you still follow this reign? For reads that trust no clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerConfirm {
    /// The leader's reign.
    pub epoch: LeaseEpoch,
    /// Counts the questions of this connection.
    pub number: u64,
}

/// Follower to leader: yes. There is no other answer: who follows no longer ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerConfirmed {
    /// The reign that the follower follows.
    pub epoch: LeaseEpoch,
    /// The question. Those before are answered with it.
    pub number: u64,
}

/// Leader to follower: what is stored of this reign's chain, so that whoever leads next need not
/// read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerChain(pub StoredChain);

/// Leader to follower: every event of the shard behind `lsn` is stamped above `settled`. For
/// readers of several shards at the follower, when this shard has nothing new to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSettled {
    /// The leader's reign.
    pub epoch: LeaseEpoch,
    /// The newest committed event.
    pub lsn: Lsn,
    /// Later events have higher stamps.
    pub settled: Hlc,
}

impl PeerSettled {
    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(out, PeerKind::Settled, self.epoch, |out| {
            out.extend_from_slice(&self.lsn.0.to_le_bytes());
            out.extend_from_slice(&self.settled.0.to_le_bytes());
        });
    }

    pub(super) fn decode(epoch: LeaseEpoch, body: &[u8]) -> Result<Self, BodyError> {
        let mut cursor = Cursor::new(body);
        let mut read = || -> Result<_, TooShort> {
            Ok(Self { epoch, lsn: Lsn(cursor.u64()?), settled: Hlc(cursor.u64()?) })
        };
        let settled = read().map_err(short(SETTLED))?;
        ends(SETTLED, cursor.rest())?;
        Ok(settled)
    }
}

impl PeerChain {
    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let StoredChain { epoch, next, end } = self.0;
        encode(out, PeerKind::Chain, epoch, |out| {
            out.extend_from_slice(&next.0.to_le_bytes());
            out.extend_from_slice(&end.lsn.0.to_le_bytes());
            out.extend_from_slice(&end.hash);
        });
    }

    pub(super) fn decode(epoch: LeaseEpoch, body: &[u8]) -> Result<Self, BodyError> {
        let mut cursor = Cursor::new(body);
        let mut read = || -> Result<_, TooShort> {
            let next = Seq(cursor.u32()?);
            let end = BlockEnd { lsn: Lsn(cursor.u64()?), hash: cursor.hash()? };
            Ok(Self(StoredChain { epoch, next, end }))
        };
        let chain = read().map_err(short(CHAIN))?;
        ends(CHAIN, cursor.rest())?;
        Ok(chain)
    }
}

fn decode_number(body: &[u8]) -> Result<u64, BodyError> {
    let mut cursor = Cursor::new(body);
    let number = cursor.u64().map_err(short(CONFIRM))?;
    ends(CONFIRM, cursor.rest())?;
    Ok(number)
}

impl PeerConfirm {
    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(out, PeerKind::Confirm, self.epoch, |out| {
            out.extend_from_slice(&self.number.to_le_bytes());
        });
    }

    pub(super) fn decode(epoch: LeaseEpoch, body: &[u8]) -> Result<Self, BodyError> {
        decode_number(body).map(|number| Self { epoch, number })
    }
}

impl PeerConfirmed {
    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(out, PeerKind::Confirmed, self.epoch, |out| {
            out.extend_from_slice(&self.number.to_le_bytes());
        });
    }

    pub(super) fn decode(epoch: LeaseEpoch, body: &[u8]) -> Result<Self, BodyError> {
        decode_number(body).map(|number| Self { epoch, number })
    }
}

impl PeerCommit {
    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(out, PeerKind::Commit, self.epoch, |out| {
            out.extend_from_slice(&self.lsn.0.to_le_bytes());
        });
    }

    pub(super) fn decode(epoch: LeaseEpoch, body: &[u8]) -> Result<Self, BodyError> {
        let mut cursor = Cursor::new(body);
        let lsn = cursor.u64().map(Lsn).map_err(short(COMMIT))?;
        ends(COMMIT, cursor.rest())?;
        Ok(Self { epoch, lsn })
    }
}

impl PeerAcked {
    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(out, PeerKind::Acked, self.epoch, |out| {
            out.extend_from_slice(&self.durable.0.to_le_bytes());
            out.extend_from_slice(&self.committed.0.to_le_bytes());
        });
    }

    pub(super) fn decode(epoch: LeaseEpoch, body: &[u8]) -> Result<Self, BodyError> {
        let mut cursor = Cursor::new(body);
        let mut read = || -> Result<_, TooShort> {
            Ok(Self { epoch, durable: Lsn(cursor.u64()?), committed: Lsn(cursor.u64()?) })
        };
        let acked = read().map_err(short(ACKED))?;
        ends(ACKED, cursor.rest())?;
        Ok(acked)
    }
}
