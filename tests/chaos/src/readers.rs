//! Clients that read all the time. One for each node asks it for the ends of streams, whatever it
//! is, and waits long: a leader that was stopped and goes on finds its question waiting. Others
//! follow the logs of each node, some of them slowly and with new connections every few pages.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use duolog_engine::ids::{Lsn, ShardId};
use duolog_net::client::RecordedEvent;
use duolog_net::wire::{Consistency, ReadLog, ReadStream};
use duolog_tests::process::{Answer, Fate, Ledger, Span, Wire, end_of, moment_us, pause};
use duolog_tests::sim::chance::Chance;

/// How long a node may take to say hello.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a question may wait: longer than any node is stopped in its tracks.
const LONG_PATIENCE: Duration = Duration::from_secs(20);
/// Pause after a node did not answer.
const PAUSE: Duration = Duration::from_millis(20);
/// A slow reader that comes back begins so far before the end.
const RECENT_EVENTS: u64 = 5;

/// Streams whose ends are asked for.
const STREAMS: [&str; 6] = ["own-0", "own-1", "own-2", "shared-0", "shared-1", "shared-2"];

/// What a node said of a stream's end.
#[derive(Clone, Copy, Debug)]
struct End {
    stream: &'static str,
    span: Span,
    /// Number of its events.
    next: u64,
}

/// What a node showed of a shard's log: the id of the event at each LSN.
#[derive(Debug)]
struct Shown {
    node: usize,
    shard: u32,
    ids: HashMap<u64, u128>,
}

/// How a log is followed.
#[derive(Clone, Copy, Debug)]
struct Manner {
    node: usize,
    address: SocketAddr,
    shard: u32,
    slow: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Readers {
    ends: Vec<JoinHandle<Vec<End>>>,
    logs: Vec<JoinHandle<Shown>>,
    stop: Arc<AtomicBool>,
}

impl Readers {
    /// Begins to read from the two nodes, ends with this `consistency`.
    #[must_use]
    pub fn start(nodes: [SocketAddr; 2], shards: u32, consistency: Consistency, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ends = nodes.into_iter().zip(seed..).map(|(node, seed)| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || ask_for_ends(node, consistency, seed, &stop))
        });
        let ends = ends.collect();
        let mut manners = Vec::new();
        for (node, address) in nodes.into_iter().enumerate() {
            for shard in 0..shards {
                manners.push(Manner { node, address, shard, slow: false });
                manners.push(Manner { node, address, shard, slow: true });
            }
        }
        let logs = manners.into_iter().map(|manner| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || manner.follow(&stop))
        });
        Self { ends, logs: logs.collect(), stop }
    }

    /// Ends; what was read.
    ///
    /// # Panics
    /// When a reader did.
    pub fn finish(self) -> Reads {
        self.stop.store(true, Ordering::Relaxed);
        let mut reads = Reads { ends: Vec::new(), logs: Vec::new() };
        for thread in self.ends {
            reads.ends.extend(thread.join().expect("asking for ends does not panic"));
        }
        for thread in self.logs {
            reads.logs.push(thread.join().expect("following a log does not panic"));
        }
        reads
    }
}

/// What was read.
#[derive(Debug)]
pub struct Reads {
    ends: Vec<End>,
    logs: Vec<Shown>,
}

