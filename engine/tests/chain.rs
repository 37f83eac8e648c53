//! Promise: what was put into a chain is read back, and nothing that is damaged, misplaced or does
//! not continue what is before it is ever taken for whole (D1, D2). Provoked with random chains,
//! every flipped bit and every cut; broken if blocks come back changed, if a change is accepted,
//! or if a decoder panics. The golden file holds version 1 byte for byte.
#![expect(clippy::unwrap_used, reason = "a test file: a panic is how a test fails")]

use std::fmt::Write as _;

use duolog_engine::block::{BLOCK_HEADER_BYTES, BlockSeal, genesis, seal};
use duolog_engine::fuzz::fuzz_chain;
use duolog_engine::ids::{ClusterId, Generation, Hlc, LeaseEpoch, Lsn, NodeId, Revision, ShardId};
use duolog_engine::record::{EventParts, encode_event};
use duolog_engine::replica::BlockEnd;
use duolog_engine::replica::chain::header::{
    CHAIN_HEADER_BYTES, ChainError, ObjectHeader, ObjectKind, Packing,
};
use duolog_engine::replica::chain::object::{Found, Object, ObjectParts, encode, encode_seal};
use duolog_engine::replica::chain::{ObjectId, ObjectPlace, Seq};
use proptest::prelude::*;

const GOLDEN: &str = include_str!("golden/chain_v1.txt");
const CLUSTER: ClusterId = ClusterId(0x0123_4567_89ab_cdef_1032_5476_98ba_dcfe);
const SHARD: ShardId = ShardId(3);
const NODE: NodeId = NodeId(0xfeed_0000_0000_0000_0000_0000_0000_0001);

fn id(epoch: u64, seq: u32) -> ObjectId {
    let place = ObjectPlace { shard: SHARD, epoch: LeaseEpoch(epoch), seq: Seq(seq) };
    ObjectId { cluster: CLUSTER, place }
}

fn start() -> BlockEnd {
    BlockEnd { lsn: Lsn(0), hash: genesis(CLUSTER, SHARD) }
}

/// A block of events with these data behind `end`, and padding as on disk.
fn block(end: BlockEnd, epoch: u64, events: &[Vec<u8>]) -> (Vec<u8>, BlockEnd) {
    let mut bytes = vec![0; BLOCK_HEADER_BYTES];
    for (number, data) in (0..).zip(events) {
        let lsn = Lsn(end.lsn.0 + 1 + number);
        let body = [b"kind".as_slice(), data].concat();
        encode_event(
            &mut bytes,
            &EventParts {
                lsn,
                revision: Revision(lsn.0 - 1),
                hlc: Hlc(end.lsn.0 + 1),
                id: u128::from(lsn.0),
                stream: b"orders",
                type_length: 4,
                metadata_length: 0,
                body: &body,
            },
        );
    }
    let what = BlockSeal {
        shard: SHARD,
        generation: Generation(1),
        epoch: LeaseEpoch(epoch),
        first_lsn: end.lsn.next(),
        event_count: events.len() as u32,
        hlc: Hlc(end.lsn.0 + 1),
        commit_mark: end.lsn,
        previous_hash: end.hash,
    };
    let hash = seal(&mut bytes, &what);
    (bytes, BlockEnd { lsn: end.lsn.plus(events.len() as u64), hash })
}

/// Blocks behind `base`, and where each ends.
fn blocks(base: BlockEnd, epoch: u64, groups: &[Vec<Vec<u8>>]) -> (Vec<Vec<u8>>, Vec<BlockEnd>) {
    let (mut all, mut ends, mut end) = (Vec::new(), Vec::new(), base);
    for events in groups {
        let (bytes, next) = block(end, epoch, events);
        end = next;
        all.push(bytes);
        ends.push(end);
    }
    (all, ends)
}

fn batch(base: BlockEnd, blocks: &[Vec<u8>], packing: Packing) -> Result<Vec<u8>, ChainError> {
    let parts = ObjectParts { id: id(7, 2), kind: ObjectKind::Batch, node: NODE, base };
    let mut out = vec![0xee; 3];
    encode(&parts, blocks.iter().map(Vec::as_slice), packing, &mut out)?;
    Ok(out)
}

fn decode(bytes: &[u8], id: ObjectId) -> Result<Vec<BlockEnd>, ChainError> {
    let mut room = Vec::new();
    Object::decode(bytes, id, &mut room).map(|object| object.ends().collect())
}

fn groups() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    let data = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        (any::<u8>(), 0..300_usize).prop_map(|(byte, length)| vec![byte; length]),
    ];
    prop::collection::vec(prop::collection::vec(data, 1..4), 1..6)
}

