//! What the disk does with large pieces in order: written, read, and both at once, as a copy of a
//! log from one node to another needs them when both lie on this disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::sync_channel;

use crate::generator::clock::Clock;
use crate::prepared_file;

/// Bytes per read or write.
const CHUNK_BYTES: usize = 1 << 20;
/// Chunks between the reader and the writer of a copy: neither waits for the other's every piece.
const CHUNKS_BETWEEN: usize = 4;

/// Memory at a page boundary, as direct I/O wants it.
#[repr(C, align(4096))]
struct Chunk([u8; CHUNK_BYTES]);

/// Rates in bytes per second. All with O_DIRECT, one MiB after the other, in files every block of
/// which was written before; what is written is durable at the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// Writing alone.
    pub write: f64,
    /// Reading alone.
    pub read: f64,
    /// One file copied into another, by a thread that reads and one that writes.
    pub copy: f64,
}

impl Rates {
    /// Measures with files of `size_bytes`, at least one MiB, in `dir`.
    pub fn measure(dir: &Path, size_bytes: u64) -> io::Result<Self> {
        let count = (size_bytes / CHUNK_BYTES as u64).max(1);
        let (from, to) = (dir.join("raw-sequence"), dir.join("raw-copy"));
        for path in [&from, &to] {
            prepared_file::create(path, count * CHUNK_BYTES as u64)?;
        }
        let rate = |job: &dyn Fn() -> io::Result<()>| {
            let clock = Clock::start();
            job()?;
            let took_s = clock.now_ns().max(1) as f64 / 1e9;
            Ok::<f64, io::Error>((count * CHUNK_BYTES as u64) as f64 / took_s)
        };
        let write = rate(&|| write(&open(&from)?, count))?;
        let read = rate(&|| read(&open(&from)?, count))?;
        let copy = rate(&|| copy(open(&from)?, &open(&to)?, count))?;
        for path in [&from, &to] {
            std::fs::remove_file(path)?;
        }
        Ok(Self { write, read, copy })
    }

    /// The mean of two measurements.
    #[must_use]
    pub fn mean(&self, other: &Self) -> Self {
        let mean = |one, two| f64::midpoint(one, two);
        Self {
            write: mean(self.write, other.write),
            read: mean(self.read, other.read),
            copy: mean(self.copy, other.copy),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::DIRECT;
    let flags = i32::try_from(flags.bits()).expect("open flags fit a C int");
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
}

fn chunk(fill: u8) -> Box<Chunk> {
    Box::new(Chunk([fill; CHUNK_BYTES]))
}

fn whole(count: usize) -> io::Result<()> {
    if count == CHUNK_BYTES {
        return Ok(());
    }
    Err(io::Error::other(format!("{count} of {CHUNK_BYTES} bytes were moved")))
}

fn write(file: &File, count: u64) -> io::Result<()> {
    let chunk = chunk(0x5a);
    for number in 0..count {
        whole(rustix::io::pwrite(file, &chunk.0, number * CHUNK_BYTES as u64)?)?;
    }
    file.sync_data()
}

fn read(file: &File, count: u64) -> io::Result<()> {
    let mut chunk = chunk(0);
    for number in 0..count {
        whole(rustix::io::pread(file, &mut chunk.0[..], number * CHUNK_BYTES as u64)?)?;
    }
    Ok(())
}

fn copy(from: File, to: &File, count: u64) -> io::Result<()> {
    let (full, written) = sync_channel::<io::Result<Box<Chunk>>>(CHUNKS_BETWEEN);
    let (empty, used) = sync_channel::<Box<Chunk>>(CHUNKS_BETWEEN + 2);
    for _ in 0..CHUNKS_BETWEEN + 2 {
        // As many as fit; the receiver is there.
        let _ = empty.try_send(chunk(0));
    }
    let reader = std::thread::Builder::new().name("raw-reader".to_owned());
    let reader = reader.spawn(move || {
        for number in 0..count {
            // Either end is gone only when the copy has failed.
            let Ok(mut chunk) = used.recv() else { return };
            let offset = number * CHUNK_BYTES as u64;
            let outcome = rustix::io::pread(&from, &mut chunk.0[..], offset);
            let outcome = outcome.map_err(io::Error::from).and_then(whole).map(|()| chunk);
            if full.send(outcome).is_err() {
                return;
            }
        }
    })?;
    for number in 0..count {
        let ended = |_| io::Error::other("the reading thread ended early");
        let chunk = written.recv().map_err(ended)??;
        whole(rustix::io::pwrite(to, &chunk.0, number * CHUNK_BYTES as u64)?)?;
        // The reader of the last chunks has ended.
        let _ = empty.try_send(chunk);
    }
    drop(written);
    let joined = reader.join();
    joined.map_err(|_| io::Error::other("the reading thread ended abnormally"))?;
    to.sync_data()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// A copy that moved nothing would be infinitely fast.
    #[test]
    fn a_copy_copies() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let content: Vec<u8> = (0..5 * CHUNK_BYTES).map(|at| (at / 1000) as u8).collect();
        std::fs::write(&from, &content).unwrap();
        prepared_file::create(&to, content.len() as u64).unwrap();
        copy(open(&from).unwrap(), &open(&to).unwrap(), 5).unwrap();
        let mut copied = Vec::new();
        File::open(&to).unwrap().read_to_end(&mut copied).unwrap();
        assert!(copied == content);
        let rates = Rates::measure(dir.path(), 3 << 20).unwrap();
        assert!(rates.write > 0.0 && rates.read > 0.0 && rates.copy > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "its files are gone");
        assert!(copy(open(&from).unwrap(), &open(&to).unwrap(), 6).is_err(), "it is too short");
    }
}
