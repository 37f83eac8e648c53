//! How a connection of the pair begins: the leader's hello and the follower's welcome.

use duolog_engine::bytes::{Cursor, TooShort};
use duolog_engine::ids::{ClusterId, Hlc, LeaseEpoch, Lsn, NodeId, ShardId};
use duolog_engine::replica::EpochEnd;
use duolog_engine::segment::LogEnd;
use duolog_lease::event::Hello;

use super::frame::{PeerError, PeerFrame, PeerKind, encode};
use crate::limits::{ADDRESS_MAX_BYTES, PEER_MARKS_MAX, PEER_VERSION};
use crate::wire::BodyError;
use crate::wire::body::{ends, short, text};

const MAGIC: [u8; 8] = *b"DUOLOGPR";
const HELLO: &str = "hello";
const WELCOME: &str = "welcome";

/// What a connection is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The blocks of one shard.
    Shard {
        /// The shard.
        shard: ShardId,
        /// The leader's log end as it was at promotion: fixed for the reign (R3).
        end: LogEnd,
        /// The newest epoch marks of that log, oldest first, at most 64.
        marks: Vec<EpochEnd>,
        /// No older reign has blocks in it.
        complete: bool,
    },
    /// Heartbeats.
    Heartbeat,
    /// Committed blocks for a node that has not started, because its log is damaged. The hello's
    /// epoch is what it has promised, and is not judged.
    Fetch {
        /// The shard.
        shard: ShardId,
        /// Where the part of its log ends that is whole: the first block wanted continues it.
        end: LogEnd,
        /// The last LSN wanted; [`Lsn`] of `u64::MAX` for everything committed, which only a node
        /// that leads can tell.
        last: Lsn,
    },
}

/// The leader's first message on a connection that it has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerHello {
    /// The reign.
    pub epoch: LeaseEpoch,
    /// The cluster.
    pub cluster: ClusterId,
    /// The leader.
    pub from: NodeId,
    /// Shards of the cluster.
    pub shard_count: u32,
    /// Size of its segments, bytes: blocks name their segment, so both nodes' must be equal.
    pub segment_size_bytes: u32,
    /// Alignment of its blocks, bytes: must be equal too.
    pub align_bytes: u32,
    /// What the connection is for.
    pub purpose: Purpose,
    /// Where clients reach the leader, `host:port`, at most 255 bytes; empty if not known.
    pub client_address: String,
}

fn put_end(out: &mut Vec<u8>, end: &LogEnd) {
    out.extend_from_slice(&end.lsn.0.to_le_bytes());
    out.extend_from_slice(&end.hlc.0.to_le_bytes());
    out.extend_from_slice(&end.epoch.0.to_le_bytes());
    out.extend_from_slice(&end.hash);
}

fn take_end(cursor: &mut Cursor<'_>) -> Result<LogEnd, TooShort> {
    let (lsn, hlc, epoch) = (Lsn(cursor.u64()?), Hlc(cursor.u64()?), LeaseEpoch(cursor.u64()?));
    Ok(LogEnd { lsn, hash: cursor.hash()?, hlc, epoch })
}

const NO_END: LogEnd = LogEnd { lsn: Lsn(0), hash: [0; 32], hlc: Hlc(0), epoch: LeaseEpoch(0) };

impl PeerHello {
    /// What the lease machine has to hear of it.
    #[must_use]
    pub const fn head(&self) -> Hello {
        Hello { from: self.from, cluster: self.cluster, epoch: self.epoch }
    }

