//! Two machines, a store and a link with exact, virtual time. Each node's monotonic clock has its
//! own zero, so that a machine that compared two nodes' clocks would fail every test.

use std::collections::BTreeMap;

use duolog_lease::action::{Action, Actions};
use duolog_lease::document::Document;
use duolog_lease::event::{
    Condition, Event, Heartbeat, ReadResult, Refusal, Version, WriteOutcome,
};
use duolog_lease::grant::Grant;
use duolog_lease::ids::{CallId, ClusterId, ETag, LeaseEpoch, MonoMs, NodeId, Now, RunId, WallMs};
use duolog_lease::machine::{Identity, Machine};
use duolog_lease::report::What;
use duolog_lease::status::{FenceReason, Status};
use duolog_lease::timings::Timings;

pub const CLUSTER: ClusterId = ClusterId(0xc);
pub const A: usize = 0;
pub const B: usize = 1;
/// Time of a call to the store, ms; half of it before it takes effect.
pub const STORE_MS: u64 = 10;
/// After this the driver gives a call up, ms.
pub const STORE_LIMIT_MS: u64 = 200;
const WALL: u64 = 1_800_000_000_000;

#[derive(Debug)]
enum Happening {
    Event(usize, u8, Event),
    Read(usize, u8, CallId),
    Write(usize, u8, CallId, Condition, Document),
}

/// What somebody watching would have noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A call to the store left.
    Look,
    Write,
    /// A report.
    What(What),
    Fence,
    /// A reign is over.
    Over,
    HeartbeatAcked,
}

pub struct Pair {
    pub at: u64,
    pub machines: [Option<Machine>; 2],
    pub wall_ahead: [i64; 2],
    pub store: Option<Version>,
    /// For A and for B.
    pub store_up: [bool; 2],
    /// From A to B, and back.
    pub link_up: [bool; 2],
    pub link_ms: u64,
    /// Whether shards promote themselves at once, or never.
    pub promotes: bool,
    pub notes: Vec<(u64, usize, Note)>,
    disks: [LeaseEpoch; 2],
    runs: [u8; 2],
    following: [Option<LeaseEpoch>; 2],
    queue: BTreeMap<(u64, u64), Happening>,
    happened: u64,
    timings: Timings,
}

pub fn node_id(node: usize) -> NodeId {
    NodeId(node as u128 + 0xa)
}

impl Pair {
    pub fn new() -> Self {
        Self {
            at: 0,
            machines: [None, None],
            wall_ahead: [0, 0],
            store: None,
            store_up: [true, true],
            link_up: [true, true],
            link_ms: 0,
            promotes: true,
            notes: Vec::new(),
            disks: [LeaseEpoch::NONE; 2],
            runs: [0; 2],
            following: [None; 2],
            queue: BTreeMap::new(),
            happened: 0,
            timings: Timings::default(),
        }
    }

    /// A leads at epoch 1, B follows and is a member, and both have been well for two minutes.
    pub fn healthy() -> Self {
        let mut pair = Self::new();
        pair.start(A);
        pair.run(100);
        pair.start(B);
        pair.run(120_000);
        assert!(matches!(pair.status(A), Status::Leader { epoch: LeaseEpoch(1) }));
        assert!(pair.document().in_sync.contains(node_id(B)));
        // Stand right behind an acked heartbeat.
        let acked = pair.last(A, &Note::HeartbeatAcked).expect("healthy");
        pair.run(acked + 500 - pair.at);
        assert_eq!(pair.last(A, &Note::HeartbeatAcked), Some(pair.at));
        pair.notes.clear();
        pair
    }

    pub fn start(&mut self, node: usize) {
        self.runs[node] += 1;
        let run = RunId::new((node as u128 + 1) << 96 | u128::from(self.runs[node]) << 64);
        let identity = Identity { node: node_id(node), cluster: CLUSTER, run };
        self.machines[node] = Some(Machine::new(identity, self.timings));
        let promised = self.disks[node];
        self.give(node, Event::Boot { promised });
    }

    pub fn kill(&mut self, node: usize) {
        self.machines[node] = None;
        self.following[node] = None;
    }

    pub fn cut(&mut self) {
        self.link_up = [false, false];
    }

    pub fn mend(&mut self) {
        self.link_up = [true, true];
    }

