//! From settings to a serving node, and back to nothing.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam::channel::bounded;
use duolog_engine::ids::ShardId;
use duolog_engine::limits::{
    BLOCK_ALIGN_BYTES, BLOCK_BODY_TARGET_BYTES, SHARD_IN_FLIGHT_MAX_BYTES,
};
use duolog_engine::shard::{Layout, ShardConfig};
use duolog_net::limits::{
    CONNECTION_BYTES_MAX_DEFAULT, CONNECTION_UNSENT_MAX_BYTES_DEFAULT, frame_body_max_bytes,
};
use duolog_net::session;

use super::background::{self, FileJob, ShardFiles};
use super::clock::Clock;
use super::cluster::boot::PairBoot;
use super::cluster::promise::PromiseFile;
use super::inbox::Inbox;
use super::index::{self, IndexJob, SavedIndexes, ShardIndex};
use super::journal::Journal;
use super::life::{Life, Phase};
use super::metrics::Sources;
use super::recover::{self, RecoveredShard};
use super::reload::Reload;
use super::repair::Lender;
use super::signals::{self, Side};
use super::stamps::NewestStamp;
use super::supervisor::{Place, Socket, Start, Word};
use super::uring::{ControlSetup, Parts, ShardSetup, spawn};
use super::visit::Visits;
use super::{http, watchdog};
use crate::datadir::{self, DataDirError, Identity};
use crate::exit::{Exit, Failure};
use crate::probe;
use crate::settings::Settings;

/// Serves until a signal ends it. The service manager is told why, if it ends badly.
pub fn run(settings: &Settings, reload: Reload) -> Result<Exit, Failure> {
    let ended = start(settings, reload);
    if let Err(failure) = &ended {
        Socket::of_this_process().say(&[Word::Status(failure.text.clone())]);
    }
    ended
}

fn start(settings: &Settings, reload: Reload) -> Result<Exit, Failure> {
    let life = Arc::new(Life::new(settings.shards.count));
    let place = if settings.standalone { Place::Disk } else { Place::Bucket };
    let start = begun(Start::begin(Socket::of_this_process(), Arc::clone(&life), place))?;
    if !settings.standalone && settings.s3.bucket.is_none() {
        let text = "a node of a pair needs a bucket: give --s3-bucket NAME; or --standalone to \
                    serve alone, with one copy of every event";
        return Err(Failure::new(Exit::Usage, text));
    }
    let direct = probe::boot(settings)?;
    announce(settings, direct.offset_align_bytes);
    raise_descriptor_limit();
    let path = settings.data_dir()?;
    let refused = |error: DataDirError| Failure::new(error.exit(), error);
    let _lock = datadir::lock(path).map_err(refused)?;
    let journal = Journal::start(path).map_err(|error| internal(&error))?;
    let align_bytes = BLOCK_ALIGN_BYTES.max(direct.offset_align_bytes);
    let ended =
        serve(settings, path, align_bytes, Process { life, journal: &journal, start, reload });
    journal.stop_with(&ended);
    ended
}

/// What a process has besides its shards.
struct Process<'a> {
    life: Arc<Life>,
    journal: &'a Journal,
    start: Start,
    reload: Reload,
}

/// Serves from a directory that is this process's own.
fn serve(
    settings: &Settings,
    path: &Path,
    align_bytes: u32,
    process: Process<'_>,
) -> Result<Exit, Failure> {
    let life = Arc::clone(&process.life);
    let refused = |error: DataDirError| Failure::new(error.exit(), error);
    let (inboxes, bells) = inboxes(settings.shards.count).map_err(|error| internal(&error))?;
    let http = http::start(settings, &life, &inboxes)?;
    let (identity, pair) = if settings.standalone {
        let origin = settings.origin("shards.count");
        let identity = datadir::identify(path, settings.shards.count, &origin, None);
        (identity.map_err(refused)?, None)
    } else {
        let (identity, pair) = PairBoot::prepare(settings, path, align_bytes)?;
        (identity, Some(pair))
    };
    let lender = pair.as_ref().map(|pair| pair.lender.clone());
    life.enter(Phase::Recovering);
    let recovery = Recovery { path, align_bytes, lender: lender.as_ref(), life: &life };
    let recovered = recover_all(settings, &identity, &recovery)?;
    life.enter(Phase::Opening);
    let settings_of_pair = pair.as_ref().map(|pair| Arc::clone(&pair.settings));
    let sources = Sources::new(Arc::clone(&inboxes), settings_of_pair, path.to_owned(), &identity);
    life.metrics.get_or_init(|| sources);
    let shards = Shards { recovered, inboxes, bells };
    let node = Node::start(settings, &identity, shards, pair, process)?;
    let exit = node.wait();
    if let Some(http) = http {
        http.stop();
    }
    exit
}

/// The shards before their threads start.
struct Shards {
    recovered: Vec<RecoveredShard>,
    inboxes: Arc<[Arc<Inbox>]>,
    bells: Vec<UnixStream>,
}

