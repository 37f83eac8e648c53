//! One connection of the driver: a non-blocking socket, the bytes on their way in and out, the
//! protocol's side of it and the append in flight.

use std::io::{self, Read, Write};

use mio::net::TcpStream;

use crate::dialect::{Append, Dialect, DialectError, Greeting, Said};

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The TCP handshake is under way.
    Connecting,
    /// The session is being opened.
    Greeting,
    /// Takes load.
    Open,
    /// Closed by either side.
    Dead,
}

/// An append that was sent and not answered.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// When it was sent, ns on the driver's clock.
    pub start_ns: u64,
    /// For which stream.
    pub stream: u32,
}

/// What ends a connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The socket failed or was closed.
    #[error("{0}")]
    Socket(#[from] io::Error),
    /// The protocol.
    #[error(transparent)]
    Dialect(#[from] DialectError),
}

impl ConnectionError {
    /// Its name among the counted errors.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Socket(_) => "ConnectionLost",
            Self::Dialect(DialectError::Unexpected(_)) => "BadAnswer",
            Self::Dialect(DialectError::Refused(_)) => "SessionRefused",
            Self::Dialect(DialectError::Request(_)) => "BadRequest",
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
    /// The append in flight.
    pub flight: Option<Flight>,
    dialect: Box<dyn Dialect>,
    unsent: Vec<u8>,
    unsent_start: usize,
    partial: Vec<u8>,
}

impl Connection {
    /// Wraps a socket whose handshake has begun.
    #[must_use]
    pub fn new(socket: TcpStream, dialect: Box<dyn Dialect>) -> Self {
        Self {
            socket,
            stage: Stage::Connecting,
            flight: None,
            dialect,
            unsent: Vec::with_capacity(512),
            unsent_start: 0,
            partial: Vec::new(),
        }
    }

    /// The socket is writable: ends the handshake, or sends what waits.
    ///
    /// # Errors
    /// The connection could not be made, or is lost.
    pub fn writable(&mut self) -> Result<(), ConnectionError> {
        if self.stage == Stage::Connecting {
            if let Some(error) = self.socket.take_error()? {
                return Err(error.into());
            }
            self.socket.set_nodelay(true)?;
            self.stage = match self.dialect.greet(&mut self.unsent) {
                Greeting::Open => Stage::Open,
                Greeting::Awaited => Stage::Greeting,
            };
        }
        self.flush()
    }

    /// Sends an append.
    ///
    /// # Errors
    /// It cannot be encoded, or the connection is lost.
    pub fn append(&mut self, flight: Flight, append: &Append<'_>) -> Result<(), ConnectionError> {
        debug_assert!(self.flight.is_none(), "one append is in flight at a time");
        self.flight = Some(flight);
        self.dialect.append(&mut self.unsent, append)?;
        self.flush()
    }

    /// Sends what the socket takes. The rest goes when it is writable again.
    fn flush(&mut self) -> Result<(), ConnectionError> {
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

    /// Receives until the socket is empty. What the server said about the append in flight, if
    /// it said anything.
    ///
    /// # Errors
    /// The connection is lost, or of no further use.
    pub fn receive(&mut self, scratch: &mut [u8]) -> Result<Option<Said>, ConnectionError> {
        let mut answer = None;
        loop {
            let count = match self.socket.read(scratch) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            if self.partial.is_empty() {
                let used = self.hear(&scratch[..count], &mut answer)?;
                self.partial.extend_from_slice(&scratch[used..count]);
            } else {
                let mut bytes = std::mem::take(&mut self.partial);
                bytes.extend_from_slice(&scratch[..count]);
                let used = self.hear(&bytes, &mut answer)?;
                bytes.drain(..used);
                self.partial = bytes;
            }
            if count < scratch.len() {
                break;
            }
        }
        self.flush()?;
        Ok(answer)
    }

    /// Takes the whole pieces at the front of `bytes`; how long they were.
    fn hear(&mut self, bytes: &[u8], answer: &mut Option<Said>) -> Result<usize, ConnectionError> {
        let mut used = 0;
        while let Some(piece) = self.dialect.receive(&bytes[used..], &mut self.unsent)? {
            used += piece.used;
            match piece.said {
                Said::Open if self.stage == Stage::Greeting => self.stage = Stage::Open,
                Said::Nothing | Said::Open => {}
                said @ (Said::Appended(_) | Said::Refused(_)) => {
                    if self.flight.is_none() || answer.is_some() {
                        return Err(DialectError::Unexpected("an answer to nothing").into());
                    }
                    *answer = Some(said);
                }
            }
        }
        Ok(used)
    }
}
