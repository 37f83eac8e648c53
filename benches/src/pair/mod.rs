//! What a pair costs beside a standalone server, and how long it does not answer when the lead
//! changes: an embedded store, two nodes and a standalone server, all on this machine.
//!
//! One client, the writer, appends through everything that happens to the pair, with idempotency
//! keys, and notes every ack. In the end each event that was acknowledged is looked for on both
//! nodes. That, and a healthy pair that leaves the store alone, must hold on every machine; the
//! times depend on the machine.

mod changes;
mod copy;
mod ledger;
mod loads;
mod nodes;
mod report;
mod writer;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub use report::PairReport;

use crate::generator::RunError;
use crate::generator::clock::{Clock, pause, random_run_id};
use crate::limits::LimitsError;
use crate::limits::child::{ChildError, end_with_signals};
use nodes::Nodes;
use writer::Writer;

/// The lease of the nodes' lease document: the shortest that goes with the default heartbeats. A
/// node that follows a reign challenges no sooner than the end of the lease it saw when it began,
/// so the benchmark waits that long between two kills.
pub const S3_LEASE: Duration = Duration::from_millis(3000);
/// The default heartbeat lease: the follower challenges that long after the last heartbeat.
pub const HEARTBEAT_LEASE_MS: f64 = 1500.0;
/// Most rounds, changes of the lead or kills of one run.
pub const COUNT_MAX: u32 = 1000;
/// Pause of the writer between two appends where a light load is wanted.
const LIGHT: Duration = Duration::from_millis(10);

/// The store that the caller embeds.
pub trait Store {
    /// Arguments for `serve` that lead to it.
    fn serve_arguments(&self) -> Vec<String>;
    /// The requests since the last call, as method and path.
    fn take_requests(&mut self) -> Vec<String>;
    /// One conditional write of a small object.
    ///
    /// # Errors
    /// Why it failed.
    fn round_trip(&mut self) -> Result<Duration, String>;
}

/// What to measure; a count of 0 leaves a part out.
#[derive(Clone, Debug)]
pub struct PairSettings {
    /// Directory on the device in question; made when it is missing. A directory of its own is
    /// made in it and removed at the end.
    pub dir: PathBuf,
    /// Rounds beside the standalone server, up to 1000.
    pub rounds: u32,
    /// Measured window of each of the four loads of a round.
    pub duration: Duration,
    /// Planned handovers, up to 1000.
    pub handovers: u32,
    /// Kills of the leader, up to 1000.
    pub kills: u32,
    /// How long the requests of a healthy pair are counted.
    pub healthy: Duration,
    /// Size of the log that a blank node copies, MiB.
    pub copy_mib: u32,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// Too many.
    #[error("{name} is {count}: give 0 to 1000")]
    Count {
        /// The option.
        name: &'static str,
        /// As given.
        count: u32,
    },
    /// The directory cannot be used.
    #[error("cannot measure in {dir}: {source} (--dir must allow direct I/O)")]
    Dir {
        /// The directory.
        dir: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A server did not come up.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// The generator could not run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A thread or its runtime.
    #[error("cannot start a thread or its runtime: {0}")]
    Runtime(io::Error),
    /// The client library gave up.
    #[error("cannot {call}: {text}")]
    Client {
        /// What was tried.
        call: &'static str,
        /// The library's words.
        text: String,
    },
    /// The embedded store failed.
    #[error("the embedded store: {0}")]
    Store(String),
    /// Nothing was acknowledged.
    #[error("no append was acknowledged within {after_s} s")]
    NoAck {
        /// How long was waited.
        after_s: u64,
    },
    /// The pair did not get there.
    #[error("waited {after_s} s for {what}, in vain; last heard: {last}")]
    Waited {
        /// What was waited for.
        what: &'static str,
        /// How long.
        after_s: u64,
        /// What the nodes said.
        last: String,
    },
    /// Does not happen.
    #[error("the writer's thread ended abnormally")]
    WriterPanicked,
}

impl PairError {
    fn client(call: &'static str) -> impl Fn(duolog_net::client::Error) -> Self {
        move |error| Self::Client { call, text: error.to_string() }
    }

    /// Whether the command line is at fault.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::Count { .. })
    }
}

impl From<LimitsError> for PairError {
    fn from(error: LimitsError) -> Self {
        Self::Store(error.to_string())
    }
}

