//! One listening socket per shard on the same port; the kernel spreads connections over them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::rc::Rc;
use std::time::Duration;

use duolog_net::session::Session;
use glommio::net::{TcpListener, TcpStream};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::connection::{self, Connection};
use super::shard_loop::ShardLoop;

/// Connections the kernel holds for a shard that has not accepted them yet.
const BACKLOG: i32 = 4096;
/// Pause after an accept that failed for want of descriptors or memory.
const RETRY: Duration = Duration::from_millis(50);

/// Opens this shard's listening socket.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    open(address, true)
}

/// Opens a listening socket that is no other process's and no other shard's.
pub(super) fn listen_alone(address: SocketAddr) -> io::Result<TcpListener> {
    open(address, false)
}

fn open(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, shared)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    #[expect(unsafe_code, reason = "the runtime takes a socket only as a raw descriptor")]
    // SAFETY: into_raw_fd gives the descriptor away; the listener is its only owner.
    Ok(unsafe { TcpListener::from_raw_fd(socket.into_raw_fd()) })
}

/// Accepts until the node stops.
pub(super) async fn run(shard: Rc<ShardLoop>, listener: TcpListener) {
    while !shard.stopping.get() {
        match listener.accept().await {
            Ok(stream) => {
                // Without it the connection is only slower.
                let _ = stream.set_nodelay(true);
                shard.metrics().accepted.add(1);
                let session = Session::new(shard.session_settings());
                take(&shard, stream, session);
            }
            Err(error) => {
                tracing::warn!(%error, event = "accept_failed");
                glommio::timer::sleep(RETRY).await;
            }
        }
    }
}

/// Serves a connection in a task of its own.
pub(super) fn take(shard: &Rc<ShardLoop>, stream: TcpStream, session: Session) {
    let mut session = session;
    shard.introduce(&mut session);
    let connection = Connection::new(stream, session, shard.now_us());
    let slot = shard.connections.borrow_mut().insert(Rc::clone(&connection));
    shard.count_connections();
    let shard = Rc::clone(shard);
    glommio::spawn_local(async move {
        connection::serve(Rc::clone(&connection), Rc::clone(&shard)).await;
        connection.end_feeds();
        shard.connections.borrow_mut().remove(slot);
        shard.count_connections();
    })
    .detach();
}
