//! Every bound of the pair's machines, with its reason.

use crate::block::BLOCK_HEADER_BYTES;
use crate::limits::{BLOCK_BODY_MAX_BYTES, BLOCK_BODY_TARGET_BYTES, SHARD_IN_FLIGHT_MAX_BYTES};

/// Largest stored object, header included, bytes: what the store's client reads into memory.
pub const CHAIN_OBJECT_MAX_BYTES: usize = 512 << 20;
/// Largest unpacked body, bytes. Only an Open can come near: it carries everything that is not
/// certainly committed, which the in-flight limit bounds in request bytes; the smallest events
/// grow about threefold from request to record, and pack well.
pub const CHAIN_BODY_MAX_BYTES: usize = 1 << 30;
/// A Batch takes no further block when it has this many bytes. Stores reach their full rate at a
/// few MiB per request; a promotion holds a few of these in memory.
pub const CHAIN_BATCH_TARGET_BYTES: u64 = 8 << 20;
/// Batches under way at one time by default: a round trip to the store takes 10 to 50 ms, so this
/// many keep a shard going at some hundred MB/s.
pub const CHAIN_UPLOADS_IN_FLIGHT_MAX: usize = 4;
/// First pause before an unanswered PUT or GET is repeated, ms.
pub const CHAIN_RETRY_MS_MIN: u64 = 50;
/// Longest such pause, ms.
pub const CHAIN_RETRY_MS_MAX: u64 = 2_000;
/// Objects that a promotion asks for before it needs them.
pub const PROMOTION_READ_AHEAD: u32 = 4;
/// Opens that a promotion looks at one by one before it asks for a listing of all epochs.
pub const PROMOTION_OPENS_MAX: u32 = 16;
/// Deletions under way at one time.
pub const GARBAGE_DELETES_IN_FLIGHT_MAX: usize = 4;
/// A chain of this many objects is worth a new reign that lets it be deleted (rule G3).
pub const CHAIN_LONG_OBJECTS: u64 = 4_096;
/// A chain of this many bytes is, too.
pub const CHAIN_LONG_BYTES: u64 = 4 << 30;

const _: () = assert!(
    CHAIN_BATCH_TARGET_BYTES as usize + BLOCK_BODY_MAX_BYTES + 2 * BLOCK_HEADER_BYTES
        < CHAIN_OBJECT_MAX_BYTES,
    "one more block of the largest size fits behind a Batch that is nearly full"
);
const _: () = assert!(SHARD_IN_FLIGHT_MAX_BYTES < CHAIN_OBJECT_MAX_BYTES);
const _: () = assert!(CHAIN_BODY_MAX_BYTES <= u32::MAX as usize);
const _: () = assert!(BLOCK_BODY_TARGET_BYTES < CHAIN_BATCH_TARGET_BYTES as usize);
const _: () = assert!(CHAIN_RETRY_MS_MIN < CHAIN_RETRY_MS_MAX);
/// Times that an object's bytes may be unusable before a promotion gives up on it: once could be
/// the way here.
pub const UNUSABLE_READS_MAX: u32 = 5;
