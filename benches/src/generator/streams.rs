//! Which stream, or group of streams, an operation is for.
//!
//! Appends go to groups: as many streams as one append has, side by side in one shard, always
//! written together. A group of one is a stream.

use std::collections::VecDeque;

use super::clock::Mixer;
use super::settings::Settings;
use super::workload::{Expectation, StreamOrder, Workload};

/// The groups of a worker, as far as its connections share them.
#[derive(Debug)]
pub struct Groups {
    count: u32,
    order: StreamOrder,
    mixer: Mixer,
    /// Sequential: the worker's next group; workers take turns.
    cursor: u32,
    threads: u32,
    /// Hot: next revision of each group, as far as the last answer told.
    hot_revisions: Vec<u64>,
}

/// The groups that one connection owns: those whose number is its own modulo the connections.
/// Nobody else appends to them, so it knows their revisions.
#[derive(Debug)]
pub struct Owned {
    /// Exact: those without an append in flight, by position in the order of ownership.
    idle: VecDeque<u32>,
    /// Exact: their next revisions, by position.
    next_revisions: Vec<u64>,
    connection: u32,
    connections: u32,
    /// Reads: what is to be written next before the load begins.
    unprepared: Unprepared,
}

#[derive(Debug)]
struct Unprepared {
    group: u64,
    events_left: u32,
}

/// One append before the load begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preparation {
    /// To which stream.
    pub stream: u32,
    /// How many events.
    pub events: u32,
}

impl Groups {
    /// Those of worker number `worker`.
    #[must_use]
    pub fn new(settings: &Settings, worker: u32) -> Self {
        let count = settings.groups();
        let hot = settings.workload == Workload::Append && settings.expectation == Expectation::Hot;
        Self {
            count,
            order: settings.stream_order,
            mixer: Mixer::new(settings.run_id ^ (u64::from(worker) << 40)),
            cursor: worker % count.max(1),
            threads: settings.threads,
            hot_revisions: if hot { vec![0; count as usize] } else { Vec::new() },
        }
    }

    /// Random numbers for everything that a request chooses.
    pub const fn mixer(&mut self) -> &mut Mixer {
        &mut self.mixer
    }

    /// The group of the next operation. `None` when all owned ones are in use.
    pub fn choose(&mut self, owned: &mut Owned) -> Option<u32> {
        if owned.next_revisions.is_empty() {
            return Some(match self.order {
                StreamOrder::Uniform => self.mixer.below(self.count),
                StreamOrder::Sequential => self.choose_next(),
            });
        }
        let count = u32::try_from(owned.idle.len()).ok().filter(|count| *count > 0)?;
        let position = match self.order {
            StreamOrder::Uniform => owned.idle.swap_remove_back(self.mixer.below(count) as usize)?,
            StreamOrder::Sequential => owned.idle.pop_front()?,
        };
        Some(owned.connection + position * owned.connections)
    }

    fn choose_next(&mut self) -> u32 {
        let chosen = self.cursor;
        let next = u64::from(chosen) + u64::from(self.threads);
        // Behind the last group each worker begins again where it began, whoever else there is.
        self.cursor = match u32::try_from(next) {
            Ok(next) if next < self.count => next,
            _ => chosen % self.threads.min(self.count),
        };
        chosen
    }

    /// The next revision that an append to `group` expects: exact and hot loads.
    #[must_use]
    pub fn next_revision(&self, owned: &Owned, group: u32) -> Option<u64> {
        if let Some(next) = self.hot_revisions.get(group as usize) {
            return Some(*next);
        }
        owned.next_revisions.get(owned.position(group)).copied()
    }

    /// An append to `group` was answered; its next revision is `next`, if the answer told.
    pub fn answered(&mut self, owned: &mut Owned, group: u32, next: Option<u64>) {
        if let (Some(known), Some(next)) = (self.hot_revisions.get_mut(group as usize), next) {
            // Answers to several connections come in any order.
            *known = next.max(*known);
        }
        if owned.next_revisions.is_empty() {
            return;
        }
        let position = owned.position(group);
        if let Some(next) = next {
            owned.next_revisions[position] = next;
        }
        owned.idle.push_back(position as u32);
    }
}

impl Owned {
    /// What connection number `connection` (of the whole run) owns.
    #[must_use]
    pub fn new(settings: &Settings, connection: u32) -> Self {
        let connections = settings.connections;
        let count = settings.groups().saturating_sub(connection).div_ceil(connections);
        let exact =
            settings.workload == Workload::Append && settings.expectation == Expectation::Exact;
        Self {
            idle: if exact { (0..count).collect() } else { VecDeque::new() },
            next_revisions: if exact { vec![0; count as usize] } else { Vec::new() },
            connection,
            connections,
            unprepared: Unprepared {
                group: u64::from(connection),
                events_left: settings.stream_events,
            },
        }
    }

