//! Promotion of one shard after its node has won epoch e' = e + 1: find where the own log meets the
//! chains, read them to their ends, seal those ends, and open the own chain (rules P2 to P6).
//!
//! Before it begins: the promise of e' is durable (P1) and the shard follows nobody (L3). The
//! driver moves bytes: it gets and puts objects, looks up block ends in the own log, cuts it, and
//! gives it blocks. Answers may come late, twice, or never; the machine knows which it waits for.
//! A leader that takes a new reign runs the same steps on itself (G3).

mod probe;
mod walk;

use std::collections::BTreeMap;

use probe::Probe;
use walk::Ready;

use super::BlockEnd;
use super::chain::Seq;
use super::chain::header::{ChainError, ObjectHeader};
use super::chain::object::Object;
use super::pause::Pause;
use crate::ids::{ClusterId, LeaseEpoch, Lsn, MonoMs, NodeId, ShardId};
use crate::segment::LogEnd;

/// What a leader has told its follower of its chain. All of it is for ever: the objects below
/// `next` were created by that leader, so none of them can be a Seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredChain {
    /// The leader's reign.
    pub epoch: LeaseEpoch,
    /// All lower numbers of its chain are known to be stored.
    pub next: Seq,
    /// Where the last of those objects ends.
    pub end: BlockEnd,
}

/// Who promotes what.
#[derive(Clone, Copy, Debug)]
pub struct PromotionStart {
    /// The cluster.
    pub cluster: ClusterId,
    /// The shard.
    pub shard: ShardId,
    /// This node.
    pub node: NodeId,
    /// Its new reign, e'.
    pub epoch: LeaseEpoch,
    /// The end of the own log. All of it is durable.
    pub end: LogEnd,
    /// Everything up to here is committed for certain (the commit mark): nothing of it is ever
    /// cut (R4).
    pub committed: Lsn,
    /// What is known of a chain without reading it, if anything.
    pub stored: Option<StoredChain>,
}

/// What the machine is told. Objects are named by epoch and seq; the shard is always the own.
#[derive(Clone, Debug)]
pub enum Event {
    /// Begin. First event, once.
    Begin,
    /// Answer to `Get`.
    Got {
        /// Its epoch.
        epoch: LeaseEpoch,
        /// Its number.
        seq: Seq,
        /// What is there.
        answer: GetAnswer,
    },
    /// Answer to `PutSeal` and `PutOpen`.
    Put {
        /// Its epoch.
        epoch: LeaseEpoch,
        /// Its number.
        seq: Seq,
        /// What became of it.
        outcome: PutOutcome,
    },
    /// The Open that `PutOpen` asked for is larger than an object may be.
    OpenTooLarge,
    /// The own log could not be read for `FindEnd` or `PutOpen`. Never to be told as "no block ends
    /// there": that would cut what is only unreadable.
    LogUnreadable,
    /// Answer to `FindEnd`.
    EndFound {
        /// The question's number.
        ask: u32,
        /// The block of the own log that ends exactly there; `None` if there is none.
        end: Option<BlockEnd>,
    },
    /// Answer to `CutTo`: the log ends there now, durably.
    Cut {
        /// Its end.
        end: LogEnd,
    },
    /// Answer to `Apply`: the blocks are in the own log, durably.
    Applied {
        /// Its end.
        end: LogEnd,
    },
    /// Answer to `ListEpochs`.
    Epochs(Vec<LeaseEpoch>),
    /// The lease is lost (P6), or the node stops.
    LeaseLost,
    /// The time of [`Promotion::deadline`] has come (it may come early).
    Tick,
}

/// What a GET gave.
#[derive(Clone, Debug)]
pub enum GetAnswer {
    /// No such object (404, and nothing else).
    Nothing,
    /// An object that belongs there. The driver keeps its bytes until `Release`.
    Object(ObjectFacts),
    /// Bytes that are not the object that belongs there.
    Unusable(ChainError),
    /// No usable answer.
    Unknown,
}

/// What the machine has to know of an object.
#[derive(Clone, Debug)]
pub struct ObjectFacts {
    /// Its header.
    pub header: ObjectHeader,
    /// Where its blocks end, in order.
    pub ends: Vec<BlockEnd>,
}

impl ObjectFacts {
    /// The facts of a decoded object.
    #[must_use]
    pub fn of(object: &Object<'_>) -> Self {
        Self { header: object.header, ends: object.ends().collect() }
    }
}

