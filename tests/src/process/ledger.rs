//! What clients sent and were told, to be held against what the log has in the end.

use std::collections::{BTreeMap, HashMap};

use duolog_engine::append::{AppendBuilder, Expect};
use duolog_engine::ids::IdempotencyKey;
use duolog_net::client::RecordedEvent;
use duolog_net::wire::ErrorCode;

use super::moment::Span;
use super::wire::{Receipt, Wire};

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
                append.event(id, "tested", b"", data).expect("a test's events fit");
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
        check_streams(wire, &logs);
    }

    /// [`Ledger::check`], for logs that were read in another way: all events of each shard.
    ///
    /// # Panics
    /// When anything differs.
    pub fn check_logs(&self, logs: &[Vec<RecordedEvent>]) {
        let found = index(logs);
        let mut known = 0;
        for Entry { operation, fate, .. } in &self.entries {
            let places: Vec<Option<&Found<'_>>> =
                operation.events().map(|(id, _, _)| found.get(&id)).collect();
            let present = places.iter().flatten().count();
            known += present;
            let whole = present == places.len();
            assert!(whole || present == 0, "half an append is in the log: {operation:?}");
            match fate {
                Fate::Acked(_) => assert!(whole, "acknowledged and lost: {operation:?} {fate:?}"),
                Fate::Refused(code) => {
                    assert!(!whole, "refused ({code:?}) and in the log: {operation:?}");
                }
                Fate::Unknown => {}
            }
            for ((_, stream, data), place) in operation.events().zip(&places) {
                let Some(Found { event, .. }) = place else { continue };
                assert_eq!((event.stream.as_str(), event.data.as_slice()), (stream, data));
            }
        }
        assert_eq!(known, found.len(), "the log has events that nobody appended");
        for (operation, receipt) in self.acks() {
            check_receipt(operation, receipt, &found);
        }
        self.check_order();
    }

    /// What was sent after something else had been acknowledged lies behind it in the log.
    ///
    /// # Panics
    /// When it does not.
    pub fn check_order(&self) {
        let mut acks: Vec<(Span, &Receipt)> = Vec::new();
        for entry in &self.entries {
            if let (Fate::Acked(receipt), Some(span)) = (&entry.fate, entry.span) {
                acks.push((span, receipt));
            }
        }
        let mut ended: Vec<&(Span, &Receipt)> = acks.iter().collect();
        ended.sort_by_key(|(span, _)| span.answered_us);
        let mut ended = ended.into_iter().peekable();
        let mut newest: HashMap<u32, u64> = HashMap::new();
        let mut sent: Vec<&(Span, &Receipt)> = acks.iter().collect();
        sent.sort_by_key(|(span, _)| span.sent_us);
        for (span, receipt) in sent {
            while let Some((_, old)) =
                ended.next_if(|(before, _)| before.answered_us < span.sent_us)
            {
                let newest = newest.entry(old.head.shard.0).or_default();
                *newest = (*newest).max(old.head.last_lsn.0);
            }
            let newest = newest.get(&receipt.head.shard.0).copied().unwrap_or_default();
            let first = receipt.head.first_lsn.0;
            assert!(first > newest, "sent after {newest} was acknowledged: {receipt:?}");
        }
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

/// Checks that LSNs and revisions have no gap; the events by their ids.
fn index(logs: &[Vec<RecordedEvent>]) -> HashMap<u128, Found<'_>> {
    let mut found = HashMap::new();
    for (shard, log) in (0..).zip(logs) {
        let mut next: HashMap<&str, u64> = HashMap::new();
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
fn check_streams(wire: &mut Wire, logs: &[Vec<RecordedEvent>]) {
    let mut streams: BTreeMap<&str, Vec<&RecordedEvent>> = BTreeMap::new();
    for event in logs.iter().flatten() {
        streams.entry(&event.stream).or_default().push(event);
    }
    for (name, events) in streams {
        let read = wire.stream(name);
        assert_eq!(read.len(), events.len(), "events of stream {name}");
        let differs = read.iter().zip(&events).find(|(read, event)| read != *event);
        assert!(differs.is_none(), "stream {name} and its log differ: {differs:?}");
    }
}
