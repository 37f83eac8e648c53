//! The fallback chain of one shard in one reign: which blocks go into which object, when, and what
//! that covers (rules C1 to C4). The driver encodes an object once, keeps its bytes until
//! `Release`, and sends the very same bytes again when it is told to: C2 rests on that.

use std::collections::VecDeque;

use duolog_lease::grant::{Grant, UploadPermit};

use super::chain::Seq;
use super::chain::object::{Found, LsnRange};
use super::pause::Pause;
use super::promotion::PutOutcome;
use crate::ids::{LeaseEpoch, Lsn, MonoMs};

/// What does not change during a reign.
#[derive(Clone, Copy, Debug)]
pub struct UploaderConfig {
    /// The reign.
    pub epoch: LeaseEpoch,
    /// How long a block may wait for others to share its object, ms (`--s3-replication-delay-ms`).
    /// Appends wait that much longer while the follower is away, and cost that many fewer PUTs.
    pub delay_ms: u64,
    /// Objects under way at one time, at least 1.
    pub in_flight_max: usize,
    /// A Batch takes no further block when it has so many bytes.
    pub batch_bytes: u64,
}

/// Whether the follower's acks cover what is appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wire {
    /// Under every set in force another member acks in time.
    Covers,
    /// Not so: the chain has to cover.
    Away,
}

/// What the machine is told.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// The next block of this reign is closed: its hash is known and its bytes are at hand.
    Closed {
        /// Its last LSN.
        last_lsn: Lsn,
        /// Its length.
        bytes: u64,
    },
    /// Everything up to here is committed.
    Committed {
        /// The LSN.
        lsn: Lsn,
    },
    /// Whether the wire covers has changed.
    Wire(Wire),
    /// The newest grant; `None` when the node does not lead (any more).
    Grant(Option<Grant>),
    /// What became of a PUT. May come late and twice.
    Put {
        /// The object.
        seq: Seq,
        /// Its outcome.
        outcome: PutOutcome,
    },
    /// What reading an object back gave; `None` if there was no usable answer.
    ReadBack {
        /// The object.
        seq: Seq,
        /// What is there.
        found: Option<Found>,
    },
    /// The time of [`Uploader::deadline`] has come (it may come early).
    Tick,
}

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Encode these blocks as Batch `seq`, keep the bytes, and create the object. Answer: `Put`.
    Upload {
        /// The object.
        seq: Seq,
        /// Its blocks: whole ones, all closed.
        range: LsnRange,
    },
    /// Send the kept bytes again. Answer: `Put`.
    Repeat {
        /// The object.
        seq: Seq,
    },
    /// Read the object and compare it with the kept bytes ([`Found::of`]). Answer: `ReadBack`.
    ReadBack {
        /// The object.
        seq: Seq,
    },
    /// The object is stored: its bytes are not needed any more.
    Release {
        /// The object.
        seq: Seq,
    },
    /// The chain covers everything up to here (R2): tell the shard.
    ChainStored {
        /// The LSN.
        lsn: Lsn,
    },
    /// Tell the lease machine `RenewalWanted` (C3).
    AskRenewal,
    /// The chain has ended for this reign (L10): stop leading. Nothing comes after it.
    Deposed {
        /// Where.
        seq: Seq,
        /// What is there.
        found: Found,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    /// The PUT is under way.
    Sent,
    /// It is sent again then.
    RepeatAt(MonoMs),
    /// It was refused and is being read.
    Reading,
    /// It is read again then.
    ReadAt(MonoMs),
    /// It is stored.
    Stored,
}

/// An object that is not yet stored together with all lower ones.
#[derive(Clone, Copy, Debug)]
struct Slot {
    seq: Seq,
    last: Lsn,
    state: SlotState,
    pause: Pause,
}

#[derive(Clone, Copy, Debug)]
struct ClosedBlock {
    last: Lsn,
    bytes: u64,
    since: MonoMs,
}

/// The machine.
#[derive(Debug)]
pub struct Uploader {
    config: UploaderConfig,
    wire: Wire,
    grant: Option<Grant>,
    /// The grant for which a renewal was asked.
    renewal_asked: Option<Grant>,
    committed: Lsn,
    /// Where the last object that was begun ends.
    chain_end: Lsn,
    /// Up to here the chain is known to be stored without a hole in its numbers.
    stored_end: Lsn,
    /// What the shard was told of it.
    announced: Lsn,
    next_seq: Seq,
    /// Blocks that are neither committed nor in an object. The shard's limits bound them.
    closed: VecDeque<ClosedBlock>,
    closed_bytes: u64,
    slots: VecDeque<Slot>,
    stored_objects: u64,
    stored_bytes: u64,
    deposed: bool,
}

