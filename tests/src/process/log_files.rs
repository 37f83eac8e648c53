//! A stopped server's files: where its blocks lie, and ways to damage them.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use duolog_engine::block::BlockHeader;
use duolog_engine::disk::shard_dir::ShardDir;
use duolog_engine::ids::ShardId;
use duolog_engine::segment::SegmentHeader;

/// A block in its file.
#[derive(Clone, Debug)]
pub struct BlockAt {
    /// The segment.
    pub path: PathBuf,
    /// Where it starts, bytes.
    pub offset: u64,
    /// Its header.
    pub header: BlockHeader,
}

impl BlockAt {
    /// Where its last byte lies.
    #[must_use]
    pub const fn last_byte(&self) -> u64 {
        self.offset + self.header.length() as u64 - 1
    }

    /// A byte in the middle of its records.
    #[must_use]
    pub const fn middle(&self) -> u64 {
        self.last_byte() - self.header.body_length as u64 / 2
    }
}

/// The directory of a shard.
#[must_use]
pub fn shard_dir(data_dir: &Path, shard: u32) -> ShardDir {
    ShardDir::new(data_dir, ShardId(shard))
}

/// The blocks of a shard's log, in order.
///
/// # Panics
/// When a file cannot be read.
#[must_use]
pub fn blocks(data_dir: &Path, shard: u32) -> Vec<BlockAt> {
    let dir = shard_dir(data_dir, shard);
    let mut blocks = Vec::new();
    for (generation, _) in dir.segments().expect("the directory can be read") {
        let path = dir.segment(generation);
        let bytes = fs::read(&path).expect("the segment can be read");
        let Ok(segment) = SegmentHeader::decode(&bytes) else { continue };
        let align = segment.align_bytes as usize;
        let mut offset = align;
        while let Some(Ok(header)) = bytes.get(offset..).map(BlockHeader::decode) {
            if header.generation != generation {
                break;
            }
            blocks.push(BlockAt { path: path.clone(), offset: offset as u64, header });
            offset = (offset + header.length()).next_multiple_of(align);
        }
    }
    blocks
}

/// The files of a shard whose names end so, in order of their names.
///
/// # Panics
/// When the directory cannot be read.
#[must_use]
pub fn files(data_dir: &Path, shard: u32, ending: &str) -> Vec<PathBuf> {
    let dir = shard_dir(data_dir, shard);
    let entries = fs::read_dir(dir.path()).expect("the directory can be read");
    let paths = entries.map(|entry| entry.expect("its entries too").path());
    let mut found: Vec<PathBuf> =
        paths.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    found.sort();
    found
}

/// Turns one bit of the byte at `offset` over; doing it twice undoes it.
///
/// # Panics
/// When the file has no such byte.
pub fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("the file opens");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("the file has this byte");
    byte[0] ^= 0x10;
    file.write_all_at(&byte, offset).expect("the byte can be written");
    file.sync_all().expect("the byte can be synced");
}

/// Overwrites a range with zeros.
///
/// # Panics
/// When the file cannot be written.
pub fn zero(path: &Path, range: std::ops::Range<u64>) {
    let file = OpenOptions::new().write(true).open(path).expect("the file opens");
    let zeros = vec![0; usize::try_from(range.end - range.start).expect("a small range")];
    file.write_all_at(&zeros, range.start).expect("the range can be written");
    file.sync_all().expect("the range can be synced");
}

/// Copies a directory with everything in it.
///
/// # Panics
/// When that fails.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the copy's directory can be made");
    for entry in fs::read_dir(from).expect("the directory can be read") {
        let path = entry.expect("its entries too").path();
        let target = to.join(path.file_name().expect("an entry has a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("the file can be copied");
        }
    }
}
