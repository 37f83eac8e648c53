//! Holds what clients were told against what a node has: each acknowledged event once, at the
//! position told.

use duolog_net::client::{Client, Lsn, ShardId};

use super::PairError;
use super::writer::{Ack, number_of};

/// Bytes per page of the log.
const PAGE_BYTES: u32 = 4 << 20;

/// What one node is missing or has wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Acknowledged and not there.
    pub missing: u64,
    /// There more than once.
    pub doubled: u64,
    /// There at another position than told.
    pub moved: u64,
    /// Acknowledged to the load generator, which keeps only the number, and not there.
    pub uncounted: u64,
}

impl Verdict {
    /// Everything that breaks the promise.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.missing + self.doubled + self.moved + self.uncounted
    }
}

/// What is known of one node's log so far.
#[derive(Debug)]
pub struct Ledger<'a> {
    journal: &'a [Ack],
    /// By number: how often it was seen.
    seen: Vec<u8>,
    moved: u64,
    others: u64,
}

impl<'a> Ledger<'a> {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(journal: &'a [Ack]) -> Self {
        Self { journal, seen: vec![0; journal.len()], moved: 0, others: 0 }
    }

    /// An event of the writer's stream.
    pub fn see(&mut self, payload: &[u8], lsn: u64, revision: u64) {
        // Behind the journal's end lies at most what was under way when the writer ended.
        let index = number_of(payload).and_then(|number| usize::try_from(number).ok());
        let Some((index, ack)) = index.and_then(|index| Some((index, self.journal.get(index)?)))
        else {
            return;
        };
        self.seen[index] = self.seen[index].saturating_add(1);
        if self.seen[index] == 1 && (ack.lsn, ack.revision) != (lsn, revision) {
            self.moved += 1;
        }
    }

    /// An event of somebody else.
    pub const fn see_other(&mut self) {
        self.others += 1;
    }

    /// Everything was seen. `others`: events acknowledged to the load generator.
    #[must_use]
    pub fn judge(&self, others: u64) -> Verdict {
        let count = |wanted: fn(u8) -> bool| {
            self.seen.iter().filter(|count| wanted(**count)).count() as u64
        };
        Verdict {
            missing: count(|count| count == 0),
            doubled: count(|count| count > 1),
            moved: self.moved,
            uncounted: others.saturating_sub(self.others),
        }
    }
}

/// Reads the whole log of the one shard of the node at `address`, be it the leader or not.
pub async fn read(
    address: &str,
    stream: &str,
    journal: &[Ack],
    others: u64,
) -> Result<Verdict, PairError> {
    let client = Client::builder().addresses(address).any_node().connect().await;
    let client = client.map_err(PairError::client("connect"))?;
    let mut ledger = Ledger::new(journal);
    let mut from = Lsn(1);
    loop {
        let read = client.read_log(ShardId(0), from).page_bytes(PAGE_BYTES).any_consistency();
        let page = read.page().await.map_err(PairError::client("read"))?;
        for event in &page.events {
            if event.stream == stream {
                ledger.see(&event.data, event.lsn.0, event.revision.0);
            } else {
                ledger.see_other();
            }
        }
        from = page.tail.next;
        if page.tail.end {
            return Ok(ledger.judge(others));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each way to break the promise is counted. Broken if one of them passed as whole.
    #[test]
    fn what_is_missing_doubled_or_moved_is_counted() {
        let ack = |number: u64| Ack { lsn: number + 10, revision: number, at_ns: 0 };
        let journal: Vec<Ack> = (0..4).map(ack).collect();
        let see = |ledger: &mut Ledger<'_>, number: u64, lsn: u64| {
            ledger.see(&number.to_le_bytes(), lsn, number);
        };
        let mut ledger = Ledger::new(&journal);
        (0..5).for_each(|number| see(&mut ledger, number, number + 10));
        ledger.see_other();
        assert_eq!(ledger.judge(1), Verdict::default());
        assert_eq!(ledger.judge(3).lost(), 2);
        let mut ledger = Ledger::new(&journal);
        see(&mut ledger, 0, 10);
        see(&mut ledger, 0, 14);
        see(&mut ledger, 1, 12);
        let verdict = ledger.judge(0);
        assert_eq!(verdict, Verdict { missing: 2, doubled: 1, moved: 1, uncounted: 0 });
        assert_eq!(verdict.lost(), 4);
    }
}
