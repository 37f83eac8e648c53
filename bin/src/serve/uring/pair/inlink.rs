//! The follower's end of a shard's connection: fits the log to the leader's, then takes blocks and
//! acks what is durable.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use duolog_engine::ids::{LeaseEpoch, Lsn, NodeId};
use duolog_engine::replica::hello::{Fork, HelloLog, fork};
use duolog_engine::shard::{Event, Role};
use duolog_lease::event::{Hello, Refusal};
use duolog_net::peer::{
    PeerAcked, PeerChain, PeerConfirmed, PeerHello, PeerMessage, PeerReader, PeerReason,
    PeerRefused, PeerWelcome, Purpose,
};

use super::rebuild;
use super::wire::Wire;
use crate::serve::cluster::message::{PeerSocket, ToControl};
use crate::serve::uring::shard_loop::ShardLoop;

/// See the module.
#[derive(Debug)]
pub(in crate::serve) struct InLink {
    wire: Rc<Wire>,
    hello: PeerHello,
    /// What came behind the hello, until the link takes blocks.
    reader: RefCell<Option<PeerReader>>,
    engaged: Cell<bool>,
    /// What the leader has said is committed.
    told_committed: Cell<Option<Lsn>>,
    /// What the leader was told is durable here, since it was welcomed: no ack comes before that.
    acked: Cell<Option<Lsn>>,
}

/// A connection whose hello has been read comes to this shard.
pub(super) fn accept(shard: &Rc<ShardLoop>, socket: PeerSocket) {
    let PeerSocket { socket, hello, rest } = socket;
    let wire = Wire::adopt(socket);
    let mut reader = PeerReader::of_greeted();
    reader.push(&rest);
    let link = Rc::new(InLink {
        wire,
        hello: *hello,
        reader: RefCell::new(Some(reader)),
        engaged: Cell::new(false),
        told_committed: Cell::new(None),
        acked: Cell::new(None),
    });
    let member = shard.member();
    let PeerHello { epoch, cluster, from, .. } = link.hello;
    let engaged = member.inbound.borrow().clone();
    let engaged = engaged.filter(|known| known.engaged.get() && !known.wire.is_dead());
    if let Some(newest) = engaged.map(|known| known.hello.epoch).filter(|newest| *newest > epoch) {
        // A hello of a deposed leader that came late must not cost the connection of its successor.
        return link.refuse_lease(shard, Refusal::Promised(newest));
    }
    if let Some(before) = member.inbound.replace(Some(Rc::clone(&link))) {
        before.close();
    }
    if member.follow.get() == Some((from, epoch)) {
        return engage(shard, &link);
    }
    let client_address = link.hello.client_address.clone();
    let hello = Hello { from, cluster, epoch };
    shard.tell_control(ToControl::Hello { hello, client_address });
}

/// The lease machine follows this leader: fit the log to its, and take blocks.
pub(super) fn engage(shard: &Rc<ShardLoop>, link: &Rc<InLink>) {
    let wanted = Some((link.hello.from, link.hello.epoch));
    if shard.member().follow.get() == wanted && !link.engaged.replace(true) {
        let (shard, link) = (Rc::clone(shard), Rc::clone(link));
        glommio::spawn_local(async move {
            // Within the step that told this shard to follow.
            futures_lite::future::yield_now().await;
            serve(&shard, &link).await;
            link.close();
            let mut inbound = shard.member().inbound.borrow_mut();
            if inbound.as_ref().is_some_and(|kept| Rc::ptr_eq(kept, &link)) {
                *inbound = None;
            }
        })
        .detach();
    }
}

async fn serve(shard: &Rc<ShardLoop>, link: &Rc<InLink>) {
    if let Err(refused) = fit(shard, link).await {
        tracing::warn!(event = "leader_refused", shard = shard.id().0, reason = refused.text);
        return link.send(&refused);
    }
    let (epoch, end, committed) = {
        let machine = shard.shard.borrow();
        (link.hello.epoch, machine.durable(), machine.committed().lsn)
    };
    let identity = shard.member().settings.identity;
    let (cluster, from, promised) = (identity.cluster, identity.node, epoch);
    let welcome = PeerWelcome { epoch, cluster, from, promised, end, committed };
    link.acked.set(Some(end.lsn));
    tracing::info!(event = "follows", shard = shard.id().0, epoch = epoch.0, lsn = end.lsn.0);
    if link.wire.say(|frame| welcome.encode(frame)) {
        take_blocks(shard, link).await;
    }
}

