//! Promise D2: what was written is read back, and what was damaged is never taken for whole.
//! Provoked with random and extreme values, every single flipped bit, and every cut; broken if
//! bytes come back changed, if a changed one is accepted, or if a decoder panics or takes memory
//! on the strength of a length.
#![expect(clippy::unwrap_used, reason = "a test file: a panic is how a test fails")]

use duolog_engine::append::{AppendBuilder, AppendError, AppendView, Expect};
use duolog_engine::block::{
    BLOCK_HEADER_BYTES, Block, BlockError, BlockHeader, BlockSeal, genesis, seal,
};
use duolog_engine::fuzz::{
    fuzz_append, fuzz_block, fuzz_bodies, fuzz_headers, fuzz_log, fuzz_record,
};
use duolog_engine::ids::{
    ClusterId, Generation, Hlc, IdempotencyKey, LeaseEpoch, Lsn, Revision, ShardId, StreamId,
};
use duolog_engine::limits::{APPEND_EVENTS_MAX, APPEND_STREAMS_MAX, BLOCK_BODY_MAX_BYTES};
use duolog_engine::record::{
    AppendParts, EventParts, Record, RecordError, StreamRange, encode_append, encode_event,
};
use duolog_engine::segment::{LogEnd, SEGMENT_HEADER_BYTES, SegmentError, SegmentHeader};
use proptest::prelude::*;

const LIMIT: usize = 1 << 20;

/// Lengths as a damaged or forged field may hold them: 0, around every power of two that matters,
/// and everything that rounding up to a page would wrap.
fn extreme_lengths(actual: u32) -> Vec<u32> {
    let mut lengths = vec![0, 1, 7, 8, 63, 64, 65, 72, 159, 160, 4095, 4096, i32::MAX as u32];
    lengths.extend([actual.wrapping_sub(1), actual + 1, actual + 8, 1 << 31]);
    lengths.extend([BLOCK_BODY_MAX_BYTES as u32, BLOCK_BODY_MAX_BYTES as u32 + 1]);
    lengths.extend((0..4096).map(|less| u32::MAX - less));
    lengths
}

#[derive(Clone, Debug)]
struct Event {
    kind: String,
    metadata: Vec<u8>,
    data: Vec<u8>,
}

fn event() -> impl Strategy<Value = Event> {
    let bytes = |max| prop::collection::vec(any::<u8>(), 0..max);
    let kind = prop_oneof!["[a-z]{1,20}", "\\PC{1,40}", Just("k".repeat(255))];
    (kind, bytes(40), bytes(300)).prop_map(|(kind, metadata, data)| Event { kind, metadata, data })
}

fn expect() -> impl Strategy<Value = Expect> {
    prop_oneof![
        Just(Expect::Any),
        Just(Expect::NoStream),
        Just(Expect::StreamExists),
        any::<u64>().prop_map(|revision| Expect::Exact(Revision(revision))),
    ]
}

type Asked = (Option<u128>, Option<u64>, Vec<(Expect, Vec<Event>)>);

fn asked() -> impl Strategy<Value = Asked> {
    let streams = prop::collection::vec((expect(), prop::collection::vec(event(), 0..4)), 1..6);
    let streams = streams.prop_filter("an append has events", |streams| {
        streams.iter().any(|(_, events)| !events.is_empty())
    });
    (any::<Option<u128>>(), any::<Option<u64>>(), streams)
}

