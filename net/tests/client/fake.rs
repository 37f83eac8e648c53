//! A server without a log: each test plays its part, frame by frame.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use duolog_net::client::{Client, ClientBuilder, ClusterId, Hlc, LeaseEpoch, Lsn, NodeId};
use duolog_net::client::{Copies, Revision, ShardId};
use duolog_net::wire::{
    Appended, ErrorFrame, FrameBuffer, FrameKind, Hello, HelloAccepted, Message, NodeRole,
    Standing, StreamSpan, encode_frame,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Bounds every wait of a test: reached only when something hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for `future`, or fails with `what` instead of hanging.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not happen"),
    }
}

/// What a well-behaved fake says to a hello.
pub fn accepted() -> HelloAccepted {
    HelloAccepted {
        version: 1,
        shard_count: 4,
        cluster: ClusterId(1),
        node: NodeId(2),
        capabilities: 0,
        frame_body_max_bytes: 2 << 20,
        requests_max: 16,
        shard: ShardId(0),
        bytes_max: 8 << 20,
        role: NodeRole::Standalone,
        epoch: LeaseEpoch(0),
    }
}

pub struct Fake {
    listener: TcpListener,
    pub address: String,
    pub accepted: HelloAccepted,
    /// The leader's address, as told in the answer to a hello.
    pub leader: String,
}

impl Fake {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound port").to_string();
        Self { listener, address, accepted: accepted(), leader: String::new() }
    }

    /// A node of a pair: its role, its newest reign and where it says the leader is.
    pub async fn node(role: NodeRole, epoch: u64, leader: &str) -> Self {
        let mut fake = Self::start().await;
        (fake.accepted.role, fake.accepted.epoch) = (role, LeaseEpoch(epoch));
        leader.clone_into(&mut fake.leader);
        fake
    }

    /// Greets whoever comes, and takes no request; the number tells how many came.
    pub fn greet_all(self) -> Arc<AtomicUsize> {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            let mut peers = Vec::new();
            while let Ok((stream, _)) = self.listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let mut peer = Peer { stream, frames: FrameBuffer::new(4 << 20) };
                let mut out = Vec::new();
                self.accepted.encode(&mut out, 0, &self.leader);
                peer.send(&out).await;
                peers.push(peer);
            }
        });
        count
    }

    /// The next connection, before its hello was read.
    pub async fn stranger(&self) -> Peer {
        let (stream, _) = soon("a connection", self.listener.accept()).await.expect("accept");
        Peer { stream, frames: FrameBuffer::new(4 << 20) }
    }

    /// The next connection, greeted.
    pub async fn peer(&self) -> Peer {
        let mut peer = self.stranger().await;
        let hello = peer.request().await;
        assert_eq!(hello.kind, FrameKind::Hello);
        Hello::decode(&hello.body).expect("a hello");
        let mut out = Vec::new();
        self.accepted.encode(&mut out, hello.correlation, &self.leader);
        peer.send(&out).await;
        peer
    }

    /// A client of this server and its connection's other end.
    pub async fn with_client(options: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Joined {
        let fake = Self::start().await;
        let builder = options(Client::builder().addresses(&fake.address));
        let (client, peer) = tokio::join!(builder.connect(), fake.peer());
        (client.expect("a client"), fake, peer)
    }
}

pub type Joined = (Client, Fake, Peer);

/// A received request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub kind: FrameKind,
    pub correlation: u64,
    pub body: Vec<u8>,
}

pub struct Peer {
    pub stream: TcpStream,
    frames: FrameBuffer,
}

impl Peer {
    /// The next frame, or `None` when the client has closed the connection.
    pub async fn next(&mut self) -> Option<Received> {
        loop {
            if let Some(frame) = self.frames.next_frame().expect("the client sends frames") {
                let (kind, correlation) = (frame.kind, frame.correlation);
                return Some(Received { kind, correlation, body: frame.body.to_vec() });
            }
            let read = soon("a request", self.stream.read(self.frames.space())).await;
            match read {
                Ok(count) if count > 0 => self.frames.filled(count),
                _ => return None,
            }
        }
    }

    pub async fn request(&mut self) -> Received {
        self.next().await.expect("a request instead of the end")
    }

    /// The next request that is not a ping; pings are answered.
    pub async fn request_but_ping(&mut self) -> Received {
        loop {
            let request = self.request().await;
            if request.kind != FrameKind::Ping {
                return request;
            }
            self.frame(FrameKind::Pong, request.correlation, &request.body).await;
        }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        soon("sending", self.stream.write_all(bytes)).await.expect("the client reads");
    }

    pub async fn frame(&mut self, kind: FrameKind, correlation: u64, body: &[u8]) {
        let mut out = Vec::new();
        encode_frame(&mut out, kind, correlation, body);
        self.send(&out).await;
    }

    /// Answers an append of one event with a receipt that carries `lsn`.
    pub async fn receipt(&mut self, correlation: u64, lsn: u64) {
        self.receipt_with(correlation, lsn, false).await;
    }

    pub async fn receipt_with(&mut self, correlation: u64, lsn: u64, replayed: bool) {
        let receipt = Appended {
            first_lsn: Lsn(lsn),
            last_lsn: Lsn(lsn),
            hlc: Hlc(0),
            epoch: LeaseEpoch(0),
            shard: ShardId(0),
            copies: Copies::ThisDisk,
            replayed,
        };
        let mut out = Vec::new();
        let span = StreamSpan { first: Revision(0), event_count: 1 };
        receipt.encode(&mut out, correlation, [span]);
        self.send(&out).await;
    }

    pub async fn error(&mut self, correlation: u64, error: ErrorFrame, text: &str) {
        let mut out = Vec::new();
        error.encode(&mut out, correlation, text);
        self.send(&out).await;
    }

    pub async fn standing(&mut self, role: NodeRole, epoch: u64, leader: &str) {
        let mut out = Vec::new();
        Standing { role, epoch: LeaseEpoch(epoch), leader }.encode(&mut out);
        self.send(&out).await;
    }

    pub async fn not_leader(&mut self, correlation: u64, epoch: u64, leader: &str) {
        let mut out = Vec::new();
        let error = ErrorFrame::not_leader(LeaseEpoch(epoch));
        error.encode_with(&mut out, correlation, "this node does not lead", leader);
        self.send(&out).await;
    }

    /// Answers the ping that must come next: proof that nothing else was sent before it.
    pub async fn expect_ping(&mut self) {
        let ping = self.request().await;
        assert_eq!(ping.kind, FrameKind::Ping, "nothing but a ping is expected");
        self.frame(FrameKind::Pong, ping.correlation, &ping.body).await;
    }
}

/// The body of a received frame as a message.
pub fn message(received: &Received) -> Message<'_> {
    let Received { kind, correlation, body } = received;
    let frame = duolog_net::wire::Frame { kind: *kind, correlation: *correlation, body };
    Message::decode(&frame).expect("the client sends messages")
}
