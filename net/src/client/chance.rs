//! Where randomness enters the client: ids, keys, and the length of pauses.

use std::time::Duration;

use uuid::Uuid;

use crate::limits::{BACKOFF_MS_MAX, BACKOFF_MS_MIN};

/// A random UUID.
#[expect(clippy::disallowed_methods, reason = "the client library is the edge: ids are made here")]
pub(super) fn random_uuid() -> Uuid {
    Uuid::new_v4()
}

/// A random number below `count`, 0 if that is 0.
pub(super) fn random_index(count: usize) -> usize {
    (random_uuid().as_u128() as usize).checked_rem(count).unwrap_or(0)
}

/// The id of the event at `index` of the append with this key: always the same.
pub(super) fn derived_id(key: Uuid, index: u32) -> Uuid {
    let mut hasher = blake3::Hasher::new();
    hasher.update(key.as_bytes());
    hasher.update(&index.to_le_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// Pauses between attempts: each twice as long as the one before, up to a limit, and shortened by
/// a random part of up to a half, so that many clients do not come back at one moment.
#[derive(Debug)]
pub(super) struct Backoff {
    next_ms: u64,
}

impl Backoff {
    pub(super) const fn new() -> Self {
        Self { next_ms: BACKOFF_MS_MIN }
    }

    /// The next pause.
    pub(super) fn pause(&mut self) -> Duration {
        self.pause_with((random_uuid().as_u128() & 0xffff) as u16)
    }

    fn pause_with(&mut self, chance: u16) -> Duration {
        let full_us = self.next_ms * 1_000;
        self.next_ms = (self.next_ms * 2).min(BACKOFF_MS_MAX);
        Duration::from_micros(full_us - full_us * u64::from(chance) / (2 * u64::from(u16::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit_and_vary_by_half() {
        let (mut long, mut short) = (Backoff::new(), Backoff::new());
        for full_ms in [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000] {
            assert_eq!(long.pause_with(0), Duration::from_millis(full_ms));
            assert_eq!(short.pause_with(u16::MAX), Duration::from_millis(full_ms) / 2);
        }
    }

    #[test]
    fn ids_follow_from_key_and_index_alone() {
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!(derived_id(one, 0), derived_id(one, 0));
        assert_ne!(derived_id(one, 0), derived_id(one, 1));
        assert_ne!(derived_id(one, 0), derived_id(two, 0));
        assert_eq!(derived_id(one, 0).get_version_num(), 8);
    }
}
