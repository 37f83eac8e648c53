//! One client's connection to the skeleton: the socket, the bytes that have arrived and are not
//! cut into frames yet, the bytes on their way out.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use futures_lite::io::{AsyncRead, AsyncWrite};
use glommio::net::TcpStream;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

/// First size of the receive buffer, bytes.
const RECEIVE_BYTES: usize = 16 << 10;
/// A client that leaves this much unread is cut off, bytes.
const UNSENT_MAX_BYTES: usize = 16 << 20;

/// See the module's text.
#[derive(Debug)]
pub struct Connection {
    stream: RefCell<TcpStream>,
    raw: RawFd,
    /// What has arrived.
    pub received: RefCell<Received>,
    /// What is to be sent.
    pub unsent: RefCell<Vec<u8>>,
    /// A flush task owns the rest of `unsent`.
    flushing: Cell<bool>,
    closed: Cell<bool>,
    /// Hot: the reader task leaves the socket to the committer's sweeps, so that no poll is armed
    /// on it and an arriving request costs its sender no interrupt of this core.
    hot: Cell<bool>,
    /// Sweeps in a row that found nothing.
    pub misses: Cell<u32>,
    /// The connection is in the committer's list of those to send to.
    pub touched: Cell<bool>,
    reader: RefCell<Option<Waker>>,
}

/// A receive buffer: bytes `start..end` are not yet cut into frames.
#[derive(Debug)]
pub struct Received {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Received {
    /// The bytes that wait to be cut.
    #[must_use]
    pub fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The first `count` waiting bytes are done with.
    pub fn consume(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "only bytes that have arrived are consumed");
    }

    fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.bytes.len() && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.bytes.len() {
            // The owner refuses frames over its limit as soon as their header is here.
            let doubled = self.bytes.len() * 2;
            self.bytes.resize(doubled, 0);
        }
        &mut self.bytes[self.end..]
    }
}

impl Connection {
    /// Takes over an accepted socket.
    #[must_use]
    pub fn new(stream: TcpStream) -> Rc<Self> {
        let raw = stream.as_raw_fd();
        let bytes = vec![0; RECEIVE_BYTES];
        Rc::new(Self {
            stream: RefCell::new(stream),
            raw,
            received: RefCell::new(Received { bytes, start: 0, end: 0 }),
            unsent: RefCell::new(Vec::with_capacity(512)),
            flushing: Cell::new(false),
            closed: Cell::new(false),
            hot: Cell::new(false),
            misses: Cell::new(0),
            touched: Cell::new(false),
            reader: RefCell::new(None),
        })
    }

    #[expect(unsafe_code, reason = "the runtime's stream lends its descriptor as a number only")]
    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: `stream` owns this descriptor and lives as long as `self`; it is never replaced.
        unsafe { BorrowedFd::borrow_raw(self.raw) }
    }

    /// Ends the connection: its reader sees the end of the stream.
    pub fn close(&self) {
        if !self.closed.replace(true) {
            // It may be shut down already; nothing is lost then.
            let _ = rustix::net::shutdown(self.descriptor(), Shutdown::Both);
        }
    }

    /// Whether the reader has left the socket to the sweeps.
    #[must_use]
    pub fn is_hot(&self) -> bool {
        self.hot.get()
    }

    /// The reader leaves the socket to the sweeps.
    pub fn heat(&self) {
        self.hot.set(true);
    }

    /// The reader takes the socket back.
    pub fn cool(&self) {
        self.misses.set(0);
        self.hot.set(false);
        if let Some(waker) = self.reader.borrow_mut().take() {
            waker.wake();
        }
    }

    /// One receive that does not wait.
    pub fn receive_now(&self) -> io::Result<usize> {
        let mut received = self.received.borrow_mut();
        let (count, _) =
            rustix::net::recv(self.descriptor(), received.space(), RecvFlags::DONTWAIT)?;
        received.end += count;
        Ok(count)
    }

    /// Receives, waiting for readiness, unless the connection is hot. 0 is the end of the stream.
    pub fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.closed.get() {
            return Poll::Ready(Ok(0));
        }
        if self.hot.get() {
            *self.reader.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        // Not the stream's own read first: it arms a poll after every read that leaves room in the
        // buffer, and an armed poll makes every arriving packet interrupt this core.
        match self.receive_now() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            outcome => return Poll::Ready(outcome),
        }
        let mut received = self.received.borrow_mut();
        let mut stream = self.stream.borrow_mut();
        let poll = Pin::new(&mut *stream).poll_read(cx, received.space());
        if let Poll::Ready(Ok(count)) = &poll {
            received.end += count;
        }
        poll
    }

    /// Sends what is due with one call that does not wait; the rest goes to a task that waits for
    /// the socket.
    pub fn send(self: &Rc<Self>) {
        if self.unsent.borrow().len() > UNSENT_MAX_BYTES {
            self.close();
        }
        if self.closed.get() || self.flushing.get() || self.unsent.borrow().is_empty() {
            return;
        }
        match self.send_now() {
            Ok(true) => {}
            Ok(false) => {
                self.flushing.set(true);
                glommio::spawn_local(flush(Rc::clone(self))).detach();
            }
            Err(_) => self.close(),
        }
    }

    /// True when everything went out.
    fn send_now(&self) -> io::Result<bool> {
        let mut unsent = self.unsent.borrow_mut();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = match rustix::net::send(self.descriptor(), &unsent, flags) {
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
                Err(_) => return connection.close(),
            }
        }
    }
    connection.flushing.set(false);
}
