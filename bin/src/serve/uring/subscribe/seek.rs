//! Where in the shard's log a stamp lies: for subscribers who go on from a place in the order of
//! all shards.

use duolog_engine::ids::{Hlc, Lsn};

use crate::serve::uring::fetch::FetchError;
use crate::serve::uring::log_walk::LogWalk;
use crate::serve::uring::shard_loop::ShardLoop;

/// The first LSN of the first committed block that is stamped `bound` or above; behind the
/// committed end when there is none. Reads a logarithm of waymarks, then headers over a MiB.
pub(super) async fn first_with_stamp(shard: &ShardLoop, bound: Hlc) -> Result<Lsn, FetchError> {
    let (committed, align_bytes) = {
        let machine = shard.shard.borrow();
        (machine.committed(), machine.config().layout.align_bytes)
    };
    if committed.hlc < bound {
        return Ok(committed.lsn.next());
    }
    let ways = shard.log_map.borrow().ways_to_stamp(bound, align_bytes);
    // The last one whose block is stamped below the bound, or the first one.
    let (mut low, mut high) = (0, ways.len());
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        let (lsn, place) = ways[middle];
        let below = lsn <= committed.lsn
            && LogWalk::at(place, lsn).load(shard, Lsn(u64::MAX)).await?.hlc < bound;
        if below { low = middle } else { high = middle }
    }
    let Some((lsn, place)) = ways.get(low).copied() else { return Ok(committed.lsn.next()) };
    let mut walk = LogWalk::at(place, lsn);
    loop {
        let header = walk.load(shard, Lsn(u64::MAX)).await?;
        if header.hlc >= bound || header.last_lsn() >= committed.lsn {
            let found = if header.hlc >= bound { header.first_lsn } else { committed.lsn.next() };
            return Ok(found);
        }
        walk.pass(shard, &header)?;
    }
}
