//! The plainest durable server: one thread, one client, and each request received, written and
//! answered by calls that block. Nothing that sleeps between two requests answers a lone client
//! much sooner, so it shows how much of a server's time is the machine's.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use duolog_engine::ids::Revision;
use duolog_net::wire::{FrameBuffer, FrameKind, StreamSpan};

use super::raw::{Page, WRITE_BYTES};
use crate::prepared_file;
use crate::uring::skeleton::{BODY_MAX_BYTES, HELLO_ACCEPTED, receipt};

/// The file that is written round and round, bytes.
const FILE_BYTES: u64 = 16 << 20;

/// How the plain server runs.
#[derive(Clone, Debug)]
pub struct PlainSettings {
    /// Address to listen on, `host:port`.
    pub listen: String,
    /// Existing directory for its file, which stays there at the end.
    pub dir: PathBuf,
}

/// Serves one client after another until the process is killed. An error of the disk or the
/// listener ends it; a client that goes does not.
pub fn serve(settings: &PlainSettings) -> io::Result<()> {
    let mut log = Log::create(&settings.dir.join("plain.log"))?;
    let listener = TcpListener::bind(&settings.listen)?;
    println!("listening {}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept()?;
        // Whoever goes, the next one is served.
        let _ = answer(stream, &mut log);
    }
}

struct Log {
    file: File,
    page: Box<Page>,
    written: u64,
}

impl Log {
    fn create(path: &Path) -> io::Result<Self> {
        prepared_file::create(path, FILE_BYTES)?;
        let flags = rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::DSYNC;
        let flags = i32::try_from(flags.bits()).expect("open flags fit a C int");
        let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
        Ok(Self { file, page: Box::new(Page([0; WRITE_BYTES])), written: 0 })
    }

    /// One durable write that begins with `body`, as far as it fits.
    fn write(&mut self, body: &[u8]) -> io::Result<()> {
        let count = body.len().min(WRITE_BYTES);
        self.page.0[..count].copy_from_slice(&body[..count]);
        let offset = (self.written * WRITE_BYTES as u64) % FILE_BYTES;
        let count = rustix::io::pwrite(&self.file, &self.page.0, offset)?;
        if count != WRITE_BYTES {
            return Err(io::Error::other(format!("short write of {count} bytes")));
        }
        self.written += 1;
        Ok(())
    }
}

fn answer(mut stream: TcpStream, log: &mut Log) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = FrameBuffer::new(BODY_MAX_BYTES);
    let mut out = Vec::new();
    loop {
        let count = stream.read(buffer.space())?;
        if count == 0 {
            return Ok(());
        }
        buffer.filled(count);
        out.clear();
        while let Some(frame) = buffer.next_frame().map_err(io::Error::other)? {
            if frame.kind == FrameKind::Hello {
                HELLO_ACCEPTED.encode(&mut out, frame.correlation, "");
                continue;
            }
            log.write(frame.body)?;
            let span = StreamSpan { first: Revision(0), event_count: 1 };
            receipt(log.written).encode(&mut out, frame.correlation, [span]);
        }
        stream.write_all(&out)?;
    }
}
