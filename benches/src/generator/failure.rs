//! Why a run gave no result.

use std::io;

use super::settings::SettingsError;

/// Why a run gave no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Settings out of range.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Connections could not be opened, or the system refused something.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// A generator thread could not be started.
    #[error("cannot start a generator thread: {0}")]
    Thread(io::Error),
}

/// Why a run could not begin.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The system refused a descriptor, a timer or the like.
    #[error("the load generator cannot run: {0} (open files: check `ulimit -n`)")]
    System(#[from] io::Error),
    /// No connection.
    #[error("cannot connect to {addr}: {reason}")]
    Connect {
        /// The server.
        addr: std::net::SocketAddr,
        /// Why.
        reason: String,
    },
    /// Connections did not open in time.
    #[error(
        "{opened} of {wanted} connections are ready, and the server was silent for {after_s} s"
    )]
    OpenTimeout {
        /// How many were open.
        opened: usize,
        /// How many this thread should have opened.
        wanted: usize,
        /// The limit.
        after_s: u64,
    },
    /// The run was called off.
    #[error("stopped before the load began")]
    Stopped,
}
