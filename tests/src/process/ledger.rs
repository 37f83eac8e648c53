//! What clients sent and were told, to be held against what the log has in the end.

use std::collections::{BTreeMap, HashMap};

use duolog_engine::append::{AppendBuilder, Expect};
use duolog_engine::ids::IdempotencyKey;
use duolog_net::client::RecordedEvent;
use duolog_net::wire::{Consistency, ErrorCode, ReadStream};

use super::moment::Span;
use super::wire::{Receipt, Wire};

/// The type of every event; its metadata is its id.
const KIND: &str = "tested";

/// One stream of an operation.
#[derive(Clone, Debug)]
pub struct StreamPart {
    /// Its name.
    pub name: String,
    /// What is expected of it.
    pub expect: Expect,
    /// The data of its events; none: only checked.
    pub events: Vec<Vec<u8>>,
}

/// An append as a client means it: the same bytes however often it is sent.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Its key; the ids of its events follow it.
    pub key: u128,
    /// Its fencing token.
    pub token: Option<u64>,
    /// Its streams.
    pub parts: Vec<StreamPart>,
}

impl Operation {
    /// An append of one event to one stream.
    #[must_use]
    pub fn single(key: u128, stream: &str, expect: Expect, data: &[u8]) -> Self {
        let events = vec![data.to_vec()];
        let part = StreamPart { name: stream.to_owned(), expect, events };
        Self { key, token: None, parts: vec![part] }
    }

    /// The request.
    ///
    /// # Panics
    /// When names do not fit.
    #[must_use]
    pub fn request(&self) -> AppendBuilder {
        let mut append = AppendBuilder::new();
        append.key(IdempotencyKey(self.key));
        if let Some(token) = self.token {
            append.fencing_token(token);
        }
        let mut id = self.key;
        for part in &self.parts {
            append.stream(&part.name, part.expect).expect("a test's names fit");
            for data in &part.events {
                id += 1;
                let metadata = id.to_le_bytes();
                append.event(id, KIND, &metadata, data).expect("a test's events fit");
            }
        }
        append
    }

    /// Id, stream and data of each event.
    pub fn events(&self) -> impl Iterator<Item = (u128, &str, &[u8])> {
        let named = |part: &'_ StreamPart| part.events.len();
        let count: usize = self.parts.iter().map(named).sum();
        let flat = self
            .parts
            .iter()
            .flat_map(|part| part.events.iter().map(|data| (part.name.as_str(), data.as_slice())));
        (1..=count as u128).zip(flat).map(|(index, (name, data))| (self.key + index, name, data))
    }
}

/// What became of an operation, as far as its client knows.
#[derive(Clone, Debug)]
pub enum Fate {
    /// It is in the log.
    Acked(Receipt),
    /// It is not.
    Refused(ErrorCode),
    /// It may be.
    Unknown,
}

/// An operation and what became of it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What was sent.
    pub operation: Operation,
    /// What its client knows.
    pub fate: Fate,
    /// When, if that was noted; of an operation without an answer the end is when it was given up.
    pub span: Option<Span>,
}

/// Operations and what became of them.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    entries: Vec<Entry>,
}

impl Ledger {
    /// The server said yes.
    pub fn acked(&mut self, operation: Operation, receipt: Receipt) {
        self.note(operation, Fate::Acked(receipt), None);
    }

    /// Whatever the server said, and when.
    pub fn note(&mut self, operation: Operation, fate: Fate, span: Option<Span>) {
        self.entries.push(Entry { operation, fate, span });
    }

    /// All operations.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The server said no.
    pub fn refused(&mut self, operation: Operation, code: ErrorCode) {
        self.note(operation, Fate::Refused(code), None);
    }

    /// The server did not say.
    pub fn unknown(&mut self, operation: Operation) {
        self.note(operation, Fate::Unknown, None);
    }

    /// Takes over the entries of another client.
    pub fn join(&mut self, other: Self) {
        self.entries.extend(other.entries);
    }

    /// How many were acknowledged.
    #[must_use]
    pub fn acked_count(&self) -> usize {
        self.acks().count()
    }

    /// How many were refused with this code.
    #[must_use]
    pub fn refused_count(&self, code: ErrorCode) -> usize {
        let refused = |fate: &Fate| matches!(fate, Fate::Refused(found) if *found == code);
        self.entries.iter().filter(|entry| refused(&entry.fate)).count()
    }

