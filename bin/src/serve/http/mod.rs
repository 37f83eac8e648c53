//! HTTP: probes for supervisors, the API for applications.
//!
//! A thread of its own with a runtime of its own, called `http`: the thread that renews the lease
//! must not wait behind a request's JSON, and probes must answer before the shards run. It starts
//! when the data directory is locked and ends after the shards.

mod accept;
mod access;
mod api;
mod limits;
mod page;
mod probes;
mod problem;
mod pulse;
mod router;
mod scrape;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use duolog_net::limits::frame_body_max_bytes;
use tokio::sync::oneshot;

use super::inbox::Inbox;
use super::life::Life;
use crate::exit::{Exit, Failure};
use crate::probe::port::{Port, PortError};
use crate::settings::Settings;
use crate::settings::listen::Listen;
use access::Access;
use api::{Cluster, Native, Room};
use pulse::Pulse;

/// What every request can see.
#[derive(Debug)]
pub struct Site {
    /// Where the process stands.
    pub life: Arc<Life>,
    /// The shards.
    pub inboxes: Arc<[Arc<Inbox>]>,
    /// Whether the node is one of a pair.
    pub pair: bool,
    /// Whether the shards run.
    pub pulse: Pulse,
    /// Who may ask.
    pub access: Access,
    /// The way to the shards.
    pub native: Native,
    /// Room for requests' bodies.
    pub room: Room,
    /// What both nodes said last.
    pub cluster: Cluster,
}

/// The running server.
#[derive(Debug)]
pub struct Server {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Server {
    /// Lets requests in flight finish, for a bounded time, and ends.
    pub fn stop(self) {
        // The thread ends by this alone.
        let _ = self.stop.send(());
        if self.thread.join().is_err() {
            tracing::error!(event = "http_ended", "the thread has panicked");
        }
    }
}

/// Starts the server, if one is wanted.
pub fn start(
    settings: &Settings,
    life: &Arc<Life>,
    inboxes: &Arc<[Arc<Inbox>]>,
) -> Result<Option<Server>, Failure> {
    let Some(address) = settings.listen.http else { return Ok(None) };
    let internal = |error: std::io::Error| {
        Failure::new(Exit::Internal, format!("the HTTP server cannot start: {error}"))
    };
    let origin = settings.origin("listen.http");
    let listener = TcpListener::bind(address).map_err(|error| {
        let error =
            PortError::of(&error, Port { address, setting: "listen.http", origin: &origin });
        Failure::new(error.exit(), error)
    })?;
    listener.set_nonblocking(true).map_err(internal)?;
    let address = listener.local_addr().map_err(internal)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(internal)?;
    let site = Arc::new(Site {
        life: Arc::clone(life),
        inboxes: Arc::clone(inboxes),
        pair: !settings.standalone,
        pulse: Pulse::new(inboxes.len()),
        access: Access::new(&settings.listen),
        native: Native::default(),
        room: Room::new(body_max_bytes(settings.limits.event_max_bytes)),
        cluster: Cluster::default(),
    });
    inboxes[0].node.tell_http(advertised(&settings.listen, address));
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::Builder::new().name("http".to_owned());
    let thread = thread
        .spawn(move || {
            runtime.block_on(async {
                tokio::spawn(pulse::watch(Arc::clone(&site)));
                accept::run(listener, site, stopped).await;
            });
        })
        .map_err(internal)?;
    tracing::info!(event = "http", %address, token = settings.listen.token.is_some());
    if let Some(exposure) = settings.listen.exposure() {
        tracing::warn!(event = "http_exposed", remedy = Listen::EXPOSURE_REMEDY, "{exposure}");
    }
    Ok(Some(Server { stop, thread }))
}

/// Where others reach the server.
fn advertised(listen: &Listen, bound: SocketAddr) -> String {
    listen.advertise_http.clone().unwrap_or_else(|| bound.to_string())
}

/// The longest body: the largest append, with every byte of it written as base64 or as JSON that
/// escapes some of them.
const fn body_max_bytes(event_max_bytes: usize) -> usize {
    2 * frame_body_max_bytes(event_max_bytes)
}
