//! The leader's end of a shard's connection: says hello, then sends what the follower lacks from
//! the log, and new blocks the moment they go to the own disk.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use duolog_engine::block::BlockHeader;
use duolog_engine::ids::{Hlc, LeaseEpoch, Lsn, MonoMs, NodeId};
use duolog_engine::replica::EpochEnd;
use duolog_engine::replica::chain::Seq;
use duolog_engine::replica::link::Link;
use duolog_engine::replica::promotion::StoredChain;
use duolog_engine::segment::LogEnd;
use duolog_net::peer::{
    PeerChain, PeerCommit, PeerConfirm, PeerMessage, PeerReader, PeerSettled, PeerWelcome, Purpose,
    block_frame_header,
};

use super::bell::Bell;
use super::blocks::{self, BlockWalk};
use super::wire::{UNSENT_PAUSE_BYTES, Wire, within};
use crate::serve::cluster::message::{Target, ToControl};
use crate::serve::uring::notify::Notify;
use crate::serve::uring::shard_loop::ShardLoop;

/// Pause before a connection that failed is tried again.
const RETRY: Duration = Duration::from_millis(50);
/// The same after the follower refused: what it lacks does not come that fast.
const REFUSED_RETRY: Duration = Duration::from_millis(500);
/// How long the follower may take to answer a hello. It may have to cut its log and recover.
const WELCOME_MAX: Duration = Duration::from_secs(60);
/// Bytes of the log that are sent before the shard's other tasks have a turn: some 100 us.
const TURN_BYTES: usize = 256 << 10;
/// How often the progress of a copy is told, ms.
const PROGRESS_MS: u64 = 2_000;

/// What a hello says of this reign; fixed at promotion.
#[derive(Clone, Debug)]
pub(in crate::serve) struct ReignLog {
    pub epoch: LeaseEpoch,
    pub end: LogEnd,
    pub marks: Vec<EpochEnd>,
    pub complete: bool,
}

/// See the module.
#[derive(Debug)]
pub(in crate::serve) struct OutLink {
    wire: Rc<Wire>,
    link: RefCell<Link>,
    epoch: LeaseEpoch,
    /// The sending task waits for more.
    more: Notify,
    /// The sending task is at the end of the log: new blocks go out at once.
    live: Cell<bool>,
    told_caught_up: Cell<bool>,
    /// Behind the objects of the chain that it was told of; at first of none.
    told_chain: Cell<Seq>,
    /// The last promise about later stamps.
    told_settled: Cell<Hlc>,
    /// Questions whether the follower still follows: asked, and answered.
    questions: Cell<u64>,
    answers: Cell<u64>,
    answered: Bell,
    reported_at: Cell<MonoMs>,
}

/// Keeps a connection to the target while this node leads.
pub(super) async fn run(shard: Rc<ShardLoop>) {
    let member = shard.member();
    loop {
        let target = member.target.borrow().clone();
        let reign = member.uploads.reign_log();
        let (Some(target), Some(reign)) = (target, reign) else {
            member.target_changed.wait().await;
            continue;
        };
        if shard.leading() != Some(reign.epoch) {
            member.target_changed.wait().await;
            continue;
        }
        let pause = match connect(&shard, &target, &reign).await {
            Ok((link, reader)) => {
                serve(&shard, link, reader).await;
                RETRY
            }
            Err(pause) => pause,
        };
        glommio::timer::sleep(pause).await;
    }
}

async fn connect(
    shard: &Rc<ShardLoop>,
    target: &Target,
    reign: &ReignLog,
) -> Result<(Rc<OutLink>, PeerReader), Duration> {
    let wire = Wire::dial(target.address).await.map_err(|_| RETRY)?;
    let purpose = Purpose::Shard {
        shard: shard.id(),
        end: reign.end,
        marks: reign.marks.clone(),
        complete: reign.complete,
    };
    wire.say(|frame| shard.member().settings.hello(reign.epoch, purpose).encode(frame));
    let mut reader = PeerReader::of_dialled();
    let welcome = welcome(shard, &wire, &mut reader, target).await;
    let Some(welcome) = welcome else {
        wire.shut();
        return Err(REFUSED_RETRY);
    };
    if shard.leading() != Some(reign.epoch) {
        wire.shut();
        return Err(RETRY);
    }
    let link = Link::new(welcome.from, reign.epoch, welcome.end.lsn);
    let link = Rc::new(OutLink {
        wire,
        link: RefCell::new(link),
        epoch: reign.epoch,
        more: Notify::default(),
        live: Cell::new(false),
        told_caught_up: Cell::new(false),
        told_chain: Cell::new(Seq::OPEN),
        told_settled: Cell::new(Hlc(0)),
        questions: Cell::new(0),
        answers: Cell::new(0),
        answered: Bell::default(),
        reported_at: Cell::new(shard.now().mono.ms()),
    });
    Ok((link, reader))
}

