//! Every bound of the wire, of sessions and of the client library, with its reason.
//! Relations are checked when the crate compiles.

use duolog_engine::block::BLOCK_HEADER_BYTES;
use duolog_engine::limits::{
    APPEND_OVERHEAD_MAX_BYTES, APPEND_STREAMS_MAX, BLOCK_BODY_MAX_BYTES, EVENT_MAX_BYTES_DEFAULT,
};

/// The only version of the wire protocol so far.
pub const WIRE_VERSION: u16 = 1;
/// A frame's header, bytes (WIRE.md, "Frame").
pub const FRAME_HEADER_BYTES: usize = 24;
/// Largest frame body a server takes by default, bytes: one largest append.
pub const FRAME_BODY_MAX_BYTES_DEFAULT: usize = frame_body_max_bytes(EVENT_MAX_BYTES_DEFAULT);
/// Largest page of records that a reader may ask for, bytes.
pub const PAGE_MAX_BYTES: u32 = 4 << 20;
/// Page size when the reader does not say, bytes.
pub const PAGE_BYTES_DEFAULT: u32 = 1 << 20;
/// Largest body of a ping, bytes.
pub const PING_MAX_BYTES: usize = 1024;
/// Longest text of an error frame, bytes; a longer one is cut.
pub const ERROR_TEXT_MAX_BYTES: usize = 4096;

/// Longest address that a node tells its clients, bytes. One length byte.
pub const ADDRESS_MAX_BYTES: usize = 255;
/// Largest request of an operator, bytes: a command with two node ids has about 200.
pub const ADMIN_MAX_BYTES: usize = 4 << 10;
/// Largest answer to it, bytes: 512 shards at 200 bytes, and as much again.
pub const ADMIN_ANSWER_MAX_BYTES: usize = 256 << 10;

/// Requests in flight on one connection by default (`limits.connection_in_flight`): enough to
/// fill several groups from one client, little enough that answers never pile up unseen.
pub const CONNECTION_REQUESTS_MAX_DEFAULT: u32 = 1024;
/// Their bytes by default : at least three appends of the largest
/// default size. A read counts as the page it asked for.
pub const CONNECTION_BYTES_MAX_DEFAULT: u32 = 64 << 20;
/// Answers that the socket has not taken, bytes, by default;
/// above it the server stops reading from the connection.
pub const CONNECTION_UNSENT_MAX_BYTES_DEFAULT: usize = 8 << 20;
/// What a refused client is told to wait, milliseconds: a few group commits.
pub const BUSY_RETRY_AFTER_MS: u32 = 10;

/// Requests over the limit of `requests_max` that a connection is refused before it is not read
/// from until an answer: a sixteenth of what may be in flight. A refusal costs the server a quarter
/// of an append: so few take little from the requests that are served.
#[must_use]
pub const fn refusals_max(requests_max: u32) -> u32 {
    if requests_max < 64 { 4 } else { requests_max / 16 }
}

/// Subscriptions of one connection at most: a client that follows many streams of a shard needs
/// one connection, and a node's memory is bounded by its connections.
pub const CONNECTION_SUBSCRIPTIONS_MAX: usize = 1_024;
/// What a subscriber may have been sent and not taken when it does not say, bytes.
pub const SUBSCRIPTION_WINDOW_BYTES_DEFAULT: u32 = 1 << 20;
/// Smallest such window, bytes: a page of small events.
pub const SUBSCRIPTION_WINDOW_BYTES_MIN: u32 = 16 << 10;
/// Windows of one connection's subscriptions together, bytes: what a client that reads nothing can
/// make a node keep for it.
pub const CONNECTION_WINDOWS_MAX_BYTES: u32 = 64 << 20;
/// Largest page that is pushed to a subscriber, bytes of records, unless one event is larger: its
/// making takes some 50 us, and appends have a turn between two of them.
pub const FEED_PAGE_MAX_BYTES: u32 = 64 << 10;
/// A subscriber that has been sent its whole window and has taken nothing for so long, while there
/// is more, is cut off, milliseconds (`limits.subscriber_stall_ms`).
pub const SUBSCRIBER_STALL_MS_DEFAULT: u64 = 30_000;
/// A subscriber's client gives up a server that has been silent for so long, milliseconds. Half of
/// it passes before it asks for a sign of life: thousands of idle subscribers cost next to nothing.
pub const SUBSCRIPTION_SILENCE_MS: u64 = 5_000;

/// A connection's own buffers keep at most this capacity while they are empty, bytes. It holds the
/// receipts of all requests that may be in flight, so that ordinary traffic never allocates.
pub const IDLE_BUFFER_MAX_BYTES: usize = 128 << 10;

