//! One seed's world: clients, a shard's real machine, a disk, index files and a clock that is a
//! number. Everything that the machine asks for is answered after a random delay; the node is
//! stopped at random moments and started again through the real recovery.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use duolog_engine::append::AppendView;
use duolog_engine::ids::{Generation, Lsn, MonoUs, Now, Place, StreamId, WallMs};
use duolog_engine::limits::EVENT_MAX_BYTES_DEFAULT;
use duolog_engine::segment::LogEnd;
use duolog_engine::shard::{Actions, Event, LoadFailed, RequestId, Sealed, Shard, StoredHead};

use super::chance::Chance;
use super::digest::Digest;
use super::disk::{Crash, SimDisk, WriteId};
use super::index::SimIndex;
use super::ledger::Ledger;
use super::plan::{Mistake, Plan, WallClock};
use super::work::{Streams, Work};

/// The machine hears of time this often, microseconds.
const TICK_US: u64 = 100_000;
/// Ticks without anything else, after which a life has come to rest.
const REST_TICKS: u32 = 6;
/// Steps of one life, at most: more means that machine and driver turn in circles.
const STEPS_MAX: u64 = 60_000;
/// The wall clock at the beginning, milliseconds since 1970.
const WALL_START_MS: u64 = 1_790_000_000_000;

/// Something that happens at its time.
#[derive(Debug)]
pub(super) enum Due {
    /// Clients submit appends.
    Arrive,
    /// The machine is told that everything that came was handed in.
    Flush,
    /// A write is durable.
    Durable(WriteId, Lsn),
    /// The machine hears of it.
    Written(Lsn),
    /// A write fails.
    WriteFails,
    /// A segment's file is made, or there is no space.
    Prepare(Generation),
    /// A cold stream's head comes.
    Head(StreamId, Result<Option<StoredHead>, LoadFailed>),
    /// A record is read.
    Record(RequestId, Place),
    /// The oldest index that waits is on disk.
    IndexAdded,
    /// The machine hears of it.
    IndexSaved(Generation),
    /// Index files are merged.
    Merge,
    /// A mark is on disk.
    Marked(LogEnd),
    /// Space is back.
    SpaceReturns,
    /// Some time has passed.
    Tick,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Everything that the machines asked for, in one number.
    pub digest: u64,
    /// Steps of machines.
    pub steps: u64,
    /// Submissions of clients.
    pub submissions: u64,
    /// Events in the log at the end.
    pub events: u64,
    /// Records read back and compared.
    pub reads: u64,
    /// Stops of the node that were not clean.
    pub crashes: u64,
    /// Blocks that crashes cut off.
    pub cut: u64,
    /// Flipped bits that recovery had proof of, and reported.
    pub damage_found: u64,
    /// Flipped bits without proof.
    pub damage_unproven: u64,
    /// Segments used.
    pub segments: u64,
    /// Heads that had to be loaded.
    pub cold_heads: u64,
    /// Replays, from memory and from the log.
    pub replays: u64,
    /// Refusals.
    pub refusals: u64,
}

impl Report {
    /// Adds another run's numbers; the digest means nothing afterwards.
    pub fn add(&mut self, other: &Self) {
        self.digest = 0;
        self.steps += other.steps;
        self.submissions += other.submissions;
        self.events += other.events;
        self.reads += other.reads;
        self.crashes += other.crashes;
        self.cut += other.cut;
        self.damage_found += other.damage_found;
        self.damage_unproven += other.damage_unproven;
        self.segments += other.segments;
        self.cold_heads += other.cold_heads;
        self.replays += other.replays;
        self.refusals += other.refusals;
    }
}

/// See the module.
#[derive(Debug)]
pub struct World {
    pub(super) plan: Plan,
    pub(super) chance: Chance,
    pub(super) now_us: u64,
    queue: BTreeMap<(u64, u64), Due>,
    queued: u64,
    pub(super) disk: SimDisk,
    pub(super) index: SimIndex,
    /// The newest mark that was asked for and had its time.
    pub(super) mark: Option<LogEnd>,
    pub(super) streams: Streams,
    pub(super) work: Work,
    pub(super) ledger: Ledger,
    pub(super) shard: Shard,
    pub(super) actions: Actions,
    pub(super) life: u32,
    life_steps: u64,
    crash_at: u64,
    arrivals_left: u64,
    rested: u32,
    flush_due: bool,
    /// Submissions without an answer in this life.
    pub(super) unanswered: BTreeSet<usize>,
    /// Submissions with a key that the life before left without an answer: their clients ask again.
    pub(super) again: VecDeque<usize>,
    /// Latest submission, by stream, that was appended in this life.
    pub(super) latest: Vec<usize>,
    pub(super) saves: VecDeque<Arc<Sealed>>,
    /// There is no space at the moment.
    pub(super) full: bool,
    /// Streams whose head could not be loaded, and requests whose record could not.
    pub(super) failed_heads: BTreeSet<usize>,
    pub(super) failed_records: BTreeSet<usize>,
    /// A write has failed or a drain has begun.
    pub(super) stopping: bool,
    pub(super) drained: bool,
    pub(super) poisoned: bool,
    pub(super) digest: Digest,
    pub(super) report: Report,
}

