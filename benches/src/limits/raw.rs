//! The two physical limits: one small durable write, and one loopback round trip, each made the
//! plainest way there is, by a thread that does nothing else.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::generator::clock::Clock;
use crate::generator::latency::Latencies;
use crate::prepared_file;

/// Bytes per write: the smallest block.
pub(super) const WRITE_BYTES: usize = 4096;
/// The file that is written round and round, bytes.
const FILE_BYTES: u64 = 16 << 20;
/// Request and answer of the round trip, bytes: about the size of an append and of a receipt.
const PING_BYTES: usize = 256;
/// First operations that are not counted.
const WARM_UP: u32 = 100;

/// Memory at a page boundary, as direct I/O wants it.
#[repr(C, align(4096))]
pub(super) struct Page(pub(super) [u8; WRITE_BYTES]);

/// Latencies of `count` 4 KiB writes with O_DIRECT and O_DSYNC into written space of a file
/// in `dir`, one after the other.
pub fn durable_writes(dir: &Path, count: u32) -> io::Result<Latencies> {
    let path = dir.join("raw-writes");
    prepared_file::create(&path, FILE_BYTES)?;
    let flags = rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::DSYNC;
    let flags = i32::try_from(flags.bits()).expect("open flags fit a C int");
    let file = OpenOptions::new().write(true).custom_flags(flags).open(&path)?;
    let page = Box::new(Page([0x5a; WRITE_BYTES]));
    let clock = Clock::start();
    let mut latencies = Latencies::default();
    for number in 0..WARM_UP + count {
        let offset = (u64::from(number) * WRITE_BYTES as u64) % FILE_BYTES;
        let start = clock.now_ns();
        let written = rustix::io::pwrite(&file, &page.0, offset)?;
        let took = clock.now_ns() - start;
        if written != WRITE_BYTES {
            return Err(io::Error::other(format!("short write of {written} bytes")));
        }
        if number >= WARM_UP {
            latencies.record(took);
        }
    }
    drop(file);
    std::fs::remove_file(&path)?;
    Ok(latencies)
}

/// Latencies of `count` round trips of 256 bytes over loopback TCP between two threads that
/// block in `read`.
pub fn loopback_round_trips(count: u32) -> io::Result<Latencies> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    let echo = std::thread::Builder::new().name("echo".to_owned()).spawn(move || {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut bytes = [0; PING_BYTES];
        while stream.read_exact(&mut bytes).is_ok() {
            stream.write_all(&bytes)?;
        }
        Ok::<(), io::Error>(())
    })?;
    let mut stream = TcpStream::connect(addr)?;
    stream.set_nodelay(true)?;
    let clock = Clock::start();
    let mut latencies = Latencies::default();
    let mut bytes = [7; PING_BYTES];
    for number in 0..WARM_UP + count {
        let start = clock.now_ns();
        stream.write_all(&bytes)?;
        stream.read_exact(&mut bytes)?;
        if number >= WARM_UP {
            latencies.record(clock.now_ns() - start);
        }
    }
    drop(stream);
    match echo.join() {
        Ok(outcome) => outcome?,
        Err(_) => return Err(io::Error::other("the echo thread ended abnormally")),
    }
    Ok(latencies)
}
