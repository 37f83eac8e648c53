//! Drives the fallback chain of one shard: tells its machine what was closed and committed, makes
//! objects of blocks, sends them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use duolog_engine::block::BlockHeader;
use duolog_engine::ids::{LeaseEpoch, Lsn, MonoMs};
use duolog_engine::replica::chain::Seq;
use duolog_engine::replica::chain::header::ObjectKind;
use duolog_engine::replica::chain::object::{Found, LsnRange};
use duolog_engine::replica::garbage::is_worth_a_new_reign;
use duolog_engine::replica::limits::{CHAIN_BATCH_TARGET_BYTES, CHAIN_UPLOADS_IN_FLIGHT_MAX};
use duolog_engine::replica::promotion::PutOutcome;
use duolog_engine::replica::uploader::{Action, Event, Uploader, UploaderConfig, Wire};
use duolog_engine::shard::Event as ShardEvent;

use super::object;
use super::outlink::ReignLog;
use crate::serve::cluster::message::ToControl;
use crate::serve::cluster::store::{Ask, Lane, Told};
use crate::serve::uring::shard_loop::ShardLoop;

/// The machine of one reign, and what it was told.
#[derive(Debug)]
struct Chain {
    log: ReignLog,
    machine: Uploader,
    /// The newest closed block that the machine knows.
    closed: Lsn,
    committed: Lsn,
    wire: Wire,
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::serve) struct Uploads {
    chain: RefCell<Option<Chain>>,
    /// Objects whose outcome is not known, with their bytes once they are made: every attempt
    /// sends the same (C2).
    kept: RefCell<HashMap<Seq, (LsnRange, Option<Bytes>)>>,
    /// When the earliest timer that runs is due.
    timer_at: Cell<Option<MonoMs>>,
    /// A new reign was asked for, because of the length of the chain.
    asked_new: Cell<bool>,
}

impl Uploads {
    /// The reign is open: its Open holds everything up to its end.
    pub fn begin(&self, shard: &Rc<ShardLoop>, log: ReignLog) {
        let (epoch, end) = (log.epoch, log.end.lsn);
        let config = UploaderConfig {
            epoch,
            delay_ms: shard.member().settings.replication_delay_ms,
            in_flight_max: CHAIN_UPLOADS_IN_FLIGHT_MAX,
            batch_bytes: CHAIN_BATCH_TARGET_BYTES,
        };
        let machine = Uploader::new(config, end);
        self.chain.replace(Some(Chain {
            log,
            machine,
            closed: end,
            committed: end,
            wire: Wire::Away,
        }));
        self.kept.borrow_mut().clear();
        self.asked_new.set(false);
        shard.inbox().gauge.chain(end);
        self.step(shard, Event::Grant(shard.member().grant.get()));
    }

    /// What hellos of this reign say.
    pub fn reign_log(&self) -> Option<ReignLog> {
        self.chain.borrow().as_ref().map(|chain| chain.log.clone())
    }

    /// The reign is over; what is under way ends by itself.
    pub fn end(&self) {
        self.chain.replace(None);
        self.kept.borrow_mut().clear();
    }

    /// A newer grant may permit what had to wait.
    pub fn granted(&self, shard: &Rc<ShardLoop>) {
        self.step(shard, Event::Grant(shard.member().grant.get()));
    }

    /// Whether another member acks in time under every set in force.
    fn wire(shard: &ShardLoop) -> Wire {
        let member = shard.member();
        let Some((in_sync, proposal)) = member.members.get() else { return Wire::Away };
        let own = member.settings.identity.node;
        let committed = shard.shard.borrow().committed().lsn;
        let (now, limit_ms) = (shard.now().mono.ms(), member.settings.timings.heartbeat_lease_ms());
        let outbound = member.outbound.borrow();
        let counts = |node| {
            let link = outbound.as_ref().filter(|link| link.node() == node);
            link.is_some_and(|link| link.counts(committed) && !link.is_silent(now, limit_ms))
        };
        let mut sets = [Some(in_sync), proposal].into_iter().flatten();
        let covers = sets.all(|set| set.other(own).is_some_and(counts));
        if covers && member.reachable.get() { Wire::Covers } else { Wire::Away }
    }