/// Everything measured, before it is put together.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    pub(crate) rounds: Vec<loads::Round>,
    pub(crate) handover_pauses_ms: Vec<f64>,
    pub(crate) kill_pauses_ms: Vec<f64>,
    pub(crate) round_trips_ms: Vec<f64>,
    /// Requests of the healthy pair, and how long they were counted.
    pub(crate) healthy: Option<(Vec<String>, Duration)>,
    pub(crate) acked: u64,
    /// Per node.
    pub(crate) verdicts: Vec<ledger::Verdict>,
    pub(crate) copy: Option<copy::Copied>,
    pub(crate) took_s: f64,
}

/// Measures. `progress` is told before each step what comes.
///
/// # Errors
/// See [`PairError`].
pub fn run(
    settings: &PairSettings,
    store: &mut impl Store,
    mut progress: impl FnMut(&str),
) -> Result<PairReport, PairError> {
    for (name, count) in [
        ("--rounds", settings.rounds),
        ("--handovers", settings.handovers),
        ("--kills", settings.kills),
    ] {
        if count > COUNT_MAX {
            return Err(PairError::Count { name, count });
        }
    }
    end_with_signals().map_err(PairError::Runtime)?;
    let own = settings.dir.join(format!("duolog-pair-{:016x}", random_run_id()));
    let refused = |source| PairError::Dir { dir: settings.dir.clone(), source };
    std::fs::create_dir_all(&own).map_err(refused)?;
    let clock = Clock::start();
    let outcome = measure(settings, &own, store, &mut progress);
    let removed = std::fs::remove_dir_all(&own).map_err(refused);
    let mut measured = outcome?;
    removed?;
    measured.took_s = clock.now_ns() as f64 / 1e9;
    Ok(PairReport::new(settings, &measured))
}

fn measure(
    settings: &PairSettings,
    dir: &std::path::Path,
    store: &mut impl Store,
    progress: &mut impl FnMut(&str),
) -> Result<Measured, PairError> {
    let mut measured = Measured::default();
    progress("starting the pair");
    let mut nodes = Nodes::start(dir, store.serve_arguments())?;
    round_trips(store, 20, &mut measured)?;
    loads::run(settings, dir, &nodes, &mut measured, progress)?;
    let writer = Writer::start(nodes.addresses(), random_run_id())?;
    writer.wait_for_ack(0, Duration::from_secs(30))?;
    if !settings.healthy.is_zero() {
        progress(&format!("a healthy pair, {} s", settings.healthy.as_secs_f64()));
        nodes.wait_until_healthy()?;
        writer.pace(LIGHT);
        store.take_requests();
        pause(settings.healthy);
        measured.healthy = Some((store.take_requests(), settings.healthy));
        writer.pace(Duration::ZERO);
    }
    for number in 0..settings.handovers {
        progress(&format!("handover {} of {}", number + 1, settings.handovers));
        measured.handover_pauses_ms.push(changes::hand_over(&nodes, &writer)?);
    }
    for number in 0..settings.kills {
        progress(&format!("kill {} of {}", number + 1, settings.kills));
        measured.kill_pauses_ms.push(changes::kill(&mut nodes, &writer)?);
        round_trips(store, 5, &mut measured)?;
    }
    progress("looking for everything acknowledged");
    let stream = writer.stream.clone();
    let journal = writer.finish()?;
    nodes.wait_until_healthy()?;
    nodes.wait_until_equal()?;
    let others: u64 = measured.rounds.iter().map(|round| round.pair_acked).sum();
    measured.acked = journal.len() as u64 + others;
    for node in &nodes.nodes {
        let address = node.client.to_string();
        let read = ledger::read(&address, &stream, &journal, others);
        measured.verdicts.push(nodes.block_on(read)?);
    }
    if settings.copy_mib > 0 {
        progress(&format!("a blank node copies {} MiB", settings.copy_mib));
        measured.copy = Some(copy::run(settings, dir, &mut nodes)?);
    }
    Ok(measured)
}

fn round_trips(
    store: &mut impl Store,
    count: u32,
    measured: &mut Measured,
) -> Result<(), PairError> {
    for _ in 0..count {
        let took = store.round_trip().map_err(PairError::Store)?;
        measured.round_trips_ms.push(took.as_secs_f64() * 1e3);
    }
    Ok(())
}
