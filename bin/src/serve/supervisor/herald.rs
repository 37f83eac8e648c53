//! Looks at a node that runs and says what [`Pulse`] decides; on the side thread, so that a side
//! thread that hangs is a missing sign of life, too.

use std::cell::RefCell;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::pulse::{Event, Pulse, Sight};
use super::socket::Socket;
use super::word::Word;
use crate::serve::clock::Clock;
use crate::serve::inbox::Inbox;

/// How often the node is looked at: a few times within the shortest sensible watchdog (1 s).
const LOOK: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug)]
pub struct Herald {
    socket: Socket,
    pulse: Pulse,
    inboxes: Arc<[Arc<Inbox>]>,
    pair: bool,
    ticks: Vec<u64>,
    words: Vec<Word>,
}

impl Herald {
    /// Of a node whose shards have started.
    #[must_use]
    pub fn new(socket: Socket, inboxes: Arc<[Arc<Inbox>]>, pair: bool) -> Self {
        let pulse = Pulse::new(now_ms(), inboxes.len(), socket.watchdog());
        Self { socket, pulse, inboxes, pair, ticks: Vec::new(), words: Vec::new() }
    }

    /// Something happens.
    pub fn tell(&mut self, event: Event<'_>) {
        self.pulse.step(now_ms(), event, &mut self.words);
        self.socket.say(&self.words);
        self.words.clear();
    }

    /// The settings are about to be read again.
    pub fn reloading(&mut self) {
        let since = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(since.tv_sec).unwrap_or(0);
        let monotonic_us = seconds * 1_000_000 + u64::try_from(since.tv_nsec).unwrap_or(0) / 1000;
        self.tell(Event::Reloading { monotonic_us });
    }

    fn look(&mut self) {
        let ticks = self.inboxes.iter().map(|inbox| inbox.ticks.load(Ordering::Relaxed));
        self.ticks.clear();
        self.ticks.extend(ticks);
        let node = &self.inboxes[0].node;
        let (role, epoch) = (self.pair.then(|| node.role()), node.epoch().0);
        let events = self.inboxes.iter().map(|inbox| inbox.gauge.read().end.0).sum();
        let sight = Sight { role, epoch, events, ticks: &self.ticks };
        self.pulse.step(now_ms(), Event::Look(sight), &mut self.words);
        self.socket.say(&self.words);
        self.words.clear();
    }
}

/// Looks at the node for ever, if anybody listens.
pub async fn attend(herald: &RefCell<Herald>) -> Infallible {
    if !herald.borrow().socket.is_open() {
        return std::future::pending().await;
    }
    let mut turns = tokio::time::interval(LOOK);
    turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        herald.borrow_mut().look();
    }
}

fn now_ms() -> u64 {
    Clock.mono().ms().0
}