    /// Appends the frame.
    ///
    /// Panics above 64 marks or an address of 255 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (purpose, shard, end, marks, last) = match &self.purpose {
            Purpose::Shard { shard, end, marks, complete } => {
                (if *complete { 0_u8 } else { 2 }, *shard, end, &marks[..], None)
            }
            Purpose::Heartbeat => (1, ShardId(0), &NO_END, &[][..], None),
            Purpose::Fetch { shard, end, last } => (3, *shard, end, &[][..], Some(last)),
        };
        assert!(marks.len() <= PEER_MARKS_MAX, "a hello has at most 64 epoch marks");
        let address = self.client_address.as_bytes();
        assert!(address.len() <= ADDRESS_MAX_BYTES, "an address has at most 255 bytes");
        encode(out, PeerKind::Hello, self.epoch, |out| {
            out.extend_from_slice(&MAGIC);
            out.extend_from_slice(&PEER_VERSION.to_le_bytes());
            out.extend_from_slice(&[purpose, address.len() as u8]);
            out.extend_from_slice(&shard.0.to_le_bytes());
            out.extend_from_slice(&self.cluster.0.to_le_bytes());
            out.extend_from_slice(&self.from.0.to_le_bytes());
            out.extend_from_slice(&self.shard_count.to_le_bytes());
            out.extend_from_slice(&self.segment_size_bytes.to_le_bytes());
            out.extend_from_slice(&self.align_bytes.to_le_bytes());
            out.extend_from_slice(&(marks.len() as u32).to_le_bytes());
            put_end(out, end);
            for mark in marks {
                out.extend_from_slice(&mark.epoch.0.to_le_bytes());
                out.extend_from_slice(&mark.lsn.0.to_le_bytes());
                out.extend_from_slice(&mark.hash);
            }
            if let Some(last) = last {
                out.extend_from_slice(&last.0.to_le_bytes());
            }
            out.extend_from_slice(address);
        });
    }

    pub(super) fn decode(frame: &PeerFrame<'_>) -> Result<Self, PeerError> {
        let wrong = |error| PeerError::Body { kind: PeerKind::Hello, error };
        let mut cursor = Cursor::new(frame.body);
        if cursor.take(MAGIC.len()) != Ok(&MAGIC[..]) {
            return Err(wrong(BodyError::Magic));
        }
        let version = cursor.u16().map_err(short(HELLO)).map_err(wrong)?;
        if version != PEER_VERSION {
            return Err(PeerError::Version(version));
        }
        Self::decode_fields(frame.epoch, &mut cursor).map_err(wrong)
    }

    fn decode_fields(epoch: LeaseEpoch, cursor: &mut Cursor<'_>) -> Result<Self, BodyError> {
        let mut read = || -> Result<_, TooShort> {
            let (purpose, address_length) = (cursor.u8()?, usize::from(cursor.u8()?));
            let shard = ShardId(cursor.u32()?);
            let ids = (ClusterId(cursor.u128()?), NodeId(cursor.u128()?));
            let layout = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
            let mark_count = cursor.u32()?;
            Ok((purpose, address_length, shard, ids, layout, mark_count, take_end(cursor)?))
        };
        let (purpose, address_length, shard, (cluster, from), layout, mark_count, end) =
            read().map_err(short(HELLO))?;
        let (shard_count, segment_size_bytes, align_bytes) = layout;
        if mark_count as usize > PEER_MARKS_MAX {
            let value = mark_count.into();
            return Err(BodyError::UnknownValue { field: "number of epoch marks", value });
        }
        let mut marks = Vec::with_capacity(mark_count as usize);
        for _ in 0..mark_count {
            let mut mark = || -> Result<_, TooShort> {
                let (epoch, lsn) = (LeaseEpoch(cursor.u64()?), Lsn(cursor.u64()?));
                Ok(EpochEnd { epoch, lsn, hash: cursor.hash()? })
            };
            marks.push(mark().map_err(short(HELLO))?);
        }
        let purpose = match purpose {
            0 | 2 => Purpose::Shard { shard, end, marks, complete: purpose == 0 },
            1 if shard == ShardId(0) && marks.is_empty() && end == NO_END => Purpose::Heartbeat,
            3 if marks.is_empty() => {
                let last = Lsn(cursor.u64().map_err(short(HELLO))?);
                Purpose::Fetch { shard, end, last }
            }
            1 | 3 => return Err(BodyError::Reserved(HELLO)),
            other => {
                let value = other.into();
                return Err(BodyError::UnknownValue { field: "purpose", value });
            }
        };
        let address = cursor.take(address_length).map_err(short(HELLO))?;
        let client_address = text("client address", address)?.to_owned();
        ends(HELLO, cursor.rest())?;
        Ok(Self {
            epoch,
            cluster,
            from,
            shard_count,
            segment_size_bytes,
            align_bytes,
            purpose,
            client_address,
        })
    }
}

/// The follower follows: its promise is durable, and its log is a prefix of the leader's up to
/// `end`, where the leader goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerWelcome {
    /// The hello's epoch.
    pub epoch: LeaseEpoch,
    /// The cluster.
    pub cluster: ClusterId,
    /// The follower.
    pub from: NodeId,
    /// What it has promised; the hello's epoch.
    pub promised: LeaseEpoch,
    /// Where its durable log ends. All zero on a heartbeat connection.
    pub end: LogEnd,
    /// What it knows to be committed.
    pub committed: Lsn,
}

