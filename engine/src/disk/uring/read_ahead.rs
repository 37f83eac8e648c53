//! A segment read from one place on, in order: the pieces behind are on their way from the disk
//! while those before are used. Knows nothing of blocks.

use std::collections::VecDeque;
use std::io;

use glommio::io::ReadResult;
use glommio::task::JoinHandle;

use super::log_file::LogFiles;
use crate::ids::{Generation, Place};

/// Bytes per read: with a few of them under way, a disk's full rate.
const PIECE_BYTES: usize = 1 << 20;
/// Pieces under way at one time, once it has shown that the reader goes on.
const PIECES_AHEAD_MAX: usize = 3;

type Reading = JoinHandle<io::Result<(u64, ReadResult)>>;

/// See the module. Holds what was asked for last and three pieces.
///
/// What was read ahead of the log's end may be older than what is there when it is used: whoever
/// reads there checks what comes, and when it is not right begins anew with a fresh value.
#[derive(Debug, Default)]
pub struct ReadAhead {
    generation: Generation,
    /// Where each begins in the file, and its bytes; without gaps.
    pieces: VecDeque<(u64, ReadResult)>,
    /// Those behind, on their way.
    reading: VecDeque<Reading>,
    /// Offset behind the last piece that is there.
    have: u64,
    /// Offset behind the last piece that is on its way.
    asked: u64,
    /// The file ends with the last piece that is there.
    ended: bool,
    /// Pieces to keep under way.
    ahead: usize,
    /// What lies in several pieces, put together.
    joined: Vec<u8>,
}

impl ReadAhead {
    /// Bytes from `place`, where a block begins, on: `length` of them, or as many as the file has.
    ///
    /// # Errors
    /// The file cannot be opened or read, or `place` is not aligned. Nothing is kept then.
    pub async fn bytes(
        &mut self,
        files: &LogFiles,
        place: Place,
        length: usize,
    ) -> io::Result<&[u8]> {
        let from = u64::from(place.offset);
        let front = self.pieces.front().map_or(self.have, |(start, _)| *start);
        if place.generation != self.generation || from < front || from > self.have {
            let fresh = Self { generation: place.generation, have: from, ..Self::default() };
            *self = Self { asked: from, ..fresh };
        }
        while self.pieces.front().is_some_and(|(start, piece)| start + piece.len() as u64 <= from) {
            self.pieces.pop_front();
        }
        let to = from + length as u64;
        while self.have < to && !self.ended {
            self.ahead = (self.ahead + 1).min(PIECES_AHEAD_MAX);
            if let Err(error) = self.receive(files).await {
                *self = Self::default();
                return Err(error);
            }
        }
        Ok(self.part(from, to))
    }

    /// Waits for the next piece, and has those behind it sent for.
    async fn receive(&mut self, files: &LogFiles) -> io::Result<()> {
        self.ask(files).await?;
        let reading = self.reading.pop_front().expect("one is under way now");
        let ended = || io::Error::other("the executor ended while reading");
        let (start, piece) = reading.await.ok_or_else(ended)??;
        if start != self.have {
            // The segment was made for another device, or nobody knows a block there.
            return Err(io::Error::other("no block begins there: it is not aligned"));
        }
        self.have += piece.len() as u64;
        self.ended = piece.len() < PIECE_BYTES;
        self.pieces.push_back((start, piece));
        self.ask(files).await
    }

    async fn ask(&mut self, files: &LogFiles) -> io::Result<()> {
        while self.reading.len() < self.ahead && !self.ended {
            let file = files.segment(self.generation).await?;
            let offset = self.asked;
            let read = async move { file.read(offset, PIECE_BYTES).await };
            self.reading.push_back(glommio::spawn_local(read).detach());
            self.asked += PIECE_BYTES as u64;
        }
        Ok(())
    }

    /// What is there of `from..to`: in its place, if one piece has it all.
    fn part(&mut self, from: u64, to: u64) -> &[u8] {
        let inside = |(start, piece): &(u64, ReadResult)| {
            let low = from.max(*start) - start;
            let high = to.clamp(*start, start + piece.len() as u64) - start;
            (low as usize).min(piece.len())..high as usize
        };
        let whole = |held: &&(u64, ReadResult)| {
            let (start, piece) = held;
            *start <= from && to <= start + piece.len() as u64
        };
        if let Some(held) = self.pieces.iter().find(whole) {
            return &held.1[inside(held)];
        }
        self.joined.clear();
        for held in &self.pieces {
            let range = inside(held);
            self.joined.extend_from_slice(held.1.get(range).unwrap_or_default());
        }
        &self.joined
    }
}

#[cfg(test)]
mod tests;
