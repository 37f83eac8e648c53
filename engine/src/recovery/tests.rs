//! Logs made by hand, and what a start makes of them.

use std::collections::BTreeMap;

use super::*;
use crate::block::{BLOCK_HEADER_BYTES, BlockHash, BlockSeal, seal};
use crate::ids::{IdempotencyKey, Revision};
use crate::record::{AppendParts, EventParts, StreamRange, encode_append, encode_event};
use crate::segment::SegmentHeader;
use crate::shard::tests::config;

const PAGE: u32 = 4096;

/// A log in memory.
#[derive(Clone)]
struct Log {
    files: BTreeMap<Generation, Vec<u8>>,
    end: LogEnd,
    place: Place,
    revision: Revision,
    settled: Option<Generation>,
}

impl LogSource for Log {
    fn segments(&mut self) -> std::io::Result<Vec<(Generation, u64)>> {
        assert!(self.settled.is_some(), "nothing is read before the disk has settled");
        Ok(self.files.iter().map(|(at, file)| (*at, file.len() as u64)).collect())
    }

    fn settle(&mut self, first: Generation) -> std::io::Result<()> {
        self.settled = Some(first);
        Ok(())
    }

    fn read(&mut self, at: Generation, offset: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
        assert!(self.settled.is_some_and(|first| at >= first), "what is read has settled");
        let file = self.files.get(&at).map(Vec::as_slice).unwrap_or_default();
        let rest = file.get(offset as usize..).unwrap_or_default();
        let length = buffer.len().min(rest.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }
}

/// Keeps what is saved; nothing is known from before.
#[derive(Default)]
struct Saves(Vec<Generation>);

impl IndexStore for Saves {
    fn save(&mut self, sealed: &Sealed) -> std::io::Result<()> {
        self.0.push(sealed.generation);
        Ok(())
    }

    fn head(&mut self, _: StreamId) -> std::io::Result<Option<StoredHead>> {
        Ok(None)
    }
}

impl Log {
    fn new() -> Self {
        let end = empty_log(identity());
        let place = Place { generation: Generation(0), offset: 0 };
        let mut log =
            Self { files: BTreeMap::new(), end, place, revision: Revision(0), settled: None };
        log.rotate();
        log
    }

    /// Begins the next segment; the header is written with the first block in it.
    fn rotate(&mut self) {
        let generation = self.place.generation.next();
        self.files.insert(generation, vec![0; config().layout.segment_size_bytes as usize]);
        self.place = Place { generation, offset: PAGE };
    }