impl PeerWelcome {
    /// The `end` of a welcome on a heartbeat connection.
    pub const NO_END: LogEnd = NO_END;

    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(out, PeerKind::Welcome, self.epoch, |out| {
            out.extend_from_slice(&self.cluster.0.to_le_bytes());
            out.extend_from_slice(&self.from.0.to_le_bytes());
            out.extend_from_slice(&self.promised.0.to_le_bytes());
            out.extend_from_slice(&self.committed.0.to_le_bytes());
            put_end(out, &self.end);
        });
    }

    pub(super) fn decode(epoch: LeaseEpoch, body: &[u8]) -> Result<Self, BodyError> {
        let mut cursor = Cursor::new(body);
        let mut read = || -> Result<_, TooShort> {
            let (cluster, from) = (ClusterId(cursor.u128()?), NodeId(cursor.u128()?));
            let (promised, committed) = (LeaseEpoch(cursor.u64()?), Lsn(cursor.u64()?));
            let end = take_end(&mut cursor)?;
            Ok(Self { epoch, cluster, from, promised, end, committed })
        };
        let welcome = read().map_err(short(WELCOME))?;
        ends(WELCOME, cursor.rest())?;
        Ok(welcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::{PeerMessage, decode_peer};
    use crate::wire::Decoded;

    fn hello(marks: usize) -> PeerHello {
        let mark = |number: u64| EpochEnd {
            epoch: LeaseEpoch(number),
            lsn: Lsn(number * 10),
            hash: [number as u8; 32],
        };
        let end = LogEnd { lsn: Lsn(9), hash: [8; 32], hlc: Hlc(7), epoch: LeaseEpoch(6) };
        PeerHello {
            epoch: LeaseEpoch(12),
            cluster: ClusterId(1),
            from: NodeId(2),
            shard_count: 4,
            segment_size_bytes: 64 << 20,
            align_bytes: 4096,
            purpose: Purpose::Shard {
                shard: ShardId(3),
                end,
                marks: (1..).map(mark).take(marks).collect(),
                complete: marks < PEER_MARKS_MAX,
            },
            client_address: "a:1".to_owned(),
        }
    }

    fn round_trip(hello: &PeerHello) -> (usize, PeerHello) {
        let mut out = Vec::new();
        hello.encode(&mut out);
        match decode_peer(&out) {
            Ok(Decoded::Complete { value: PeerMessage::Hello(again), .. }) => (out.len(), again),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn layout_is_that_of_the_table() {
        for marks in [0, 1, PEER_MARKS_MAX] {
            assert_eq!(round_trip(&hello(marks)), (24 + 120 + marks * 48 + 3, hello(marks)));
        }
        let heartbeat = PeerHello { purpose: Purpose::Heartbeat, ..hello(0) };
        assert_eq!(round_trip(&heartbeat), (24 + 120 + 3, heartbeat));
        let end = LogEnd { lsn: Lsn(9), hash: [8; 32], hlc: Hlc(7), epoch: LeaseEpoch(6) };
        let purpose = Purpose::Fetch { shard: ShardId(3), end, last: Lsn(u64::MAX) };
        let fetch = PeerHello { purpose, ..hello(0) };
        assert_eq!(round_trip(&fetch), (24 + 120 + 8 + 3, fetch));
    }

    #[test]
    fn another_version_is_told_from_garbage() {
        let mut out = Vec::new();
        hello(2).encode(&mut out);
        let mut body = out.split_off(24);
        let decode = |body: &[u8]| {
            let frame = PeerFrame { kind: PeerKind::Hello, epoch: LeaseEpoch(1), body };
            PeerHello::decode(&frame)
        };
        body[8] = 9;
        assert_eq!(decode(&body[..10]), Err(PeerError::Version(9)));
        let wrong = |error| Err(PeerError::Body { kind: PeerKind::Hello, error });
        assert_eq!(decode(b"GET / HTTP/1.1"), wrong(BodyError::Magic));
        body[8] = 1;
        body[60] = 65;
        let many = BodyError::UnknownValue { field: "number of epoch marks", value: 65 };
        assert_eq!(decode(&body), wrong(many));
        body[60] = 2;
        for end in 10..body.len() {
            assert_eq!(decode(&body[..end]), wrong(BodyError::TooShort("hello")), "{end}");
        }
        body[10] = 1;
        assert_eq!(decode(&body), wrong(BodyError::Reserved("hello")), "heartbeats have no log");
        body[10] = 3;
        assert_eq!(decode(&body), wrong(BodyError::Reserved("hello")), "nor has a fetch marks");
        body[10] = 4;
        let purpose = BodyError::UnknownValue { field: "purpose", value: 4 };
        assert_eq!(decode(&body), wrong(purpose));
    }
}
