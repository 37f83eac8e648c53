//! HTTP/1.1 for S2: an append of one record, as protobuf in both directions.

use std::io::Write as _;

use super::protobuf::StreamRecords;
use super::{Append, Dialect, DialectError, Greeting, Piece, Said, find, leading_number};

/// The basin that holds the streams.
const BASIN: &str = "duolog-compare";
/// Longest head of an answer that is waited for, bytes.
const HEAD_MAX_BYTES: usize = 16 << 10;

/// See the module's text.
#[derive(Debug)]
pub struct Http;

impl Dialect for Http {
    fn greet(&mut self, _: &mut Vec<u8>) -> Greeting {
        Greeting::Open
    }

    fn append(&mut self, out: &mut Vec<u8>, append: &Append<'_>) -> Result<(), DialectError> {
        let body = StreamRecords::encode(append.data);
        let (stream, length) = (append.stream, body.len());
        let written = write!(
            out,
            "POST /v1/streams/{stream}/records HTTP/1.1\r\nhost: 127.0.0.1\r\ns2-basin: {BASIN}\r\n\
             content-type: application/protobuf\r\naccept: application/protobuf\r\n\
             content-length: {length}\r\n\r\n"
        );
        written.map_err(|_| DialectError::Request("out of memory"))?;
        out.extend_from_slice(&body);
        Ok(())
    }

    fn receive(&mut self, bytes: &[u8], _: &mut Vec<u8>) -> Result<Option<Piece>, DialectError> {
        let Some(head_end) = find(bytes, b"\r\n\r\n") else {
            let endless = bytes.len() > HEAD_MAX_BYTES;
            return if endless {
                Err(DialectError::Unexpected("an endless head"))
            } else {
                Ok(None)
            };
        };
        let head = bytes[..head_end].to_ascii_lowercase();
        let length =
            header(&head, b"\r\ncontent-length:").and_then(|value| usize::try_from(value).ok());
        let length = length.ok_or(DialectError::Unexpected("a body of unknown length"))?;
        let used = head_end + 4 + length;
        let Some(body) = bytes.get(head_end + 4..used) else { return Ok(None) };
        let status = head.get(9..).and_then(leading_number);
        let said = match status {
            Some(200) => {
                let end = StreamRecords::next_sequence(body).map_err(DialectError::Unexpected)?;
                Said::Appended(end)
            }
            Some(429 | 503) => Said::Refused("Busy"),
            Some(412) => Said::Refused("Conflict"),
            Some(_) => Said::Refused("Error"),
            None => return Err(DialectError::Unexpected("no status")),
        };
        Ok(Some(Piece { used, said }))
    }
}

/// The number behind a header's name.
fn header(head: &[u8], name: &[u8]) -> Option<u64> {
    let at = find(head, name)? + name.len();
    leading_number(head[at..].trim_ascii_start())
}

/// The file that makes the server have the basin: streams come with their first append.
#[must_use]
pub fn basin_file() -> String {
    format!(
        "{{\"basins\":[{{\"name\":\"{BASIN}\",\"config\":{{\"create_stream_on_append\":true}}}}]}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only status 200 with a receipt is an ack, and only when the body is whole. Broken if a
    /// refusal counts, or half a receipt.
    #[test]
    fn only_a_whole_receipt_is_an_ack() {
        let hear = |text: &[u8]| Http.receive(text, &mut Vec::new());
        let mut ack = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n".to_vec();
        ack.extend_from_slice(&[0x12, 2, 0x08, 9]);
        assert_eq!(hear(&ack), Ok(Some(Piece { used: ack.len(), said: Said::Appended(9) })));
        assert_eq!(hear(&ack[..ack.len() - 1]), Ok(None));
        let busy = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(hear(busy).unwrap().unwrap().said, Said::Refused("Busy"));
    }
}
