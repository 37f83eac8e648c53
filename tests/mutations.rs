//! Promise D2: no damaged block is taken for a whole one, and no decoder panics. Provoked by
//! changing what real encoders made in the course of a simulated run: requests, records, blocks.
//! Broken if a decoder panics, or if a changed block is accepted.
//!
//! `DUOLOG_MUTATIONS` sets how many changes are tried. The same entries are what the fuzz targets
//! in `tests/fuzz` call (docs/TESTING.md, "Fuzzing").

use duolog_engine::block::{BLOCK_HEADER_BYTES, Block};
use duolog_engine::fuzz::{fuzz_append, fuzz_block, fuzz_headers, fuzz_record};
use duolog_net::wire::{FrameKind, encode_frame, fuzz_frame};
use duolog_tests::sim::chance::Chance;
use duolog_tests::sim::plan::Plan;
use duolog_tests::sim::world::World;

/// Changes when nothing is set: some seconds.
const MUTATIONS: u64 = 60_000;
/// Numbers that lengths and counts are set to.
const EXTREMES: [u32; 12] =
    [0, 1, 7, 63, 64, 4095, 4096, 65_535, 1 << 20, i32::MAX as u32, u32::MAX - 4095, u32::MAX];

/// Requests and blocks of some runs.
fn made() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let (mut requests, mut blocks) = (Vec::new(), Vec::new());
    for seed in 0..6 {
        let mut world = World::new(Plan::of(seed));
        world.live_all();
        requests.extend((0..40).map(|submission| world.request(submission)));
        blocks.extend(world.ledger().blocks.iter().take(60).map(|block| block.bytes.clone()));
    }
    let short = |bytes: &Vec<u8>| bytes.len() < 20_000;
    requests.retain(short);
    blocks.retain(short);
    (requests, blocks)
}

/// One change, of the kinds that damage and mistakes make.
fn change(bytes: &mut Vec<u8>, other: &[u8], chance: &mut Chance) {
    if bytes.is_empty() {
        return;
    }
    let at = chance.index(bytes.len());
    let length = chance.index(64).min(bytes.len() - at);
    match chance.below(8) {
        0 | 1 => bytes[at] ^= 1 << chance.below(8),
        2 => bytes[at] = chance.draw() as u8,
        3 => {
            let at = at & !3;
            let value = chance.pick(&EXTREMES).to_le_bytes();
            let end = bytes.len().min(at + 4);
            bytes[at..end].copy_from_slice(&value[..end - at]);
        }
        4 => bytes.truncate(at),
        5 => bytes[at..at + length].fill(0),
        6 => bytes.copy_within(at..at + length, at / 2),
        _ => {
            let from = chance.index(other.len().max(1)).min(other.len());
            let piece = &other[from..(from + length).min(other.len())];
            bytes[at..at + piece.len()].copy_from_slice(piece);
        }
    }
}

#[test]
fn changed_requests_records_and_blocks_are_refused_without_a_panic() {
    let count = std::env::var("DUOLOG_MUTATIONS").ok().and_then(|text| text.parse().ok());
    let (requests, blocks) = made();
    let mut chance = Chance::new(1, "mutations");
    let (mut refused, mut unchanged) = (0, 0);
    for _ in 0..count.unwrap_or(MUTATIONS) {
        let original = &blocks[chance.index(blocks.len())];
        let mut block = original.clone();
        for _ in 0..chance.between(1, 3) {
            change(&mut block, &blocks[chance.index(blocks.len())], &mut chance);
        }
        match Block::decode(&block) {
            Ok(_) if block == *original => unchanged += 1,
            Ok(decoded) => panic!("D2: a changed block is taken for whole: {:?}", decoded.header),
            Err(_) => refused += 1,
        }
        fuzz_block(&block);
        fuzz_headers(&block);
        fuzz_record(block.get(BLOCK_HEADER_BYTES..).unwrap_or_default());
        let mut request = requests[chance.index(requests.len())].clone();
        change(&mut request, &requests[chance.index(requests.len())], &mut chance);
        fuzz_append(&request);
        let mut frame = Vec::new();
        encode_frame(&mut frame, FrameKind::Append, 1, &request);
        fuzz_frame(&frame);
        change(&mut frame, &block, &mut chance);
        fuzz_frame(&frame);
    }
    assert!(refused > unchanged * 5, "{refused} refused, {unchanged} unchanged");
}
