//! A file whose every block was written once: the state in which durable writes are fastest.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Creates or overwrites `path` with `size_bytes` zeros and syncs it and its directory.
pub fn create(path: &Path, size_bytes: u64) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(path)?;
    let zeros = vec![0_u8; 1 << 20];
    let mut left = size_bytes;
    while left > 0 {
        let count = left.min(zeros.len() as u64) as usize;
        file.write_all(&zeros[..count])?;
        left -= count as u64;
    }
    file.sync_all()?;
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}
