//! Heartbeats on their own connection: the leader's end, which dials, and the follower's.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use duolog_engine::ids::{LeaseEpoch, Lsn, NodeId, ShardId, WallMs};
use duolog_lease::event::{Event, Heartbeat};
use duolog_lease::ids::MonoMs;
use duolog_net::peer::{
    PeerHeartbeat, PeerHeartbeatAcked, PeerHello, PeerMessage, PeerReader, PeerRefused, PeerResign,
    PeerWelcome, Purpose,
};

use super::control::Control;
use super::wire::{Wire, within};
use crate::journal::Note;
use crate::serve::cluster::message::{Target, ToShard};

/// How long the other node may take to answer a hello.
const WELCOME_MAX: Duration = Duration::from_secs(2);

/// The leader's end.
#[derive(Debug, Default)]
pub(in crate::serve) struct Outbound {
    wire: RefCell<Option<Rc<Wire>>>,
    last_sent: Cell<MonoMs>,
    /// The other node's wall clock less this one's, ms, as of the newest ack.
    pub skew_ms: Cell<Option<i64>>,
}

impl Outbound {
    /// Whether a connection is up.
    pub fn is_up(&self) -> bool {
        self.wire.borrow().as_ref().is_some_and(|wire| !wire.is_dead())
    }

    /// Sends a heartbeat; false if there is nobody to send it to.
    pub fn beat(&self, control: &Control, epoch: LeaseEpoch, sent: MonoMs, wall: WallMs) -> bool {
        let identity = &control.settings.identity;
        let (cluster, from, commits) = (identity.cluster, identity.node, control.commits());
        let message = PeerHeartbeat { epoch, cluster, from, sent, wall, commits };
        self.last_sent.set(sent);
        let wire = self.wire.borrow();
        wire.as_ref().is_some_and(|wire| wire.say(|frame| message.encode(frame)))
    }

    /// Gives the reign away.
    pub fn resign(&self, control: &Control, epoch: LeaseEpoch) {
        let identity = &control.settings.identity;
        let (cluster, from, commits) = (identity.cluster, identity.node, control.commits());
        if let Some(wire) = &*self.wire.borrow() {
            wire.say(|frame| PeerResign { epoch, cluster, from, commits }.encode(frame));
        }
    }

    /// Ends the connection.
    pub fn close(&self) {
        if let Some(wire) = self.wire.borrow_mut().take() {
            wire.shut();
        }
    }
}

/// Dials a candidate; whether it is the follower's end now. The connection is read in a task.
pub(super) async fn dial(control: &Rc<Control>, epoch: LeaseEpoch, target: &Target) -> bool {
    let Ok(wire) = Wire::dial(target.address).await else { return false };
    let hello = control.settings.hello(epoch, Purpose::Heartbeat);
    let mut reader = PeerReader::of_dialled();
    let answered = async {
        if !wire.say(|frame| hello.encode(frame)) {
            return None;
        }
        next(&wire, &mut reader).await
    };
    match within(WELCOME_MAX, answered).await {
        Some(Owned::Welcome(welcome)) if welcome.from == target.node => {}
        Some(Owned::Refused(refused)) => {
            let (node, reason) = (target.node, refused.text.as_str());
            tracing::warn!(event = "peer_refused", %node, address = %target.address, reason);
            wire.shut();
            return false;
        }
        _ => {
            wire.shut();
            return false;
        }
    }
    control.outbound.close();
    control.outbound.wire.replace(Some(Rc::clone(&wire)));
    let note = Note::new("peer_connected").at_epoch(epoch.0).with("peer", target.node.to_string());
    control.note(note.with("address", target.address.to_string()).with("as", "leader"));
    let control = Rc::clone(control);
    let node = target.node;
    glommio::spawn_local(async move { read_acks(control, wire, reader, node).await }).detach();
    true
}

/// How far another clock is ahead of this one, ms.
fn distance_ms(other: WallMs, own: WallMs) -> i64 {
    i64::try_from(other.0).unwrap_or(i64::MAX) - i64::try_from(own.0).unwrap_or(i64::MAX)
}

/// What a heartbeat connection carries back.
enum Owned {
    Welcome(PeerWelcome),
    Refused(PeerRefused),
    Acked(PeerHeartbeatAcked),
}

async fn next(wire: &Wire, reader: &mut PeerReader) -> Option<Owned> {
    loop {
        match reader.next_message() {
            Ok(Some(PeerMessage::Welcome(welcome))) => return Some(Owned::Welcome(welcome)),
            Ok(Some(PeerMessage::Refused(refused))) => return Some(Owned::Refused(refused)),
            Ok(Some(PeerMessage::HeartbeatAcked(acked))) => return Some(Owned::Acked(acked)),
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return None,
        }
        if !wire.fill(reader).await {
            return None;
        }
    }
}

