//! Zeroed memory at an aligned address, for direct I/O from ordinary threads.

/// A buffer whose bytes start at a multiple of its alignment.
#[derive(Debug)]
pub struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// `length` zeros at a multiple of `align` (a power of two).
    #[must_use]
    pub fn zeroed(length: usize, align: usize) -> Self {
        let bytes = vec![0; length + align];
        let start = bytes.as_ptr().align_offset(align);
        assert!(start < align, "an address is less than one alignment away from the next");
        Self { bytes, start, length }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    /// The bytes, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}
