//! A client that speaks the protocol itself, one thread, one socket: the tests decide what is sent
//! and when, and see every answer as it came.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use duolog_engine::append::AppendBuilder;
use duolog_engine::ids::{Lsn, ShardId};
use duolog_net::client::RecordedEvent;
use duolog_net::limits::answer_body_max_bytes;
use duolog_net::wire::{
    Appended, AppendedView, Consistency, ErrorCode, ErrorView, FrameBuffer, FrameKind, Hello,
    HelloAccepted, LogTail, Message, NodeRole, ReadLog, ReadStream, RecordsView, StreamSpan,
    StreamTail, encode_admin, encode_append, encode_frame,
};

/// How long an answer may take unless a test says otherwise.
const PATIENCE: Duration = Duration::from_secs(20);
/// Largest answer body of any server under test.
const ANSWER_MAX_BYTES: usize = answer_body_max_bytes(65 << 20);

/// A receipt, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Everything but the streams.
    pub head: Appended,
    /// The streams with events, in the request's order.
    pub spans: Vec<StreamSpan>,
}

impl Receipt {
    /// The same receipt as the answer to a retry.
    #[must_use]
    pub fn replayed(&self) -> Self {
        let head = Appended { replayed: true, ..self.head };
        Self { head, spans: self.spans.clone() }
    }

    /// Revision of the first event in the first stream.
    #[must_use]
    pub fn first_revision(&self) -> u64 {
        self.spans.first().map_or(u64::MAX, |span| span.first.0)
    }
}

/// An error frame, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The code.
    pub code: ErrorCode,
    /// Index of the stream that caused it.
    pub stream_index: Option<u16>,
    /// When to ask again, milliseconds.
    pub retry_after_ms: u32,
    /// First number.
    pub a: u64,
    /// Second number.
    pub b: u64,
    /// For people.
    pub text: String,
    /// Where clients reach the leader, if the code is `NotLeader` and the node knows it.
    pub leader: String,
}

/// A page, owned. `T` is its tail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The events in the page's order.
    pub events: Vec<RecordedEvent>,
    /// Where to go on.
    pub tail: T,
}

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a hello.
    Accepted(HelloAccepted),
    /// To an append.
    Appended(Receipt),
    /// To a read of a stream.
    Stream(Page<StreamTail>),
    /// To a read of a log.
    Log(Page<LogTail>),
    /// To a ping.
    Pong(Vec<u8>),
    /// To a request of an operator, JSON.
    Admin(String),
    /// No.
    Refused(Refused),
}

impl Answer {
    /// The receipt.
    ///
    /// # Panics
    /// When it is another answer.
    pub fn receipt(self) -> Receipt {
        match self {
            Self::Appended(receipt) => receipt,
            other => panic!("a receipt was expected, not {other:?}"),
        }
    }

    /// The refusal.
    ///
    /// # Panics
    /// When it is another answer.
    pub fn refused(self) -> Refused {
        match self {
            Self::Refused(refused) => refused,
            other => panic!("a refusal was expected, not {other:?}"),
        }
    }
}

/// One connection.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    frames: FrameBuffer,
    next: u64,
    roles: Vec<NodeRole>,
}

/// A frame as it came.
#[derive(Clone, Debug)]
pub struct OwnedFrame {
    /// What it carries.
    pub kind: FrameKind,
    /// Its correlation.
    pub correlation: u64,
    /// Its body.
    pub body: Vec<u8>,
}

impl OwnedFrame {
    /// Its body, decoded.
    ///
    /// # Panics
    /// When it is none of its kind.
    #[must_use]
    pub fn message(&self) -> Message<'_> {
        let Self { kind, correlation, body } = self;
        let frame = duolog_net::wire::Frame { kind: *kind, correlation: *correlation, body };
        Message::decode(&frame).expect("the server's frames are what their kind says")
    }
}

impl Wire {
    /// Connects without saying hello.
    pub fn dial(address: SocketAddr) -> io::Result<Self> {
        Self::dial_within(address, PATIENCE)
    }

    fn dial_within(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let frames = FrameBuffer::new(ANSWER_MAX_BYTES);
        Ok(Self { stream, frames, next: 1, roles: Vec::new() })
    }

