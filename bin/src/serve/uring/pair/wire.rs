//! A connection to the other node: frames in, frames out.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use duolog_net::peer::PeerReader;
use futures_lite::io::{AsyncRead, AsyncWrite};
use glommio::net::TcpStream;

/// How long a connection may take to come up.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// Data that the other node does not acknowledge for this long ends the connection: about what
/// the heartbeats would notice too, and well above a hiccup.
const USER_TIMEOUT_MS: u32 = 5_000;
/// Bytes that wait for the socket, at most, before a sender has to wait.
const UNSENT_MAX_BYTES: usize = 8 << 20;
/// Bytes that wait for the socket before a sender of blocks pauses by itself.
pub(super) const UNSENT_PAUSE_BYTES: usize = UNSENT_MAX_BYTES / 8;
/// Bytes that are held back at most: a call to the kernel costs as much as copying these.
const HELD_MAX_BYTES: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Wire {
    stream: RefCell<TcpStream>,
    descriptor: i32,
    /// Behind what a flush has taken; without a flush, what is held back.
    unsent: RefCell<Vec<u8>>,
    /// Bytes that a flush has taken and the socket has not.
    taken_bytes: Cell<usize>,
    flushing: Cell<bool>,
    dead: Cell<bool>,
}

impl Wire {
    /// Takes over a socket.
    pub fn new(stream: TcpStream) -> Rc<Self> {
        let descriptor = stream.as_raw_fd();
        let wire = Self {
            stream: RefCell::new(stream),
            descriptor,
            unsent: RefCell::default(),
            taken_bytes: Cell::new(0),
            flushing: Cell::new(false),
            dead: Cell::new(false),
        };
        wire.prepare();
        Rc::new(wire)
    }

    /// Takes over a socket that another thread has given.
    pub fn adopt(socket: OwnedFd) -> Rc<Self> {
        #[expect(unsafe_code, reason = "the runtime takes a socket only as a raw descriptor")]
        // SAFETY: into_raw_fd gives the descriptor away; the new stream is its only owner.
        Self::new(unsafe { TcpStream::from_raw_fd(socket.into_raw_fd()) })
    }

    /// Connects.
    pub async fn dial(address: SocketAddr) -> io::Result<Rc<Self>> {
        let stream = TcpStream::connect_timeout(address, CONNECT_MAX).await;
        stream.map(Self::new).map_err(|error| io::Error::other(error.to_string()))
    }