    /// How many had no answer.
    #[must_use]
    pub fn unknown_count(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(entry.fate, Fate::Unknown)).count()
    }

    fn acks(&self) -> impl Iterator<Item = (&Operation, &Receipt)> {
        self.entries.iter().filter_map(|entry| match &entry.fate {
            Fate::Acked(receipt) => Some((&entry.operation, receipt)),
            _ => None,
        })
    }

    /// Reads every shard's log and every stream that was written to through `wire`, and holds them
    /// against what clients were told: each acknowledged event once and at the place told, each
    /// append whole or not at all, nothing that was refused, nothing unheard of, no gap.
    ///
    /// # Panics
    /// When anything differs.
    pub fn check(&self, wire: &mut Wire, shards: u32) {
        let logs: Vec<Vec<RecordedEvent>> = (0..shards).map(|shard| wire.log(shard, 1)).collect();
        self.check_logs(&logs);
        check_streams(wire, &logs, Consistency::Linearizable);
    }

    /// [`Ledger::check`], for logs that were read in another way: all events of each shard.
    ///
    /// # Panics
    /// When anything differs.
    pub fn check_logs(&self, logs: &[Vec<RecordedEvent>]) {
        let found = index(logs);
        let (mut known, mut landed) = (0, Vec::new());
        for Entry { operation, fate, span } in &self.entries {
            let places: Vec<Option<&Found<'_>>> =
                operation.events().map(|(id, _, _)| found.get(&id)).collect();
            let places: Vec<&Found<'_>> = places.into_iter().flatten().collect();
            known += places.len();
            let whole = places.len() == operation.events().count();
            assert!(whole || places.is_empty(), "half an append is in the log: {operation:?}");
            match fate {
                Fate::Acked(_) => assert!(whole, "acknowledged and lost: {operation:?} {fate:?}"),
                Fate::Refused(code) => {
                    assert!(!whole, "refused ({code:?}) and in the log: {operation:?}");
                }
                Fate::Unknown => {}
            }
            if let (Some(first), Some(last)) = (places.first(), places.last()) {
                check_place(operation, &places);
                landed.push(Landed::of(*span, fate, first, last));
            }
        }
        assert_eq!(known, found.len(), "the log has events that nobody appended");
        for (operation, receipt) in self.acks() {
            check_receipt(operation, receipt, &found);
        }
        check_order(&landed);
    }

    /// Asks for up to `count` acknowledged appends again, spread over the whole ledger: each gets
    /// its first answer, marked as a replay.
    ///
    /// # Panics
    /// When one does not.
    pub fn check_replays(&self, wire: &mut Wire, count: usize) {
        let step = (self.acked_count() / count.max(1)).max(1);
        for (operation, receipt) in self.acks().step_by(step) {
            let mut answer = wire.append(&operation.request()).receipt();
            answer.head.copies = receipt.head.copies; // there may be more by now
            assert_eq!(answer, receipt.replayed(), "the answer to a retry of {operation:?}");
        }
    }
}

struct Found<'a> {
    shard: u32,
    event: &'a RecordedEvent,
}

/// An append that is in the log.
struct Landed {
    /// Of one without an answer the end is never.
    span: Option<Span>,
    shard: u32,
    lsns: [u64; 2],
}

impl Landed {
    fn of(span: Option<Span>, fate: &Fate, first: &Found<'_>, last: &Found<'_>) -> Self {
        let known = matches!(fate, Fate::Acked(_));
        let answered = |span: Span| if known { span.answered_us } else { u64::MAX };
        let span = span.map(|span| Span { answered_us: answered(span), ..span });
        Self { span, shard: first.shard, lsns: [first.event.lsn.0, last.event.lsn.0] }
    }
}

/// What was sent after something else had been acknowledged lies behind it in the log.
fn check_order(landed: &[Landed]) {
    let timed = || landed.iter().filter_map(|one| Some((one.span?, one)));
    let mut ended: Vec<(Span, &Landed)> = timed().collect();
    ended.sort_by_key(|(span, _)| span.answered_us);
    let mut ended = ended.into_iter().peekable();
    let mut sent: Vec<(Span, &Landed)> = timed().collect();
    sent.sort_by_key(|(span, _)| span.sent_us);
    let mut newest: HashMap<u32, u64> = HashMap::new();
    for (span, Landed { shard, lsns: [first, _], .. }) in sent {
        while let Some((_, old)) = ended.next_if(|(before, _)| before.answered_us < span.sent_us) {
            let newest = newest.entry(old.shard).or_default();
            *newest = (*newest).max(old.lsns[1]);
        }
        let newest = newest.get(shard).copied().unwrap_or_default();
        assert!(*first > newest, "LSN {first} was sent after {newest} had been acknowledged");
    }
}