fn build((key, token, streams): &Asked) -> Vec<u8> {
    let mut builder = AppendBuilder::new();
    if let Some(key) = key {
        builder.key(IdempotencyKey(*key));
    }
    if let Some(token) = token {
        builder.fencing_token(*token);
    }
    for (number, (expect, events)) in streams.iter().enumerate() {
        let stream = builder.stream(&format!("stream-{number}"), *expect).unwrap();
        for (id, event) in (0..).zip(events) {
            stream.event(id, &event.kind, &event.metadata, &event.data).unwrap();
        }
    }
    let mut bytes = Vec::new();
    builder.encode(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn an_append_comes_back(asked in asked()) {
        let bytes = build(&asked);
        let (key, token, streams) = asked;
        let view = AppendView::parse(&bytes, LIMIT).unwrap();
        prop_assert_eq!(view.key(), key.map(IdempotencyKey));
        prop_assert_eq!(view.fencing_token(), token);
        let mut events = view.events();
        for ((number, (expect, sent)), stream) in streams.iter().enumerate().zip(view.streams()) {
            let name = format!("stream-{number}");
            prop_assert_eq!(stream.name, name.as_bytes());
            prop_assert_eq!(stream.expect, *expect);
            prop_assert_eq!(stream.event_count as usize, sent.len());
            for (id, sent) in (0..).zip(sent) {
                let event = events.next().unwrap();
                prop_assert_eq!(event.id, id);
                prop_assert_eq!(event.kind, sent.kind.as_bytes());
                prop_assert_eq!(event.metadata, &sent.metadata[..]);
                prop_assert_eq!(event.data, &sent.data[..]);
            }
        }
        prop_assert!(events.next().is_none());
        for cut in 0..bytes.len() {
            prop_assert!(AppendView::parse(&bytes[..cut], LIMIT).is_err(), "cut at {}", cut);
        }
        fuzz_append(&bytes);
    }

    #[test]
    fn damaged_appends_never_panic(
        asked in asked(), flips in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..5),
    ) {
        let mut bytes = build(&asked);
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        fuzz_append(&bytes);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        fuzz_append(&bytes);
        fuzz_record(&bytes);
        fuzz_block(&bytes);
        fuzz_headers(&bytes);
        fuzz_log(&bytes);
        fuzz_bodies(&bytes);
    }

    #[test]
    fn records_come_back(
        event in event(), numbers in any::<[u64; 4]>(), id in any::<u128>(),
        streams in prop::collection::vec(any::<(u128, u64, u32)>(), 0..20),
        key in any::<Option<u128>>(), token in any::<Option<u64>>(), count in any::<u32>(),
    ) {
        let mut out = Vec::new();
        let [lsn, revision, hlc, epoch] = numbers;
        let streams: Vec<StreamRange> = streams.into_iter().map(|(stream, first, event_count)| {
            StreamRange { stream: StreamId(stream), first: Revision(first), event_count }
        }).collect();
        let parts = AppendParts {
            first_lsn: Lsn(lsn), key: key.map(IdempotencyKey), fingerprint: revision,
            fencing_token: token, event_count: count, hlc: Hlc(hlc), epoch: LeaseEpoch(epoch),
            streams: &streams,
        };
        encode_append(&mut out, &parts);
        let behind = out.len();
        encode_event(&mut out, &parts_of(&event, numbers, id));
        let (record, taken) = Record::decode(&out).unwrap();
        prop_assert_eq!(taken, behind);
        let Record::Append(append) = record else { panic!("{record:?}") };
        prop_assert_eq!(append.first_lsn, Lsn(lsn));
        prop_assert_eq!((append.key, append.fencing_token), (parts.key, token));
        prop_assert_eq!((append.fingerprint, append.event_count), (revision, count));
        prop_assert_eq!((append.hlc, append.epoch), (Hlc(hlc), LeaseEpoch(epoch)));
        prop_assert!(append.streams().eq(streams.iter().copied()));
        let (record, taken) = Record::decode(&out[behind..]).unwrap();
        prop_assert_eq!(taken, out.len() - behind);
        let Record::Event(found) = record else { panic!("{record:?}") };
        prop_assert_eq!((found.lsn, found.revision), (Lsn(lsn), Revision(revision)));
        prop_assert_eq!((found.hlc, found.id, found.stream), (Hlc(hlc), id, "stream"));
        prop_assert_eq!((found.kind, found.metadata), (&event.kind[..], &event.metadata[..]));
        prop_assert_eq!(found.data, &event.data[..]);
    }

    #[test]
    fn blocks_come_back(
        events in prop::collection::vec(event(), 1..6), numbers in any::<[u64; 4]>(),
    ) {
        let block = block(&events, numbers);
        let decoded = Block::decode(&block).unwrap();
        prop_assert_eq!(decoded.header.event_count as usize, events.len());
        prop_assert_eq!(decoded.header.hlc, Hlc(numbers[1]));
        prop_assert_eq!(decoded.header.commit_mark, Lsn(numbers[2]));
        prop_assert_eq!(decoded.header.epoch, LeaseEpoch(numbers[3]));
        let mut expected = events.iter();
        for record in decoded.records() {
            let (offset, Record::Event(found)) = record.unwrap() else { panic!("an event") };
            prop_assert_eq!(found.data, &expected.next().unwrap().data[..]);
            // A reader may come to it by its place alone.
            let (again, _) = Record::decode(&block[offset as usize..]).unwrap();
            prop_assert_eq!(again, Record::Event(found));
        }
        prop_assert!(expected.next().is_none());
    }

    #[test]
    fn segment_headers_come_back(numbers in any::<[u64; 3]>(), cluster in any::<u128>(),
        shard in any::<u32>(), generation in 1..u32::MAX, hash in any::<[u8; 32]>(),
        shift in 12..20_u32,
    ) {
        let [lsn, hlc, epoch] = numbers;
        prop_assume!(lsn < u64::MAX);
        let base = LogEnd { lsn: Lsn(lsn), hash, hlc: Hlc(hlc), epoch: LeaseEpoch(epoch) };
        let header = SegmentHeader {
            cluster: ClusterId(cluster), shard: ShardId(shard), generation: Generation(generation),
            size_bytes: 1 << 26, align_bytes: 1 << shift, base,
        };
        let mut page = [0; 4096];
        header.encode(&mut page);
        prop_assert_eq!(SegmentHeader::decode(&page), Ok(header));
        for bit in 0..SEGMENT_HEADER_BYTES * 8 {
            let mut page = page;
            page[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(SegmentHeader::decode(&page).is_err(), "bit {}", bit);
        }
    }

    /// A log with any three bytes changed ends where one of its blocks ended.
    #[test]
    fn a_changed_log_never_has_a_changed_block(
        changes in prop::collection::vec(any::<[u8; 4]>(), 1..4),
    ) {
        fuzz_log(&changes.concat());
        // Most of it aimed at the first 256 bytes of the pages that are in use.
        let aimed: Vec<u8> = changes.iter()
            .flat_map(|[page, at, _, value]| [page & 0x83, *at, 0, *value]).collect();
        fuzz_log(&aimed);
    }

    /// Whole records in a blessed block, but not those that follow.
    #[test]
    fn records_that_do_not_follow_are_an_error(
        events in prop::collection::vec((event(), any::<[u8; 2]>()), 1..20),
    ) {
        let mut bodies = Vec::new();
        for (event, [lsn, revision]) in events {
            let numbers = [u64::from(lsn % 3), u64::from(revision % 3), 1, 0];
            encode_event(&mut bodies, &parts_of(&event, numbers, 0));
            if revision > 200 {
                bodies.resize(bodies.len().next_multiple_of(4096 - BLOCK_HEADER_BYTES), 0);
            }
        }
        fuzz_bodies(&bodies);
    }
}

fn parts_of(event: &Event, [lsn, revision, hlc, _]: [u64; 4], id: u128) -> EventParts<'_> {
    let body = [event.kind.as_bytes(), &event.metadata, &event.data].concat();
    EventParts {
        lsn: Lsn(lsn),
        revision: Revision(revision),
        hlc: Hlc(hlc),
        id,
        stream: b"stream",
        type_length: event.kind.len() as u8,
        metadata_length: event.metadata.len() as u32,
        // A test may leak what it compares.
        body: body.leak(),
    }
}

