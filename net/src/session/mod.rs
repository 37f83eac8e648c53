//! The server's side of one connection, as a machine without a socket.
//!
//! Owns the bytes of a frame that has not come completely, the answers that the socket has not
//! taken, and the count of what is in flight. Promises:
//! * nothing is read before a good hello; garbage gets one error, then [`Flow::Close`];
//! * a request over a limit gets `Busy` at once; nothing is queued for it. A client that goes on
//!   all the same is not read from until an answer to it is there;
//! * a client that does not read its answers is not read from ([`Flow::Pause`]);
//! * a request's bytes are lent to the caller where they lie; after warm-up nothing is allocated.
//!
//! Left to the driver: sockets, time limits (a hello that does not come), what a request means.
//! A session is plain data: it can be sent to another shard's thread together with its socket.
//!
//! ```
//! use duolog_net::session::{Flow, Request, Session, Settings};
//! use duolog_net::wire::{self, ErrorCode, ErrorFrame, Hello};
//!
//! let mut received = Vec::new();
//! Hello::new(None).encode(&mut received, 0);
//! wire::encode_frame(&mut received, wire::FrameKind::Append, 1, b"not an append");
//!
//! let mut session = Session::new(Settings::default());
//! let flow = session.receive(&received, &mut |ticket, request, answers| {
//!     assert_eq!(request, Request::Append(b"not an append"));
//!     answers.refuse(ticket, &ErrorFrame::new(ErrorCode::BadRequest), "not an append");
//! });
//! assert_eq!(flow, Flow::Read);
//! let count = session.answers().unsent().len();
//! session.answers().sent(count);
//! ```

mod answers;
mod errors;
mod feed;
mod refusals;
mod settings;
#[cfg(test)]
mod tests;

use duolog_engine::ids::{LeaseEpoch, ShardId};

pub use answers::{Answers, Ticket};
pub use feed::{Feed, Turn};
pub use settings::Settings;

use crate::limits::{
    ADMIN_ANSWER_MAX_BYTES, IDLE_BUFFER_MAX_BYTES, PAGE_MAX_BYTES, WIRE_VERSION, refusals_max,
};
use crate::wire::{
    Decoded, ErrorCode, ErrorFrame, Frame, FrameKind, Hello, HelloAccepted, Message, NodeRole,
    ReadLog, ReadStream, Standing, Subscribe, SubscriptionAsk, decode_frame, encode_frame,
};