    pub fn now(&self, node: usize) -> Now {
        let wall = (WALL + self.at).saturating_add_signed(self.wall_ahead[node]);
        Now { mono: MonoMs(self.at + Self::zero(node)), wall: WallMs(wall) }
    }

    fn zero(node: usize) -> u64 {
        [1_000_000_000, 7_000_000][node]
    }

    /// Time of the pair that a node's clock reading stands for.
    pub fn pair_time(&self, node: usize, mono: MonoMs) -> u64 {
        mono.since(MonoMs(Self::zero(node)))
    }

    pub fn machine(&self, node: usize) -> &Machine {
        self.machines[node].as_ref().expect("the node runs")
    }

    pub fn status(&self, node: usize) -> Status {
        self.machine(node).status(self.now(node))
    }

    pub fn grant(&self, node: usize) -> Option<Grant> {
        self.machine(node).grant()
    }

    /// When the node stops serving if nothing else happens.
    pub fn serves_until(&self, node: usize) -> Option<u64> {
        self.grant(node).map(|grant| self.pair_time(node, grant.serve_until))
    }

    pub fn document(&self) -> &Document {
        &self.store.as_ref().expect("there is a lease").document
    }

    /// Times at which a node's note was taken.
    pub fn times(&self, node: usize, note: &Note) -> Vec<u64> {
        let same = self.notes.iter().filter(|(_, of, what)| (*of, what) == (node, note));
        same.map(|(at, _, _)| *at).collect()
    }

    pub fn first(&self, node: usize, note: &Note) -> Option<u64> {
        self.times(node, note).first().copied()
    }

    pub fn last(&self, node: usize, note: &Note) -> Option<u64> {
        self.times(node, note).last().copied()
    }

