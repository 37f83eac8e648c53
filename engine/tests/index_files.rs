//! Promise: an event that was pushed is found at its place, whatever happened to its index on the
//! way: frozen, written, opened, looked up in pages from any revision in either direction, merged.
//! Provoked with random streams over several segments against a map of lists; broken if a place
//! is missing, doubled, out of order, or if a damaged file is believed.
#![expect(clippy::unwrap_used, reason = "a test file: a panic is how a test fails")]

use std::collections::BTreeMap;

use duolog_engine::ids::{ClusterId, Generation, Hlc, LeaseEpoch, Lsn, Place, Revision, ShardId};
use duolog_engine::ids::{IdempotencyKey, StreamId};
use duolog_engine::index::catalog::{Catalog, KeyFile, RunFile};
use duolog_engine::index::key_file::{SegmentKeys, write_keys};
use duolog_engine::index::lookup::{Need, PostingLookup, Run};
use duolog_engine::index::merge::{MergeError, merge};
use duolog_engine::index::page::{IndexFileError, PAGE_BYTES};
use duolog_engine::index::run::{Entry, RunHeader, RunScope};
use duolog_engine::index::run_view::RunView;
use duolog_engine::index::run_writer::write_tail;
use duolog_engine::index::span::Direction;
use duolog_engine::index::tail::{Tail, TailCapacity};
use duolog_engine::segment::LogEnd;
use proptest::prelude::*;

type Model = BTreeMap<StreamId, Vec<Place>>;

fn stream(number: u64) -> StreamId {
    StreamId::of(&number.to_le_bytes())
}

fn scope(generation: u32) -> RunScope {
    let lsn = Lsn(u64::from(generation) * 1000);
    let end = LogEnd { lsn, hash: [generation as u8; 32], hlc: Hlc(3), epoch: LeaseEpoch(1) };
    RunScope {
        cluster: ClusterId(5),
        shard: ShardId(1),
        first: Generation(generation),
        last: Generation(generation),
        state: end,
    }
}

/// Pushes the events of one segment and writes its run.
fn segment(generation: u32, events: &[u64], model: &mut Model) -> Vec<u8> {
    let generation = Generation(generation);
    let mut tail = Tail::with_capacity(generation, TailCapacity { streams: 1, events: 1 });
    for (event, index) in events.iter().zip(0..) {
        let places = model.entry(stream(*event)).or_default();
        let place = Place { generation, offset: 4096 + index * 72 };
        let token = (event % 3 == 0).then_some(u64::from(index));
        tail.push(stream(*event), Revision(places.len() as u64), place.offset, token);
        places.push(place);
    }
    let (written, bytes) = write_tail(&tail, scope(generation.get()), Vec::new()).unwrap();
    assert_eq!(open(&bytes), written, "a written run is what opening it gives");
    bytes
}

/// Opens a run the way a server does: the header, then the resident part.
fn open(bytes: &[u8]) -> Run {
    let header = RunHeader::decode(&bytes[..PAGE_BYTES], bytes.len() as u64).unwrap();
    Run::open(header, &bytes[header.resident_offset() as usize..]).unwrap()
}

fn page(bytes: &[u8], number: u32) -> &[u8] {
    &bytes[number as usize * PAGE_BYTES..][..PAGE_BYTES]
}

fn find(run: &Run, bytes: &[u8], stream: StreamId) -> Option<Entry> {
    let mut lookup = run.look_up(stream);
    loop {
        match lookup.need() {
            Need::Page(number) => lookup.feed(page(bytes, number)).unwrap(),
            Need::Done(entry) => return entry,
        }
    }
}

fn places(run: &Run, bytes: &[u8], entry: &Entry, read: (u64, Direction, usize)) -> Vec<Place> {
    let (from, direction, max) = read;
    let mut out = Vec::new();
    let mut lookup = PostingLookup::new(run.header(), entry, Revision(from), direction, max);
    while let Need::Page(number) = lookup.need() {
        lookup.feed(page(bytes, number), &mut out).unwrap();
    }
    out
}

