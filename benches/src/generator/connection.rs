//! One client connection of the generator: a non-blocking socket, the bytes on their way out, the
//! part of a frame that has arrived, and the requests in flight.

use std::io::{self, Read, Write};

use mio::net::TcpStream;

use duolog_net::limits::{FRAME_BODY_MAX_BYTES_DEFAULT, answer_body_max_bytes};
use duolog_net::wire::{BodyError, Decoded, Frame, FrameError, decode_frame};

use super::requests::Operation;

/// A request that was sent and not answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flight {
    /// When its operation was sent first, or should have been sent (open loop), ns.
    pub start_ns: u64,
    /// When it was sent, ns.
    pub sent_ns: u64,
    /// What it does.
    pub operation: Operation,
    /// Distinguishes the users of one slot.
    sequence: u32,
    busy: bool,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The TCP handshake is under way.
    Connecting,
    /// The hello is out.
    Greeting,
    /// Its streams are being written for a read workload.
    Preparing,
    /// Takes load.
    Ready,
    /// Closed by either side.
    Dead,
}

/// What the server sent that cannot be.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The socket failed or was closed.
    #[error("{0}")]
    Socket(#[from] io::Error),
    /// Bytes that are no frame.
    #[error("the server sent what is no frame: {0}")]
    Frame(#[from] FrameError),
    /// A frame whose body is none of its kind.
    #[error("the server sent a frame with a wrong body: {0}")]
    Body(#[from] BodyError),
    /// The server does not want this client.
    #[error("the server refused: {0}")]
    Refused(&'static str),
    /// An answer of another kind than the request asks for.
    #[error("the server answered {0} with a frame of another kind")]
    WrongKind(&'static str),
    /// The load is made of requests that the server does not take.
    #[error(
        "requests of up to {body_bytes} bytes are over its limit of {limit_bytes} \
         (limits.event_max_bytes): give a smaller --size, --batch or --streams-per-append"
    )]
    TooLarge {
        /// Largest request body of this load.
        body_bytes: u64,
        /// The server's limit.
        limit_bytes: u64,
    },
    /// An answer to nothing.
    #[error("the server answered request {0:#x}, which is not in flight")]
    Correlation(u64),
}

impl ConnectionError {
    /// Its name among the counted errors.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Socket(_) => "ConnectionLost",
            Self::Frame(_) | Self::Body(_) | Self::WrongKind(_) | Self::Correlation(_) => {
                "BadAnswer"
            }
            Self::TooLarge { .. } => "TooLarge",
            Self::Refused(name) => name,
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Connection {
    /// The socket, for registration.
    pub socket: TcpStream,
    /// Progress.
    pub stage: Stage,
    unsent: Vec<u8>,
    unsent_start: usize,
    partial: Vec<u8>,
    flights: Vec<Flight>,
    free: Vec<u32>,
}

impl Connection {
    /// Wraps a socket whose handshake has begun; up to `in_flight_max` requests at a time.
    #[must_use]
    pub fn new(socket: TcpStream, in_flight_max: u32) -> Self {
        Self {
            socket,
            stage: Stage::Connecting,
            unsent: Vec::with_capacity(512),
            unsent_start: 0,
            partial: Vec::new(),
            flights: vec![Flight::default(); in_flight_max as usize],
            free: (0..in_flight_max).rev().collect(),
        }
    }

    /// Requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// Requests that may be in flight.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.flights.len()
    }

    /// From now on at most `in_flight_max` requests at a time. Only while none is in flight.
    pub fn resize(&mut self, in_flight_max: u32) {
        assert_eq!(self.in_flight(), 0, "slots are counted before they are used");
        self.flights.resize(in_flight_max as usize, Flight::default());
        self.free = (0..in_flight_max).rev().collect();
    }

    /// Takes a slot for a request; its correlation id. `None` when all are taken.
    pub fn take_off(&mut self, start_ns: u64, sent_ns: u64, operation: Operation) -> Option<u64> {
        let slot = self.free.pop()?;
        let flight = &mut self.flights[slot as usize];
        let sequence = flight.sequence.wrapping_add(1);
        *flight = Flight { start_ns, sent_ns, operation, sequence, busy: true };
        Some((u64::from(sequence) << 32) | u64::from(slot))
    }

    /// Ends the flight that `correlation` names.
    pub fn land(&mut self, correlation: u64) -> Result<Flight, ConnectionError> {
        let (sequence, slot) = ((correlation >> 32) as u32, correlation as u32);
        match self.flights.get_mut(slot as usize) {
            Some(flight) if flight.busy && flight.sequence == sequence => {
                flight.busy = false;
                self.free.push(slot);
                Ok(*flight)
            }
            _ => Err(ConnectionError::Correlation(correlation)),
        }
    }

    /// Where to encode further requests; [`Connection::flush`] sends them.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.unsent
    }

    /// Sends what the socket takes. The rest goes when it is writable again.
    pub fn flush(&mut self) -> Result<(), ConnectionError> {
        while self.unsent_start < self.unsent.len() {
            match self.socket.write(&self.unsent[self.unsent_start..]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(count) => self.unsent_start += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.unsent.clear();
        self.unsent_start = 0;
        Ok(())
    }

    /// One receive into `scratch`; the whole frames in it go to `take`. Returns whether more may
    /// be waiting in the socket.
    pub fn receive(
        &mut self,
        scratch: &mut [u8],
        mut take: impl FnMut(Frame<'_>) -> Result<(), ConnectionError>,
    ) -> Result<bool, ConnectionError> {
        let count = match self.socket.read(scratch) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        let more = count == scratch.len();
        if self.partial.is_empty() {
            let used = cut(&scratch[..count], &mut take)?;
            self.partial.extend_from_slice(&scratch[used..count]);
            return Ok(more);
        }
        self.partial.extend_from_slice(&scratch[..count]);
        let used = cut(&self.partial, &mut take)?;
        self.partial.drain(..used);
        Ok(more)
    }

    /// The requests in flight.
    pub fn flights(&self) -> impl Iterator<Item = &Flight> {
        self.flights.iter().filter(|flight| flight.busy)
    }

    /// Gives all slots free; nothing more will be answered here.
    pub fn forget_flights(&mut self) {
        self.flights.iter_mut().for_each(|flight| flight.busy = false);
        self.free = (0..self.flights.len() as u32).rev().collect();
    }
}

/// Hands the whole frames at the front of `bytes` to `take`; returns how many bytes they were.
fn cut(
    bytes: &[u8],
    take: &mut impl FnMut(Frame<'_>) -> Result<(), ConnectionError>,
) -> Result<usize, ConnectionError> {
    let limit = answer_body_max_bytes(FRAME_BODY_MAX_BYTES_DEFAULT);
    let mut used_bytes = 0;
    while let Decoded::Complete { value, used } = decode_frame(&bytes[used_bytes..], limit)? {
        take(value)?;
        used_bytes += used;
    }
    Ok(used_bytes)
}
