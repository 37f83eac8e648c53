//! Clients that all append to one stream, each with the revision it expects: of those that expect
//! the same one wins, and nobody is told so twice.

use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duolog_engine::append::Expect;
use duolog_engine::ids::Revision;
use duolog_net::wire::ErrorCode;
use duolog_tests::process::{
    Answer, Fate, Ledger, Operation, Span, Stopwatch, Wire, end_of, moment_us, pause,
};

const STREAM: &str = "contended";
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);
/// How long the whole may take.
const LIMIT: Duration = Duration::from_secs(60);

struct Contender<'a> {
    nodes: [SocketAddr; 2],
    /// The upper half of its keys.
    number: u64,
    won: &'a AtomicU64,
    goal: u64,
    ledger: Ledger,
}

/// Lets `count` clients append until `goal` appends are acknowledged; `round` tells their keys
/// apart from those of an earlier call.
///
/// # Panics
/// When it takes too long, or somebody is told something that makes no sense.
pub fn contend(nodes: [SocketAddr; 2], round: u64, count: usize, goal: u64) -> Ledger {
    let (won, all) = (AtomicU64::new(0), Mutex::new(Ledger::default()));
    std::thread::scope(|scope| {
        for number in 0..count as u64 {
            let number = (1 << 40) + (round << 20) + number;
            let (won, all) = (&won, &all);
            scope.spawn(move || {
                let ledger = Ledger::default();
                let mut contender = Contender { nodes, number, won, goal, ledger };
                contender.run();
                all.lock().expect("nobody panics while holding it").join(contender.ledger);
            });
        }
    });
    all.into_inner().expect("all have ended well")
}

impl Contender<'_> {
    fn run(&mut self) {
        let (watch, mut node, mut sequence) = (Stopwatch::start(), 0, 0);
        while self.won.load(Ordering::Relaxed) < self.goal {
            assert!(watch.elapsed() < LIMIT, "{} appends are not acknowledged", self.goal);
            sequence += 1;
            if self.turn(self.nodes[node], sequence).is_err() {
                node = 1 - node;
                pause(PAUSE);
            }
        }
    }

    /// One connection, on which it goes on until something fails.
    fn turn(&mut self, node: SocketAddr, turn: u64) -> io::Result<()> {
        let (mut wire, accepted) = Wire::connect_within(node, None, PATIENCE)?;
        if !accepted.role.serves() {
            return Err(io::Error::other("it does not lead"));
        }
        let mut sequence = 0;
        while self.won.load(Ordering::Relaxed) < self.goal {
            sequence += 1;
            let end = wire.try_page(&end_of(STREAM))?;
            let expect = match end.tail.stream_next.0 {
                0 => Expect::NoStream,
                next => Expect::Exact(Revision(next - 1)),
            };
            let key = u128::from(self.number) << 64 | u128::from(turn) << 48 | sequence << 16;
            let data = key.to_le_bytes();
            let operation = Operation::single(key, STREAM, expect, &data);
            let sent_us = moment_us();
            let answer = wire.try_append(&operation.request());
            let span = Some(Span { sent_us, answered_us: moment_us() });
            match answer {
                Ok(Answer::Appended(receipt)) => {
                    self.won.fetch_add(1, Ordering::Relaxed);
                    self.ledger.note(operation, Fate::Acked(receipt), span);
                }
                Ok(Answer::Refused(refused)) if refused.code == ErrorCode::Conflict => {
                    self.ledger.note(operation, Fate::Refused(refused.code), span);
                }
                Ok(Answer::Refused(refused)) => {
                    self.ledger.note(operation, Fate::Unknown, span);
                    return Err(io::Error::other(refused.text));
                }
                Ok(other) => panic!("{operation:?} was answered by {other:?}"),
                Err(error) => {
                    self.ledger.note(operation, Fate::Unknown, span);
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}