impl Uploader {
    /// The chain behind an Open that is stored and ends at `open_end`. Panics without room for an
    /// object under way.
    #[must_use]
    pub fn new(config: UploaderConfig, open_end: Lsn) -> Self {
        assert!(config.in_flight_max > 0, "an uploader has room for an object");
        Self {
            config,
            wire: Wire::Away,
            grant: None,
            renewal_asked: None,
            committed: open_end,
            chain_end: open_end,
            stored_end: open_end,
            announced: open_end,
            next_seq: Seq::OPEN.next(),
            closed: VecDeque::new(),
            closed_bytes: 0,
            slots: VecDeque::with_capacity(config.in_flight_max),
            stored_objects: 0,
            stored_bytes: 0,
            deposed: false,
        }
    }

    /// When to hand over a `Tick`, if at all.
    #[must_use]
    pub fn deadline(&self) -> Option<MonoMs> {
        let slots = self.slots.iter().filter_map(|slot| match slot.state {
            SlotState::RepeatAt(at) | SlotState::ReadAt(at) => Some(at),
            SlotState::Sent | SlotState::Reading | SlotState::Stored => None,
        });
        let batch = self.closed.front().filter(|_| self.wire == Wire::Away && self.has_room());
        let batch = batch.map(|block| block.since.plus(self.config.delay_ms));
        // When the renewal has been asked for, only a grant helps.
        let batch = batch.filter(|at| self.may_start(*at) || self.renewal_asked != self.grant);
        slots.chain(batch).min()
    }

    /// Objects and bytes begun in this reign's chain, the Open not counted: what G3 looks at.
    #[must_use]
    pub const fn length(&self) -> (u64, u64) {
        (self.stored_objects, self.stored_bytes)
    }

    /// Blocks that wait for an object, and their bytes: what the shard has in flight, at most.
    #[must_use]
    pub fn waiting(&self) -> (usize, u64) {
        (self.closed.len(), self.closed_bytes)
    }

    /// The chain as far as it is known to be stored: all objects with lower numbers are, and the
    /// last of them ends at the LSN.
    #[must_use]
    pub fn stored_chain(&self) -> (Seq, Lsn) {
        (self.slots.front().map_or(self.next_seq, |slot| slot.seq), self.stored_end)
    }

    /// Takes in an event and appends what is to be done to `out`: at most a handful of actions per
    /// object under way.
    pub fn step(&mut self, now: MonoMs, event: Event, out: &mut Vec<Action>) {
        if self.deposed {
            return;
        }
        match event {
            Event::Closed { last_lsn, bytes } => self.closed(now, last_lsn, bytes),
            Event::Committed { lsn } => self.committed(lsn),
            Event::Wire(wire) => self.wire = wire,
            Event::Grant(grant) => {
                self.grant = grant.filter(|grant| grant.epoch == self.config.epoch);
            }
            Event::Put { seq, outcome } => self.put(now, seq, outcome, out),
            Event::ReadBack { seq, found } => self.read_back(now, seq, found, out),
            Event::Tick => self.repeat_due(now, out),
        }
        if !self.deposed {
            self.announce(now, out);
            self.start(now, out);
        }
        self.check();
    }

    fn closed(&mut self, now: MonoMs, last: Lsn, bytes: u64) {
        let before = self.closed.back().map_or(self.chain_end.max(self.committed), |b| b.last);
        assert!(last > before, "A1: blocks are closed in order");
        self.closed.push_back(ClosedBlock { last, bytes, since: now });
        self.closed_bytes += bytes;
    }

    /// C1: what is committed needs no object.
    fn committed(&mut self, lsn: Lsn) {
        self.committed = self.committed.max(lsn);
        while let Some(block) = self.closed.front().filter(|block| block.last <= self.committed) {
            self.closed_bytes -= block.bytes;
            self.closed.pop_front();
        }
    }

    /// Whether one more object may be under way.
    fn has_room(&self) -> bool {
        self.slots.len() < self.config.in_flight_max
    }

    /// C3, as far as starting is concerned.
    fn may_start(&self, now: MonoMs) -> bool {
        let permit = self.grant.map(|grant| grant.upload(now));
        permit.is_some_and(|permit| permit != UploadPermit::WaitForRenewal)
    }

    /// Asks for a renewal once per grant.
    fn ask_renewal(&mut self, now: MonoMs, out: &mut Vec<Action>) {
        let Some(grant) = self.grant else { return };
        if grant.upload(now) != UploadPermit::Go && self.renewal_asked != Some(grant) {
            self.renewal_asked = Some(grant);
            out.push(Action::AskRenewal);
        }
    }

    /// Starts every object that is due.
    fn start(&mut self, now: MonoMs, out: &mut Vec<Action>) {
        while self.has_room() && self.is_due(now) {
            self.ask_renewal(now, out);
            if !self.may_start(now) {
                return;
            }
            let (range, bytes) = self.take_batch();
            let seq = self.next_seq;
            self.next_seq = seq.next();
            self.chain_end = range.last;
            self.stored_objects += 1;
            self.stored_bytes += bytes;
            let (last, state, pause) = (range.last, SlotState::Sent, Pause::new());
            self.slots.push_back(Slot { seq, last, state, pause });
            out.push(Action::Upload { seq, range });
        }
    }

