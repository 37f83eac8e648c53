//! The pair's frame: the client protocol's header with the epoch where a client's frame has its
//! correlation id, and kinds of its own, so that a client on the wrong port is told at once.

use duolog_engine::block::BLOCK_HEADER_BYTES;
use duolog_engine::bytes::{Cursor, TooShort};
use duolog_engine::ids::LeaseEpoch;

use crate::limits::{FRAME_HEADER_BYTES, PEER_BLOCK_MAX_BYTES, PEER_MESSAGE_MAX_BYTES};
use crate::wire::{BodyError, Decoded};

/// What a frame carries. The numbers are the wire's; clients' kinds stay below 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum PeerKind {
    /// First frame of whoever dials.
    Hello = 101,
    /// The follower's answer to it.
    Welcome = 102,
    /// A hello, heartbeat or block is refused.
    Refused = 103,
    /// One block of the log.
    Block = 104,
    /// What is committed, when no block is there to tell it.
    Commit = 105,
    /// What is durable on the follower's disk.
    Acked = 106,
    /// The leader's sign of life.
    Heartbeat = 107,
    /// The answer to it.
    HeartbeatAcked = 108,
    /// The leader gives its reign away.
    Resign = 109,
    /// Does the follower still follow?
    Confirm = 110,
    /// It does.
    Confirmed = 111,
    /// What the leader knows to be stored of its chain.
    Chain = 112,
    /// Which stamps no later event of the shard has.
    Settled = 113,
}

impl PeerKind {
    /// Every kind, in the order of the numbers.
    pub const ALL: [Self; 13] = [
        Self::Hello,
        Self::Welcome,
        Self::Refused,
        Self::Block,
        Self::Commit,
        Self::Acked,
        Self::Heartbeat,
        Self::HeartbeatAcked,
        Self::Resign,
        Self::Confirm,
        Self::Confirmed,
        Self::Chain,
        Self::Settled,
    ];

    /// The wire's number.
    #[must_use]
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// The kind with this number.
    #[must_use]
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(101)?).copied()
    }

    /// Largest body, bytes.
    #[must_use]
    pub const fn body_max_bytes(self) -> usize {
        match self {
            Self::Block => PEER_BLOCK_MAX_BYTES,
            _ => PEER_MESSAGE_MAX_BYTES,
        }
    }
}

/// Why bytes are not a message of the pair. The connection they came from is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// Reserved bytes are not zero.
    #[error("reserved header bytes are {0:#x} instead of 0: not a frame of the peer protocol")]
    Reserved(u64),
    /// No such kind.
    #[error("unknown frame kind {0}: the peer protocol has 101 to 111; is this the peer's port?")]
    UnknownKind(u16),
    /// Before the hello is accepted, nothing else may come.
    #[error("a {0:?} came before the hello")]
    Unexpected(PeerKind),
    /// A length that this kind cannot have.
    #[error("{kind:?} of {length} bytes: {min} to {max} are possible")]
    Length {
        /// The kind.
        kind: PeerKind,
        /// Announced, bytes.
        length: u32,
        /// Least, bytes.
        min: usize,
        /// Most, bytes.
        max: usize,
    },
    /// The checksum does not fit the bytes.
    #[error("frame checksum is {found:#010x}, the header says {stored:#010x}")]
    Checksum {
        /// As stored.
        stored: u32,
        /// As computed.
        found: u32,
    },
    /// A hello of another version.
    #[error("the other node speaks version {0} of the peer protocol, this one version 1")]
    Version(u16),
    /// The body is not what the kind promises.
    #[error("{kind:?}: {error}")]
    Body {
        /// The kind.
        kind: PeerKind,
        /// What is wrong.
        error: BodyError,
    },
}

/// A whole frame whose checksum fits; of a block's body nothing has been looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerFrame<'a> {
    /// What the body is.
    pub kind: PeerKind,
    /// The reign that the message is about.
    pub epoch: LeaseEpoch,
    /// The message.
    pub body: &'a [u8],
}

