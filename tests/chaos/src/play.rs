//! Does what a scenario says, step by step.

use std::net::SocketAddr;
use std::time::Duration;

use duolog_engine::ids::ShardId;
use duolog_net::wire::Copies;
use duolog_s3dev::{Answer as StoreAnswer, Fault, Rule};
use duolog_tests::pair::{Pair, Role};
use duolog_tests::process::{Crowd, Ledger, LoopDisk, Stopwatch, Wire, pause};
use duolog_tests::sim::chance::Chance;
use serde_json::json;

use crate::clock::Clocks;
use crate::contenders::contend;
use crate::ground::{Lab, Place};
use crate::journal::Journal;
use crate::medley::begin_one;
use crate::scenario::{DiskFate, End, Manner, Step, Who};

/// What the store answers in a storm.
const SLOW_DOWN: (u16, &str) = (503, "SlowDown");
/// How the process ends when a write to its disk fails.
const WRITE_FAILED: i32 = 17;
/// How long a client of [`Step::Connect`] waits for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pause between two tries of an order.
const RETRY: Duration = Duration::from_millis(300);
/// After a fault, what was under way may still be acknowledged so long.
const GRACE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub struct Play {
    /// The nodes and the store.
    pub pair: Pair,
    /// What is acknowledged, beside what the crowd knows.
    pub ledger: Ledger,
    /// Chance, from the run's seed.
    pub chance: Chance,
    lab: Lab,
    crowd: Option<Crowd>,
    clocks: Option<Clocks>,
    disks: Vec<LoopDisk>,
    journal: Journal,
    /// Who led and who followed when the pair was whole last.
    parts: [usize; 2],
    crowds: u32,
    contests: u64,
    /// Clients that are only there.
    guests: Vec<Wire>,
}

/// What a play is made of.
#[derive(Debug)]
pub struct Props {
    /// The network.
    pub lab: Lab,
    /// Clocks that can be set, if the scenario needs them.
    pub clocks: Option<Clocks>,
    /// Disks of their own, if it needs them.
    pub disks: Vec<LoopDisk>,
    /// Where everything is written down.
    pub journal: Journal,
    /// Decides whatever chance decides.
    pub seed: u64,
}

impl Play {
    /// A pair that is whole, and clients at work.
    #[must_use]
    pub fn begin(pair: Pair, props: Props) -> Self {
        let Props { lab, clocks, disks, journal, seed } = props;
        let mut play = Self {
            pair,
            ledger: Ledger::default(),
            chance: Chance::new(seed, "play"),
            lab,
            crowd: None,
            clocks,
            disks,
            journal,
            parts: [0, 1],
            crowds: 0,
            contests: 0,
            guests: Vec::new(),
        };
        play.gather();
        play
    }

    /// The addresses of the two members.
    #[must_use]
    pub fn addresses(&self) -> [SocketAddr; 2] {
        self.pair.members.map(|number| self.pair.options[number].address)
    }

    /// Sets clients to work.
    fn gather(&mut self) {
        let mut plan = self.pair.plan();
        plan.first = self.crowds * plan.writers;
        plan.seed = self.chance.draw();
        self.crowds += 1;
        self.crowd = Some(Crowd::start(plan));
    }

    /// Lets the clients finish: the ledger has everything that any of them was told.
    pub fn dismiss(&mut self) {
        if let Some(crowd) = self.crowd.take() {
            self.ledger.join(crowd.finish());
        }
    }

    fn crowd(&self) -> &Crowd {
        self.crowd.as_ref().expect("clients are at work during every step")
    }

    /// Who is meant.
    pub fn who(&mut self, who: Who) -> usize {
        match who {
            Who::Leader => self.parts[0],
            Who::Follower => self.parts[1],
            Who::Either => self.parts[self.chance.index(2)],
        }
    }

    fn place(&mut self, end: End) -> Place {
        match end {
            End::Store => Place::Store,
            End::Node(who) => Place::Node(self.who(who)),
        }
    }

