//! A number that one thread writes and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter or a gauge. Only its owner's thread changes it, so a load and a store suffice: no
/// other writer can come between. Readers see some recent value.
#[derive(Debug, Default)]
pub struct Number(AtomicU64);

impl Number {
    /// Counts.
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    /// Shows a new value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