    /// Tells the machine what has changed since it was told last.
    pub fn look(&self, shard: &Rc<ShardLoop>) {
        let Some((mut closed, committed, wire)) =
            self.chain.borrow().as_ref().map(|chain| (chain.closed, chain.committed, chain.wire))
        else {
            return;
        };
        let (end, now_committed) = {
            let machine = shard.shard.borrow();
            (machine.end().lsn, machine.committed().lsn)
        };
        let now_wire = Self::wire(shard);
        if now_wire == Wire::Away && now_committed > committed {
            self.note(|chain| chain.committed = now_committed);
            self.step(shard, Event::Committed { lsn: now_committed });
        }
        if now_wire != wire {
            self.note(|chain| chain.wire = now_wire);
            self.step(shard, Event::Wire(now_wire));
        }
        self.renew_long_chain(shard, now_wire);
        // While the follower covers, the machine need not hear of every block; what is committed
        // meanwhile it never has to hear of.
        closed = closed.max(now_committed);
        while now_wire == Wire::Away && closed < end {
            let Some((last_lsn, bytes)) = closed_block(shard, closed) else { break };
            closed = last_lsn;
            self.note(|chain| chain.closed = closed);
            self.step(shard, Event::Closed { last_lsn, bytes });
        }
    }

    /// G3: a new reign lets a long chain go, once the follower covers again.
    fn renew_long_chain(&self, shard: &Rc<ShardLoop>, wire: Wire) {
        let chain = self.chain.borrow();
        let Some(chain) = chain.as_ref() else { return };
        if is_worth_a_new_reign(chain.machine.length(), wire) && !self.asked_new.replace(true) {
            let epoch = chain.log.epoch;
            tracing::info!(event = "long_chain", shard = shard.id().0, epoch = epoch.0);
            shard.tell_control(ToControl::NewReignWanted { epoch });
        }
    }

    fn note(&self, change: impl FnOnce(&mut Chain)) {
        if let Some(chain) = &mut *self.chain.borrow_mut() {
            change(chain);
        }
    }

    fn step(&self, shard: &Rc<ShardLoop>, event: Event) {
        let now = shard.now().mono.ms();
        let mut actions = Vec::new();
        let (epoch, deadline) = {
            let mut chain = self.chain.borrow_mut();
            let Some(chain) = &mut *chain else { return };
            chain.machine.step(now, event, &mut actions);
            (chain.log.epoch, chain.machine.deadline())
        };
        for action in actions {
            self.perform(shard, epoch, action);
        }
        self.tell_follower(shard);
        if let Some(at) = deadline
            && self.timer_at.get().is_none_or(|set| at < set)
        {
            self.timer_at.set(Some(at));
            let (shard, ms) = (Rc::clone(shard), at.since(now).max(1));
            glommio::spawn_local(async move {
                glommio::timer::sleep(Duration::from_millis(ms)).await;
                let uploads = &shard.member().uploads;
                if uploads.timer_at.get() == Some(at) {
                    uploads.timer_at.set(None);
                }
                shard.look_at_the_clock();
                uploads.step(&shard, Event::Tick);
            })
            .detach();
        }
    }

    /// A follower that covers learns what is stored of the chain, so that it need not read it when
    /// it has to lead.
    fn tell_follower(&self, shard: &Rc<ShardLoop>) {
        let chain = self.chain.borrow();
        let Some(chain) = chain.as_ref().filter(|chain| chain.wire == Wire::Covers) else { return };
        let (epoch, (next, end)) = (chain.log.epoch, chain.machine.stored_chain());
        let link = shard.member().outbound.borrow().clone();
        if let Some(link) = link.filter(|link| link.epoch() == epoch) {
            link.tell_chain(shard, next, end);
        }
    }

