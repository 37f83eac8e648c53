//! Every bound of the engine, with its reason. Relations are checked when the crate compiles.

/// A stream name's longest form, bytes. One length byte on disk and wire.
pub const STREAM_NAME_MAX_BYTES: usize = 255;
/// An event type's longest form, bytes. One length byte on disk and wire.
pub const EVENT_TYPE_MAX_BYTES: usize = 255;
/// Largest event by default: type + metadata + data, bytes.
pub const EVENT_MAX_BYTES_DEFAULT: usize = 16 << 20;
/// Room for names, keys and headers of an append beside its events' bytes.
pub const APPEND_OVERHEAD_MAX_BYTES: usize = 1 << 20;
/// Streams in one append: bounds the work of one admission.
pub const APPEND_STREAMS_MAX: usize = 256;
/// Events in one append: bounds the work of one admission and the receipt.
pub const APPEND_EVENTS_MAX: usize = 65_536;
/// A block closes when its body reaches this, bytes. 4 -> 64 KiB costs 30 us of disk time,
/// 256 KiB 100 us more (measured): larger groups would make the next one wait longer than they
/// save.
pub const BLOCK_BODY_TARGET_BYTES: usize = 128 << 10;
/// A block of this size is written beside another one that is under way, bytes.
pub const BLOCK_OVERLAP_BYTES: usize = 64 << 10;
/// Received blocks that wait for a follower's disk are joined into writes of up to this, bytes, as
/// in the preparation of segments: larger writes are not faster.
pub const WRITE_JOIN_MAX_BYTES: usize = 1 << 20;
/// Largest block body: one append of the largest size alone.
pub const BLOCK_BODY_MAX_BYTES: usize = (64 << 20) + 2 * APPEND_OVERHEAD_MAX_BYTES;
/// Blocks start at multiples of this (and of the device's own alignment, when that is larger).
pub const BLOCK_ALIGN_BYTES: u32 = 4096;
/// Blocks being written at one time, at most.
pub const BLOCKS_IN_FLIGHT_MAX: usize = 8;
/// Segment file size by default. Zero-filling one takes 50 ms in the background.
pub const SEGMENT_SIZE_BYTES_DEFAULT: u32 = 64 << 20;
/// Segment sizes that `log.segment_size_bytes` may take.
pub const SEGMENT_SIZE_BYTES_MIN: u32 = 64 << 10;
/// Offsets in a segment are 32-bit.
pub const SEGMENT_SIZE_BYTES_MAX: u32 = 2 << 30;
/// Appends with a key that a shard remembers by default.
pub const IDEMPOTENCY_WINDOW_DEFAULT: usize = 1 << 20;
/// Requests that a shard has accepted and not answered, at most.
pub const SHARD_IN_FLIGHT_MAX: usize = 65_536;
/// Their bytes, at most.
pub const SHARD_IN_FLIGHT_MAX_BYTES: usize = 256 << 20;

const _: () = assert!(EVENT_MAX_BYTES_DEFAULT + APPEND_OVERHEAD_MAX_BYTES <= BLOCK_BODY_MAX_BYTES);
const _: () = assert!(BLOCK_OVERLAP_BYTES <= BLOCK_BODY_TARGET_BYTES);
const _: () = assert!(BLOCK_BODY_TARGET_BYTES <= BLOCK_BODY_MAX_BYTES);
const _: () = assert!(BLOCK_BODY_MAX_BYTES + (1 << 20) < SEGMENT_SIZE_BYTES_MAX as usize);
const _: () = assert!(SEGMENT_SIZE_BYTES_MIN.is_multiple_of(BLOCK_ALIGN_BYTES));
