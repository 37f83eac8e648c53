//! Connections: accepted up to a limit, each served by HTTP/1.1 until it ends or the node does.

use std::net::TcpListener as StdListener;
use std::sync::Arc;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::limits::{
    ACCEPT_RETRY, CONNECTIONS_MAX, HEAD_MAX, HEAD_MAX_BYTES, LAST_ANSWERS, PROBE_CONNECTIONS_MAX,
};
use super::{Site, router};

/// Serves until `stopped`.
pub(super) async fn run(listener: StdListener, site: Arc<Site>, stopped: oneshot::Receiver<()>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, event = "http_ended"),
    };
    let graceful = GracefulShutdown::new();
    tokio::select! {
        () = accept(&listener, &site, &graceful) => {}
        _ = stopped => {}
    }
    drop(listener);
    // Whoever has not read its answer by then does not get it.
    let _ = tokio::time::timeout(LAST_ANSWERS, graceful.shutdown()).await;
}

async fn accept(listener: &TcpListener, site: &Arc<Site>, graceful: &GracefulShutdown) {
    let (whole, probes) = (router::whole(site), router::probes_only(site));
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX + PROBE_CONNECTIONS_MAX));
    loop {
        // Never closed: the wait ends with a place.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((socket, _)) => {
                let crowded = places.available_permits() < PROBE_CONNECTIONS_MAX;
                let router = if crowded { probes.clone() } else { whole.clone() };
                serve(socket, router, place, graceful);
            }
            Err(error) => {
                tracing::warn!(%error, event = "http_accept_failed");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

fn serve(
    socket: TcpStream,
    router: Router,
    place: OwnedSemaphorePermit,
    graceful: &GracefulShutdown,
) {
    // Without it answers are only slower.
    let _ = socket.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .max_buf_size(HEAD_MAX_BYTES)
        .serve_connection(TokioIo::new(socket), TowerToHyperService::new(router));
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, event = "http_connection_ended");
        }
        drop(place);
    });
}