/// The events of an append lie together, as they were sent, and where it expected them.
fn check_place(operation: &Operation, places: &[&Found<'_>]) {
    let (shard, base) = (places[0].shard, places[0].event.lsn.0);
    for ((id, stream, data), (lsn, place)) in operation.events().zip((base..).zip(places)) {
        let event = place.event;
        assert_eq!((place.shard, event.lsn.0), (shard, lsn), "it lies apart: {operation:?}");
        assert_eq!((event.stream.as_str(), event.data.as_slice()), (stream, data));
        let beside = (event.kind.as_str(), event.metadata.as_slice());
        assert_eq!(beside, (KIND, id.to_le_bytes().as_slice()), "{operation:?}");
    }
    let mut at = 0;
    for part in operation.parts.iter().filter(|part| !part.events.is_empty()) {
        let first = places[at].event.revision;
        assert!(part.expect.holds(first), "it is at {first:?}: {operation:?}");
        at += part.events.len();
    }
}

/// Checks that LSNs and revisions have no gap; the events by their ids.
fn index(logs: &[Vec<RecordedEvent>]) -> HashMap<u128, Found<'_>> {
    let mut found = HashMap::new();
    for (shard, log) in (0..).zip(logs) {
        let mut next: HashMap<&str, u64> = HashMap::new();
        let back = log.windows(2).find(|two| two[0].hlc > two[1].hlc);
        assert!(back.is_none(), "the stamps of shard {shard} go back: {back:?}");
        for (lsn, event) in (1..).zip(log) {
            assert_eq!(event.lsn.0, lsn, "the log of shard {shard} has no gap");
            let next = next.entry(&event.stream).or_default();
            assert_eq!(event.revision.0, *next, "stream {} has no gap", event.stream);
            *next += 1;
            let twice = found.insert(event.id.as_u128(), Found { shard, event });
            assert!(twice.is_none(), "an event is there twice: {event:?}");
        }
    }
    found
}

fn check_receipt(operation: &Operation, receipt: &Receipt, found: &HashMap<u128, Found<'_>>) {
    let written = operation.parts.iter().filter(|part| !part.events.is_empty());
    assert_eq!(written.clone().count(), receipt.spans.len(), "{operation:?} {receipt:?}");
    let mut revisions = Vec::new();
    for (part, span) in written.zip(&receipt.spans) {
        assert_eq!(part.events.len(), span.event_count as usize, "{operation:?} {receipt:?}");
        revisions.extend((0..u64::from(span.event_count)).map(|index| span.first.0 + index));
        let refused = !part.expect.holds(span.first);
        assert!(!refused, "accepted against its expectation: {operation:?} {receipt:?}");
    }
    let lsns = receipt.head.first_lsn.0..=receipt.head.last_lsn.0;
    assert_eq!(lsns.clone().count(), revisions.len(), "{operation:?} {receipt:?}");
    for ((id, ..), (lsn, revision)) in operation.events().zip(lsns.zip(revisions)) {
        let Found { shard, event } = &found[&id];
        let place = (*shard, event.lsn.0, event.revision.0, event.hlc);
        let told = (receipt.head.shard.0, lsn, revision, receipt.head.hlc);
        assert_eq!(place, told, "place of an event of {operation:?}");
    }
}

/// Streams read by name are what the logs have of them.
///
/// # Panics
/// When they are not.
pub fn check_streams(wire: &mut Wire, logs: &[Vec<RecordedEvent>], consistency: Consistency) {
    let mut streams: BTreeMap<&str, Vec<&RecordedEvent>> = BTreeMap::new();
    for event in logs.iter().flatten() {
        streams.entry(&event.stream).or_default().push(event);
    }
    for (name, events) in streams {
        let read = wire.walk(&ReadStream { consistency, ..ReadStream::new(name) });
        assert_eq!(read.len(), events.len(), "events of stream {name}");
        let differs = read.iter().zip(&events).find(|(read, event)| read != *event);
        assert!(differs.is_none(), "stream {name} and its log differ: {differs:?}");
    }
}
