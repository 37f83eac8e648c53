//! Drives the promotion of one shard: gets and puts objects of the chains, looks into the own log,
//! cuts it, gives it blocks.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use duolog_engine::ids::{LeaseEpoch, Lsn};
use duolog_engine::replica::BlockEnd;
use duolog_engine::replica::chain::header::ObjectKind;
use duolog_engine::replica::chain::object::{LsnRange, Object, encode_seal};
use duolog_engine::replica::chain::{ObjectPlace, Seq, shard_prefix};
use duolog_engine::replica::promotion::{
    Action, Ended, Event, GetAnswer, ObjectFacts, Promotion, PromotionStart, PutOutcome,
};
use duolog_engine::shard::Event as ShardEvent;
use duolog_lease::event::PromotionFailure;

use super::object::{self, NotMade};
use super::outlink::ReignLog;
use super::{blocks, rebuild};
use crate::serve::cluster::chronicle::PromotionTimes;
use crate::serve::cluster::message::ToControl;
use crate::serve::cluster::store::{Ask, Lane, Told};
use crate::serve::uring::notify::Notify;
use crate::serve::uring::shard_loop::ShardLoop;

/// How often is looked whether the reign is over, if nothing else happens. Short: clients wait, and
/// the timer also runs what the runtime has left lying (docs/adr/0002-waking-a-shard.md).
const LOOK: Duration = Duration::from_millis(5);
/// Pause after a listing that failed.
const LIST_RETRY: Duration = Duration::from_millis(200);

/// One promotion under way.
#[derive(Debug)]
struct Driver {
    shard: Rc<ShardLoop>,
    epoch: LeaseEpoch,
    events: RefCell<VecDeque<Event>>,
    arrived: Notify,
    /// Objects that the machine may want applied.
    held: RefCell<HashMap<(LeaseEpoch, Seq), Bytes>>,
    /// The Open's bytes: every attempt sends the same.
    open: RefCell<Option<Bytes>>,
    times: Cell<PromotionTimes>,
}

/// Starts the promotion to `epoch`.
pub(super) fn spawn(shard: &Rc<ShardLoop>, epoch: LeaseEpoch) {
    let driver = Rc::new(Driver {
        shard: Rc::clone(shard),
        epoch,
        events: RefCell::default(),
        arrived: Notify::default(),
        held: RefCell::default(),
        open: RefCell::default(),
        times: Cell::default(),
    });
    glommio::spawn_local(async move {
        futures_lite::future::yield_now().await;
        if let Some(ended) = run(&driver).await {
            end(&driver, ended);
        }
    })
    .detach();
}

/// Runs the machine to its end; nothing if the reign ended before.
async fn run(driver: &Rc<Driver>) -> Option<Ended> {
    let shard = &driver.shard;
    rebuild::settle(shard).await;
    let start = {
        let machine = shard.shard.borrow();
        let identity = shard.member().settings.identity;
        PromotionStart {
            cluster: identity.cluster,
            shard: shard.id(),
            node: identity.node,
            epoch: driver.epoch,
            end: machine.durable(),
            committed: machine.committed().lsn,
            stored: shard.member().stored_chain.get(),
        }
    };
    let mut machine = Promotion::new(start);
    let mut actions = Vec::new();
    driver.tell(Event::Begin);
    loop {
        if shard.member().reign.get() != Some(driver.epoch) {
            return None;
        }
        shard.look_at_the_clock();
        let now = shard.now().mono.ms();
        let event = driver.events.borrow_mut().pop_front();
        match event {
            Some(event) => machine.step(now, event, &mut actions),
            None if machine.deadline().is_some_and(|at| at <= now) => {
                machine.step(now, Event::Tick, &mut actions);
            }
            None => driver.wait(machine.deadline().map(|at| at.since(now))).await,
        }
        for action in actions.drain(..) {
            if let Action::Ended(ended) = action {
                return Some(ended);
            }
            let driver = Rc::clone(driver);
            glommio::spawn_local(async move { driver.perform(action).await }).detach();
        }
    }
}

