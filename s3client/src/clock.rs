//! Where time and chance enter the client.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant, SystemTime};

/// This machine's wall clock, milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "signatures carry the time; this is the edge")]
pub(crate) fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A moment for measuring how long something took.
#[expect(clippy::disallowed_methods, reason = "attempts are timed here, at the edge")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Any number, different each time; spreads pauses and names scratch keys, keeps no secrets.
pub(crate) fn chance() -> u64 {
    // Each state has keys of its own.
    RandomState::new().build_hasher().finish()
}

/// Waits.
pub(crate) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}