    #[expect(unsafe_code, reason = "the runtime's stream lends its descriptor as a number only")]
    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: `stream` owns this descriptor, is never replaced and lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.descriptor) }
    }

    /// Without these a connection is slower or notices a dead peer later.
    fn prepare(&self) {
        use rustix::net::sockopt;
        let fd = self.descriptor();
        let set = [
            sockopt::set_tcp_nodelay(fd, true),
            sockopt::set_socket_keepalive(fd, true),
            sockopt::set_tcp_keepidle(fd, Duration::from_secs(2)),
            sockopt::set_tcp_keepintvl(fd, Duration::from_secs(1)),
            sockopt::set_tcp_keepcnt(fd, 3),
            sockopt::set_tcp_user_timeout(fd, USER_TIMEOUT_MS),
        ];
        if let Some(error) = set.into_iter().find_map(Result::err) {
            tracing::debug!(%error, event = "peer_socket_option");
        }
    }

    /// Gives the socket's descriptor to another thread; this one must not be used any more.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(self.descriptor(), 0)?)
    }

    /// Whether it is over.
    pub fn is_dead(&self) -> bool {
        self.dead.get()
    }

    /// Bytes that the socket has not taken.
    pub fn unsent_bytes(&self) -> usize {
        self.unsent.borrow().len() + self.taken_bytes.get()
    }

    /// Sends one message, which `encode` puts into an empty buffer; as [`Wire::send`].
    pub fn say(self: &Rc<Self>, encode: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut frame = Vec::with_capacity(256);
        encode(&mut frame);
        self.send(&[&frame])
    }

    /// Sends these parts, one behind the other, without waiting: what the socket does not take is
    /// kept and sent when it does. False when the connection is over or too much is kept.
    pub fn send(self: &Rc<Self>, parts: &[&[u8]]) -> bool {
        if self.dead.get() {
            return false;
        }
        let mut skip = 0;
        let mut unsent = self.unsent.borrow_mut();
        if !self.flushing.get() {
            let all = std::iter::once(&unsent[..]).chain(parts.iter().copied());
            let slices: Vec<io::IoSlice<'_>> = all.map(io::IoSlice::new).collect();
            let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
            let mut control = rustix::net::SendAncillaryBuffer::default();
            match rustix::net::sendmsg(self.descriptor(), &slices, &mut control, flags) {
                Ok(count) => {
                    let held = count.min(unsent.len());
                    unsent.drain(..held);
                    skip = count - held;
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(_) => {
                    self.shut();
                    return false;
                }
            }
        }
        for part in parts {
            let taken = skip.min(part.len());
            skip -= taken;
            unsent.extend_from_slice(&part[taken..]);
        }
        if unsent.len() + self.taken_bytes.get() > UNSENT_MAX_BYTES {
            drop(unsent);
            self.shut();
            return false;
        }
        if !unsent.is_empty() && !self.flushing.replace(true) {
            glommio::spawn_local(flush(Rc::clone(self))).detach();
        }
        true
    }

    /// Like [`Wire::send`], but what is small may stay here until more has come or
    /// [`Wire::release`] is called. The order is kept, whichever way messages go.
    pub fn hold(self: &Rc<Self>, parts: &[&[u8]]) -> bool {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let mut unsent = self.unsent.borrow_mut();
        if self.dead.get() || self.flushing.get() || unsent.len() + bytes > HELD_MAX_BYTES {
            drop(unsent);
            return self.send(parts);
        }
        parts.iter().for_each(|part| unsent.extend_from_slice(part));
        true
    }

    /// Sends what was held back.
    pub fn release(self: &Rc<Self>) {
        if !self.unsent.borrow().is_empty() {
            self.send(&[]);
        }
    }

    /// Receives more bytes into `reader`; false at the end.
    pub async fn fill(&self, reader: &mut PeerReader) -> bool {
        let received = poll_fn(|context| {
            let mut stream = self.stream.borrow_mut();
            Pin::new(&mut *stream).poll_read(context, reader.space())
        });
        match received.await {
            Ok(count) if count > 0 => {
                reader.filled(count);
                true
            }
            _ => false,
        }
    }

    /// Ends the connection; its reader sees the end of input.
    pub fn shut(&self) {
        self.dead.set(true);
        // An error means that the other node ended it first.
        let _ = rustix::net::shutdown(self.descriptor(), rustix::net::Shutdown::Both);
    }
}

/// What comes of `answer`, if it comes in time.
pub(super) async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Option<T>>,
) -> Option<T> {
    let late = async {
        glommio::timer::sleep(limit).await;
        None
    };
    futures_lite::future::or(answer, late).await
}

async fn flush(wire: Rc<Wire>) {
    // The spawner holds what is unsent.
    futures_lite::future::yield_now().await;
    let mut taken = Vec::new();
    while !wire.dead.get() && !wire.unsent.borrow().is_empty() {
        std::mem::swap(&mut taken, &mut wire.unsent.borrow_mut());
        let mut rest = &taken[..];
        while !rest.is_empty() && !wire.dead.get() {
            wire.taken_bytes.set(rest.len());
            let sent = poll_fn(|context| {
                let mut stream = wire.stream.borrow_mut();
                Pin::new(&mut *stream).poll_write(context, rest)
            });
            match sent.await {
                Ok(count) if count > 0 => rest = &rest[count..],
                _ => wire.shut(),
            }
        }
        wire.taken_bytes.set(0);
        taken.clear();
    }
    wire.flushing.set(false);
}
