//! One executor per shard, on a thread of its own, for the life of the process.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use duolog_engine::disk::uring::LogFile;
use duolog_engine::ids::LeaseEpoch;
use duolog_engine::shard::{Actions, Event};
use glommio::{LocalExecutorBuilder, Placement};

use super::shard_loop::{Parts, ShardLoop};
use super::{accept, inbox_loop, pair};

/// Memory for block writes and reads, bytes, taken from the locked-memory limit three times:
/// enough for the blocks in flight of ordinary size; larger ones use ordinary memory.
const IO_MEMORY_BYTES: usize = 1 << 20;
/// Entries of the submission ring.
const RING_DEPTH: usize = 128;
/// How often the machine hears that time has passed, and the watchdog that the thread runs.
const TICK: Duration = Duration::from_millis(100);
/// How often idle connections are looked at.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// How long unsent answers may take at the end.
const LAST_SEND: Duration = Duration::from_secs(2);

/// Everything a shard's thread starts with.
#[derive(Debug)]
pub struct ShardSetup {
    /// The loop's parts.
    pub parts: Parts,
    /// The shard's end of its bell.
    pub bell: UnixStream,
    /// Where clients connect.
    pub listen: SocketAddr,
    /// CPUs to run on; none = wherever the process may.
    pub cpus: Option<Vec<usize>>,
    /// Told once the shard takes clients, or why it does not.
    pub ready: crossbeam::channel::Sender<io::Result<SocketAddr>>,
    /// Shard 0 of a pair.
    pub control: Option<ControlSetup>,
}

/// What the lease machine's driver starts with.
#[derive(Clone, Copy, Debug)]
pub struct ControlSetup {
    /// Where the other node connects.
    pub listen: SocketAddr,
    /// The epoch on disk.
    pub promised: LeaseEpoch,
}

/// Starts the shard's thread.
pub fn spawn(setup: ShardSetup) -> io::Result<JoinHandle<()>> {
    let name = format!("shard-{}", setup.parts.session_settings.shard);
    std::thread::Builder::new().name(name).spawn(move || {
        if let Some(cpus) = &setup.cpus
            && let Err(error) = pin(cpus)
        {
            report(&setup.ready, Err(error));
            return;
        }
        let executor = LocalExecutorBuilder::new(Placement::Unbound)
            .io_memory(IO_MEMORY_BYTES)
            .ring_depth(RING_DEPTH)
            .make();
        match executor {
            Ok(executor) => executor.run(run(setup)),
            Err(error) => report(&setup.ready, Err(io::Error::other(error.to_string()))),
        }
    })
}

fn report(
    ready: &crossbeam::channel::Sender<io::Result<SocketAddr>>,
    result: io::Result<SocketAddr>,
) {
    // The receiver waits for every shard; without it the process is ending already.
    let _ = ready.send(result);
}

fn pin(cpus: &[usize]) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    for cpu in cpus {
        set.set(*cpu);
    }
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

async fn run(setup: ShardSetup) {
    let ShardSetup { parts, bell, listen, ready, control, .. } = setup;
    let shard = ShardLoop::new(parts);
    if let Err(error) = open_active(&shard).await {
        return report(&ready, Err(error));
    }
    let listener = match accept::listen(listen) {
        Ok(listener) => listener,
        Err(error) => return report(&ready, Err(error)),
    };
    let address = listener.local_addr().unwrap_or(listen);
    glommio::spawn_local(inbox_loop::run(Rc::clone(&shard), bell)).detach();
    glommio::spawn_local(commit(Rc::clone(&shard))).detach();
    glommio::spawn_local(tick(Rc::clone(&shard))).detach();
    glommio::spawn_local(housekeep(Rc::clone(&shard))).detach();
    // The first step asks for segments.
    shard.perform(Actions::default());
    shard.step(Event::Tick);
    if shard.pair.is_some() {
        pair::start(&shard);
    }
    if let Some(ControlSetup { listen, promised }) = control {
        match pair::start_control(&shard, listen, promised) {
            Ok(control) => shard.control.replace(Some(control)),
            Err(error) => return report(&ready, Err(error)),
        };
    }
    glommio::spawn_local(accept::run(Rc::clone(&shard), listener)).detach();
    report(&ready, Ok(address));
    shard.stopped.wait().await;
    end(&shard).await;
}

async fn open_active(shard: &Rc<ShardLoop>) -> io::Result<()> {
    let (active, align_bytes) = {
        let machine = shard.shard.borrow();
        (machine.active_generation(), machine.config().layout.align_bytes)
    };
    if let Some(generation) = active {
        let path = shard.dir.segment(generation);
        let file = LogFile::open_for_writing(&path, align_bytes).await?;
        shard.add_writer(generation, file);
    }
    Ok(())
}

/// Closes the open block whenever the disk may take one and everything that had arrived is in it:
/// this task runs behind the readers that were woken before it.
async fn commit(shard: Rc<ShardLoop>) {
    loop {
        shard.committer.wait().await;
        shard.step(Event::Flush);
    }
}

async fn tick(shard: Rc<ShardLoop>) {
    loop {
        glommio::timer::sleep(TICK).await;
        shard.step(Event::Tick);
        shard.deliver_late();
        shard.tick_pair();
        shard.cool_waiting();
    }
}

async fn housekeep(shard: Rc<ShardLoop>) {
    loop {
        glommio::timer::sleep(HOUSEKEEPING).await;
        shard.look_at_the_clock();
        let now = shard.now_us();
        for (_, connection) in shard.connections.borrow().iter() {
            connection.housekeep(now);
        }
        shard.hub.borrow().housekeep();
    }
}

/// Gives clients what they have not taken yet, for a bounded time.
async fn end(shard: &Rc<ShardLoop>) {
    shard.look_at_the_clock();
    let deadline = shard.now_us().0 + LAST_SEND.as_micros() as u64;
    loop {
        if !shard.has_unsent() || shard.now_us().0 > deadline {
            return;
        }
        glommio::timer::sleep(Duration::from_millis(5)).await;
        shard.look_at_the_clock();
    }
}