/// Compares everything that `run` says with the part of the model that lies in its segments.
fn compare(bytes: &[u8], model: &Model, from: u64, max: usize) {
    let run = open(bytes);
    let (first, last) = (run.header().scope.first, run.header().scope.last);
    let counts = RunView::new(bytes).unwrap().verify().unwrap();
    let mut streams = 0;
    for (stream, all) in model {
        let covered = |place: &&Place| first <= place.generation && place.generation <= last;
        let before = all.iter().take_while(|place| place.generation < first).count() as u64;
        let expected: Vec<Place> = all.iter().filter(covered).copied().collect();
        let Some(entry) = find(&run, bytes, *stream) else {
            assert!(expected.is_empty(), "{stream:?} is missing");
            continue;
        };
        streams += 1;
        assert!(run.may_contain(*stream));
        assert_eq!(entry.span.first, Revision(before));
        assert_eq!(entry.span.count, expected.len() as u64);
        let revisions = expected.iter().copied().zip(before..);
        let forwards: Vec<Place> = revisions
            .clone()
            .filter(|(_, revision)| *revision >= from)
            .map(|(place, _)| place)
            .take(max)
            .collect();
        assert_eq!(places(&run, bytes, &entry, (from, Direction::Forwards, max)), forwards);
        let mut backwards: Vec<Place> =
            revisions.filter(|(_, revision)| *revision <= from).map(|(place, _)| place).collect();
        backwards.reverse();
        backwards.truncate(max);
        assert_eq!(places(&run, bytes, &entry, (from, Direction::Backwards, max)), backwards);
        let whole = places(&run, bytes, &entry, (u64::MAX, Direction::Backwards, usize::MAX));
        assert!(whole.iter().rev().eq(&expected));
    }
    assert_eq!(counts.streams, streams);
    for unknown in 1_000_000..1_000_200 {
        assert_eq!(find(&run, bytes, stream(unknown)), None);
    }
}

fn merged(runs: &[Vec<u8>]) -> Vec<u8> {
    let views: Vec<RunView<'_>> = runs.iter().map(|run| RunView::new(run).unwrap()).collect();
    let (written, bytes) = merge(&views, Vec::new()).unwrap();
    assert_eq!(open(&bytes), written);
    let header = *written.header();
    let (oldest, newest) = (views[0].header().scope, views[views.len() - 1].header().scope);
    assert_eq!(header.scope, RunScope { first: oldest.first, ..newest });
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn events_are_found_before_and_after_merging(
        segments in proptest::collection::vec(
            proptest::collection::vec(0_u64..300, 0..900), 1..6),
        from in 0_u64..30, max in 0_usize..40,
    ) {
        let mut model = Model::new();
        let runs: Vec<Vec<u8>> = segments.iter().zip(1..)
            .map(|(events, generation)| segment(generation, events, &mut model)).collect();
        for run in &runs {
            compare(run, &model, from, max);
        }
        let whole = merged(&runs);
        compare(&whole, &model, from, max);
        // In two steps the same file comes out as in one.
        if runs.len() > 2 {
            let newer = merged(&runs[1..]);
            prop_assert_eq!(merged(&[runs[0].clone(), newer]), whole);
        }
    }
}

#[test]
fn long_streams_are_read_in_pages_over_many_posting_pages() {
    let mut model = Model::new();
    let runs: Vec<Vec<u8>> =
        (1..4).map(|generation| segment(generation, &[1; 2000], &mut model)).collect();
    let bytes = merged(&runs);
    let run = open(&bytes);
    let entry = find(&run, &bytes, stream(1)).unwrap();
    for max in [1, 509, 510, 511, 6000, 7000] {
        let mut found = Vec::new();
        while found.len() < 6000 {
            let from = found.len() as u64;
            found.extend(places(&run, &bytes, &entry, (from, Direction::Forwards, max)));
        }
        assert_eq!(found, model[&stream(1)]);
        found.clear();
        while found.len() < 6000 {
            let from = 5999 - found.len() as u64;
            found.extend(places(&run, &bytes, &entry, (from, Direction::Backwards, max)));
        }
        found.reverse();
        assert_eq!(found, model[&stream(1)]);
    }
}

#[test]
fn a_usual_lookup_is_one_page() {
    let mut model = Model::new();
    let bytes = segment(1, &(0..5000).collect::<Vec<_>>(), &mut model);
    let run = open(&bytes);
    for number in 0..10_000 {
        let mut lookup = run.look_up(stream(number));
        let Need::Page(number_of_page) = lookup.need() else {
            // Below the first fence.
            assert!(number >= 5000);
            continue;
        };
        lookup.feed(page(&bytes, number_of_page)).unwrap();
        let Need::Done(found) = lookup.need() else { panic!("a second page for {number}") };
        assert_eq!(found.is_some(), number < 5000);
    }
}

