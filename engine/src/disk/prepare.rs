//! Making segment files ahead of their use, on a background thread.
//!
//! A durable 4 KiB write into space that was written before takes about half as long as one into
//! space that was only allocated, and does not touch the file system's metadata (FORMAT.md has the
//! figures). So a new file is written through with zeros and synced, file and directory, before it
//! counts as ready. A file left over from before a crash is written through again, because what is
//! in it might be taken for a part of the log: a crash may leave a new segment header before old
//! blocks, and a block that comes back from the other node may lie before the old one behind it.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::aligned::AlignedBuffer;
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
        // D5: nothing that was left here can continue what is written later.
        write_through(&spare, layout)?;
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
    options.write(true).create(true).truncate(false).custom_flags(direct);
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
