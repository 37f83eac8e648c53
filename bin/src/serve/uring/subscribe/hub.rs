//! Who is to be woken by what was committed. Thousands of subscribers that wait for other streams
//! cost a commit a few nanoseconds for each of its events: names are looked up, nobody is asked.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;

use duolog_engine::block::{BLOCK_HEADER_BYTES, BlockHeader};
use duolog_engine::ids::Lsn;
use duolog_engine::record::glance;
use duolog_engine::shard::Shard;
use duolog_net::wire::SYSTEM_PREFIX;

use super::Subscriber;

type Named = HashMap<Box<[u8]>, Vec<Rc<Subscriber>>>;

/// The shard's subscriptions.
#[derive(Debug, Default)]
pub(in super::super) struct Hub {
    /// Everything up to here was looked at.
    seen: Lsn,
    count: usize,
    /// By the stream's name.
    streams: Named,
    /// By the prefix, for each length of one; in order of length.
    prefixes: Vec<(usize, Named)>,
    /// Those that wait until a stamp is settled: woken by the next commit.
    settling: Vec<Rc<Subscriber>>,
    /// One bit for names that may be in `streams`.
    filter: NameFilter,
}

/// Bits of names: most names that nobody waits for are told apart by one look.
#[derive(Debug)]
struct NameFilter {
    bits: Box<[u64; NameFilter::WORDS]>,
    hasher: RandomState,
}

impl Default for NameFilter {
    fn default() -> Self {
        Self { bits: Box::new([0; Self::WORDS]), hasher: RandomState::new() }
    }
}

impl NameFilter {
    /// 32,768 bits: 4 KiB, which stay in the first cache.
    const WORDS: usize = 512;
}

impl Hub {
    /// Subscriptions.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Whether something was committed that was not looked at, and somebody waits.
    pub(in super::super) const fn is_behind(&self, committed: Lsn) -> bool {
        self.count > 0 && committed.0 > self.seen.0
    }

    /// A subscription begins.
    /// Whatever is committed now it reads by itself.
    pub(super) fn add(&mut self, subscriber: &Rc<Subscriber>, committed: Lsn) {
        if self.count == 0 {
            self.seen = committed;
        }
        self.count += 1;
        let name = subscriber.wanted.name.as_bytes();
        let named = if subscriber.wanted.log.is_none() {
            self.filter.note(name);
            &mut self.streams
        } else {
            let at = self.prefixes.partition_point(|(length, _)| *length < name.len());
            if self.prefixes.get(at).is_none_or(|(length, _)| *length != name.len()) {
                self.prefixes.insert(at, (name.len(), Named::new()));
            }
            &mut self.prefixes[at].1
        };
        named.entry(name.into()).or_default().push(Rc::clone(subscriber));
    }

    /// A subscription is over. Does nothing for one that has not begun.
    pub(super) fn remove(&mut self, subscriber: &Rc<Subscriber>) {
        let name = subscriber.wanted.name.as_bytes();
        let named = if subscriber.wanted.log.is_none() {
            &mut self.streams
        } else {
            let found = self.prefixes.iter_mut().find(|(length, _)| *length == name.len());
            let Some((_, named)) = found else { return };
            named
        };
        let Some(list) = named.get_mut(name) else { return };
        let before = list.len();
        list.retain(|other| !Rc::ptr_eq(other, subscriber));
        self.count -= before - list.len();
        if list.is_empty() {
            named.remove(name);
        }
        self.prefixes.retain(|(_, named)| !named.is_empty());
        if self.streams.is_empty() {
            self.filter.clear();
        }
    }

    /// Wakes the subscriber with the next commit.
    pub(super) fn wait_to_settle(&mut self, subscriber: &Rc<Subscriber>) {
        self.settling.push(Rc::clone(subscriber));
    }

    /// Wakes those who wait until a stamp is settled: it may be now.
    pub(in super::super) fn look_again(&mut self) {
        self.settling.drain(..).for_each(|subscriber| subscriber.bell.ring());
    }

    /// Looks at subscriptions that end when time passes.
    pub(in super::super) fn housekeep(&self) {
        let stuck = |subscriber: &&Rc<Subscriber>| subscriber.feed.borrow().is_stuck();
        self.all().filter(stuck).for_each(|subscriber| subscriber.bell.ring());
    }

    fn all(&self) -> impl Iterator<Item = &Rc<Subscriber>> {
        let prefixes = self.prefixes.iter().flat_map(|(_, named)| named.values());
        self.streams.values().chain(prefixes).flatten()
    }

    /// Wakes the subscriptions to which what was committed since the last call may belong.
    pub(in super::super) fn committed(&mut self, shard: &Shard) {
        let committed = shard.committed().lsn;
        self.look_again();
        while self.seen < committed {
            let block = shard.in_memory_block(self.seen.next());
            let header = block.and_then(|block| Some((block, BlockHeader::decode(block).ok()?)));
            let Some((block, header)) = header.filter(|(_, header)| header.last_lsn() <= committed)
            else {
                // It is not in memory any more: whoever waits looks for itself.
                self.all().for_each(|subscriber| subscriber.news(None));
                self.seen = committed;
                return;
            };
            self.look_at(block);
            self.seen = header.last_lsn();
        }
    }

    fn look_at(&self, block: &[u8]) {
        let mut rest = &block[BLOCK_HEADER_BYTES..];
        while let Some((glance, taken)) = glance(rest) {
            if let Some(glance) = glance {
                self.wake(glance.stream, glance.lsn);
            }
            let Some(behind) = rest.get(taken..) else { return };
            rest = behind;
        }
    }

    // U1: a subscription that is caught up is woken by every event that may belong to it.
    fn wake(&self, stream: &[u8], lsn: Lsn) {
        if !self.streams.is_empty()
            && self.filter.may_contain(stream)
            && let Some(list) = self.streams.get(stream)
        {
            list.iter().for_each(|subscriber| subscriber.news(None));
        }
        for (length, named) in &self.prefixes {
            let Some(list) = stream.get(..*length).and_then(|prefix| named.get(prefix)) else {
                continue;
            };
            let system = stream.starts_with(SYSTEM_PREFIX.as_bytes());
            for subscriber in list.iter().filter(|one| !system || one.wanted.log == Some(true)) {
                subscriber.news(Some(lsn));
            }
        }
    }
}

impl NameFilter {
    fn place(&self, name: &[u8]) -> (usize, u64) {
        let hash = self.hasher.hash_one(name);
        ((hash >> 6) as usize % Self::WORDS, 1 << (hash & 63))
    }

    fn note(&mut self, name: &[u8]) {
        let (word, bit) = self.place(name);
        self.bits[word] |= bit;
    }

    fn may_contain(&self, name: &[u8]) -> bool {
        let (word, bit) = self.place(name);
        self.bits[word] & bit != 0
    }

    fn clear(&mut self) {
        self.bits.fill(0);
    }
}
