//! One client connection: a reader task, a session, and sends straight from whoever has answers.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use duolog_engine::ids::MonoUs;
use duolog_net::session::{Flow, Session};
use futures_lite::io::{AsyncRead, AsyncWrite};
use glommio::net::TcpStream;

use super::notify::Notify;
use super::shard_loop::ShardLoop;
use super::subscribe::Subscriber;

/// A client that says nothing for this long after connecting is dropped.
const HELLO_MAX_US: u64 = 10_000_000;
/// A client that takes none of its waiting answers for this long is dropped.
const STALL_MAX_US: u64 = 30_000_000;

/// A connection whose last answer is sent waits this long for the client to close it too.
const CLOSE_MAX_US: u64 = 10_000_000;

/// A connection of this shard.
#[derive(Debug)]
pub(super) struct Connection {
    stream: RefCell<TcpStream>,
    descriptor: i32,
    pub session: RefCell<Session>,
    /// It is in the list of connections to send to.
    pub dirty: Cell<bool>,
    /// A task waits for the socket to take more.
    flushing: Cell<bool>,
    dead: Cell<bool>,
    /// Rings when the session's flow may have changed.
    pub changed: Notify,
    opened: MonoUs,
    progressed: Cell<MonoUs>,
    closing: Cell<Option<MonoUs>>,
    /// The reader leaves the socket to the shard's sweeps: no poll is armed on it.
    hot: Cell<bool>,
    /// It is in the list of connections to sweep.
    pub listed: Cell<bool>,
    misses: Cell<u32>,
    /// It is in the list of connections that are or were hot.
    pub warm: Cell<bool>,
    /// It was hot at the last tick, and no sweep has looked at it since.
    waited: Cell<bool>,
    reader: RefCell<Option<Waker>>,
    /// Its subscriptions by their correlation ids.
    pub feeds: RefCell<HashMap<u64, Rc<Subscriber>>>,
    /// Nobody serves it any more.
    over: Cell<bool>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, session: Session, now: MonoUs) -> Rc<Self> {
        let descriptor = stream.as_raw_fd();
        Rc::new(Self {
            stream: RefCell::new(stream),
            descriptor,
            session: RefCell::new(session),
            dirty: Cell::new(false),
            flushing: Cell::new(false),
            dead: Cell::new(false),
            changed: Notify::default(),
            opened: now,
            progressed: Cell::new(now),
            closing: Cell::new(None),
            hot: Cell::new(false),
            listed: Cell::new(false),
            misses: Cell::new(0),
            warm: Cell::new(false),
            waited: Cell::new(false),
            reader: RefCell::default(),
            feeds: RefCell::default(),
            over: Cell::new(false),
        })
    }

    #[expect(unsafe_code, reason = "the runtime's stream lends its descriptor as a number only")]
    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: `stream` owns this descriptor, is never replaced and lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.descriptor) }
    }

    /// Sends what is unsent without waiting; a task takes over what the socket does not take.
    pub(super) fn send(self: &Rc<Self>, shard: &Rc<ShardLoop>) {
        shard.count_errors(self.session.borrow_mut().answers());
        if self.dead.get() {
            return;
        }
        if self.flushing.get() {
            // An answer can end a pause also while earlier ones are stuck.
            self.changed.ring();
            return;
        }
        if !self.send_now(shard.now_us()) && !self.dead.get() {
            self.flushing.set(true);
            glommio::spawn_local(flush(Rc::clone(self), Rc::clone(shard))).detach();
        }
        self.changed.ring();
    }

    /// One send; whether nothing is left.
    fn send_now(&self, now: MonoUs) -> bool {
        use rustix::net::{SendFlags, send};
        let mut session = self.session.borrow_mut();
        let answers = session.answers();
        if answers.unsent().is_empty() {
            return true;
        }
        match send(self.descriptor(), answers.unsent(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => {
                self.progressed.set(now);
                answers.sent(count);
                answers.unsent().is_empty()
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
            Err(_) => {
                self.dead.set(true);
                true
            }
        }
    }

    /// Ends a connection from outside its reader: the reader sees the end of input.
    pub(super) fn shut(&self) {
        self.dead.set(true);
        // An error means that the peer ended it first.
        let _ = rustix::net::shutdown(self.descriptor(), rustix::net::Shutdown::Both);
        self.cool();
        self.changed.ring();
    }

    /// What the client said about its subscriptions. One that has ended hears nothing more.
    pub(super) fn tell_feeds(&self) {
        let mut session = self.session.borrow_mut();
        for (correlation, ask) in session.take_asks() {
            if let Some(subscriber) = self.feeds.borrow().get(&correlation) {
                subscriber.hear(ask);
            }
        }
    }

    /// Whether nobody serves the connection any more.
    pub(super) const fn is_over(&self) -> bool {
        self.over.get()
    }

    /// The connection is over: so are its subscriptions.
    pub(super) fn end_feeds(&self) {
        self.over.set(true);
        self.feeds.take().values().for_each(|subscriber| subscriber.end());
    }

    /// Ends a connection whose client keeps it without using it.
    pub(super) fn housekeep(&self, now: MonoUs) {
        let mut session = self.session.borrow_mut();
        let greeting = !session.is_greeted() && session.flow() != Flow::Close;
        let silent = greeting && now.0 - self.opened.0 > HELLO_MAX_US;
        let unsent = session.answers().unsent_bytes() > 0;
        let stalled = unsent && now.0 - self.progressed.get().0 > STALL_MAX_US;
        drop(session);
        let closing = self.closing.get().is_some_and(|since| now.0 - since.0 > CLOSE_MAX_US);
        if silent || stalled || closing {
            self.shut();
        }
    }

    /// Waits for bytes and hands them on. All connections of a shard share one buffer: it is in
    /// use only between the socket call and the session, with no wait between.
    async fn read(self: &Rc<Self>, shard: &Rc<ShardLoop>) -> io::Result<Flow> {
        poll_fn(|context| {
            let flow = self.session.borrow().flow();
            if flow != Flow::Read || self.dead.get() {
                return Poll::Ready(Ok(flow));
            }
            // The pause may have ended before this reader heard of it: a sweep met it.
            if self.session.borrow().has_kept() {
                return Poll::Ready(Ok(shard.resume(self)));
            }
            if self.hot.get() {
                *self.reader.borrow_mut() = Some(context.waker().clone());
                return Poll::Pending;
            }
            // Not the stream's own read first: it arms a poll after every read that leaves room in
            // the buffer, and an armed poll makes each packet interrupt this core.
            shard.look_at_the_clock();
            match self.receive_now(shard) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome),
            }
            let mut buffer = shard.read_buffer.borrow_mut();
            let polled = {
                let mut stream = self.stream.borrow_mut();
                Pin::new(&mut *stream).poll_read(context, &mut buffer)
            };
            polled.map_ok(|count| self.take(shard, &buffer[..count]))
        })
        .await
    }

    /// One receive that does not wait, its bytes handed on.
    pub(super) fn receive_now(self: &Rc<Self>, shard: &Rc<ShardLoop>) -> io::Result<Flow> {
        self.waited.set(false);
        let mut buffer = shard.read_buffer.borrow_mut();
        let flags = rustix::net::RecvFlags::DONTWAIT;
        let (count, _) = rustix::net::recv(self.descriptor(), &mut buffer[..], flags)?;
        Ok(self.take(shard, &buffer[..count]))
    }

    fn take(self: &Rc<Self>, shard: &Rc<ShardLoop>, bytes: &[u8]) -> Flow {
        if bytes.is_empty() {
            let mut session = self.session.borrow_mut();
            session.end_of_input();
            return session.flow();
        }
        shard.receive(self, bytes)
    }

    /// Leaves the socket to the sweeps, if its requests are sure to be answered by a block.
    pub(super) fn heat(&self) {
        self.hot.set(true);
    }

    /// Whether the sweeps read this connection.
    pub(super) fn is_hot(&self) -> bool {
        self.hot.get()
    }

    /// A sweep found a request.
    pub(super) fn found(&self) {
        self.misses.set(0);
    }

    /// Whether it was hot at this tick and the one before, and no sweep has looked at it between:
    /// it is in the list of a shard that does not sweep, or not in the list at all.
    pub(super) fn waits_long(&self) -> bool {
        let waits = self.hot.get();
        self.waited.replace(waits) && waits
    }

    /// Sweeps in a row that found nothing, this one included.
    pub(super) fn missed(&self) -> u32 {
        self.misses.set(self.misses.get() + 1);
        self.misses.get()
    }

    /// Gives the socket back to its reader.
    pub(super) fn cool(&self) {
        self.misses.set(0);
        self.hot.set(false);
        if let Some(waker) = self.reader.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Whether the session has requests without an answer.
    pub(super) fn has_requests(&self) -> bool {
        self.session.borrow_mut().answers().requests_in_flight() > 0
    }

    /// Reads and forgets; how many bytes.
    async fn discard(&self) -> io::Result<usize> {
        let mut rest = [0; 1024];
        poll_fn(|context| Pin::new(&mut *self.stream.borrow_mut()).poll_read(context, &mut rest))
            .await
    }

    /// Whether the socket has not taken everything.
    pub(super) fn has_unsent(&self) -> bool {
        !self.dead.get() && self.session.borrow_mut().answers().unsent_bytes() > 0
    }

    /// One send before the process ends.
    pub(super) fn send_last(&self) {
        self.send_now(MonoUs(0));
    }

    fn duplicate(&self) -> io::Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(self.descriptor(), 0)?)
    }
}