fn end(driver: &Driver, ended: Ended) {
    let (shard, epoch) = (&driver.shard, driver.epoch);
    let member = shard.member();
    let result = match ended {
        Ended::Opened { base, end } => {
            shard.step(ShardEvent::Opened { epoch });
            let log = {
                let machine = shard.shard.borrow();
                let complete = machine.epoch_marks_complete();
                ReignLog { epoch, end, marks: machine.epoch_marks().to_vec(), complete }
            };
            tracing::info!(
                event = "opened",
                shard = shard.id().0,
                epoch = epoch.0,
                lsn = end.lsn.0,
                base = base.lsn.0,
            );
            member.uploads.begin(shard, log);
            member.collector.begin(shard, epoch, base.lsn);
            member.target_changed.ring();
            member.opened_at.set(Some(end.lsn));
            Ok(driver.times.get())
        }
        Ended::Deposed => Err(PromotionFailure::Sealed),
        Ended::Failed(failure) => {
            tracing::error!(event = "cannot_lead", epoch = epoch.0, "{failure}");
            Err(PromotionFailure::Gap)
        }
    };
    shard.tell_control(ToControl::PromotionEnded { shard: shard.id(), epoch, result });
}

impl Driver {
    fn tell(&self, event: Event) {
        self.events.borrow_mut().push_back(event);
        self.arrived.ring();
    }

    async fn wait(&self, ms: Option<u64>) {
        let pause = ms.map_or(LOOK, Duration::from_millis).min(LOOK);
        let late = async { glommio::timer::sleep(pause).await };
        futures_lite::future::or(self.arrived.wait(), late).await;
    }

    async fn ask(&self, ask: Ask) -> Told {
        self.shard.member().calls.ask(Lane::Lease, ask).await
    }

    /// The moment, us.
    fn clock_us(&self) -> u64 {
        self.shard.look_at_the_clock();
        self.shard.now().mono.0
    }

    fn note_time(&self, add: impl FnOnce(&mut PromotionTimes)) {
        let mut times = self.times.get();
        add(&mut times);
        self.times.set(times);
    }

    async fn perform(self: Rc<Self>, action: Action) {
        // The machine's step is over before anything is done.
        futures_lite::future::yield_now().await;
        match action {
            Action::Get { epoch, seq } => {
                let answer = self.get(epoch, seq).await;
                self.tell(Event::Got { epoch, seq, answer });
            }
            Action::PutSeal { epoch, seq } => {
                let mut body = Vec::new();
                let node = self.shard.member().settings.identity.node;
                encode_seal(object::id(&self.shard, epoch, seq), node, self.epoch, &mut body);
                let began = self.clock_us();
                let outcome = self.create(epoch, seq, body.into()).await;
                let took = self.clock_us().saturating_sub(began);
                self.note_time(|times| times.seal_us += took);
                self.tell(Event::Put { epoch, seq, outcome });
            }
            Action::PutOpen { base, end } => {
                let began = self.clock_us();
                self.put_open(base, end).await;
                let took = self.clock_us().saturating_sub(began);
                self.note_time(|times| times.open_us += took);
            }
            Action::FindEnd { ask, lsn } => match blocks::end_at(&self.shard, lsn).await {
                Ok(end) => self.tell(Event::EndFound { ask, end }),
                Err(error) => {
                    tracing::error!(event = "log_not_read", lsn = lsn.0, %error);
                    self.tell(Event::LogUnreadable);
                }
            },
            Action::CutTo { end } => {
                rebuild::settle(&self.shard).await;
                if let Err(error) = rebuild::cut(&self.shard, end.lsn).await {
                    tracing::error!(event = "log_not_cut", lsn = end.lsn.0, error);
                }
                let end = self.shard.shard.borrow().durable();
                self.tell(Event::Cut { end });
            }
            Action::Apply { epoch, seq, after } => {
                self.apply(epoch, seq, after);
                rebuild::settle(&self.shard).await;
                let end = self.shard.shard.borrow().durable();
                self.tell(Event::Applied { end });
            }
            Action::Release { epoch, seq } => {
                self.held.borrow_mut().remove(&(epoch, seq));
            }
            Action::ListEpochs => self.list().await,
            Action::Ended(_) => {}
        }
    }

