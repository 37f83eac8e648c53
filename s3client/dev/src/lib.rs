//! An S3 server for development and tests.
//!
//! The protocol (parsing, signatures, checksums, XML) is the crate s3s's; this crate owns the
//! backend, whose conditional writes are exact, and the faults that a test can order: [`Faults`].
//!
//! Promise: a PUT is read to its end first; then its condition is judged and the object is
//! replaced under one lock. Nothing else happens to an object.

mod backend;
mod clock;
mod faults;
mod serve;
mod store;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

pub use faults::{Answer, ETagRewrite, Fault, Faults, Lie, Rule, Seen};
pub use store::{StoreError, Stored};

use crate::store::Store;

/// Where `duolog s3-dev` listens unless told otherwise.
pub const DEFAULT_PORT: u16 = 7403;
/// The access key id of a server that was given none.
pub const DEFAULT_ACCESS_KEY_ID: &str = "duolog-dev";
/// The secret access key of a server that was given none. Everybody knows it: loopback only.
pub const DEFAULT_SECRET_ACCESS_KEY: &str = "duolog-dev-secret";

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address to listen on; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Keeps objects in this directory; in memory only without one.
    pub dir: Option<PathBuf>,
    /// Whose signatures are accepted.
    pub access_key_id: String,
    /// Its secret.
    pub secret_access_key: String,
    /// Buckets that are there from the start.
    pub buckets: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            dir: None,
            access_key_id: DEFAULT_ACCESS_KEY_ID.to_owned(),
            secret_access_key: DEFAULT_SECRET_ACCESS_KEY.to_owned(),
            buckets: vec!["duolog".to_owned()],
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address.
    #[error("cannot listen on {listen}: {source}")]
    Listen {
        /// As given.
        listen: SocketAddr,
        /// The system's words.
        source: io::Error,
    },
    /// The directory.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The thread or its runtime.
    #[error("cannot start the server's thread: {0}")]
    Thread(io::Error),
}

/// A running server, on a thread of its own. Dropping it ends it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    faults: Faults,
    store: Arc<Store>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Listens, then returns.
    pub fn start(settings: &Settings) -> Result<Self, StartError> {
        let store = Arc::new(Store::open(settings.dir.clone(), &settings.buckets)?);
        let faults = Faults::default();
        let service = serve::Service::new(Arc::clone(&store), faults.clone(), settings);
        let listen = |source| StartError::Listen { listen: settings.listen, source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(StartError::Thread)?;
        let listener = std::net::TcpListener::bind(settings.listen).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::Builder::new().name("s3-dev".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve::run(listener, address, service) => {}
                    _ = stopped => {}
                }
            });
        });
        let thread = Some(thread.map_err(StartError::Thread)?);
        Ok(Self { address, faults, store, stop: Some(stop), thread })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://address`
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What is to go wrong.
    #[must_use]
    pub const fn faults(&self) -> &Faults {
        &self.faults
    }

    /// An object as it is now, without a request.
    #[must_use]
    pub fn object(&self, bucket: &str, key: &str) -> Option<Stored> {
        self.store.get(bucket, key).ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
