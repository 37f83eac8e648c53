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
const PATIENCE: Duration = Duration::from_secs(10);
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
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let received = FrameBuffer::new(ADMIN_ANSWER_MAX_BYTES);
        let mut line = Self { stream, received, out: Vec::new(), correlation: 0 };
        Hello::new(None).encode(&mut line.out, 0);
        line.exchange(FrameKind::HelloAccepted)?;
        Ok(line)
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
            match self.stream.read(self.received.space())? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.received.filled(count),
            }
        }
    }
}
