//! Proof without a clock that this node leads: the follower says that it still follows, or the
//! bucket says that the lease is still of this reign.
//!
//! Only a member challenges (L3), and it stops following on every shard before its challenge
//! leaves. So when the only other member still follows this reign, nobody else leads. The lease
//! object tells the same: a reign that has not begun there has not begun.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use duolog_engine::ids::LeaseEpoch;
use duolog_lease::document::Document;

use super::bell::Bell;
use super::wire::within;
use crate::serve::cluster::store::{Ask, Lane, Told};
use crate::serve::uring::shard_loop::ShardLoop;

/// How long the follower may take; then the bucket is asked. A heartbeat interval: a follower that
/// is slower than that is about to be missed anyway.
const FOLLOWER_MAX: Duration = Duration::from_millis(500);
/// How often the bucket is asked, at most: a client would rather be told than wait on.
const STORE_ATTEMPTS_MAX: usize = 3;
/// Pause between two of them.
const STORE_RETRY: Duration = Duration::from_millis(100);

/// Looks at the lease object, shared by the reads that were there before one began.
#[derive(Debug, Default)]
pub(in crate::serve) struct Looks {
    begun: Cell<u64>,
    ended: Cell<u64>,
    /// The newest look that proved something, and the reign that it proved.
    proved: Cell<(u64, LeaseEpoch)>,
    over: Bell,
}

/// Whether this node has led at some moment since the call, and so has everything acknowledged
/// before the call.
// Q5: asked anew for every read.
pub(in crate::serve) async fn leads(shard: &Rc<ShardLoop>) -> bool {
    let Some(epoch) = shard.leading() else { return false };
    by_follower(shard, epoch).await || by_store(shard, epoch).await
}

async fn by_follower(shard: &ShardLoop, epoch: LeaseEpoch) -> bool {
    let member = shard.member();
    // One that misses heartbeats would only be waited for.
    if !member.reachable.get() {
        return false;
    }
    // While a change of members is under way, either set may be in force.
    let Some((in_sync, None)) = member.members.get() else { return false };
    let other = in_sync.other(member.settings.identity.node);
    let link = member.outbound.borrow().clone();
    let link = link.filter(|link| Some(link.node()) == other && link.epoch() == epoch);
    let Some(link) = link else { return false };
    let confirmed = async { link.confirmed().await.then_some(()) };
    within(FOLLOWER_MAX, confirmed).await.is_some()
}

async fn by_store(shard: &ShardLoop, epoch: LeaseEpoch) -> bool {
    let looks = &shard.member().looks;
    // One under way may have been answered before this read came.
    let wanted = looks.begun.get() + 1;
    while looks.ended.get() < wanted {
        if looks.begun.get() > looks.ended.get() {
            looks.over.wait().await;
            continue;
        }
        let number = looks.begun.get() + 1;
        looks.begun.set(number);
        if look(shard, epoch).await {
            looks.proved.set((number, epoch));
        }
        looks.ended.set(number);
        looks.over.ring();
    }
    let (number, proved) = looks.proved.get();
    number >= wanted && proved == epoch
}

async fn look(shard: &ShardLoop, epoch: LeaseEpoch) -> bool {
    let settings = &shard.member().settings;
    for _ in 0..STORE_ATTEMPTS_MAX {
        let ask = Ask::Get(settings.keys.lease());
        match shard.member().calls.ask(Lane::Lease, ask).await {
            Told::Found(body, _) => {
                let lease = Document::decode(&body, settings.identity.cluster);
                return lease.is_ok_and(|lease| {
                    (lease.leader, lease.epoch) == (settings.identity.node, epoch)
                });
            }
            Told::Absent => return false,
            _ if shard.leading() != Some(epoch) => return false,
            _ => glommio::timer::sleep(STORE_RETRY).await,
        }
    }
    false
}
