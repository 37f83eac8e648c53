//! NATS: each append is a publish that names a reply subject of this connection; JetStream answers
//! there once the message is stored.

use std::io::Write as _;

use super::{Append, Dialect, DialectError, Greeting, Piece, Said, find, leading_number};

const SEQUENCE: &[u8] = b"\"seq\":";

/// See the module's text.
#[derive(Debug)]
pub struct Nats {
    inbox: String,
    open: bool,
}

impl Nats {
    /// Connection `number`; two that are open at one time need different ones.
    pub fn new(number: u32) -> Self {
        Self { inbox: format!("_INBOX.compare.{number}"), open: false }
    }

    /// An answer from JetStream: JSON with a sequence number, or with an error.
    fn read(payload: &[u8]) -> Result<Said, DialectError> {
        if find(payload, b"\"error\"").is_some() {
            return Ok(Said::Refused("Error"));
        }
        let sequence = find(payload, SEQUENCE).map(|at| &payload[at + SEQUENCE.len()..]);
        let sequence = sequence.and_then(|text| leading_number(text.trim_ascii_start()));
        sequence.map(Said::Appended).ok_or(DialectError::Unexpected("an answer without sequence"))
    }

    /// `MSG <subject> <sid> <length>`, then the payload and a line end.
    fn message(line: &[u8], bytes: &[u8]) -> Result<Option<Piece>, DialectError> {
        let length = line.rsplit(|byte| *byte == b' ').next().and_then(leading_number);
        let length = length.and_then(|length| usize::try_from(length).ok());
        let length = length.ok_or(DialectError::Unexpected("length of a message"))?;
        let payload_at = line.len() + 2;
        let used = payload_at + length + 2;
        let Some(payload) = bytes.get(payload_at..used) else { return Ok(None) };
        Ok(Some(Piece { used, said: Self::read(payload)? }))
    }
}

impl Dialect for Nats {
    fn greet(&mut self, out: &mut Vec<u8>) -> Greeting {
        out.extend_from_slice(
            b"CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"rust\",\"version\":\"1\"}",
        );
        out.extend_from_slice(b"\r\nSUB ");
        out.extend_from_slice(self.inbox.as_bytes());
        out.extend_from_slice(b" 1\r\nPING\r\n");
        Greeting::Awaited
    }

    fn append(&mut self, out: &mut Vec<u8>, append: &Append<'_>) -> Result<(), DialectError> {
        let (stream, inbox, length) = (append.stream, &self.inbox, append.data.len());
        let written = write!(out, "PUB {stream} {inbox} {length}\r\n");
        written.map_err(|_| DialectError::Request("out of memory"))?;
        out.extend_from_slice(append.data);
        out.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn receive(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Option<Piece>, DialectError> {
        let Some(line_end) = find(bytes, b"\r\n") else { return Ok(None) };
        let line = &bytes[..line_end];
        let word = line.split(|byte| *byte == b' ').next().unwrap_or_default();
        let said = match word {
            b"MSG" => return Self::message(line, bytes),
            b"PONG" if !self.open => {
                self.open = true;
                Said::Open
            }
            b"INFO" | b"+OK" | b"PONG" => Said::Nothing,
            b"PING" => {
                out.extend_from_slice(b"PONG\r\n");
                Said::Nothing
            }
            b"-ERR" => {
                return Err(DialectError::Refused(String::from_utf8_lossy(line).into_owned()));
            }
            _ => return Err(DialectError::Unexpected("a line of another kind")),
        };
        Ok(Some(Piece { used: line_end + 2, said }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// JetStream's answer is an ack only with a sequence and without an error, and only when it is
    /// whole. Broken if an error or a cut message counts as stored.
    #[test]
    fn an_answer_is_an_ack_only_with_a_sequence() {
        let mut session = Nats::new(3);
        let mut hear = |text: &[u8]| session.receive(text, &mut Vec::new());
        let ack = b"MSG _INBOX.compare.3 1 28\r\n{\"stream\":\"BENCH\", \"seq\":17}\r\n";
        assert_eq!(hear(ack), Ok(Some(Piece { used: ack.len(), said: Said::Appended(17) })));
        assert_eq!(hear(&ack[..ack.len() - 1]), Ok(None));
        let error = b"MSG _INBOX.compare.3 1 25\r\n{\"error\":{\"code\":503}}   \r\n";
        assert_eq!(hear(error).unwrap().unwrap().said, Said::Refused("Error"));
        assert_eq!(hear(b"PONG\r\n").unwrap().unwrap().said, Said::Open);
    }
}