    /// Connects and says hello, bound to no shard.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        Ok(Self::connect_to(address, None)?.0)
    }

    /// Connects and says hello; `shard` is the one to be bound to.
    pub fn connect_to(
        address: SocketAddr,
        shard: Option<ShardId>,
    ) -> io::Result<(Self, HelloAccepted)> {
        Self::connect_within(address, shard, PATIENCE)
    }

    /// Connects and says hello; neither that nor any later answer may take longer than `patience`.
    pub fn connect_within(
        address: SocketAddr,
        shard: Option<ShardId>,
        patience: Duration,
    ) -> io::Result<(Self, HelloAccepted)> {
        let mut wire = Self::dial_within(address, patience)?;
        let mut hello = Vec::new();
        Hello::new(shard).encode(&mut hello, 0);
        wire.write(&hello)?;
        match wire.receive()? {
            (0, Answer::Accepted(accepted)) => Ok((wire, accepted)),
            other => Err(io::Error::other(format!("the hello was answered by {other:?}"))),
        }
    }

    /// Sets how long an answer may take.
    pub fn patience(&self, limit: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(limit))
    }

    /// The socket.
    #[must_use]
    pub const fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// Says that nothing more will be sent.
    pub fn finish(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// Sends bytes as they are.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    const fn correlation(&mut self) -> u64 {
        let correlation = self.next;
        self.next += 1;
        correlation
    }

    /// Sends a frame of this kind; returns its correlation.
    pub fn send(&mut self, kind: FrameKind, body: &[u8]) -> io::Result<u64> {
        let correlation = self.correlation();
        let mut frame = Vec::new();
        encode_frame(&mut frame, kind, correlation, body);
        self.write(&frame)?;
        Ok(correlation)
    }

    /// Sends an append; returns its correlation.
    pub fn send_append(&mut self, append: &AppendBuilder) -> io::Result<u64> {
        let correlation = self.correlation();
        let mut frame = Vec::new();
        encode_append(&mut frame, correlation, append);
        self.write(&frame)?;
        Ok(correlation)
    }

    /// Sends a read of a stream; returns its correlation.
    pub fn send_read(&mut self, read: &ReadStream<'_>) -> io::Result<u64> {
        let correlation = self.correlation();
        let mut frame = Vec::new();
        read.encode(&mut frame, correlation).map_err(io::Error::other)?;
        self.write(&frame)?;
        Ok(correlation)
    }

    /// Sends a read of a log; returns its correlation.
    pub fn send_log(&mut self, read: &ReadLog) -> io::Result<u64> {
        let correlation = self.correlation();
        let mut frame = Vec::new();
        read.encode(&mut frame, correlation);
        self.write(&frame)?;
        Ok(correlation)
    }

    /// The next frame as it is, whatever it is.
    ///
    /// # Errors
    /// As [`Wire::receive`].
    pub fn receive_frame(&mut self) -> io::Result<OwnedFrame> {
        loop {
            if let Some(frame) = self.frames.next_frame().map_err(io::Error::other)? {
                let (kind, correlation) = (frame.kind, frame.correlation);
                return Ok(OwnedFrame { kind, correlation, body: frame.body.to_vec() });
            }
            let count = self.stream.read(self.frames.space())?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.frames.filled(count);
        }
    }

    /// The next answer with its correlation. [`ErrorKind::UnexpectedEof`] when the server has
    /// closed the connection.
    pub fn receive(&mut self) -> io::Result<(u64, Answer)> {
        loop {
            if let Some(frame) = self.frames.next_frame().map_err(io::Error::other)? {
                let message = Message::decode(&frame).map_err(io::Error::other)?;
                if let Message::Standing(standing) = message {
                    // Said unasked, whenever a node of a pair changes its role.
                    self.roles.push(standing.role);
                    continue;
                }
                return Ok((frame.correlation, owned(&message)?));
            }
            let count = self.stream.read(self.frames.space())?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.frames.filled(count);
        }
    }

    /// What the server has said unasked of its role so far, the newest last.
    ///
    /// # Errors
    /// It does not answer a ping.
    pub fn standings(&mut self) -> io::Result<Vec<NodeRole>> {
        self.ping()?;
        Ok(std::mem::take(&mut self.roles))
    }

    /// Waits until the server closes the connection; what else it sends is an error.
    pub fn await_close(&mut self) -> io::Result<()> {
        match self.receive() {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(()),
            Err(error) => Err(error),
            Ok(answer) => Err(io::Error::other(format!("{answer:?} instead of a close"))),
        }
    }

    /// The answer to one request, which has to come next.
    ///
    /// # Errors
    /// The connection ends, or something else comes.
    pub fn answer_to(&mut self, correlation: u64) -> io::Result<Answer> {
        match self.receive()? {
            (found, answer) if found == correlation => Ok(answer),
            other => Err(io::Error::other(format!("{other:?}, but {correlation} was asked"))),
        }
    }

    /// Sends an append and waits for its answer.
    pub fn try_append(&mut self, append: &AppendBuilder) -> io::Result<Answer> {
        let correlation = self.send_append(append)?;
        self.answer_to(correlation)
    }

    /// Sends an append and waits for its answer.
    ///
    /// # Panics
    /// When there is none.
    pub fn append(&mut self, append: &AppendBuilder) -> Answer {
        self.try_append(append).expect("the append is answered")
    }

    /// Sends the body of an append, however wrong, and waits for its answer.
    ///
    /// # Panics
    /// When there is none.
    pub fn append_bytes(&mut self, body: &[u8]) -> Answer {
        let sent = self.send(FrameKind::Append, body);
        sent.and_then(|correlation| self.answer_to(correlation)).expect("the append is answered")
    }

    /// Sends a ping and waits for it to come back.
    pub fn ping(&mut self) -> io::Result<()> {
        let correlation = self.send(FrameKind::Ping, b"alive")?;
        match self.answer_to(correlation)? {
            Answer::Pong(body) if body == b"alive" => Ok(()),
            other => Err(io::Error::other(format!("the ping was answered by {other:?}"))),
        }
    }

    /// Asks what operators ask: JSON in, JSON out.
    pub fn admin(&mut self, json: &str) -> io::Result<Answer> {
        let correlation = self.correlation();
        let mut frame = Vec::new();
        encode_admin(&mut frame, correlation, json).map_err(io::Error::other)?;
        self.write(&frame)?;
        self.answer_to(correlation)
    }

    /// One page of a stream.
    pub fn try_page(&mut self, read: &ReadStream<'_>) -> io::Result<Page<StreamTail>> {
        let correlation = self.send_read(read)?;
        match self.answer_to(correlation)? {
            Answer::Stream(page) => Ok(page),
            other => Err(io::Error::other(format!("the read was answered by {other:?}"))),
        }
    }

    /// One page of a stream.
    ///
    /// # Panics
    /// When it does not come.
    pub fn page(&mut self, read: &ReadStream<'_>) -> Page<StreamTail> {
        self.try_page(read).expect("the read is answered")
    }

    /// All events of a stream, page by page, in the direction of `read` from where it starts.
    ///
    /// # Panics
    /// When a page does not come.
    pub fn walk(&mut self, read: &ReadStream<'_>) -> Vec<RecordedEvent> {
        let mut read = *read;
        let mut events = Vec::new();
        loop {
            let page = self.page(&read);
            events.extend(page.events);
            if page.tail.end {
                return events;
            }
            assert_ne!(page.tail.next, read.from, "a page leads on");
            read.from = page.tail.next;
        }
    }

    /// All events of a stream forwards.
    ///
    /// # Panics
    /// When a page does not come.
    pub fn stream(&mut self, name: &str) -> Vec<RecordedEvent> {
        self.walk(&ReadStream::new(name))
    }

    /// All events of a shard's log from an LSN on.
    ///
    /// # Panics
    /// When a page does not come.
    pub fn log(&mut self, shard: u32, from: u64) -> Vec<RecordedEvent> {
        self.log_as(shard, from, Consistency::Linearizable)
    }

    /// [`Wire::log`] with the freshness that is wanted.
    ///
    /// # Panics
    /// When a page does not come.
    pub fn log_as(
        &mut self,
        shard: u32,
        from: u64,
        consistency: Consistency,
    ) -> Vec<RecordedEvent> {
        let shard = ShardId(shard);
        let mut read =
            ReadLog { from: Lsn(from), shard, events_max: 0, bytes_max: 4 << 20, consistency };
        let mut events = Vec::new();
        loop {
            let correlation = self.send_log(&read).expect("the server takes the read");
            match self.answer_to(correlation).expect("the read is answered") {
                Answer::Log(page) => {
                    events.extend(page.events);
                    if page.tail.end {
                        return events;
                    }
                    assert_ne!(page.tail.next, read.from, "a page leads on");
                    read.from = page.tail.next;
                }
                other => panic!("the read of the log was answered by {other:?}"),
            }
        }
    }
}