struct Node {
    shards: Vec<JoinHandle<()>>,
    helpers: Vec<JoinHandle<()>>,
    file_jobs: crossbeam::channel::Sender<FileJob>,
    index_jobs: crossbeam::channel::Sender<IndexJob>,
    ended: Arc<AtomicBool>,
}

impl Node {
    fn start(
        settings: &Settings,
        identity: &Identity,
        shards: Shards,
        pair: Option<PairBoot>,
        process: Process<'_>,
    ) -> Result<Self, Failure> {
        let Shards { recovered, inboxes, bells } = shards;
        let Process { life, journal, start, reload } = process;
        let visits = begun(Visits::start(settings, identity.cluster()))?;
        let ended = Arc::new(AtomicBool::new(false));
        let (mut files, mut indexed, mut loops) = (Vec::new(), Vec::new(), Vec::new());
        for (RecoveredShard { machine, dir, mark, log_map, indexes }, inbox) in
            recovered.into_iter().zip(inboxes.iter())
        {
            let config = *machine.config();
            files.push(ShardFiles::new(&dir, config.layout, mark, inbox));
            loops.push((machine, dir, log_map, SavedIndexes::of(&indexes)));
            indexed.push(ShardIndex { files: indexes, config, inbox: Arc::clone(inbox) });
        }
        let promise = PromiseFile::new(settings.data_dir()?);
        let started = background::start_files(files, promise, journal.clone());
        let (file_jobs, file_thread) = begun(started)?;
        let (index_jobs, index_thread) = begun(index::start(indexed, Arc::clone(&ended)))?;
        let (ready, readiness) = bounded(loops.len());
        // Before the first shard takes an append: those that are not up yet have events, too.
        let stamps = NewestStamp::of(loops.iter().map(|(machine, ..)| machine.committed().hlc));
        let mut shards = Vec::new();
        for ((machine, dir, log_map, indexes), bell) in loops.into_iter().zip(bells) {
            let shard = machine.config().shard;
            let parts = Parts {
                shard: machine,
                dir,
                log_map,
                indexes,
                event_max_bytes: settings.limits.event_max_bytes,
                session_settings: session_settings(settings, identity, shard),
                inboxes: Arc::clone(&inboxes),
                file_jobs: file_jobs.clone(),
                index_jobs: index_jobs.clone(),
                clock: Clock,
                spin_us: settings.shards.spin_us,
                journal: journal.clone(),
                visits: visits.clone(),
                pair: pair.as_ref().map(|pair| Arc::clone(&pair.settings)),
                subscriber_stall_us: settings.limits.subscriber_stall_ms * 1000,
                stamps: Arc::clone(&stamps),
            };
            let cpus = settings.shards.cpus.as_ref().map(|plan| plan[shard.0 as usize].clone());
            let (listen, ready) = (settings.listen.client, ready.clone());
            let control = pair.as_ref().filter(|_| shard.0 == 0);
            let control = control.map(|pair| control_setup(settings, pair));
            let setup = ShardSetup { parts, bell, listen, cpus, ready, control };
            shards.push(begun(spawn(setup))?);
        }
        drop(ready);
        let address = await_ready(&readiness, shards.len())?;
        let bound = Duration::from_millis(settings.watchdog.bound_ms);
        let watchdog = begun(watchdog::start(Arc::clone(&inboxes), bound, Arc::clone(&ended)))?;
        life.client.get_or_init(|| address);
        life.enter(Phase::Serving);
        let (runner, journal) = (pair.map(|pair| pair.runner), journal.clone());
        let side = Side { inboxes, runner, life, journal, socket: start.end(), reload };
        begun(signals::start(side))?;
        let helpers = vec![file_thread, index_thread, watchdog];
        let (cluster, node) = (identity.cluster_id, identity.node_id);
        tracing::info!(event = "serving", %address, shards = shards.len(), %cluster, %node);
        Ok(Self { shards, helpers, file_jobs, index_jobs, ended })
    }

    fn wait(self) -> Result<Exit, Failure> {
        let Self { shards, helpers, file_jobs, index_jobs, ended } = self;
        for shard in shards {
            shard.join().map_err(|_| Failure::new(Exit::Internal, "a shard's thread panicked"))?;
        }
        ended.store(true, Ordering::Relaxed);
        // Closed only if the thread has died; then there is nothing to end.
        let _ = (file_jobs.send(FileJob::End), index_jobs.send(IndexJob::End));
        for helper in helpers {
            helper.join().map_err(|_| Failure::new(Exit::Internal, "a thread panicked"))?;
        }
        tracing::info!(event = "stopped");
        Ok(Exit::Ok)
    }
}

fn begun<T>(started: io::Result<T>) -> Result<T, Failure> {
    started.map_err(|error| internal(&error))
}

fn control_setup(settings: &Settings, pair: &PairBoot) -> ControlSetup {
    ControlSetup { listen: settings.cluster.listen_peer, promised: pair.promised }
}