    fn is_due(&self, now: MonoMs) -> bool {
        // C4: while the follower covers the chain does not grow.
        let due = |block: &ClosedBlock| {
            self.wire == Wire::Away
                && (self.closed_bytes >= self.config.batch_bytes
                    || now >= block.since.plus(self.config.delay_ms))
        };
        self.closed.front().is_some_and(due)
    }

    /// C1: begins right behind the later of the chain's end and the commit mark.
    fn take_batch(&mut self) -> (LsnRange, u64) {
        let before = self.chain_end.max(self.committed);
        let (mut last, mut bytes) = (before, 0);
        while bytes < self.config.batch_bytes
            && let Some(block) = self.closed.pop_front()
        {
            (last, bytes) = (block.last, bytes + block.bytes);
        }
        self.closed_bytes -= bytes;
        assert!(last > before, "C1: a Batch has blocks");
        (LsnRange { first: before.next(), last }, bytes)
    }

    fn slot(&mut self, seq: Seq) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.seq == seq)
    }

    fn put(&mut self, now: MonoMs, seq: Seq, outcome: PutOutcome, out: &mut Vec<Action>) {
        let Some(slot) = self.slot(seq).filter(|slot| slot.state != SlotState::Stored) else {
            return;
        };
        match outcome {
            PutOutcome::Stored => self.stored(seq, out),
            // C2: own bytes mean stored; what else there may be is found out by reading.
            PutOutcome::Exists => {
                slot.state = SlotState::Reading;
                out.push(Action::ReadBack { seq });
            }
            PutOutcome::Unknown if slot.state == SlotState::Sent => {
                slot.state = SlotState::RepeatAt(slot.pause.after(now));
            }
            PutOutcome::Unknown => {}
        }
    }

    fn read_back(&mut self, now: MonoMs, seq: Seq, found: Option<Found>, out: &mut Vec<Action>) {
        let Some(slot) = self.slot(seq).filter(|slot| slot.state == SlotState::Reading) else {
            return;
        };
        match found {
            None => slot.state = SlotState::ReadAt(slot.pause.after(now)),
            Some(Found::Own) => self.stored(seq, out),
            Some(Found::Nothing) => slot.state = SlotState::RepeatAt(slot.pause.after(now)),
            // C2, L10: a successor has ended this chain.
            Some(found @ (Found::Seal | Found::Other)) => {
                self.deposed = true;
                out.push(Action::Deposed { seq, found });
            }
        }
    }

    fn stored(&mut self, seq: Seq, out: &mut Vec<Action>) {
        let Some(slot) = self.slot(seq) else { return };
        slot.state = SlotState::Stored;
        out.push(Action::Release { seq });
        // R2: an object counts when all lower ones are known to be stored.
        while let Some(slot) = self.slots.front().filter(|slot| slot.state == SlotState::Stored) {
            self.stored_end = slot.last;
            self.slots.pop_front();
        }
    }

    /// C3: what is stored counts under a lease that is young enough, else with the next one.
    fn announce(&mut self, now: MonoMs, out: &mut Vec<Action>) {
        if self.announced == self.stored_end {
            return;
        }
        self.ask_renewal(now, out);
        if self.may_start(now) {
            self.announced = self.stored_end;
            out.push(Action::ChainStored { lsn: self.announced });
        }
    }

    fn repeat_due(&mut self, now: MonoMs, out: &mut Vec<Action>) {
        for slot in &mut self.slots {
            match slot.state {
                // C2: for ever, and the same bytes: a hole would keep the chain from counting.
                SlotState::RepeatAt(at) if at <= now => {
                    slot.state = SlotState::Sent;
                    out.push(Action::Repeat { seq: slot.seq });
                }
                SlotState::ReadAt(at) if at <= now => {
                    slot.state = SlotState::Reading;
                    out.push(Action::ReadBack { seq: slot.seq });
                }
                _ => {}
            }
        }
    }

    /// What has to hold after every step.
    pub fn check(&self) {
        let mut seqs = self.slots.iter().map(|slot| slot.seq);
        assert!(seqs.clone().is_sorted(), "C1: objects are begun in order");
        assert!(seqs.next_back().is_none_or(|seq| seq.next() == self.next_seq));
        assert!(self.announced <= self.stored_end && self.stored_end <= self.chain_end);
        let first_is_stored =
            self.slots.front().is_some_and(|slot| slot.state == SlotState::Stored);
        assert!(!first_is_stored, "R2: what is stored without a hole counts");
        assert!(self.slots.len() <= self.config.in_flight_max);
        debug_assert_eq!(
            self.closed.iter().map(|block| block.bytes).sum::<u64>(),
            self.closed_bytes
        );
        let first = self.closed.front().map(|block| block.last);
        assert!(first.is_none_or(|last| last > self.chain_end.max(self.committed)));
    }
}

#[cfg(test)]
mod tests;
