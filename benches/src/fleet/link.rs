//! One control connection: messages go out at once, a thread of its own reads what comes in, so
//! that the moment of arrival is known however busy the other threads are.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::generator::clock::Clock;

/// A peer that takes nothing for so long is lost.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Probes of a silent connection: 10 s + 3 x 5 s.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEP_ALIVE_COUNT: u32 = 3;

/// What comes in.
#[derive(Debug)]
pub enum LinkEvent<T> {
    /// A message.
    Said {
        /// It.
        message: T,
        /// When its last byte had arrived, ns of the clock that was given.
        at_ns: u64,
    },
    /// The last event: the connection is over.
    Lost(String),
}

/// Closed when dropped.
#[derive(Debug)]
pub struct Link {
    socket: TcpStream,
    sent_max_bytes: u32,
}

impl Link {
    /// Takes over a connection. Messages of up to `received_max_bytes` are handed to `take`, on a
    /// thread of the link; longer ones end the connection, as do messages that are none.
    pub fn start<T: DeserializeOwned>(
        socket: TcpStream,
        sizes: LinkSizes,
        clock: Clock,
        mut take: impl FnMut(LinkEvent<T>) + Send + 'static,
    ) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(None)?;
        socket.set_write_timeout(Some(WRITE_TIMEOUT))?;
        keep_alive(&socket)?;
        let mut reader = socket.try_clone()?;
        let read = move || {
            let reason = loop {
                match read_message(&mut reader, sizes.received_max_bytes) {
                    Ok(message) => take(LinkEvent::Said { message, at_ns: clock.now_ns() }),
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        break "the connection was closed".to_owned();
                    }
                    Err(error) => break error.to_string(),
                }
            };
            take(LinkEvent::Lost(reason));
        };
        thread::Builder::new().name("bench-link".to_owned()).spawn(read)?;
        Ok(Self { socket, sent_max_bytes: sizes.sent_max_bytes })
    }

    /// Sends a message. After an error the reading side reports the loss.
    pub fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        write_message(&mut self.socket, message, self.sent_max_bytes)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Ends the reading thread, too. Closed already is as good.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// A peer whose host is gone is noticed within half a minute, also while nothing is said.
fn keep_alive(socket: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEP_ALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEP_ALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEP_ALIVE_COUNT)?;
    Ok(())
}

/// Largest messages of a link, bytes.
#[derive(Clone, Copy, Debug)]
pub struct LinkSizes {
    /// Towards the peer.
    pub sent_max_bytes: u32,
    /// From the peer.
    pub received_max_bytes: u32,
}

/// Writes one message.
pub fn write_message(
    target: &mut impl Write,
    message: &impl Serialize,
    max_bytes: u32,
) -> io::Result<()> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
    if length > max_bytes {
        return Err(too_long(length, max_bytes));
    }
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    target.write_all(&bytes)
}

/// Reads one message. Memory is taken as bytes come, not as the length says.
pub fn read_message<T: DeserializeOwned>(source: &mut impl Read, max_bytes: u32) -> io::Result<T> {
    let mut length = [0; 4];
    source.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > max_bytes {
        return Err(too_long(length, max_bytes));
    }
    let mut bytes = Vec::new();
    source.take(length.into()).read_to_end(&mut bytes)?;
    if bytes.len() < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&bytes)?)
}

fn too_long(length: u32, max_bytes: u32) -> io::Error {
    let text = format!("a control message of {length} bytes, at most {max_bytes} are allowed");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was written is read, and nothing of the next message with it.
    #[test]
    fn messages_come_back_one_by_one() {
        let mut bytes = Vec::new();
        for text in ["one", "", "two"] {
            write_message(&mut bytes, &text, 100).unwrap();
        }
        let mut source = bytes.as_slice();
        for text in ["one", "", "two"] {
            assert_eq!(read_message::<String>(&mut source, 100).unwrap(), text);
        }
        assert!(read_message::<String>(&mut source, 100).is_err());
    }

    /// A length above the bound is refused before anything is read for it, a length without its
    /// bytes costs no memory, and what is no message is an error, never a panic.
    #[test]
    fn lengths_and_bytes_that_cannot_be_are_refused() {
        let error = read_message::<String>(&mut [255_u8; 64].as_slice(), 1000).unwrap_err();
        assert!(error.to_string().contains("at most 1000"), "{error}");
        let mut cut = Vec::new();
        write_message(&mut cut, &"a long text", 100).unwrap();
        cut.pop();
        assert!(read_message::<String>(&mut cut.as_slice(), 100).is_err());
        let wrong = [&3_u32.to_le_bytes()[..], b"{]}"].concat();
        assert!(read_message::<String>(&mut wrong.as_slice(), 100).is_err());
        let mut out = Vec::new();
        assert!(write_message(&mut out, &"a long text", 10).is_err());
        assert!(out.is_empty(), "nothing is sent of a message that is too long");
    }
}