    fn put(&mut self, offset: u32, bytes: &[u8]) {
        let file = self.files.get_mut(&self.place.generation).unwrap();
        file[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Appends a block of `count` events of stream "a" that says `mark` is committed.
    fn block(&mut self, count: u32, mark: u64) -> Place {
        self.block_with(count, mark, &[7; 100], None)
    }

    fn block_with(
        &mut self,
        count: u32,
        mark: u64,
        data: &[u8],
        keyed: Option<(u128, u64)>,
    ) -> Place {
        let place = self.place;
        if place.offset == PAGE {
            let mut page = vec![0; PAGE as usize];
            header(place.generation, self.end).encode(&mut page);
            self.put(0, &page);
        }
        let (first_lsn, hlc) = (self.end.lsn.next(), Hlc(self.end.hlc.0 + 1));
        let mut bytes = vec![0; BLOCK_HEADER_BYTES];
        let body: Vec<u8> = b"kind".iter().chain(data).copied().collect();
        let (stream, first) = (StreamId::of(b"a"), self.revision);
        if let Some((key, token)) = keyed {
            let streams = &[StreamRange { stream, first, event_count: count }];
            let key = Some(IdempotencyKey(key));
            let (fencing_token, event_count) = (Some(token), count);
            let (fingerprint, epoch) = (0, LeaseEpoch(0));
            let parts = AppendParts {
                first_lsn,
                key,
                fingerprint,
                fencing_token,
                event_count,
                hlc,
                epoch,
                streams,
            };
            encode_append(&mut bytes, &parts);
        }
        for index in 0..u64::from(count) {
            let parts = EventParts {
                lsn: Lsn(first_lsn.0 + index),
                revision: self.revision,
                hlc,
                id: 0,
                stream: b"a",
                type_length: 4,
                metadata_length: 0,
                body: &body,
            };
            encode_event(&mut bytes, &parts);
            self.revision = self.revision.next();
        }
        let what = BlockSeal {
            shard: config().shard,
            generation: place.generation,
            epoch: LeaseEpoch(0),
            first_lsn,
            event_count: count,
            hlc,
            commit_mark: Lsn(mark),
            previous_hash: self.end.hash,
        };
        let hash = seal(&mut bytes, &what);
        self.put(place.offset, &bytes);
        let lsn = Lsn(first_lsn.0 + u64::from(count) - 1);
        self.end = LogEnd { lsn, hash, hlc, epoch: LeaseEpoch(0) };
        self.place.offset += (bytes.len() as u32).next_multiple_of(PAGE);
        place
    }

    fn flip(&mut self, place: Place, at: u32) {
        let file = self.files.get_mut(&place.generation).unwrap();
        file[(place.offset + at) as usize] ^= 1;
    }

    fn recover_after(&self, mark: Option<LogEnd>) -> Result<Recovered, RecoverError> {
        let keys = KeyWindow::new(10, 0);
        let end = empty_log(identity());
        let checkpoint = Checkpoint { flushed: Generation(0), end, mark, keys };
        recover(&config(), &mut self.clone(), checkpoint, &mut Saves::default())
    }

    fn recover(&self) -> Recovered {
        self.recover_after(None).unwrap()
    }
}

/// Recovers as a node of a pair; the indexes that were saved.
fn recover_in_pair(log: &Log, mark: Option<LogEnd>) -> (Recovered, Vec<Generation>) {
    let mut config = config();
    config.pair = Some(crate::ids::NodeId(1));
    let end = empty_log(identity());
    let keys = KeyWindow::new(10, 0);
    let checkpoint = Checkpoint { flushed: Generation(0), end, mark, keys };
    let mut saves = Saves::default();
    let recovered = recover(&config, &mut log.clone(), checkpoint, &mut saves).unwrap();
    (recovered, saves.0)
}

/// In a pair committed is what the marks say: in the blocks of the log, or on their own. Broken if
/// the whole log counts as committed, as it does on the only node.
#[test]
fn a_node_of_a_pair_takes_for_committed_what_marks_say() {
    let mut log = Log::new();
    let mut ends = vec![log.end];
    for (count, mark) in [(2, 0), (1, 2), (3, 2), (1, 3)] {
        log.block(count, mark);
        ends.push(log.end);
    }
    let committed = |mark| {
        let (Recovered { start, .. }, _) = recover_in_pair(&log, mark);
        let rest: Vec<LogEnd> = start.uncommitted.iter().map(|block| block.end).collect();
        let at = ends.iter().position(|end| *end == start.committed.end).unwrap();
        assert_eq!(rest, ends[at + 1..], "the rest is a tail, block by block");
        start.committed.end.lsn.0
    };
    assert_eq!(committed(None), 3, "the newest mark in a block");
    assert_eq!(committed(Some(ends[1])), 3, "an older mark takes nothing back");
    assert_eq!(committed(Some(ends[3])), 6);
    assert_eq!(committed(Some(ends[4])), 7);
    let other = LogEnd { hash: [9; 32], ..ends[3] };
    assert_eq!(committed(Some(other)), 3, "another log's mark");
    assert_eq!(log.recover().start.committed.end, log.end, "the only node");
}

/// D7 in a pair: the index of a segment is saved when its end is known to be committed, be it by a
/// block of a later one; what is not known to be is left to the machine.
#[test]
fn indexes_of_a_pairs_node_wait_for_the_commit() {
    let mut log = Log::new();
    let mut marks = Vec::new();
    for _ in 0..3 {
        let before = log.end.lsn.0;
        log.block(1, before.saturating_sub(1));
        log.block(1, before.min(3));
        marks.push(log.end);
        log.rotate();
    }
    // The first segment's end is known to be committed only by the second's blocks.
    let (recovered, saved) = recover_in_pair(&log, None);
    assert_eq!(saved, [Generation(1)]);
    let unsaved: Vec<Generation> =
        recovered.start.unsaved.iter().map(|sealed| sealed.generation).collect();
    assert_eq!(unsaved, [Generation(2)]);
    let (_, saved) = recover_in_pair(&log, Some(marks[2]));
    assert_eq!(saved, [Generation(1), Generation(2)]);
}

/// D4 in a pair: blocks of a follower are written in any order, and their marks are the leader's.
/// What a later block says is no proof that something was lost here; the own mark is.
#[test]
fn only_the_own_mark_proves_damage_in_a_pair() {
    let mut log = Log::new();
    log.block(1, 0);
    let torn = log.block(1, 1);
    let end = log.end;
    log.block(1, 2);
    log.flip(torn, 200);
    assert_eq!(damage(&log.recover()), (2, 2, Proof::Committed));
    let (recovered, _) = recover_in_pair(&log, None);
    assert_eq!(recovered.scan.ending, Ending::Torn { blocks: 1 });
    let doubt = recovered.scan.doubt.map(|doubt| (doubt.first, doubt.last, doubt.last_hash));
    assert_eq!(doubt, Some((Lsn(2), Lsn(2), Some(end.hash))), "but a reason to ask");
    let (recovered, _) = recover_in_pair(&log, Some(end));
    assert_eq!(damage(&recovered), (2, 2, Proof::Committed));
    assert_eq!(last_hash(&recovered), None, "the marked block is lost: nothing shows the rest");
    let (recovered, _) = recover_in_pair(&log, Some(log.end));
    assert_eq!(damage(&recovered), (2, 2, Proof::Committed));
    assert_eq!(last_hash(&recovered), Some(end.hash), "the marked block names the one before");
}

fn last_hash(recovered: &Recovered) -> Option<BlockHash> {
    match recovered.scan.ending {
        Ending::Damaged(damage) => damage.last_hash,
        ending => panic!("{ending:?}"),
    }
}

fn identity() -> LogIdentity {
    LogIdentity { cluster: config().cluster, shard: config().shard }
}

fn header(generation: Generation, base: LogEnd) -> SegmentHeader {
    SegmentHeader {
        cluster: config().cluster,
        shard: config().shard,
        generation,
        size_bytes: config().layout.segment_size_bytes,
        align_bytes: PAGE,
        base,
    }
}

fn damage(recovered: &Recovered) -> (u64, u64, Proof) {
    match recovered.scan.ending {
        Ending::Damaged(Damage { first, last, proof, .. }) => (first.0, last.0, proof),
        ending => panic!("{ending:?}"),
    }
}

#[test]
fn an_empty_log_is_clean_and_begins_at_segment_1() {
    let log = Log::new();
    let recovered = log.recover();
    assert_eq!(recovered.scan.ending, Ending::Clean);
    assert_eq!((recovered.start.newest, recovered.start.active), (Generation(0), None));
    assert_eq!(recovered.scan.end, empty_log(identity()));
}

#[test]
fn heads_tokens_and_keys_come_back_over_segments() {
    let mut log = Log::new();
    log.block_with(2, 0, &[1], Some((5, 9)));
    log.rotate();
    log.block(3, 2);
    log.block_with(1, 5, &[1], Some((6, 9)));
    let mut recovered = log.recover();
    assert_eq!(recovered.scan.ending, Ending::Clean);
    assert_eq!(recovered.scan.end, log.end);
    assert_eq!((recovered.blocks, recovered.events), (3, 6));
    let head = recovered.start.heads.get(StreamId::of(b"a")).unwrap();
    assert_eq!((head.next_revision, head.fencing_token), (Revision(6), 9));
    let keys: Vec<u128> = recovered.start.keys.iter().map(|(key, _)| key.0).collect();
    assert_eq!(keys, [5, 6]);
    assert_eq!(recovered.start.tail_keys.len(), 1, "of the active segment only");
    let active = recovered.start.active.unwrap();
    assert_eq!((active.generation, active.offset), (Generation(2), log.place.offset));
}

/// Promise D4: what was in flight is cut. Broken if a block behind a torn one is taken.
#[test]
fn a_torn_tail_is_cut_and_told_from_damage() {
    for torn in [0, 160, 300] {
        let mut log = Log::new();
        log.block(2, 0);
        let (end, place) = (log.end, log.place);
        let hit = log.block(2, 2);
        log.block(2, 2);
        log.flip(hit, torn);
        let recovered = log.recover();
        assert_eq!(recovered.scan.ending, Ending::Torn { blocks: 1 });
        assert_eq!((recovered.scan.end, recovered.scan.place), (end, place));
        assert_eq!(recovered.scan.newest_stamp, log.end.hlc, "new blocks are stamped later");
    }
}

/// Promise D4: damage with proof behind it is reported with what is missing, and nothing more.
#[test]
fn damage_before_blocks_with_proof_is_reported() {
    let mut log = Log::new();
    log.block(2, 0);
    let hit = log.block(3, 2);
    log.block(2, 2);
    log.block(1, 7);
    for at in [0, 20, 130, 200] {
        let mut log = log.clone();
        log.flip(hit, at);
        assert_eq!(damage(&log.recover()), (3, 5, Proof::Committed), "byte {at}");
    }
    // Two damaged blocks, far from each other: at least the first is named.
    log.flip(hit, 200);
    log.flip(Place { offset: hit.offset + PAGE, ..hit }, 200);
    assert_eq!(damage(&log.recover()), (3, 7, Proof::Committed));
}

/// Promise D4 for the newest block: the mark knows of it.
#[test]
fn damage_of_the_last_block_is_proven_by_the_mark_only() {
    let mut log = Log::new();
    log.block(2, 0);
    let hit = log.block(3, 2);
    let mark = Some(log.end);
    log.flip(hit, 200);
    assert_eq!(log.recover().scan.ending, Ending::Clean);
    let recovered = log.recover_after(mark).unwrap();
    assert_eq!(damage(&recovered), (3, 5, Proof::Committed));
}

/// A segment whose header is damaged is lost with all its events, though its blocks are whole.
#[test]
fn a_damaged_segment_header_loses_the_segment() {
    let mut log = Log::new();
    log.block(2, 0);
    log.rotate();
    let first = log.block(3, 2);
    log.block(1, 5);
    let header = Place { offset: 0, ..first };
    for at in [0, 11, 40, 100] {
        let mut log = log.clone();
        log.flip(header, at);
        assert_eq!(damage(&log.recover()), (3, 5, Proof::Committed), "byte {at}");
    }
}

/// Promise D5: leftovers are not taken for new data. Provoked by the next segment of an older life
/// and by blocks of another segment number at the right place.
#[test]
fn leftovers_of_another_life_are_not_the_log() {
    let mut old = Log::new();
    old.block(2, 0);
    old.rotate();
    old.block(2, 2);
    let mut log = Log::new();
    log.block_with(2, 0, b"another life", None);
    log.files.insert(Generation(2), old.files[&Generation(2)].clone());
    let recovered = log.recover();
    assert_eq!(recovered.scan.end, log.end);
    assert_eq!(recovered.scan.ending, Ending::Torn { blocks: 1 });
    // The same file as some other segment.
    log.files.insert(Generation(2), old.files[&Generation(1)].clone());
    assert_eq!(log.recover().scan.ending, Ending::Clean);
}

/// Clients' data is never looked at as if it were the log's: an event may hold a whole block,
/// with a commit mark of its own, at a place where a block could begin.
#[test]
fn a_block_inside_an_event_proves_nothing() {
    let mut inner = Log::new();
    inner.block(9, 1_000_000);
    let inner = inner.files[&Generation(1)][PAGE as usize..][..2048].to_vec();
    let mut data = vec![0; 10_000];
    // The event's data begins behind both headers, the record's texts and the type.
    let before = BLOCK_HEADER_BYTES + crate::record::RECORD_FIXED_BYTES + 1 + 4;
    data[PAGE as usize - before..][..inner.len()].copy_from_slice(&inner);
    let mut log = Log::new();
    log.block(1, 0);
    let torn = log.block_with(1, 1, &data, None);
    log.block(1, 1);
    // Torn at its end: the block inside is whole.
    log.flip(torn, 9_000);
    assert_eq!(log.recover().scan.ending, Ending::Torn { blocks: 1 });
    // And in a whole block behind a torn one.
    let mut log = Log::new();
    let torn = log.block(1, 0);
    log.block_with(1, 0, &data, None);
    log.flip(torn, 300);
    assert_eq!(log.recover().scan.ending, Ending::Torn { blocks: 1 });
}

/// What a newer program has written is not cut off by an older one.
#[test]
fn a_log_that_goes_on_in_a_newer_version_is_an_error() {
    let mut log = Log::new();
    log.block(1, 0);
    let mut newer = log.block(1, 1);
    log.files.get_mut(&newer.generation).unwrap()[newer.offset as usize + 8] = 2;
    let error = log.recover_after(None).unwrap_err();
    assert!(matches!(error, RecoverError::Newer { place, version: 2 } if place == newer));
    // A whole segment.
    let mut log = Log::new();
    log.block(1, 0);
    log.rotate();
    newer = log.block(1, 1);
    log.files.get_mut(&newer.generation).unwrap()[8] = 3;
    let error = log.recover_after(None).unwrap_err();
    assert!(matches!(error, RecoverError::Newer { version: 3, .. }), "{error}");
}

#[test]
fn a_file_that_is_missing_or_cut_is_damage() {
    let mut log = Log::new();
    log.block(1, 0);
    log.rotate();
    log.block(1, 1);
    log.rotate();
    let mut gap = log.clone();
    gap.files.remove(&Generation(2));
    assert_eq!(damage(&gap.recover()), (2, 2, Proof::FileLost));
    log.files.get_mut(&Generation(2)).unwrap().truncate(40 << 10);
    assert_eq!(damage(&log.recover()), (3, 3, Proof::FileLost));
}

/// A segment made under another size takes no more blocks; the log goes on in the next.
#[test]
fn a_segment_of_another_size_is_complete() {
    let mut log = Log::new();
    log.block(1, 0);
    for size_bytes in [128 << 10, 64 << 10] {
        let mut config = config();
        config.layout.segment_size_bytes = size_bytes;
        let (end, keys) = (empty_log(identity()), KeyWindow::new(10, 0));
        let checkpoint = Checkpoint { flushed: Generation(0), end, mark: None, keys };
        let mut store = Saves::default();
        let recovered = recover(&config, &mut log.clone(), checkpoint, &mut store).unwrap();
        let active = recovered.start.active.unwrap();
        let full = active.offset >= size_bytes;
        assert_eq!(full, size_bytes != 64 << 10, "{size_bytes}");
        assert_eq!(recovered.scan.end, log.end);
    }
}

#[test]
fn another_clusters_segment_is_refused() {
    let mut log = Log::new();
    log.block(1, 0);
    let mut page = vec![0; PAGE as usize];
    let other = SegmentHeader { cluster: ClusterId(8), ..header(Generation(1), log.end) };
    other.encode(&mut page);
    log.files.get_mut(&Generation(1)).unwrap()[..page.len()].copy_from_slice(&page);
    let error = log.recover_after(None).unwrap_err();
    assert!(matches!(error, RecoverError::OtherCluster { found: ClusterId(8), .. }), "{error}");
}

/// Indexes of complete segments are saved on the way; the work after the last of them is left.
#[test]
fn complete_segments_are_saved_and_the_newest_is_not() {
    let mut log = Log::new();
    for mark in 0..3 {
        log.block(1, mark);
        log.rotate();
    }
    let (end, keys) = (empty_log(identity()), KeyWindow::new(10, 0));
    let checkpoint = Checkpoint { flushed: Generation(0), end, mark: None, keys };
    let mut store = Saves::default();
    let recovered = recover(&config(), &mut log, checkpoint, &mut store).unwrap();
    assert_eq!(store.0, [Generation(1), Generation(2)]);
    assert_eq!(recovered.start.newest, Generation(3));
}
