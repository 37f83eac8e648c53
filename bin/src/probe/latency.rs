//! How long a small durable write takes here: the number that bounds every append.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use duolog_engine::disk::aligned::AlignedBuffer;
use rustix::fs::{Mode, OFlags};

/// Durable writes to time. At 50 us to 10 ms each this takes 15 ms to 3 s.
const WRITES: usize = 300;
/// The probe ends early after this, so that a slow disk does not stall `doctor`.
const TIME_MAX: Duration = Duration::from_secs(3);
const BLOCK_BYTES: usize = 4096;
const FILE_BLOCKS: usize = 256;

/// What the probe measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteLatency {
    /// Writes timed.
    pub count: usize,
    /// Median, microseconds.
    pub p50_us: u64,
    /// 99th percentile, microseconds.
    pub p99_us: u64,
}

/// Times 4 KiB O_DIRECT + O_DSYNC writes into space of `dir` that was written before, as the log
/// does it. The file has no name and is gone afterwards.
pub fn measure(dir: &Path) -> io::Result<WriteLatency> {
    let path = dir.join(format!(".duolog-latency-{}", std::process::id()));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::DIRECT | OFlags::DSYNC;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR);
    let _ = rustix::fs::unlink(&path);
    let file = file?;
    let fill = AlignedBuffer::zeroed(FILE_BLOCKS * BLOCK_BYTES, BLOCK_BYTES);
    rustix::io::pwrite(&file, fill.bytes(), 0)?;
    rustix::fs::fsync(&file)?;
    let block = &fill.bytes()[..BLOCK_BYTES];
    let begin = clock();
    let mut times_us = Vec::with_capacity(WRITES);
    for index in 0..WRITES {
        let offset = (index % FILE_BLOCKS * BLOCK_BYTES) as u64;
        let start = clock();
        rustix::io::pwrite(&file, block, offset)?;
        times_us.push(start.elapsed().as_micros() as u64);
        if begin.elapsed() > TIME_MAX {
            break;
        }
    }
    Ok(summarise(times_us))
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock; no decision does")]
fn clock() -> Instant {
    Instant::now()
}

fn summarise(mut times_us: Vec<u64>) -> WriteLatency {
    times_us.sort_unstable();
    let at = |percent: usize| {
        let index = (times_us.len() * percent).div_ceil(100).saturating_sub(1);
        times_us.get(index).copied().unwrap_or(0)
    };
    WriteLatency { count: times_us.len(), p50_us: at(50), p99_us: at(99) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_times() {
        let latency = summarise((1..=100).rev().collect());
        assert_eq!(latency, WriteLatency { count: 100, p50_us: 50, p99_us: 99 });
        assert_eq!(summarise(vec![7]), WriteLatency { count: 1, p50_us: 7, p99_us: 7 });
        assert_eq!(summarise(Vec::new()).p50_us, 0);
    }
}