async fn welcome(
    shard: &Rc<ShardLoop>,
    wire: &Wire,
    reader: &mut PeerReader,
    target: &Target,
) -> Option<PeerWelcome> {
    let answered = async {
        loop {
            match reader.next_message() {
                Ok(Some(PeerMessage::Welcome(welcome))) if welcome.from == target.node => {
                    return Some(welcome);
                }
                Ok(Some(PeerMessage::Refused(refused))) => {
                    tracing::warn!(event = "hello_refused", shard = shard.id().0, "{refused}");
                    if let Some(refusal) = refused.lease_refusal() {
                        let (from, epoch) = (refused.from, refused.epoch);
                        shard.tell_control(ToControl::Refused { from, epoch, refusal });
                    }
                    return None;
                }
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => return None,
            }
            if !wire.fill(reader).await {
                return None;
            }
        }
    };
    within(WELCOME_MAX, answered).await
}

/// Serves the connection until it ends.
async fn serve(shard: &Rc<ShardLoop>, link: Rc<OutLink>, reader: PeerReader) {
    let member = shard.member();
    let gauge = &shard.inbox().gauge;
    let (node, epoch, lsn) = (link.node(), link.epoch, link.acked());
    tracing::info!(event = "follower_linked", shard = shard.id().0, %node, lsn = lsn.0);
    member.outbound.replace(Some(Rc::clone(&link)));
    gauge.linked(true);
    gauge.acked(lsn);
    shard.peer_acked(node, epoch, lsn);
    link.judge(shard);
    glommio::spawn_local(send_log(Rc::clone(shard), Rc::clone(&link))).detach();
    read_acks(shard, &link, reader).await;
    link.close();
    gauge.linked(false);
    let mut outbound = member.outbound.borrow_mut();
    if outbound.as_ref().is_some_and(|kept| Rc::ptr_eq(kept, &link)) {
        *outbound = None;
    }
    drop(outbound);
    tracing::info!(event = "follower_unlinked", shard = shard.id().0, %node);
    shard.tell_control(ToControl::FollowerLost { node });
    member.uploads.look(shard);
}

async fn read_acks(shard: &Rc<ShardLoop>, link: &Rc<OutLink>, mut reader: PeerReader) {
    let gauge = &shard.inbox().gauge;
    loop {
        let mut news = None;
        loop {
            match reader.next_message() {
                Ok(Some(PeerMessage::Acked(acked))) => {
                    let counts = link.link.borrow_mut().acked_by_peer(acked.epoch, acked.durable);
                    if counts {
                        news = Some(acked.durable);
                    }
                }
                Ok(Some(PeerMessage::Confirmed(confirmed))) if confirmed.epoch == link.epoch => {
                    // A number that was not asked for answers nothing that will be asked.
                    let number = confirmed.number.min(link.questions.get());
                    link.answers.set(number.max(link.answers.get()));
                    link.answered.ring();
                }
                Ok(None) => break,
                Ok(Some(PeerMessage::Refused(refused))) => {
                    tracing::warn!(event = "follower_refuses", shard = shard.id().0, "{refused}");
                    return;
                }
                Ok(Some(_)) | Err(_) => return,
            }
        }
        if let Some(lsn) = news {
            gauge.acked(lsn);
            let (node, epoch) = (link.node(), link.epoch);
            shard.peer_acked(node, epoch, lsn);
            link.judge(shard);
            if !link.live.get() {
                link.more.ring();
            }
        }
        if link.wire.is_dead() || !link.wire.fill(&mut reader).await {
            return;
        }
    }
}

/// Sends the log from where the follower's ends, and lies in wait at the end of it.
async fn send_log(shard: Rc<ShardLoop>, link: Rc<OutLink>) {
    // The spawner may have borrowed what this task touches.
    futures_lite::future::yield_now().await;
    let (mut walk, mut turn_bytes) = (BlockWalk::default(), 0);
    while !link.wire.is_dead() {
        let next = link.link.borrow().next();
        let end = shard.shard.borrow().end().lsn;
        let room = link.has_room();
        if next > end || !room {
            // With room and nothing to send, new blocks go out the moment they are written.
            link.live.set(room);
            link.wire.release();
            link.more.wait().await;
            continue;
        }
        link.live.set(false);
        match walk.block(&shard, next).await {
            Ok((header, block)) => {
                // A new block may have gone out meanwhile only if this task was not needed.
                if link.link.borrow().next() == next {
                    link.note_sent(&header, block.len());
                    link.wire.hold(&[&block_frame_header(link.epoch, block.len()), block]);
                }
                turn_bytes += block.len();
            }
            Err(error) => {
                let shard = shard.id().0;
                tracing::error!(event = "log_not_read", shard, lsn = next.0, %error);
                return link.close();
            }
        }
        if turn_bytes >= TURN_BYTES {
            turn_bytes = 0;
            link.wire.release();
            futures_lite::future::yield_now().await;
        }
    }
}

impl OutLink {
    /// The follower.
    pub fn node(&self) -> NodeId {
        self.link.borrow().node()
    }

    /// Everything up to here is durable there.
    pub fn acked(&self) -> Lsn {
        self.link.borrow().acked()
    }

    /// Ends the connection.
    pub fn close(&self) {
        self.wire.shut();
        self.more.ring();
        self.answered.ring();
    }

