//! Limits of the S3 client: every buffer, loop and pause has one here, with its unit and reason.

/// Longest key, bytes of UTF-8: what S3 allows.
pub const KEY_BYTES_MAX: usize = 1024;
/// Longest bucket name, bytes: what S3 allows.
pub const BUCKET_BYTES_MAX: usize = 63;
/// Shortest bucket name, bytes: what S3 allows.
pub const BUCKET_BYTES_MIN: usize = 3;
/// Longest ETag taken from an answer, bytes. AWS sends 34; others up to a few dozen more.
pub const ETAG_BYTES_MAX: usize = 256;
/// Largest object that a GET reads into memory, bytes: a chain object holds blocks of up to 64 MiB
/// with their padding and headers, and a few of them may share an object.
pub const OBJECT_BYTES_MAX: u64 = 512 << 20;
/// Largest answer to a listing, bytes: 1000 keys of 1024 bytes, each byte escaped as six, and the
/// tags around them.
pub const LIST_BYTES_MAX: u64 = 16 << 20;
/// Largest error document, bytes.
pub const ERROR_BYTES_MAX: u64 = 256 << 10;
/// Largest credential document, bytes.
pub const CREDENTIALS_BYTES_MAX: u64 = 64 << 10;
/// Keys asked for per page of a listing: what S3 sends at most.
pub const LIST_PAGE_KEYS_MAX: u32 = 1000;
/// Pages of one listing; a server that goes on for ever is refused after so many.
pub const LIST_PAGES_MAX: u32 = 100_000;

/// First pause between attempts, milliseconds.
pub const PAUSE_MS_MIN: u64 = 50;
/// Longest pause between attempts, milliseconds, unless the server asks for more.
pub const PAUSE_MS_MAX: u64 = 5_000;
/// Longest pause that a Retry-After is obeyed for, milliseconds. A node whose lease runs out is of
/// no use to a server that says "come back tomorrow".
pub const RETRY_AFTER_MS_MAX: u64 = 60_000;
/// Time to connect, TLS included, milliseconds.
pub const CONNECT_MS: u64 = 3_000;
/// Time for one attempt of a small request, milliseconds, connecting included. Below half of the
/// shortest sensible S3 lease, so that a renewal can be tried twice.
pub const ATTEMPT_MS: u64 = 6_000;
/// Slowest transfer that is waited for, bytes per second: adds to the time of an attempt.
pub const TRANSFER_BYTES_PER_SEC_MIN: u64 = 1 << 20;
/// How long an idle connection is kept, milliseconds. Servers close them after about 5 to 20 s; a
/// request that meets such a close costs a retry, and on a conditional write a read-back.
pub const IDLE_CONNECTION_MS: u64 = 4_000;
/// Idle connections kept to one host.
pub const IDLE_CONNECTIONS_MAX: usize = 16;

/// Requests of the bulk lane that may be under way. Enough to fill a link to a store 50 ms away
/// with objects of a few MiB; few enough that each still moves when the link is slow.
pub const BULK_CALLS_MAX: usize = 8;
/// Bodies up to this are hashed where they are, bytes: half a millisecond at worst. Larger ones are
/// hashed on another thread, for a renewal may be due on this one.
pub const HASH_INLINE_BYTES_MAX: usize = 256 << 10;

/// Time for one request to a source of credentials, milliseconds. The metadata service answers
/// within a few; in a container behind one hop too many its answer never comes.
pub const CREDENTIALS_MS: u64 = 1_000;
/// Temporary credentials are refreshed so long before they expire, milliseconds: S3 clients agree
/// on about five minutes, and sources hand out new ones at least as early.
pub const REFRESH_AHEAD_MS: i64 = 300_000;
/// After a refresh that failed while the old credentials are still good, the next try waits so
/// long, milliseconds.
pub const REFRESH_AGAIN_MS: i64 = 10_000;

/// Server time and ours further apart than this raise a warning, milliseconds: the default
/// `max-clock-drift-ms` (500) plus the second in which the Date header may be wrong.
pub const SKEW_WARNING_MS: i64 = 1_500;

const _: () = assert!(PAUSE_MS_MIN < PAUSE_MS_MAX && PAUSE_MS_MAX < RETRY_AFTER_MS_MAX);
const _: () = assert!(CONNECT_MS < ATTEMPT_MS);
const _: () = assert!(BULK_CALLS_MAX > 0 && BULK_CALLS_MAX <= IDLE_CONNECTIONS_MAX);
const _: () = assert!(REFRESH_AGAIN_MS < REFRESH_AHEAD_MS);
