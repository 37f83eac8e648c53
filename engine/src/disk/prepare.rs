//! Making segment files ahead of their use, on a background thread.
//!
//! A durable 4 KiB write into space that was written before takes about half as long as one into
//! space that was only allocated, and does not touch the file system's metadata (FORMAT.md has the
//! figures). So a new file is written through with zeros and synced, file and directory, before it
//! counts as ready. A file left over from before a crash keeps what is in it, but for its first two
//! pages: the segment's header and first block are written together, and a crash may tear them. A
//! new header before the first block of old ones would bring back blocks that were cut off.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::aligned::AlignedBuffer;
use super::blank::blank;
use super::shard_dir::ShardDir;
use crate::ids::Generation;
use crate::shard::Layout;

/// Zeros per write: large enough for the disk's full speed.
const CHUNK_BYTES: usize = 1 << 20;

/// Makes the file of segment `generation`. Any error leaves no such file; a full disk is
/// [`io::ErrorKind::StorageFull`].
pub fn prepare(dir: &ShardDir, layout: Layout, generation: Generation) -> io::Result<()> {
    let path = dir.segment(generation);
    if let Some(spare) = dir.take_spare(layout.segment_size_bytes)? {
        // D5: no block that was left here can follow a header that is written later.
        blank(&spare, 0, 2 * layout.align_bytes as usize, layout.align_bytes)?;
        fs::rename(spare, &path)?;
        return dir.sync();
    }
    let unfinished = dir.unfinished();
    let made = write_through(&unfinished, layout);
    if let Err(error) = made {
        // The file holds nothing; what matters is the first error.
        let _ = fs::remove_file(&unfinished);
        return Err(error);
    }
    fs::rename(&unfinished, &path)?;
    dir.sync()
}

fn write_through(path: &Path, layout: Layout) -> io::Result<()> {
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).custom_flags(direct);
    let file = options.open(path)?;
    let zeros = AlignedBuffer::zeroed(CHUNK_BYTES, layout.align_bytes as usize);
    let size = u64::from(layout.segment_size_bytes);
    let mut offset = 0;
    while offset < size {
        let length = (size - offset).min(CHUNK_BYTES as u64) as usize;
        file.write_all_at(&zeros.bytes()[..length], offset)?;
        offset += length as u64;
    }
    file.sync_all()
}
