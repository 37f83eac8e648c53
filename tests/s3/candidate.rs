//! A node that has nothing but a lease: the real lease machine over the real client, and a wire to
//! its peer that can be cut. Its shards do at once whatever they are asked.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use duolog_lease::action::{Action, Actions};
use duolog_lease::document::Document;
use duolog_lease::event::{Condition, Event, Heartbeat, ReadResult, Version, WriteOutcome};
use duolog_lease::ids::{CallId, ClusterId, ETag, LeaseEpoch, MonoMs, NodeId, Now, RunId, WallMs};
use duolog_lease::machine::{Identity, Machine};
use duolog_lease::status::Status;
use duolog_lease::timings::{TimingValues, Timings};
use duolog_s3client::answer::Written;
use duolog_s3client::key::ObjectKey;
use duolog_s3client::{Client, etag};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::journal::Journal;

pub const CLUSTER: ClusterId = ClusterId(0xc1);

/// The defaults but for the lease in the bucket, which tests wait for: as short as the rules
/// allow, twice the heartbeat lease.
pub fn timings() -> Timings {
    let values = TimingValues { s3_lease_duration_ms: 3_000, ..TimingValues::default() };
    Timings::new(values).unwrap()
}

/// What both candidates share: where the lease is, the clock, the wire, and who watches them.
#[derive(Clone)]
pub struct Stage {
    pub client: Client,
    pub lease: ObjectKey,
    pub journal: Journal,
    start: Instant,
    connected: Arc<AtomicBool>,
    ends: Arc<Mutex<BTreeMap<NodeId, mpsc::UnboundedSender<Event>>>>,
}

impl Stage {
    pub fn new(client: Client, lease: ObjectKey) -> Self {
        let (connected, ends) = (Arc::new(AtomicBool::new(true)), Arc::default());
        Self { client, lease, journal: Journal::default(), start: Instant::now(), connected, ends }
    }

    /// Cuts the wire between the candidates, or mends it.
    pub fn connect(&self, connected: bool) {
        self.connected.store(connected, Ordering::Relaxed);
    }

    /// One machine, one clock: both candidates' times can be compared. It begins at one second,
    /// for zero may mean "never".
    #[expect(clippy::disallowed_methods, reason = "the driver's clock")]
    fn now(&self) -> Now {
        let mono = self.start.elapsed() + Duration::from_secs(1);
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let ms = |since: Duration| u64::try_from(since.as_millis()).unwrap();
        Now { mono: MonoMs(ms(mono)), wall: WallMs(ms(wall)) }
    }

    /// Hands a message to the peer, if the wire is whole and somebody is at its other end.
    fn send(&self, from: NodeId, message: Event) -> Result<(), Unsent> {
        let ends = self.ends.lock().unwrap();
        let peer = ends.iter().find(|(node, _)| **node != from);
        let peer = peer.filter(|_| self.connected.load(Ordering::Relaxed));
        let (_, inbox) = peer.ok_or(Unsent)?;
        inbox.send(message).map_err(|_| Unsent)
    }

    /// The lease as it is.
    pub async fn document(&self) -> Document {
        let object = self.client.get(&self.lease).await.unwrap().unwrap();
        Document::decode(&object.body, CLUSTER).unwrap()
    }
}

/// A message did not leave.
struct Unsent;

/// A running candidate; dropping it kills it without a farewell.
pub struct Candidate {
    pub node: NodeId,
    inbox: mpsc::UnboundedSender<Event>,
    status: watch::Receiver<Status>,
    /// The promise "on disk".
    promised: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
    stage: Stage,
}

impl Candidate {
    /// Starts with what an earlier life had promised; 0 for a new node.
    pub fn start(stage: &Stage, node: NodeId, promised: LeaseEpoch) -> Self {
        let (inbox, events) = mpsc::unbounded_channel();
        let machine =
            Machine::new(Identity { node, cluster: CLUSTER, run: RunId::new(chance()) }, timings());
        let (status, seen) = watch::channel(Status::Booting);
        let durable = Arc::new(AtomicU64::new(promised.get()));
        stage.ends.lock().unwrap().insert(node, inbox.clone());
        inbox.send(Event::Boot { promised }).unwrap();
        let (stage, promised) = (stage.clone(), Arc::clone(&durable));
        let life = Life { node, machine, status, stage, promised, inbox: inbox.clone() };
        let (stage, task) = (life.stage.clone(), tokio::spawn(life.run(events)));
        Self { node, inbox, status: seen, promised: durable, task, stage }
    }

    pub fn tell(&self, event: Event) {
        self.inbox.send(event).unwrap();
    }

    pub fn promised(&self) -> LeaseEpoch {
        LeaseEpoch(self.promised.load(Ordering::Relaxed))
    }

    pub fn status(&self) -> Status {
        *self.status.borrow()
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        self.task.abort();
        self.stage.ends.lock().unwrap().remove(&self.node);
    }
}

struct Life {
    node: NodeId,
    machine: Machine,
    status: watch::Sender<Status>,
    stage: Stage,
    promised: Arc<AtomicU64>,
    inbox: mpsc::UnboundedSender<Event>,
}

