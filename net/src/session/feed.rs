//! The server's side of one subscription, as a machine without events: where it goes on, how much
//! may be sent ahead of what the subscriber has taken, and when it is cut off.
//!
//! Promises (invariants U1, U2):
//! * everything is read from [`Feed::next`] on, and `next` moves only over what was read: no gap
//!   and no duplicate between what was there and what comes;
//! * at most the window, and one event more, is sent and not taken: a slow subscriber costs its
//!   window and nothing else, and is cut off after the stall limit while there is more for it.

use duolog_engine::ids::{Hlc, MonoUs};

use crate::limits::FEED_PAGE_MAX_BYTES;
use crate::wire::SubscriptionAsk;

/// What the driver does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Read events from [`Feed::next`] on, at most so many bytes of records unless the first is
    /// larger; answer by [`Feed::fed`].
    Read {
        /// Bytes, at least 1.
        bytes_max: u32,
    },
    /// Send a piece without events as soon as everything up to this stamp is settled; answer by
    /// [`Feed::told`].
    Tell {
        /// What the subscriber asked for.
        stamp: Hlc,
    },
    /// Wait for news, for the subscriber, or for the time to pass.
    Wait,
    /// End the subscription: the subscriber has taken nothing for too long.
    CutOff,
    /// The subscriber wants no more.
    End,
}

/// The machine. See the module's text.
#[derive(Debug)]
pub struct Feed {
    next: u64,
    window_bytes: u32,
    stall_max_us: u64,
    /// Sent and not taken, bytes of records.
    untaken_bytes: u64,
    /// Everything committed was sent when the last piece was made, and nothing is known to have
    /// come since.
    caught_up: bool,
    /// Something came since the last read began.
    fresh: bool,
    /// The highest stamp that the subscriber wants settled, and the highest it was told.
    asked: Hlc,
    told: Hlc,
    /// Since when there is more to send and the window is full.
    stuck_since: Option<MonoUs>,
    ended: bool,
}

impl Feed {
    /// A subscription that begins with the revision or LSN `next`.
    ///
    /// Panics when the window is 0.
    #[must_use]
    pub fn new(next: u64, window_bytes: u32, stall_max_us: u64) -> Self {
        assert!(window_bytes > 0, "a subscriber takes something");
        Self {
            next,
            window_bytes,
            stall_max_us,
            untaken_bytes: 0,
            caught_up: false,
            fresh: false,
            asked: Hlc(0),
            told: Hlc(0),
            stuck_since: None,
            ended: false,
        }
    }

    /// The same subscription, its beginning found: what was said meanwhile counts.
    #[must_use]
    pub fn begin_at(&self, next: u64) -> Self {
        let Self { window_bytes, stall_max_us, asked, ended, .. } = *self;
        Self { asked, ended, ..Self::new(next, window_bytes, stall_max_us) }
    }

    /// The revision or LSN that is read next: everything before was sent or does not belong.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Whether everything committed was sent as far as is known.
    #[must_use]
    pub const fn is_caught_up(&self) -> bool {
        self.caught_up
    }

    /// Something that may belong to the subscription was committed. `from`: nothing before it does;
    /// counts only for a subscription that is caught up.
    // U1: what is skipped was looked at by whoever says so.
    pub fn news(&mut self, from: Option<u64>) {
        if self.caught_up {
            self.next = self.next.max(from.unwrap_or(0));
        }
        self.caught_up = false;
        self.fresh = true;
    }

    /// The subscriber said this.
    pub fn hear(&mut self, ask: SubscriptionAsk) {
        match ask {
            SubscriptionAsk::Taken(bytes) => {
                self.untaken_bytes = self.untaken_bytes.saturating_sub(bytes.into());
                if bytes > 0 {
                    self.stuck_since = None;
                }
            }
            SubscriptionAsk::Settle(stamp) => self.asked = self.asked.max(stamp),
            SubscriptionAsk::Unsubscribe => self.ended = true,
        }
    }

    /// What to do now.
    pub fn turn(&mut self, now: MonoUs) -> Turn {
        if self.ended {
            return Turn::End;
        }
        if self.caught_up {
            let asks = self.asked > self.told;
            return if asks { Turn::Tell { stamp: self.asked } } else { Turn::Wait };
        }
        // U2: never more than the window ahead, but for the event that crosses it.
        let room = u64::from(self.window_bytes).saturating_sub(self.untaken_bytes);
        if room > 0 {
            self.fresh = false;
            let bytes_max = u32::try_from(room).unwrap_or(u32::MAX).min(FEED_PAGE_MAX_BYTES);
            return Turn::Read { bytes_max };
        }
        let since = *self.stuck_since.get_or_insert(now);
        if now.0.saturating_sub(since.0) >= self.stall_max_us { Turn::CutOff } else { Turn::Wait }
    }