async fn flush(connection: Rc<Connection>, shard: Rc<ShardLoop>) {
    let mut taken = Vec::new();
    while !connection.dead.get() {
        connection.session.borrow_mut().answers().take_unsent(&mut taken);
        if taken.is_empty() {
            break;
        }
        let mut sent = 0;
        while sent < taken.len() {
            let step = poll_fn(|context| {
                let mut stream = connection.stream.borrow_mut();
                Pin::new(&mut *stream).poll_write(context, &taken[sent..])
            });
            match step.await {
                Ok(count) if count > 0 => {
                    sent += count;
                    connection.progressed.set(shard.now_us());
                    connection.session.borrow_mut().answers().sent(count);
                }
                _ => {
                    connection.shut();
                    break;
                }
            }
        }
        taken.clear();
        connection.changed.ring();
    }
    connection.flushing.set(false);
    connection.changed.ring();
}

/// Serves a connection until it ends.
pub(super) async fn serve(connection: Rc<Connection>, shard: Rc<ShardLoop>) {
    let mut flow = connection.session.borrow().flow();
    if flow == Flow::Read {
        flow = shard.resume(&connection);
    }
    loop {
        flow = match flow {
            _ if connection.dead.get() => return,
            Flow::Read => match connection.read(&shard).await {
                Ok(flow) => flow,
                Err(_) => return,
            },
            Flow::Pause => {
                connection.changed.wait().await;
                let flow = connection.session.borrow().flow();
                match flow {
                    Flow::Read => shard.resume(&connection),
                    other => other,
                }
            }
            Flow::HandOver(target) => match hand_over(&connection, &shard, target) {
                true => return,
                false => shard.resume(&connection),
            },
            Flow::Close => {
                close(&connection, &shard).await;
                return;
            }
        }
    }
}

/// Gives socket and session to another shard's thread; false when this one has to keep them.
fn hand_over(
    connection: &Rc<Connection>,
    shard: &Rc<ShardLoop>,
    target: duolog_engine::ids::ShardId,
) -> bool {
    if target != shard.id()
        && let Ok(socket) = connection.duplicate()
    {
        let settings = shard.session_settings();
        let session = connection.session.replace(Session::new(settings));
        match shard.give_away(target, socket, Box::new(session)) {
            Ok(()) => return true,
            Err(session) => *connection.session.borrow_mut() = *session,
        }
    }
    connection.session.borrow_mut().serve_at(shard.id());
    false
}

/// Sends what is due, then ends the connection so that its last answer is not lost.
async fn close(connection: &Rc<Connection>, shard: &ShardLoop) {
    loop {
        let done = connection.session.borrow().is_done();
        if done || connection.dead.get() {
            break;
        }
        connection.changed.wait().await;
    }
    // An error means that the peer ended it first.
    let _ = rustix::net::shutdown(connection.descriptor(), rustix::net::Shutdown::Write);
    connection.closing.set(Some(shard.now_us()));
    // Until the client closes too; housekeeping ends the wait.
    while matches!(connection.discard().await, Ok(1..)) {}
}
