//! Received bytes of one client connection, cut into frames where they lie.

use super::frame::{Frame, FrameError, decode_frame};
use crate::received::Received;

/// Room for the next read when nothing larger is known to come, bytes.
const READ_BYTES: usize = 16 << 10;

/// A buffer that a socket is read into and that frames are taken from, without copying them.
///
/// ```
/// use duolog_net::wire::{self, FrameBuffer, FrameKind};
///
/// let mut received = Vec::new();
/// wire::encode_frame(&mut received, FrameKind::Pong, 7, b"alive");
/// let mut buffer = FrameBuffer::new(1 << 20);
/// for piece in received.chunks(10) {
///     buffer.space()[..piece.len()].copy_from_slice(piece);
///     buffer.filled(piece.len());
/// }
/// let frame = buffer.next_frame()?.expect("all its pieces are there");
/// assert_eq!((frame.correlation, frame.body), (7, &b"alive"[..]));
/// assert!(buffer.next_frame()?.is_none());
/// # Ok::<(), duolog_net::wire::FrameError>(())
/// ```
#[derive(Debug)]
pub struct FrameBuffer {
    received: Received,
    body_max_bytes: usize,
}

impl FrameBuffer {
    /// An empty buffer for frames with bodies up to `body_max_bytes`. Allocates when first used.
    #[must_use]
    pub const fn new(body_max_bytes: usize) -> Self {
        Self { received: Received::new(READ_BYTES), body_max_bytes }
    }

    /// Changes the limit, for what comes next.
    pub const fn set_body_max_bytes(&mut self, body_max_bytes: usize) {
        self.body_max_bytes = body_max_bytes;
    }

    /// Room to read into: at least 16 KiB, or what the frame begun lacks, if that is more (it
    /// grows with what has come, not with what is announced). Call [`FrameBuffer::filled`] then.
    pub fn space(&mut self) -> &mut [u8] {
        self.received.space()
    }

    /// Says that `count` bytes of [`FrameBuffer::space`] hold received bytes now.
    ///
    /// Panics when there was no such space.
    pub fn filled(&mut self, count: usize) {
        self.received.filled(count);
    }

    /// The next whole frame, `None` when more bytes are needed. After an error the connection is
    /// of no further use.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        let body_max_bytes = self.body_max_bytes;
        self.received.cut(|bytes| decode_frame(bytes, body_max_bytes))
    }

    /// Received bytes that no frame was made of yet.
    #[must_use]
    pub fn unused(&self) -> &[u8] {
        self.received.unused()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{FrameKind, encode_frame};

    fn feed(buffer: &mut FrameBuffer, mut bytes: &[u8], piece_bytes: usize) -> Vec<(u64, usize)> {
        let mut got = Vec::new();
        while !bytes.is_empty() {
            let space = buffer.space();
            let count = piece_bytes.min(bytes.len()).min(space.len());
            space[..count].copy_from_slice(&bytes[..count]);
            buffer.filled(count);
            bytes = &bytes[count..];
            while let Some(frame) = buffer.next_frame().unwrap() {
                assert!(frame.body.iter().all(|byte| u64::from(*byte) == frame.correlation));
                got.push((frame.correlation, frame.body.len()));
            }
        }
        got
    }

    #[test]
    fn frames_of_any_size_survive_pieces_of_any_size() {
        let sizes = [0, 1, 100, 20_000, 300_000, 3];
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for (correlation, size) in (1_u8..).zip(sizes) {
            let body = vec![correlation; size];
            encode_frame(&mut bytes, FrameKind::Ping, correlation.into(), &body);
            expected.push((u64::from(correlation), size));
        }
        for piece_bytes in [1, 7, 4096, 16 << 10, usize::MAX] {
            let mut buffer = FrameBuffer::new(1 << 20);
            assert_eq!(feed(&mut buffer, &bytes, piece_bytes), expected);
            assert!(buffer.unused().is_empty());
            assert!(buffer.space().len() <= 4 * READ_BYTES, "large space is given back");
        }
    }

    #[test]
    fn memory_follows_what_came_not_what_was_announced() {
        let mut bytes = Vec::new();
        encode_frame(&mut bytes, FrameKind::Ping, 1, &vec![1; 1 << 20]);
        let mut buffer = FrameBuffer::new(1 << 20);
        feed(&mut buffer, &bytes[..100], 100);
        assert!(buffer.space().len() <= 2 * READ_BYTES);
    }
}
