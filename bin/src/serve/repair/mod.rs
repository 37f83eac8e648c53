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
use tokio::time::{Instant, timeout_at};

pub use course::Gap;
use course::{Course, Put, Shape};
use files::Mender;
use lender::Borrower;
pub use lender::{LendError, Lender};

/// How long the other node is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Events are missing for certain: it is asked ten times, as it may be starting, too, or about
    /// to take over the lead.
    Missing,
    /// Perhaps nothing is missing: a few seconds, because a node whose partner is lost has to
    /// start.
    Doubted,
}

/// Times that the other node is asked at most.
const ATTEMPTS: u32 = 10;
/// Pause between them.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a doubt may keep a node from starting.
const DOUBT_MAX: Duration = Duration::from_secs(5);

/// Fills the gap; the last LSN that came back.
pub fn repair(
    lender: &Lender,
    dir: &ShardDir,
    config: &ShardConfig,
    gap: &Gap,
    patience: Patience,
) -> Result<Lsn, LendError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // An older process's writes must not land behind what is read or written here.
    DirSource::new(dir.clone()).settle(gap.place.generation)?;
    let deadline = match patience {
        Patience::Missing => None,
        Patience::Doubted => Some(Instant::now() + DOUBT_MAX),
    };
    let mut attempt = 1;
    loop {
        match runtime.block_on(from_anyone(lender, dir, config, gap, deadline)) {
            Err(error) if error.passes() && attempt < ATTEMPTS => {
                let shard = config.shard.0;
                tracing::warn!(event = "log_repair_waits", shard, attempt, %error);
                runtime.block_on(async { tokio::time::sleep(PAUSE).await });
                attempt += 1;
            }
            outcome => return outcome,
        }
    }
}

/// Fetches everything twice: nothing is written before all of it has been seen to fit, and what is
/// being written has no deadline.
async fn from_anyone(
    lender: &Lender,
    dir: &ShardDir,
    config: &ShardConfig,
    gap: &Gap,
    deadline: Option<Instant>,
) -> Result<Lsn, LendError> {
    let rehearsed = rehearse(lender, dir, config, gap);
    let address = match deadline {
        None => rehearsed.await?,
        Some(deadline) => {
            let rehearsed = timeout_at(deadline, rehearsed).await;
            rehearsed.map_err(|_| LendError::Late { limit: DOUBT_MAX })??
        }
    };
    let mut filling = Filling::new(dir, config, gap, true);
    lender.borrow(&address, config.shard, gap, &mut filling).await?;
    filling.mender.finish()?;
    Ok(filling.course.end().lsn)
}

/// The address of a node that has everything; nothing is written.
async fn rehearse(
    lender: &Lender,
    dir: &ShardDir,
    config: &ShardConfig,
    gap: &Gap,
) -> Result<String, LendError> {
    let mut outcome = Err(LendError::Nobody);
    for address in lender.nodes().await? {
        let mut rehearsal = Filling::new(dir, config, gap, false);
        outcome =
            lender.borrow(&address, config.shard, gap, &mut rehearsal).await.map(|()| address);
        if matches!(outcome, Ok(_) | Err(LendError::Io(_))) {
            break;
        }
    }
    outcome
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
