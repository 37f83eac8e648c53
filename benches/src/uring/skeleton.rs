//! The bare skeleton: what a durable append costs at the very least on this runtime. It accepts,
//! cuts frames and checks their checksum, gathers the requests into a group, makes one durable
//! write per group and replies. No index, no conditions, no recovery: its throughput is the
//! ceiling that the product is measured against, so it is built with the product's own means.
//!
//! How it works: one reader task per connection appends requests to the open group; a committer
//! task closes the group when the disk is free, and sends the answers of a finished group with one
//! non-blocking send per connection. While groups are large, connections are *hot*: the committer
//! itself reads from all of them before it closes a group. What was measured on the way is in
//! benches/NOTES-skeleton.md.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::task::{Poll, Waker};

use duolog_engine::ids::{ClusterId, Hlc, LeaseEpoch, Lsn, NodeId, Revision, ShardId};
use duolog_net::limits::WIRE_VERSION;
use duolog_net::wire::{
    Appended, Copies, Decoded, FrameKind, HelloAccepted, NodeRole, StreamSpan, decode_frame,
};
use glommio::io::{DmaFile, OpenOptions};
use glommio::net::TcpListener;
use glommio::{GlommioError, LocalExecutorBuilder, Placement};

use super::connection::Connection;

/// Size of the file the groups go to, bytes; written round and round.
const FILE_BYTES: u64 = 64 << 20;
/// Writes are multiples of this, bytes.
const ALIGN_BYTES: usize = 4096;
/// A group takes no further request beyond this, bytes.
const GROUP_MAX_BYTES: usize = 256 << 10;
/// Largest frame body taken, bytes. The product's limit is larger; a benchmark needs no more.
pub(crate) const BODY_MAX_BYTES: usize = 1 << 20;
/// All requests not yet answered, bytes: beyond this, nothing more is read.
const PENDING_MAX_BYTES: usize = 64 << 20;
/// A group that answered at least this many connections keeps them hot. Below, the next request
/// is better waited for.
const HOT_GROUP_MIN: usize = 4;
/// Sweeps without a find before a hot connection waits for readiness again.
const HOT_MISSES_MAX: u32 = 2;

/// What every client is told.
pub(crate) const HELLO_ACCEPTED: HelloAccepted = HelloAccepted {
    version: WIRE_VERSION,
    shard_count: 1,
    cluster: ClusterId(0),
    node: NodeId(0),
    capabilities: 0,
    frame_body_max_bytes: BODY_MAX_BYTES as u32,
    requests_max: u32::MAX,
    shard: ShardId(0),
    bytes_max: u32::MAX,
    role: NodeRole::Standalone,
    epoch: LeaseEpoch(0),
};

/// The receipt of the event at `lsn`. It has the shape of a real one and no meaning.
pub(crate) const fn receipt(lsn: u64) -> Appended {
    Appended {
        first_lsn: Lsn(lsn),
        last_lsn: Lsn(lsn),
        hlc: Hlc(lsn),
        epoch: LeaseEpoch(0),
        shard: ShardId(0),
        copies: Copies::ThisDisk,
        replayed: false,
    }
}

/// How the skeleton runs.
#[derive(Clone, Debug)]
pub struct SkeletonSettings {
    /// Address to listen on, `host:port`.
    pub listen: String,
    /// Existing directory for its file, which stays there at the end.
    pub dir: PathBuf,
    /// Groups being written at one time, 1..=8.
    pub writes_in_flight: usize,
}

/// Why the skeleton ended.
#[derive(Debug, thiserror::Error)]
pub enum SkeletonError {
    /// A setting out of range.
    #[error("writes in flight is {0}: give 1 to 8")]
    WritesInFlight(usize),
    /// File preparation failed.
    #[error("cannot prepare {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The runtime refused.
    #[error("the runtime failed: {0} (is io_uring allowed, is memlock at least 512 KiB?)")]
    Runtime(String),
}

impl<T> From<GlommioError<T>> for SkeletonError {
    fn from(error: GlommioError<T>) -> Self {
        Self::Runtime(format!("{error}"))
    }
}

/// Serves until the process is killed. Prints `listening` and the address once it takes clients.
pub fn serve(settings: &SkeletonSettings) -> Result<(), SkeletonError> {
    if !(1..=8).contains(&settings.writes_in_flight) {
        return Err(SkeletonError::WritesInFlight(settings.writes_in_flight));
    }
    let path = settings.dir.join("skeleton.log");
    crate::prepared_file::create(&path, FILE_BYTES)
        .map_err(|source| SkeletonError::File { path: path.clone(), source })?;
    let executor =
        LocalExecutorBuilder::new(Placement::Unbound).name("skeleton").io_memory(1 << 20).make()?;
    executor.run(serve_on_executor(settings, &path))
}