    /// The reign that it sends.
    pub const fn epoch(&self) -> LeaseEpoch {
        self.epoch
    }

    /// Whether the follower says, asked now, that it still follows; false when the connection ends
    /// before it does.
    pub async fn confirmed(&self) -> bool {
        let number = self.questions.get() + 1;
        self.questions.set(number);
        self.wire.say(|frame| PeerConfirm { epoch: self.epoch, number }.encode(frame));
        while self.answers.get() < number {
            if self.wire.is_dead() {
                return false;
            }
            self.answered.wait().await;
        }
        true
    }

    /// Whether the follower has everything committed and the connection holds: its acks are what
    /// blocks wait for.
    pub fn counts(&self, committed: Lsn) -> bool {
        !self.wire.is_dead() && self.link.borrow().is_caught_up(committed)
    }

    /// Looks whether acks come.
    pub fn look(&self, now: MonoMs) {
        self.link.borrow_mut().look(now);
    }

    /// Whether acks have stayed away so long, ms, that they cannot be waited for.
    pub fn is_silent(&self, now: MonoMs, limit_ms: u64) -> bool {
        self.link.borrow().is_silent(now, limit_ms)
    }

    /// Whether the follower is being sent older parts of the log.
    pub fn feeds(&self) -> bool {
        !self.live.get() && !self.wire.is_dead()
    }

    fn has_room(&self) -> bool {
        self.link.borrow().has_room() && self.wire.unsent_bytes() < UNSENT_PAUSE_BYTES
    }

    fn note_sent(&self, header: &BlockHeader, length: usize) {
        let mut link = self.link.borrow_mut();
        link.sent(header.first_lsn, header.last_lsn(), length, header.commit_mark);
    }

    fn send_block(&self, header: &BlockHeader, block: &[u8]) {
        self.note_sent(header, block.len());
        self.wire.send(&[&block_frame_header(self.epoch, block.len()), block]);
    }

    /// A block goes to the own disk: send it at the same time (R1), if it is the next one here.
    pub fn written(&self, first: Lsn, block: &[u8]) {
        if !self.live.get() || self.wire.is_dead() {
            return self.more.ring();
        }
        let next = self.link.borrow().next() == first;
        match BlockHeader::decode(block) {
            Ok(header) if next && self.has_room() => self.send_block(&header, block),
            _ => {
                self.live.set(false);
                self.more.ring();
            }
        }
    }

    /// Tells the follower what is committed when no block carries it.
    pub fn tell_committed(&self, committed: Lsn, end: Lsn) {
        if let Some(lsn) = self.link.borrow_mut().mark_to_tell(committed, end) {
            self.wire.say(|frame| PeerCommit { epoch: self.epoch, lsn }.encode(frame));
        }
    }

    /// Tells the follower which stamps no later event has, when that is news and it has been sent
    /// everything.
    pub fn tell_settled(&self, lsn: Lsn, end: Lsn, settled: Hlc) {
        let sent = self.link.borrow().next() > end && lsn == end;
        if sent && settled > self.told_settled.get() {
            self.told_settled.set(settled);
            let epoch = self.epoch;
            self.wire.say(|frame| PeerSettled { epoch, lsn, settled }.encode(frame));
        }
    }

    /// Tells the follower, once for each `next`, that all objects of this reign's chain below
    /// `next` are stored, the last of which ends at `end`.
    pub fn tell_chain(self: &Rc<Self>, shard: &Rc<ShardLoop>, next: Seq, end: Lsn) {
        if self.told_chain.replace(next) == next {
            return;
        }
        let (link, shard) = (Rc::clone(self), Rc::clone(shard));
        glommio::spawn_local(async move {
            // The spawner may have borrowed what this task touches.
            futures_lite::future::yield_now().await;
            // Whoever is not told reads the chain.
            if let Ok(Some(end)) = blocks::end_at(&shard, end).await {
                let stored = StoredChain { epoch: link.epoch, next, end };
                link.wire.say(|frame| PeerChain(stored).encode(frame));
            }
        })
        .detach();
    }

    /// While the follower copies: says how far it is, now and then.
    pub fn report_progress(&self, shard: &ShardLoop, end: Lsn) {
        let now = shard.now().mono.ms();
        if self.told_caught_up.get() || now.since(self.reported_at.get()) < PROGRESS_MS {
            return;
        }
        self.reported_at.set(now);
        let acked = self.acked().0;
        let percent = acked.saturating_mul(100) / end.0.max(1);
        tracing::info!(
            event = "copying", shard = shard.id().0, node = %self.node(), percent, acked,
            end = end.0,
        );
    }

    /// Looks whether the follower has caught up, and tells whom it concerns.
    fn judge(&self, shard: &Rc<ShardLoop>) {
        let committed = shard.shard.borrow().committed().lsn;
        if self.link.borrow().is_caught_up(committed) && !self.told_caught_up.replace(true) {
            let (node, epoch) = (self.node(), self.epoch);
            let message = ToControl::FollowerCaughtUp { shard: shard.id(), node, epoch };
            shard.tell_control(message);
            shard.member().uploads.look(shard);
        }
        shard.tell_covered();
    }
}