    fn perform(&self, shard: &Rc<ShardLoop>, epoch: LeaseEpoch, action: Action) {
        let task = match action {
            Action::Upload { .. } | Action::Repeat { .. } | Action::ReadBack { .. } => action,
            Action::Release { seq } => {
                self.kept.borrow_mut().remove(&seq);
                return;
            }
            Action::ChainStored { lsn } => return self.stored(shard, epoch, lsn),
            Action::AskRenewal => return shard.tell_control(ToControl::RenewalWanted { epoch }),
            Action::Deposed { seq, found } => {
                let id = shard.id().0;
                tracing::warn!(event = "chain_lost", shard = id, epoch = epoch.0, %seq, ?found);
                return shard.tell_control(ToControl::ChainLost { epoch });
            }
        };
        let shard = Rc::clone(shard);
        glommio::spawn_local(async move {
            // The step that asked for it is over before anything is done.
            futures_lite::future::yield_now().await;
            let Some(event) = call(&shard, epoch, task).await else { return };
            let uploads = &shard.member().uploads;
            if uploads.reign_log().is_some_and(|log| log.epoch == epoch) {
                shard.look_at_the_clock();
                uploads.step(&shard, event);
            }
        })
        .detach();
    }

    fn stored(&self, shard: &Rc<ShardLoop>, epoch: LeaseEpoch, lsn: Lsn) {
        shard.inbox().gauge.chain(lsn);
        let shard = Rc::clone(shard);
        glommio::spawn_local(async move {
            // Within a step of the machine that the shard's own step may have caused.
            futures_lite::future::yield_now().await;
            shard.step(ShardEvent::ChainStored { epoch, lsn });
        })
        .detach();
    }
}

/// The block behind `closed`: its last LSN and length.
fn closed_block(shard: &ShardLoop, closed: Lsn) -> Option<(Lsn, u64)> {
    let machine = shard.shard.borrow();
    let block = machine.in_memory_block(closed.next())?;
    let header = BlockHeader::decode(block).ok()?;
    Some((header.last_lsn(), block.len() as u64))
}

/// Makes one call; its answer as an event.
async fn call(shard: &Rc<ShardLoop>, epoch: LeaseEpoch, action: Action) -> Option<Event> {
    let member = shard.member();
    match action {
        Action::Upload { seq, range } => {
            member.uploads.kept.borrow_mut().insert(seq, (range, None));
            Some(Event::Put { seq, outcome: send(shard, epoch, seq).await? })
        }
        Action::Repeat { seq } => Some(Event::Put { seq, outcome: send(shard, epoch, seq).await? }),
        Action::ReadBack { seq } => {
            let told = member.calls.ask(Lane::Bulk, Ask::Get(object::key(shard, epoch, seq))).await;
            let sent = member.uploads.kept.borrow().get(&seq)?.1.clone()?;
            let found = match told {
                Told::Found(body, _) => Some(Found::of(&sent, Some(&body))),
                Told::Absent => Some(Found::of(&sent, None)),
                _ => None,
            };
            Some(Event::ReadBack { seq, found })
        }
        _ => None,
    }
}

/// Sends an object, made now if that has not worked before; `None` if nobody waits for it.
async fn send(shard: &Rc<ShardLoop>, epoch: LeaseEpoch, seq: Seq) -> Option<PutOutcome> {
    let kept = &shard.member().uploads.kept;
    let (range, made) = kept.borrow().get(&seq).cloned()?;
    let body = match made {
        Some(body) => body,
        None => {
            let id = object::id(shard, epoch, seq);
            match object::make(shard, id, ObjectKind::Batch, None, range).await {
                Ok(body) => body,
                // The next attempt makes it.
                Err(error) => {
                    tracing::error!(event = "batch_not_made", shard = shard.id().0, %error);
                    return Some(PutOutcome::Unknown);
                }
            }
        }
    };
    kept.borrow_mut().get_mut(&seq)?.1 = Some(body.clone());
    let key = object::key(shard, epoch, seq);
    Some(object::create(shard, Lane::Bulk, key, body).await)
}
