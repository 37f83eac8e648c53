//! One client that appends as fast as it is answered, or at a pace, through every change of the
//! lead, and keeps a journal of what it was told. Every append has an idempotency key and is sent
//! again until it is acknowledged, so the journal has no holes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use duolog_net::client::{Client, Error, Event, Receipt, Uuid};

use super::PairError;
use crate::generator::clock::{Clock, pause};

/// One attempt of the client library, its own repetitions included.
const ATTEMPT: Duration = Duration::from_secs(10);
/// Attempts at one append before the writer gives up.
const ATTEMPTS_MAX: u32 = 12;
/// Between two looks at the journal.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Type of its events.
const KIND: &str = "Tried";

/// An acknowledged append: event `n` of the journal is number `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Position in the shard's log.
    pub lsn: u64,
    /// Position in the stream.
    pub revision: u64,
    /// When it was told, ns of the writer's clock.
    pub at_ns: u64,
}

/// What the writer and its owner share.
#[derive(Debug)]
struct Shared {
    journal: Mutex<Vec<Ack>>,
    stop: AtomicBool,
    pace_us: AtomicU64,
    clock: Clock,
}

/// See the module. Dropping it lets the thread end after the append under way.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<(), PairError>>>,
    /// The stream it writes.
    pub stream: String,
}

impl Writer {
    /// Starts to append to a stream of its own through `addresses`.
    pub fn start(addresses: String, run_id: u64) -> Result<Self, PairError> {
        let stream = format!("trial-{run_id:016x}");
        let shared = Arc::new(Shared {
            journal: Mutex::default(),
            stop: AtomicBool::new(false),
            pace_us: AtomicU64::new(0),
            clock: Clock::start(),
        });
        let (theirs, name) = (Arc::clone(&shared), stream.clone());
        let thread = std::thread::Builder::new().name("writer".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(PairError::Runtime)?;
            runtime.block_on(write(&theirs, &addresses, &name, run_id))
        });
        let thread = Some(thread.map_err(PairError::Runtime)?);
        Ok(Self { shared, thread, stream })
    }

    /// Pause between an ack and the next append.
    pub fn pace(&self, between: Duration) {
        let between_us = u64::try_from(between.as_micros()).unwrap_or(u64::MAX);
        self.shared.pace_us.store(between_us, Ordering::Relaxed);
    }

    /// Now, on the clock of the journal.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.shared.clock.now_ns()
    }

    /// Waits for an ack that comes later than `after_ns`.
    pub fn wait_for_ack(&self, after_ns: u64, limit: Duration) -> Result<(), PairError> {
        let clock = Clock::start();
        loop {
            if self.journal().last().is_some_and(|ack| ack.at_ns > after_ns) {
                return Ok(());
            }
            let ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            if ended || u128::from(clock.now_ns()) > limit.as_nanos() {
                return Err(PairError::NoAck { after_s: limit.as_secs() });
            }
            pause(LOOK_EVERY);
        }
    }

    /// The longest time without an ack that ended at or after `from_ns`, ms.
    #[must_use]
    pub fn longest_pause_ms(&self, from_ns: u64) -> Option<f64> {
        longest_pause_ms(&self.journal(), from_ns)
    }

    /// Ends the writer: all it was told.
    pub fn finish(mut self) -> Result<Vec<Ack>, PairError> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("only finish() and drop take it, and both end it");
        match thread.join() {
            Ok(outcome) => outcome?,
            Err(_) => return Err(PairError::WriterPanicked),
        }
        Ok(std::mem::take(&mut *self.journal()))
    }

    fn journal(&self) -> MutexGuard<'_, Vec<Ack>> {
        self.shared.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

/// The payload of event `number`.
fn payload(number: u64) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

/// The number in a payload of the writer.
#[must_use]
pub fn number_of(payload: &[u8]) -> Option<u64> {
    payload.try_into().ok().map(u64::from_le_bytes)
}

fn longest_pause_ms(journal: &[Ack], from_ns: u64) -> Option<f64> {
    let first = journal.partition_point(|ack| ack.at_ns < from_ns);
    let pairs = journal[first.saturating_sub(1)..].windows(2);
    let longest_ns = pairs.map(|pair| pair[1].at_ns - pair[0].at_ns).max()?;
    Some(longest_ns as f64 / 1e6)
}

async fn write(
    shared: &Shared,
    addresses: &str,
    stream: &str,
    run_id: u64,
) -> Result<(), PairError> {
    let client = Client::builder().addresses(addresses).deadline(ATTEMPT).connect().await;
    let client = client.map_err(PairError::client("connect"))?;
    let mut number = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        let receipt = append(&client, stream, run_id, number).await?;
        let ack = Ack {
            lsn: receipt.first_lsn.0,
            revision: receipt.streams[0].first.0,
            at_ns: shared.clock.now_ns(),
        };
        shared.journal.lock().unwrap_or_else(PoisonError::into_inner).push(ack);
        number += 1;
        let pace_us = shared.pace_us.load(Ordering::Relaxed);
        if pace_us > 0 {
            tokio::time::sleep(Duration::from_micros(pace_us)).await;
        }
    }
    Ok(())
}

async fn append(
    client: &Client,
    stream: &str,
    run_id: u64,
    number: u64,
) -> Result<Receipt, PairError> {
    let key = Uuid::from_u128((u128::from(run_id) << 64) | u128::from(number));
    let mut attempt = 0;
    loop {
        let call = client.append(stream).event(Event::new(KIND, payload(number)));
        match call.idempotency_key(key).send().await {
            Ok(receipt) => return Ok(receipt),
            Err(error) if attempt < ATTEMPTS_MAX && may_pass(&error) => attempt += 1,
            Err(error) => return Err(PairError::client("append")(error)),
        }
    }
}

/// Whether asking again may help.
const fn may_pass(error: &Error) -> bool {
    matches!(
        error,
        Error::Busy { .. }
            | Error::ShuttingDown { .. }
            | Error::NotLeader { .. }
            | Error::Unknown { .. }
            | Error::Deadline { .. }
            | Error::Connect { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(times_ms: &[u64]) -> Vec<Ack> {
        let ack = |(number, at_ms): (usize, &u64)| {
            let position = number as u64;
            Ack { lsn: position + 1, revision: position, at_ns: at_ms * 1_000_000 }
        };
        times_ms.iter().enumerate().map(ack).collect()
    }

    /// A pause that began before the moment in question and ended after it counts whole. Broken if
    /// a kill shortly after an ack looked shorter than clients felt it.
    #[test]
    fn a_pause_across_the_moment_counts_whole() {
        let journal = journal(&[0, 100, 110, 150, 155]);
        assert_eq!(longest_pause_ms(&journal, 0), Some(100.0));
        assert_eq!(longest_pause_ms(&journal, 60_000_000), Some(100.0));
        assert_eq!(longest_pause_ms(&journal, 105_000_000), Some(40.0));
        assert_eq!(longest_pause_ms(&journal, 160_000_000), None);
        assert_eq!(longest_pause_ms(&[], 0), None);
    }

    #[test]
    fn numbers_come_back_from_payloads() {
        assert_eq!(number_of(&payload(77)), Some(77));
        assert_eq!(number_of(b"else"), None);
    }
}