#[test]
fn streams_that_share_their_upper_half_are_found_across_pages() {
    let generation = Generation(1);
    let mut tail = Tail::with_capacity(generation, TailCapacity { streams: 1, events: 1 });
    let id = |low: u32| StreamId((9 << 64) | (u128::from(low) * 2));
    for low in 0..400 {
        tail.push(id(low), Revision(0), low * 72, None);
    }
    let (run, bytes) = write_tail(&tail, scope(1), Vec::new()).unwrap();
    for low in 0..400 {
        let entry = find(&run, &bytes, id(low)).unwrap();
        let found = places(&run, &bytes, &entry, (0, Direction::Forwards, 9));
        assert_eq!(found, [Place { generation, offset: low * 72 }]);
        assert_eq!(find(&run, &bytes, StreamId(id(low).0 + 1)), None);
    }
}

/// Files of version 1 lie on disks: what is written today must be what was written then. A change
/// of the format needs a new version beside this one, not another number here.
#[test]
fn the_bytes_of_version_1_do_not_change() {
    let mut model = Model::new();
    let runs: Vec<Vec<u8>> =
        (1..4).map(|generation| segment(generation, &[1, 2, 3, 1, 1], &mut model)).collect();
    let mut keys = SegmentKeys::for_segment(Generation(1), 1 << 16);
    (0..200).for_each(|index| keys.push(IdempotencyKey(u128::from(index) << 60), index * 8));
    let key_file = write_keys(&keys, ClusterId(5), ShardId(1), Vec::new()).unwrap();
    let mut catalog = Catalog::new(ClusterId(5), ShardId(1));
    let (first, last) = (Generation(1), Generation(1));
    let run = RunFile { first, last, stream_count: 3, posting_count: 5 };
    catalog.add(run, KeyFile { first, last, key_count: 200 }).unwrap();
    let mut manifest = Vec::new();
    catalog.encode(&mut manifest);
    let sums = [&runs[0], &merged(&runs), &key_file, &manifest].map(|file| crc32c::crc32c(file));
    assert_eq!(sums, [4_097_826_470, 3_945_243_313, 673_080_270, 895_047_197]);
}

#[test]
fn an_empty_segment_has_a_run_that_knows_nothing() {
    let mut model = Model::new();
    let runs = [segment(1, &[], &mut model), segment(2, &[], &mut model)];
    compare(&runs[0], &model, 0, 9);
    let bytes = merged(&runs);
    assert_eq!(bytes.len(), PAGE_BYTES);
    assert!(!open(&bytes).may_contain(stream(1)));
}

#[test]
fn the_highest_token_of_all_inputs_stays() {
    let mut runs = Vec::new();
    for (generation, token) in [(1, Some(7)), (2, None), (3, Some(9)), (4, None)] {
        let mut tail =
            Tail::with_capacity(Generation(generation), TailCapacity { streams: 1, events: 1 });
        tail.push(stream(1), Revision(u64::from(generation)), 0, token);
        runs.push(write_tail(&tail, scope(generation), Vec::new()).unwrap().1);
    }
    let bytes = merged(&runs);
    let entry = find(&open(&bytes), &bytes, stream(1)).unwrap();
    assert_eq!(entry.span.fencing_token, 9);
}

#[test]
fn runs_that_do_not_continue_are_not_merged() {
    let mut model = Model::new();
    let runs: Vec<Vec<u8>> =
        (1..4).map(|generation| segment(generation, &[1, 2, 1], &mut model)).collect();
    let view = |index: usize| RunView::new(&runs[index]).unwrap();
    let error = merge(&[view(0), view(2)], Vec::new()).unwrap_err();
    assert!(matches!(error, MergeError::NotAdjacent(Generation(3))));
    let error = merge(&[view(1), view(0)], Vec::new()).unwrap_err();
    assert!(matches!(error, MergeError::NotAdjacent(Generation(1))));
    assert!(matches!(merge(&[], Vec::new()), Err(MergeError::NoInput)));

    let mut other = Model::new();
    other.insert(stream(1), vec![Place::default(); 9]);
    let hole = segment(2, &[1], &mut other);
    let error = merge(&[view(0), RunView::new(&hole).unwrap()], Vec::new()).unwrap_err();
    let MergeError::Gap { stream: found, expected, found: revision, .. } = error else {
        panic!("{error}")
    };
    assert_eq!((found, expected, revision), (stream(1), Revision(2), Revision(9)));
}

/// Everything a server and a merge do with a file; the error of the first thing that fails.
fn use_all(bytes: &[u8]) -> Result<(), IndexFileError> {
    RunView::new(bytes)?.verify()?;
    Ok(())
}