fn block(events: &[Event], [first, hlc, mark, epoch]: [u64; 4]) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_HEADER_BYTES];
    let first = first.clamp(1, u64::MAX - 1000);
    for (lsn, event) in (first..).zip(events) {
        encode_event(&mut bytes, &parts_of(event, [lsn, 0, hlc, 0], 5));
    }
    let what = BlockSeal {
        shard: ShardId(3),
        generation: Generation(4),
        epoch: LeaseEpoch(epoch),
        first_lsn: Lsn(first),
        event_count: events.len() as u32,
        hlc: Hlc(hlc),
        commit_mark: Lsn(mark),
        previous_hash: genesis(ClusterId(1), ShardId(3)),
    };
    seal(&mut bytes, &what);
    bytes
}

fn small_block() -> Vec<u8> {
    let event = |data: &str| Event {
        kind: "kind".to_owned(),
        metadata: vec![1, 2],
        data: data.as_bytes().to_vec(),
    };
    block(&[event("one"), event(""), event("three")], [9, 8, 7, 6])
}

#[test]
fn a_block_with_any_bit_flipped_is_refused() {
    let block = small_block();
    for bit in 0..block.len() * 8 {
        let mut block = block.clone();
        block[bit / 8] ^= 1 << (bit % 8);
        assert!(Block::decode(&block).is_err(), "bit {bit}");
    }
}

