//! How each system is spoken to on a socket: what opens a session, what an append looks like, how
//! its answer is recognised. All are driven by the same loop, one append in flight per connection.

mod duolog;
mod grpc;
mod http;
mod nats;
mod postgres;
mod protobuf;
mod resp;

use std::fmt;

pub use http::basin_file;

/// The event type that every system is told.
pub const EVENT_TYPE: &str = "bench";

/// One event for one stream.
#[derive(Clone, Copy, Debug)]
pub struct Append<'a> {
    /// The stream, key or subject.
    pub stream: &'a str,
    /// The version of the stream before this event; `None`: it has no event. Only conditional
    /// appends say so to the server.
    pub expected: Option<u64>,
    /// The event's id, for systems whose events have one.
    pub identity: u128,
    /// The event: printable characters, so that no format has to escape them.
    pub data: &'a [u8],
}

/// How a session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// Nothing is awaited.
    Open,
    /// [`Said::Open`] is.
    Awaited,
}

/// What a piece of the server's bytes says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Nothing that matters to the driver.
    Nothing,
    /// The session is open.
    Open,
    /// The append is durable as far as the server promises it; the stream's version now.
    Appended(u64),
    /// The append was refused; the name under which that is counted.
    Refused(&'static str),
}

/// One piece at the front of the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its length, bytes, at least 1.
    pub used: usize,
    /// What it says.
    pub said: Said,
}

/// What ends a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DialectError {
    /// Bytes that the protocol does not have, or that no request of ours calls for.
    #[error("the server sent what was not expected: {0}")]
    Unexpected(&'static str),
    /// The session was refused.
    #[error("the server refused the session: {0}")]
    Refused(String),
    /// The append cannot be put into the protocol.
    #[error("this append cannot be encoded: {0}")]
    Request(&'static str),
}

/// One connection's side of a protocol.
pub trait Dialect: fmt::Debug {
    /// What is sent as soon as the connection stands.
    fn greet(&mut self, out: &mut Vec<u8>) -> Greeting;

    /// Adds an append to what is sent. At most one is in flight.
    ///
    /// # Errors
    /// It cannot be encoded.
    fn append(&mut self, out: &mut Vec<u8>, append: &Append<'_>) -> Result<(), DialectError>;

    /// Takes the piece at the front of `bytes`; `None` if it is not whole. What the protocol wants
    /// answered at once is added to `out`.
    ///
    /// # Errors
    /// The connection is of no further use.
    fn receive(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Option<Piece>, DialectError>;
}

/// What appends depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    None,
    /// The stream is at the version that its last receipt named.
    Version,
}

/// A protocol and the append that is asked for in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Duolog's frames.
    Duolog(Condition),
    /// RESP: XADD.
    Redis,
    /// PostgreSQL's extended protocol: one prepared call of a function.
    Postgres,
    /// NATS text: a publish with a reply subject, answered by JetStream.
    Nats,
    /// gRPC: etcd's Put.
    Etcd,
    /// gRPC: UmaDB's Append.
    Umadb(Condition),
    /// HTTP/1.1: S2's append of records.
    StreamStore,
}

impl Language {
    /// A speaker for one connection. `number` is unique among those of one load.
    #[must_use]
    pub fn speaker(self, number: u32) -> Box<dyn Dialect> {
        match self {
            Self::Duolog(condition) => Box::new(duolog::Duolog::new(condition)),
            Self::Redis => Box::<resp::Resp>::default(),
            Self::Postgres => Box::<postgres::Postgres>::default(),
            Self::Nats => Box::new(nats::Nats::new(number)),
            Self::Etcd => Box::new(grpc::Grpc::new(protobuf::Call::EtcdPut)),
            Self::Umadb(condition) => Box::new(grpc::Grpc::new(protobuf::Call::Umadb(condition))),
            Self::StreamStore => Box::new(http::Http),
        }
    }
}

/// The number that decimal digits at the front of `text` write.
fn leading_number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&text[..digits]).ok()?.parse().ok()
}

/// Where `needle` begins in `text`.
fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    text.windows(needle.len()).position(|window| window == needle)
}
