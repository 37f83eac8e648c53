//! Which shard a stream lives in.
//!
//! The routing key is the part between the first `{` and the next `}` of the name, when that part
//! is not empty (as Redis Cluster does it), else the whole name. The shard is the low 64 bits of
//! BLAKE3 over that key, modulo the shard count, which is fixed when the cluster is created.

use crate::ids::{ShardId, StreamId};

/// The part of `name` that decides its shard.
#[must_use]
pub fn routing_key(name: &[u8]) -> &[u8] {
    let Some(open) = name.iter().position(|byte| *byte == b'{') else { return name };
    let inside = &name[open + 1..];
    match inside.iter().position(|byte| *byte == b'}') {
        Some(0) | None => name,
        Some(close) => &inside[..close],
    }
}

/// The shard of the stream called `name` among `shard_count` (at least 1).
#[must_use]
pub fn shard_of(name: &[u8], shard_count: u32) -> ShardId {
    assert!(shard_count > 0, "a cluster has at least one shard");
    let hash = StreamId::of(routing_key(name)).0 as u64;
    ShardId((hash % u64::from(shard_count)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_choose_the_key_like_redis_cluster() {
        assert_eq!(routing_key(b"order-1"), b"order-1");
        assert_eq!(routing_key(b"{user7}.cart"), b"user7");
        assert_eq!(routing_key(b"a{b}c{d}"), b"b");
        assert_eq!(routing_key(b"a{}c{d}"), b"a{}c{d}");
        assert_eq!(routing_key(b"a{b"), b"a{b");
        assert_eq!(routing_key(b"{{x}}"), b"{x");
    }

    #[test]
    fn one_key_one_shard() {
        for count in 1..9 {
            assert_eq!(shard_of(b"{k}.a", count), shard_of(b"{k}.b", count));
        }
    }
}
