//! How far an import has come, kept in the log itself: a small event in a stream of the import's
//! own, written when all lines before it are durable.
//!
//! Idempotency keys alone make a repeated import harmless only as long as the server remembers
//! them (`log.idempotency_window`). With the progress known, a later run skips what was done, and
//! keys have to cover only the lines behind the last progress event.

use duolog_net::client::{Client, Event, Uuid};
use serde::{Deserialize, Serialize};

use crate::client::failure;
use crate::client::import::key::KeyParts;
use crate::exit::{Exit, Failure};

/// Streams that begin with this belong to the program.
pub const SYSTEM_PREFIX: &str = "$duolog.";
/// Lines between two progress events: far below the window of keys that a server remembers.
pub const LINES_PER_PROGRESS: u64 = 100_000;
const EVENT_TYPE: &str = "ImportProgress";

/// The beginning of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prefix {
    /// Lines.
    pub lines: u64,
    /// Bytes.
    pub bytes: u64,
    /// crc32c of the bytes.
    pub checksum: u32,
}

impl Prefix {
    /// With another line behind it.
    #[must_use]
    pub fn plus(self, line: &[u8]) -> Self {
        Self {
            lines: self.lines + 1,
            bytes: self.bytes + line.len() as u64,
            checksum: crc32c::crc32c_append(self.checksum, line),
        }
    }
}

/// The progress of one import.
#[derive(Debug)]
pub struct Progress {
    client: Client,
    import: String,
    stream: String,
    /// What is known to be done, durably.
    pub done: Prefix,
}

impl Progress {
    /// Looks up how far the import called `import` has come.
    pub async fn load(client: &Client, import: &str) -> Result<Self, Failure> {
        let stream = stream_of(import);
        let mut newest = client.read(&stream).backwards().limit(1);
        let done = match newest.next().await.map_err(|error| failure(&error))? {
            None => Prefix::default(),
            Some(event) => serde_json::from_slice(&event.data).map_err(|error| {
                let text = format!("stream {stream:?} holds what is no progress: {error}");
                Failure::new(Exit::LocalIo, text)
            })?,
        };
        Ok(Self { client: client.clone(), import: import.to_owned(), stream, done })
    }

    /// Records durably that everything in `done` has been imported.
    pub async fn save(&mut self, done: Prefix) -> Result<(), Failure> {
        if done.lines <= self.done.lines {
            return Ok(());
        }
        let data =
            serde_json::to_vec(&done).map_err(|error| Failure::new(Exit::Internal, error))?;
        let parts = KeyParts {
            import: &self.import,
            line: done.lines,
            stream: &self.stream,
            kind: EVENT_TYPE,
            data: &data,
        };
        let key: Uuid = parts.key();
        let event = Event::new(EVENT_TYPE, data);
        let append = self.client.append(&self.stream).event(event).idempotency_key(key);
        append.send().await.map_err(|error| failure(&error))?;
        self.done = done;
        Ok(())
    }
}

/// The stream that holds the progress of the import called `import`.
fn stream_of(import: &str) -> String {
    let name = format!("{SYSTEM_PREFIX}import.{import}");
    if name.len() <= duolog_engine::limits::STREAM_NAME_MAX_BYTES {
        return name;
    }
    // A name too long for a stream is replaced by its own key.
    let parts = KeyParts { import, line: 0, stream: "", kind: "", data: b"" };
    format!("{SYSTEM_PREFIX}import.{}", parts.key())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_depends_on_every_byte() {
        let one = Prefix::default().plus(b"a\n").plus(b"b\n");
        assert_eq!((one.lines, one.bytes), (2, 4));
        assert_eq!(one.checksum, crc32c::crc32c(b"a\nb\n"));
        assert_ne!(one, Prefix::default().plus(b"a\n").plus(b"c\n"));
    }

    #[test]
    fn names_of_any_length_have_a_stream() {
        assert_eq!(stream_of("flights.ndjson"), "$duolog.import.flights.ndjson");
        let (long, other) = (stream_of(&"x".repeat(300)), stream_of(&"x".repeat(301)));
        assert!(long.len() <= 255 && long != other);
    }
}
