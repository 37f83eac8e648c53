//! The postings of one stream in a tail: the first inline, the others in a chain of chunks.
//!
//! Owns how chunks grow and how a chain is walked from either end; all chains of a tail share one
//! vector of words. Promise: adding a posting is constant work, and reaching any one is a walk over
//! chunks from the nearer end: in a default segment at most 500 hops.

use std::iter;

use crate::ids::{Revision, StreamId};
use crate::index::span::Span;

/// Postings in a stream's first chunk; each further one is twice as large.
pub(super) const CHUNK_FIRST: u32 = 4;
/// Doublings until chunks stop growing, at 1024 postings: 4 KiB.
const CHUNK_DOUBLINGS: u32 = 8;
/// Postings in a chunk that has stopped growing.
const CHUNK_LAST: u32 = CHUNK_FIRST << CHUNK_DOUBLINGS;
/// Postings in all chunks that are still growing.
const CHUNKS_GROWING: u32 = CHUNK_LAST - CHUNK_FIRST;
/// Words before a chunk's postings: the previous and the next chunk.
pub(super) const CHUNK_LINKS: usize = 2;
/// No chunk.
const NONE: u32 = u32::MAX;

/// One stream: 48 bytes, its first posting inline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Postings {
    pub(super) id: StreamId,
    first: Revision,
    fencing_token: u64,
    pub(super) count: u32,
    first_offset: u32,
    first_chunk: u32,
    last_chunk: u32,
}

/// Where the posting at a position behind the inline one lies among its stream's chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChunkPosition {
    ordinal: u32,
    within: u32,
    size: u32,
}

impl ChunkPosition {
    fn of(position: u32) -> Self {
        if position >= CHUNKS_GROWING {
            let beyond = position - CHUNKS_GROWING;
            let ordinal = CHUNK_DOUBLINGS + beyond / CHUNK_LAST;
            return Self { ordinal, within: beyond % CHUNK_LAST, size: CHUNK_LAST };
        }
        let ordinal = (position / CHUNK_FIRST + 1).ilog2();
        let size = CHUNK_FIRST << ordinal;
        Self { ordinal, within: position - (size - CHUNK_FIRST), size }
    }
}

impl Postings {
    /// A stream's first event.
    pub(super) fn new(id: StreamId, first: Revision, offset: u32, fencing_token: u64) -> Self {
        let (first_chunk, last_chunk) = (NONE, NONE);
        Self { id, first, fencing_token, count: 1, first_offset: offset, first_chunk, last_chunk }
    }

    /// What the tail has of the stream.
    pub(super) fn span(&self) -> Span {
        Span { first: self.first, count: u64::from(self.count), fencing_token: self.fencing_token }
    }

    /// Notes a token that was seen before the events here.
    pub(super) fn raise_token(&mut self, fencing_token: u64) {
        self.fencing_token = self.fencing_token.max(fencing_token);
    }

    /// Adds the stream's next event, with 0 for no token.
    pub(super) fn push(&mut self, chunks: &mut Vec<u32>, offset: u32, fencing_token: u64) {
        self.fencing_token = self.fencing_token.max(fencing_token);
        let at = ChunkPosition::of(self.count - 1);
        if at.within == 0 {
            let new = word(chunks.len());
            chunks.extend_from_slice(&[self.last_chunk, NONE]);
            chunks.resize(chunks.len() + at.size as usize, 0);
            match self.last_chunk {
                NONE => self.first_chunk = new,
                last => chunks[last as usize + 1] = new,
            }
            self.last_chunk = new;
        }
        chunks[self.last_chunk as usize + CHUNK_LINKS + at.within as usize] = offset;
        self.count += 1;
    }

    /// The chunk with the given ordinal, reached from the nearer end.
    fn chunk(&self, chunks: &[u32], ordinal: u32) -> u32 {
        let last = ChunkPosition::of(self.count - 2).ordinal;
        let (mut chunk, link, hops) = if ordinal <= last / 2 {
            (self.first_chunk, 1, ordinal)
        } else {
            (self.last_chunk, 0, last - ordinal)
        };
        for _ in 0..hops {
            chunk = chunks[chunk as usize + link];
        }
        chunk
    }

    /// Offsets of the postings `start..start + count`, in runs from the front.
    pub(super) fn forwards<'a>(
        &'a self,
        chunks: &'a [u32],
        start: u32,
        count: u32,
    ) -> impl Iterator<Item = &'a [u32]> + use<'a> {
        debug_assert!(start + count <= self.count);
        let (mut position, end) = (start, start + count);
        let mut chunk = NONE;
        iter::from_fn(move || {
            if position == end {
                return None;
            }
            if position == 0 {
                position = 1;
                return Some(std::slice::from_ref(&self.first_offset));
            }
            let at = ChunkPosition::of(position - 1);
            chunk = match chunk {
                NONE => self.chunk(chunks, at.ordinal),
                chunk => chunks[chunk as usize + 1],
            };
            let length = (at.size - at.within).min(end - position);
            position += length;
            let from = chunk as usize + CHUNK_LINKS + at.within as usize;
            Some(&chunks[from..from + length as usize])
        })
    }

    /// The same postings, in runs from the back; each run itself is in ascending order.
    pub(super) fn backwards<'a>(
        &'a self,
        chunks: &'a [u32],
        start: u32,
        count: u32,
    ) -> impl Iterator<Item = &'a [u32]> + use<'a> {
        debug_assert!(start + count <= self.count);
        let mut end = start + count;
        let mut chunk = NONE;
        iter::from_fn(move || {
            if end == start {
                return None;
            }
            if end == 1 {
                end = 0;
                return Some(std::slice::from_ref(&self.first_offset));
            }
            let at = ChunkPosition::of(end - 2);
            chunk = match chunk {
                NONE => self.chunk(chunks, at.ordinal),
                chunk => chunks[chunk as usize],
            };
            let length = (at.within + 1).min(end - start);
            end -= length;
            let to = chunk as usize + CHUNK_LINKS + at.within as usize + 1;
            Some(&chunks[to - length as usize..to])
        })
    }
}

/// An index that fits a link.
pub(super) fn word(index: usize) -> u32 {
    u32::try_from(index).ok().filter(|index| *index != NONE).expect(
        "a segment is at most 2 GiB of records of at least 72 bytes with 3 words each at most",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_positions_are_gapless() {
        let mut expected = ChunkPosition { ordinal: 0, within: 0, size: CHUNK_FIRST };
        for position in 0..10_000 {
            assert_eq!(ChunkPosition::of(position), expected);
            expected.within += 1;
            if expected.within == expected.size {
                expected.ordinal += 1;
                expected.within = 0;
                expected.size = (expected.size * 2).min(CHUNK_LAST);
            }
        }
    }
}
