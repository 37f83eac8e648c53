//! Proxies on the loopback in place of a network: each node reaches the other node and the store
//! only through one, which can hold back each direction.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duolog_s3dev::{Server, Settings};
use duolog_tests::pair::{Dress, Ground};
use duolog_tests::process::{free_port, pause};

use super::{NODES_MAX, Place};

/// How often a held direction looks whether it may go on.
const LOOK: Duration = Duration::from_millis(2);
/// Bytes copied at once.
const CHUNK_BYTES: usize = 64 << 10;

/// What a proxy holds back.
#[derive(Clone, Debug, Default)]
struct Held {
    /// From the one who connects.
    there: Arc<AtomicBool>,
    /// Back to it.
    back: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Proxy {
    address: SocketAddr,
    held: Held,
}

/// See the module.
#[derive(Debug)]
pub struct Proxies {
    /// In front of each node's port for its peer.
    peers: Vec<Proxy>,
    /// Each node's own in front of the store.
    stores: Vec<Proxy>,
}

fn copy(mut from: &TcpStream, mut to: &TcpStream, held: &AtomicBool) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = from.read(&mut chunk)?;
        while held.load(Ordering::Relaxed) {
            pause(LOOK);
        }
        if count == 0 {
            return to.shutdown(Shutdown::Write);
        }
        to.write_all(&chunk[..count])?;
    }
}

fn join(client: &TcpStream, target: SocketAddr, held: &Held) {
    // Whatever cannot be carried on ends both sides, as a host without a route would.
    if let Ok(server) = TcpStream::connect(target) {
        let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if copy(&server, client, &held.back).is_err() {
                    let _ = server.shutdown(Shutdown::Both);
                    let _ = client.shutdown(Shutdown::Both);
                }
            });
            if copy(client, &server, &held.there).is_err() {
                let _ = server.shutdown(Shutdown::Both);
                let _ = client.shutdown(Shutdown::Both);
            }
        });
    }
}

impl Proxy {
    fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has ports");
        let address = listener.local_addr().expect("it is bound");
        let held = Held::default();
        let carried = held.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let held = carried.clone();
                std::thread::spawn(move || join(&client, target, &held));
            }
        });
        Self { address, held }
    }
}

impl Proxies {
    pub(super) fn new() -> (Self, Ground) {
        let s3 = Server::start(&Settings::default()).expect("the embedded S3 starts");
        let ports: Vec<SocketAddr> = (0..NODES_MAX).map(|_| free_port()).collect();
        let peers: Vec<Proxy> = ports.iter().map(|port| Proxy::before(*port)).collect();
        let stores: Vec<Proxy> = ports.iter().map(|_| Proxy::before(s3.address())).collect();
        let known: Vec<[SocketAddr; 3]> = (0..NODES_MAX)
            .map(|number| [ports[number], peers[number].address, stores[number].address])
            .collect();
        let dress = Dress(Box::new(move |number, options| {
            let [listen, advertise, store] = known[number];
            options
                .flag("listen-peer", &listen.to_string())
                .flag("advertise-peer", &advertise.to_string())
                .flag("s3-endpoint", &format!("http://{store}"))
        }));
        (Self { peers, stores }, Ground { s3, dress })
    }

    /// See [`super::Lab::block`].
    pub(super) fn block(&self, from: Place, to: Place, blocked: bool) {
        let held: Vec<&AtomicBool> = match (from, to) {
            (Place::Node(node), Place::Store) => vec![&self.stores[node].held.there],
            (Place::Store, Place::Node(node)) => vec![&self.stores[node].held.back],
            // Whoever dialled: what the one sends goes there through the other's proxy, and back
            // through its own.
            (Place::Node(from), Place::Node(to)) => {
                vec![&self.peers[to].held.there, &self.peers[from].held.back]
            }
            (Place::Store, Place::Store) => Vec::new(),
        };
        for direction in held {
            direction.store(blocked, Ordering::Relaxed);
        }
    }
}
