//! What the log must say: every block that the machine asked to be written, taken apart with the
//! real codecs, and the state of streams, tokens and keys after each of those that are committed.

use std::collections::{BTreeMap, VecDeque};

use duolog_engine::block::{Block, BlockHash};
use duolog_engine::ids::{Hlc, IdempotencyKey, LeaseEpoch, Lsn, Place, Revision};
use duolog_engine::record::{AppendRecord, EventRecord, Record, StreamRange};
use duolog_engine::recovery::{LogIdentity, empty_log};
use duolog_engine::segment::{LogEnd, SegmentHeader};

use super::plan::Plan;
use super::work::{Known, Streams, Work};

/// An event in the log.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its stream.
    pub stream: usize,
    /// Its revision.
    pub revision: Revision,
    /// Where its record is.
    pub place: Place,
    /// The operation that it belongs to.
    pub operation: usize,
    /// Its position there.
    pub index: usize,
}

/// An append in the log.
#[derive(Clone, Debug)]
pub struct Appended {
    /// The operation.
    pub operation: usize,
    /// First event.
    pub first_lsn: Lsn,
    /// Last event.
    pub last_lsn: Lsn,
    /// Stamp of its block.
    pub hlc: Hlc,
    /// Its key.
    pub key: Option<IdempotencyKey>,
    /// Its fencing token.
    pub token: Option<u64>,
    /// Where its append record is, if it has one.
    pub place: Option<Place>,
    /// What each stream got.
    pub ranges: Vec<StreamRange>,
    /// Next revision and token of each part's stream before it; filled in by the commit.
    pub before: Vec<(u64, u64)>,
}

/// A block of the log.
#[derive(Clone, Debug)]
pub struct Written {
    /// Where it starts.
    pub place: Place,
    /// The header of its segment, when it is the first there.
    pub header: Option<SegmentHeader>,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// First event.
    pub first_lsn: Lsn,
    /// The log's end behind it.
    pub end: LogEnd,
    /// What it says of the commit.
    pub commit_mark: Lsn,
    /// Its appends.
    pub appends: Vec<Appended>,
    /// Its events.
    pub rows: Vec<Row>,
    /// The disk has it for certain.
    pub durable: bool,
}

impl Written {
    /// Where it ends, without padding.
    #[must_use]
    pub fn end_offset(&self) -> u32 {
        self.place.offset + self.bytes.len() as u32
    }
}

/// A stream as committed.
#[derive(Clone, Debug, Default)]
pub struct StreamState {
    /// Highest token.
    pub token: u64,
    /// Its events, as LSNs.
    pub lsns: Vec<Lsn>,
}

/// See the module.
#[derive(Debug)]
pub struct Ledger {
    genesis: LogEnd,
    window_max: usize,
    /// Blocks in order; the first `committed` of them are committed.
    pub blocks: Vec<Written>,
    /// See `blocks`.
    pub committed: usize,
    /// Committed events by LSN, the first at index 0.
    pub rows: Vec<Row>,
    /// Streams as committed.
    pub streams: Vec<StreamState>,
    /// Committed appends by first LSN.
    pub appends: BTreeMap<Lsn, Appended>,
    /// The committed idempotency window, oldest first.
    pub window: VecDeque<(IdempotencyKey, Place)>,
}

impl Ledger {
    /// An empty log.
    #[must_use]
    pub fn new(plan: &Plan, streams: &Streams) -> Self {
        let identity = LogIdentity { cluster: plan.config.cluster, shard: plan.config.shard };
        Self {
            genesis: empty_log(identity),
            window_max: plan.config.idempotency_window,
            blocks: Vec::new(),
            committed: 0,
            rows: Vec::new(),
            streams: vec![StreamState::default(); streams.names.len()],
            appends: BTreeMap::new(),
            window: VecDeque::new(),
        }
    }

    /// The end of the first `count` blocks.
    #[must_use]
    pub fn end_of(&self, count: usize) -> LogEnd {
        count.checked_sub(1).map_or(self.genesis, |last| self.blocks[last].end)
    }

    /// The committed end.
    #[must_use]
    pub fn committed_end(&self) -> LogEnd {
        self.end_of(self.committed)
    }

    /// The LSN up to which the disk has everything for certain.
    #[must_use]
    pub fn durable_lsn(&self) -> Lsn {
        let behind = self.blocks.iter().position(|block| !block.durable);
        self.end_of(behind.unwrap_or(self.blocks.len())).lsn
    }