    fn position(&self, group: u32) -> usize {
        (group.wrapping_sub(self.connection) / self.connections) as usize
    }

    /// The next append that has to be made before reads begin, of at most `events_max` events;
    /// `None` = all done.
    pub fn prepare(&mut self, settings: &Settings, events_max: u32) -> Option<Preparation> {
        let Unprepared { group, events_left } = &mut self.unprepared;
        let stream = u32::try_from(*group).ok().filter(|stream| *stream < settings.streams)?;
        let events = (*events_left).min(events_max);
        *events_left -= events;
        if *events_left == 0 {
            *group += u64::from(self.connections);
            *events_left = settings.stream_events;
        }
        Some(Preparation { stream, events })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn settings(expectation: Expectation, order: StreamOrder) -> Settings {
        let addr = "127.0.0.1:1".parse().unwrap();
        Settings {
            in_flight: 2,
            streams: 10,
            expectation,
            stream_order: order,
            stream_events: 25,
            ..Settings::appends(addr, 4, 100, Duration::from_secs(1))
        }
    }

    /// With exact expectations a stream has one append in flight. Broken if it is chosen twice.
    #[test]
    fn a_group_in_use_is_not_chosen() {
        for order in [StreamOrder::Uniform, StreamOrder::Sequential] {
            let settings = settings(Expectation::Exact, order);
            let (mut groups, mut owned) = (Groups::new(&settings, 0), Owned::new(&settings, 1));
            let mut chosen: Vec<u32> =
                std::iter::from_fn(|| groups.choose(&mut owned)).take(10).collect();
            chosen.sort_unstable();
            assert_eq!(chosen, [1, 5, 9]);
        }
    }

    /// Every stream is prepared by exactly one connection, with all its events.
    #[test]
    fn preparation_covers_every_stream_once() {
        let settings = settings(Expectation::Any, StreamOrder::Uniform);
        let mut all = [0; 10];
        for connection in 0..4 {
            let mut owned = Owned::new(&settings, connection);
            while let Some(preparation) = owned.prepare(&settings, 10) {
                assert!((1..=10).contains(&preparation.events));
                all[preparation.stream as usize] += preparation.events;
            }
        }
        assert_eq!(all, [25; 10]);
    }

    /// In sequence, the workers together touch every stream in each round, also when there are
    /// fewer streams than workers. Broken if one is left out or comes twice.
    #[test]
    fn a_sequence_touches_every_stream_in_turn() {
        for (streams, threads) in [(10, 3), (9, 3), (1, 1), (4, 4)] {
            let settings = Settings {
                streams,
                threads,
                ..settings(Expectation::Any, StreamOrder::Sequential)
            };
            let mut counts = vec![0; streams as usize];
            for worker in 0..threads {
                let share = (streams - worker).div_ceil(threads);
                let mut groups = Groups::new(&settings, worker);
                let mut owned = Owned::new(&settings, worker);
                for _ in 0..3 * share {
                    counts[groups.choose(&mut owned).unwrap() as usize] += 1;
                }
            }
            assert_eq!(counts, vec![3; streams as usize]);
        }
        let settings =
            Settings { streams: 2, ..settings(Expectation::Any, StreamOrder::Sequential) };
        let mut groups = Groups::new(&Settings { threads: 4, ..settings.clone() }, 3);
        let mut owned = Owned::new(&settings, 3);
        assert!((0..9).all(|_| groups.choose(&mut owned).is_some_and(|group| group < 2)));
    }

    /// Uniform means uniform: over a million streams no tenth gets more than its share.
    #[test]
    fn a_uniform_choice_spreads_over_a_million_streams() {
        let settings =
            Settings { streams: 1_000_000, ..settings(Expectation::Any, StreamOrder::Uniform) };
        let (mut groups, mut owned) = (Groups::new(&settings, 0), Owned::new(&settings, 0));
        let mut tenths = [0_u32; 10];
        for _ in 0..100_000 {
            tenths[groups.choose(&mut owned).unwrap() as usize / 100_000] += 1;
        }
        assert!(tenths.iter().all(|count| count.abs_diff(10_000) < 500), "{tenths:?}");
        // Nothing is kept for a stream without a condition.
        assert_eq!(owned.idle.capacity() + owned.next_revisions.capacity(), 0);
        assert_eq!(groups.hot_revisions.capacity(), 0);
    }
}
