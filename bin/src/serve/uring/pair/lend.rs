//! Committed blocks for the other node, which does not start because its log is damaged. This node
//! may have any role; the lease has no part in it.

use std::rc::Rc;
use std::time::Duration;

use duolog_engine::ids::Lsn;
use duolog_engine::shard::Role;
use duolog_net::peer::{
    PeerCommit, PeerHello, PeerReason, PeerRefused, PeerWelcome, Purpose, block_frame_header,
};

use super::blocks::{BlockWalk, end_at};
use super::wire::{UNSENT_PAUSE_BYTES, Wire};
use crate::serve::cluster::message::PeerSocket;
use crate::serve::uring::shard_loop::ShardLoop;

/// How long blocks under way may take to be committed.
const COMMIT_MAX: Duration = Duration::from_secs(10);
/// How long the other node may take for what the socket holds back.
const TAKE_MAX: Duration = Duration::from_secs(10);
/// Pause before looking again. Nothing rings when a socket has taken bytes.
const LOOK: Duration = Duration::from_millis(5);

/// A connection whose hello asks for blocks comes to this shard.
pub(super) fn accept(shard: &Rc<ShardLoop>, socket: PeerSocket) {
    let PeerSocket { socket, hello, .. } = socket;
    let (shard, wire) = (Rc::clone(shard), Wire::adopt(socket));
    glommio::spawn_local(async move {
        // The spawner may have borrowed what this task touches.
        futures_lite::future::yield_now().await;
        let outcome = if shard.member().lending.replace(true) {
            let text = "blocks are being lent already: ask again".to_owned();
            Err((PeerReason::NotReady, text))
        } else {
            let outcome = lend(&shard, &wire, &hello).await;
            shard.member().lending.set(false);
            outcome
        };
        if let Err((reason, text)) = outcome {
            tracing::warn!(event = "not_lent", shard = shard.id().0, from = %hello.from, text);
            let own = shard.member().settings.identity.node;
            let refused = PeerRefused::new(hello.epoch, own, reason, text);
            wire.say(|frame| refused.encode(frame));
        }
        taken(&wire, 0).await;
        wire.shut();
    })
    .detach();
}

type Denied = (PeerReason, String);

async fn lend(shard: &Rc<ShardLoop>, wire: &Rc<Wire>, hello: &PeerHello) -> Result<(), Denied> {
    let Purpose::Fetch { end, last, .. } = &hello.purpose else {
        return Err((PeerReason::BadMessage, "nothing is asked for".to_owned()));
    };
    let last = committed(shard, *last).await?;
    let unreadable = |error: &dyn std::fmt::Display| (PeerReason::Damaged, error.to_string());
    if end.lsn > Lsn(0) {
        let own = end_at(shard, end.lsn).await.map_err(|error| unreadable(&error))?;
        if own.is_none_or(|own| own.hash != end.hash) {
            let text = format!("no block of this log ends like that one at LSN {}", end.lsn);
            return Err((PeerReason::Discontinuous, text));
        }
    }
    tracing::info!(
        event = "lends", shard = shard.id().0, to = %hello.from, behind = end.lsn.0, last = last.0,
    );
    let epoch = hello.epoch;
    let identity = shard.member().settings.identity;
    let (cluster, from, promised) = (identity.cluster, identity.node, epoch);
    let (own_end, known) = {
        let machine = shard.shard.borrow();
        (machine.durable(), machine.committed().lsn)
    };
    let welcome = PeerWelcome { epoch, cluster, from, promised, end: own_end, committed: known };
    wire.say(|frame| welcome.encode(frame));
    let mut walk = BlockWalk::default();
    let mut next = end.lsn.next();
    while next <= last {
        if !taken(wire, UNSENT_PAUSE_BYTES).await {
            wire.shut();
            return Ok(());
        }
        let block = walk.block(shard, next).await;
        let (header, block) = block.map_err(|error| unreadable(&error))?;
        wire.send(&[&block_frame_header(epoch, block.len()), block]);
        next = header.last_lsn().next();
    }
    wire.say(|frame| PeerCommit { epoch, lsn: last }.encode(frame));
    Ok(())
}

/// The last LSN to send, which is committed here.
async fn committed(shard: &Rc<ShardLoop>, last: Lsn) -> Result<Lsn, Denied> {
    let committed = || shard.shard.borrow().committed().lsn;
    if last < Lsn(u64::MAX) {
        if committed() >= last {
            return Ok(last);
        }
        let text = format!("LSN {last} is not known to be committed here, but {}", committed());
        return Err((PeerReason::NotReady, text));
    }
    // What is under way may have been acknowledged by the node that asks.
    let end = shard.shard.borrow().end().lsn;
    let mut looks = COMMIT_MAX.as_millis() / LOOK.as_millis();
    loop {
        let leads = matches!(shard.shard.borrow().role(), Role::Leader { .. });
        if !leads || !shard.member().leads(shard) {
            let text = "everything committed is wanted, and this node does not lead".to_owned();
            return Err((PeerReason::NotReady, text));
        }
        if committed() >= end {
            return Ok(committed());
        }
        if looks == 0 {
            let text = format!("LSN {end} is still waiting to be committed");
            return Err((PeerReason::NotReady, text));
        }
        looks -= 1;
        glommio::timer::sleep(LOOK).await;
    }
}

/// Waits until the socket holds back no more than `left` bytes; false when it does not take them.
async fn taken(wire: &Wire, left: usize) -> bool {
    let mut looks = TAKE_MAX.as_millis() / LOOK.as_millis();
    while wire.unsent_bytes() > left {
        if wire.is_dead() || looks == 0 {
            return false;
        }
        looks -= 1;
        glommio::timer::sleep(LOOK).await;
    }
    !wire.is_dead()
}
