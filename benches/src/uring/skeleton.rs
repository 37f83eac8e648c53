//! The bare skeleton: what a durable append costs at the very least on this runtime. It accepts,
//! cuts frames and checks their checksum, gathers the requests into a group, makes one durable
//! write per group and replies. No index, no conditions, no recovery: its throughput is the
//! ceiling that the product is measured against, so it is built with the product's own means.
//!
//! How it works: one reader task per connection appends requests to the open group; a committer
//! task closes the group when the disk is free, and sends the answers of a finished group with one
//! non-blocking send per connection.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use futures_lite::io::{AsyncRead, AsyncWrite};
use glommio::io::{DmaFile, OpenOptions};
use glommio::net::{TcpListener, TcpStream};
use glommio::{GlommioError, LocalExecutorBuilder, Placement};

use crate::frame::{self, FrameHeader};

/// Size of the file the groups go to, bytes; written round and round.
const FILE_BYTES: u64 = 64 << 20;
/// Writes are multiples of this, bytes.
const ALIGN_BYTES: usize = 4096;
/// A group takes no further request beyond this, bytes.
const GROUP_MAX_BYTES: usize = 256 << 10;
/// First size of a connection's receive buffer, bytes.
const RECEIVE_BYTES: usize = 16 << 10;
/// Largest frame body taken, bytes. The product's limit is larger; a benchmark needs no more.
const BODY_MAX_BYTES: usize = 1 << 20;
/// A connection that leaves this much unread is closed, bytes.
const UNSENT_MAX_BYTES: usize = 16 << 20;
/// All requests not yet answered, bytes: beyond this, readers wait.
const PENDING_MAX_BYTES: usize = 64 << 20;

/// How the skeleton runs.
#[derive(Clone, Debug)]
pub struct SkeletonSettings {
    /// Address to listen on, `host:port`.
    pub listen: String,
    /// Directory for its file, which is removed at the end only by the caller.
    pub dir: PathBuf,
    /// Groups being written at one time, 1..=8.
    pub writes_in_flight: usize,
    /// After a group's answers are sent, read from its connections without waiting for a
    /// readiness event, when the group had at least this many answers. 0 = never.
    pub sweep_min: usize,
    /// Entries of the submission ring.
    pub ring_depth: usize,
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
pub fn serve(settings: SkeletonSettings) -> Result<(), SkeletonError> {
    if !(1..=8).contains(&settings.writes_in_flight) {
        return Err(SkeletonError::WritesInFlight(settings.writes_in_flight));
    }
    let path = settings.dir.join("skeleton.log");
    crate::prepared_file::create(&path, FILE_BYTES)
        .map_err(|source| SkeletonError::File { path: path.clone(), source })?;
    let executor = LocalExecutorBuilder::new(Placement::Unbound)
        .name("skeleton")
        .io_memory(1 << 20)
        .ring_depth(settings.ring_depth)
        .make()?;
    executor.run(serve_on_executor(settings, &path))
}

async fn serve_on_executor(settings: SkeletonSettings, path: &Path) -> Result<(), SkeletonError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(rustix::fs::OFlags::DSYNC.bits() as i32)
        .dma_open(path)
        .await?;
    let shard = Rc::new(Shard::new(file, settings.sweep_min));
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
    sweep_min: usize,
    open: RefCell<VecDeque<Group>>,
    spare: RefCell<Vec<Group>>,
    /// Committers without work.
    idle: RefCell<Vec<Waker>>,
    /// Number of the next group to close, and of the next one to answer.
    closed: Cell<u64>,
    answered: Cell<u64>,
    done: RefCell<VecDeque<(u64, Group)>>,
    next_offset: Cell<u64>,
    next_lsn: Cell<u64>,
    pending_bytes: Cell<usize>,
    readers_waiting: RefCell<Vec<Waker>>,
}