impl Reads {
    /// Answers to reads of an end, and events seen by those who follow a log.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ends.len() + self.logs.iter().map(|shown| shown.ids.len()).sum::<usize>()
    }

    /// Q5: each read of an end saw what had been acknowledged before it began, no less than a read
    /// that ended before, and nothing that is not there in the end.
    ///
    /// # Panics
    /// When one did not.
    pub fn check_ends(&self, ledger: &Ledger, logs: &[Vec<RecordedEvent>]) {
        for stream in STREAMS {
            let events = logs.iter().flatten().filter(|event| event.stream == stream).count();
            check_ends(stream, events as u64, &self.ends, ledger);
        }
    }

    /// R5: whatever a node showed of a shard's log is there in the end, at its place.
    ///
    /// # Panics
    /// When something is not.
    pub fn check_shown(&self, logs: &[Vec<RecordedEvent>]) {
        for Shown { node, shard, ids } in &self.logs {
            let log = &logs[*shard as usize];
            for (lsn, id) in ids {
                let found = log.get(*lsn as usize - 1).map(|event| event.id.as_u128());
                assert_eq!(found, Some(*id), "R5: node {node} showed another event at LSN {lsn}");
            }
        }
    }
}

fn ask_for_ends(
    node: SocketAddr,
    consistency: Consistency,
    seed: u64,
    stop: &AtomicBool,
) -> Vec<End> {
    let mut chance = Chance::new(seed, "ends of streams");
    let mut ends = Vec::new();
    let mut ask = || -> io::Result<()> {
        let (mut wire, _) = Wire::connect_within(node, None, PATIENCE)?;
        wire.patience(LONG_PATIENCE)?;
        while !stop.load(Ordering::Relaxed) {
            let stream = chance.pick(&STREAMS);
            let sent_us = moment_us();
            let correlation = wire.send_read(&ReadStream { consistency, ..end_of(stream) })?;
            match wire.answer_to(correlation)? {
                Answer::Stream(page) => {
                    let span = Span { sent_us, answered_us: moment_us() };
                    ends.push(End { stream, span, next: page.tail.stream_next.0 });
                    pause(PAUSE / 4);
                }
                // It does not lead: it may again.
                _ => pause(PAUSE),
            }
        }
        Ok(())
    };
    while !stop.load(Ordering::Relaxed) {
        if ask().is_err() {
            pause(PAUSE);
        }
    }
    ends
}

impl Manner {
    /// Reads whatever the node shows of its log, whoever leads.
    fn follow(self, stop: &AtomicBool) -> Shown {
        let mut shown = Shown { node: self.node, shard: self.shard, ids: HashMap::new() };
        let mut from = 1;
        while !stop.load(Ordering::Relaxed) {
            if self.read(&mut from, &mut shown, stop).is_err() {
                pause(PAUSE);
            }
        }
        shown
    }