fn records(records: RecordsView<'_>) -> io::Result<Vec<RecordedEvent>> {
    records.map(|record| record.map(RecordedEvent::from).map_err(io::Error::other)).collect()
}

fn owned(message: &Message<'_>) -> io::Result<Answer> {
    Ok(match message {
        Message::HelloAccepted(accepted, _) => Answer::Accepted(*accepted),
        Message::Appended(view) => Answer::Appended(receipt(view)),
        Message::StreamPage(page) => {
            Answer::Stream(Page { events: records(page.records)?, tail: page.tail })
        }
        Message::LogPage(page) => {
            Answer::Log(Page { events: records(page.records)?, tail: page.tail })
        }
        Message::Pong(body) => Answer::Pong(body.to_vec()),
        Message::AdminAnswer(json) => Answer::Admin((*json).to_owned()),
        Message::Error(view) => Answer::Refused(refused(view)?),
        other => return Err(io::Error::other(format!("a server does not send {other:?}"))),
    })
}

fn receipt(view: &AppendedView<'_>) -> Receipt {
    Receipt { head: view.head, spans: view.spans().collect() }
}

fn refused(view: &ErrorView<'_>) -> io::Result<Refused> {
    let unknown = || io::Error::other(format!("unknown error code {}", view.code_number));
    Ok(Refused {
        code: view.code().ok_or_else(unknown)?,
        stream_index: view.stream_index,
        retry_after_ms: view.retry_after_ms,
        a: view.a,
        b: view.b,
        text: view.text.to_owned(),
        leader: view.leader.to_owned(),
    })
}
