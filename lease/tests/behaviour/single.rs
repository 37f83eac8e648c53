//! One machine, stepped by hand. It is node A.

use duolog_lease::action::{Action, Actions};
use duolog_lease::document::Document;
use duolog_lease::event::{
    Condition, Event, Heartbeat, Hello, ReadResult, Refusal, Version, WriteOutcome,
};
use duolog_lease::ids::{CallId, ETag, LeaseEpoch, MonoMs, Now, RunId, Token, WallMs};
use duolog_lease::in_sync::InSync;
use duolog_lease::machine::{Identity, Machine};
use duolog_lease::report::What;
use duolog_lease::status::Status;
use duolog_lease::timings::Timings;

use crate::pair::{A, B, CLUSTER, node_id};

const MONO: u64 = 50_000_000;
const WALL: u64 = 1_800_000_000_000;

pub struct Single {
    pub machine: Machine,
    pub at: u64,
    pub call: Option<CallId>,
    pub call_writes: bool,
    pub writes: Vec<(Condition, Document)>,
    pub refusals: Vec<Refusal>,
    pub reports: Vec<What>,
}

impl Single {
    pub fn booting(promised: u64) -> Self {
        let run = RunId::new(7 << 64);
        let identity = Identity { node: node_id(A), cluster: CLUSTER, run };
        let mut single = Self {
            machine: Machine::new(identity, Timings::default()),
            at: 0,
            call: None,
            call_writes: false,
            writes: Vec::new(),
            refusals: Vec::new(),
            reports: Vec::new(),
        };
        single.step(Event::Boot { promised: LeaseEpoch(promised) });
        single
    }

    /// Leads the pair at epoch 5; its write was stored at once, promotion took no time.
    pub fn leading() -> Self {
        let mut single = Self::challenging();
        single.written(WriteOutcome::Stored { etag: ETag::new("\"5\"") });
        single.step(Event::PromisePersisted { epoch: LeaseEpoch(5) });
        single.step(Event::PromotionFinished { epoch: LeaseEpoch(5) });
        assert_eq!(single.status(), Status::Leader { epoch: LeaseEpoch(5) });
        single
    }

    /// Has found its own lease of epoch 4 and sent a challenge for 5.
    pub fn challenging() -> Self {
        let mut single = Self::booting(4);
        let version = single.version(A, 4, 0);
        single.read(ReadResult::Found(version));
        assert_eq!(single.writes.len(), 1);
        single
    }

    /// A lease of the pair, that ends `expires_ms` from now; its tag is the epoch.
    pub fn version(&self, leader: usize, epoch: u64, expires_ms: i64) -> Version {
        let expires = (WALL + self.at).saturating_add_signed(expires_ms);
        let document = Document {
            cluster: CLUSTER,
            leader: node_id(leader),
            epoch: LeaseEpoch(epoch),
            in_sync: InSync::pair(node_id(A), node_id(B)),
            acquired: WallMs(expires - 30_000),
            expires: WallMs(expires),
            token: Token(u128::from(epoch) << 100),
            recent: Default::default(),
            unknown: Default::default(),
        };
        Version { etag: ETag::new(&format!("\"{epoch}\"")), document }
    }

    pub fn now(&self) -> Now {
        Now { mono: MonoMs(MONO + self.at), wall: WallMs(WALL + self.at) }
    }

    pub fn status(&self) -> Status {
        self.machine.status(self.now())
    }

    pub fn run(&mut self, ms: u64) {
        self.at += ms;
    }

    /// Goes to the time of the timer.
    pub fn wake(&mut self) -> Vec<Action> {
        let timer = self.machine.timer().expect("it has something to do");
        self.at = self.at.max(timer.since(MonoMs(MONO)));
        self.step(Event::Tick)
    }

    pub fn step(&mut self, event: Event) -> Vec<Action> {
        let mut out = Actions::new();
        self.machine.step(self.now(), event, &mut out);
        let actions: Vec<Action> = out.drain().collect();
        for action in &actions {
            match action {
                Action::ReadLease { call } => {
                    (self.call, self.call_writes) = (Some(*call), false);
                }
                Action::WriteLease { call, condition, document, write } => {
                    assert_eq!(*write, document.token);
                    (self.call, self.call_writes) = (Some(*call), true);
                    self.writes.push((condition.clone(), Document::clone(document)));
                }
                Action::Refuse { refusal, .. } => self.refusals.push(*refusal),
                Action::Report(report) => self.reports.push(report.what.clone()),
                _ => {}
            }
        }
        actions
    }

    /// Answers the read under way.
    pub fn read(&mut self, result: ReadResult) -> Vec<Action> {
        let call = self.call.take().expect("a read is under way");
        self.step(Event::LeaseRead { call, result, jitter: 0 })
    }

    /// Answers the write under way.
    pub fn written(&mut self, outcome: WriteOutcome) -> Vec<Action> {
        let call = self.call.take().expect("a write is under way");
        self.step(Event::LeaseWritten { call, outcome, jitter: 0 })
    }

    /// The version that the last write would make.
    pub fn written_version(&self) -> Version {
        let (_, document) = self.writes.last().expect("it wrote");
        Version { etag: ETag::new("\"new\""), document: document.clone() }
    }

    pub fn heartbeat(&mut self, from: usize, epoch: u64) -> Vec<Action> {
        self.step(Event::HeartbeatReceived(Heartbeat {
            from: node_id(from),
            cluster: CLUSTER,
            epoch: LeaseEpoch(epoch),
            sent: MonoMs(3),
            wall: WallMs(WALL + self.at),
        }))
    }

    pub fn hello(&mut self, from: usize, epoch: u64) -> Vec<Action> {
        let (from, epoch) = (node_id(from), LeaseEpoch(epoch));
        self.step(Event::HelloReceived(Hello { from, cluster: CLUSTER, epoch }))
    }

    /// Acks the newest heartbeat.
    pub fn ack(&mut self, sent: MonoMs) -> Vec<Action> {
        let epoch = self.machine.reign().expect("it leads");
        self.step(Event::HeartbeatAcked { from: node_id(B), epoch, sent })
    }

    pub fn reported(&self, name: &str) -> usize {
        self.reports.iter().filter(|what| what.name() == name).count()
    }
}