async fn read_acks(control: Rc<Control>, wire: Rc<Wire>, mut reader: PeerReader, node: NodeId) {
    while let Some(message) = next(&wire, &mut reader).await {
        match message {
            Owned::Acked(acked) if acked.from == node => {
                let skew = distance_ms(acked.wall, control.now().wall);
                control.outbound.skew_ms.set(Some(skew));
                control.chronicle.borrow_mut().skew(skew);
                let PeerHeartbeatAcked { from, epoch, sent, .. } = acked;
                control.step(Event::HeartbeatAcked { from, epoch, sent });
            }
            Owned::Refused(refused) => {
                let (from, epoch) = (refused.from, refused.epoch);
                if let Some(refusal) = refused.lease_refusal() {
                    control.step(Event::Refused { from, epoch, refusal });
                }
            }
            _ => break,
        }
    }
    wire.shut();
    let own = control.outbound.wire.borrow().as_ref().is_some_and(|kept| Rc::ptr_eq(kept, &wire));
    if own {
        control.outbound.wire.replace(None);
        let note = Note::new("peer_disconnected").with("peer", node.to_string());
        control.note(note.with("as", "leader"));
        control.step(Event::HeartbeatFailed { sent: control.outbound.last_sent.get() });
    }
}

/// The follower's end.
#[derive(Debug)]
pub(in crate::serve) struct Inbound {
    wire: Rc<Wire>,
    from: NodeId,
}

impl Inbound {
    /// Acks a heartbeat of `to`.
    pub fn ack(&self, to: NodeId, own: NodeId, epoch: LeaseEpoch, sent: MonoMs, wall: WallMs) {
        if self.from == to {
            let acked = PeerHeartbeatAcked { epoch, from: own, sent, wall };
            self.wire.say(|frame| acked.encode(frame));
        }
    }

    /// Refuses a heartbeat of `to`.
    pub fn refuse(&self, to: NodeId, refused: &PeerRefused) {
        if self.from == to {
            self.wire.say(|frame| refused.encode(frame));
        }
    }
}

/// Serves a connection that brings heartbeats.
pub(super) async fn serve(
    control: Rc<Control>,
    wire: Rc<Wire>,
    hello: PeerHello,
    reader: PeerReader,
) {
    let identity = control.settings.identity;
    let promised = control.promised();
    let (epoch, cluster, from) = (hello.epoch, identity.cluster, identity.node);
    let (end, committed) = (PeerWelcome::NO_END, Lsn(0));
    let welcome = PeerWelcome { epoch, cluster, from, promised, end, committed };
    if !wire.say(|frame| welcome.encode(frame)) {
        return;
    }
    let inbound = Rc::new(Inbound { wire: Rc::clone(&wire), from: hello.from });
    if let Some(before) = control.inbound.replace(Some(Rc::clone(&inbound)))
        && before.from == hello.from
    {
        before.wire.shut();
    }
    let note = Note::new("peer_connected").at_epoch(epoch.0);
    control.note(note.with("peer", hello.from.to_string()).with("as", "follower"));
    control.met(hello.epoch, hello.client_address);
    listen(&control, &wire, reader, hello.from).await;
    wire.shut();
    let note = Note::new("peer_disconnected").at_epoch(epoch.0);
    control.note(note.with("peer", hello.from.to_string()).with("as", "follower"));
    let mut kept = control.inbound.borrow_mut();
    if kept.as_ref().is_some_and(|kept| Rc::ptr_eq(kept, &inbound)) {
        *kept = None;
    }
}

async fn listen(control: &Rc<Control>, wire: &Wire, mut reader: PeerReader, leader: NodeId) {
    loop {
        loop {
            match reader.next_message() {
                Ok(Some(PeerMessage::Heartbeat(heartbeat))) if heartbeat.from == leader => {
                    take_heartbeat(control, &heartbeat);
                }
                Ok(Some(PeerMessage::Resign(resign))) if resign.from == leader => {
                    take_resignation(control, &resign);
                }
                Ok(None) => break,
                Ok(Some(_)) | Err(_) => return,
            }
        }
        if !wire.fill(&mut reader).await {
            return;
        }
    }
}

fn take_heartbeat(control: &Rc<Control>, heartbeat: &PeerHeartbeat) {
    let PeerHeartbeat { epoch, cluster, from, sent, wall, .. } = *heartbeat;
    control.step(Event::HeartbeatReceived(Heartbeat { from, cluster, epoch, sent, wall }));
    if control.machine.borrow().following() == Some((from, epoch)) {
        let now = control.shard.now();
        control.history.borrow_mut().heard(now.wall);
        let mut chronicle = control.chronicle.borrow_mut();
        chronicle.heard(now);
        chronicle.skew(distance_ms(wall, now.wall));
        drop(chronicle);
        spread_commits(control, epoch, &heartbeat.commits);
    }
}

/// The leader has committed all that it appended; whoever takes over starts from there.
fn take_resignation(control: &Rc<Control>, resign: &PeerResign) {
    let PeerResign { epoch, cluster, from, .. } = *resign;
    if cluster != control.settings.identity.cluster {
        return;
    }
    if control.machine.borrow().following() == Some((from, epoch)) {
        control.history.borrow_mut().heard(control.now().wall);
        control.chronicle.borrow_mut().heard(control.shard.now());
        let note = Note::new("resign_received").at_epoch(epoch.0);
        control.note(note.with("peer", from.to_string()));
        spread_commits(control, epoch, &resign.commits);
    }
    control.step(Event::ResignReceived { from, epoch });
}

fn spread_commits(control: &Control, epoch: LeaseEpoch, commits: &[Lsn]) {
    for (index, (lsn, inbox)) in commits.iter().zip(control.shard.inboxes.iter()).enumerate() {
        if *lsn > inbox.gauge.read().committed {
            let shard = ShardId(u32::try_from(index).unwrap_or(u32::MAX));
            control.shard.tell_shard(shard, ToShard::Committed { epoch, lsn: *lsn });
        }
    }
}