struct Connection {
    stream: RefCell<TcpStream>,
    raw: i32,
    received: RefCell<Received>,
    unsent: RefCell<Vec<u8>>,
    /// A flush task owns the rest of `unsent`.
    flushing: Cell<bool>,
    closed: Cell<bool>,
    /// The connection is in the list of those to send to.
    touched: Cell<bool>,
    /// Set while the reader leaves the socket to the sweep instead of waiting for readiness.
    swept: Cell<bool>,
    reader: RefCell<Option<Waker>>,
}

/// A receive buffer: bytes `start..end` are not yet cut into frames.
struct Received {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Received {
    fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.bytes.len() && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.bytes.len() {
            let doubled = self.bytes.len() * 2;
            self.bytes.resize(doubled, 0);
        }
        &mut self.bytes[self.end..]
    }
}

impl Connection {
    fn new(stream: TcpStream) -> Rc<Self> {
        let raw = stream.as_raw_fd();
        let bytes = vec![0; RECEIVE_BYTES];
        Rc::new(Self {
            stream: RefCell::new(stream),
            raw,
            received: RefCell::new(Received { bytes, start: 0, end: 0 }),
            unsent: RefCell::new(Vec::with_capacity(256)),
            flushing: Cell::new(false),
            closed: Cell::new(false),
            touched: Cell::new(false),
            swept: Cell::new(false),
            reader: RefCell::new(None),
        })
    }

    #[expect(unsafe_code, reason = "the runtime's stream lends its descriptor as a number only")]
    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: `stream` owns this descriptor and lives as long as `self`; it is never replaced.
        unsafe { BorrowedFd::borrow_raw(self.raw) }
    }

    /// One send that does not wait. True when everything went out.
    fn send_now(&self) -> io::Result<bool> {
        use rustix::net::{SendFlags, send};
        let mut unsent = self.unsent.borrow_mut();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = match send(self.descriptor(), &unsent, flags) {
            Ok(sent) => sent,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        if sent == unsent.len() {
            unsent.clear();
            return Ok(true);
        }
        unsent.drain(..sent);
        Ok(false)
    }

    /// Sends what is due; the rest goes to a task that waits for the socket.
    fn send(self: &Rc<Self>) {
        if self.closed.get() || self.flushing.get() || self.unsent.borrow().is_empty() {
            return;
        }
        match self.send_now() {
            Ok(true) => {}
            Ok(false) => {
                self.flushing.set(true);
                glommio::spawn_local(flush(Rc::clone(self))).detach();
            }
            Err(_) => self.closed.set(true),
        }
    }
}

async fn flush(connection: Rc<Connection>) {
    loop {
        let bytes = std::mem::take(&mut *connection.unsent.borrow_mut());
        if bytes.is_empty() {
            break;
        }
        let mut sent = 0;
        while sent < bytes.len() {
            let step = poll_fn(|cx| {
                let mut stream = connection.stream.borrow_mut();
                Pin::new(&mut *stream).poll_write(cx, &bytes[sent..])
            });
            match step.await {
                Ok(count) => sent += count,
                Err(_) => {
                    connection.closed.set(true);
                    return;
                }
            }
        }
    }
    connection.flushing.set(false);
}

async fn read(shard: Rc<Shard>, connection: Rc<Connection>) {
    loop {
        let received = poll_fn(|cx| {
            if shard.pending_bytes.get() > PENDING_MAX_BYTES {
                shard.readers_waiting.borrow_mut().push(cx.waker().clone());
                return Poll::Pending;
            }
            if connection.swept.get() {
                *connection.reader.borrow_mut() = Some(cx.waker().clone());
                return Poll::Pending;
            }
            let mut received = connection.received.borrow_mut();
            let mut stream = connection.stream.borrow_mut();
            Pin::new(&mut *stream).poll_read(cx, received.space())
        });
        let Ok(count @ 1..) = received.await else { break };
        if connection.closed.get() {
            break;
        }
        connection.received.borrow_mut().end += count;
        if shard.take_frames(&connection).is_err() {
            break;
        }
    }
    connection.closed.set(true);
}

/// The client broke the protocol.
struct Broken;

