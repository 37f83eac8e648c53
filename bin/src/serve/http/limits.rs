//! Limits of the HTTP server.

use std::time::Duration;

/// Connections at one time that may ask for anything. Each costs two buffers of some KiB; one
/// reverse proxy or a hundred services with a few connections each fit.
pub const CONNECTIONS_MAX: usize = 512;
/// Connections beyond these, for probes only: a supervisor must not take a crowd for a dead node.
pub const PROBE_CONNECTIONS_MAX: usize = 16;
/// How long a connection may take to send a request's head, and to begin the next one.
pub const HEAD_MAX: Duration = Duration::from_secs(30);
/// The longest head of a request: names of streams are at most some hundred bytes, also when each
/// of them is written with three.
pub const HEAD_MAX_BYTES: usize = 16 << 10;
/// How long a request of the API may take, its body included: above what the client library takes
/// for a call (5 s), so that the answer is what the node says.
pub const REQUEST_MAX: Duration = Duration::from_secs(15);
/// What all bodies that are being received or appended take at one time, bytes, unless a single
/// one may be larger. Beside each body there are its events and the request made of it.
pub const BODIES_MAX_BYTES: usize = 64 << 20;
/// Bodies are counted in units of so many bytes.
pub const BODY_UNIT_BYTES: usize = 4 << 10;
/// Events of one page if nothing is said, and at most.
pub const PAGE_EVENTS_DEFAULT: u64 = 256;
/// See [`PAGE_EVENTS_DEFAULT`].
pub const PAGE_EVENTS_MAX: u64 = 4096;
/// How long answers in flight may take when the node stops. The shards have answered everything by
/// then.
pub const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// Between two looks whether the shards run.
pub const PULSE_LOOK: Duration = Duration::from_secs(1);
/// A shard that did not run between so many looks hangs. A shard runs every 100 ms; five seconds
/// are longer than a host that is short of processors lets a thread wait.
pub const PULSE_SILENT_LOOKS: u32 = 5;
/// Pause after an accept that failed for want of descriptors or memory.
pub const ACCEPT_RETRY: Duration = Duration::from_millis(50);

const _: () = assert!(PROBE_CONNECTIONS_MAX > 0 && PULSE_SILENT_LOOKS > 1);
