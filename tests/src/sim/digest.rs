//! A run in one number: equal runs have equal numbers.

use std::fmt::{self, Write};

/// Sums up whatever is written into it (FNV-1a).
#[derive(Clone, Copy, Debug)]
pub struct Digest(u64);

impl Digest {
    /// The digest of nothing in the run of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed ^ 0xcbf2_9ce4_8422_2325)
    }

    /// Adds a thing in its debug form.
    pub fn add(&mut self, thing: &dyn fmt::Debug) {
        write!(self, "{thing:?};").expect("writing into a number does not fail");
    }

    /// The number.
    #[must_use]
    pub const fn value(&self) -> u64 {
        self.0
    }
}

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(())
    }
}
