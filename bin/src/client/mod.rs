//! Commands that talk to a server. Owns the connection's arguments, the runtime they run on, and
//! what a failed call means for the exit code.

pub mod append;
pub mod export;
pub mod handoff;
pub mod import;
#[cfg(test)]
mod memory_server;
pub mod node;
pub mod question;
pub mod read;
pub mod status;
pub mod subscribe;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::time::Duration;

use clap::Args;
use duolog_engine::ids::ShardId;
use duolog_engine::record::EventRecord;
use duolog_engine::route::shard_of;
use duolog_net::client::{Client, Error, RecordedEvent};
use serde_json::json;

use crate::exit::{Exit, Failure};

/// Where the server is and how long to wait for it.
#[derive(Args, Clone, Debug)]
pub struct ServerArgs {
    /// Address of the server; both nodes of a pair separated by a comma.
    #[arg(long, env = "DUOLOG_ADDR", default_value = "127.0.0.1:7400", value_name = "HOST:PORT")]
    pub addr: String,
    /// How long one call may take, retries included, in milliseconds.
    #[arg(long, default_value_t = 5000, value_name = "MS")]
    pub deadline_ms: u64,
}

impl ServerArgs {
    /// The addresses, one by one.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let named = self.addr.split(',').map(str::trim).filter(|address| !address.is_empty());
        named.map(str::to_owned).collect()
    }

    /// Connects to the node that leads; if none does, to one that answers.
    pub async fn connect(&self) -> Result<Client, Failure> {
        let builder = Client::builder().addresses(&self.addr);
        let client = builder.deadline(Duration::from_millis(self.deadline_ms)).connect().await;
        client.map_err(|error| failure(&error))
    }
}

/// Runs a command's future to its end on this thread.
pub fn block_on<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Failure::new(Exit::Internal, format!("cannot start the runtime: {error}"))
    })?;
    runtime.block_on(command)
}

/// What a failed call means for a command: the exit code, the text, and for machines the numbers.
#[must_use]
pub fn failure(error: &Error) -> Failure {
    let exit = match error {
        Error::Connect { .. } | Error::Deadline { .. } | Error::Protocol { .. } => {
            Exit::Unreachable
        }
        Error::Unknown { .. } | Error::CommandUnknown { .. } => Exit::Unknown,
        Error::Damaged { .. } => Exit::LogDamaged,
        _ => Exit::Refused,
    };
    let details = match error {
        Error::Conflict { stream, actual, .. } => {
            let actual = actual.map(duolog_engine::ids::Revision::get);
            json!({ "kind": "Conflict", "stream": stream, "actual_revision": actual })
        }
        Error::Fenced { stream, given, highest } => {
            json!({ "kind": "Fenced", "stream": stream, "given": given, "highest": highest })
        }
        Error::Busy { retry_after, .. } => {
            json!({ "kind": "Busy", "retry_after_ms": retry_after.as_millis() as u64 })
        }
        Error::Unknown { idempotency_key, .. } => {
            json!({ "kind": "Unknown", "idempotency_key": idempotency_key })
        }
        Error::TooLarge { size, limit, .. } => {
            json!({ "kind": "TooLarge", "size": size, "limit": limit })
        }
        Error::Damaged { first, last, .. } => {
            json!({ "kind": "Damaged", "first_lsn": first.get(), "last_lsn": last.get() })
        }
        other => {
            let variant = format!("{other:?}");
            let kind: String = variant.chars().take_while(char::is_ascii_alphanumeric).collect();
            json!({ "kind": kind })
        }
    };
    Failure::new(exit, error).with_details(details)
}

/// The shard that `stream` lives in, on the cluster that `client` talks to.
fn shard_of_stream(client: &Client, stream: &str) -> ShardId {
    shard_of(stream.as_bytes(), client.server().shard_count.max(1))
}

/// The event as the printers take it.
fn record(event: &RecordedEvent) -> EventRecord<'_> {
    EventRecord {
        lsn: event.lsn,
        revision: event.revision,
        hlc: event.hlc,
        id: event.id.as_u128(),
        stream: &event.stream,
        kind: &event.kind,
        metadata: &event.metadata,
        data: &event.data,
    }
}

#[cfg(test)]
mod failures {
    use super::*;
    use duolog_net::client::{Expect, Revision};

    #[test]
    fn refused_unknown_and_unreachable_are_never_mixed_up() {
        let text = String::new;
        let conflict = Error::Conflict {
            stream: "s".to_owned(),
            expected: Expect::NoStream,
            actual: Some(Revision(4)),
        };
        let failed = failure(&conflict);
        assert_eq!(failed.exit, Exit::Refused);
        assert_eq!(failed.details["kind"], "Conflict");
        assert_eq!(failed.details["actual_revision"], 4);
        let unknown = Error::Unknown { idempotency_key: None, text: text() };
        assert_eq!(failure(&unknown).exit, Exit::Unknown);
        let connect = Error::Connect { addresses: text(), text: text() };
        assert_eq!(failure(&connect).exit, Exit::Unreachable);
        let full = failure(&Error::DiskFull { text: text() });
        assert_eq!((full.exit, full.details["kind"].as_str()), (Exit::Refused, Some("DiskFull")));
    }
}