fn await_ready(
    readiness: &crossbeam::channel::Receiver<io::Result<SocketAddr>>,
    count: usize,
) -> Result<SocketAddr, Failure> {
    let mut address = None;
    for _ in 0..count {
        match readiness.recv() {
            Ok(Ok(bound)) => address = Some(bound),
            Ok(Err(error)) if error.kind() == io::ErrorKind::AddrInUse => {
                let text = format!("a port was taken while the node started: {error}");
                return Err(Failure::new(Exit::PortInUse, text));
            }
            Ok(Err(error)) => return Err(internal(&error)),
            Err(_) => return Err(Failure::new(Exit::Internal, "a shard's thread ended early")),
        }
    }
    address.ok_or_else(|| Failure::new(Exit::Internal, "no shard was started"))
}

/// What recovery goes by.
#[derive(Clone, Copy)]
struct Recovery<'a> {
    path: &'a Path,
    align_bytes: u32,
    lender: Option<&'a Lender>,
    life: &'a Life,
}

/// Recovers all shards at the same time.
fn recover_all(
    settings: &Settings,
    identity: &Identity,
    recovery: &Recovery<'_>,
) -> Result<Vec<RecoveredShard>, Failure> {
    let Recovery { path, align_bytes, lender, life } = *recovery;
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (shard, progress) in (0..settings.shards.count).zip(&life.shards) {
            let config = shard_config(settings, identity, ShardId(shard), align_bytes);
            threads.push(scope.spawn(move || recover::open(path, config, lender, progress)));
        }
        let joined = threads.into_iter().map(|thread| {
            thread.join().map_err(|_| Failure::new(Exit::Internal, "a recovery panicked"))?
        });
        joined.collect()
    })
}

fn shard_config(
    settings: &Settings,
    identity: &Identity,
    shard: ShardId,
    align_bytes: u32,
) -> ShardConfig {
    ShardConfig {
        cluster: identity.cluster(),
        shard,
        shard_count: settings.shards.count,
        pair: (!settings.standalone).then(|| identity.node()),
        layout: Layout { segment_size_bytes: settings.log.segment_size_bytes, align_bytes },
        blocks_in_flight_max: settings.log.blocks_in_flight,
        block_target_bytes: BLOCK_BODY_TARGET_BYTES,
        idempotency_window: settings.log.idempotency_window,
        hot_streams_max: settings.memory.hot_streams,
        recent_max_bytes: settings.memory.recent_blocks_bytes,
        in_flight_max: settings.limits.shard_in_flight,
        in_flight_max_bytes: SHARD_IN_FLIGHT_MAX_BYTES,
    }
}

fn session_settings(settings: &Settings, identity: &Identity, shard: ShardId) -> session::Settings {
    let frame_body_max_bytes = frame_body_max_bytes(settings.limits.event_max_bytes);
    let frame_bytes = u32::try_from(frame_body_max_bytes).unwrap_or(u32::MAX);
    session::Settings {
        cluster: identity.cluster(),
        node: identity.node(),
        shard_count: settings.shards.count,
        shard,
        frame_body_max_bytes,
        requests_max: u32::try_from(settings.limits.connection_in_flight).unwrap_or(u32::MAX),
        bytes_max: CONNECTION_BYTES_MAX_DEFAULT.max(frame_bytes),
        unsent_max_bytes: CONNECTION_UNSENT_MAX_BYTES_DEFAULT,
    }
}

type Inboxes = (Arc<[Arc<Inbox>]>, Vec<UnixStream>);

fn inboxes(count: u32) -> io::Result<Inboxes> {
    let mut inboxes = Vec::new();
    let mut bells = Vec::new();
    for _ in 0..count {
        let (inbox, bell) = Inbox::new()?;
        inboxes.push(Arc::new(inbox));
        bells.push(bell);
    }
    Ok((inboxes.into(), bells))
}

/// Thousands of connections need as many descriptors; the hard limit is the operator's word.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, event = "descriptors", "the limit on open files stays as it is");
    }
}

fn internal(error: &io::Error) -> Failure {
    Failure::new(Exit::Internal, format!("the node cannot start: {error}"))
}

fn announce(settings: &Settings, align_bytes: u32) {
    let Settings { shards, log, limits, memory, .. } = settings;
    let data_dir = settings.data_dir.clone().unwrap_or_default();
    tracing::info!(
        data_dir = %data_dir.display(),
        standalone = settings.standalone,
        client = %settings.listen.client,
        http = settings.listen.http.map(|address| address.to_string()),
        shards = shards.count,
        cpus = shards.cpus.as_ref().map(|cpus| format!("{cpus:?}")),
        align_bytes,
        segment_size_bytes = log.segment_size_bytes,
        blocks_in_flight = log.blocks_in_flight,
        idempotency_window = log.idempotency_window,
        event_max_bytes = limits.event_max_bytes,
        connection_in_flight = limits.connection_in_flight,
        shard_in_flight = limits.shard_in_flight,
        hot_streams = memory.hot_streams,
        recent_blocks_bytes = memory.recent_blocks_bytes,
        watchdog_bound_ms = settings.watchdog.bound_ms,
        "settings"
    );
}