/// What became of a create-only PUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PutOutcome {
    /// Stored by this very request.
    Stored,
    /// Refused: the key exists (412 only; a 409 has decided nothing and is `Unknown`).
    Exists,
    /// It may have been stored, or may yet be.
    Unknown,
}

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read an object. Answer: `Got`.
    Get {
        /// Its epoch.
        epoch: LeaseEpoch,
        /// Its number.
        seq: Seq,
    },
    /// Create a Seal there (`If-None-Match: *`). Answer: `Put`.
    PutSeal {
        /// Its epoch.
        epoch: LeaseEpoch,
        /// Its number.
        seq: Seq,
    },
    /// Create the Open of the own epoch, with the own log's blocks from behind `base` to `end`.
    /// Comes again when the outcome was unknown: the bytes must be the same. Answer: `Put`, or
    /// `OpenTooLarge`.
    PutOpen {
        /// The base.
        base: BlockEnd,
        /// The end of the own log.
        end: BlockEnd,
    },
    /// Look up which block of the own log ends at `lsn`. Answer: `EndFound`.
    FindEnd {
        /// The question's number.
        ask: u32,
        /// The LSN.
        lsn: Lsn,
    },
    /// Cut the own log behind `end`, one of its block ends. Answer: `Cut`.
    CutTo {
        /// The block that becomes the last.
        end: BlockEnd,
    },
    /// Put the blocks of this object that lie behind `after` into the own log, whose end is there.
    /// Answer: `Applied`, when they are durable.
    Apply {
        /// The object's epoch.
        epoch: LeaseEpoch,
        /// Its number.
        seq: Seq,
        /// The own log's end.
        after: Lsn,
    },
    /// The object's bytes are not needed any more. May name an object that the driver never had.
    /// To be done before later actions are: the same object may be asked for again.
    Release {
        /// Its epoch.
        epoch: LeaseEpoch,
        /// Its number.
        seq: Seq,
    },
    /// List the epochs that have an object with seq 0. Answer: `Epochs`. On failure: again.
    ListEpochs,
    /// The end; nothing comes after it.
    Ended(Ended),
}

/// How a promotion ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The Open is stored (P5): everything in the own log is committed, writes may begin. `end` is
    /// what every hello of this reign says.
    Opened {
        /// The base of the Open.
        base: BlockEnd,
        /// The end of the own log.
        end: LogEnd,
    },
    /// A higher reign has sealed this one, or the lease is lost: be a follower (L10).
    Deposed,
    /// This node must not lead; someone has to look.
    Failed(Failure),
}

/// Why this node must not lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// P2: the own log does not connect to any chain.
    #[error(
        "shard {shard}: this node's log ends at LSN {own_end}, and the chain of epoch {epoch} \
         continues from LSN {base}, which is not in it: acknowledged events are missing here. \
         Start the other node, or replace this one (duolog node replace)"
    )]
    Gap {
        /// The shard.
        shard: ShardId,
        /// End of the own log.
        own_end: Lsn,
        /// The chain that does not connect.
        epoch: LeaseEpoch,
        /// Where it begins.
        base: Lsn,
    },
    /// R4: the chain contradicts what this node has acknowledged.
    #[error(
        "shard {shard}: the chain of epoch {epoch} leaves this node's log at LSN {fork}, below \
         LSN {committed} that was acknowledged: nothing was cut. Keep both disks and report this"
    )]
    CutBelowCommitted {
        /// The shard.
        shard: ShardId,
        /// The chain.
        epoch: LeaseEpoch,
        /// Where the logs part.
        fork: Lsn,
        /// What is committed.
        committed: Lsn,
    },
    /// An object cannot be used, again and again.
    #[error("shard {shard}: object {seq} of the chain of epoch {epoch} is unusable: {error}")]
    Unusable {
        /// The shard.
        shard: ShardId,
        /// Its epoch.
        epoch: LeaseEpoch,
        /// Its number.
        seq: Seq,
        /// What is wrong.
        error: ChainError,
    },
    /// What is not certainly committed does not fit into one object.
    #[error(
        "shard {shard}: LSN {} to {end} are not known to be committed and do not fit into one \
         object of the chain; start the other node", base.0 + 1
    )]
    OpenTooLarge {
        /// The shard.
        shard: ShardId,
        /// Last LSN that is committed for certain.
        base: Lsn,
        /// End of the own log.
        end: Lsn,
    },
    /// The disk.
    #[error("shard {shard}: the own log cannot be read; start the other node and look at the disk")]
    LogUnreadable {
        /// The shard.
        shard: ShardId,
    },
    /// The log did not end where it had to after a cut or an apply.
    #[error("shard {shard}: the log ends at LSN {found} where it has to end at LSN {expected}")]
    LogDiffers {
        /// The shard.
        shard: ShardId,
        /// Where it had to end.
        expected: Lsn,
        /// Where it ends.
        found: Lsn,
    },
}

/// What the machine waits for.
#[derive(Clone, Debug)]
enum Step {
    /// `Begin`.
    New,
    /// P2: the Open of this epoch.
    Searching(LeaseEpoch),
    /// P2: whether the base of this epoch's Open is in the own log.
    Connecting(LeaseEpoch, Probe),
    /// P2: whether the own log contains what is known to be stored of this epoch's chain.
    Recalling(StoredChain, Probe),
    /// P2: the list of epochs.
    Listing,
    /// P3: the object.
    Reading(LeaseEpoch, Seq),
    /// P3: the Seal's outcome.
    Sealing(LeaseEpoch, Seq),
    /// P3: where the object and the own log part.
    Comparing(LeaseEpoch, Seq, Probe),
    /// P3: the cut, to the point with this number.
    Cutting(LeaseEpoch, Seq, Probe, usize),
    /// P3: the object's blocks in the own log.
    Applying(LeaseEpoch, Seq, BlockEnd),
    /// P5: the block that ends at the commit mark.
    FindingBase,
    /// P5: the Open's outcome.
    Opening(BlockEnd),
    /// P5: what is there instead.
    ReadingOpen(BlockEnd),
    Ended,
}

