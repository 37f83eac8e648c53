//! Watches that every shard's thread runs while it has work, and rings its bell when it does not.
//!
//! The runtime can park a thread although tasks are runnable (docs/adr/0002-waking-a-shard.md). A
//! ring costs the shard some microseconds; without it a request could wait for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::inbox::Inbox;

/// How often shards are looked at while one of them has work.
const BUSY: Duration = Duration::from_millis(2);

/// Runs until `ended`; every shard is rung at least every `bound`, whatever it says of its work.
pub fn start(
    inboxes: Arc<[Arc<Inbox>]>,
    bound: Duration,
    ended: Arc<AtomicBool>,
) -> std::io::Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name("watchdog".to_owned());
    thread.spawn(move || watch(&inboxes, bound, &ended))
}

fn watch(inboxes: &[Arc<Inbox>], bound: Duration, ended: &AtomicBool) {
    let mut seen: Vec<u64> = vec![0; inboxes.len()];
    while !ended.load(Ordering::Relaxed) {
        let mut busy = false;
        for (inbox, seen) in inboxes.iter().zip(&mut seen) {
            let ticks = inbox.ticks.load(Ordering::Relaxed);
            let work = inbox.work.load(Ordering::Relaxed) > 0 || inbox.has_messages();
            if ticks == *seen {
                // Idle shards are rung too: a request may have arrived that nobody counted yet.
                inbox.poke();
                inbox.pokes.add(1);
                if work {
                    inbox.rescues.add(1);
                }
            }
            *seen = ticks;
            busy |= work;
        }
        #[expect(clippy::disallowed_methods, reason = "a thread that does nothing but wait")]
        std::thread::sleep(if busy { BUSY.min(bound) } else { bound });
    }
    for (shard, inbox) in inboxes.iter().enumerate() {
        let rescues = inbox.rescues.get();
        tracing::debug!(event = "watchdog", shard, rescues, "bells rung for a shard with work");
    }
}
