//! How fast a follower takes a log: `cargo test --release -p duolog-engine --test catch_up_figures
//! -- --ignored --nocapture`. One thread plays the driver, one write at a time, on a real disk
//! (`DUOLOG_FIGURES_DIR`, else the temporary directory); preparing segments is not counted.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a measurement reads the clock, and ends where anything goes wrong"
)]

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use duolog_engine::append::{AppendBuilder, AppendView, Expect};
use duolog_engine::disk::aligned::AlignedBuffer;
use duolog_engine::disk::prepare::prepare;
use duolog_engine::disk::shard_dir::ShardDir;
use duolog_engine::ids::{
    ClusterId, Generation, LeaseEpoch, Lsn, MonoUs, NodeId, Now, ShardId, WallMs,
};
use duolog_engine::shard::{
    Action, Actions, Event, Layout, RequestId, Shard, ShardConfig, ShardStart,
};

const BLOCKS: u64 = 40_000;
/// Blocks of 4 KiB on the disk that have come when the disk takes the next write: while it writes
/// 1 MiB, as much arrives.
const TOGETHER: usize = 256;
const NOW: Now = Now { mono: MonoUs(0), wall: WallMs(0) };

fn config(pair: Option<NodeId>) -> ShardConfig {
    ShardConfig {
        cluster: ClusterId(1),
        shard: ShardId(0),
        shard_count: 1,
        pair,
        layout: Layout { segment_size_bytes: 64 << 20, align_bytes: 4096 },
        blocks_in_flight_max: 8,
        block_target_bytes: 1,
        idempotency_window: 1000,
        hot_streams_max: 100_000,
        recent_max_bytes: 1 << 20,
        in_flight_max: 10,
        in_flight_max_bytes: 1 << 20,
    }
}

/// The log of a node that made one block of about 4 KiB after the other.
fn log() -> Vec<Vec<u8>> {
    let config = config(None);
    let mut shard = Shard::new(config, ShardStart::empty(&config, 0));
    let mut out = Actions::default();
    let mut blocks = Vec::new();
    shard.step(NOW, Event::Tick, &mut out);
    for number in 0..BLOCKS {
        let mut builder = AppendBuilder::new();
        let stream = builder.stream(&format!("stream-{}", number % 1000), Expect::Any).unwrap();
        stream.event(1, "kind", &[], &[7; 3_700]).unwrap();
        let mut bytes = Vec::new();
        builder.encode(&mut bytes);
        let view = AppendView::parse(&bytes, 1 << 20).unwrap();
        for action in std::mem::take(&mut out.list) {
            if let Action::PrepareSegment { generation } = action {
                shard.step(NOW, Event::SegmentReady { generation }, &mut out);
            }
        }
        shard.step(NOW, Event::Append { to: RequestId(number), view }, &mut out);
        let first_lsn = Lsn(number + 1);
        blocks.push(shard.in_memory_block(first_lsn).unwrap().to_vec());
        shard.step(NOW, Event::BlockWritten { first_lsn }, &mut out);
        out.list.retain(|action| matches!(action, Action::PrepareSegment { .. }));
    }
    blocks
}

fn open(path: &Path) -> std::fs::File {
    let flags = rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::DSYNC;
    OpenOptions::new().write(true).custom_flags(flags.bits() as i32).open(path).unwrap()
}

#[derive(Default)]
struct Spent {
    machine: Duration,
    disk: Duration,
    writes: u64,
}

