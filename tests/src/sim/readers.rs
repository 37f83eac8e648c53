//! Readers see exactly what is committed: Q1 to Q3 of docs/INVARIANTS.md.

use duolog_engine::ids::{Lsn, Place, Revision};
use duolog_engine::index::span::Direction;
use duolog_engine::record::Record;
use duolog_engine::shard::{Located, StreamEnd};

use super::ledger::Row;
use super::world::World;

/// Events per look, at most.
const LOOK_MAX: u64 = 40;

impl World {
    /// Reads a piece of a stream as a driver does and compares it with the ledger.
    pub(super) fn read_stream(&mut self, stream: usize, direction: Direction) {
        let id = self.streams.ids[stream];
        let known = self.ledger.streams[stream].lsns.len() as u64;
        let end = match self.shard.stream_end(id) {
            StreamEnd::Known(end) => end,
            StreamEnd::Sealed => {
                let head = self.index.snapshot().head(id).expect("D7: indexes can be read");
                head.map_or(Revision(0), |head| head.next)
            }
        };
        assert_eq!(end.0, known, "Q1: a stream ends behind its last committed event");
        let from = match self.chance.below(4) {
            0 => Revision(0),
            1 => Revision(u64::MAX),
            _ => Revision(self.chance.below(known + 3)),
        };
        let max = self.chance.between(1, LOOK_MAX) as usize;
        let mut places = Vec::new();
        match self.shard.locate(id, from, direction, max, &mut places) {
            Located::Places => assert!(!places.is_empty(), "Q2: places are put out"),
            Located::End => assert!(places.is_empty(), "Q2: behind the end there is nothing"),
            Located::Sealed => {
                let snapshot = self.index.snapshot();
                let found = snapshot.places(id, from, direction, max, &mut places);
                found.expect("D7: indexes can be read");
            }
        }
        self.compare(stream, from, direction, &places);
    }

    fn compare(&mut self, stream: usize, from: Revision, direction: Direction, places: &[Place]) {
        let lsns = &self.ledger.streams[stream].lsns;
        let expected: Vec<Lsn> = match direction {
            Direction::Forwards => {
                let start = usize::try_from(from.0).unwrap_or(usize::MAX).min(lsns.len());
                lsns[start..].to_vec()
            }
            Direction::Backwards => {
                let end = usize::try_from(from.0.saturating_add(1)).unwrap_or(usize::MAX);
                lsns[..end.min(lsns.len())].iter().rev().copied().collect()
            }
        };
        let (count, left) = (places.len(), expected.len());
        assert!(count > 0 || left == 0, "Q2: {left} events from {from} on, none found");
        assert!(count <= left, "Q1: {count} events from {from} on where {left} are committed");
        for (place, lsn) in places.iter().zip(expected) {
            let row = *self.ledger.row(lsn);
            assert_eq!(*place, row.place, "Q2: revision {} lies elsewhere", row.revision);
            self.read_record(lsn, &row);
        }
    }

    /// Reads one event, from memory or from the disk.
    fn read_record(&mut self, lsn: Lsn, row: &Row) {
        self.report.reads += 1;
        let event = self.work.event(row.operation, row.index);
        let bytes = match self.shard.recent(row.place) {
            Some(bytes) => bytes,
            None => self.disk.visible(row.place, 200 << 10),
        };
        let record = match Record::decode(bytes) {
            Ok((Record::Event(record), _)) => record,
            other => panic!("Q3: at {:?} is no event: {other:?}", row.place),
        };
        assert_eq!((record.lsn, record.revision), (lsn, row.revision), "Q3: another event");
        assert_eq!(record.stream, self.streams.names[row.stream], "Q3: another stream");
        assert_eq!(record.id, event.id, "Q3: another event");
        assert!(record.data == event.data, "Q3: other data");
    }
}
