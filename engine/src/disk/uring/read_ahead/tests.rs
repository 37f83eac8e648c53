//! Reading a segment ahead, on a real executor: whatever is asked for, the bytes are the file's.

use std::time::Duration;

use glommio::{LocalExecutorBuilder, Placement};

use super::*;
use crate::disk::shard_dir::ShardDir;
use crate::ids::ShardId;

const ALIGN_BYTES: u32 = 4096;
const GENERATIONS: [u32; 2] = [1, 2];
/// A piece is 1 MiB: whole ones and a part.
const FILE_BYTES: usize = (5 << 20) + 3 * ALIGN_BYTES as usize;

fn content(generation: u32) -> Vec<u8> {
    let mut state = u64::from(generation);
    let words = std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 32) as u32
    });
    words.take(FILE_BYTES / 4).flat_map(u32::to_le_bytes).collect()
}

fn on_an_executor<F: Future<Output = ()> + 'static>(test: impl FnOnce() -> F) {
    let executor = LocalExecutorBuilder::new(Placement::Unbound).io_memory(1 << 20).make().unwrap();
    executor.run(async move {
        // The runtime may park although a task could run (adr/0002): never for long.
        let bell = glommio::spawn_local(async {
            loop {
                glommio::timer::sleep(Duration::from_millis(5)).await;
            }
        });
        test().await;
        bell.cancel().await;
    });
}

fn with_files(test: impl AsyncFnOnce(LogFiles) + 'static) {
    let root = tempfile::tempdir().unwrap();
    let dir = ShardDir::new(root.path(), ShardId(0));
    dir.create().unwrap();
    for generation in GENERATIONS {
        std::fs::write(dir.segment(Generation(generation)), content(generation)).unwrap();
    }
    on_an_executor(|| test(LogFiles::new(dir, ALIGN_BYTES)));
}

fn place(generation: u32, offset: usize) -> Place {
    Place { generation: Generation(generation), offset: offset.try_into().unwrap() }
}

#[test]
fn a_walk_sees_the_file_whatever_its_steps() {
    with_files(async |files| {
        for step in [ALIGN_BYTES as usize, 36 << 10, 1 << 20, (1 << 20) + 4096, 3 << 20] {
            let mut ahead = ReadAhead::default();
            for generation in GENERATIONS {
                let content = content(generation);
                for offset in (0..FILE_BYTES).step_by(step) {
                    // First a header, then the whole, as a walk over blocks does.
                    for length in [112, step] {
                        let want = &content[offset..FILE_BYTES.min(offset + length)];
                        let place = place(generation, offset);
                        let got = ahead.bytes(&files, place, length).await.unwrap();
                        assert!(got == want, "{length} bytes from {offset} in steps of {step}");
                    }
                }
            }
        }
    });
}

#[test]
fn jumps_begin_anew() {
    with_files(async |files| {
        let mut ahead = ReadAhead::default();
        let places = [(1, 2 << 20), (1, 4096), (2, 4096), (2, 3 << 20), (1, 4 << 20), (1, 0)];
        for (generation, offset) in places {
            for length in [4096, 2 << 20] {
                let got = ahead.bytes(&files, place(generation, offset), length).await.unwrap();
                let end = FILE_BYTES.min(offset + length);
                assert!(got == &content(generation)[offset..end], "{generation} {offset}");
            }
        }
        let behind = ahead.bytes(&files, place(1, FILE_BYTES), 4096).await.unwrap();
        assert!(behind.is_empty(), "a file has nothing behind its end");
        assert!(ahead.bytes(&files, place(9, 0), 1).await.is_err(), "there is no such file");
        assert!(ahead.bytes(&files, place(1, 100), 1).await.is_err(), "no block begins there");
        let again = ahead.bytes(&files, place(1, 4096), 4096).await.unwrap();
        assert!(again == &content(1)[4096..8192], "an error spoils nothing");
    });
}