/// Takes the log, writing as the machine asks; what it took.
fn follow(dir: &ShardDir, blocks: &[Vec<u8>]) -> Spent {
    let config = config(Some(NodeId(2)));
    let mut shard = Shard::new(config, ShardStart::empty(&config, 0));
    let mut out = Actions::default();
    let epoch = LeaseEpoch(1);
    shard.step(NOW, Event::Follow { epoch }, &mut out);
    let mut buffer = AlignedBuffer::zeroed(2 << 20, 4096);
    let mut spent = Spent::default();
    let mut file: Option<(Generation, std::fs::File)> = None;
    for together in blocks.chunks(TOGETHER) {
        let began = Instant::now();
        for block in together {
            shard.step(NOW, Event::Received { epoch, block }, &mut out);
        }
        shard.step(NOW, Event::Flush, &mut out);
        spent.machine += began.elapsed();
        while !out.list.is_empty() {
            for action in std::mem::take(&mut out.list) {
                match action {
                    Action::Write { first_lsn, blocks, place, header } => {
                        let began = Instant::now();
                        let bytes = buffer.bytes_mut();
                        let mut length = 0;
                        if let Some(header) = header {
                            bytes[..4096].fill(0);
                            header.encode(bytes);
                            length = 4096;
                        }
                        for block in shard.write_parts(first_lsn, blocks) {
                            bytes[length..length + block.len()].copy_from_slice(block);
                            length = (length + block.len()).next_multiple_of(4096);
                        }
                        if file.as_ref().is_none_or(|(open, _)| *open != place.generation) {
                            file = Some((place.generation, open(&dir.segment(place.generation))));
                        }
                        let offset = if header.is_some() { 0 } else { u64::from(place.offset) };
                        let (_, file) = file.as_ref().unwrap();
                        file.write_all_at(&buffer.bytes()[..length], offset).unwrap();
                        spent.disk += began.elapsed();
                        spent.writes += 1;
                        let began = Instant::now();
                        shard.step(NOW, Event::BlockWritten { first_lsn }, &mut out);
                        spent.machine += began.elapsed();
                    }
                    Action::PrepareSegment { generation } => {
                        shard.step(NOW, Event::SegmentReady { generation }, &mut out);
                    }
                    Action::SaveIndex { generation } => {
                        shard.step(NOW, Event::IndexSaved { generation }, &mut out);
                    }
                    Action::BlockRefused { reason } => panic!("{reason}"),
                    _ => {}
                }
            }
        }
    }
    assert_eq!(shard.durable().lsn, Lsn(BLOCKS));
    spent
}

#[test]
#[ignore = "measures this machine and asserts no figure: run it by hand with --nocapture"]
fn figures_of_a_follower_that_catches_up() {
    let blocks = log();
    let sum: usize = blocks.iter().map(|block| block.len().next_multiple_of(4096)).sum();
    let root = std::env::var_os("DUOLOG_FIGURES_DIR").map_or_else(std::env::temp_dir, Into::into);
    let files = tempfile::tempdir_in(root).unwrap();
    let dir = ShardDir::new(files.path(), ShardId(0));
    dir.create().unwrap();
    let layout = config(None).layout;
    let segments = sum / layout.segment_size_bytes as usize + 2;
    for generation in 1..=segments {
        prepare(&dir, layout, Generation(generation as u32)).unwrap();
    }
    let mb_per_s = |spent: Duration| sum as f64 / 1e6 / spent.as_secs_f64();
    for _ in 0..3 {
        for length in [4 << 10, 256 << 10, 1 << 20] {
            let zeros = AlignedBuffer::zeroed(length, 4096);
            // Small writes are slow: a part of the log is enough.
            let count = (sum / length).min(4_000);
            let open_all = |at| open(&dir.segment(Generation(at as u32)));
            let files: Vec<std::fs::File> = (1..=segments).map(open_all).collect();
            let began = Instant::now();
            for number in 0..count {
                let per_segment = layout.segment_size_bytes as usize / length;
                let offset = (number % per_segment) * length;
                files[number / per_segment].write_all_at(zeros.bytes(), offset as u64).unwrap();
            }
            let spent = began.elapsed().as_secs_f64();
            let rate = (count * length) as f64 / 1e6 / spent;
            println!("raw writes of {:4} KiB: {rate:7.1} MB/s", length >> 10);
        }
        let Spent { machine, disk, writes } = follow(&dir, &blocks);
        println!(
            "follower: {:.1} MB/s ({:.0} KiB per write); machine alone {:.1} MB/s, \
             {:.2} us per block",
            mb_per_s(machine + disk),
            sum as f64 / 1024.0 / writes as f64,
            mb_per_s(machine),
            machine.as_secs_f64() * 1e6 / BLOCKS as f64,
        );
    }
}