    async fn get(&self, epoch: LeaseEpoch, seq: Seq) -> GetAnswer {
        let id = object::id(&self.shard, epoch, seq);
        match self.ask(Ask::Get(object::key(&self.shard, epoch, seq))).await {
            Told::Found(body, _) => {
                let mut room = Vec::new();
                let answer = match Object::decode(&body, id, &mut room) {
                    Ok(object) => GetAnswer::Object(ObjectFacts::of(&object)),
                    Err(error) => return GetAnswer::Unusable(error),
                };
                self.held.borrow_mut().insert((epoch, seq), body);
                self.note_time(|times| times.objects += 1);
                answer
            }
            Told::Absent => GetAnswer::Nothing,
            _ => GetAnswer::Unknown,
        }
    }

    async fn create(&self, epoch: LeaseEpoch, seq: Seq, body: Bytes) -> PutOutcome {
        let key = object::key(&self.shard, epoch, seq);
        object::create(&self.shard, Lane::Lease, key, body).await
    }

    async fn put_open(&self, base: BlockEnd, end: BlockEnd) {
        let (epoch, seq) = (self.epoch, Seq::OPEN);
        let known = self.open.borrow().clone();
        let body = match known {
            Some(body) => body,
            None => match self.make_open(base, end).await {
                Ok(body) => body,
                Err(event) => return self.tell(event),
            },
        };
        self.open.replace(Some(body.clone()));
        let outcome = self.create(epoch, seq, body).await;
        self.tell(Event::Put { epoch, seq, outcome });
    }

    async fn make_open(&self, base: BlockEnd, end: BlockEnd) -> Result<Bytes, Event> {
        let id = object::id(&self.shard, self.epoch, Seq::OPEN);
        let range = LsnRange { first: base.lsn.next(), last: end.lsn };
        let made = object::make(&self.shard, id, ObjectKind::Open, Some(base), range).await;
        made.map_err(|error| {
            tracing::error!(event = "open_not_made", %error);
            match error {
                NotMade::Unreadable { .. } => Event::LogUnreadable,
                NotMade::Refused(_) => Event::OpenTooLarge,
            }
        })
    }

    fn apply(&self, epoch: LeaseEpoch, seq: Seq, after: Lsn) {
        let Some(body) = self.held.borrow().get(&(epoch, seq)).cloned() else { return };
        let mut room = Vec::new();
        let id = object::id(&self.shard, epoch, seq);
        let Ok(object) = Object::decode(&body, id, &mut room) else { return };
        let own = self.epoch;
        self.shard.step_many(|shard, actions| {
            for (header, block) in object.blocks().filter(|(header, _)| header.first_lsn > after) {
                tracing::debug!(event = "applied", lsn = header.last_lsn().0);
                shard.step_into(ShardEvent::Received { epoch: own, block }, actions);
            }
            shard.step_into(ShardEvent::Flush, actions);
        });
    }

    async fn list(&self) {
        let keys = &self.shard.member().settings.keys;
        let folder = keys.under("");
        loop {
            let prefix = keys.under(&shard_prefix(self.shard.id()));
            match self.ask(Ask::List(prefix, None)).await {
                Told::Listed(listed) => {
                    let places = listed.iter().filter_map(|(key, _)| key.strip_prefix(&folder));
                    let places = places.filter_map(ObjectPlace::parse);
                    let opens = places.filter(|place| place.seq == Seq::OPEN);
                    let mut epochs: Vec<LeaseEpoch> = opens.map(|place| place.epoch).collect();
                    epochs.sort_unstable();
                    return self.tell(Event::Epochs(epochs));
                }
                _ if self.shard.member().reign.get() != Some(self.epoch) => return,
                _ => glommio::timer::sleep(LIST_RETRY).await,
            }
        }
    }
}
