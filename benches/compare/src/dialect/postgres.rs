//! PostgreSQL's extended protocol: one statement prepared per session, then Bind, Execute and Sync
//! in one write per append. Without a password: the server is on loopback and lives for the run.

use super::{Append, Dialect, DialectError, EVENT_TYPE, Greeting, Piece, Said};

const PROTOCOL_3_0: i32 = 196_608;
const USER: &[u8] = b"postgres";
const STATEMENT: &[u8] = b"append";
const SQL: &[u8] = b"select append_event($1, $2, $3, $4, $5)";
/// text, int8, uuid, text, bytea.
const PARAMETER_TYPES: [i32; 5] = [25, 20, 2950, 25, 17];
const BINARY: i16 = 1;

/// See the module's text.
#[derive(Debug, Default)]
pub struct Postgres {
    stage: Stage,
    /// The function's result; counts once the transaction has ended well.
    version: Option<u64>,
    refusal: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Starting,
    Preparing,
    Open,
}

impl Postgres {
    fn ready(&mut self, out: &mut Vec<u8>) -> Result<Said, DialectError> {
        match self.stage {
            Stage::Starting => {
                self.stage = Stage::Preparing;
                prepare(out);
                Ok(Said::Nothing)
            }
            Stage::Preparing => {
                self.stage = Stage::Open;
                Ok(Said::Open)
            }
            Stage::Open => match (self.refusal.take(), self.version.take()) {
                (Some(name), _) => Ok(Said::Refused(name)),
                (None, Some(version)) => Ok(Said::Appended(version)),
                (None, None) => Err(DialectError::Unexpected("an append without a result")),
            },
        }
    }
}

impl Dialect for Postgres {
    fn greet(&mut self, out: &mut Vec<u8>) -> Greeting {
        let start = open(out);
        out.extend_from_slice(&PROTOCOL_3_0.to_be_bytes());
        for word in [b"user", USER, b"database", USER] {
            text(out, word);
        }
        out.push(0);
        close(out, start);
        Greeting::Awaited
    }

    fn append(&mut self, out: &mut Vec<u8>, append: &Append<'_>) -> Result<(), DialectError> {
        let start = message(out, b'B');
        text(out, b"");
        text(out, STATEMENT);
        out.extend_from_slice(&1_i16.to_be_bytes());
        out.extend_from_slice(&BINARY.to_be_bytes());
        out.extend_from_slice(&(PARAMETER_TYPES.len() as i16).to_be_bytes());
        // A stream without events has version 0.
        let expected = append.expected.unwrap_or(0).to_be_bytes();
        let (stream, kind) = (append.stream.as_bytes(), EVENT_TYPE.as_bytes());
        for value in [stream, &expected, &append.identity.to_be_bytes(), kind, append.data] {
            let length = i32::try_from(value.len());
            let length = length.map_err(|_| DialectError::Request("a value is too long"))?;
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(value);
        }
        out.extend_from_slice(&1_i16.to_be_bytes());
        out.extend_from_slice(&BINARY.to_be_bytes());
        close(out, start);
        let start = message(out, b'E');
        text(out, b"");
        out.extend_from_slice(&0_i32.to_be_bytes());
        close(out, start);
        sync(out);
        Ok(())
    }

