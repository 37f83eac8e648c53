//! Clients of the embedded S3.

use std::time::Duration;

use duolog_s3client::bucket::{Addressing, Bucket, Endpoint, PlainHttp};
use duolog_s3client::credentials::{Credentials, Source};
use duolog_s3client::{Client, Settings};
use duolog_s3dev::{DEFAULT_ACCESS_KEY_ID, DEFAULT_SECRET_ACCESS_KEY, Server};

/// A server in memory with the bucket `duolog`.
pub fn server() -> Server {
    Server::start(&duolog_s3dev::Settings::default()).unwrap()
}

/// The usual settings for a server, by path.
pub fn settings(url: &str) -> Settings {
    settings_with(url, DEFAULT_SECRET_ACCESS_KEY, Addressing::Path)
}

pub fn settings_with(url: &str, secret: &str, addressing: Addressing) -> Settings {
    let endpoint = Endpoint::parse(url, PlainHttp::Allowed).unwrap();
    let bucket = Bucket::new("duolog", Some(endpoint), None, Some(addressing)).unwrap();
    let credentials = Credentials::fixed(DEFAULT_ACCESS_KEY_ID, secret, None).unwrap();
    let settings = Settings::new(bucket, Source::Fixed { credentials, origin: "the test" });
    Settings { retry: Some(Duration::from_secs(20)), ..settings }
}

pub fn client(server: &Server) -> Client {
    Client::new(settings(&server.url())).unwrap()
}
