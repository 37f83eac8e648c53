//! Redis: XADD with an id of the server's choice, in RESP arrays.

use std::io::Write as _;

use super::{
    Append, Dialect, DialectError, EVENT_TYPE, Greeting, Piece, Said, find, leading_number,
};

/// See the module's text. A session is open once a ping is answered: a server that still loads
/// its file takes connections and refuses commands.
#[derive(Debug, Default)]
pub struct Resp {
    open: bool,
}

impl Dialect for Resp {
    fn greet(&mut self, out: &mut Vec<u8>) -> Greeting {
        out.extend_from_slice(b"PING\r\n");
        Greeting::Awaited
    }

    fn append(&mut self, out: &mut Vec<u8>, append: &Append<'_>) -> Result<(), DialectError> {
        let words = [b"XADD", append.stream.as_bytes(), b"*", EVENT_TYPE.as_bytes(), append.data];
        let written = write!(out, "*{}\r\n", words.len());
        written.map_err(|_| DialectError::Request("out of memory"))?;
        for word in words {
            let written = write!(out, "${}\r\n", word.len());
            written.map_err(|_| DialectError::Request("out of memory"))?;
            out.extend_from_slice(word);
            out.extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    fn receive(&mut self, bytes: &[u8], _: &mut Vec<u8>) -> Result<Option<Piece>, DialectError> {
        let Some(line_end) = find(bytes, b"\r\n") else { return Ok(None) };
        let line = &bytes[..line_end];
        match line.first() {
            Some(b'+') if !self.open => {
                self.open = true;
                Ok(Some(Piece { used: line_end + 2, said: Said::Open }))
            }
            Some(b'-') if !self.open => {
                Err(DialectError::Refused(String::from_utf8_lossy(line).into_owned()))
            }
            Some(b'-') => {
                let said = Said::Refused("Error");
                Ok(Some(Piece { used: line_end + 2, said }))
            }
            Some(b'$') => {
                let length =
                    leading_number(&line[1..]).and_then(|number| usize::try_from(number).ok());
                let length = length.ok_or(DialectError::Unexpected("length of a bulk string"))?;
                let used = line_end + 2 + length + 2;
                if bytes.len() < used {
                    return Ok(None);
                }
                // An id is milliseconds, a dash and a number; here only its being there matters.
                let milliseconds = leading_number(&bytes[line_end + 2..used]);
                let version = milliseconds.ok_or(DialectError::Unexpected("no stream id"))?;
                Ok(Some(Piece { used, said: Said::Appended(version) }))
            }
            _ => Err(DialectError::Unexpected("reply of another type")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The request is the array that RESP documents; answers are taken once they are whole, and an
    /// error is not an ack. Broken if a length is off or a cut answer counts.
    #[test]
    fn requests_and_answers_are_resp() {
        let mut out = Vec::new();
        let append = Append { stream: "bench.7", expected: None, identity: 1, data: b"abc" };
        let mut session = Resp::default();
        assert!(session.receive(b"-LOADING\r\n", &mut out).is_err(), "no session yet");
        assert_eq!(session.receive(b"+PONG\r\n", &mut out).unwrap().unwrap().said, Said::Open);
        session.append(&mut out, &append).unwrap();
        let wanted: &[u8] =
            b"*5\r\n$4\r\nXADD\r\n$7\r\nbench.7\r\n$1\r\n*\r\n$5\r\nbench\r\n$3\r\nabc\r\n";
        assert_eq!(out, wanted);
        let whole = b"$8\r\n1700-0\n\n\r\n";
        assert_eq!(session.receive(&whole[..whole.len() - 1], &mut out), Ok(None));
        let piece = Piece { used: whole.len(), said: Said::Appended(1700) };
        assert_eq!(session.receive(whole, &mut out), Ok(Some(piece)));
        let refused = session.receive(b"-ERR no\r\n", &mut out).unwrap().unwrap();
        assert_eq!(refused, Piece { used: 9, said: Said::Refused("Error") });
    }
}