    fn receive(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Option<Piece>, DialectError> {
        let Some(header) = bytes.first_chunk::<5>() else { return Ok(None) };
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
        let used = 1 + length.max(4);
        let Some(body) = bytes.get(5..used) else { return Ok(None) };
        let said = match header[0] {
            b'R' if body.first_chunk() == Some(&[0; 4]) => Said::Nothing,
            b'R' => return Err(DialectError::Refused("a password is asked for".to_owned())),
            b'Z' => self.ready(out)?,
            b'E' if self.stage != Stage::Open => {
                return Err(DialectError::Refused(String::from_utf8_lossy(body).into_owned()));
            }
            b'E' => {
                self.refusal = Some(if has_code(body, b"40001") { "Conflict" } else { "Error" });
                Said::Nothing
            }
            b'D' => {
                let value = body.last_chunk::<8>().filter(|_| body.len() == 2 + 4 + 8);
                let value = value.ok_or(DialectError::Unexpected("a row of another form"))?;
                self.version = Some(u64::from_be_bytes(*value));
                Said::Nothing
            }
            // Settings, the session's key, notices, and that steps are complete.
            b'S' | b'K' | b'N' | b'1' | b'2' | b'C' => Said::Nothing,
            _ => return Err(DialectError::Unexpected("a message of another type")),
        };
        Ok(Some(Piece { used, said }))
    }
}

fn prepare(out: &mut Vec<u8>) {
    let start = message(out, b'P');
    text(out, STATEMENT);
    text(out, SQL);
    out.extend_from_slice(&(PARAMETER_TYPES.len() as i16).to_be_bytes());
    for id in PARAMETER_TYPES {
        out.extend_from_slice(&id.to_be_bytes());
    }
    close(out, start);
    sync(out);
}

fn sync(out: &mut Vec<u8>) {
    let start = message(out, b'S');
    close(out, start);
}

fn message(out: &mut Vec<u8>, kind: u8) -> usize {
    out.push(kind);
    open(out)
}

/// Leaves room for a length; where it is.
fn open(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    start
}

/// Writes the length, which counts itself.
fn close(out: &mut [u8], start: usize) {
    let length = ((out.len() - start) as u32).to_be_bytes();
    out[start..start + 4].copy_from_slice(&length);
}

fn text(out: &mut Vec<u8>, word: &[u8]) {
    out.extend_from_slice(word);
    out.push(0);
}

/// Whether an error's fields contain this code.
fn has_code(body: &[u8], code: &[u8]) -> bool {
    body.split(|byte| *byte == 0).any(|field| field.strip_prefix(b"C") == Some(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![kind];
        out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        out.extend_from_slice(body);
        out
    }

    fn hear(session: &mut Postgres, bytes: &[u8]) -> Vec<Said> {
        let (mut at, mut said) = (0, Vec::new());
        let mut out = Vec::new();
        while let Some(piece) = session.receive(&bytes[at..], &mut out).unwrap() {
            at += piece.used;
            said.push(piece.said);
        }
        assert_eq!(at, bytes.len());
        said
    }

    /// An append counts when the server is ready again behind its result, and a refused one is not
    /// an ack, whatever came before. Broken if a row alone, or a row before an error, is an ack.
    #[test]
    fn an_append_counts_when_its_transaction_has_ended_well() {
        let mut session = Postgres::default();
        let idle = server(b'Z', b"I");
        assert_eq!(hear(&mut session, &server(b'R', &[0; 4])), [Said::Nothing]);
        assert_eq!(hear(&mut session, &idle), [Said::Nothing]);
        assert_eq!(hear(&mut session, &idle), [Said::Open]);
        let mut row = vec![0, 1, 0, 0, 0, 8];
        row.extend_from_slice(&42_u64.to_be_bytes());
        let row = server(b'D', &row);
        assert_eq!(hear(&mut session, &row), [Said::Nothing]);
        assert_eq!(hear(&mut session, &idle), [Said::Appended(42)]);
        let error = server(b'E', b"SERROR\0C40001\0Mwrong version\0\0");
        let refused = [row, error, idle].concat();
        assert_eq!(hear(&mut session, &refused)[2], Said::Refused("Conflict"));
    }

    /// Lengths of the messages of an append add up to its bytes. Broken if one is off.
    #[test]
    fn an_append_is_three_messages() {
        let mut out = Vec::new();
        let append = Append { stream: "bench.7", expected: Some(3), identity: 1, data: &[7; 100] };
        Postgres::default().append(&mut out, &append).unwrap();
        let (mut at, mut kinds) = (0, Vec::new());
        while at < out.len() {
            kinds.push(out[at]);
            let length = [out[at + 1], out[at + 2], out[at + 3], out[at + 4]];
            at += 1 + u32::from_be_bytes(length) as usize;
        }
        assert_eq!((at, kinds), (out.len(), vec![b'B', b'E', b'S']));
    }
}