    /// Takes apart a block that the machine wants written, and holds it against its past.
    pub fn write(
        &mut self,
        bytes: &[u8],
        place: Place,
        header: Option<SegmentHeader>,
        streams: &Streams,
        work: &Work,
    ) {
        let block = Block::decode(bytes).expect("D2: what is written is a whole block");
        let before = self.end_of(self.blocks.len());
        let head = &block.header;
        assert_eq!(head.previous_hash, before.hash, "D1: a block names the one before it");
        assert_eq!(head.first_lsn, before.lsn.next(), "A1: LSNs have no gap");
        assert!(head.hlc > before.hlc, "A1: stamps grow: {} after {}", head.hlc, before.hlc);
        assert_eq!(head.generation, place.generation, "D5: a block names its segment");
        assert!(head.commit_mark <= self.committed_end().lsn, "A1: a mark names what is committed");
        if let Some(header) = &header {
            assert_eq!(header.base, before, "D1: a segment names the log's end before it");
        }
        if let Some(last) = self.blocks.last() {
            let behind = Place { offset: last.end_offset(), ..last.place };
            assert!(place >= behind, "D6: no block is written over another: {place:?} {behind:?}");
            let follows = place.generation == last.place.generation;
            assert!(header.is_none() || !follows, "D5: a segment has one header");
        }
        let (hash, hlc, epoch): (BlockHash, _, _) = (head.hash, head.hlc, head.epoch);
        let end = LogEnd { lsn: head.last_lsn(), hash, hlc, epoch };
        let mut taken = Taken { streams, work, place, hlc, lsn: head.first_lsn };
        let (appends, rows) = taken.apart(&block);
        assert_eq!(rows.len(), head.event_count as usize, "A1: a block has its events");
        self.blocks.push(Written {
            place,
            header,
            bytes: bytes.to_vec(),
            first_lsn: head.first_lsn,
            end,
            commit_mark: head.commit_mark,
            appends,
            rows,
            durable: false,
        });
    }

    /// Commits up to `end`; the first LSNs of the appends that became committed.
    pub fn commit(&mut self, end: LogEnd, work: &Work) -> Vec<Lsn> {
        let mut fresh = Vec::new();
        while self.committed_end().lsn < end.lsn {
            let block = self.blocks[self.committed].clone();
            self.committed += 1;
            for append in block.appends {
                fresh.push(append.first_lsn);
                self.commit_append(append, &block.rows, block.first_lsn, work);
            }
        }
        assert_eq!(self.committed_end(), end, "A1: a commit ends where a block ends");
        fresh
    }

    fn commit_append(&mut self, mut append: Appended, rows: &[Row], first: Lsn, work: &Work) {
        let parts = &work.operations[append.operation].parts;
        append.before = parts.iter().map(|part| self.stream(part.stream)).collect();
        if let Some(token) = append.token {
            let highest = append.before.iter().map(|(_, token)| *token).max();
            assert!(Some(token) >= highest, "A7: token {token} came in below {highest:?}");
        }
        if let (Some(key), Some(place)) = (append.key, append.place) {
            assert!(self.key(key).is_none(), "A6: an append came in twice: {append:?}");
            self.window.push_back((key, place));
            if self.window.len() > self.window_max {
                self.window.pop_front();
            }
        }
        for lsn in append.first_lsn.0..=append.last_lsn.0 {
            let row = rows[(lsn - first.0) as usize];
            let state = &mut self.streams[row.stream];
            assert_eq!(row.revision.0, state.lsns.len() as u64, "A1: revisions have no gap");
            state.lsns.push(Lsn(lsn));
            state.token = state.token.max(append.token.unwrap_or(0));
            self.rows.push(row);
            assert_eq!(self.rows.len() as u64, lsn, "A1: LSNs count events");
        }
        self.appends.insert(append.first_lsn, append);
    }

    /// Drops the blocks behind `count`, which a crash has lost.
    pub fn cut(&mut self, count: usize) {
        assert!(count >= self.committed, "D3: nothing committed is cut");
        self.blocks.truncate(count);
        for block in &mut self.blocks {
            block.durable = true;
        }
    }

    /// The committed event with this LSN.
    #[must_use]
    pub fn row(&self, lsn: Lsn) -> &Row {
        &self.rows[lsn.0 as usize - 1]
    }
}

impl Known for Ledger {
    fn stream(&self, stream: usize) -> (u64, u64) {
        let state = &self.streams[stream];
        (state.lsns.len() as u64, state.token)
    }

    fn key(&self, key: IdempotencyKey) -> Option<Place> {
        self.window.iter().find(|(known, _)| *known == key).map(|(_, place)| *place)
    }
}

/// Takes a block apart.
struct Taken<'a> {
    streams: &'a Streams,
    work: &'a Work,
    place: Place,
    hlc: Hlc,
    lsn: Lsn,
}

