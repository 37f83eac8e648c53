//! The hash chain of one shard, checked block by block, and what a break in it means.
//!
//! A place where no block continues the chain is either the end of the log, a torn tail (blocks
//! that were in flight when the node stopped, none of them acknowledged), or damage. The proof of
//! damage is a later whole block whose commit mark lies beyond the break, or the shard's durable
//! mark: both say that the missing events had been committed.

use std::sync::mpsc::SyncSender;

use duolog_engine::block::{Block, BlockHash, BlockHeader};
use duolog_engine::ids::Lsn;
use duolog_engine::record::Record;
use duolog_engine::segment::LogEnd;

/// Where something lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Path from the data directory.
    pub file: String,
    /// Bytes from the start of the file.
    pub offset: u64,
}

/// Committed events that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// First LSN.
    pub first: Lsn,
    /// Last LSN.
    pub last: Lsn,
    /// Where the trouble begins.
    pub spot: Spot,
    /// What is there instead.
    pub reason: String,
}

/// What the chain consists of so far.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Whole blocks in the chain.
    pub blocks: u64,
    /// Their events.
    pub events: u64,
    /// Their bytes, without padding.
    pub bytes: u64,
    /// First LSN seen; 0 if none.
    pub first_lsn: Lsn,
    /// The newest commit mark among them.
    pub commit_mark: Lsn,
}

/// A block of the chain, for whoever holds two chains against one another.
#[derive(Clone, Debug)]
pub struct BlockSeen {
    /// Its first LSN.
    pub first: Lsn,
    /// Its last LSN.
    pub last: Lsn,
    /// Its hash, which covers everything before it too.
    pub hash: BlockHash,
    /// Where it lies.
    pub spot: Spot,
}

impl BlockSeen {
    /// Whether the other is the same block with the same blocks before it.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (self.first, self.last, self.hash) == (other.first, other.last, other.hash)
    }
}

/// A chain being checked.
#[derive(Debug)]
pub struct Chain {
    end: LogEnd,
    tally: Tally,
    damage: Vec<Damage>,
    /// Where the chain breaks, if it does: the first place that is not what it should be.
    gap: Option<(Spot, String)>,
    /// A block was being written at the gap.
    torn: bool,
    /// Whole blocks behind the gap that prove nothing so far. Few: a commit mark is at most the
    /// blocks in flight behind.
    strays: Vec<(Spot, BlockHeader)>,
    /// A file behind the end that is not what it was made as: nobody can say what it held.
    lost: Option<(Spot, String)>,
    told: Option<SyncSender<BlockSeen>>,
}

/// A checked chain.
#[derive(Debug)]
pub struct Verdict {
    /// The last block's end.
    pub end: LogEnd,
    /// What the chain consists of.
    pub tally: Tally,
    /// What is missing or wrong.
    pub damage: Vec<Damage>,
    /// Blocks in flight were cut off; they were never acknowledged.
    pub torn: bool,
    /// Whole blocks among them.
    pub strays: usize,
}

impl Chain {
    /// A chain whose next block must continue `end`.
    #[must_use]
    pub const fn new(end: LogEnd) -> Self {
        let tally =
            Tally { blocks: 0, events: 0, bytes: 0, first_lsn: Lsn(0), commit_mark: Lsn(0) };
        Self {
            end,
            tally,
            damage: Vec::new(),
            gap: None,
            torn: false,
            strays: Vec::new(),
            lost: None,
            told: None,
        }
    }

    /// From now on each block of the chain is told to `told`, if somebody listens.
    pub fn tell(&mut self, told: Option<SyncSender<BlockSeen>>) {
        self.told = told;
    }

    /// The end so far.
    #[must_use]
    pub const fn end(&self) -> &LogEnd {
        &self.end
    }

    /// The next bytes are no block of the chain. `torn`: they look like one that was interrupted.
    pub fn gap(&mut self, spot: Spot, reason: String, torn: bool) {
        if self.gap.is_none() {
            self.gap = Some((spot, reason));
            self.torn = torn;
        }
    }

    /// The next segment holds blocks but does not continue the chain. Says more than the ordinary
    /// end of the segment before it.
    pub fn unlinked(&mut self, spot: Spot, reason: String, torn: bool) {
        if !self.torn && self.strays.is_empty() {
            self.gap = None;
        }
        self.gap(spot, reason, torn);
    }

    /// A file that belongs behind the end so far is missing or was cut. Damage, unless what follows
    /// goes on without it or says more.
    pub fn lost(&mut self, spot: Spot, reason: String) {
        self.lost.get_or_insert((spot, reason));
    }

    /// The next segment's header continues the chain's end: whatever else lies behind that end in
    /// the segment before was cut off when the log went on.
    pub fn rotated(&mut self) {
        self.lost = None;
        self.gap = None;
        self.torn = false;
        self.strays.clear();
    }