/// A request, borrowed from the received bytes. Hello and ping are answered by the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// The bytes that `AppendView::parse` takes; not looked at yet.
    Append(&'a [u8]),
    /// A page of a stream.
    ReadStream(ReadStream<'a>),
    /// A page of a shard's log; the shard exists.
    ReadLog(ReadLog),
    /// A subscription to the shard that serves the connection, and what it may be sent ahead. Its
    /// first piece answers the ticket; later ones go out by [`Answers::push`].
    Subscribe(Subscribe<'a>),
    /// A request of an operator, in JSON; answered by
    /// [`encode_admin_answer`](crate::wire::encode_admin_answer).
    Admin(&'a str),
}

/// What the driver does with the connection next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Read from the socket; send what is unsent.
    Read,
    /// Do not read; send what is unsent. When [`Session::flow`] says [`Flow::Read`] again after
    /// [`Answers::sent`] or an answer, call [`Session::resume`] before reading.
    Pause,
    /// The client asked for this shard: hand socket and session to its thread, which calls
    /// [`Session::serve_at`]. A driver that cannot hand over calls it with its own shard.
    HandOver(ShardId),
    /// Do not read; send what is unsent and close when [`Session::is_done`]. Shut down writing
    /// first and drop what still comes for a moment: closing over unread bytes resets the
    /// connection, and the client would not see the error.
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No hello yet.
    Greeting,
    /// A hello asks for another shard; its answer has to wait.
    HandingOver { shard: ShardId, correlation: u64 },
    /// Requests.
    Serving,
    /// The client will send nothing more; requests in flight are still answered.
    Ending,
    /// The client sent what no client sends.
    Closing,
}

/// The machine. See the module's text.
#[derive(Debug)]
pub struct Session {
    settings: Settings,
    phase: Phase,
    /// Received bytes that could not be used yet: the beginning of a frame, or, after a pause or
    /// during a handover, whole frames too.
    held: Vec<u8>,
    /// How many bytes the frame at the front of `held` lacks as far as known; 0 = not looked at.
    lacking: usize,
    answers: Answers,
    /// What the client said about its subscriptions, by their correlation ids.
    asks: Vec<(u64, SubscriptionAsk)>,
    role: NodeRole,
    epoch: LeaseEpoch,
    leader: Box<str>,
}

impl Session {
    /// A session that waits for the hello, on a standalone node.
    ///
    /// Panics when the settings leave no room for a single request.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        assert!(settings.shard.0 < settings.shard_count, "the serving shard exists");
        assert!(settings.requests_max > 0, "one request may be in flight");
        assert!(
            settings.frame_body_max_bytes <= settings.bytes_max as usize,
            "the largest request fits into the connection's bytes in flight"
        );
        assert!(
            PAGE_MAX_BYTES <= settings.bytes_max,
            "the largest page fits into the connection's bytes in flight"
        );
        Self {
            answers: Answers::new(settings.unsent_max_bytes, refusals_max(settings.requests_max)),
            settings,
            phase: Phase::Greeting,
            held: Vec::new(),
            lacking: 0,
            asks: Vec::new(),
            role: NodeRole::Standalone,
            epoch: LeaseEpoch::NONE,
            leader: Box::default(),
        }
    }

    /// Says what the node is from now on. A client that was greeted is told if it is news, unless
    /// it takes no answers: then it will learn it from a refusal.
    pub fn set_standing(&mut self, standing: &Standing<'_>) {
        let Standing { role, epoch, leader } = *standing;
        if (role, epoch, leader) == (self.role, self.epoch, &*self.leader) {
            return;
        }
        (self.role, self.epoch) = (role, epoch);
        self.leader = leader.into();
        if self.phase == Phase::Serving && self.answers.is_read() {
            standing.encode(self.answers.out());
        }
    }

    /// Takes bytes as they came from the socket, any number of them, and lends each whole request
    /// to `on_request` with the ticket that its answer gives back, now or later.
    ///
    /// Only the beginning of a frame that is not whole is copied. Bytes given during a pause or
    /// handover are kept: give at most the read that was already under way.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        on_request: &mut impl FnMut(Ticket, Request<'_>, &mut Answers),
    ) -> Flow {
        let mut bytes = bytes;
        while !self.held.is_empty() && self.flow() == Flow::Read {
            let (head, rest) = bytes.split_at(self.lacking.min(bytes.len()));
            self.held.extend_from_slice(head);
            self.lacking -= head.len();
            bytes = rest;
            if self.lacking > 0 {
                return Flow::Read;
            }
            self.cut_held(on_request);
        }
        let used = self.cut(bytes, on_request);
        self.hold(&bytes[used..]);
        self.flow()
    }

    /// Goes on with the bytes kept during a pause or handover.
    pub fn resume(
        &mut self,
        on_request: &mut impl FnMut(Ticket, Request<'_>, &mut Answers),
    ) -> Flow {
        self.receive(&[], on_request)
    }

    /// The client has shut down its side. What is in flight is still answered; the beginning of
    /// a frame is dropped. See [`Session::is_done`].
    pub fn end_of_input(&mut self) {
        match self.phase {
            Phase::Greeting | Phase::HandingOver { .. } => self.close(),
            Phase::Serving => {
                self.phase = Phase::Ending;
                self.held = Vec::new();
                self.lacking = 0;
            }
            Phase::Ending | Phase::Closing => {}
        }
    }

    /// Accepts the hello that asked for another shard: `shard`'s thread serves from now on.
    /// Call [`Session::resume`] next.
    ///
    /// Panics unless the flow is [`Flow::HandOver`].
    pub fn serve_at(&mut self, shard: ShardId) {
        let Phase::HandingOver { correlation, .. } = self.phase else {
            panic!("only a session that is handed over can be taken over");
        };
        assert!(shard.0 < self.settings.shard_count, "the serving shard exists");
        self.settings.shard = shard;
        self.accept(correlation);
    }

    /// What the driver does next.
    #[must_use]
    pub const fn flow(&self) -> Flow {
        match self.phase {
            Phase::Closing | Phase::Ending => Flow::Close,
            Phase::HandingOver { shard, .. } => Flow::HandOver(shard),
            Phase::Greeting | Phase::Serving if self.answers.is_full() => Flow::Pause,
            Phase::Greeting | Phase::Serving => Flow::Read,
        }
    }

    /// Whether bytes kept during a pause or handover have not been looked at since:
    /// [`Session::resume`] comes before the next read.
    #[must_use]
    pub const fn has_kept(&self) -> bool {
        !self.held.is_empty() && self.lacking == 0
    }

    /// Under [`Flow::Close`]: whether the socket can be closed now, because nothing is unsent and,
    /// after a proper end of input, nothing is in flight.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let answered = self.phase != Phase::Ending || self.answers.requests_in_flight() == 0;
        self.flow() == Flow::Close && answered && self.answers.unsent_bytes() == 0
    }

    /// Whether the hello was accepted. Drivers bound the time until it is.
    #[must_use]
    pub const fn is_greeted(&self) -> bool {
        matches!(self.phase, Phase::Serving | Phase::Ending)
    }

    /// Takes what the client said about its subscriptions since the last call, in order. To be
    /// called after each [`Session::receive`], which adds no more than its bytes hold.
    pub fn take_asks(&mut self) -> std::vec::Drain<'_, (u64, SubscriptionAsk)> {
        self.asks.drain(..)
    }

    /// Where answers go, and what is unsent.
    pub const fn answers(&mut self) -> &mut Answers {
        &mut self.answers
    }

    /// Checks the machine's invariants; for tests and simulation.
    pub fn check(&self) {
        self.answers.check();
        assert!(self.answers.requests_in_flight() <= self.settings.requests_max);
        assert!(self.answers.bytes_in_flight() <= self.settings.bytes_max);
        assert!(self.lacking == 0 || !self.held.is_empty());
        assert!(self.phase != Phase::Closing || self.held.is_empty());
    }

    fn hold(&mut self, bytes: &[u8]) {
        if self.flow() == Flow::Close {
            return;
        }
        self.held.extend_from_slice(bytes);
    }

    fn close(&mut self) {
        self.phase = Phase::Closing;
        self.held = Vec::new();
        self.lacking = 0;
    }

    fn cut_held(&mut self, on_request: &mut impl FnMut(Ticket, Request<'_>, &mut Answers)) {
        let mut held = std::mem::take(&mut self.held);
        let used = self.cut(&held, on_request);
        if self.phase == Phase::Closing {
            return;
        }
        held.drain(..used);
        if !held.is_empty() || held.capacity() <= IDLE_BUFFER_MAX_BYTES {
            self.held = held;
        }
    }

    /// Serves the whole frames at the front of `bytes`; returns how many bytes they took.
    fn cut(
        &mut self,
        bytes: &[u8],
        on_request: &mut impl FnMut(Ticket, Request<'_>, &mut Answers),
    ) -> usize {
        let mut used_in_all = 0;
        self.lacking = 0;
        while self.flow() == Flow::Read && used_in_all < bytes.len() {
            match decode_frame(&bytes[used_in_all..], self.settings.frame_body_max_bytes) {
                Ok(Decoded::Complete { value, used }) => {
                    used_in_all += used;
                    self.frame(&value, on_request);
                }
                Ok(Decoded::NeedMore(lacking)) => {
                    self.lacking = lacking;
                    break;
                }
                Err(error) => {
                    self.refuse_frame(&error);
                    break;
                }
            }
        }
        used_in_all
    }

    fn frame(
        &mut self,
        frame: &Frame<'_>,
        on_request: &mut impl FnMut(Ticket, Request<'_>, &mut Answers),
    ) {
        let expected = match frame.kind {
            FrameKind::Hello => self.phase == Phase::Greeting,
            FrameKind::Append
            | FrameKind::ReadStream
            | FrameKind::ReadLog
            | FrameKind::Ping
            | FrameKind::Admin
            | FrameKind::Subscribe
            | FrameKind::Taken
            | FrameKind::Settle
            | FrameKind::Unsubscribe => self.phase == Phase::Serving,
            _ => false,
        };
        if !expected {
            return self.refuse_kind(frame);
        }
        let (request, cost_bytes) = match Message::decode(frame) {
            Err(error) => return self.refuse_body(frame, &error),
            Ok(Message::Hello(hello)) => return self.hello(&hello, frame.correlation),
            Ok(Message::Ping(body)) => {
                let out = self.answers.out();
                return encode_frame(out, FrameKind::Pong, frame.correlation, body);
            }
            Ok(Message::Append(body)) => {
                let cost_bytes = u32::try_from(body.len()).expect("new() bounds the frame limit");
                (Request::Append(body), cost_bytes)
            }
            Ok(Message::ReadStream(read)) => (Request::ReadStream(read), read.page_bytes()),
            Ok(Message::ReadLog(read)) if read.shard.0 >= self.settings.shard_count => {
                return self.refuse_shard(frame.correlation, read.shard);
            }
            Ok(Message::ReadLog(read)) => (Request::ReadLog(read), read.page_bytes()),
            Ok(Message::Subscribe(subscribe)) if subscribe.shard != self.settings.shard => {
                return self.refuse_foreign(frame.correlation, subscribe.shard);
            }
            Ok(Message::Subscribe(subscribe)) => (Request::Subscribe(subscribe), 0),
            Ok(Message::Subscription(ask)) => return self.asks.push((frame.correlation, ask)),
            Ok(Message::Admin(json)) => (Request::Admin(json), ADMIN_ANSWER_MAX_BYTES as u32),
            Ok(_) => unreachable!("the kinds that only a server sends were refused above"),
        };
        match self.admit(frame.correlation, cost_bytes) {
            Some(ticket) => on_request(ticket, request, &mut self.answers),
            None => self.refuse_busy(frame.correlation, cost_bytes),
        }
    }

    fn hello(&mut self, hello: &Hello, correlation: u64) {
        if hello.version_in_common().is_none() {
            let (lowest, highest) = (hello.version_lowest, hello.version_highest);
            let version = u64::from(WIRE_VERSION);
            let unsupported = ErrorFrame::new(ErrorCode::UnsupportedVersion);
            self.answers.error(
                &unsupported.numbers(version, version),
                correlation,
                format_args!(
                    "the client speaks versions {lowest} to {highest}, this server only \
                     {WIRE_VERSION}: use a client of the server's release"
                ),
            );
            return self.close();
        }
        match hello.shard {
            Some(shard) if shard.0 >= self.settings.shard_count => {
                self.refuse_shard(correlation, shard);
                self.close();
            }
            Some(shard) if shard != self.settings.shard => {
                self.phase = Phase::HandingOver { shard, correlation };
            }
            _ => self.accept(correlation),
        }
    }

    fn accept(&mut self, correlation: u64) {
        let Settings { cluster, node, shard_count, shard, .. } = self.settings;
        let frame_body_max_bytes = u32::try_from(self.settings.frame_body_max_bytes)
            .expect("new() bounds the frame limit");
        let accepted = HelloAccepted {
            version: WIRE_VERSION,
            shard_count,
            cluster,
            node,
            capabilities: 0,
            frame_body_max_bytes,
            requests_max: self.settings.requests_max,
            shard,
            bytes_max: self.settings.bytes_max,
            role: self.role,
            epoch: self.epoch,
        };
        accepted.encode(self.answers.out(), correlation, &self.leader);
        self.phase = Phase::Serving;
    }

    fn admit(&mut self, correlation: u64, cost_bytes: u32) -> Option<Ticket> {
        let Settings { requests_max, bytes_max, .. } = self.settings;
        let bytes = self.answers.bytes_in_flight().checked_add(cost_bytes)?;
        (self.answers.requests_in_flight() < requests_max && bytes <= bytes_max)
            .then(|| self.answers.open(correlation, cost_bytes))
    }
}
