//! Files mapped for reading: by offline tools, and sealed index files by the thread that merges.

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::{Advice, Mmap};

/// Maps the file at `path` for reading from front to back. An empty file is an empty slice.
///
/// A device that fails while a page is fetched ends the process (SIGBUS). Offline tools have
/// nothing to lose by that; a server reads its log with ordinary reads, and a node whose disk
/// fails under its index is to stop anyway.
#[expect(unsafe_code, reason = "mapping a file is unsafe because others could change it")]
pub fn map(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    // SAFETY: the slice must not change while it is read. Callers hold the data directory's lock
    // or read a copy; segments are never truncated in place, and every byte is checked by its
    // checksum before it is believed.
    let map = unsafe { Mmap::map(&file)? };
    // A hint only: a kernel that refuses it reads all the same.
    let _ = map.advise(Advice::Sequential);
    Ok(map)
}