/// Decodes the frame at the front of `bytes`. A block's header is checked as soon as it is there.
pub fn decode_peer_frame(bytes: &[u8]) -> Result<Decoded<PeerFrame<'_>>, PeerError> {
    let Some((header, rest)) = bytes.split_first_chunk::<FRAME_HEADER_BYTES>() else {
        return Ok(Decoded::NeedMore(FRAME_HEADER_BYTES - bytes.len()));
    };
    let (length, stored, kind, epoch) = header_fields(header)?;
    if kind == PeerKind::Block {
        check(stored, header, &[])?;
    }
    let Some(body) = rest.get(..length) else {
        return Ok(Decoded::NeedMore(length - rest.len()));
    };
    if kind != PeerKind::Block {
        check(stored, header, body)?;
    }
    let value = PeerFrame { kind, epoch, body };
    Ok(Decoded::Complete { value, used: FRAME_HEADER_BYTES + length })
}

type Fields = (usize, u32, PeerKind, LeaseEpoch);

fn header_fields(header: &[u8; FRAME_HEADER_BYTES]) -> Result<Fields, PeerError> {
    let mut cursor = Cursor::new(header);
    let mut read = || -> Result<_, TooShort> {
        let (length, stored, kind) = (cursor.u32()?, cursor.u32()?, cursor.u16()?);
        let reserved = u64::from(cursor.u16()?) << 32 | u64::from(cursor.u32()?);
        Ok((length, stored, kind, reserved, LeaseEpoch(cursor.u64()?)))
    };
    let (length, stored, kind, reserved, epoch) = read().expect("a header has 24 bytes");
    if reserved != 0 {
        return Err(PeerError::Reserved(reserved));
    }
    let kind = PeerKind::from_code(kind).ok_or(PeerError::UnknownKind(kind))?;
    let min = if kind == PeerKind::Block { BLOCK_HEADER_BYTES } else { 0 };
    let max = kind.body_max_bytes();
    if (min..=max).contains(&(length as usize)) {
        Ok((length as usize, stored, kind, epoch))
    } else {
        Err(PeerError::Length { kind, length, min, max })
    }
}

/// crc32c over the header without the checksum itself, then `body`.
fn checksum(header: &[u8; FRAME_HEADER_BYTES], body: &[u8]) -> u32 {
    let length = crc32c::crc32c(&header[..4]);
    crc32c::crc32c_append(crc32c::crc32c_append(length, &header[8..]), body)
}

fn check(stored: u32, header: &[u8; FRAME_HEADER_BYTES], body: &[u8]) -> Result<(), PeerError> {
    let found = checksum(header, body);
    if found == stored { Ok(()) } else { Err(PeerError::Checksum { stored, found }) }
}

fn header(kind: PeerKind, epoch: LeaseEpoch, length: usize) -> [u8; FRAME_HEADER_BYTES] {
    assert!(length <= kind.body_max_bytes(), "{kind:?} of {length} bytes is over its limit");
    let mut header = [0; FRAME_HEADER_BYTES];
    // The limit of every kind is below 4 GiB (limits.rs).
    header[..4].copy_from_slice(&(length as u32).to_le_bytes());
    header[8..10].copy_from_slice(&kind.code().to_le_bytes());
    header[16..].copy_from_slice(&epoch.0.to_le_bytes());
    header
}

/// The header of a [`PeerKind::Block`] frame; the block's bytes follow it on the socket, so that
/// they need not be copied. Its checksum does not cover the block, which has its own.
///
/// Panics when the length is not that of a block: the caller's own blocks are whole.
#[must_use]
pub fn block_frame_header(epoch: LeaseEpoch, block_bytes: usize) -> [u8; FRAME_HEADER_BYTES] {
    assert!(block_bytes >= BLOCK_HEADER_BYTES, "a block has a header");
    let mut header = header(PeerKind::Block, epoch, block_bytes);
    let sum = checksum(&header, &[]);
    header[4..8].copy_from_slice(&sum.to_le_bytes());
    header
}

/// Appends a [`PeerKind::Block`] frame with a copy of the block: for small blocks that share one
/// send.
pub fn encode_block(out: &mut Vec<u8>, epoch: LeaseEpoch, block: &[u8]) {
    out.extend_from_slice(&block_frame_header(epoch, block.len()));
    out.extend_from_slice(block);
}