fn packing() -> impl Strategy<Value = Packing> {
    prop_oneof![Just(Packing::Plain), Just(Packing::Lz4)]
}

proptest! {
    #[test]
    fn a_batch_comes_back_block_by_block(
        groups in groups(), packing in packing(), padding in 0..5000_usize,
    ) {
        let (written, ends) = blocks(start(), 7, &groups);
        let padded: Vec<Vec<u8>> = written.iter().map(|block| {
            let mut block = block.clone();
            block.resize(block.len() + padding, 0);
            block
        }).collect();
        let bytes = batch(start(), &padded, packing).unwrap();
        let mut room = Vec::new();
        let object = Object::decode(&bytes, id(7, 2), &mut room).unwrap();
        prop_assert_eq!(object.header.base, start());
        prop_assert_eq!(object.header.last_lsn, ends.last().unwrap().lsn);
        let read: Vec<&[u8]> = object.blocks().map(|(_, block)| block).collect();
        prop_assert_eq!(read, written.iter().map(Vec::as_slice).collect::<Vec<_>>());
        prop_assert_eq!(object.ends().collect::<Vec<_>>(), ends);
        fuzz_chain(&bytes);
    }

    #[test]
    fn a_damaged_object_is_never_taken_for_whole(
        groups in groups(), packing in packing(), at in any::<prop::sample::Index>(),
        bit in 0..8_u8, cut in any::<prop::sample::Index>(),
    ) {
        let (written, _) = blocks(start(), 7, &groups);
        let bytes = batch(start(), &written, packing).unwrap();
        let mut damaged = bytes.clone();
        damaged[at.index(bytes.len())] ^= 1_u8 << bit;
        prop_assert!(decode(&damaged, id(7, 2)).is_err(), "D2: a bit was flipped");
        prop_assert!(decode(&bytes[..cut.index(bytes.len())], id(7, 2)).is_err(), "D2: cut");
        damaged.push(0);
        fuzz_chain(&damaged);
        let longer = [bytes.as_slice(), b"x"].concat();
        prop_assert_eq!(decode(&longer, id(7, 2)), Err(ChainError::TooLong(1)));
    }

    #[test]
    fn any_bytes_are_looked_at_without_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..600), kind in 1..4_u8, flags in 0..2_u8,
    ) {
        fuzz_chain(&bytes);
        if bytes.len() >= CHAIN_HEADER_BYTES {
            bytes[124..128].copy_from_slice(&[kind, flags, 0, 0]);
            bytes[72..].fill(0);
            fuzz_chain(&bytes);
        }
    }
}

#[test]
fn every_single_bit_of_a_header_counts() {
    let (written, _) = blocks(start(), 7, &[vec![b"a".to_vec()]]);
    let bytes = batch(start(), &written, Packing::Plain).unwrap();
    for bit in 0..8 * CHAIN_HEADER_BYTES {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&damaged, id(7, 2)).is_err(), "D2: bit {bit} of the header");
    }
}

#[test]
fn an_object_is_believed_only_at_its_place() {
    let (written, ends) = blocks(start(), 7, &[vec![b"a".to_vec()]]);
    let bytes = batch(start(), &written, Packing::Plain).unwrap();
    assert_eq!(decode(&bytes, id(7, 2)), Ok(ends));
    for other in [id(7, 3), id(8, 2)] {
        assert_eq!(decode(&bytes, other), Err(ChainError::Misplaced(id(7, 2).place)));
    }
    let other = ObjectId { cluster: ClusterId(1), ..id(7, 2) };
    assert_eq!(decode(&bytes, other), Err(ChainError::Misplaced(id(7, 2).place)));
}

#[test]
fn blocks_that_do_not_continue_each_other_are_not_uploaded() {
    let (first, middle) = block(start(), 7, &[b"a".to_vec()]);
    let (second, end) = block(middle, 7, &[b"b".to_vec()]);
    let (third, _) = block(end, 7, &[b"c".to_vec()]);
    let (older, _) = block(middle, 6, &[b"c".to_vec()]);
    let (newer, _) = block(middle, 8, &[b"c".to_vec()]);
    let link = |at: u64| Err(ChainError::Link(Lsn(at)));
    let plain = Packing::Plain;
    assert_eq!(batch(start(), &[first.clone(), third], plain), link(1), "D1: a gap");
    assert_eq!(batch(start(), &[first.clone(), first.clone()], plain), link(1), "D1: twice");
    assert_eq!(batch(middle, std::slice::from_ref(&first), plain), link(1), "D1: another base");
    assert_eq!(batch(start(), &[first.clone(), older], plain), link(1), "an older reign behind");
    assert_eq!(batch(middle, &[newer], plain), link(1), "a reign that has not begun");
    assert_eq!(batch(start(), &[], plain), Err(ChainError::Malformed("block count")));
    assert!(batch(start(), &[first.clone(), second], plain).is_ok());
    let mut torn = first;
    let last = torn.len() - 1;
    torn[last] ^= 1;
    assert!(matches!(batch(start(), &[torn], plain), Err(ChainError::Block { .. })), "D2");
}

