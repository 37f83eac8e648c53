//! The lines of a file or of standard input, read on a thread of their own: a slow pipe must not
//! keep the connection's task from running.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

use crate::client::import::progress::Prefix;

/// Longest line, bytes: longer than the largest event any server takes.
const LINE_MAX_BYTES: u64 = 80 << 20;
/// Lines go to the other side in batches of about this many bytes.
const BATCH_BYTES: usize = 64 << 10;
/// Batches that wait for the other side.
const BATCHES_MAX: usize = 4;

/// A line of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The input up to and with this line; `prefix.lines` is the line's number.
    pub prefix: Prefix,
    /// The line without blanks around it; empty lines mean nothing.
    pub text: Vec<u8>,
}

/// Why there are no more lines.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The system's reason.
    #[error("cannot read {name}: {error}")]
    Io {
        /// The file, or "standard input".
        name: String,
        /// The reason.
        error: io::Error,
    },
    /// A line without end.
    #[error("line {line} is longer than {LINE_MAX_BYTES} bytes")]
    LineTooLong {
        /// Its number.
        line: u64,
    },
    /// The input does not begin with what was imported before.
    #[error(
        "the first {} lines differ from those imported before under this name; \
         import a changed file under another --name", done.lines
    )]
    Changed {
        /// What was imported before.
        done: Prefix,
    },
}

/// Batches of lines, in order.
pub type Lines = mpsc::Receiver<Result<Vec<Line>, SourceError>>;

/// An input being read.
#[derive(Debug)]
pub struct Input {
    /// Its lines behind those skipped.
    pub lines: Lines,
    /// Its size, bytes, if known.
    pub size_bytes: Option<u64>,
    /// Bytes read so far.
    pub read_bytes: Arc<AtomicU64>,
}

/// Opens the file at `path` (`-` is standard input) and reads it behind `done`, which it must
/// begin with.
pub fn open(path: &Path, done: Prefix) -> Result<Input, SourceError> {
    let name = path.display().to_string();
    let (reader, size_bytes): (Box<dyn Read + Send>, _) = if path == Path::new("-") {
        (Box::new(io::stdin()), None)
    } else {
        let file =
            File::open(path).map_err(|error| SourceError::Io { name: name.clone(), error })?;
        let size = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|data| data.len());
        (Box::new(file), size)
    };
    let (sender, lines) = mpsc::channel(BATCHES_MAX);
    let read_bytes = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&read_bytes);
    std::thread::spawn(move || {
        let mut reader = Reader { input: BufReader::new(reader), name, at: Prefix::default() };
        let mut skipped = reader.skip(done).err();
        loop {
            let batch = match skipped.take() {
                Some(error) => Err(error),
                None => reader.batch(),
            };
            counter.store(reader.at.bytes, Ordering::Relaxed);
            let last = batch.as_ref().map_or(true, Vec::is_empty);
            if sender.blocking_send(batch).is_err() || last {
                return;
            }
        }
    });
    Ok(Input { lines, size_bytes, read_bytes })
}

struct Reader<R> {
    input: BufReader<R>,
    name: String,
    at: Prefix,
}

impl<R: Read> Reader<R> {
    /// The next line; `None` at the end.
    fn line(&mut self) -> Result<Option<Line>, SourceError> {
        let mut text = Vec::new();
        let read = (&mut self.input).take(LINE_MAX_BYTES).read_until(b'\n', &mut text);
        let count = read.map_err(|error| SourceError::Io { name: self.name.clone(), error })?;
        if count == 0 {
            return Ok(None);
        }
        if count as u64 == LINE_MAX_BYTES && !text.ends_with(b"\n") {
            return Err(SourceError::LineTooLong { line: self.at.lines + 1 });
        }
        self.at = self.at.plus(&text);
        let blank = text.trim_ascii();
        let text = if blank.len() == text.len() { text } else { blank.to_vec() };
        Ok(Some(Line { prefix: self.at, text }))
    }

    /// Reads past `done` and makes sure that it is the same as before.
    fn skip(&mut self, done: Prefix) -> Result<(), SourceError> {
        while self.at.lines < done.lines {
            if self.line()?.is_none() {
                break;
            }
        }
        if self.at == done { Ok(()) } else { Err(SourceError::Changed { done }) }
    }

    /// The next lines; none at the end.
    fn batch(&mut self) -> Result<Vec<Line>, SourceError> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES {
            let Some(line) = self.line()? else { break };
            bytes += line.text.len() + 64;
            lines.push(line);
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, done: Prefix) -> Result<Vec<(u64, String)>, SourceError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        std::fs::write(&path, text).unwrap();
        let mut input = open(&path, done)?;
        assert_eq!(input.size_bytes, Some(text.len() as u64));
        let mut found = Vec::new();
        while let Some(batch) = input.lines.blocking_recv() {
            for line in batch? {
                let text = String::from_utf8(line.text).unwrap();
                found.push((line.prefix.lines, text));
            }
        }
        Ok(found)
    }

    fn lines(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
        expected.iter().map(|(number, text)| (*number, (*text).to_owned())).collect()
    }

    #[test]
    fn lines_are_numbered_and_trimmed_and_the_last_needs_no_line_feed() {
        let found = read("a\r\n\n  b \nc", Prefix::default()).unwrap();
        assert_eq!(found, lines(&[(1, "a"), (2, ""), (3, "b"), (4, "c")]));
        assert_eq!(read("", Prefix::default()).unwrap(), lines(&[]));
    }

    #[test]
    fn what_was_done_is_skipped_if_it_is_still_the_same() {
        let done = Prefix::default().plus(b"a\n").plus(b"b\n");
        assert_eq!(read("a\nb\nc\n", done).unwrap(), lines(&[(3, "c")]));
        assert_eq!(read("a\nb\n", done).unwrap(), lines(&[]));
        for changed in ["a\nx\nc\n", "a\n", "aa\n\n"] {
            assert!(matches!(read(changed, done), Err(SourceError::Changed { .. })), "{changed:?}");
        }
    }

    #[test]
    fn long_inputs_come_in_order_over_many_batches() {
        let text: String = (1..=20_000).map(|number| format!("{number}\n")).collect();
        let found = read(&text, Prefix::default()).unwrap();
        assert!(found.iter().all(|(number, text)| number.to_string() == *text));
        assert_eq!(found.len(), 20_000);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = open(Path::new("/nowhere/lines"), Prefix::default()).unwrap_err();
        assert!(error.to_string().contains("/nowhere/lines"), "{error}");
    }
}
