//! Hello and its answer: which version is spoken, which shard serves, which limits hold.

use duolog_engine::bytes::Cursor;
use duolog_engine::ids::{ClusterId, LeaseEpoch, NodeId, ShardId};

use super::body::{BodyError, ends, short, text};
use super::frame::{FrameKind, OpenFrame};
use super::standing::{NodeRole, address_length};
use crate::limits::WIRE_VERSION;

const MAGIC: [u8; 8] = *b"DUOLOG\0\0";
const NO_SHARD: u32 = u32::MAX;
const HELLO: &str = "hello";
const ACCEPTED: &str = "answer to the hello";

/// The first frame of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Lowest version the client speaks.
    pub version_lowest: u16,
    /// Highest version the client speaks.
    pub version_highest: u16,
    /// Shard to bind to.
    pub shard: Option<ShardId>,
    /// Bit set; none defined yet.
    pub capabilities: u64,
}

impl Hello {
    /// What this version's client says.
    #[must_use]
    pub const fn new(shard: Option<ShardId>) -> Self {
        Self { version_lowest: WIRE_VERSION, version_highest: WIRE_VERSION, shard, capabilities: 0 }
    }

    /// The version to speak with this client, if there is one.
    #[must_use]
    pub const fn version_in_common(&self) -> Option<u16> {
        if self.version_lowest <= WIRE_VERSION && WIRE_VERSION <= self.version_highest {
            Some(WIRE_VERSION)
        } else {
            None
        }
    }

    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>, correlation: u64) {
        let frame = OpenFrame::begin(out, FrameKind::Hello, correlation);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.version_lowest.to_le_bytes());
        out.extend_from_slice(&self.version_highest.to_le_bytes());
        out.extend_from_slice(&self.shard.map_or(NO_SHARD, ShardId::get).to_le_bytes());
        out.extend_from_slice(&self.capabilities.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        frame.finish(out);
    }

    /// Decodes a body. A body that begins like a hello and names a version this one does not
    /// speak is decoded as far as the versions, so that the refusal can name them.
    pub fn decode(body: &[u8]) -> Result<Self, BodyError> {
        let mut cursor = Cursor::new(body);
        let magic = cursor.take(MAGIC.len()).map_err(|_| BodyError::Magic)?;
        if magic != MAGIC {
            return Err(BodyError::Magic);
        }
        let version_lowest = cursor.u16().map_err(short(HELLO))?;
        let version_highest = cursor.u16().map_err(short(HELLO))?;
        let mut hello = Self { version_lowest, version_highest, shard: None, capabilities: 0 };
        if hello.version_in_common().is_none() {
            return Ok(hello);
        }
        let shard = cursor.u32().map_err(short(HELLO))?;
        hello.shard = (shard != NO_SHARD).then_some(ShardId(shard));
        hello.capabilities = cursor.u64().map_err(short(HELLO))?;
        if cursor.u32().map_err(short(HELLO))? != 0 {
            return Err(BodyError::Reserved(HELLO));
        }
        ends(HELLO, cursor.rest())?;
        Ok(hello)
    }
}

/// The server's answer to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloAccepted {
    /// Version spoken from now on.
    pub version: u16,
    /// Shards of the cluster.
    pub shard_count: u32,
    /// The cluster.
    pub cluster: ClusterId,
    /// The node.
    pub node: NodeId,
    /// What both sides can do.
    pub capabilities: u64,
    /// Largest frame body the server takes, bytes.
    pub frame_body_max_bytes: u32,
    /// Requests in flight allowed on this connection.
    pub requests_max: u32,
    /// Shard that serves this connection.
    pub shard: ShardId,
    /// Bytes in flight allowed on this connection.
    pub bytes_max: u32,
    /// What the node is.
    pub role: NodeRole,
    /// Of which reign; see [`super::Standing::epoch`].
    pub epoch: LeaseEpoch,
}

impl HelloAccepted {
    /// Appends the frame. `leader`: see [`super::Standing::leader`].
    pub fn encode(&self, out: &mut Vec<u8>, correlation: u64, leader: &str) {
        let frame = OpenFrame::begin(out, FrameKind::HelloAccepted, correlation);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&[self.role as u8, address_length(leader)]);
        out.extend_from_slice(&self.shard_count.to_le_bytes());
        out.extend_from_slice(&self.cluster.0.to_le_bytes());
        out.extend_from_slice(&self.node.0.to_le_bytes());
        out.extend_from_slice(&self.capabilities.to_le_bytes());
        out.extend_from_slice(&self.frame_body_max_bytes.to_le_bytes());
        out.extend_from_slice(&self.requests_max.to_le_bytes());
        out.extend_from_slice(&self.shard.0.to_le_bytes());
        out.extend_from_slice(&self.bytes_max.to_le_bytes());
        out.extend_from_slice(&self.epoch.0.to_le_bytes());
        out.extend_from_slice(leader.as_bytes());
        frame.finish(out);
    }

    /// Decodes a body: the message, and the leader's address.
    pub fn decode(body: &[u8]) -> Result<(Self, &str), BodyError> {
        let mut cursor = Cursor::new(body);
        let mut read = || {
            let (version, role, length) = (cursor.u16()?, cursor.u8()?, cursor.u8()?);
            let accepted = Self {
                version,
                shard_count: cursor.u32()?,
                cluster: ClusterId(cursor.u128()?),
                node: NodeId(cursor.u128()?),
                capabilities: cursor.u64()?,
                frame_body_max_bytes: cursor.u32()?,
                requests_max: cursor.u32()?,
                shard: ShardId(cursor.u32()?),
                bytes_max: cursor.u32()?,
                role: NodeRole::Other,
                epoch: LeaseEpoch(cursor.u64()?),
            };
            Ok((accepted, role, cursor.take(length.into())?))
        };
        let (accepted, role, leader) = read().map_err(short(ACCEPTED))?;
        ends(ACCEPTED, cursor.rest())?;
        let leader = text("leader's address", leader)?;
        Ok((Self { role: NodeRole::decode(role)?, ..accepted }, leader))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(hello: &Hello) -> Vec<u8> {
        let mut out = Vec::new();
        hello.encode(&mut out, 0);
        out.split_off(24)
    }

    #[test]
    fn a_hello_has_the_length_of_the_table() {
        assert_eq!(body(&Hello::new(None)).len(), 28);
        assert_eq!(body(&Hello::new(None))[12..16], [0xff; 4]);
        assert_eq!(body(&Hello::new(Some(ShardId(3))))[12..16], [3, 0, 0, 0]);
    }

    #[test]
    fn a_hello_of_another_version_is_told_from_garbage() {
        let newer = Hello { version_lowest: 2, version_highest: 9, ..Hello::new(None) };
        let decoded = Hello::decode(&body(&newer)[..12]).unwrap();
        assert_eq!((decoded.version_lowest, decoded.version_in_common()), (2, None));
        let both = Hello { version_highest: 9, ..Hello::new(None) };
        assert_eq!(Hello::decode(&body(&both)).unwrap().version_in_common(), Some(1));
        assert_eq!(Hello::decode(b"GET / HTTP/1.1\r\n").unwrap_err(), BodyError::Magic);
        assert_eq!(Hello::decode(b"").unwrap_err(), BodyError::Magic);
        let mut reserved = body(&Hello::new(None));
        reserved[27] = 1;
        assert_eq!(Hello::decode(&reserved).unwrap_err(), BodyError::Reserved("hello"));
    }
}
