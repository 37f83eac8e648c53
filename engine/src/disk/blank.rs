//! Overwriting parts of a segment file with zeros, durably: what was there can never again be taken
//! for a part of the log (invariant D5).

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::aligned::AlignedBuffer;

/// Writes `length` zeros from `offset`, both multiples of `align_bytes`. Direct, like the writes
/// of blocks, so that neither the page cache nor an older write under way comes in between; on the
/// medium when it returns.
pub fn blank(path: &Path, offset: u64, length: usize, align_bytes: u32) -> io::Result<()> {
    let flags = rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::DSYNC;
    let file = OpenOptions::new().write(true).custom_flags(flags.bits() as i32).open(path)?;
    let zeros = AlignedBuffer::zeroed(length, align_bytes as usize);
    file.write_all_at(zeros.bytes(), offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_named_becomes_zero() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7; 16 << 10]).unwrap();
        blank(&path, 4096, 8192, 4096).unwrap();
        let found = std::fs::read(&path).unwrap();
        assert_eq!(found.len(), 16 << 10);
        assert!(found[4096..12288].iter().all(|byte| *byte == 0));
        assert!(found[..4096].iter().chain(&found[12288..]).all(|byte| *byte == 7));
    }
}