#[test]
fn an_open_holds_blocks_of_older_reigns_only() {
    let parts = ObjectParts { id: id(7, 0), kind: ObjectKind::Open, node: NODE, base: start() };
    let mut out = Vec::new();
    let (older, _) = blocks(start(), 6, &[vec![b"a".to_vec()]]);
    let (own, _) = blocks(start(), 7, &[vec![b"a".to_vec()]]);
    let older = older.iter().map(Vec::as_slice);
    assert!(encode(&parts, older, Packing::Lz4, &mut out).is_ok());
    let own = own.iter().map(Vec::as_slice);
    assert_eq!(encode(&parts, own, Packing::Lz4, &mut out), Err(ChainError::Link(Lsn(0))));
}

#[test]
fn what_was_found_in_the_way_is_told_apart() {
    let (written, _) = blocks(start(), 7, &[vec![b"a".to_vec()]]);
    let own = batch(start(), &written, Packing::Plain).unwrap();
    let mut sealed = Vec::new();
    encode_seal(id(7, 2), NODE, LeaseEpoch(8), &mut sealed);
    assert_eq!(sealed.len(), CHAIN_HEADER_BYTES);
    assert_eq!(Found::of(&own, None), Found::Nothing);
    assert_eq!(Found::of(&own, Some(&own)), Found::Own);
    assert_eq!(Found::of(&own, Some(&sealed)), Found::Seal);
    let (other, _) = blocks(start(), 7, &[vec![b"b".to_vec()]]);
    let other = batch(start(), &other, Packing::Plain).unwrap();
    assert_eq!(Found::of(&own, Some(&other)), Found::Other);
    assert_eq!(Found::of(&own, Some(b"junk")), Found::Other);
}

/// Version 1: an Open without and with blocks, a Batch, a packed Batch, a Seal.
fn golden_objects() -> Vec<(ObjectId, Vec<u8>)> {
    let mut all = Vec::new();
    let open = ObjectParts { id: id(7, 0), kind: ObjectKind::Open, node: NODE, base: start() };
    let mut out = Vec::new();
    encode(&open, [], Packing::Plain, &mut out).unwrap();
    all.push((id(7, 0), out.clone()));
    let (older, ends) = blocks(start(), 6, &[vec![b"one".to_vec()]]);
    encode(&open, older.iter().map(Vec::as_slice), Packing::Plain, &mut out).unwrap();
    all.push((id(7, 0), out.clone()));
    let (own, _) = blocks(ends[0], 7, &[vec![vec![b'x'; 40], vec![b'y'; 40]]]);
    all.push((id(7, 2), batch(ends[0], &own, Packing::Plain).unwrap()));
    all.push((id(7, 2), batch(ends[0], &own, Packing::Lz4).unwrap()));
    encode_seal(id(7, 3), NODE, LeaseEpoch(8), &mut out);
    all.push((id(7, 3), out));
    all
}

#[test]
fn version_1_stays_readable_byte_for_byte() {
    let golden: Vec<Vec<u8>> =
        GOLDEN.lines().filter(|line| !line.starts_with('#')).map(hex).collect();
    let objects = golden_objects();
    if std::env::var_os("DUOLOG_PRINT_GOLDEN").is_some() {
        let mut text = String::new();
        for (_, bytes) in &objects {
            bytes.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
            text.push('\n');
        }
        println!("{text}");
    }
    assert_eq!(golden.len(), objects.len());
    for ((id, bytes), golden) in objects.iter().zip(&golden) {
        let header = ObjectHeader::decode(golden).unwrap();
        // How well a body is packed is the packer's business; that it unpacks is ours.
        if header.packing == Packing::Plain {
            assert!(bytes == golden, "{} is encoded as ever", header.id.place);
        }
        assert_eq!(decode(golden, *id), decode(bytes, *id));
        assert!(decode(golden, *id).is_ok());
    }
}

fn hex(line: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&line[at..at + 2], 16).unwrap();
    (0..line.len()).step_by(2).map(digit).collect()
}
