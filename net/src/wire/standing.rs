//! What a node is in its pair, as clients are told: in the answer to a hello, and unasked whenever
//! it changes.

use duolog_engine::bytes::{Cursor, TooShort};
use duolog_engine::ids::LeaseEpoch;

use super::body::{BodyError, ends, short, text};
use super::frame::{FrameKind, OpenFrame};
use crate::limits::ADDRESS_MAX_BYTES;

const MESSAGE: &str = "standing";

/// What a node is to a client. The numbers are the wire's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NodeRole {
    /// It has no peer and serves everything.
    #[default]
    Standalone = 0,
    /// It serves everything.
    Leader = 1,
    /// It serves reads that may be stale.
    Follower = 2,
    /// It serves nothing now: it boots, is promoted, or is fenced.
    Other = 3,
}

impl NodeRole {
    /// The role with this number.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Standalone),
            1 => Some(Self::Leader),
            2 => Some(Self::Follower),
            3 => Some(Self::Other),
            _ => None,
        }
    }

    pub(super) fn decode(code: u8) -> Result<Self, BodyError> {
        let unknown = BodyError::UnknownValue { field: "role", value: code.into() };
        Self::from_code(code).ok_or(unknown)
    }

    /// Whether appends and linearizable reads are served.
    #[must_use]
    pub const fn serves(self) -> bool {
        matches!(self, Self::Standalone | Self::Leader)
    }
}

/// What a node is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing<'a> {
    /// What it is.
    pub role: NodeRole,
    /// The newest reign that it leads or follows, or knows to have begun; 0 standalone.
    pub epoch: LeaseEpoch,
    /// Where clients reach that reign's leader, `host:port`, at most 255 bytes; empty if not known.
    pub leader: &'a str,
}

impl<'a> Standing<'a> {
    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let frame = OpenFrame::begin(out, FrameKind::Standing, 0);
        out.extend_from_slice(&[self.role as u8, address_length(self.leader)]);
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&self.epoch.0.to_le_bytes());
        out.extend_from_slice(self.leader.as_bytes());
        frame.finish(out);
    }

    /// Decodes a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        let mut cursor = Cursor::new(body);
        let mut read = || -> Result<_, TooShort> {
            let (role, length, reserved) = (cursor.u8()?, cursor.u8()?, cursor.take(6)?);
            let epoch = LeaseEpoch(cursor.u64()?);
            Ok((role, reserved, epoch, cursor.take(length.into())?))
        };
        let (role, reserved, epoch, leader) = read().map_err(short(MESSAGE))?;
        if reserved != [0; 6] {
            return Err(BodyError::Reserved(MESSAGE));
        }
        ends(MESSAGE, cursor.rest())?;
        Ok(Self { role: NodeRole::decode(role)?, epoch, leader: text("leader's address", leader)? })
    }
}

/// The length byte of an address.
///
/// Panics above 255 bytes: addresses are checked by the configuration.
pub(super) fn address_length(address: &str) -> u8 {
    assert!(address.len() <= ADDRESS_MAX_BYTES, "an address has at most 255 bytes: {address}");
    address.len() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_that_of_the_table() {
        let standing = Standing { role: NodeRole::Follower, epoch: LeaseEpoch(9), leader: "a:1" };
        let mut out = Vec::new();
        standing.encode(&mut out);
        let body = &out[24..];
        assert_eq!(body[..16], [2, 3, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&body[16..], b"a:1");
        assert_eq!(Standing::decode(body), Ok(standing));
        for end in 0..body.len() {
            assert_eq!(Standing::decode(&body[..end]), Err(BodyError::TooShort("standing")));
        }
        let mut wrong = body.to_vec();
        wrong[0] = 4;
        let unknown = BodyError::UnknownValue { field: "role", value: 4 };
        assert_eq!(Standing::decode(&wrong), Err(unknown));
    }
}