#[test]
fn a_record_with_any_bit_flipped_is_refused() {
    let mut bytes = Vec::new();
    let event = Event { kind: "k".to_owned(), metadata: vec![], data: vec![5; 35] };
    encode_event(&mut bytes, &parts_of(&event, [1, 2, 3, 4], 5));
    let length = Record::length(&bytes).unwrap();
    assert!(length < bytes.len(), "there is padding, which may be anything");
    for bit in 0..length * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Record::decode(&bytes).is_err(), "bit {bit}");
    }
}

#[test]
fn a_cut_block_is_refused_at_every_length() {
    let block = small_block();
    for cut in 0..block.len() {
        assert!(Block::decode(&block[..cut]).is_err(), "cut at {cut}");
    }
    let mut longer = block.clone();
    longer.extend_from_slice(&[0xff; 5000]);
    assert_eq!(Block::decode(&longer).unwrap().body.len(), block.len() - BLOCK_HEADER_BYTES);
}

/// What was never written is the end of a log, whatever its length.
#[test]
fn zeros_are_no_block_no_record_and_no_header() {
    let zeros = [0; 8192];
    for length in [0, 1, 8, 64, 159, 160, 161, 4096, 8192] {
        let error = Block::decode(&zeros[..length]).unwrap_err();
        let expected = if length < 160 { BlockError::TooShort } else { BlockError::NoMagic };
        assert_eq!(error, expected, "{length}");
        assert!(Record::decode(&zeros[..length]).is_err());
        let error = SegmentHeader::decode(&zeros[..length]).unwrap_err();
        let expected = if length < 128 { SegmentError::TooShort } else { SegmentError::NoMagic };
        assert_eq!(error, expected, "{length}");
    }
}

#[test]
fn every_length_of_a_block_is_refused_or_bounded() {
    let block = small_block();
    let body = (block.len() - BLOCK_HEADER_BYTES) as u32;
    for length in extreme_lengths(body) {
        let mut forged = block.clone();
        forged[20..24].copy_from_slice(&length.to_le_bytes());
        assert_eq!(Block::decode(&forged).unwrap_err(), BlockError::HeaderChecksum);
        let checksum = crc32c(&forged[16..BLOCK_HEADER_BYTES]);
        forged[12..16].copy_from_slice(&checksum.to_le_bytes());
        match BlockHeader::decode(&forged) {
            Ok(header) => assert!(header.length() <= BLOCK_HEADER_BYTES + BLOCK_BODY_MAX_BYTES),
            Err(error) => assert_eq!(error, BlockError::Malformed("body length")),
        }
        assert!(Block::decode(&forged).is_err(), "{length}");
        forged.resize(8192, 0);
        assert!(Block::decode(&forged).is_err(), "{length}, with zeros behind");
    }
}

#[test]
fn every_length_of_a_record_is_refused() {
    let mut bytes = Vec::new();
    let event = Event { kind: "kind".to_owned(), metadata: vec![3; 10], data: vec![5; 30] };
    encode_event(&mut bytes, &parts_of(&event, [1, 2, 3, 4], 5));
    let actual = Record::length(&bytes).unwrap() as u32;
    // The record's own length, then those of name, type, metadata and data.
    for at in [4, 52, 56] {
        for length in extreme_lengths(actual) {
            let mut forged = bytes.clone();
            forged.resize(8192, 0);
            if forged[at..at + 4] == length.to_le_bytes() {
                continue;
            }
            forged[at..at + 4].copy_from_slice(&length.to_le_bytes());
            fuzz_record(&forged);
            let end = Record::length(&forged).unwrap();
            if (4..=forged.len()).contains(&end) {
                let checksum = crc32c(&forged[4..end]);
                forged[..4].copy_from_slice(&checksum.to_le_bytes());
            }
            assert!(Record::decode(&forged).is_err(), "{length} at {at}");
        }
    }
    for (at, value) in [(49, 0), (49, 255), (50, 0), (50, 255)] {
        let mut forged = bytes.clone();
        forged[at] = value;
        let checksum = crc32c(&forged[4..actual as usize]);
        forged[..4].copy_from_slice(&checksum.to_le_bytes());
        assert!(Record::decode(&forged).is_err(), "{value} at {at}");
    }
    assert_eq!(Record::decode(&bytes[..7]), Err(RecordError::TooShort));
}

