//! A connection to the server beside the load's: round trips, and what the server tells about
//! itself. Blocks its thread; every answer is awaited for a bounded time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use duolog_net::limits::ADMIN_ANSWER_MAX_BYTES;
use duolog_net::wire::{FrameBuffer, FrameKind, Hello, encode_admin, encode_frame};
use serde::Deserialize;

use crate::generator::clock::Clock;
use crate::generator::latency::Latencies;

/// Longest wait for an answer: a server that is overloaded answers, late.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Body of a ping, bytes: about the size of an append and its receipt.
const PING_BYTES: usize = 256;
/// First round trips that are not counted.
const WARM_UP: u32 = 50;

/// See the module's text.
#[derive(Debug)]
pub struct Line {
    stream: TcpStream,
    received: FrameBuffer,
    out: Vec<u8>,
    correlation: u64,
    patience: Duration,
}

/// The members of a server's status that results use; `None`: not told. Described in
/// docs/OPERATIONS.md, "Status".
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the document describes them")]
pub struct ServerStatus {
    pub node: Option<String>,
    pub role: Option<String>,
    pub version: Option<String>,
    pub commit: Option<String>,
    pub cpu_us: Option<u64>,
    pub resident_bytes: Option<u64>,
    #[serde(default)]
    pub shards: Vec<ShardStatus>,
}

/// One shard's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the document describes them")]
pub struct ShardStatus {
    pub writes: Option<u64>,
    pub written_bytes: Option<u64>,
}

impl Line {
    /// Connects and greets.
    pub fn open(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
        stream.set_nodelay(true)?;
        let received = FrameBuffer::new(ADMIN_ANSWER_MAX_BYTES);
        let (out, correlation, patience) = (Vec::new(), 0, PATIENCE);
        let mut line = Self { stream, received, out, correlation, patience };
        line.set_patience(PATIENCE)?;
        Hello::new(None).encode(&mut line.out, 0);
        line.exchange(FrameKind::HelloAccepted)?;
        Ok(line)
    }

    /// From now on a write may take that long, and an answer as long again, twice if it comes in
    /// pieces.
    pub fn set_patience(&mut self, patience: Duration) -> io::Result<()> {
        self.patience = patience;
        self.stream.set_read_timeout(Some(patience))?;
        self.stream.set_write_timeout(Some(patience))
    }

    /// What the server says about itself.
    pub fn status(&mut self) -> io::Result<ServerStatus> {
        self.correlation += 1;
        let asked = encode_admin(&mut self.out, self.correlation, r#"{"command":"status"}"#);
        asked.map_err(io::Error::other)?;
        let answer = self.exchange(FrameKind::AdminAnswer)?;
        serde_json::from_slice(&answer).map_err(io::Error::from)
    }

    /// Latencies of `count` pings of 256 bytes, one after the other.
    pub fn round_trips(&mut self, count: u32) -> io::Result<Latencies> {
        let clock = Clock::start();
        let mut latencies = Latencies::default();
        for number in 0..WARM_UP + count {
            self.correlation += 1;
            encode_frame(&mut self.out, FrameKind::Ping, self.correlation, &[7; PING_BYTES]);
            let start_ns = clock.now_ns();
            self.exchange(FrameKind::Pong)?;
            if number >= WARM_UP {
                latencies.record(clock.now_ns() - start_ns);
            }
        }
        Ok(latencies)
    }

    /// Sends what was encoded and waits for the answer; its body.
    fn exchange(&mut self, wanted: FrameKind) -> io::Result<Vec<u8>> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        let clock = Clock::start();
        loop {
            if let Some(frame) = self.received.next_frame().map_err(io::Error::other)? {
                let kind = frame.kind;
                if kind == wanted && frame.correlation == self.correlation {
                    return Ok(frame.body.to_vec());
                }
                // A node of a pair tells unasked what it has become.
                if kind != FrameKind::Standing {
                    return Err(io::Error::other(format!("{kind:?} instead of {wanted:?}")));
                }
                continue;
            }
            // A server that says little at a time must not make this wait over and over.
            if u128::from(clock.now_ns()) > self.patience.as_nanos() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match self.stream.read(self.received.space())? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.received.filled(count),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::generator::clock::pause;

    /// Whoever asks has other things to do. Broken if a server that never tells its status, but
    /// says something else again and again, is listened to for ever.
    #[test]
    fn a_server_that_says_something_else_is_given_up_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut out = Vec::new();
            encode_frame(&mut out, FrameKind::HelloAccepted, 0, &[]);
            while stream.write_all(&out).is_ok() {
                out.clear();
                encode_frame(&mut out, FrameKind::Standing, 0, &[]);
                pause(Duration::from_millis(20));
            }
        });
        let mut line = Line::open(addr).unwrap();
        line.set_patience(Duration::from_millis(200)).unwrap();
        let clock = Clock::start();
        assert_eq!(line.status().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(clock.now_ns() < 5_000_000_000, "{} ns", clock.now_ns());
    }
}
