//! Promise A9: the append path allocates nothing after warm-up. Provoked by counting every call of
//! the allocator while the machine steps; broken if there is one.
//!
//! The driver's part is played from memory that exists beforehand, so that only the machine counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use duolog_engine::append::{AppendBuilder, AppendView, Expect};
use duolog_engine::ids::{ClusterId, IdempotencyKey, Lsn, MonoUs, Now, ShardId, WallMs};
use duolog_engine::shard::{
    Action, Actions, Event, Layout as SegmentLayout, RequestId, Shard, ShardConfig, ShardStart,
};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Ends the test with the place of the first allocation.
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

fn count() {
    ALLOCATIONS.with(|count| count.set(count.get() + 1));
    if FORBIDDEN.with(|forbidden| forbidden.replace(false)) {
        panic!("an allocation on the append path");
    }
}

#[expect(unsafe_code, reason = "an allocator can only be counted from the inside")]
// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of this very function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; the pointer came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: as above; the pointer came from `System`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const STREAMS: usize = 500;

fn config() -> ShardConfig {
    ShardConfig {
        cluster: ClusterId(1),
        shard: ShardId(0),
        shard_count: 1,
        pair: None,
        layout: SegmentLayout { segment_size_bytes: 1 << 20, align_bytes: 4096 },
        blocks_in_flight_max: 2,
        block_target_bytes: 128 << 10,
        idempotency_window: 10_000,
        hot_streams_max: 10_000,
        recent_max_bytes: 256 << 10,
        in_flight_max: 10_000,
        in_flight_max_bytes: 64 << 20,
    }
}

fn shard() -> Shard {
    let config = config();
    Shard::new(config, ShardStart::empty(&config, 3))
}

/// Where the key lies in a request (WIRE.md, "Append").
const KEY_AT: usize = 8;

/// The requests of one round: different streams, one or several of them, keyed or not, of
/// different sizes.
fn requests() -> Vec<Vec<u8>> {
    let mut requests = Vec::new();
    for number in 0..STREAMS {
        let mut builder = AppendBuilder::new();
        if number % 2 == 0 {
            builder.key(IdempotencyKey(1));
        }
        if number % 5 == 0 {
            builder.fencing_token(1);
        }
        let names = [number, (number + 7) % STREAMS, (number + 11) % STREAMS];
        for name in &names[..1 + number % 3] {
            let stream = builder.stream(&format!("stream-{name}"), Expect::Any);
            let stream = stream.expect("names are short");
            for _ in 0..1 + number % 4 {
                stream
                    .event(1, "kind", b"m", &vec![7; 10 + number % 300])
                    .expect("events are small");
            }
        }
        let mut bytes = Vec::new();
        builder.encode(&mut bytes);
        requests.push(bytes);
    }
    requests
}

/// Everything outside the machine; does not allocate itself after warm-up.
struct Driver {
    shard: Shard,
    actions: Actions,
    writes: Vec<Lsn>,
    next: u64,
    answered: u64,
    counted: u64,
    forbid: bool,
}

impl Driver {
    fn new() -> Self {
        let (shard, actions, writes) = (shard(), Actions::default(), Vec::with_capacity(1_000));
        let mut driver =
            Self { shard, actions, writes, next: 0, answered: 0, counted: 0, forbid: false };
        driver.step(Event::Tick);
        driver
    }

    fn now(&self) -> Now {
        Now { mono: MonoUs(self.next), wall: WallMs(self.next) }
    }

    fn step(&mut self, event: Event<'_>) {
        let now = self.now();
        let before = ALLOCATIONS.with(Cell::get);
        FORBIDDEN.with(|forbidden| forbidden.set(self.forbid));
        self.shard.step(now, event, &mut self.actions);
        FORBIDDEN.with(|forbidden| forbidden.set(false));
        self.counted += ALLOCATIONS.with(Cell::get) - before;
        self.perform();
    }

    fn perform(&mut self) {
        let mut ready = None;
        let mut saved = None;
        for action in &self.actions.list {
            match action {
                Action::Write { first_lsn, .. } => self.writes.push(*first_lsn),
                Action::Reply { .. } => self.answered += 1,
                Action::PrepareSegment { generation } => ready = Some(*generation),
                Action::SaveIndex { generation } => saved = Some(*generation),
                _ => {}
            }
        }
        self.actions.clear();
        if let Some(generation) = saved {
            self.step(Event::IndexSaved { generation });
        }
        if let Some(generation) = ready {
            self.step(Event::SegmentReady { generation });
        }
    }

    /// Appends everything, `group` requests to a block.
    fn round(&mut self, requests: &mut [Vec<u8>], group: usize) {
        for requests in requests.chunks_mut(group) {
            for bytes in requests {
                self.next += 1;
                if bytes[0] & 1 != 0 {
                    bytes[KEY_AT..KEY_AT + 8].copy_from_slice(&self.next.to_le_bytes());
                }
                let view = AppendView::parse(bytes, 1 << 20).expect("requests are well-formed");
                self.step(Event::Append { to: RequestId(self.next), view });
            }
            self.step(Event::Flush);
            while let Some(first_lsn) = self.writes.pop() {
                self.step(Event::BlockWritten { first_lsn });
                self.step(Event::Flush);
            }
        }
    }
}

#[test]
fn the_counter_counts() {
    let before = ALLOCATIONS.with(Cell::get);
    drop(std::hint::black_box(vec![1_u8; 100]));
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 1);
}

#[test]
fn the_append_path_allocates_nothing_after_warm_up() {
    let mut requests = requests();
    let mut driver = Driver::new();
    // Segments rotate, the key window and the cache of recent blocks fill up.
    for round in 0..60 {
        driver.round(&mut requests, [1, 7, 64, 500][round % 4]);
    }
    assert!(driver.counted > 0, "warm-up allocates");
    driver.counted = 0;
    driver.answered = 0;
    // The first one then ends the test where it is made, with a backtrace.
    driver.forbid = std::env::var_os("DUOLOG_ALLOC_TRACE").is_some();
    for round in 0..60 {
        driver.round(&mut requests, [500, 3, 1, 64, 200][round % 5]);
    }
    assert_eq!(driver.answered, 60 * STREAMS as u64);
    assert_eq!(driver.counted, 0, "allocations while {} appends ran", driver.answered);
}
