//! The way into a shard's thread from all others: a bounded queue and a socket pair.
//!
//! The runtime's own cross-thread wake-ups can be lost while tasks are runnable (see
//! docs/adr/0002-waking-a-shard.md). So nobody wakes a shard's task directly: a message goes into
//! the queue, a byte into the socket that the shard has a read in flight on.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam::queue::ArrayQueue;
use duolog_engine::ids::{Generation, MonoUs, ShardId};
use duolog_engine::shard::RequestId;
use duolog_net::session::Session;

use super::cluster::gauges::{NodeGauge, ShardGauge};
use super::cluster::message::{ToControl, ToShard};
use super::index::SavedIndexes;
use super::metrics::{Number, ShardMetrics};

/// Messages that wait for a shard, at most. A sender that finds it full answers Busy itself.
const INBOX_MAX: usize = 65_536;

/// What other threads tell a shard.
#[derive(Debug)]
pub enum Message {
    /// A connection whose client asked for this shard.
    Connection {
        /// Its socket.
        socket: std::os::fd::OwnedFd,
        /// Its session, waiting to be served here.
        session: Box<Session>,
    },
    /// A request that came in on another shard's connection.
    Request {
        /// The shard that has the connection.
        from: ShardId,
        /// Its name for the request.
        id: RequestId,
        /// The client's number for it.
        correlation: u64,
        /// When it was taken from its socket.
        arrived: MonoUs,
        /// What is asked.
        request: ForeignRequest,
    },
    /// The answer to a request that was sent to another shard.
    Answer {
        /// This shard's name for the request.
        id: RequestId,
        /// One frame.
        frame: Vec<u8>,
    },
    /// A segment file is ready, or there was no space for it.
    Segment {
        /// Which.
        generation: Generation,
        /// What came of it.
        result: io::Result<()>,
    },
    /// The index of a segment is durable.
    Index {
        /// Which.
        generation: Generation,
        /// All saved indexes now.
        indexes: SavedIndexes,
    },
    /// Indexes were merged.
    Merged {
        /// All saved indexes now.
        indexes: SavedIndexes,
    },
    /// About the pair, for any shard.
    Pair(ToShard),
    /// About the pair, for shard 0.
    Control(ToControl),
    /// No new appends; finish what is in flight.
    Drain,
    /// Every shard has drained: send what is unsent and end.
    Stop,
}

/// A request on its way to another shard, owning its bytes.
#[derive(Debug)]
pub enum ForeignRequest {
    /// An append, checked by the shard that received it.
    Append(Vec<u8>),
    /// A page of a stream: the request's body.
    ReadStream(Vec<u8>),
    /// A page of the shard's log.
    ReadLog(duolog_net::wire::ReadLog),
}

/// The queue of one shard and the senders' end of its socket pair.
#[derive(Debug)]
pub struct Inbox {
    queue: ArrayQueue<Message>,
    poked: AtomicBool,
    bell: UnixStream,
    /// Grows whenever the shard's loop runs; the watchdog reads it.
    pub ticks: AtomicU64,
    /// Requests that the shard has not answered, and a promotion; the watchdog reads it.
    pub work: AtomicU64,
    /// How far the shard is; heartbeats and answers about the node's status read it.
    pub gauge: ShardGauge,
    /// Shard 0: what the node is; probes and answers about its status read it.
    pub node: NodeGauge,
    /// What the shard counts for operators.
    pub metrics: ShardMetrics,
    /// The shard has nothing in flight and takes no new appends.
    pub drained: AtomicBool,
    /// Shard 0 of a pair: the node leads no longer, or there was nobody to hand over to.
    pub handed_over: AtomicBool,
    /// How often the watchdog had to poke a shard that had work and did not run.
    pub rescues: Number,
    /// How often it has rung the shard's bell, rescues included.
    pub pokes: Number,
}

impl Inbox {
    /// An inbox, and the shard's end of the socket pair.
    pub fn new() -> io::Result<(Self, UnixStream)> {
        let (bell, own) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        own.set_nonblocking(true)?;
        let inbox = Self {
            queue: ArrayQueue::new(INBOX_MAX),
            poked: AtomicBool::new(false),
            bell,
            ticks: AtomicU64::new(0),
            work: AtomicU64::new(0),
            gauge: ShardGauge::default(),
            node: NodeGauge::default(),
            metrics: ShardMetrics::default(),
            drained: AtomicBool::new(false),
            handed_over: AtomicBool::new(false),
            rescues: Number::default(),
            pokes: Number::default(),
        };
        Ok((inbox, own))
    }

    /// Leaves a message; gives it back when the queue is full.
    pub fn send(&self, message: Message) -> Result<(), Message> {
        self.queue.push(message)?;
        if !self.poked.swap(true, Ordering::AcqRel) {
            self.poke();
        }
        Ok(())
    }

    /// Leaves a message that must not be lost; waits while the queue is full. Only for threads
    /// that may block.
    pub fn send_waiting(&self, message: Message) {
        let mut message = message;
        while let Err(back) = self.send(message) {
            message = back;
            std::thread::yield_now();
        }
    }

    /// Rings the bell. A full socket means that it has been rung often enough.
    pub fn poke(&self) {
        let _ = (&self.bell).write(&[1]);
    }

    /// For the shard: before it takes messages, so that a later one rings again.
    pub fn answered_the_bell(&self) {
        self.poked.swap(false, Ordering::AcqRel);
    }

    /// For the shard: the next message.
    pub fn take(&self) -> Option<Message> {
        self.queue.pop()
    }

    /// Whether messages wait.
    #[must_use]
    pub fn has_messages(&self) -> bool {
        !self.queue.is_empty()
    }
}