impl Taken<'_> {
    fn apart(&mut self, block: &Block<'_>) -> (Vec<Appended>, Vec<Row>) {
        let (mut appends, mut rows): (Vec<Appended>, Vec<Row>) = (Vec::new(), Vec::new());
        let mut left = 0;
        let mut recorded: Vec<(usize, Vec<StreamRange>)> = Vec::new();
        for record in block.records() {
            let (at, record) = record.expect("D2: every record can be read");
            let place = Place { offset: self.place.offset + at, ..self.place };
            match record {
                Record::Append(record) => {
                    assert_eq!(left, 0, "A5: an append is whole");
                    left = record.event_count;
                    recorded.push((appends.len(), record.streams().collect()));
                    appends.push(self.append(&record, place));
                }
                Record::Event(record) => {
                    let row = self.event(&record, place);
                    if left == 0 {
                        if row.index == 0 {
                            appends.push(self.bare(row.operation));
                        }
                    } else {
                        left -= 1;
                    }
                    let append = appends.last_mut().expect("A5: an append begins with its first");
                    self.add(append, &row);
                    rows.push(row);
                    self.lsn = self.lsn.next();
                }
            }
        }
        assert_eq!(left, 0, "A5: an append is whole");
        for append in &appends {
            let events = self.work.operations[append.operation].data_lengths.len() as u64;
            assert_eq!(
                append.last_lsn.0,
                append.first_lsn.0 + events - 1,
                "A5: an append is whole"
            );
        }
        for (append, ranges) in recorded {
            let append = &appends[append];
            assert_eq!(append.ranges, ranges, "A6: an append record says what each stream got");
            let key = self.work.operations[append.operation].key;
            assert_eq!(append.key, key, "A6: an append record has the client's key");
        }
        (appends, rows)
    }

    /// An append with a record of its own.
    fn append(&self, record: &AppendRecord<'_>, place: Place) -> Appended {
        assert_eq!(record.first_lsn, self.lsn, "A6: the append record names its first event");
        assert_eq!((record.hlc, record.epoch), (self.hlc, LeaseEpoch(0)), "A6: and its block");
        Appended {
            operation: usize::MAX,
            first_lsn: self.lsn,
            last_lsn: Lsn(self.lsn.0 - 1),
            hlc: self.hlc,
            key: record.key,
            token: record.fencing_token,
            place: Some(place),
            ranges: Vec::new(),
            before: Vec::new(),
        }
    }

    fn bare(&self, operation: usize) -> Appended {
        let (first_lsn, last_lsn) = (self.lsn, Lsn(self.lsn.0 - 1));
        let (key, token, place) = (None, None, None);
        let (ranges, before, hlc) = (Vec::new(), Vec::new(), self.hlc);
        Appended { operation, first_lsn, last_lsn, hlc, key, token, place, ranges, before }
    }

    fn event(&self, record: &EventRecord<'_>, place: Place) -> Row {
        assert_eq!(record.lsn, self.lsn, "A1: LSNs have no gap");
        assert_eq!(record.hlc, self.hlc, "A1: an event has its block's stamp");
        let (operation, index) = ((record.id >> 32) as usize, (record.id & 0xffff_ffff) as usize);
        let event = self.work.event(operation, index);
        assert_eq!(record.kind, event.kind, "A5: an event is what was sent");
        assert_eq!(record.metadata, event.metadata, "A5: an event is what was sent");
        assert!(record.data == event.data, "A5: an event is what was sent");
        let id = duolog_engine::ids::StreamId::of(record.stream.as_bytes());
        let stream = self.streams.index_of(id);
        Row { stream, revision: record.revision, place, operation, index }
    }

    /// Counts an event to its append, which must have all of its operation's in order.
    fn add(&self, append: &mut Appended, row: &Row) {
        let position = (self.lsn.0 - append.first_lsn.0) as usize;
        if append.operation == usize::MAX {
            append.operation = row.operation;
        }
        assert_eq!(append.operation, row.operation, "A5: an append's events lie together");
        assert_eq!(position, row.index, "A5: an append's events keep their order");
        let operation = &self.work.operations[append.operation];
        let mut behind = position as u32;
        let wanted = operation.parts.iter().find(|part| {
            let inside = behind < part.event_count;
            behind = behind.saturating_sub(part.event_count);
            inside
        });
        let wanted = wanted.expect("A5: an append has no event too many");
        assert_eq!(wanted.stream, row.stream, "A5: an event is in the stream it was sent to");
        append.last_lsn = self.lsn;
        self.add_range(append, row);
    }

    fn add_range(&self, append: &mut Appended, row: &Row) {
        let stream = self.streams.ids[row.stream];
        match append.ranges.last_mut().filter(|range| range.stream == stream) {
            Some(range) => range.event_count += 1,
            None => append.ranges.push(StreamRange { stream, first: row.revision, event_count: 1 }),
        }
    }
}
