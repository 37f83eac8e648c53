//! Clients that read all the time: one asks whoever leads for the ends of streams, others follow
//! the log of each node, some of them slowly and with new connections every few pages.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use duolog_engine::ids::{Lsn, ShardId};
use duolog_net::client::RecordedEvent;
use duolog_net::wire::{Consistency, Direction, ReadLog, ReadStream};
use duolog_tests::process::{Answer, Fate, Ledger, Span, Wire, moment_us, pause};
use duolog_tests::sim::chance::Chance;

/// How long an answer may take before another node is asked.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause after a node did not answer, and between two looks at an end.
const PAUSE: Duration = Duration::from_millis(20);

/// Streams whose ends are asked for.
const STREAMS: [&str; 6] = ["own-0", "own-1", "own-2", "shared-0", "shared-1", "shared-2"];

/// What a leader said of a stream's end.
#[derive(Clone, Copy, Debug)]
pub struct End {
    stream: &'static str,
    span: Span,
    /// Number of its events.
    next: u64,
}

/// What a node showed of its log: the id of the event at each LSN.
#[derive(Debug)]
struct Shown {
    node: usize,
    ids: HashMap<u64, u128>,
}

/// How a log is followed.
#[derive(Clone, Copy, Debug)]
struct Manner {
    node: usize,
    events_max: u32,
    pause: Duration,
    /// Pages until it connects anew.
    pages: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Readers {
    ends: JoinHandle<Vec<End>>,
    logs: Vec<JoinHandle<Shown>>,
    stop: Arc<AtomicBool>,
}

impl Readers {
    /// Begins to read from the two nodes.
    #[must_use]
    pub fn start(nodes: [SocketAddr; 2], seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let ends = std::thread::spawn(move || ask_for_ends(nodes, seed, &asked));
        let manner = |node, slow| Manner {
            node,
            events_max: if slow { 3 } else { 0 },
            pause: if slow { 5 * PAUSE } else { PAUSE / 2 },
            pages: if slow { 5 } else { u32::MAX },
        };
        let manners = [0, 1].into_iter().flat_map(|node| [manner(node, false), manner(node, true)]);
        let logs = manners.map(|manner| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || follow(nodes[manner.node], manner, &stop))
        });
        Self { ends, logs: logs.collect(), stop }
    }

    /// Ends; what was read.
    ///
    /// # Panics
    /// When a reader did.
    pub fn finish(self) -> Reads {
        self.stop.store(true, Ordering::Relaxed);
        let ends = self.ends.join().expect("asking for ends does not panic");
        let join = |thread: JoinHandle<Shown>| thread.join().expect("following does not panic");
        Reads { ends, logs: self.logs.into_iter().map(join).collect() }
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

    /// Q5: each read of an end saw what had been acknowledged before it began, and no less than a
    /// read that ended before. Leans on clocks that keep their bounds.
    ///
    /// # Panics
    /// When one did not.
    pub fn check_fresh(&self, ledger: &Ledger) {
        for stream in STREAMS {
            check_ends(stream, &self.ends, ledger);
        }
    }

    /// R5: whatever a node showed of the log of shard 0 is there in the end, at its place.
    ///
    /// # Panics
    /// When something is not.
    pub fn check_shown(&self, log: &[RecordedEvent]) {
        for Shown { node, ids } in &self.logs {
            for (lsn, id) in ids {
                let found = log.get(*lsn as usize - 1).map(|event| event.id.as_u128());
                assert_eq!(found, Some(*id), "R5: node {node} showed another event at LSN {lsn}");
            }
        }
    }
}

fn ask_for_ends(nodes: [SocketAddr; 2], seed: u64, stop: &AtomicBool) -> Vec<End> {
    let mut chance = Chance::new(seed, "ends of streams");
    let mut ends = Vec::new();
    let mut node = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut ask = || -> io::Result<()> {
            let (mut wire, accepted) = Wire::connect_within(nodes[node], None, PATIENCE)?;
            if !accepted.role.serves() {
                return Err(io::Error::other("it does not lead"));
            }
            while !stop.load(Ordering::Relaxed) {
                let stream = chance.pick(&STREAMS);
                let sent_us = moment_us();
                let page = wire.try_page(&ReadStream {
                    from: ReadStream::END,
                    events_max: 1,
                    direction: Direction::Backwards,
                    ..ReadStream::new(stream)
                })?;
                let span = Span { sent_us, answered_us: moment_us() };
                ends.push(End { stream, span, next: page.tail.stream_next.0 });
                pause(PAUSE / 4);
            }
            Ok(())
        };
        if ask().is_err() {
            node = 1 - node;
            pause(PAUSE);
        }
    }
    ends
}

/// Reads whatever a node shows of its log, whoever leads.
fn follow(node: SocketAddr, manner: Manner, stop: &AtomicBool) -> Shown {
    let mut shown = Shown { node: manner.node, ids: HashMap::new() };
    let mut from = 1;
    while !stop.load(Ordering::Relaxed) {
        let mut read = || -> io::Result<()> {
            let (mut wire, _) = Wire::connect_within(node, None, PATIENCE)?;
            for _ in 0..manner.pages {
                let correlation = wire.send_log(&ReadLog {
                    from: Lsn(from),
                    shard: ShardId(0),
                    events_max: manner.events_max,
                    bytes_max: 0,
                    consistency: Consistency::Any,
                })?;
                let Answer::Log(page) = wire.answer_to(correlation)? else { break };
                for event in page.events {
                    shown.ids.insert(event.lsn.0, event.id.as_u128());
                    from = event.lsn.0 + 1;
                }
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                pause(manner.pause);
            }
            Ok(())
        };
        if read().is_err() {
            pause(PAUSE);
        }
    }
    shown
}

fn check_ends(stream: &str, ends: &[End], ledger: &Ledger) {
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
        let log = wire.log(0, 1);
        let reads = |next, sent_us| {
            let span = Span { sent_us, answered_us: sent_us + 10 };
            let end = End { stream: "own-0", span, next };
            let ids = log.iter().map(|event| (event.lsn.0, event.id.as_u128())).collect();
            Reads { ends: vec![end], logs: vec![Shown { node: 0, ids }] }
        };
        reads(2, 300).check_fresh(&ledger);
        reads(1, 210).check_fresh(&ledger);
        assert!(finds(|| reads(1, 300).check_fresh(&ledger)), "the second event was acknowledged");
        assert!(finds(|| reads(0, 210).check_fresh(&ledger)), "the first one was");
        reads(2, 300).check_shown(&log);
        assert!(finds(|| reads(2, 300).check_shown(&log[..1])), "LSN 2 was shown");
        let swapped = [log[1].clone(), log[0].clone()];
        assert!(finds(|| reads(2, 300).check_shown(&swapped)), "another event was shown there");
        ledger.check_order();
        let mut turned = ledger.clone();
        let first = ledger.entries()[0].clone();
        let late = Span { sent_us: 400, answered_us: 450 };
        turned.note(first.operation, first.fate, Some(late));
        assert!(finds(|| turned.check_order()), "sent last, and first in the log");
    }
}