    /// One connection: a fast reader keeps it, a slow one takes five pages of three events.
    fn read(self, from: &mut u64, shown: &mut Shown, stop: &AtomicBool) -> io::Result<()> {
        let (mut wire, _) = Wire::connect_within(self.address, None, PATIENCE)?;
        let (events_max, rest, pages) =
            if self.slow { (3, 5 * PAUSE, 5) } else { (0, PAUSE / 2, u32::MAX) };
        for page_number in 0..pages {
            let correlation = wire.send_log(&ReadLog {
                from: Lsn(*from),
                shard: ShardId(self.shard),
                events_max,
                bytes_max: 0,
                consistency: Consistency::Any,
            })?;
            let Answer::Log(page) = wire.answer_to(correlation)? else {
                return Err(io::Error::other("it shows nothing now"));
            };
            for event in page.events {
                let (node, lsn) = (self.node, event.lsn.0);
                assert_eq!(lsn, *from, "R5: node {node} leaves something out");
                *from = lsn + 1;
                let known = shown.ids.insert(lsn, event.id.as_u128());
                let same = known.is_none_or(|known| known == event.id.as_u128());
                assert!(same, "R5: node {node} shows two events at LSN {lsn}");
            }
            if self.slow && page_number == 0 {
                // From here on near the end, where it matters what is committed.
                *from = page.tail.committed.0.saturating_sub(RECENT_EVENTS) + 1;
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
            pause(rest);
        }
        Ok(())
    }
}

fn check_ends(stream: &str, events: u64, ends: &[End], ledger: &Ledger) {
    // When something was known, and the number of events that were there then.
    let mut known: Vec<(u64, u64)> = Vec::new();
    for entry in ledger.entries() {
        let (Fate::Acked(receipt), Some(span)) = (&entry.fate, entry.span) else { continue };
        let written = entry.operation.parts.iter().filter(|part| !part.events.is_empty());
        for (part, spot) in written.zip(&receipt.spans) {
            if part.name == stream {
                known.push((span.answered_us, spot.first.0 + u64::from(spot.event_count)));
            }
        }
    }
    let mut reads: Vec<&End> = ends.iter().filter(|end| end.stream == stream).collect();
    known.extend(reads.iter().map(|end| (end.span.answered_us, end.next)));
    known.sort_unstable();
    let mut known = known.into_iter().peekable();
    reads.sort_by_key(|end| end.span.sent_us);
    let mut least = 0;
    for end in reads {
        while let Some((_, next)) = known.next_if(|(at, _)| *at < end.span.sent_us) {
            least = least.max(next);
        }
        assert!(end.next >= least, "Q5: {least} events were known before {end:?}");
        assert!(end.next <= events, "Q5: there are {events} events in the end, {end:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use duolog_engine::append::Expect;
    use duolog_tests::process::{Operation, ServerOptions, scratch};

    use super::*;

    fn finds(check: impl FnOnce()) -> bool {
        catch_unwind(AssertUnwindSafe(check)).is_err()
    }

    /// Promised: a read that misses what was acknowledged before it, and an event that was shown
    /// and is not there in the end, are found.
    /// Provoked: real appends, and reads that are made up.
    /// Broken: a check that passes what is wrong, or refuses what is right.
    #[test]
    fn wrong_reads_are_found() {
        let folder = scratch();
        let server = ServerOptions::new(folder.path().join("data")).tiny_segments().start();
        let mut wire = Wire::connect(server.address()).expect("the server takes clients");
        let mut ledger = Ledger::default();
        for number in 1..=2_u64 {
            let key = u128::from(number) << 32;
            let operation = Operation::single(key, "own-0", Expect::Any, b"event");
            let receipt = wire.append(&operation.request()).receipt();
            let span = Span { sent_us: 100 * number, answered_us: 100 * number + 50 };
            ledger.note(operation, Fate::Acked(receipt), Some(span));
        }
        let logs = [wire.log(0, 1)];
        let reads = |next, sent_us| {
            let span = Span { sent_us, answered_us: sent_us + 10 };
            let end = End { stream: "own-0", span, next };
            let ids = logs[0].iter().map(|event| (event.lsn.0, event.id.as_u128())).collect();
            Reads { ends: vec![end], logs: vec![Shown { node: 0, shard: 0, ids }] }
        };
        let ends_are_wrong = |next, at| finds(|| reads(next, at).check_ends(&ledger, &logs));
        assert!(!ends_are_wrong(2, 300));
        assert!(!ends_are_wrong(1, 210), "the second event was under way");
        assert!(ends_are_wrong(1, 300), "the second event was acknowledged");
        assert!(ends_are_wrong(0, 210), "the first one was");
        assert!(ends_are_wrong(3, 300), "there is no third one");
        reads(2, 300).check_shown(&logs);
        let short = [logs[0][..1].to_vec()];
        assert!(finds(|| reads(2, 300).check_shown(&short)), "LSN 2 was shown");
        let swapped = [vec![logs[0][1].clone(), logs[0][0].clone()]];
        assert!(finds(|| reads(2, 300).check_shown(&swapped)), "another event was shown there");
        ledger.check_logs(&logs);
        let mut turned = Ledger::default();
        for (entry, sent_us) in ledger.entries().iter().zip([400, 300]) {
            let span = Span { sent_us, answered_us: sent_us + 50 };
            turned.note(entry.operation.clone(), entry.fate.clone(), Some(span));
        }
        assert!(finds(|| turned.check_logs(&logs)), "sent last, and first in the log");
    }
}