    pub fn reports(&self, node: usize) -> Vec<&'static str> {
        let of = self.notes.iter().filter(|(_, of, _)| *of == node);
        of.filter_map(|(_, _, note)| match note {
            Note::What(what) => Some(what.name()),
            _ => None,
        })
        .collect()
    }

    /// Calls to the store since the notes were cleared.
    pub fn store_calls(&self) -> usize {
        self.notes.iter().filter(|(_, _, note)| matches!(note, Note::Look | Note::Write)).count()
    }

    pub fn run(&mut self, ms: u64) {
        let end = self.at + ms;
        loop {
            let timer = |node: usize| {
                let at = self.machines[node].as_ref()?.timer()?;
                Some((self.pair_time(node, at).max(self.at), node))
            };
            let timer = [timer(A), timer(B)].into_iter().flatten().min();
            let queued = self.queue.keys().next().copied();
            let tick_first = match (timer, queued) {
                (Some((at, _)), Some((other, _))) => at < other,
                (timer, _) => timer.is_some(),
            };
            match (timer, queued) {
                (Some((at, node)), _) if tick_first && at <= end => {
                    self.at = at;
                    self.give(node, Event::Tick);
                }
                (_, Some(key)) if !tick_first && key.0 <= end => {
                    self.at = key.0;
                    let happening = self.queue.remove(&key).expect("just seen");
                    self.happen(happening);
                }
                _ => break,
            }
        }
        self.at = end;
    }

    fn enqueue(&mut self, after_ms: u64, happening: Happening) {
        self.happened += 1;
        self.queue.insert((self.at + after_ms, self.happened), happening);
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Event(node, run, event) if run == self.runs[node] => self.give(node, event),
            Happening::Event(..) => {}
            Happening::Read(node, run, call) => {
                let result = match &self.store {
                    _ if !self.store_up[node] => ReadResult::Failed,
                    None => ReadResult::Absent,
                    Some(version) => ReadResult::Found(version.clone()),
                };
                self.answer(node, run, Event::LeaseRead { call, result, jitter: 0 });
            }
            Happening::Write(node, run, call, condition, document) => {
                let outcome = if self.store_up[node] {
                    self.write(&condition, document)
                } else {
                    WriteOutcome::Unknown
                };
                self.answer(node, run, Event::LeaseWritten { call, outcome, jitter: 0 });
            }
        }
    }

    fn answer(&mut self, node: usize, run: u8, event: Event) {
        let wait = if self.store_up[node] { STORE_MS / 2 } else { STORE_LIMIT_MS - STORE_MS / 2 };
        self.enqueue(wait, Happening::Event(node, run, event));
    }

    /// The store's compare-and-swap, through the real codec.
    pub fn write(&mut self, condition: &Condition, document: Document) -> WriteOutcome {
        let holds = match (condition, &self.store) {
            (Condition::Absent, None) => true,
            (Condition::Matches(etag), Some(version)) => *etag == version.etag,
            _ => false,
        };
        if !holds {
            return WriteOutcome::Conflict;
        }
        let read = Document::decode(&document.encode(), CLUSTER).expect("own documents are read");
        assert_eq!(read, document);
        let etag = ETag::new(&format!("\"{}\"", document.token));
        self.store = Some(Version { etag: etag.clone(), document });
        WriteOutcome::Stored { etag }
    }

    pub fn note(&mut self, node: usize, note: Note) {
        self.notes.push((self.at, node, note));
    }

    pub fn give(&mut self, node: usize, event: Event) {
        let now = self.now(node);
        if matches!(event, Event::HeartbeatAcked { .. }) {
            self.note(node, Note::HeartbeatAcked);
        }
        let Some(machine) = &mut self.machines[node] else {
            return;
        };
        let mut out = Actions::new();
        machine.step(now, event, &mut out);
        let actions: Vec<Action> = out.drain().collect();
        for action in actions {
            self.act(node, action);
        }
    }

    fn soon(&mut self, node: usize, event: Event) {
        let run = self.runs[node];
        self.enqueue(0, Happening::Event(node, run, event));
    }

    fn send(&mut self, from: usize, event: Event) {
        let to = 1 - from;
        if self.link_up[from] && self.machines[to].is_some() {
            let run = self.runs[to];
            self.enqueue(self.link_ms, Happening::Event(to, run, event));
        }
    }

    fn act(&mut self, node: usize, action: Action) {
        let run = self.runs[node];
        let from = node_id(node);
        match action {
            Action::ReadLease { call } => {
                self.note(node, Note::Look);
                self.enqueue(STORE_MS / 2, Happening::Read(node, run, call));
            }
            Action::WriteLease { call, condition, document, .. } => {
                self.note(node, Note::Write);
                let write = Happening::Write(node, run, call, condition, *document);
                self.enqueue(STORE_MS / 2, write);
            }
            Action::PersistPromise { epoch } => {
                self.disks[node] = epoch;
                self.soon(node, Event::PromisePersisted { epoch });
            }
            Action::SendHeartbeat { epoch, sent, wall } => {
                let heartbeat = Heartbeat { from, cluster: CLUSTER, epoch, sent, wall };
                self.send(node, Event::HeartbeatReceived(heartbeat));
            }
            Action::AckHeartbeat { epoch, sent, .. } => {
                self.send(node, Event::HeartbeatAcked { from, epoch, sent });
            }
            Action::Refuse { epoch, refusal, .. } => self.refuse(node, epoch, refusal),
            Action::Resign { epoch } => self.send(node, Event::ResignReceived { from, epoch }),
            Action::Fence(reason) => {
                self.note(node, Note::Fence);
                if matches!(reason, FenceReason::Deposed(_)) {
                    self.note(node, Note::Over);
                }
            }
            Action::Report(report) => self.note(node, Note::What(report.what)),
            action => self.act_inside(node, action),
        }
    }

    fn refuse(&mut self, node: usize, epoch: LeaseEpoch, refusal: Refusal) {
        let from = node_id(node);
        self.send(node, Event::Refused { from, epoch, refusal });
    }

    fn act_inside(&mut self, node: usize, action: Action) {
        match action {
            Action::StartPromotion { epoch, .. } if self.promotes => {
                self.soon(node, Event::PromotionFinished { epoch });
            }
            Action::MembershipChanged { proposal: Some(_), .. } => {
                let epoch = self.machine(node).reign().expect("a leader");
                self.soon(node, Event::ProposalCovered { epoch });
            }
            Action::Follow { epoch, .. } => {
                self.following[node] = Some(epoch);
                self.soon(node, Event::CaughtUp { epoch });
                let event = Event::FollowerCaughtUp { node: node_id(node), epoch };
                self.send(node, event);
            }
            Action::StopFollowing => {
                self.following[node] = None;
                self.soon(node, Event::FollowingStopped);
            }
            Action::Drain { epoch } => self.soon(node, Event::Drained { epoch }),
            _ => {}
        }
    }
}