impl World {
    /// A world before its first start.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let streams = Streams::of(&plan);
        let work = Work::new(&plan);
        let ledger = Ledger::new(&plan, &streams);
        let mut disk = SimDisk::new(Chance::new(plan.seed, "disk"), plan.tear_bytes);
        disk.unsettled = plan.mistake == Mistake::Unsettled;
        let config = &plan.config;
        let mut index = SimIndex::new(config.cluster, config.shard, config.idempotency_window);
        let shard = super::restart::first_start(&plan, &mut disk, &mut index);
        Self {
            chance: Chance::new(plan.seed, "world"),
            now_us: 0,
            queue: BTreeMap::new(),
            queued: 0,
            disk,
            index,
            mark: None,
            latest: vec![0; streams.names.len()],
            streams,
            work,
            ledger,
            shard,
            actions: Actions::default(),
            life: 0,
            life_steps: 0,
            crash_at: 0,
            arrivals_left: 0,
            rested: 0,
            flush_due: false,
            unanswered: BTreeSet::new(),
            again: VecDeque::new(),
            saves: VecDeque::new(),
            full: false,
            failed_heads: BTreeSet::new(),
            failed_records: BTreeSet::new(),
            stopping: false,
            drained: false,
            poisoned: false,
            digest: Digest::new(plan.seed),
            report: Report::default(),
            plan,
        }
    }

    /// Lives all lives; what happened. Panics where a promise is broken.
    #[must_use]
    pub fn run(mut self) -> Report {
        self.live_all();
        self.report
    }

    /// Lives all lives. Panics where a promise is broken.
    pub fn live_all(&mut self) {
        for life in 0..self.plan.lives {
            let last = life + 1 == self.plan.lives;
            self.begin_life(last);
            let stopped = self.live();
            let clean = !stopped && !self.poisoned && (last || self.clean_stop_wanted());
            if clean {
                self.stop_cleanly();
            }
            if !last || clean {
                self.restart(clean);
            }
        }
        self.report.digest = self.digest.value();
        self.report.events = self.ledger.rows.len() as u64;
        self.report.submissions = self.work.submissions.len() as u64;
    }

    /// The log as it must be.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// A submission's request.
    #[must_use]
    pub fn request(&self, submission: usize) -> Vec<u8> {
        self.work.encode(submission, &self.streams)
    }

    fn clean_stop_wanted(&mut self) -> bool {
        self.chance.percent(self.plan.faults.clean_stop)
    }

    fn begin_life(&mut self, last: bool) {
        self.life += 1;
        self.life_steps = 0;
        self.arrivals_left = self.plan.submissions;
        self.rested = 0;
        self.flush_due = false;
        self.stopping = false;
        self.drained = false;
        self.poisoned = false;
        self.full = false;
        self.failed_heads.clear();
        self.failed_records.clear();
        self.latest.fill(0);
        // The last life comes to rest: faults have stopped, everything is answered.
        // Short lives crash before they have written over what the life before left behind.
        let short = self.chance.percent(40);
        let steps = if short { 40 } else { self.plan.submissions * 4 };
        let stops = !last && self.chance.percent(85);
        self.crash_at = if stops { self.chance.between(1, steps) } else { u64::MAX };
        if last {
            self.plan.faults.write_failure_per_1000 = 0;
        }
        self.after(TICK_US, Due::Tick);
        self.after(1, Due::Arrive);
        // The first step asks for segments.
        self.step(Event::Tick);
    }

    /// Lives until the machine has come to rest (false) or the node is to be stopped (true).
    fn live(&mut self) -> bool {
        while let Some(((at, _), due)) = self.queue.pop_first() {
            self.now_us = at;
            self.rested = if matches!(due, Due::Tick) { self.rested + 1 } else { 0 };
            self.happen(due);
            if self.poisoned || self.life_steps >= self.crash_at {
                return true;
            }
            assert!(self.life_steps < STEPS_MAX, "A5: machine and driver turn in circles");
            if self.rested >= REST_TICKS {
                let left = &self.unanswered;
                assert!(left.is_empty(), "A5: {left:?} are never answered");
                return false;
            }
        }
        unreachable!("ticks go on for ever")
    }

    fn stop_cleanly(&mut self) {
        self.stopping = true;
        self.step(Event::Drain);
        while !self.drained {
            let ((at, _), due) = self.queue.pop_first().expect("ticks go on for ever");
            self.now_us = at;
            self.rested = if matches!(due, Due::Tick) { self.rested + 1 } else { 0 };
            assert!(self.rested < REST_TICKS, "A5: a drain ends");
            self.happen(due);
        }
        let left = &self.unanswered;
        assert!(left.is_empty(), "A5: a drain answers everything, not {left:?}");
        // The driver waits for its background work before it ends the process.
        let marks = self.queue.values().filter_map(|due| match due {
            Due::Marked(end) => Some(*end),
            _ => None,
        });
        let newest = marks.max_by_key(|end| end.lsn).filter(|end| !self.is_marked(end));
        self.mark = newest.or(self.mark);
    }

    pub(super) fn is_marked(&self, end: &LogEnd) -> bool {
        self.mark.is_some_and(|mark| mark.lsn >= end.lsn)
    }

    /// Forgets what was under way.
    pub(super) fn clear_queue(&mut self) {
        for (_, due) in std::mem::take(&mut self.queue) {
            // A mark being written may have made it.
            if let Due::Marked(end) = due
                && self.chance.percent(50)
                && !self.is_marked(&end)
            {
                self.mark = Some(end);
            }
        }
    }

    pub(super) fn after(&mut self, delay_us: u64, due: Due) {
        self.queued += 1;
        self.queue.insert((self.now_us + delay_us.max(1), self.queued), due);
    }

    /// Lets something happen within `max_us`, rarely much later.
    pub(super) fn soon(&mut self, max_us: u64, due: Due) {
        let factor = if self.chance.percent(3) { 40 } else { 1 };
        let delay_us = self.chance.between(1, max_us) * factor;
        self.after(delay_us, due);
    }

    fn now(&mut self) -> Now {
        let running = WALL_START_MS + self.now_us / 1000;
        let wall = match self.plan.wall {
            WallClock::Steady => running,
            WallClock::Frozen => WALL_START_MS,
            WallClock::Jumping => running + self.chance.below(7_200_000),
        };
        Now { mono: MonoUs(self.now_us), wall: WallMs(wall) }
    }

    /// Hands one event to the machine and does what it asks for.
    pub(super) fn step(&mut self, event: Event<'_>) {
        let now = self.now();
        let mut actions = std::mem::take(&mut self.actions);
        self.shard.step(now, event, &mut actions);
        self.settle(actions);
    }

    fn settle(&mut self, mut actions: Actions) {
        self.life_steps += 1;
        self.report.steps += 1;
        self.shard.check();
        self.perform(&actions);
        actions.clear();
        self.actions = actions;
        if !self.poisoned {
            assert_eq!(self.shard.in_flight(), self.unanswered.len(), "A5: the account is right");
        }
        if self.shard.wants_flush() && !self.flush_due {
            self.flush_due = true;
            let delay_us = self.chance.pick(&[1, 1, 20, 200]);
            self.after(delay_us, Due::Flush);
        }
        if self.chance.percent(8) {
            self.look();
        }
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Arrive => self.arrive(),
            Due::Flush => {
                self.flush_due = false;
                self.step(Event::Flush);
            }
            Due::Durable(write, first_lsn) => self.durable(write, first_lsn),
            Due::Written(first_lsn) => self.step(Event::BlockWritten { first_lsn }),
            Due::WriteFails => self.fail_write(),
            Due::Prepare(generation) => self.prepare(generation),
            Due::Head(stream, head) => self.step(Event::HeadLoaded { stream, head }),
            Due::Record(to, place) => self.load_record(to, place),
            Due::IndexAdded => self.add_index(),
            Due::IndexSaved(generation) => self.index_saved(generation),
            Due::Merge => self.merge(),
            Due::Marked(end) => {
                if !self.is_marked(&end) {
                    self.mark = Some(end);
                }
            }
            Due::SpaceReturns => self.full = false,
            Due::Tick => {
                self.after(TICK_US, Due::Tick);
                self.step(Event::Tick);
            }
        }
    }

    /// A burst of submissions, handed in together as a driver does with what it has received.
    fn arrive(&mut self) {
        let burst = self.chance.between(1, self.plan.burst_max).min(self.arrivals_left);
        self.arrivals_left -= burst;
        let together = self.chance.percent(50);
        let mut actions = std::mem::take(&mut self.actions);
        for _ in 0..burst {
            let submission = match self.again.pop_front() {
                Some(earlier) => self.work.submit_again(earlier, self.life, &self.ledger),
                None => self.work.submit(self.life, &self.streams, &self.ledger),
            };
            self.unanswered.insert(submission);
            let bytes = self.work.encode(submission, &self.streams);
            let view = AppendView::parse(&bytes, EVENT_MAX_BYTES_DEFAULT);
            let view = view.expect("clients send requests in the right form");
            let now = self.now();
            let to = RequestId(submission as u64);
            self.shard.step(now, Event::Append { to, view }, &mut actions);
            if !together {
                self.settle(actions);
                actions = std::mem::take(&mut self.actions);
                if self.life_steps >= self.crash_at {
                    self.actions = actions;
                    return;
                }
            }
        }
        self.settle(actions);
        if self.arrivals_left > 0 {
            let long = if self.chance.percent(2) { 500_000 } else { self.plan.pause_max_us };
            let delay_us = self.chance.between(1, long);
            self.after(delay_us, Due::Arrive);
        }
    }

    /// The node stops; what was under way ends somehow.
    pub(super) fn stop(&mut self, crash: Crash) {
        self.clear_queue();
        self.disk.crash(crash);
        self.saves.clear();
        self.actions.clear();
        self.report.crashes += 1;
    }
}
