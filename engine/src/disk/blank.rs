//! Overwriting what lies behind the end of a log, durably: what was there can never again be taken
//! for a part of the log (invariant D5). Blocking.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use super::aligned::AlignedBuffer;
use super::shard_dir::ShardDir;
use crate::block::BLOCK_MAGIC;
use crate::ids::Place;

/// Read size, bytes: a multiple of every alignment.
const CHUNK_BYTES: usize = 1 << 20;

/// Writes zeros over every page behind `place` in its segment that could be the beginning of a
/// block. The last goes first, so that a crash in between leaves the beginning of what was there.
///
/// A node of a pair does this before it follows anybody. What a crash or a cut has left behind the
/// end of its log are blocks of a log that it shares with the other node: when the block before
/// one of them comes back from there, hash and all, the left one would continue it, and the log
/// would go on with what was never acknowledged, past what was.
pub fn blank_behind(dir: &ShardDir, place: Place, align_bytes: u32) -> io::Result<()> {
    let path = dir.segment(place.generation);
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let size = file.metadata()?.len();
    let align = u64::from(align_bytes);
    let mut pages = Vec::new();
    // The segment's header stays.
    let mut offset = u64::from(place.offset).max(align);
    let mut buffer = vec![0; CHUNK_BYTES];
    while offset < size {
        let length = (size - offset).min(CHUNK_BYTES as u64) as usize;
        file.read_exact_at(&mut buffer[..length], offset)?;
        for (page, at) in buffer[..length].chunks(align_bytes as usize).zip(0..) {
            if page.starts_with(&BLOCK_MAGIC) {
                pages.push(offset + at * align);
            }
        }
        offset += length as u64;
    }
    if pages.is_empty() {
        return Ok(());
    }
    // D5: past the page cache, which an older write under way could come behind, and on the medium.
    let flags = rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::DSYNC;
    let file = OpenOptions::new().write(true).custom_flags(flags.bits() as i32).open(path)?;
    let zeros = AlignedBuffer::zeroed(align_bytes as usize, align_bytes as usize);
    for offset in pages.into_iter().rev() {
        file.write_all_at(zeros.bytes(), offset)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Generation, ShardId};

    #[test]
    fn beginnings_of_blocks_behind_the_end_become_zero_and_nothing_else() {
        let files = tempfile::tempdir().unwrap();
        let dir = ShardDir::new(files.path(), ShardId(0));
        dir.create().unwrap();
        let path = dir.segment(Generation(1));
        let mut content = vec![7; 2 << 20];
        let starts = [0, 4096, 8192, 40 << 10, (1 << 20) - 4096, 1 << 20, (2 << 20) - 4096];
        for at in starts {
            content[at..at + 8].copy_from_slice(&BLOCK_MAGIC);
        }
        // Not where a block could begin.
        content[12_000..12_008].copy_from_slice(&BLOCK_MAGIC);
        std::fs::write(&path, &content).unwrap();
        let place = Place { generation: Generation(1), offset: 8192 };
        blank_behind(&dir, place, 4096).unwrap();
        for at in starts.into_iter().filter(|at| *at >= 8192) {
            content[at..at + 4096].fill(0);
        }
        assert!(std::fs::read(&path).unwrap() == content);
        blank_behind(&dir, Place { generation: Generation(1), offset: 0 }, 4096).unwrap();
        content[4096..8192].fill(0);
        assert!(std::fs::read(&path).unwrap() == content, "the first page is the segment's header");
        let none = Place { generation: Generation(9), offset: 4096 };
        blank_behind(&dir, none, 4096).unwrap();
    }
}