    /// Does the steps, one after the other.
    pub fn act(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(*step);
        }
    }

    /// Does one step; returns when it is done or has come.
    ///
    /// # Panics
    /// When what it waits for does not come.
    pub fn step(&mut self, step: Step) {
        if !matches!(step, Step::Times(..) | Step::Medley(_) | Step::MedleyWith(..)) {
            self.journal.note("step", json!({ "text": format!("{step:?}") }));
        }
        self.look_for_the_dead();
        if self.wait_for(step) {
            return;
        }
        match step {
            Step::Kill(who) => self.end(who, Pair::kill),
            Step::Stop(who) => self.end(who, |pair, node| {
                // One that is stopped in its tracks would not hear of it.
                pair.freeze(node, false);
                drop(pair.stop(node));
            }),
            Step::Start(who) => self.start(who, Pair::start),
            Step::Launch(who) => self.start(who, Pair::launch),
            Step::Freeze(who) => self.freeze(who, true),
            Step::Thaw(who) => self.freeze(who, false),
            Step::Cut(from, to) => {
                let (from, to) = (self.place(from), self.place(to));
                self.lab.block(from, to, true);
            }
            Step::Part(one, other) => self.block_both(one, other, true),
            Step::Join(one, other) => self.block_both(one, other, false),
            Step::Store(manner) => self.store(manner),
            Step::Clock(who, ahead_ms) => {
                let node = self.who(who);
                self.clocks.as_ref().expect("the scenario needs clocks").set(node, ahead_ms);
            }
            Step::Disk(who, fate) => self.disk(who, fate),
            Step::HandOver => self.hand_over(),
            Step::Replace(who) => self.replace(who),
            Step::Mend => self.mend(),
            Step::Within(limit_ms, steps) => {
                let watch = Stopwatch::start();
                self.act(steps);
                let took = watch.elapsed();
                assert!(took < Duration::from_millis(limit_ms), "{took:?} for {steps:?}");
            }
            Step::Times(count, steps) => (0..count).for_each(|_| self.act(steps)),
            Step::Replay => self.replay(),
            Step::Connect(count) => self.connect(count),
            Step::Contend(count, goal) => {
                self.contests += 1;
                let told = contend(self.addresses(), self.contests, count, goal);
                self.ledger.join(told);
            }
            Step::Medley(rounds) => (0..rounds).for_each(|_| self.medley(&[])),
            Step::MedleyWith(more, rounds) => (0..rounds).for_each(|_| self.medley(more)),
            Step::Acked(_)
            | Step::AckedBy(..)
            | Step::Wait(..)
            | Step::NoAcks(_)
            | Step::Stalls(_)
            | Step::Logged(..)
            | Step::Leads(_)
            | Step::Deposed(_)
            | Step::Whole => unreachable!("it was waited for"),
        }
    }

    /// Waits for what the step waits for; false if it is one that does something.
    fn wait_for(&mut self, step: Step) -> bool {
        match step {
            Step::Acked(more) => self.pair.until_acked(self.crowd(), more),
            Step::AckedBy(copies, more) => {
                self.pair.until_acked_by(self.crowd(), copies, more);
            }
            Step::Wait(least, most) => {
                pause(Duration::from_millis(self.chance.between(least, most)));
            }
            Step::NoAcks(ms) => self.no_acks(Duration::from_millis(ms)),
            Step::Stalls(ms) => self.until_stalled(Duration::from_millis(ms)),
            Step::Logged(who, event) => {
                let node = self.who(who);
                let before = self.pair.logged(node, event);
                self.pair.until(&format!("node {node} logs {event}"), |pair| {
                    (pair.logged(node, event) > before).then_some(())
                });
            }
            Step::Leads(who) => {
                let node = self.who(who);
                let _ = self.pair.until_leads(node);
            }
            Step::Deposed(who) => {
                let node = self.who(who);
                self.pair.until("it leads no more", |pair| {
                    pair.status(node).filter(|status| status.role() != Role::Leader).map(drop)
                });
            }
            Step::Whole => self.whole(),
            _ => return false,
        }
        true
    }

    /// A node that ends by itself is a failure, whatever the scenario.
    fn look_for_the_dead(&mut self) {
        for node in self.pair.members {
            if self.pair.has_ended(node) {
                let ended = self.pair.bury(node);
                panic!("node {node} ended by itself: {ended:?}");
            }
        }
    }

    /// Tells the journal who was meant.
    fn tell(&self, node: usize, what: &str) {
        self.journal.note("did", json!({ "text": format!("node {node} {what}") }));
    }

    fn no_acks(&self, time: Duration) {
        pause(GRACE);
        let before = self.crowd().acked();
        pause(time);
        let more = self.crowd().acked() - before;
        assert_eq!(more, 0, "appends are acknowledged, with no second copy anywhere");
    }

    fn until_stalled(&self, time: Duration) {
        self.pair.until(&format!("nothing is acknowledged for {time:?}"), |_| {
            let before = self.crowd().acked();
            pause(time);
            (self.crowd().acked() == before).then_some(())
        });
    }

    fn end(&mut self, who: Who, how: impl FnOnce(&mut Pair, usize)) {
        let node = self.who(who);
        if self.pair.runs(node) {
            how(&mut self.pair, node);
            self.tell(node, "has been ended");
        }
    }

    /// Starts a node that does not run; with [`Who::Either`] whichever does not.
    fn start(&mut self, who: Who, how: impl Fn(&mut Pair, usize)) {
        let nodes = if who == Who::Either { self.parts.to_vec() } else { vec![self.who(who)] };
        for node in nodes {
            if !self.pair.runs(node) {
                how(&mut self.pair, node);
                self.tell(node, "is started");
            }
        }
    }

    fn freeze(&mut self, who: Who, frozen: bool) {
        let node = self.who(who);
        if self.pair.runs(node) {
            self.pair.freeze(node, frozen);
            self.tell(node, if frozen { "is stopped in its tracks" } else { "goes on" });
        }
    }

    fn block_both(&mut self, one: End, other: End, blocked: bool) {
        let (one, other) = (self.place(one), self.place(other));
        self.lab.block(one, other, blocked);
        self.lab.block(other, one, blocked);
    }

    fn store(&self, manner: Manner) {
        let faults = self.pair.s3.faults();
        faults.clear();
        match manner {
            Manner::Away => faults.outage(true),
            Manner::Slow(ms) => {
                faults.order(Rule::always(Fault::Delay(Duration::from_millis(ms))));
            }
            Manner::Storm => {
                let answer = StoreAnswer::error(SLOW_DOWN.0, SLOW_DOWN.1);
                faults.order(Rule::always(Fault::Answer(answer)));
            }
            Manner::Mute(times) => faults.order(Rule::once("PUT", Fault::DropReply).times(times)),
            Manner::Well => {}
        }
    }

    fn disk(&mut self, who: Who, fate: DiskFate) {
        let node = self.who(who);
        if fate == DiskFate::PowerCut && self.pair.runs(node) {
            self.pair.kill(node);
        }
        self.tell(node, &format!("has a disk: {fate:?}"));
        let disk = &mut self.disks[node];
        match fate {
            DiskFate::Full => disk.fill(),
            DiskFate::Free => disk.free(),
            DiskFate::Fails => {
                disk.fail_writes().expect("the file system takes orders");
                let ended = self.pair.bury(node);
                assert_eq!(ended.code, Some(WRITE_FAILED), "a failed write: {ended:?}");
                disk.repair().expect("the disk can be mended");
            }
            DiskFate::PowerCut => disk.cut_power().expect("the disk can be mounted again"),
        }
    }

    fn hand_over(&mut self) {
        let leader = self.parts[0];
        self.pair.hand_over(leader);
        let _ = self.pair.until_leads(self.parts[1]);
    }

    fn replace(&mut self, who: Who) {
        let node = self.who(who);
        let leader = self.pair.other(node);
        let dead = self.pair.status(node).expect("it answers").node();
        self.pair.kill(node);
        self.tell(node, "is lost");
        let _ = self.pair.until_leads(leader);
        let newcomer = self.pair.add();
        self.pair.members = self.pair.members.map(|old| if old == node { newcomer } else { old });
        self.parts = self.parts.map(|old| if old == node { newcomer } else { old });
        // Clients learn the address with the next crowd.
        self.dismiss();
        self.gather();
        self.pair.start(newcomer);
        let replace = json!({ "command": "replace", "dead": dead });
        let id = self.pair.status(newcomer).expect("it answers").node();
        self.pair.until("the newcomer is taken", |pair| {
            // Refused while the dead one's heartbeats are still believed in.
            let taken = pair.order(leader, &replace).is_ok()
                || pair.status(leader).is_some_and(|status| status.members().contains(&id));
            pause(RETRY);
            taken.then_some(())
        });
    }

    fn whole(&mut self) {
        let _ = self.pair.healed_under_load();
        self.pair.until_acked_by(self.crowd(), Copies::ThisDiskAndPeer, 1);
        let leader = self.pair.healed_under_load();
        self.parts = [leader, self.pair.other(leader)];
    }

    /// See [`Step::Mend`].
    fn mend(&mut self) {
        let members = self.pair.members;
        let places = [Place::Node(members[0]), Place::Node(members[1]), Place::Store];
        for from in places {
            for to in places {
                if from != to {
                    self.lab.block(from, to, false);
                }
            }
        }
        self.store(Manner::Well);
        for node in members {
            if let Some(clocks) = &self.clocks {
                clocks.set(node, 0);
            }
            if self.pair.runs(node) {
                self.pair.freeze(node, false);
            } else {
                self.pair.start(node);
            }
        }
    }

    fn replay(&mut self) {
        self.dismiss();
        let leader = self.pair.leader();
        let address = self.pair.options[leader].address;
        let mut wire = Wire::connect(address).expect("the leader takes clients");
        self.ledger.check_replays(&mut wire, usize::MAX);
        self.gather();
    }

    fn connect(&mut self, count: usize) {
        self.guests.clear();
        let leader = self.pair.leader();
        let address = self.pair.options[leader].address;
        let open = |_| {
            let opened = Wire::connect_within(address, Some(ShardId(0)), PATIENCE);
            opened.expect("the leader takes another client").0
        };
        let mut wires: Vec<Wire> = (0..count).map(open).collect();
        self.pair.until_acked(self.crowd(), 50);
        for wire in &mut wires {
            wire.ping().expect("every client is answered");
        }
        self.guests = wires;
    }

    /// One to three faults, then all is mended.
    fn medley(&mut self, more: &[&'static [Step]]) {
        for _ in 0..self.chance.between(1, 3) {
            begin_one(self, more);
            let ms = self.chance.pick(&[100, 500, 2_000, 4_000]);
            pause(Duration::from_millis(self.chance.between(20, ms)));
        }
        self.step(Step::Mend);
        self.step(Step::Whole);
        self.step(Step::AckedBy(Copies::ThisDiskAndPeer, 50));
    }
}
