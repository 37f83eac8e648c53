//! What one seed decides beforehand: limits, sizes, delays and how often things go wrong.

use duolog_engine::ids::{ClusterId, ShardId};
use duolog_engine::shard::{Layout, ShardConfig};

use super::chance::Chance;

/// How the node's wall clock behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WallClock {
    /// It runs.
    Steady,
    /// It stands still, also over restarts.
    Frozen,
    /// It jumps by up to an hour, forwards and backwards.
    Jumping,
}

/// A mistake put in on purpose, to prove that the checks find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// None.
    None,
    /// The disk reports a write before it is durable.
    AckBeforeDurable,
    /// Writes of a process that died are neither waited for nor synced before they are relied on.
    Unsettled,
    /// The mark is never written.
    ForgottenMark,
    /// A cold stream's head is read from the runs without the newest one.
    StaleHead,
    /// The heads of cold streams have lost their fencing tokens.
    LostToken,
    /// The record of another append is read for a replay.
    WrongReplay,
    /// The segment's header is not written with its first block.
    ForgottenHeader,
    /// Files beyond the log's end are not set aside at the start.
    NotSetAside,
    /// The saved keys are not read at the start.
    ForgottenKeys,
    /// An index is reported as saved and is not.
    UnsavedIndex,
}

/// How often things go wrong, in percent of the cases in which they could.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// A stop is a power failure (else the process dies).
    pub power: u64,
    /// A life ends by a clean stop.
    pub clean_stop: u64,
    /// A segment finds no space (and for some time after it).
    pub no_space: u64,
    /// A write fails, per thousand.
    pub write_failure_per_1000: u64,
    /// A page or record cannot be read.
    pub load_failure: u64,
    /// A restart finds a flipped bit in the log's tail, which is healed afterwards.
    pub rot: u64,
    /// A restart finds its saved indexes lost or damaged.
    pub lost_index: u64,
    /// A restart finds no mark.
    pub lost_mark: u64,
    /// A new segment file holds an older segment's content.
    pub recycled: u64,
    /// A restart comes with another segment size.
    pub resized: u64,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The machine's settings.
    pub config: ShardConfig,
    /// Sectors of the disk, bytes.
    pub tear_bytes: usize,
    /// Streams in use.
    pub stream_count: usize,
    /// Starts of the node.
    pub lives: u32,
    /// Submissions per life.
    pub submissions: u64,
    /// Submissions that come at once, at most.
    pub burst_max: u64,
    /// Longest pause between bursts, microseconds.
    pub pause_max_us: u64,
    /// Longest ordinary write, microseconds.
    pub write_max_us: u64,
    /// Longest ordinary data of an event, bytes.
    pub data_max: u64,
    /// Appends have one small event each, and a block each: then blocks of different lives lie at
    /// the same places with the same LSNs, and only their hashes tell them apart.
    pub uniform: bool,
    /// The wall clock.
    pub wall: WallClock,
    /// Trouble.
    pub faults: Faults,
    /// A planted mistake.
    pub mistake: Mistake,
}

impl Plan {
    /// The plan of `seed`.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut chance = Chance::new(seed, "plan");
        let chance = &mut chance;
        let mut config = config(chance);
        let uniform = chance.percent(25);
        if uniform {
            config.block_target_bytes = 1;
        }
        Self {
            seed,
            config,
            tear_bytes: chance.pick(&[512, 4096]),
            stream_count: chance.between(3, 60) as usize,
            lives: chance.between(2, 10) as u32,
            submissions: chance.between(20, 160),
            burst_max: chance.pick(&[1, 4, 20, 60]),
            pause_max_us: chance.pick(&[50, 400, 3_000]),
            write_max_us: chance.pick(&[100, 600, 5_000]),
            data_max: chance.pick(&[60, 400, 3_000]),
            uniform,
            wall: chance.pick(&[
                WallClock::Steady,
                WallClock::Steady,
                WallClock::Frozen,
                WallClock::Jumping,
            ]),
            faults: faults(chance),
            mistake: Mistake::None,
        }
    }

    /// The same with a planted mistake.
    #[must_use]
    pub fn with(self, mistake: Mistake) -> Self {
        Self { mistake, ..self }
    }
}

fn config(chance: &mut Chance) -> ShardConfig {
    let shard_count = chance.pick(&[1, 1, 1, 3]);
    ShardConfig {
        cluster: ClusterId(0x00c0_ffee),
        shard: ShardId(chance.below(u64::from(shard_count)) as u32),
        shard_count,
        pair: None,
        layout: Layout {
            segment_size_bytes: chance.pick(&[64 << 10, 64 << 10, 96 << 10, 160 << 10]),
            align_bytes: chance.pick(&[4096, 4096, 4096, 8192]),
        },
        blocks_in_flight_max: chance.between(1, 8) as usize,
        block_target_bytes: chance.pick(&[1 << 10, 4 << 10, 16 << 10, 128 << 10]),
        idempotency_window: chance.pick(&[1, 4, 16, 64, 1000]),
        hot_streams_max: chance.pick(&[2, 4, 8, 8, 16, 1000]),
        recent_max_bytes: chance.pick(&[4 << 10, 32 << 10, 1 << 20]),
        in_flight_max: chance.pick(&[16, 200, 1000, 1000, 1000]),
        in_flight_max_bytes: chance.pick(&[300 << 10, 1 << 20, 1 << 20]),
    }
}

fn faults(chance: &mut Chance) -> Faults {
    // Quiet plans reach deep states; in troubled ones faults meet each other.
    let mut rate = |choices: &[u64]| chance.pick(choices);
    Faults {
        power: rate(&[0, 50, 50, 100]),
        clean_stop: rate(&[0, 20, 50]),
        no_space: rate(&[0, 0, 10, 40]),
        write_failure_per_1000: rate(&[0, 0, 0, 5, 30]),
        load_failure: rate(&[0, 0, 0, 2, 20]),
        rot: rate(&[0, 40, 80]),
        lost_index: rate(&[0, 0, 20, 60]),
        lost_mark: rate(&[0, 0, 30]),
        recycled: rate(&[0, 50, 100]),
        resized: rate(&[0, 0, 0, 30]),
    }
}
