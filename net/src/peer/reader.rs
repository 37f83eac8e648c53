//! Received bytes of one connection of the pair, cut into messages where they lie.

use super::frame::{PeerError, PeerKind, decode_peer_frame};
use super::{PeerMessage, decode_message};
use crate::limits::PEER_READ_BYTES;
use crate::received::Received;
use crate::wire::Decoded;

/// A buffer that a socket is read into and that messages are taken from; blocks are lent, not
/// copied. It starts by taking nothing but the first message of its side, so that a stranger
/// cannot make it hold more than that.
#[derive(Debug)]
pub struct PeerReader {
    received: Received,
    greeting: Option<&'static [PeerKind]>,
}

impl PeerReader {
    /// For a connection that was accepted: the first message is a hello.
    #[must_use]
    pub const fn of_accepted() -> Self {
        Self::new(&[PeerKind::Hello])
    }

    /// For a connection that was dialled: the first message welcomes or refuses.
    #[must_use]
    pub const fn of_dialled() -> Self {
        Self::new(&[PeerKind::Welcome, PeerKind::Refused])
    }

    /// For a connection whose hello another thread has read: any message comes next.
    #[must_use]
    pub const fn of_greeted() -> Self {
        Self { received: Received::new(PEER_READ_BYTES), greeting: None }
    }

    const fn new(greeting: &'static [PeerKind]) -> Self {
        Self { received: Received::new(PEER_READ_BYTES), greeting: Some(greeting) }
    }

    /// Room to read into: at least 256 KiB, or what the block begun lacks, if that is more (it
    /// grows with what has come, not with what is announced). Call [`PeerReader::filled`] then.
    pub fn space(&mut self) -> &mut [u8] {
        self.received.space()
    }

    /// Says that `count` bytes of [`PeerReader::space`] hold received bytes now.
    ///
    /// Panics when there was no such space.
    pub fn filled(&mut self, count: usize) {
        self.received.filled(count);
    }

    /// Takes bytes from elsewhere: what came together with the hello when a connection is handed
    /// to another shard's thread.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let space = self.received.space();
            let count = space.len().min(rest.len());
            space[..count].copy_from_slice(&rest[..count]);
            self.received.filled(count);
            rest = &rest[count..];
        }
    }

    /// The next whole message, `None` when more bytes are needed. After an error the connection is
    /// of no further use.
    pub fn next_message(&mut self) -> Result<Option<PeerMessage<'_>>, PeerError> {
        let greeting = self.greeting;
        let frame = self.received.cut(|bytes| {
            if let (Some(kinds), Some(kind)) = (greeting, announced(bytes))
                && !kinds.contains(&kind)
            {
                return Err(PeerError::Unexpected(kind));
            }
            decode_peer_frame(bytes)
        })?;
        match frame {
            None => Ok(None),
            Some(frame) => {
                self.greeting = None;
                decode_message(&frame).map(Some)
            }
        }
    }

    /// Received bytes that no message was made of yet.
    #[must_use]
    pub fn unused(&self) -> &[u8] {
        self.received.unused()
    }
}

/// The kind in a header that has come as far as that.
fn announced(bytes: &[u8]) -> Option<PeerKind> {
    let code = bytes.get(8..10)?.first_chunk::<2>()?;
    PeerKind::from_code(u16::from_le_bytes(*code))
}

/// Decodes the message at the front of `bytes`.
pub fn decode_peer(bytes: &[u8]) -> Result<Decoded<PeerMessage<'_>>, PeerError> {
    match decode_peer_frame(bytes)? {
        Decoded::NeedMore(lacking) => Ok(Decoded::NeedMore(lacking)),
        Decoded::Complete { value, used } => {
            Ok(Decoded::Complete { value: decode_message(&value)?, used })
        }
    }
}

#[cfg(test)]
mod tests {
    use duolog_engine::block::BLOCK_HEADER_BYTES;
    use duolog_engine::ids::{LeaseEpoch, Lsn};

    use super::*;
    use crate::peer::{PeerCommit, encode_block};

    const EPOCH: LeaseEpoch = LeaseEpoch(5);

    #[test]
    fn nothing_is_taken_before_the_first_message_of_the_side() {
        let mut bytes = Vec::new();
        encode_block(&mut bytes, EPOCH, &[0; BLOCK_HEADER_BYTES]);
        for mut reader in [PeerReader::of_accepted(), PeerReader::of_dialled()] {
            reader.push(&bytes[..10]);
            let refused = PeerError::Unexpected(PeerKind::Block);
            assert_eq!(reader.next_message(), Err(refused), "known from ten bytes");
        }
    }

    #[test]
    fn blocks_and_marks_survive_pieces_of_any_size() {
        let sizes = [BLOCK_HEADER_BYTES, 5000, 300_000, 2_000_000, BLOCK_HEADER_BYTES];
        let mut bytes = Vec::new();
        for (index, size) in (0_u8..).zip(sizes) {
            encode_block(&mut bytes, EPOCH, &vec![index; size]);
            PeerCommit { epoch: EPOCH, lsn: Lsn(index.into()) }.encode(&mut bytes);
        }
        for piece_bytes in [7, 4096, 100_000, usize::MAX] {
            let mut reader = PeerReader::of_accepted();
            reader.greeting = None;
            let mut got = Vec::new();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let space = reader.space();
                let count = piece_bytes.min(rest.len()).min(space.len());
                space[..count].copy_from_slice(&rest[..count]);
                reader.filled(count);
                rest = &rest[count..];
                while let Some(message) = reader.next_message().unwrap() {
                    match message {
                        PeerMessage::Block { epoch, block } => {
                            assert!(epoch == EPOCH && block.iter().all(|byte| *byte == block[0]));
                            got.push((block[0], block.len()));
                        }
                        PeerMessage::Commit(commit) => {
                            assert_eq!(commit.lsn.0 + 1, got.len() as u64);
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            assert_eq!(got, (0..).zip(sizes).collect::<Vec<_>>());
            assert!(reader.unused().is_empty());
            assert!(reader.space().len() <= 4 * PEER_READ_BYTES, "large space is given back");
        }
    }
}