#[test]
fn every_length_and_count_of_an_append_is_refused() {
    let event = Event { kind: "kind".to_owned(), metadata: vec![3; 10], data: vec![5; 30] };
    let bytes = build(&(Some(1), None, vec![(Expect::Any, vec![event.clone(), event])]));
    // Number of events; the stream's number of events; an event's metadata and data length.
    let events_at = 32 + 16 + "stream-0".len();
    for at in [4, 36, events_at + 20, events_at + 24] {
        for length in extreme_lengths(2) {
            let mut forged = bytes.clone();
            if forged[at..at + 4] == length.to_le_bytes() {
                continue;
            }
            forged[at..at + 4].copy_from_slice(&length.to_le_bytes());
            assert!(AppendView::parse(&forged, LIMIT).is_err(), "{length} at {at}");
        }
    }
    for count in [0, 2, 256, 257, u16::MAX] {
        let mut forged = bytes.clone();
        forged[2..4].copy_from_slice(&count.to_le_bytes());
        assert!(AppendView::parse(&forged, LIMIT).is_err(), "{count} streams");
    }
}

#[test]
fn an_append_at_its_limits_is_taken_and_beyond_them_refused() {
    let many = |streams: usize, events: usize| {
        let mut builder = AppendBuilder::new();
        for number in 0..streams {
            let stream = builder.stream(&format!("{number}"), Expect::Any).unwrap();
            for _ in 0..(if number == 0 { events } else { 0 }) {
                stream.event(0, "k", &[], &[]).unwrap();
            }
        }
        let mut bytes = Vec::new();
        builder.encode(&mut bytes);
        AppendView::parse(&bytes, 16 << 20).map(|view| view.event_count())
    };
    assert_eq!(many(APPEND_STREAMS_MAX, 1), Ok(1));
    assert_eq!(many(APPEND_STREAMS_MAX + 1, 1), Err(AppendError::StreamCount(257)));
    assert_eq!(many(1, APPEND_EVENTS_MAX), Ok(APPEND_EVENTS_MAX as u32));
    let one_more = APPEND_EVENTS_MAX as u32 + 1;
    assert_eq!(many(1, one_more as usize), Err(AppendError::TooManyEvents(one_more)));
    assert_eq!(many(1, 0), Err(AppendError::NoEvents));
}

/// A checksum of 0 is a legal value, not a sign of unwritten space: records and bodies that have it
/// are read back (a log that took it for "no checksum" made valid batches unreadable).
#[test]
fn a_checksum_of_zero_is_a_value_like_any_other() {
    // CRCs are affine: each bit of four free bytes moves the checksum by a fixed pattern.
    let make = |free: u32| {
        let mut data = vec![7; 20];
        data[8..12].copy_from_slice(&free.to_le_bytes());
        let event = Event { kind: "kind".to_owned(), metadata: vec![], data };
        block(&[event], [9, 8, 7, 6])
    };
    let of_body = |free| crc32c(&make(free)[BLOCK_HEADER_BYTES..]);
    let of_record = |free| {
        let block = make(free);
        let length = Record::length(&block[BLOCK_HEADER_BYTES..]).unwrap();
        crc32c(&block[BLOCK_HEADER_BYTES + 4..BLOCK_HEADER_BYTES + length])
    };
    let free = solve(of_body).expect("the checksum of the body can be made 0");
    let block = make(free);
    assert_eq!(block[16..20], [0; 4], "the body's checksum is 0");
    assert!(Block::decode(&block).is_ok());
    let free = solve(of_record).expect("the checksum of the record can be made 0");
    let block = make(free);
    assert_eq!(block[BLOCK_HEADER_BYTES..BLOCK_HEADER_BYTES + 4], [0; 4], "the record's is 0");
    let decoded = Block::decode(&block).unwrap();
    assert!(decoded.records().all(|record| record.is_ok()));
}

/// The argument at which an affine function of 32 bits is 0.
fn solve(function: impl Fn(u32) -> u32) -> Option<u32> {
    let base = function(0);
    // Rows: the change that a combination of bits makes, and the combination.
    let mut rows: Vec<(u32, u32)> =
        (0..32).map(|bit| (function(1 << bit) ^ base, 1 << bit)).collect();
    let (mut left, mut answer) = (base, 0);
    for bit in (0..32).rev() {
        let Some(at) = rows.iter().position(|(change, _)| change >> bit == 1) else { continue };
        let (change, bits) = rows.swap_remove(at);
        for row in &mut rows {
            if row.0 >> bit == 1 {
                *row = (row.0 ^ change, row.1 ^ bits);
            }
        }
        if left >> bit & 1 == 1 {
            (left, answer) = (left ^ change, answer ^ bits);
        }
    }
    (left == 0 && function(answer) == 0).then_some(answer)
}

/// The checksum of the format, bit by bit: what the processor's instruction computes.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}