/// What a client's call may take by default, milliseconds, retries included.
pub const CALL_DEADLINE_MS_DEFAULT: u64 = 5_000;
/// Longest deadline of a call, milliseconds: a day. Every deadline is finite.
pub const CALL_DEADLINE_MS_MAX: u64 = 24 * 60 * 60 * 1_000;
/// What reaching one address may take by default, milliseconds, hello included.
pub const CONNECT_TIMEOUT_MS_DEFAULT: u64 = 2_000;
/// A server that owes answers and gives no sign of life for so long is given up, milliseconds: a
/// call with the default deadline has time for another address. Half of it is for the ping.
pub const SILENCE_MS_DEFAULT: u64 = 2_000;
/// Pause before the second attempt of a call or connection, milliseconds; doubles from then on.
pub const BACKOFF_MS_MIN: u64 = 10;
/// Longest such pause, milliseconds.
pub const BACKOFF_MS_MAX: u64 = 1_000;
/// While one address is being reached, the next one is tried after so long, milliseconds: a node
/// that is stopped keeps nobody waiting, and one that is alive answers sooner.
pub const CONNECT_STAGGER_MS: u64 = 100;
/// Redirects followed before all addresses are tried anew: a pair needs one, and one more when the
/// lead moves meanwhile.
pub const REDIRECTS_MAX: usize = 4;
/// A node that answers and does not lead is watched for so long, milliseconds; then it is greeted
/// anew, in case it vanished without a word.
pub const STANDBY_MS_MAX: u64 = 1_000;
/// Calls that wait in front of one connection of a client; the next one waits to be queued.
pub const CLIENT_QUEUE_LEN_MAX: usize = 1_024;
/// Connections of one client at most.
pub const CLIENT_CONNECTIONS_MAX: usize = 64;
/// Requests that a client's socket has not taken, bytes; above it no further call is started.
pub const CLIENT_UNSENT_MAX_BYTES: usize = 1 << 20;

/// The only version of the peer protocol so far.
pub const PEER_VERSION: u16 = 1;
/// Epoch marks in one hello: a fork further back than so many reigns takes another hello.
pub const PEER_MARKS_MAX: usize = 64;
/// Shards of a cluster at most: `shards.count` allows no more, so no heartbeat has more marks.
pub const PEER_SHARDS_MAX: usize = 512;
/// Largest body of any peer message but a block, bytes: about twice the largest heartbeat.
pub const PEER_MESSAGE_MAX_BYTES: usize = 8 << 10;
/// Largest block on the wire, bytes.
pub const PEER_BLOCK_MAX_BYTES: usize = BLOCK_HEADER_BYTES + BLOCK_BODY_MAX_BYTES;
/// Room for one read from a peer's socket, bytes: two blocks of the usual largest size, so that a
/// stream of blocks takes few reads.
pub const PEER_READ_BYTES: usize = 256 << 10;

/// Largest frame body a server with this `limits.event_max_bytes` takes, bytes.
#[must_use]
pub const fn frame_body_max_bytes(event_max_bytes: usize) -> usize {
    event_max_bytes + APPEND_OVERHEAD_MAX_BYTES
}

/// Largest frame body a server with this `limits.event_max_bytes` sends, bytes: a full page, or
/// one larger event alone.
#[must_use]
pub const fn answer_body_max_bytes(frame_body_max_bytes: usize) -> usize {
    let page = PAGE_MAX_BYTES as usize + APPEND_OVERHEAD_MAX_BYTES;
    if frame_body_max_bytes > page { frame_body_max_bytes } else { page }
}

const _: () = assert!(SUBSCRIPTION_WINDOW_BYTES_MIN <= FEED_PAGE_MAX_BYTES);
const _: () = assert!(FEED_PAGE_MAX_BYTES < SUBSCRIPTION_WINDOW_BYTES_DEFAULT);
const _: () = assert!(SUBSCRIPTION_WINDOW_BYTES_DEFAULT < CONNECTION_WINDOWS_MAX_BYTES);
const _: () = assert!(FRAME_BODY_MAX_BYTES_DEFAULT < u32::MAX as usize);
const _: () = assert!(PEER_BLOCK_MAX_BYTES < u32::MAX as usize);
// The largest hello, heartbeat and refusal, with 160 bytes for their fixed parts.
const _: () = assert!(160 + PEER_MARKS_MAX * 48 + ADDRESS_MAX_BYTES < PEER_MESSAGE_MAX_BYTES);
const _: () = assert!(160 + PEER_SHARDS_MAX * 8 < PEER_MESSAGE_MAX_BYTES);
const _: () = assert!(160 + ERROR_TEXT_MAX_BYTES < PEER_MESSAGE_MAX_BYTES);
const _: () = assert!(FRAME_BODY_MAX_BYTES_DEFAULT <= CONNECTION_BYTES_MAX_DEFAULT as usize);
const _: () = assert!(SILENCE_MS_DEFAULT + CONNECT_TIMEOUT_MS_DEFAULT < CALL_DEADLINE_MS_DEFAULT);
const _: () = assert!(CALL_DEADLINE_MS_DEFAULT <= CALL_DEADLINE_MS_MAX);
const _: () = assert!(PAGE_MAX_BYTES < CONNECTION_BYTES_MAX_DEFAULT);
const _: () = assert!(PAGE_BYTES_DEFAULT <= PAGE_MAX_BYTES);
// An answer to the append with the most streams fits into the idle buffer.
const _: () = assert!(FRAME_HEADER_BYTES + 40 + APPEND_STREAMS_MAX * 16 < IDLE_BUFFER_MAX_BYTES);
// So do the answers to all appends to one stream that may be in flight, by default.
const _: () = assert!(
    (FRAME_HEADER_BYTES + 40 + 16) * CONNECTION_REQUESTS_MAX_DEFAULT as usize
        <= IDLE_BUFFER_MAX_BYTES
);
