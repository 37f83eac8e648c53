//! Commands about the store. Owns the way from settings to a client, and what a failed call means
//! for the exit code.

pub mod dev;
pub mod lease;
pub mod probe;

use std::time::Duration;

use duolog_s3client::bucket::{Addressing, Bucket, BucketError, Endpoint, PlainHttp};
use duolog_s3client::credentials::{Environment, Given, Source};
use duolog_s3client::transport::Trust;
use duolog_s3client::{Client, Error, Remedy, Settings as ClientSettings};
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::settings::s3::S3;

/// How long commands repeat their calls when the settings do not say: a person waits for them.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// A client for the settings, through `endpoint` instead of `s3.endpoint` if there is one.
pub fn client(settings: &S3, endpoint: Option<&str>) -> Result<Client, Failure> {
    let name = settings.bucket.as_deref().ok_or_else(|| {
        let text = "s3.bucket is not set: give --s3-bucket NAME, DUOLOG_S3_BUCKET, \
                    or bucket in the section [s3] of the file of --config";
        Failure::new(Exit::Usage, text)
    })?;
    let given = given(settings);
    let environment = Environment::new(std::env::vars());
    let region = settings.region.clone().or_else(|| environment.region(&given));
    let endpoint = endpoint.or(settings.endpoint.as_deref());
    let bucket = bucket(settings, name, endpoint, region.as_deref());
    let bucket = bucket.map_err(|error| failure(&Error::from(error)))?;
    let source = Source::choose(&given, &environment);
    let source = source.map_err(|error| failure(&Error::from(error)))?;
    let mut client = ClientSettings::new(bucket, source);
    client.retry = settings.retry_max_duration;
    if let (Some(path), Trust::System) = (&settings.ca_file, &client.trust) {
        let pem = std::fs::read(path).map_err(|error| {
            let text = format!("s3.ca_file = {}: {error}", path.display());
            Failure::new(Exit::Usage, text)
        })?;
        client.trust = Trust::Also(pem);
    }
    Client::new(client).map_err(|error| failure(&error))
}

/// Where credentials come from by these settings. Reads files.
pub fn source(settings: &S3) -> Result<Source, Failure> {
    let environment = Environment::new(std::env::vars());
    let source = Source::choose(&given(settings), &environment);
    source.map_err(|error| failure(&Error::from(error)))
}

fn given(settings: &S3) -> Given {
    Given {
        access_key_id: settings.access_key_id.clone(),
        secret_access_key: settings.secret_access_key.clone(),
        session_token: settings.session_token.clone(),
        profile: settings.profile.clone(),
    }
}

fn bucket(
    settings: &S3,
    name: &str,
    endpoint: Option<&str>,
    region: Option<&str>,
) -> Result<Bucket, BucketError> {
    let plain = if settings.allow_http { PlainHttp::Allowed } else { PlainHttp::Refused };
    let endpoint = endpoint.map(|endpoint| Endpoint::parse(endpoint, plain)).transpose()?;
    let addressing = match settings.addressing.as_str() {
        "path" => Some(Addressing::Path),
        "virtual" => Some(Addressing::VirtualHosted),
        _ => None,
    };
    Bucket::new(name, endpoint, region, addressing)
}

/// What a failed call means for a command: the exit code, the text, and for machines the numbers.
#[must_use]
pub fn failure(error: &Error) -> Failure {
    let exit = match error.remedy() {
        Remedy::Retry => Exit::Unreachable,
        Remedy::FixConfig(_) => Exit::Usage,
        Remedy::FixStore | Remedy::FixClock | Remedy::FixRequest => Exit::Refused,
    };
    let refusal = error.refusal();
    let details = json!({
        "remedy": format!("{:?}", error.remedy()),
        "kind": refusal.map(|refusal| format!("{:?}", refusal.kind)),
        "status": refusal.map(|refusal| refusal.status),
        "code": refusal.and_then(|refusal| refusal.code.as_deref()),
        "region": refusal.and_then(|refusal| refusal.region.as_deref()),
    });
    Failure::new(exit, error).with_details(details)
}
