//! Promise: the index allocates nothing on the append path after warm-up. Provoked by counting
//! every call of the allocator while events, keys and heads go in; broken if there is one.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use duolog_engine::ids::{Generation, IdempotencyKey, Place, Revision, StreamId};
use duolog_engine::index::heads::{Head, Heads};
use duolog_engine::index::key_file::SegmentKeys;
use duolog_engine::index::keys::KeyWindow;
use duolog_engine::index::span::Direction;
use duolog_engine::index::tail::{Tail, TailCapacity, TailSlot};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

#[expect(unsafe_code, reason = "an allocator can only be counted from the inside")]
// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of this very function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; the pointer came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as above; the pointer came from `System`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
}

/// Uniform identities without hashing: a full-period generator's upper bits.
fn stream(number: u64) -> StreamId {
    let high = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    StreamId(u128::from(high) << 64 | u128::from(number))
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![1_u8; 100]))), 1);
}

#[test]
fn a_tail_built_for_its_segment_never_allocates() {
    const SIZE_BYTES: u32 = 4 << 20;
    let events = SIZE_BYTES / 72;
    for streams in [1, 2, 1000, events / 2, events] {
        let mut tail = Tail::with_capacity(Generation(1), TailCapacity::for_segment(SIZE_BYTES));
        let mut places = Vec::with_capacity(1000);
        let made = allocations(|| {
            for event in 0..events {
                let (stream, revision) = (stream(u64::from(event % streams)), event / streams);
                tail.push(stream, Revision(u64::from(revision)), event * 72, Some(1));
            }
            tail.places(stream(0), Revision(0), Direction::Forwards, 1000, &mut places);
            tail.clear(Generation(2));
            tail.push(stream(0), Revision(0), 0, None);
        });
        assert_eq!(made, 0, "{streams} streams");
    }
}

#[test]
fn a_window_of_any_size_never_allocates() {
    // The last is the largest that its table's size would hold at the usual load of 7/8.
    for capacity in [1_usize, 3, 100, 1 << 12, 7 << 11] {
        let mut window = KeyWindow::new(capacity, 77);
        let made = allocations(|| {
            for number in 0..50 * capacity as u64 + 1000 {
                let key = IdempotencyKey(stream(number).0);
                let place = Place { generation: Generation(1), offset: number as u32 * 8 };
                window.insert(key, place);
                assert_eq!(window.get(key), Some(place));
            }
        });
        assert_eq!(made, 0, "capacity {capacity}");
    }
}

#[test]
fn heads_whose_flush_keeps_up_never_allocate() {
    for capacity in [2_usize, 100, 7 << 11] {
        let mut heads = Heads::with_capacity(capacity);
        // A half takes the streams of two segments: those of one may lie in both halves.
        let in_segment = (capacity as u64 / 4).max(1);
        let made = allocations(|| {
            for number in 0..20 * capacity as u64 {
                let segment = number / in_segment + 1;
                heads.set_flushed(Generation(segment as u32 - 1));
                let head = Head {
                    next_revision: Revision(1),
                    fencing_token: 0,
                    last_generation: Generation(segment as u32),
                    tail_slot: TailSlot::NONE,
                };
                heads.put(stream(number), head);
                heads.get(stream(number / 2));
            }
        });
        assert_eq!(made, 0, "capacity {capacity}");
    }
}

#[test]
fn the_key_list_of_a_segment_never_allocates() {
    const SIZE_BYTES: u32 = 1 << 20;
    let mut keys = SegmentKeys::for_segment(Generation(1), SIZE_BYTES);
    let made = allocations(|| {
        for generation in 2..4 {
            // An append record of one stream and an event record of 72 bytes each.
            for index in 0..SIZE_BYTES / (96 + 72) {
                keys.push(IdempotencyKey(u128::from(index)), index * 168);
            }
            keys.clear(Generation(generation));
        }
    });
    assert_eq!(made, 0);
}
