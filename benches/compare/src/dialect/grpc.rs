//! gRPC on a bare socket: unary calls over HTTP/2, one at a time.
//!
//! Header blocks of requests are literal fields without indexing, so that no state is kept. Those
//! of answers are not decoded: a unary answer that is an ack has a message, and one that is an
//! error has none, by the gRPC protocol (Trailers-Only).

use super::protobuf::Call;
use super::{Append, Dialect, DialectError, Greeting, Piece, Said};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER_BYTES: usize = 9;
/// The window that both sides begin with (RFC 9113, 6.9.2).
const WINDOW_BYTES: i64 = 65_535;
const WINDOW_MAX_BYTES: u32 = (1 << 31) - 1;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// On DATA and HEADERS: the last of its stream.
const END_STREAM: u8 = 1;
/// On SETTINGS and PING: the answer to one.
const ACK: u8 = 1;
/// On HEADERS: the block is whole.
const END_HEADERS: u8 = 4;
/// On DATA: padded.
const PADDED: u8 = 8;

/// See the module's text.
#[derive(Debug)]
pub struct Grpc {
    call: Call,
    /// The call in flight, or the last one.
    stream_id: u32,
    /// What the server still takes on this connection.
    window_bytes: i64,
    message: Vec<u8>,
    /// END_STREAM was seen while the block of trailers goes on.
    ending: bool,
    request: Vec<u8>,
}

impl Grpc {
    /// A connection that makes this call.
    pub fn new(call: Call) -> Self {
        Self {
            call,
            stream_id: 0,
            window_bytes: WINDOW_BYTES,
            message: Vec::new(),
            ending: false,
            request: Vec::new(),
        }
    }

    fn ended(&mut self) -> Result<Said, DialectError> {
        self.ending = false;
        let Some((prefix, message)) = self.message.split_first_chunk::<5>() else {
            return Ok(Said::Refused("Error"));
        };
        let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
        if prefix[0] != 0 || length != message.len() {
            return Err(DialectError::Unexpected("a message that is packed or cut"));
        }
        let version = self.call.version(message);
        version.map(Said::Appended).ok_or(DialectError::Unexpected("an answer without a version"))
    }

    fn of_the_call(&mut self, kind: u8, flags: u8, payload: &[u8]) -> Result<Said, DialectError> {
        match kind {
            DATA if flags & PADDED != 0 => return Err(DialectError::Unexpected("padding")),
            DATA => self.message.extend_from_slice(payload),
            RESET => return Ok(Said::Refused("Reset")),
            _ => {}
        }
        let whole = kind == DATA || flags & END_HEADERS != 0;
        self.ending |= kind != CONTINUATION && flags & END_STREAM != 0;
        if self.ending && whole { self.ended() } else { Ok(Said::Nothing) }
    }