/// Cuts what is not the leader's, and makes the machine follow.
async fn fit(shard: &Rc<ShardLoop>, link: &Rc<InLink>) -> Result<(), PeerRefused> {
    let PeerHello { epoch, from, .. } = link.hello;
    let Purpose::Shard { end, marks, complete, .. } = &link.hello.purpose else {
        return Err(link.refused(shard, PeerReason::BadMessage, "no shard is named".to_owned()));
    };
    loop {
        rebuild::settle(shard).await;
        if shard.member().follow.get() != Some((from, epoch)) || link.wire.is_dead() {
            let text = "another reign has begun meanwhile".to_owned();
            return Err(link.refused(shard, PeerReason::NotReady, text));
        }
        let decision = {
            let machine = shard.shard.borrow();
            let leader = HelloLog { epoch, end: *end, marks, complete: *complete };
            let own = machine.epoch_marks();
            fork(own, machine.epoch_marks_complete(), &machine.end(), &leader)
        };
        match decision {
            Fork::Keep => break,
            Fork::CutAfter { lsn } => {
                let committed = shard.shard.borrow().committed().lsn;
                if lsn < committed {
                    // R4: a fatal alarm, not an action.
                    let text = format!(
                        "the leader's log parts from this one behind LSN {lsn}, but events up to \
                         {committed} were acknowledged here: nothing is cut; compare both data \
                         directories with `duolog verify --compare` before you go on"
                    );
                    tracing::error!(event = "cut_refused", shard = shard.id().0, "{text}");
                    return Err(link.refused(shard, PeerReason::CutRefused, text));
                }
                if let Err(text) = rebuild::cut(shard, lsn).await {
                    return Err(link.refused(shard, PeerReason::Damaged, text));
                }
            }
            Fork::Impossible { epoch, lsn } => {
                let text = format!(
                    "both logs end epoch {epoch} at LSN {lsn}, with different blocks: one of the \
                     data directories was copied or changed; compare them with `duolog verify \
                     --compare`"
                );
                tracing::error!(event = "logs_contradict", shard = shard.id().0, "{text}");
                return Err(link.refused(shard, PeerReason::CutRefused, text));
            }
            Fork::TooOld => {
                let text = "the logs parted before the oldest reign that the leader names: admit \
                            this node with an empty data directory"
                    .to_owned();
                return Err(link.refused(shard, PeerReason::MarksTooNew, text));
            }
        }
    }
    shard.step(Event::Follow { epoch });
    let role = shard.shard.borrow().role();
    if role == (Role::Follower { epoch: Some(epoch) }) {
        return Ok(());
    }
    let text = format!("the shard is {role:?} and does not follow epoch {epoch}");
    Err(link.refused(shard, PeerReason::NotReady, text))
}

async fn take_blocks(shard: &Rc<ShardLoop>, link: &Rc<InLink>) {
    let Some(mut reader) = link.reader.take() else { return };
    let epoch = link.hello.epoch;
    let stored_chain = &shard.member().stored_chain;
    loop {
        let mut healthy = true;
        shard.step_many(|shard, actions| {
            let mut blocks = false;
            loop {
                match reader.next_message() {
                    Ok(Some(PeerMessage::Block { epoch: sender, block })) if sender == epoch => {
                        shard.step_into(Event::Received { epoch, block }, actions);
                        blocks = true;
                    }
                    Ok(Some(PeerMessage::Commit(commit))) if commit.epoch == epoch => {
                        let lsn = commit.lsn;
                        link.told_committed.set(Some(lsn));
                        shard.step_into(Event::CommitMark { epoch, lsn }, actions);
                    }
                    Ok(Some(PeerMessage::Settled(told))) if told.epoch == epoch => {
                        shard.hear_settled(&told);
                    }
                    Ok(Some(PeerMessage::Chain(PeerChain(stored)))) if stored.epoch == epoch => {
                        stored_chain.set(Some(stored));
                    }
                    // L3: not a moment longer than this node follows.
                    Ok(Some(PeerMessage::Confirm(asked)))
                        if asked.epoch == epoch && follows(shard, link) =>
                    {
                        let number = asked.number;
                        link.wire.say(|frame| PeerConfirmed { epoch, number }.encode(frame));
                    }
                    Ok(None) => break,
                    Ok(Some(_)) | Err(_) => {
                        healthy = false;
                        break;
                    }
                }
            }
            if blocks {
                shard.step_into(Event::Flush, actions);
            }
        });
        if !healthy || link.wire.is_dead() || !link.wire.fill(&mut reader).await {
            return;
        }
        if !follows(shard, link) {
            return;
        }
    }
}

/// Whether the lease machine follows the leader of this connection.
fn follows(shard: &ShardLoop, link: &InLink) -> bool {
    shard.member().follow.get() == Some((link.hello.from, link.hello.epoch))
}

impl InLink {
    /// Whether it is the connection of this leader in this reign.
    pub fn is_of(&self, from: NodeId, epoch: LeaseEpoch) -> bool {
        (self.hello.from, self.hello.epoch) == (from, epoch)
    }

    /// Ends the connection.
    pub fn close(&self) {
        self.wire.shut();
    }

    fn refused(&self, shard: &ShardLoop, reason: PeerReason, text: String) -> PeerRefused {
        let own = shard.member().settings.identity.node;
        PeerRefused::new(self.hello.epoch, own, reason, text)
    }

    /// Tells the leader that the lease machine does not follow it.
    pub fn refuse_lease(&self, shard: &ShardLoop, refusal: Refusal) {
        let own = shard.member().settings.identity.node;
        let promised = match refusal {
            Refusal::Promised(promised) => promised,
            _ => LeaseEpoch(0),
        };
        self.send(&PeerRefused::of_lease(self.hello.epoch, own, promised, refusal));
        self.close();
    }

    fn send(&self, refused: &PeerRefused) {
        self.wire.say(|frame| refused.encode(frame));
    }

    /// A block is not the next one here: the leader has to begin anew.
    pub fn refuse_block(&self, shard: &ShardLoop, text: String) {
        self.send(&self.refused(shard, PeerReason::Discontinuous, text));
        self.close();
    }

    /// Everything up to `durable` is on this disk.
    pub fn ack(&self, epoch: LeaseEpoch, durable: Lsn, committed: Lsn) {
        let told = self.acked.get();
        if epoch == self.hello.epoch && told.is_some_and(|told| durable > told) {
            self.acked.set(Some(durable));
            self.wire.say(|frame| PeerAcked { epoch, durable, committed }.encode(frame));
        }
    }

    /// The leader's reign, once what it said is committed is committed here.
    pub fn caught_up(&self, committed: Lsn) -> Option<LeaseEpoch> {
        let told = self.told_committed.get()?;
        (committed >= told).then_some(self.hello.epoch)
    }
}