impl Shard {
    fn new(file: DmaFile, sweep_min: usize) -> Self {
        Self {
            file,
            sweep_min: if sweep_min == 0 { usize::MAX } else { sweep_min },
            open: RefCell::new(VecDeque::new()),
            spare: RefCell::new(Vec::new()),
            idle: RefCell::new(Vec::new()),
            closed: Cell::new(0),
            answered: Cell::new(0),
            done: RefCell::new(VecDeque::new()),
            next_offset: Cell::new(0),
            next_lsn: Cell::new(1),
            pending_bytes: Cell::new(0),
            readers_waiting: RefCell::new(Vec::new()),
        }
    }

    fn take_frames(&self, connection: &Rc<Connection>) -> Result<(), Broken> {
        let mut received = connection.received.borrow_mut();
        let mut appended = false;
        loop {
            let waiting = &received.bytes[received.start..received.end];
            let Some(header) = FrameHeader::read(waiting) else { break };
            if header.length as usize > BODY_MAX_BYTES {
                return Err(Broken);
            }
            let size = frame::HEADER_BYTES + header.length as usize;
            let Some(whole) = waiting.get(..size) else { break };
            if !header.checksum_holds(whole) {
                return Err(Broken);
            }
            match header.kind {
                frame::KIND_APPEND => {
                    self.group_up(connection, header.correlation, &whole[frame::HEADER_BYTES..]);
                    appended = true;
                }
                frame::KIND_HELLO => {
                    let mut unsent = connection.unsent.borrow_mut();
                    frame::write_hello_accepted(&mut unsent, header.correlation, 1);
                    drop(unsent);
                    connection.send();
                }
                _ => return Err(Broken),
            }
            received.start += size;
        }
        drop(received);
        if appended && let Some(waker) = self.idle.borrow_mut().pop() {
            waker.wake();
        }
        Ok(())
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
        let mut touched = Vec::with_capacity(group.replies.len().min(4096));
        for (connection, correlation) in group.replies.drain(..) {
            let lsn = self.next_lsn.get();
            self.next_lsn.set(lsn + 1);
            frame::write_appended(&mut connection.unsent.borrow_mut(), correlation, lsn);
            if !connection.touched.replace(true) {
                touched.push(connection);
            }
        }
        for connection in &touched {
            connection.touched.set(false);
            if connection.unsent.borrow().len() > UNSENT_MAX_BYTES {
                connection.closed.set(true);
            }
            connection.send();
        }
        if touched.len() >= self.sweep_min {
            self.sweep(&touched);
        }
        self.pending_bytes.set(self.pending_bytes.get() - group.body.len());
        group.body.clear();
        self.spare.borrow_mut().push(group);
        if !self.readers_waiting.borrow().is_empty() {
            self.readers_waiting.borrow_mut().drain(..).for_each(Waker::wake);
        }
    }

    fn sweep(&self, _touched: &[Rc<Connection>]) {}
}

/// Closes groups, writes them and answers them. Several of these make several writes in flight.
async fn commit(shard: Rc<Shard>) {
    loop {
        let mut yielded = false;
        poll_fn(|cx| {
            if shard.open.borrow().is_empty() {
                shard.idle.borrow_mut().push(cx.waker().clone());
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
        let Some(group) = shard.open.borrow_mut().pop_front() else { continue };
        let number = shard.closed.get();
        shard.closed.set(number + 1);
        let size = group.body.len().next_multiple_of(ALIGN_BYTES);
        let mut offset = shard.next_offset.get();
        if offset + size as u64 > FILE_BYTES {
            offset = 0;
        }
        shard.next_offset.set(offset + size as u64);
        let mut buffer = shard.file.alloc_dma_buffer(size);
        let (filled, padding) = buffer.as_bytes_mut().split_at_mut(group.body.len());
        filled.copy_from_slice(&group.body);
        padding.fill(0);
        match shard.file.write_at(buffer, offset).await {
            Ok(written) if written == size => {}
            other => {
                eprintln!("skeleton: write of {size} bytes at {offset} failed: {other:?}");
                std::process::exit(1);
            }
        }
        shard.done.borrow_mut().push_back((number, group));
        shard.answer_done();
    }
}
