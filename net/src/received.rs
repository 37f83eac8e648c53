//! Received bytes of one connection, from which whole frames are cut where they lie.

use crate::wire::Decoded;

/// A buffer that a socket is read into. It grows with what has come, never with what is announced,
/// and gives large memory back when it is empty.
#[derive(Debug)]
pub(crate) struct Received {
    /// All initialised; received bytes lie in `start..end`.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    lacking: usize,
    read_bytes: usize,
}

impl Received {
    /// An empty buffer that offers room for `read_bytes` when nothing larger is known to come.
    /// Allocates when first used.
    pub(crate) const fn new(read_bytes: usize) -> Self {
        Self { bytes: Vec::new(), start: 0, end: 0, lacking: 0, read_bytes }
    }

    /// Room to read into. Call [`Received::filled`] then.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            // A read's room behind most of a small frame stays below this, so that ordinary
            // traffic never allocates.
            if self.bytes.len() > 4 * self.read_bytes {
                self.bytes = Vec::new();
            }
        }
        let held = self.end - self.start;
        let wanted = self.lacking.min(held).max(self.read_bytes);
        if self.bytes.len() - self.end < wanted {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, held);
            if self.bytes.len() < held + wanted {
                self.bytes.resize(held + wanted, 0);
            }
        }
        &mut self.bytes[self.end..]
    }

    /// Says that `count` bytes of [`Received::space`] hold received bytes now.
    ///
    /// Panics when there was no such space.
    pub(crate) fn filled(&mut self, count: usize) {
        assert!(count <= self.bytes.len() - self.end, "only space() can be filled");
        self.end += count;
    }

    /// What `decode` makes of the front of the bytes, `None` when more are needed.
    pub(crate) fn cut<'a, T, E>(
        &'a mut self,
        decode: impl FnOnce(&'a [u8]) -> Result<Decoded<T>, E>,
    ) -> Result<Option<T>, E> {
        let Self { bytes, start, end, lacking, .. } = self;
        match decode(&bytes[*start..*end])? {
            Decoded::Complete { value, used } => {
                *start += used;
                *lacking = 0;
                Ok(Some(value))
            }
            Decoded::NeedMore(count) => {
                *lacking = count;
                Ok(None)
            }
        }
    }

    /// Received bytes that nothing was cut from yet.
    pub(crate) fn unused(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }
}