#[test]
fn a_flipped_bit_anywhere_is_detected_and_located() {
    let mut model = Model::new();
    let events: Vec<u64> = (0..600).chain(0..300).collect();
    let mut bytes = segment(1, &events, &mut model);
    assert!(bytes.len() > 11 * PAGE_BYTES, "several pages of each kind");
    assert!(use_all(&bytes).is_ok());
    for at in (0..bytes.len()).step_by(13) {
        bytes[at] ^= 1 << (at % 8);
        let error = use_all(&bytes).unwrap_err();
        let page_start = (at / PAGE_BYTES * PAGE_BYTES) as u64;
        match error {
            IndexFileError::Header(_) => assert!(at < PAGE_BYTES),
            IndexFileError::Page(error) => assert_eq!(error.offset, page_start),
            IndexFileError::Size { .. } => panic!("{error} for a flipped bit at {at}"),
        }
        bytes[at] ^= 1 << (at % 8);
    }
}

#[test]
fn a_damaged_page_is_reported_by_lookups_and_merges() {
    let mut model = Model::new();
    let mut bytes = segment(1, &[1, 2, 2], &mut model);
    let run = open(&bytes);
    let entry = find(&run, &bytes, stream(2)).unwrap();
    bytes[PAGE_BYTES + 100] ^= 1;
    bytes[2 * PAGE_BYTES + 100] ^= 1;
    let mut lookup = run.look_up(stream(2));
    let error = lookup.feed(page(&bytes, 1)).unwrap_err();
    assert_eq!(error.offset, 4096);
    assert_eq!(lookup.need(), Need::Page(1), "a repaired page could be fed again");
    let mut lookup = PostingLookup::new(run.header(), &entry, Revision(0), Direction::Forwards, 9);
    let mut out = Vec::new();
    assert_eq!(lookup.feed(page(&bytes, 2), &mut out).unwrap_err().offset, 8192);
    assert_eq!((lookup.need(), out.len()), (Need::Page(2), 0));
    let view = RunView::new(&bytes).unwrap();
    assert!(matches!(merge(&[view], Vec::new()), Err(MergeError::Input { index: 0, .. })));
}

#[test]
fn truncated_and_longer_files_are_refused() {
    let mut model = Model::new();
    let mut bytes = segment(1, &[1, 2, 3], &mut model);
    for length in [0, 1, 4095, 4096, 4097, bytes.len() - 4096, bytes.len() - 1] {
        assert!(RunView::new(&bytes[..length]).is_err(), "{length}");
    }
    bytes.extend_from_slice(&[0; PAGE_BYTES]);
    assert!(matches!(RunView::new(&bytes), Err(IndexFileError::Size { .. })));
}

proptest! {
    /// Checksums are mended after each change, so that what lies behind them is reached.
    #[test]
    fn changed_files_with_right_checksums_never_panic(
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6),
    ) {
        let mut model = Model::new();
        let events: Vec<u64> = (0..200).chain(0..100).collect();
        let mut bytes = segment(1, &events, &mut model);
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
            let page = &mut bytes[at / PAGE_BYTES * PAGE_BYTES..][..PAGE_BYTES];
            if at < PAGE_BYTES {
                let checksum = crc32c::crc32c(&page[16..]);
                page[12..16].copy_from_slice(&checksum.to_le_bytes());
            } else {
                let checksum = crc32c::crc32c(&page[4..]);
                page[..4].copy_from_slice(&checksum.to_le_bytes());
            }
        }
        if let Ok(view) = RunView::new(&bytes) {
            let _ = view.verify();
            let _ = merge(&[view], Vec::new());
            if let Ok(run) = view.open() {
                for number in 0..200 {
                    look_up_without_panic(&run, &bytes, stream(number));
                }
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..9000)) {
        prop_assert!(RunView::new(&bytes).is_err());
    }
}

fn look_up_without_panic(run: &Run, bytes: &[u8], stream: StreamId) {
    let mut lookup = run.look_up(stream);
    let entry = loop {
        match lookup.need() {
            Need::Page(number) => {
                if lookup.feed(page(bytes, number)).is_err() {
                    return;
                }
            }
            Need::Done(entry) => break entry,
        }
    };
    let Some(entry) = entry else { return };
    let from = Revision(u64::MAX);
    let mut places =
        PostingLookup::new(run.header(), &entry, from, Direction::Backwards, usize::MAX);
    let mut out = Vec::new();
    while let Need::Page(number) = places.need() {
        if places.feed(page(bytes, number), &mut out).is_err() {
            return;
        }
    }
}