    /// Events were read up to `next` and `bytes` of records sent; `end`: nothing more was committed
    /// at that moment.
    ///
    /// Panics when the reader went backwards.
    pub fn fed(&mut self, next: u64, bytes: usize, end: bool) {
        assert!(next >= self.next, "U1: a subscription only goes on");
        self.next = next;
        self.untaken_bytes += bytes as u64;
        // U1: what came while it was read may lie behind what the reader saw.
        self.caught_up = end && !self.fresh;
        self.stuck_since = None;
    }

    /// The subscriber is told that everything up to `settled` is settled; whether that is what it
    /// asked for and had not heard.
    pub fn told(&mut self, settled: Hlc) -> bool {
        let answers = self.told < self.asked && self.asked <= settled;
        self.told = self.told.max(settled);
        answers
    }

    /// Whether the time alone may end it: the driver looks again now and then.
    #[must_use]
    pub const fn is_stuck(&self) -> bool {
        self.stuck_since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: u64 = 1_000;

    fn feed() -> Feed {
        Feed::new(1, 20_000, STALL)
    }

    /// Promise U1: what is committed while a page is being read is read by the next turn.
    /// Provoked by news between a turn and its end; broken if the feed waits then.
    #[test]
    fn news_during_a_read_are_read_next() {
        let mut feed = feed();
        assert_eq!(feed.turn(MonoUs(0)), Turn::Read { bytes_max: 20_000 });
        feed.fed(5, 100, true);
        assert_eq!(feed.turn(MonoUs(0)), Turn::Wait);
        feed.news(Some(9));
        assert_eq!((feed.turn(MonoUs(0)), feed.next()), (Turn::Read { bytes_max: 19_900 }, 9));
        // Still being read: what lies between is not known to be none of it.
        feed.news(Some(30));
        assert_eq!(feed.next(), 9, "only a feed that is caught up may skip");
        feed.fed(12, 100, true);
        assert_eq!(feed.turn(MonoUs(0)), Turn::Read { bytes_max: 19_800 }, "U1");
        feed.fed(31, 0, true);
        assert_eq!(feed.turn(MonoUs(0)), Turn::Wait);
    }

    /// Promise U2: a subscriber that takes nothing is sent its window and no more, and is cut off
    /// when there was more for it all the time; one that takes a little is not.
    #[test]
    fn a_subscriber_that_takes_nothing_is_cut_off_after_its_window() {
        let mut feed = feed();
        feed.fed(5, 30_000, false);
        assert_eq!(feed.turn(MonoUs(10)), Turn::Wait);
        assert!(feed.is_stuck());
        assert_eq!(feed.turn(MonoUs(10 + STALL - 1)), Turn::Wait);
        feed.hear(SubscriptionAsk::Taken(5_000));
        assert_eq!(feed.turn(MonoUs(10 + STALL)), Turn::Wait, "the count begins anew");
        assert_eq!(feed.turn(MonoUs(10 + 2 * STALL)), Turn::CutOff);
        feed.hear(SubscriptionAsk::Taken(25_000));
        assert_eq!(feed.turn(MonoUs(10 + 2 * STALL)), Turn::Read { bytes_max: 20_000 });
    }

    #[test]
    fn an_idle_subscriber_is_never_cut_off() {
        let mut feed = feed();
        feed.fed(5, 30_000, true);
        assert_eq!(feed.turn(MonoUs(0)), Turn::Wait);
        assert_eq!(feed.turn(MonoUs(100 * STALL)), Turn::Wait);
        assert!(!feed.is_stuck());
    }

    #[test]
    fn what_is_settled_is_told_once_per_question_and_only_when_caught_up() {
        let mut feed = feed();
        feed.hear(SubscriptionAsk::Settle(Hlc(8)));
        assert_eq!(feed.turn(MonoUs(0)), Turn::Read { bytes_max: 20_000 });
        feed.fed(5, 0, true);
        assert_eq!(feed.turn(MonoUs(0)), Turn::Tell { stamp: Hlc(8) });
        assert!(!feed.told(Hlc(6)));
        assert_eq!(feed.turn(MonoUs(0)), Turn::Tell { stamp: Hlc(8) });
        feed.hear(SubscriptionAsk::Settle(Hlc(9)));
        assert_eq!(feed.turn(MonoUs(0)), Turn::Tell { stamp: Hlc(9) });
        assert!(feed.told(Hlc(12)));
        feed.hear(SubscriptionAsk::Settle(Hlc(11)));
        assert_eq!(feed.turn(MonoUs(0)), Turn::Wait);
        feed.hear(SubscriptionAsk::Unsubscribe);
        assert_eq!(feed.turn(MonoUs(0)), Turn::End);
    }
}
