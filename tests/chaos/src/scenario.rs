//! The words scenarios are written in.

use std::ops::RangeInclusive;

use duolog_net::wire::Copies;

/// A node by the part it had when the pair was whole last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// It led.
    Leader,
    /// It followed.
    Follower,
    /// One of them, by chance.
    Either,
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A node.
    Node(Who),
    /// The bucket.
    Store,
}

/// How the store behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It does not listen.
    Away,
    /// Every request waits so long, ms, before it is done.
    Slow(u64),
    /// Every request is refused with 503 SlowDown.
    Storm,
    /// So many PUTs, all of which are conditional, are done and not answered.
    Mute(u32),
    /// As it should.
    Well,
}

/// What happens to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFate {
    /// No space is left.
    Full,
    /// There is space again.
    Free,
    /// Every write fails; the node has to end with exit code 17. Then it is mended.
    Fails,
    /// The power fails: the node is gone, if it runs, and so is what its file system had in memory.
    PowerCut,
}

/// One thing that is done or waited for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// So many more appends are acknowledged.
    Acked(u64),
    /// So many more whose second copy is there.
    AckedBy(Copies, u64),
    /// Between so many and so many ms pass.
    Wait(u64, u64),
    /// Nothing is acknowledged for so long, ms, after a second in which what was under way may be.
    NoAcks(u64),
    /// Sooner or later nothing is acknowledged for so long, ms.
    Stalls(u64),
    /// SIGKILL.
    Kill(Who),
    /// SIGTERM, and the end with exit code 0.
    Stop(Who),
    /// It is started; it runs when it serves clients in whatever role.
    Start(Who),
    /// It is started, and nothing is waited for.
    Launch(Who),
    /// SIGSTOP.
    Freeze(Who),
    /// SIGCONT.
    Thaw(Who),
    /// What the first sends does not arrive at the second.
    Cut(End, End),
    /// Nothing between the two arrives, either way.
    Part(End, End),
    /// The opposite of both.
    Join(End, End),
    /// The store behaves so from now on.
    Store(Manner),
    /// The node's wall clock is ahead by so much, ms.
    Clock(Who, i64),
    /// Something happens to its disk.
    Disk(Who, DiskFate),
    /// The leader is asked to hand over.
    HandOver,
    /// The node is lost with its disk; the other one leads, or comes to, and a blank one takes the
    /// lost one's place by command.
    Replace(Who),
    /// It logs this event, once more than when the step began.
    Logged(Who, &'static str),
    /// It leads.
    Leads(Who),
    /// It leads no more.
    Deposed(Who),
    /// One leads, the other acknowledges by the wire, and has just done so.
    Whole,
    /// Whatever is broken is mended: all run, all reach all, the store is well, clocks are right.
    Mend,
    /// The steps, which all together may take so long, ms: a generous multiple of what they take.
    Within(u64, &'static [Step]),
    /// The steps, so many times.
    Times(u32, &'static [Step]),
    /// Every append acknowledged so far is sent again, and gets its first answer.
    Replay,
    /// So many clients connect, each can be used, and they stay until the next such step.
    Connect(usize),
    /// So many clients append to one stream, each with the revision it expects, until so many of
    /// their appends are acknowledged.
    Contend(usize, u64),
    /// So many times: one to three faults by chance, then all is mended and whole.
    Medley(u32),
    /// The same with more faults to choose from.
    MedleyWith(&'static [&'static [Step]], u32),
}

/// What a scenario needs of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Clocks that can be set.
    Clocks,
    /// Nodes with small disks of their own.
    Disks,
}

/// What a scenario does and what has to come of it, beside what always has to: nothing that was
/// acknowledged is lost, doubled, reordered or invented.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// In the short selection.
    pub short: bool,
    /// Shards of each node.
    pub shards: u32,
    /// What it needs.
    pub needs: &'static [Need],
    /// How often the lead may change, at least and at most.
    pub elections: RangeInclusive<u64>,
    /// Requests to the store at most, if that matters.
    pub s3_requests_max: Option<u64>,
    /// What happens first.
    pub first: &'static [Step],
    /// What happens then.
    pub steps: &'static [Step],
}

impl Scenario {
    /// One that needs nothing, of which the lead may change as often as `elections` says.
    #[must_use]
    pub const fn new(
        name: &'static str,
        elections: RangeInclusive<u64>,
        steps: &'static [Step],
    ) -> Self {
        let (short, shards, needs, first) = (false, 1, &[], &[]);
        Self { name, short, shards, needs, elections, s3_requests_max: None, first, steps }
    }

    /// The same in the short selection.
    #[must_use]
    pub const fn short(mut self) -> Self {
        self.short = true;
        self
    }

    /// The same with so many shards.
    #[must_use]
    pub const fn shards(mut self, count: u32) -> Self {
        self.shards = count;
        self
    }

    /// The same with a need.
    #[must_use]
    pub const fn needs(mut self, needs: &'static [Need]) -> Self {
        self.needs = needs;
        self
    }

    /// The same with a bound on requests to the store.
    #[must_use]
    pub const fn s3_requests(mut self, max: u64) -> Self {
        self.s3_requests_max = Some(max);
        self
    }
}
