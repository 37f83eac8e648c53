//! A node of a pair that finds its log damaged when it starts gets the blocks back from the other
//! one, before any shard starts.
//!
//! Nothing is cut: the node may have acknowledged what is missing, and must never lead or
//! acknowledge with a shorter log. Every block is proved by its hash and that of the block before;
//! where the log goes on behind the gap, that block's link proves the last one. Where it does not,
//! only a leader answers, with everything that is committed: it has whatever was acknowledged.

mod course;
mod files;
mod lender;

use std::time::Duration;

use duolog_engine::disk::shard_dir::{DirSource, ShardDir};
use duolog_engine::ids::{Generation, Lsn};
use duolog_engine::recovery::LogSource;
use duolog_engine::segment::LogEnd;
use duolog_engine::shard::ShardConfig;

pub use course::Gap;
use course::{Course, Put, Shape};
use files::Mender;
use lender::Borrower;
pub use lender::{LendError, Lender};

/// Times that the other node is asked before the start is given up: it may be starting, too, or
/// about to take over the lead.
pub const ATTEMPTS: u32 = 10;
/// Times that it is asked when nothing may be missing: a node whose partner is lost has to start.
pub const DOUBT_ATTEMPTS: u32 = 5;
/// Pause between them.
const PAUSE: Duration = Duration::from_secs(1);

/// Fills the gap, asking so many times; the last LSN that came back.
pub fn repair(
    lender: &Lender,
    dir: &ShardDir,
    config: &ShardConfig,
    gap: &Gap,
    attempts: u32,
) -> Result<Lsn, LendError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // An older process's writes must not land behind what is read or written here.
    DirSource::new(dir.clone()).settle(gap.place.generation)?;
    let mut attempt = 1;
    loop {
        let outcome = runtime.block_on(from_anyone(lender, dir, config, gap));
        match outcome {
            Err(error) if error.passes() && attempt < attempts => {
                let shard = config.shard.0;
                tracing::warn!(event = "log_repair_waits", shard, attempt, %error);
                runtime.block_on(async { tokio::time::sleep(PAUSE).await });
                attempt += 1;
            }
            outcome => return outcome,
        }
    }
}

async fn from_anyone(
    lender: &Lender,
    dir: &ShardDir,
    config: &ShardConfig,
    gap: &Gap,
) -> Result<Lsn, LendError> {
    let mut outcome = Err(LendError::Nobody);
    for address in lender.nodes().await? {
        outcome = from_one(lender, &address, dir, config, gap).await;
        if matches!(outcome, Ok(_) | Err(LendError::Io(_))) {
            break;
        }
    }
    outcome
}

/// Everything is fetched twice: nothing is written before all of it has been seen to fit.
async fn from_one(
    lender: &Lender,
    address: &str,
    dir: &ShardDir,
    config: &ShardConfig,
    gap: &Gap,
) -> Result<Lsn, LendError> {
    let shard = config.shard;
    let mut rehearsal = Filling::new(dir, config, gap, false);
    lender.borrow(address, shard, gap, &mut rehearsal).await?;
    let mut filling = Filling::new(dir, config, gap, true);
    lender.borrow(address, shard, gap, &mut filling).await?;
    filling.mender.finish()?;
    Ok(filling.course.end().lsn)
}

struct Filling {
    course: Course,
    mender: Mender,
    made: Shape,
    writes: bool,
}

impl Filling {
    fn new(dir: &ShardDir, config: &ShardConfig, gap: &Gap, writes: bool) -> Self {
        let mender = Mender::new(dir.clone(), config.cluster, config.shard);
        let layout = config.layout;
        let made = Shape { size_bytes: layout.segment_size_bytes, align_bytes: layout.align_bytes };
        let header = mender.header(gap.place.generation);
        let shape = header.map_or(made, |header| Shape {
            size_bytes: header.size_bytes,
            align_bytes: header.align_bytes,
        });
        Self { course: Course::new(*gap, config.shard, shape), mender, made, writes }
    }
}

impl Borrower for Filling {
    fn block(&mut self, address: &str, block: &[u8]) -> Result<bool, LendError> {
        let Self { course, mender, made, writes } = self;
        let mut shape =
            |generation: Generation, base: &LogEnd| mender.shape(generation, base).unwrap_or(*made);
        let put = course.take(block, &mut shape).map_err(|misfit| {
            let address = address.to_owned();
            LendError::Misfit { address, misfit }
        })?;
        let Put { place, shape, base } = put;
        if *writes {
            mender.write(place, shape, base, block)?;
        }
        Ok(course.joined())
    }

    fn no_more(&mut self, address: &str, lsn: Lsn) -> Result<(), LendError> {
        let end = self.course.end().lsn;
        if self.course.filled() && end >= lsn {
            return Ok(());
        }
        let address = address.to_owned();
        Err(LendError::Lacks { address, end })
    }
}
