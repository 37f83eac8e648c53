//! Decides what the service manager is told once the shards' threads run: pure, told the time.
//!
//! Promises: a sign of life is given only if every shard has run since the one before, so that a
//! shard that stands still ends the node although its other threads are well; the start takes as
//! long as it must while every shard runs; the node is ready when it does its part.

use std::time::Duration;

use super::word::Word;
use crate::serve::cluster::gauges::Role;

/// Signs of life per interval of the watchdog.
const SIGNS_PER_INTERVAL: u64 = 4;
/// By how much the start may take longer each time, and how often that is said, ms.
const EXTENSION: Duration = Duration::from_secs(60);
const EXTENSION_EVERY_MS: u64 = 5_000;
/// A shard that has not run for so long is named, ms: it should run every 100.
const STANDING_STILL_MS: u64 = 5_000;
/// A status is told no more often than this, ms.
const STATUS_EVERY_MS: u64 = 500;

/// What there is to be seen of a node.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    /// What it is in its pair; nothing if it serves alone.
    pub role: Option<Role>,
    /// At which epoch.
    pub epoch: u64,
    /// Events in all its logs.
    pub events: u64,
    /// Each shard's count of turns.
    pub ticks: &'a [u64],
}

/// What happens.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// It is looked at; several times a second.
    Look(Sight<'a>),
    /// The settings are about to be read again.
    Reloading {
        /// Now by `CLOCK_MONOTONIC`, microseconds.
        monotonic_us: u64,
    },
    /// They were, or why not.
    Reloaded(Result<(), String>),
    /// The node stops, and this is what it does.
    Stopping(&'static str),
}

#[derive(Clone, Copy, Debug, Default)]
struct Shard {
    ticks: u64,
    moved_ms: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Pulse {
    sign_every_ms: Option<u64>,
    shards: Vec<Shard>,
    ready: bool,
    stopping: Option<&'static str>,
    /// Why the last reload was refused.
    refusal: Option<String>,
    signed_ms: u64,
    extended_ms: u64,
    status: String,
    status_ms: u64,
}

impl Pulse {
    /// Of a node whose shards have just started. `watchdog`: the manager's interval.
    #[must_use]
    pub fn new(now_ms: u64, shards: usize, watchdog: Option<Duration>) -> Self {
        let interval_ms = watchdog.map(|interval| interval.as_millis() as u64);
        Self {
            sign_every_ms: interval_ms.map(|interval| interval / SIGNS_PER_INTERVAL),
            shards: vec![Shard { ticks: 0, moved_ms: now_ms }; shards],
            ready: false,
            stopping: None,
            refusal: None,
            signed_ms: now_ms,
            extended_ms: now_ms,
            status: String::new(),
            status_ms: 0,
        }
    }

    /// Takes what happens; appends what is to be said.
    pub fn step(&mut self, now_ms: u64, event: Event<'_>, out: &mut Vec<Word>) {
        match event {
            Event::Look(sight) => self.look(now_ms, &sight, out),
            Event::Reloading { .. } if !self.ready => {}
            Event::Reloading { monotonic_us } => out.push(Word::Reloading { monotonic_us }),
            Event::Reloaded(result) => {
                self.refusal = result.err();
                if self.ready {
                    out.push(Word::Ready);
                }
            }
            Event::Stopping(what) => {
                if self.stopping.is_none() {
                    out.push(Word::Stopping);
                }
                self.stopping = Some(what);
                self.tell(now_ms, format!("stopping: {what}"), out);
            }
        }
    }

    fn look(&mut self, now_ms: u64, sight: &Sight<'_>, out: &mut Vec<Word>) {
        for (shard, ticks) in self.shards.iter_mut().zip(sight.ticks) {
            if shard.ticks != *ticks {
                *shard = Shard { ticks: *ticks, moved_ms: now_ms };
            }
        }
        if self.stopping.is_some() {
            return;
        }
        if !self.ready && has_joined(sight.role) {
            self.ready = true;
            self.status_ms = 0;
            out.push(Word::Ready);
        }
        if !self.ready
            && now_ms - self.extended_ms >= EXTENSION_EVERY_MS
            && self.all_moved_since(self.extended_ms)
        {
            self.extended_ms = now_ms;
            out.push(Word::ExtendTimeout(EXTENSION));
        }
        if self.sign_every_ms.is_some_and(|every| now_ms - self.signed_ms >= every)
            && self.all_moved_since(self.signed_ms)
        {
            self.signed_ms = now_ms;
            out.push(Word::Alive);
        }
        if now_ms - self.status_ms >= STATUS_EVERY_MS {
            self.tell(now_ms, self.describe(now_ms, sight), out);
        }
    }

    fn all_moved_since(&self, moment_ms: u64) -> bool {
        self.shards.iter().all(|shard| shard.moved_ms > moment_ms)
    }

    fn tell(&mut self, now_ms: u64, status: String, out: &mut Vec<Word>) {
        if self.status != status {
            out.push(Word::Status(status.clone()));
            (self.status, self.status_ms) = (status, now_ms);
        }
    }

    fn describe(&self, now_ms: u64, sight: &Sight<'_>) -> String {
        let Sight { role, epoch, events, .. } = *sight;
        let mut text = match role {
            None => "standalone, serving".to_owned(),
            Some(Role::Leader) => format!("leader of epoch {epoch}"),
            Some(Role::Follower) => format!("follower at epoch {epoch}"),
            Some(Role::CatchingUp) => format!("catching up at epoch {epoch}, {events} events here"),
            Some(Role::Promoting) => format!("promoting to leader of epoch {epoch}"),
            Some(Role::Booting) => "waiting to hear of the lease or a leader".to_owned(),
            Some(Role::Fenced) => format!("fenced, newest epoch {epoch}; see `duolog status`"),
        };
        let still = |shard: &&Shard| now_ms - shard.moved_ms >= STANDING_STILL_MS;
        if let Some(shard) = self.shards.iter().position(|shard| still(&shard)) {
            text = format!("{text}; shard {shard} stands still");
        }
        if let Some(refusal) = &self.refusal {
            text = format!("{text}; reload refused: {refusal}");
        }
        text
    }
}

/// Whether the node does its part: it serves alone, leads, or has everything and follows.
const fn has_joined(role: Option<Role>) -> bool {
    matches!(role, None | Some(Role::Leader | Role::Follower))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGHT: Sight<'static> =
        Sight { role: Some(Role::Booting), epoch: 0, events: 0, ticks: &[0, 0] };

    fn step(pulse: &mut Pulse, now_ms: u64, event: Event<'_>) -> Vec<Word> {
        let mut out = Vec::new();
        pulse.step(now_ms, event, &mut out);
        out
    }

    fn look(
        pulse: &mut Pulse,
        now_ms: u64,
        role: impl Into<Option<Role>>,
        ticks: &[u64],
    ) -> Vec<Word> {
        step(pulse, now_ms, Event::Look(Sight { role: role.into(), epoch: 7, ticks, ..SIGHT }))
    }

    fn status(text: &str) -> Word {
        Word::Status(text.to_owned())
    }

    #[test]
    fn a_node_is_ready_once_when_it_does_its_part() {
        for (role, says) in [
            (None, "standalone, serving"),
            (Some(Role::Leader), "leader of epoch 7"),
            (Some(Role::Follower), "follower at epoch 7"),
        ] {
            let mut pulse = Pulse::new(0, 2, None);
            for (now_ms, not_yet) in
                [(600, Role::Booting), (1200, Role::CatchingUp), (1800, Role::Promoting)]
            {
                let said = look(&mut pulse, now_ms, not_yet, &[0, 0]);
                assert!(matches!(said[..], [Word::Status(_)]), "{not_yet:?}: {said:?}");
            }
            assert_eq!(look(&mut pulse, 1900, role, &[0, 0]), [Word::Ready, status(says)]);
            assert_eq!(look(&mut pulse, 2500, role, &[0, 0]), []);
            let fenced = look(&mut pulse, 3100, Role::Fenced, &[0, 0]);
            assert_eq!(fenced, [status("fenced, newest epoch 7; see `duolog status`")]);
        }
    }

    #[test]
    fn each_sign_of_life_takes_a_turn_of_every_shard() {
        let mut pulse = Pulse::new(0, 2, Some(Duration::from_millis(4000)));
        let alive = |said: Vec<Word>| said.contains(&Word::Alive);
        assert!(!alive(look(&mut pulse, 900, Role::Leader, &[1, 1])), "not yet due");
        assert!(alive(look(&mut pulse, 1000, Role::Leader, &[1, 1])));
        assert!(!alive(look(&mut pulse, 2000, Role::Leader, &[2, 1])), "shard 1 has not run");
        assert!(!alive(look(&mut pulse, 5800, Role::Leader, &[3, 1])));
        let said = look(&mut pulse, 6500, Role::Leader, &[4, 1]);
        assert_eq!(said, [status("leader of epoch 7; shard 1 stands still")]);
        assert!(alive(look(&mut pulse, 6600, Role::Leader, &[4, 2])), "at once when it runs again");
        assert!(!alive(look(&mut pulse, 9000, Role::Leader, &[4, 3])), "now it is shard 0");
    }

    #[test]
    fn without_a_watchdog_there_are_no_signs_of_life() {
        let mut pulse = Pulse::new(0, 1, None);
        for turn in 1..100 {
            let said = look(&mut pulse, turn * 1000, Role::Leader, &[turn]);
            assert!(!said.contains(&Word::Alive));
        }
    }

    #[test]
    fn a_start_is_given_more_time_only_while_every_shard_runs() {
        let mut pulse = Pulse::new(0, 2, None);
        let more = Word::ExtendTimeout(EXTENSION);
        let said = look(&mut pulse, 5000, Role::CatchingUp, &[1, 1]);
        assert_eq!(said, [more.clone(), status("catching up at epoch 7, 0 events here")]);
        assert!(!look(&mut pulse, 11_000, Role::CatchingUp, &[2, 1]).contains(&more));
        assert!(look(&mut pulse, 12_000, Role::CatchingUp, &[2, 2]).contains(&more));
        assert!(look(&mut pulse, 12_100, Role::Leader, &[3, 3]).contains(&Word::Ready));
        assert!(!look(&mut pulse, 30_000, Role::Promoting, &[4, 4]).contains(&more));
    }

    #[test]
    fn a_reload_ends_with_ready_and_its_refusal_is_told() {
        let mut pulse = Pulse::new(0, 2, None);
        let reloading = Event::Reloading { monotonic_us: 9 };
        assert_eq!(step(&mut pulse, 1, reloading.clone()), [], "it is not ready yet");
        assert_eq!(step(&mut pulse, 1, Event::Reloaded(Ok(()))), []);
        look(&mut pulse, 600, Role::Leader, &[1, 1]);
        let said = step(&mut pulse, 700, reloading);
        assert_eq!(said, [Word::Reloading { monotonic_us: 9 }]);
        let refused = Event::Reloaded(Err("bad".to_owned()));
        assert_eq!(step(&mut pulse, 701, refused), [Word::Ready]);
        let said = look(&mut pulse, 1300, Role::Leader, &[2, 2]);
        assert_eq!(said, [status("leader of epoch 7; reload refused: bad")]);
        assert_eq!(step(&mut pulse, 1400, Event::Reloaded(Ok(()))), [Word::Ready]);
        let said = look(&mut pulse, 2000, Role::Leader, &[2, 2]);
        assert_eq!(said, [status("leader of epoch 7")]);
    }

    #[test]
    fn a_stop_is_said_once_and_silences_the_rest() {
        let mut pulse = Pulse::new(0, 2, Some(Duration::from_secs(1)));
        let said = step(&mut pulse, 1, Event::Stopping("handing over"));
        assert_eq!(said, [Word::Stopping, status("stopping: handing over")]);
        let said = step(&mut pulse, 2, Event::Stopping("finishing requests"));
        assert_eq!(said, [status("stopping: finishing requests")]);
        assert_eq!(look(&mut pulse, 5000, Role::Leader, &[9, 9]), []);
    }
}
