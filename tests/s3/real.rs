//! Where `.ci/s3-real` has started servers.

use std::time::Duration;

use duolog_s3client::bucket::{Bucket, Endpoint, PlainHttp};
use duolog_s3client::credentials::{Credentials, Source};
use duolog_s3client::{Client, Settings};

/// A server with the bucket `duolog`.
pub struct Server {
    pub name: String,
    pub url: String,
    pub key: String,
    pub secret: String,
}

/// All servers. Asked for without any is a failure, not a success with nothing done.
pub fn servers() -> Vec<Server> {
    let read = |name: &str| {
        let missing = || panic!("{name} is not set: run this test by .ci/s3-real");
        std::env::var(name).unwrap_or_else(|_| missing())
    };
    let (key, secret) = (read("S3_TEST_KEY"), read("S3_TEST_SECRET"));
    let list = read("S3_TEST_SERVERS");
    let servers = list.split_whitespace().map(|entry| {
        let (name, url) = entry.split_once('=').expect("NAME=URL");
        let (name, url, key, secret) =
            (name.to_owned(), url.to_owned(), key.clone(), secret.clone());
        Server { name, url, key, secret }
    });
    let servers: Vec<_> = servers.collect();
    assert!(!servers.is_empty(), "S3_TEST_SERVERS names no server");
    servers
}

impl Server {
    pub fn client(&self) -> Client {
        self.client_of("duolog", &self.secret)
    }

    pub fn client_of(&self, bucket: &str, secret: &str) -> Client {
        let endpoint = Endpoint::parse(&self.url, PlainHttp::Allowed).unwrap();
        let bucket = Bucket::new(bucket, Some(endpoint), None, None).unwrap();
        let credentials = Credentials::fixed(&self.key, secret, None).unwrap();
        let settings = Settings::new(bucket, Source::Fixed { credentials, origin: "the test" });
        Client::new(Settings { retry: Some(Duration::from_secs(30)), ..settings }).unwrap()
    }
}
