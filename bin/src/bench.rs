//! `duolog bench`: runs the load generator and prints what it found. Owns the embedded store that
//! `bench pair` needs.

use std::time::Duration;

use bytes::Bytes;
use duolog_benches::BenchCommand;
use duolog_benches::generator::clock::Clock;
use duolog_benches::pair::Store;
use duolog_s3client::Client;
use duolog_s3client::bucket::{Addressing, Bucket, Endpoint, PlainHttp};
use duolog_s3client::credentials::{Credentials, Source};
use duolog_s3client::key::ObjectKey;
use duolog_s3dev::{
    DEFAULT_ACCESS_KEY_ID, DEFAULT_SECRET_ACCESS_KEY, Fault, Rule, Server, Settings,
};

use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::version::PROGRAM;

/// The bucket of the embedded store.
const BUCKET: &str = "duolog";
/// The scratch object of round trips.
const SCRATCH: &str = "bench/round-trip";

/// Runs `command`.
pub fn run(command: &BenchCommand, mut output: Output) -> Result<Exit, Failure> {
    let outcome = duolog_benches::run(command, PROGRAM, Embedded::start).map_err(|error| {
        let exit = match &error {
            error if error.is_usage() => Exit::Usage,
            error if error.is_unreachable() => Exit::Unreachable,
            _ => Exit::LocalIo,
        };
        Failure::new(exit, error.to_string())
    })?;
    output.text(&outcome.text)?;
    output.flush()?;
    Ok(if outcome.passed { Exit::Ok } else { Exit::CheckFailed })
}

/// The embedded store with a client of its own.
#[derive(Debug)]
struct Embedded {
    server: Server,
    client: Client,
    runtime: tokio::runtime::Runtime,
}

impl Embedded {
    fn start(delay: Duration) -> Result<Self, String> {
        let settings = Settings { buckets: vec![BUCKET.to_owned()], ..Settings::default() };
        let server = Server::start(&settings).map_err(|error| error.to_string())?;
        if !delay.is_zero() {
            server.faults().order(Rule::always(Fault::Delay(delay)));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let client = client(&server.url())?;
        Ok(Self { server, client, runtime })
    }
}

fn client(url: &str) -> Result<Client, String> {
    let endpoint = Endpoint::parse(url, PlainHttp::Allowed).map_err(|error| error.to_string())?;
    let bucket = Bucket::new(BUCKET, Some(endpoint), None, Some(Addressing::Path))
        .map_err(|error| error.to_string())?;
    let credentials = Credentials::fixed(DEFAULT_ACCESS_KEY_ID, DEFAULT_SECRET_ACCESS_KEY, None)
        .map_err(|error| error.to_string())?;
    let source = Source::Fixed { credentials, origin: "the embedded store" };
    let settings = duolog_s3client::Settings::new(bucket, source);
    Client::new(settings).map_err(|error| error.to_string())
}

impl Store for Embedded {
    fn serve_arguments(&self) -> Vec<String> {
        let url = self.server.url();
        // Everybody knows this secret: it may be seen on a command line.
        let arguments = [
            ["--s3-endpoint", &url],
            ["--s3-bucket", BUCKET],
            ["--s3-access-key-id", DEFAULT_ACCESS_KEY_ID],
            ["--s3-secret-access-key", DEFAULT_SECRET_ACCESS_KEY],
        ];
        let allow = ["--s3-allow-http"].into_iter();
        allow.chain(arguments.into_iter().flatten()).map(str::to_owned).collect()
    }

    fn take_requests(&mut self) -> Vec<String> {
        let seen = self.server.faults().take_seen();
        seen.into_iter().map(|seen| format!("{} {}", seen.method, seen.target)).collect()
    }

    fn round_trip(&mut self) -> Result<Duration, String> {
        let key = ObjectKey::new(SCRATCH).map_err(|error| error.to_string())?;
        let put = |text: &'static [u8]| self.client.put(&key, Bytes::from_static(text));
        let replaced = self.runtime.block_on(async {
            // Connects, if it has to: the nodes keep their connections.
            let etag = put(b"first").await?;
            let clock = Clock::start();
            self.client.once().put_if_match(&key, Bytes::from_static(b"second"), &etag).await?;
            Ok::<_, duolog_s3client::Error>(Duration::from_nanos(clock.now_ns()))
        });
        replaced.map_err(|error| error.to_string())
    }
}