    fn of_the_connection(
        &mut self,
        kind: u8,
        flags: u8,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Said, DialectError> {
        match kind {
            SETTINGS if flags & ACK != 0 => return Ok(Said::Open),
            SETTINGS => frame(out, SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => frame(out, PING, ACK, 0, payload),
            WINDOW_UPDATE => {
                let more = payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
                self.window_bytes += i64::from(more & WINDOW_MAX_BYTES);
            }
            GO_AWAY => return Err(DialectError::Unexpected("the server closes the connection")),
            _ => {}
        }
        Ok(Said::Nothing)
    }
}

impl Dialect for Grpc {
    fn greet(&mut self, out: &mut Vec<u8>) -> Greeting {
        out.extend_from_slice(PREFACE);
        frame(out, SETTINGS, 0, 0, &[]);
        // Answers have some 30 bytes: this window lasts for a run and needs no further updates.
        let more = WINDOW_MAX_BYTES - WINDOW_BYTES as u32;
        frame(out, WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        Greeting::Awaited
    }

    fn append(&mut self, out: &mut Vec<u8>, append: &Append<'_>) -> Result<(), DialectError> {
        self.stream_id = if self.stream_id == 0 { 1 } else { self.stream_id + 2 };
        if self.stream_id > WINDOW_MAX_BYTES {
            return Err(DialectError::Request("the connection has no more stream numbers"));
        }
        self.message.clear();
        frame(out, HEADERS, END_HEADERS, self.stream_id, &header_block(self.call.path()));
        self.request.clear();
        self.request.extend_from_slice(&[0; 5]);
        self.call.encode(&mut self.request, append);
        let length = ((self.request.len() - 5) as u32).to_be_bytes();
        self.request[1..5].copy_from_slice(&length);
        self.window_bytes -= self.request.len() as i64;
        if self.window_bytes < 0 {
            return Err(DialectError::Request("the server opens its window too late"));
        }
        frame(out, DATA, END_STREAM, self.stream_id, &self.request);
        Ok(())
    }

    fn receive(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Option<Piece>, DialectError> {
        let Some(header) = bytes.first_chunk::<FRAME_HEADER_BYTES>() else { return Ok(None) };
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let used = FRAME_HEADER_BYTES + length;
        let Some(payload) = bytes.get(FRAME_HEADER_BYTES..used) else { return Ok(None) };
        let (kind, flags) = (header[3], header[4]);
        let id = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        let id = id & WINDOW_MAX_BYTES;
        let call = matches!(kind, DATA | HEADERS | RESET | CONTINUATION);
        let said = if !call {
            // A window update of a single call needs no room: requests are below the first window.
            let of_a_call = kind == WINDOW_UPDATE && id != 0;
            if of_a_call {
                Said::Nothing
            } else {
                self.of_the_connection(kind, flags, payload, out)?
            }
        } else if id == self.stream_id {
            self.of_the_call(kind, flags, payload)?
        } else {
            // The server may reset a call that it has answered in full.
            Said::Nothing
        };
        Ok(Some(Piece { used, said }))
    }
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream_id: u32, payload: &[u8]) {
    let length = (payload.len() as u32).to_be_bytes();
    out.extend_from_slice(&[length[1], length[2], length[3], kind, flags]);
    out.extend_from_slice(&stream_id.to_be_bytes());
    out.extend_from_slice(payload);
}

/// The request's fields (RFC 7541): indexed where the static table has them, else literal.
fn header_block(path: &str) -> Vec<u8> {
    // `:method: POST` and `:scheme: http`.
    let mut block = vec![0x83, 0x86];
    let mut literal = |name: &[u8], value: &str| {
        block.extend_from_slice(name);
        // Values here are shorter than the 127 bytes from which a length takes more than one.
        block.push(value.len() as u8);
        block.extend_from_slice(value.as_bytes());
    };
    // `:path` is 4 and `:authority` 1 in the static table, `content-type` 31 (15 and 16 more).
    literal(&[0x04], path);
    literal(&[0x01], "127.0.0.1");
    literal(&[0x0f, 0x10], "application/grpc");
    literal(b"\x00\x02te", "trailers");
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        frame(&mut out, kind, flags, id, payload);
        out
    }

    fn hear(session: &mut Grpc, bytes: &[u8]) -> Said {
        let piece = session.receive(bytes, &mut Vec::new()).unwrap().unwrap();
        assert_eq!(piece.used, bytes.len());
        piece.said
    }

    fn asked() -> Grpc {
        let mut session = Grpc::new(Call::Umadb(super::super::Condition::None));
        let append = Append { stream: "bench.7", expected: None, identity: 1, data: b"abc" };
        session.append(&mut Vec::new(), &append).unwrap();
        session
    }

    /// A call is an ack with a message and its trailers; trailers alone are an error. Broken if an
    /// error counts as stored, or a message without its end.
    #[test]
    fn an_ack_has_a_message_and_an_end() {
        let mut session = asked();
        assert_eq!(hear(&mut session, &server(HEADERS, END_HEADERS, 1, &[0x88])), Said::Nothing);
        let message = server(DATA, 0, 1, &[0, 0, 0, 0, 2, 0x08, 7]);
        assert_eq!(hear(&mut session, &message), Said::Nothing);
        let trailers = server(HEADERS, END_HEADERS | END_STREAM, 1, &[0x88]);
        assert_eq!(hear(&mut session, &trailers), Said::Appended(7));
        let mut refused = asked();
        assert_eq!(hear(&mut refused, &trailers), Said::Refused("Error"));
    }

    /// Pings and settings are answered. Broken if a server that looks whether we live gives up.
    #[test]
    fn pings_and_settings_are_answered() {
        let mut session = asked();
        let mut out = Vec::new();
        session.receive(&server(PING, 0, 0, &[7; 8]), &mut out).unwrap();
        assert_eq!(out, server(PING, ACK, 0, &[7; 8]));
        out.clear();
        session.receive(&server(SETTINGS, 0, 0, &[]), &mut out).unwrap();
        assert_eq!(out, server(SETTINGS, ACK, 0, &[]));
        assert_eq!(hear(&mut session, &server(SETTINGS, ACK, 0, &[])), Said::Open);
    }

    /// What is sent is taken off the server's window and given back by it. Broken if a request
    /// goes out that the server did not allow.
    #[test]
    fn requests_stay_within_the_servers_window() {
        let mut session = Grpc::new(Call::EtcdPut);
        let data = vec![b'a'; 60_000];
        let append = Append { stream: "bench.7", expected: None, identity: 1, data: &data };
        assert!(session.append(&mut Vec::new(), &append).is_ok());
        let update = server(WINDOW_UPDATE, 0, 0, &60_100_u32.to_be_bytes());
        assert_eq!(hear(&mut session, &update), Said::Nothing);
        assert!(session.append(&mut Vec::new(), &append).is_ok());
        assert!(session.append(&mut Vec::new(), &append).is_err());
    }
}