/// The machine.
#[derive(Debug)]
pub struct Promotion {
    start: PromotionStart,
    own_end: LogEnd,
    genesis: BlockEnd,
    /// The end of the last object read, at first the base that connects: contained in the own log,
    /// and committed.
    chain_end: BlockEnd,
    step: Step,
    /// Epochs to look at, when a listing was needed: ascending.
    listed: Option<Vec<LeaseEpoch>>,
    epochs_looked_at: u32,
    /// The newest Open that did not connect.
    disconnected: Option<(LeaseEpoch, Lsn)>,
    /// Answers of the epoch that is being read, by number.
    ready: BTreeMap<Seq, Ready>,
    read_ahead: u32,
    asks: u32,
    pause: Pause,
    again: Option<(MonoMs, Action)>,
    unusable: u32,
}

impl Promotion {
    /// A promotion that has not begun. Panics if e' is not at least 1, or if the own log has blocks
    /// of that reign already.
    #[must_use]
    pub fn new(start: PromotionStart) -> Self {
        assert!(start.epoch > LeaseEpoch::NONE, "P1: a reign has a number");
        assert!(start.end.epoch < start.epoch, "L2: no block of a reign before its promotion");
        assert!(start.committed <= start.end.lsn, "R4: what is committed is in the log");
        let genesis = BlockEnd::genesis(start.cluster, start.shard);
        Self {
            start,
            own_end: start.end,
            genesis,
            chain_end: genesis,
            step: Step::New,
            listed: None,
            epochs_looked_at: 0,
            disconnected: None,
            ready: BTreeMap::new(),
            read_ahead: 1,
            asks: 0,
            pause: Pause::new(),
            again: None,
            unusable: 0,
        }
    }

    /// When to hand over a `Tick`, if at all.
    #[must_use]
    pub fn deadline(&self) -> Option<MonoMs> {
        self.again.map(|(at, _)| at)
    }

    /// Takes in an event and appends what is to be done to `out`: a handful of actions.
    pub fn step(&mut self, now: MonoMs, event: Event, out: &mut Vec<Action>) {
        match event {
            Event::Begin => {
                assert!(matches!(self.step, Step::New), "a promotion begins once");
                self.search_below(self.start.epoch, out);
            }
            Event::Got { epoch, seq, answer } => self.got(now, (epoch, seq), answer, out),
            Event::Put { epoch, seq, outcome } => self.put(now, (epoch, seq), outcome, out),
            Event::EndFound { ask, end } if ask == self.asks => self.end_found(end, out),
            Event::Cut { end } => self.cut(end, out),
            Event::Applied { end } => self.applied(end, out),
            Event::Epochs(epochs) => self.epochs(epochs, out),
            Event::OpenTooLarge => {
                if let Step::Opening(base) = self.step {
                    let (shard, end) = (self.start.shard, self.own_end.lsn);
                    self.fail(Failure::OpenTooLarge { shard, base: base.lsn, end }, out);
                }
            }
            Event::LogUnreadable => {
                let shard = self.start.shard;
                self.fail(Failure::LogUnreadable { shard }, out);
            }
            // P6: without the lease there is no reign to open.
            Event::LeaseLost => self.end(Ended::Deposed, out),
            Event::Tick => {
                if let Some((_, action)) = self.again.take_if(|(at, _)| *at <= now) {
                    out.push(action);
                }
            }
            Event::EndFound { .. } => {}
        }
        self.check();
    }

    fn end(&mut self, how: Ended, out: &mut Vec<Action>) {
        if !matches!(self.step, Step::Ended) {
            self.step = Step::Ended;
            self.again = None;
            self.ready.clear();
            out.push(Action::Ended(how));
        }
    }

    fn fail(&mut self, failure: Failure, out: &mut Vec<Action>) {
        self.end(Ended::Failed(failure), out);
    }

    /// Makes the call again after a pause.
    fn repeat(&mut self, now: MonoMs, action: Action) {
        self.again = Some((self.pause.after(now), action));
    }

    fn find_end(&mut self, lsn: Lsn, out: &mut Vec<Action>) {
        self.asks += 1;
        out.push(Action::FindEnd { ask: self.asks, lsn });
    }

    /// What has to hold after every step.
    pub fn check(&self) {
        assert!(self.own_end.lsn >= self.start.committed, "R4: the cut went too far");
        assert!(self.chain_end.lsn <= self.own_end.lsn, "P3: what was read is in the own log");
        assert!(self.own_end.epoch < self.start.epoch, "P5: no own block before the Open");
    }
}

#[cfg(test)]
mod tests;
