//! Whether the shards run: each counts its turns, and a count that stands still for several looks
//! belongs to a shard that hangs.
//!
//! Looks are counted and not time: a process that was stopped as a whole and goes on has missed
//! looks, not turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Site;
use super::limits::{PULSE_LOOK, PULSE_SILENT_LOOKS};
use crate::serve::life::Phase;

#[derive(Debug, Default)]
struct Beat {
    turns: AtomicU64,
    silent_looks: AtomicU32,
}

/// See the module.
#[derive(Debug)]
pub struct Pulse {
    shards: Vec<Beat>,
}

impl Pulse {
    /// Of shards that are not known to hang.
    #[must_use]
    pub fn new(shard_count: usize) -> Self {
        Self { shards: (0..shard_count).map(|_| Beat::default()).collect() }
    }

    /// One look: how many turns each shard has had so far.
    pub fn look(&self, turns: impl Iterator<Item = u64>) {
        for (beat, turns) in self.shards.iter().zip(turns) {
            if beat.turns.swap(turns, Ordering::Relaxed) == turns {
                beat.silent_looks.fetch_add(1, Ordering::Relaxed);
            } else {
                beat.silent_looks.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Whether this shard hangs.
    #[must_use]
    pub fn hangs(&self, shard: usize) -> bool {
        let beat = self.shards.get(shard);
        beat.is_some_and(|beat| beat.silent_looks.load(Ordering::Relaxed) >= PULSE_SILENT_LOOKS)
    }
}

/// Looks for as long as the shards run.
pub(super) async fn watch(site: Arc<Site>) {
    loop {
        tokio::time::sleep(PULSE_LOOK).await;
        if site.life.phase() == Phase::Serving {
            // An idle shard runs by itself ten times a second; a bell makes sure.
            site.inboxes.iter().for_each(|inbox| inbox.poke());
            let turns = site.inboxes.iter().map(|inbox| inbox.ticks.load(Ordering::Relaxed));
            site.pulse.look(turns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_hangs_after_several_silent_looks_and_recovers_with_one_turn() {
        let pulse = Pulse::new(2);
        for look in 0..=u64::from(PULSE_SILENT_LOOKS) {
            assert!(!pulse.hangs(1), "{look}");
            pulse.look([look + 1, 7].into_iter());
        }
        assert!(pulse.hangs(1) && !pulse.hangs(0));
        pulse.look([9, 8].into_iter());
        assert!(!pulse.hangs(1));
        assert!(!pulse.hangs(2), "no such shard");
    }
}