impl Life {
    async fn run(mut self, mut events: mpsc::UnboundedReceiver<Event>) {
        let mut actions = Actions::new();
        loop {
            let left_ms = self.machine.timer().map(|at| at.since(self.stage.now().mono));
            let due = Duration::from_millis(left_ms.unwrap_or(60_000));
            let event = tokio::select! {
                Some(event) = events.recv() => event,
                () = tokio::time::sleep(due) => Event::Tick,
            };
            let now = self.stage.now();
            self.machine.step(now, event, &mut actions);
            self.status.send_replace(self.machine.status(now));
            for action in actions.drain() {
                self.perform(now, action);
            }
        }
    }

    fn perform(&self, now: Now, action: Action) {
        let (from, cluster) = (self.node, CLUSTER);
        let answer = |event| drop(self.inbox.send(event));
        let send = |message| self.stage.send(self.node, message);
        match action {
            Action::ReadLease { call } => drop(tokio::spawn(read(self.call(), call))),
            Action::WriteLease { call, condition, document, .. } => {
                drop(tokio::spawn(write(self.call(), call, condition, *document)));
            }
            Action::PersistPromise { epoch } => {
                self.promised.store(epoch.get(), Ordering::Relaxed);
                answer(Event::PromisePersisted { epoch });
            }
            Action::SendHeartbeat { epoch, sent, wall } => {
                let heartbeat = Heartbeat { from, cluster, epoch, sent, wall };
                if send(Event::HeartbeatReceived(heartbeat)).is_err() {
                    answer(Event::HeartbeatFailed { sent });
                }
            }
            Action::AckHeartbeat { epoch, sent, .. } => {
                drop(send(Event::HeartbeatAcked { from, epoch, sent }));
            }
            Action::Refuse { epoch, refusal, .. } => {
                drop(send(Event::Refused { from, epoch, refusal }));
            }
            Action::GrantChanged(grant) => self.stage.journal.grant(self.node, now.mono, grant),
            Action::MembershipChanged { proposal, .. } => {
                if let (Some(_), Some(epoch)) = (proposal, self.machine.reign()) {
                    answer(Event::ProposalCovered { epoch });
                }
            }
            Action::StartPromotion { epoch, .. } => answer(Event::PromotionFinished { epoch }),
            Action::Follow { epoch, .. } => {
                answer(Event::CaughtUp { epoch });
                drop(send(Event::FollowerCaughtUp { node: self.node, epoch }));
            }
            Action::StopFollowing => answer(Event::FollowingStopped),
            Action::Drain { epoch } => answer(Event::Drained { epoch }),
            Action::Resign { epoch } => drop(send(Event::ResignReceived { from, epoch })),
            Action::Report(report) => {
                let line = format!("{} {:?}: {report:?}", now.mono, self.node);
                self.stage.journal.line(line);
            }
            Action::Fence(_) | Action::SetTimer { .. } => {}
        }
    }

    fn call(&self) -> Errand {
        let (client, lease) = (self.stage.client.once(), self.stage.lease.clone());
        Errand { client, lease, inbox: self.inbox.clone() }
    }
}

/// One call to the store and where its answer goes.
struct Errand {
    client: Client,
    lease: ObjectKey,
    inbox: mpsc::UnboundedSender<Event>,
}

#[expect(clippy::disallowed_methods, reason = "the driver's randomness")]
fn chance() -> u128 {
    uuid::Uuid::new_v4().as_u128()
}

fn jitter() -> u16 {
    u16::try_from(chance() % 65_536).unwrap()
}

async fn read(errand: Errand, call: CallId) {
    let result = match errand.client.get(&errand.lease).await {
        Ok(None) => ReadResult::Absent,
        Ok(Some(object)) => match Document::decode(&object.body, CLUSTER) {
            Ok(document) => {
                let etag = ETag::new(object.etag.as_given());
                ReadResult::Found(Version { etag, document })
            }
            Err(error) => ReadResult::Unusable(error),
        },
        Err(_) => ReadResult::Failed,
    };
    drop(errand.inbox.send(Event::LeaseRead { call, result, jitter: jitter() }));
}

async fn write(errand: Errand, call: CallId, condition: Condition, document: Document) {
    let (client, lease, body) = (&errand.client, &errand.lease, document.encode().into());
    let written = match condition {
        Condition::Absent => client.put_if_absent(lease, body).await,
        Condition::Matches(version) => {
            let version = etag::ETag::new(&*version.0).unwrap();
            client.put_if_match(lease, body, &version).await
        }
    };
    let outcome = match written {
        Ok(Written::Stored { etag }) => WriteOutcome::Stored { etag: ETag::new(etag.as_given()) },
        Ok(Written::Conflict) => WriteOutcome::Conflict,
        Ok(Written::Unknown(_)) | Err(_) => WriteOutcome::Unknown,
    };
    drop(errand.inbox.send(Event::LeaseWritten { call, outcome, jitter: jitter() }));
}
