//! `duolog s3-dev`: the embedded S3 in the foreground.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use duolog_s3dev::{
    DEFAULT_ACCESS_KEY_ID, DEFAULT_PORT, DEFAULT_SECRET_ACCESS_KEY, Server, Settings, StartError,
};
use serde_json::json;

use crate::client::block_on;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Examples and rules for `--help`.
pub const HELP: &str = "\
Examples:
  duolog s3-dev                                  in memory, on 127.0.0.1:7403
  duolog s3-dev --dir ./s3 --bucket events       on disk, with the bucket `events`
  duolog s3 probe --s3-endpoint http://127.0.0.1:7403 --s3-allow-http --s3-bucket duolog \\
    --s3-access-key-id duolog-dev --s3-secret-access-key duolog-dev-secret

For development and tests: one process, no replication, no quotas. Signatures are checked,
conditional writes are exact. SIGINT or SIGTERM ends it.";

/// `duolog s3-dev`
#[derive(Args, Debug)]
pub struct DevArgs {
    /// Address and port to listen on; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = default_listen())]
    pub listen: SocketAddr,
    /// Keep the objects in this directory; in memory only without it.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// A bucket that is there from the start. May be repeated.
    #[arg(long, value_name = "NAME", default_value = "duolog")]
    pub bucket: Vec<String>,
    /// Access key id that requests must be signed with.
    #[arg(long, value_name = "TEXT", default_value = DEFAULT_ACCESS_KEY_ID)]
    pub access_key_id: String,
    /// Its secret.
    #[arg(long, value_name = "TEXT", default_value = DEFAULT_SECRET_ACCESS_KEY)]
    pub secret_access_key: String,
    /// Machine-readable output.
    #[arg(long)]
    pub json: bool,
}

fn default_listen() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DEFAULT_PORT)
}

/// Serves until a signal.
pub fn run(arguments: &DevArgs, mut output: Output) -> Result<Exit, Failure> {
    let settings = Settings {
        listen: arguments.listen,
        dir: arguments.dir.clone(),
        access_key_id: arguments.access_key_id.clone(),
        secret_access_key: arguments.secret_access_key.clone(),
        buckets: arguments.bucket.clone(),
    };
    let server = Server::start(&settings).map_err(|error| refuse(&error))?;
    let (url, buckets) = (server.url(), settings.buckets.join(", "));
    if arguments.json {
        output.json(&json!({ "url": url, "buckets": settings.buckets }))?;
    } else {
        let place = match &settings.dir {
            Some(dir) => format!("in {}", dir.display()),
            None => "in memory".to_owned(),
        };
        output.line(&format!("{url}, {place}, buckets: {buckets}"))?;
    }
    output.flush()?;
    block_on(async {
        wait_for_signal().await.map_err(|error| {
            Failure::new(Exit::Internal, format!("cannot wait for signals: {error}"))
        })
    })?;
    drop(server);
    Ok(Exit::Ok)
}

async fn wait_for_signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

fn refuse(error: &StartError) -> Failure {
    let exit = match error {
        StartError::Listen { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
            Exit::PortInUse
        }
        StartError::Listen { .. } => Exit::Usage,
        StartError::Store(_) => Exit::LocalIo,
        StartError::Thread(_) => Exit::Internal,
    };
    Failure::new(exit, error)
}
