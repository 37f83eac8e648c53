//! Standard output: results for people or machines. A reader that goes away (`| head`) ends the
//! command quietly instead of with a panic.

use std::fmt;
use std::io::{self, BufWriter, ErrorKind, Write};

use serde_json::Value as Json;

use crate::exit::{Exit, Failure};

/// Where results go, buffered.
pub struct Output {
    writer: BufWriter<Box<dyn Write>>,
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Output")
    }
}

impl Output {
    /// Takes standard output for this command.
    #[must_use]
    pub fn new() -> Self {
        Self::to(io::stdout().lock())
    }

    /// Results go to `writer`.
    #[must_use]
    pub fn to(writer: impl Write + 'static) -> Self {
        Self { writer: BufWriter::new(Box::new(writer)) }
    }

    /// Writes `text` as it is.
    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())
    }

    /// Writes `bytes` as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.writer.write_all(bytes).map_err(|error| failure(&error))
    }

    /// Writes `text` and a line feed.
    pub fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.text(text)?;
        self.text("\n")
    }

    /// Writes one JSON document on one line.
    pub fn json(&mut self, document: &Json) -> Result<(), Failure> {
        self.line(&document.to_string())
    }

    /// Hands everything to the reader.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.writer.flush().map_err(|error| failure(&error))
    }
}

fn failure(error: &io::Error) -> Failure {
    match error.kind() {
        // Nobody wants the rest: that is no failure, and there is nothing to say.
        ErrorKind::BrokenPipe => Failure::new(Exit::Ok, ""),
        _ => Failure::new(Exit::LocalIo, format!("cannot write to standard output: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_leaves_is_no_failure() {
        let gone = failure(&io::Error::from(ErrorKind::BrokenPipe));
        assert_eq!((gone.exit, gone.text.as_str()), (Exit::Ok, ""));
        let full = failure(&io::Error::from(ErrorKind::StorageFull));
        assert_eq!(full.exit, Exit::LocalIo);
    }
}
