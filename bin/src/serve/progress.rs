//! How far the recovery of a shard is: bytes of its log that were read, for whoever waits.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use duolog_engine::ids::Generation;
use duolog_engine::recovery::LogSource;

/// One shard's.
#[derive(Debug, Default)]
pub struct Progress {
    scanned_bytes: AtomicU64,
    total_bytes: AtomicU64,
    done: AtomicBool,
}

/// A reading of a [`Progress`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgressReading {
    /// Bytes of segments that were read.
    pub scanned_bytes: u64,
    /// Bytes of the segments that are read, at most: the last ones are seldom full. 0 until this is
    /// known.
    pub total_bytes: u64,
    /// The shard is recovered.
    pub done: bool,
}

impl Progress {
    /// The shard is recovered.
    pub fn finish(&self) {
        self.done.store(true, Ordering::Relaxed);
    }

    /// How far it is. Some pages are read twice, which counts only to the whole.
    #[must_use]
    pub fn read(&self) -> ProgressReading {
        let total_bytes = self.total_bytes.load(Ordering::Relaxed);
        ProgressReading {
            scanned_bytes: self.scanned_bytes.load(Ordering::Relaxed).min(total_bytes),
            total_bytes,
            done: self.done.load(Ordering::Relaxed),
        }
    }
}

/// A log whose reads are counted. A new one begins at zero: a recovery that begins again reads all
/// of it again.
#[derive(Debug)]
pub struct Counted<'a, S> {
    source: &'a mut S,
    progress: &'a Progress,
}

impl<'a, S> Counted<'a, S> {
    /// Counts the reads of `source`.
    pub fn new(source: &'a mut S, progress: &'a Progress) -> Self {
        progress.scanned_bytes.store(0, Ordering::Relaxed);
        Self { source, progress }
    }
}

impl<S: LogSource> LogSource for Counted<'_, S> {
    fn segments(&mut self) -> io::Result<Vec<(Generation, u64)>> {
        self.source.segments()
    }

    fn settle(&mut self, first: Generation) -> io::Result<()> {
        let segments = self.source.segments()?;
        let read = segments.iter().filter(|(generation, _)| *generation >= first);
        let total = read.map(|(_, size_bytes)| size_bytes).sum();
        self.progress.total_bytes.store(total, Ordering::Relaxed);
        self.source.settle(first)
    }

    fn read(
        &mut self,
        generation: Generation,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        let read = self.source.read(generation, offset, buffer)?;
        self.progress.scanned_bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Segments;

    impl LogSource for Segments {
        fn segments(&mut self) -> io::Result<Vec<(Generation, u64)>> {
            Ok(vec![(Generation(1), 100), (Generation(2), 200), (Generation(3), 400)])
        }

        fn settle(&mut self, _first: Generation) -> io::Result<()> {
            Ok(())
        }

        fn read(&mut self, _: Generation, _: u64, buffer: &mut [u8]) -> io::Result<usize> {
            Ok(buffer.len().min(30))
        }
    }

    #[test]
    fn what_was_read_is_counted_against_what_is_to_be_read() {
        let progress = Progress::default();
        let mut segments = Segments;
        let mut counted = Counted::new(&mut segments, &progress);
        counted.settle(Generation(2)).unwrap();
        counted.read(Generation(2), 0, &mut [0; 20]).unwrap();
        counted.read(Generation(2), 20, &mut [0; 50]).unwrap();
        let read = ProgressReading { scanned_bytes: 50, total_bytes: 600, done: false };
        assert_eq!(progress.read(), read);
        for _ in 0..30 {
            counted.read(Generation(3), 0, &mut [0; 50]).unwrap();
        }
        assert_eq!(progress.read().scanned_bytes, 600);
        Counted::new(&mut segments, &progress);
        progress.finish();
        let again = ProgressReading { scanned_bytes: 0, total_bytes: 600, done: true };
        assert_eq!(progress.read(), again);
    }
}