/// Appends a frame of any other kind; `write` appends its body.
///
/// Panics when the body is over the kind's limit: every message's parts are bounded.
pub(super) fn encode(
    out: &mut Vec<u8>,
    kind: PeerKind,
    epoch: LeaseEpoch,
    write: impl FnOnce(&mut Vec<u8>),
) {
    debug_assert!(kind != PeerKind::Block, "blocks have a checksum of their own");
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
    write(out);
    let (room, body) = out[start..].split_at_mut(FRAME_HEADER_BYTES);
    let mut header = header(kind, epoch, body.len());
    let sum = checksum(&header, body);
    header[4..8].copy_from_slice(&sum.to_le_bytes());
    room.copy_from_slice(&header);
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: LeaseEpoch = LeaseEpoch(0x0102_0304_0506_0708);

    fn commit() -> Vec<u8> {
        let mut out = vec![0xee];
        encode(&mut out, PeerKind::Commit, EPOCH, |out| out.extend_from_slice(&[7; 8]));
        out.split_off(1)
    }

    #[test]
    fn layout_is_that_of_the_table() {
        let bytes = commit();
        assert_eq!(bytes[..4], [8, 0, 0, 0]);
        let checked = [&bytes[..4], &bytes[8..]].concat();
        assert_eq!(bytes[4..8], crc32c::crc32c(&checked).to_le_bytes());
        assert_eq!(bytes[8..16], [105, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..24], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(bytes[24..], [7; 8]);
    }

    #[test]
    fn kinds_and_numbers_go_both_ways() {
        for (number, kind) in (101..).zip(PeerKind::ALL) {
            assert_eq!((kind.code(), PeerKind::from_code(number)), (number, Some(kind)));
        }
        for wrong in [0, 1, 11, 100, 114] {
            assert_eq!(PeerKind::from_code(wrong), None);
        }
    }

    #[test]
    fn every_flipped_bit_of_a_message_and_of_a_block_header_is_noticed() {
        let mut block = Vec::new();
        encode_block(&mut block, EPOCH, &[0; BLOCK_HEADER_BYTES]);
        for (bytes, checked) in [(commit(), 32), (block, FRAME_HEADER_BYTES)] {
            for bit in 0..checked * 8 {
                let mut bad = bytes.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                let got = decode_peer_frame(&bad);
                // A longer length looks like a message that is not there yet.
                let longer =
                    bit < 32 && bad[..4] > bytes[..4] && matches!(got, Ok(Decoded::NeedMore(_)));
                assert!(got.is_err() || longer, "bit {bit}: {got:?}");
            }
        }
    }

    #[test]
    fn a_damaged_length_of_a_block_is_noticed_before_its_body_has_come() {
        let mut header = block_frame_header(EPOCH, 5000);
        assert_eq!(decode_peer_frame(&header), Ok(Decoded::NeedMore(5000)));
        header[0] ^= 1;
        assert!(matches!(decode_peer_frame(&header), Err(PeerError::Checksum { .. })));
    }

    #[test]
    fn lengths_that_a_kind_cannot_have_are_refused_from_the_header_alone() {
        let with = |kind: PeerKind, length: u32| {
            let mut bytes = [0; FRAME_HEADER_BYTES];
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            bytes[8..10].copy_from_slice(&kind.code().to_le_bytes());
            decode_peer_frame(&bytes).map(|_| ())
        };
        for (kind, length) in [
            (PeerKind::Hello, PEER_MESSAGE_MAX_BYTES + 1),
            (PeerKind::Block, PEER_BLOCK_MAX_BYTES + 1),
            (PeerKind::Block, BLOCK_HEADER_BYTES - 1),
        ] {
            let got = with(kind, length as u32);
            assert!(matches!(got, Err(PeerError::Length { .. })), "{got:?}");
        }
    }

    #[test]
    fn a_client_on_this_port_is_told_which_port_it_is() {
        let mut hello = Vec::new();
        crate::wire::Hello::new(None).encode(&mut hello, 0);
        assert_eq!(decode_peer_frame(&hello), Err(PeerError::UnknownKind(1)));
    }
}