async fn serve_on_executor(settings: &SkeletonSettings, path: &Path) -> Result<(), SkeletonError> {
    let synced = rustix::fs::OFlags::DSYNC.bits();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(i32::try_from(synced).expect("open flags fit a C int"))
        .dma_open(path)
        .await?;
    let shard = Rc::new(Shard::new(file));
    for _ in 0..settings.writes_in_flight {
        glommio::spawn_local(commit(Rc::clone(&shard))).detach();
    }
    let listener = TcpListener::bind(settings.listen.as_str())?;
    println!("listening {}", listener.local_addr()?);
    loop {
        // Out of descriptors, or a client that left at once: neither ends the server.
        let Ok(stream) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let connection = Connection::new(stream);
        glommio::spawn_local(read(Rc::clone(&shard), connection)).detach();
    }
}

/// Requests that will be written together.
#[derive(Default)]
struct Group {
    body: Vec<u8>,
    replies: Vec<(Rc<Connection>, u64)>,
}

struct Shard {
    file: DmaFile,
    open: RefCell<VecDeque<Group>>,
    spare: RefCell<Vec<Group>>,
    /// Committers without work.
    idle: RefCell<Vec<Waker>>,
    writes_in_flight: Cell<usize>,
    /// Number of the next group to close, and of the next one to answer.
    closed: Cell<u64>,
    answered: Cell<u64>,
    done: RefCell<VecDeque<(u64, Group)>>,
    next_offset: Cell<u64>,
    next_lsn: Cell<u64>,
    pending_bytes: Cell<usize>,
    readers_waiting: RefCell<Vec<Waker>>,
    /// Connections that the last group answered.
    last_touched: Cell<usize>,
    /// Connections that were answered and are read by sweeps.
    hot: RefCell<Vec<Rc<Connection>>>,
}

/// What a client's bytes turned out to be.
enum Taken {
    Appends,
    Nothing,
    /// The client broke the protocol.
    Broken,
}

async fn read(shard: Rc<Shard>, connection: Rc<Connection>) {
    loop {
        let received = poll_fn(|cx| {
            if shard.is_full() {
                shard.readers_waiting.borrow_mut().push(cx.waker().clone());
                return Poll::Pending;
            }
            connection.poll_receive(cx)
        });
        let Ok(1..) = received.await else { break };
        match shard.take_frames(&connection) {
            Taken::Appends if shard.last_touched.get() >= HOT_GROUP_MIN => connection.heat(),
            Taken::Appends | Taken::Nothing => {}
            Taken::Broken => break,
        }
    }
    connection.close();
}

impl Shard {
    fn new(file: DmaFile) -> Self {
        Self {
            file,
            open: RefCell::default(),
            spare: RefCell::default(),
            idle: RefCell::default(),
            writes_in_flight: Cell::new(0),
            closed: Cell::new(0),
            answered: Cell::new(0),
            done: RefCell::default(),
            next_offset: Cell::new(0),
            next_lsn: Cell::new(1),
            pending_bytes: Cell::new(0),
            readers_waiting: RefCell::default(),
            last_touched: Cell::new(0),
            hot: RefCell::default(),
        }
    }

    fn is_full(&self) -> bool {
        self.pending_bytes.get() > PENDING_MAX_BYTES
    }

    fn take_frames(&self, connection: &Rc<Connection>) -> Taken {
        let mut received = connection.received.borrow_mut();
        let mut taken = Taken::Nothing;
        loop {
            let (frame, used) = match decode_frame(received.waiting(), BODY_MAX_BYTES) {
                Ok(Decoded::Complete { value, used }) => (value, used),
                Ok(Decoded::NeedMore(_)) => break,
                Err(_) => return Taken::Broken,
            };
            match frame.kind {
                FrameKind::Append => {
                    self.group_up(connection, frame.correlation, frame.body);
                    taken = Taken::Appends;
                }
                FrameKind::Hello => {
                    let correlation = frame.correlation;
                    HELLO_ACCEPTED.encode(&mut connection.unsent.borrow_mut(), correlation, "");
                    connection.send();
                }
                _ => return Taken::Broken,
            }
            received.consume(used);
        }
        if matches!(taken, Taken::Appends)
            && let Some(waker) = self.idle.borrow_mut().pop()
        {
            waker.wake();
        }
        taken
    }