    /// A whole block.
    pub fn block(&mut self, spot: Spot, block: &Block<'_>) {
        let header = block.header;
        let next = header.first_lsn == self.end.lsn.next();
        let linked = next && header.previous_hash == self.end.hash;
        if linked && self.gap.is_none() {
            self.accept(&spot, &header);
            self.check_block(&spot, block);
            return;
        }
        // A left-over of a tail that was cut before: its LSNs were given out again.
        if header.first_lsn <= self.end.lsn {
            return;
        }
        if self.gap.is_none() {
            self.gap(spot.clone(), "a block that does not continue the hash link".into(), false);
        }
        self.strays.push((spot, header));
        while self.proof() > self.end.lsn {
            self.damaged();
        }
    }

    fn proof(&self) -> Lsn {
        let marks = self.strays.iter().map(|(_, header)| header.commit_mark);
        marks.max().unwrap_or_default()
    }

    /// The break is damage: notes what is missing and goes on behind it.
    fn damaged(&mut self) {
        let (spot, reason) = self.gap.take().expect("strays lie behind a gap");
        self.lost = None;
        let mut strays = std::mem::take(&mut self.strays).into_iter();
        let (found, first) = strays.next().expect("only a stray proves damage");
        let missing = self.end.lsn.next();
        let last = Lsn(first.first_lsn.0 - 1).max(missing);
        self.damage.push(Damage { first: missing, last, spot, reason });
        self.torn = false;
        self.accept(&found, &first);
        for (spot, header) in strays {
            let linked =
                header.first_lsn == self.end.lsn.next() && header.previous_hash == self.end.hash;
            if linked && self.gap.is_none() {
                self.accept(&spot, &header);
            } else if header.first_lsn > self.end.lsn {
                self.gap(spot.clone(), "another break in the hash link".into(), false);
                self.strays.push((spot, header));
            }
        }
    }

    fn accept(&mut self, spot: &Spot, header: &BlockHeader) {
        if self.tally.blocks == 0 {
            self.tally.first_lsn = header.first_lsn;
        }
        self.tally.blocks += 1;
        self.tally.events += u64::from(header.event_count);
        self.tally.bytes += header.length() as u64;
        self.tally.commit_mark = self.tally.commit_mark.max(header.commit_mark);
        let BlockHeader { hash, hlc, epoch, .. } = *header;
        if let Some(told) = &self.told {
            let (first, last) = (header.first_lsn, header.last_lsn());
            // Whoever listened knows enough.
            let _ = told.send(BlockSeen { first, last, hash, spot: spot.clone() });
        }
        self.end = LogEnd { lsn: header.last_lsn(), hash, hlc, epoch };
    }

    /// Checks what the block's hash vouches for but no reader should have to trust: its records.
    fn check_block(&mut self, spot: &Spot, block: &Block<'_>) {
        if let Err(reason) = check_records(block) {
            let (first, last) = (block.header.first_lsn, block.header.last_lsn());
            self.damage.push(Damage { first, last, spot: spot.clone(), reason });
        }
    }

    /// The verdict. `mark` is the shard's durable mark: everything up to it was committed.
    #[must_use]
    pub fn finish(mut self, mark: Option<Lsn>, last_spot: Spot) -> Verdict {
        if let Some(mark) = mark.filter(|mark| *mark > self.end.lsn) {
            let missing = self.end.lsn.next();
            let (spot, reason) = self.gap.take().unwrap_or((last_spot, "the log ends".to_owned()));
            let reason = format!("{reason}; the durable mark says LSN {mark}");
            self.damage.push(Damage { first: missing, last: mark, spot, reason });
            self.torn = false;
        } else if let Some((spot, reason)) = self.lost.take() {
            let missing = self.end.lsn.next();
            let reason = format!("{reason}; later events may be missing too");
            self.damage.push(Damage { first: missing, last: missing, spot, reason });
            self.torn = false;
        }
        let torn = self.torn || !self.strays.is_empty();
        let Self { end, tally, damage, strays, .. } = self;
        Verdict { end, tally, damage, torn, strays: strays.len() }
    }
}

fn check_records(block: &Block<'_>) -> Result<(), String> {
    let header = &block.header;
    let mut next = header.first_lsn;
    for record in block.records() {
        let (offset, record) = record.map_err(|error| error.to_string())?;
        if let Record::Event(event) = record {
            if event.lsn != next {
                return Err(format!("record at {offset} has LSN {} instead of {next}", event.lsn));
            }
            if event.hlc != header.hlc {
                return Err(format!("record at {offset} has another stamp than its block"));
            }
            next = next.next();
        }
    }
    if next != header.last_lsn().next() {
        let found = next.0 - header.first_lsn.0;
        return Err(format!("{found} events instead of {}", header.event_count));
    }
    Ok(())
}

/// A hash as people read it.
#[must_use]
pub fn hex(hash: &BlockHash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
