//! Every limit of this crate, with its reason.

/// Largest lease document that is read, bytes. One is about 600 bytes; the rest is room for fields
/// of later versions.
pub const DOCUMENT_BYTES_MAX: usize = 64 * 1024;
/// Tokens of earlier writes kept in the lease. A writer whose answer was lost finds its own token
/// after up to this many writes by others; one suffices for a pair, the rest is for a long stall.
pub const RECENT_TOKENS_MAX: usize = 4;
/// Tokens accepted when reading: a later version may keep more.
pub const RECENT_TOKENS_READ_MAX: usize = 64;
/// Members of `in_sync`: a pair (L3).
pub const IN_SYNC_MAX: usize = 2;
/// Longest a restarted node waits for a heartbeat before it challenges, ms (L9).
pub const RESTART_WAIT_MS_MAX: u64 = 5000;
/// First pause after a call to the store that settled nothing, ms. Two fit into the 500 ms between
/// the first failed heartbeat and the fence of the default timings.
pub const RETRY_MS_MIN: u64 = 50;
/// Longest such pause, ms: an outage of hours costs one call every two seconds.
pub const RETRY_MS_MAX: u64 = 2000;
/// Longest setting, ms: one hour. Above it a mistyped unit is likelier than a wish.
pub const TIMING_MS_MAX: u64 = 3_600_000;
/// Actions of one step. The longest list (a deposed leader that follows) has nine.
pub const ACTIONS_MAX: usize = 16;

const _: () = assert!(RECENT_TOKENS_MAX <= RECENT_TOKENS_READ_MAX);
const _: () = assert!(RETRY_MS_MIN <= RETRY_MS_MAX);
const _: () = assert!(RESTART_WAIT_MS_MAX < TIMING_MS_MAX);