    fn group_up(&self, connection: &Rc<Connection>, correlation: u64, body: &[u8]) {
        let mut open = self.open.borrow_mut();
        let full = |group: &Group| group.body.len() + body.len() > GROUP_MAX_BYTES;
        if open.back().is_none_or(full) {
            open.push_back(self.spare.borrow_mut().pop().unwrap_or_default());
        }
        let group = open.back_mut().expect("a group was pushed when there was none");
        group.body.extend_from_slice(body);
        group.replies.push((Rc::clone(connection), correlation));
        self.pending_bytes.set(self.pending_bytes.get() + body.len());
    }

    /// Reads from every hot connection without waiting. One that had nothing several times in a
    /// row goes back to waiting for readiness.
    fn sweep(&self) {
        if self.is_full() {
            return;
        }
        let mut hot = self.hot.borrow_mut();
        hot.retain(|connection| {
            match connection.receive_now() {
                Ok(1..) => match self.take_frames(connection) {
                    // Comes back when it is answered.
                    Taken::Appends => {
                        connection.misses.set(0);
                        return false;
                    }
                    Taken::Nothing => {}
                    Taken::Broken => connection.close(),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    connection.misses.set(connection.misses.get() + 1);
                    if connection.misses.get() <= HOT_MISSES_MAX {
                        return true;
                    }
                }
                Ok(0) | Err(_) => connection.close(),
            }
            connection.cool();
            false
        });
    }

    /// Nothing to write and nothing being written: every connection waits for readiness.
    fn cool_all(&self) {
        if self.writes_in_flight.get() == 0 {
            self.hot.borrow_mut().drain(..).for_each(|connection| connection.cool());
        }
    }

    /// Answers every group at the head of the line that is on disk, in the order of the log.
    fn answer_done(&self) {
        loop {
            let head = self.answered.get();
            let mut done = self.done.borrow_mut();
            let Some(index) = done.iter().position(|(number, _)| *number == head) else { return };
            let Some((_, group)) = done.remove(index) else { return };
            drop(done);
            self.answered.set(head + 1);
            self.answer(group);
        }
    }

    fn answer(&self, mut group: Group) {
        let mut touched = Vec::with_capacity(group.replies.len());
        for (connection, correlation) in group.replies.drain(..) {
            let lsn = self.next_lsn.get();
            self.next_lsn.set(lsn + 1);
            let span = StreamSpan { first: Revision(lsn), event_count: 1 };
            receipt(lsn).encode(&mut connection.unsent.borrow_mut(), correlation, [span]);
            if !connection.touched.replace(true) {
                touched.push(connection);
            }
        }
        for connection in &touched {
            connection.touched.set(false);
            connection.send();
        }
        self.last_touched.set(touched.len());
        self.hot.borrow_mut().extend(touched.into_iter().filter(|it| it.is_hot()));
        self.pending_bytes.set(self.pending_bytes.get() - group.body.len());
        group.body.clear();
        self.spare.borrow_mut().push(group);
        self.readers_waiting.borrow_mut().drain(..).for_each(Waker::wake);
    }

    /// Ends when a group is waiting to be written.
    async fn wait_for_group(&self) {
        let mut yielded = false;
        poll_fn(|cx| {
            if self.open.borrow().is_empty() {
                self.cool_all();
                self.idle.borrow_mut().push(cx.waker().clone());
                yielded = false;
                return Poll::Pending;
            }
            if !yielded {
                // To the end of the run queue: readers that are ready come first, so that the
                // group holds everything that has arrived.
                yielded = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }

    async fn write(&self, body: &[u8]) {
        let size = body.len().next_multiple_of(ALIGN_BYTES);
        let mut offset = self.next_offset.get();
        if offset + size as u64 > FILE_BYTES {
            offset = 0;
        }
        self.next_offset.set(offset + size as u64);
        let mut buffer = self.file.alloc_dma_buffer(size);
        let (filled, padding) = buffer.as_bytes_mut().split_at_mut(body.len());
        filled.copy_from_slice(body);
        padding.fill(0);
        self.writes_in_flight.set(self.writes_in_flight.get() + 1);
        let outcome = self.file.write_at(buffer, offset).await;
        self.writes_in_flight.set(self.writes_in_flight.get() - 1);
        if !matches!(outcome, Ok(written) if written == size) {
            eprintln!("skeleton: a write of {size} bytes at {offset} failed: {outcome:?}");
            std::process::exit(1);
        }
    }
}

/// Closes groups, writes them and answers them. Several of these make several writes in flight.
async fn commit(shard: Rc<Shard>) {
    loop {
        shard.sweep();
        shard.wait_for_group().await;
        let Some(group) = shard.open.borrow_mut().pop_front() else { continue };
        let number = shard.closed.get();
        shard.closed.set(number + 1);
        shard.write(&group.body).await;
        shard.done.borrow_mut().push_back((number, group));
        shard.answer_done();
    }
}
