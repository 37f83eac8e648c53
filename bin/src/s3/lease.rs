//! `duolog lease show`: what stands in the lease object, and what its times mean. Reads only.

use clap::{Args, Subcommand};
use duolog_lease::document::Document;
use duolog_lease::ids::ClusterId;
use duolog_s3client::witness::Skew;
use duolog_s3client::{Client, Error, Object};
use serde_json::{Value, json};

use crate::client::block_on;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::s3::{PATIENCE, client, failure};
use crate::serve::clock::Clock;
use crate::serve::cluster::objects::{Keys, id_in_lease};
use crate::settings::Settings;
use crate::settings::flags::SettingFlags;
use crate::timestamp::rfc3339;

/// Examples and rules for `--help`.
pub const HELP: &str = "\
Examples:
  duolog lease show --s3-bucket events --s3-region eu-central-1
  duolog lease show --config /etc/duolog.toml --json

Times are told by this machine's clock. A lease object that has expired is usual: while the
follower acks heartbeats they carry the lease, and nobody writes the object. Exit code 0 if there
is a lease, expired or not; 1 if there is none or it cannot be read; 2 to 4 if the bucket could
not be used.";

/// `duolog lease`
#[derive(Debug, Subcommand)]
pub enum LeaseCommand {
    /// Show who leads, since when, and who has everything that was acknowledged.
    #[command(after_help = HELP)]
    Show(Box<ShowArgs>),
}

/// `duolog lease show`
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// Machine-readable output.
    #[arg(long)]
    pub json: bool,
    /// Settings.
    #[command(flatten)]
    pub settings: SettingFlags,
}

/// A lease and the circumstances of reading it.
struct Shown {
    document: Document,
    etag: String,
    /// Bucket and key.
    place: String,
    endpoint: String,
    now_ms: u64,
    skew: Option<Skew>,
}

/// Reads the lease and prints it.
pub fn run(arguments: &ShowArgs, settings: &Settings, mut output: Output) -> Result<Exit, Failure> {
    let mut s3 = settings.s3.clone();
    s3.retry_max_duration = s3.retry_max_duration.or(Some(PATIENCE));
    let client = client(&s3, None)?;
    let keys = Keys::new(&s3.subfolder).map_err(|error| failure(&Error::from(error)))?;
    let key = keys.lease();
    let object = block_on(async { client.get(&key).await.map_err(|error| failure(&error)) })?;
    let place = format!("{}/{key}", client.bucket().name());
    let shown = Shown::new(object, place, &client)?;
    if arguments.json {
        output.json(&shown.json())?;
    } else {
        output.text(&shown.text())?;
    }
    output.flush()?;
    Ok(Exit::Ok)
}

impl Shown {
    fn new(object: Option<Object>, place: String, client: &Client) -> Result<Self, Failure> {
        let endpoint = client.bucket().endpoint().to_string();
        let object = object.ok_or_else(|| {
            let text = format!(
                "there is no lease at {place} ({endpoint}): no cluster has started there yet; \
                 compare s3.bucket, s3.subfolder and s3.endpoint with those of the nodes"
            );
            Failure::new(Exit::CheckFailed, text)
        })?;
        // A person asks about the lease that is there, whichever cluster's it is.
        let cluster = ClusterId(id_in_lease(&object.body, "cluster").unwrap_or(0));
        let document = Document::decode(&object.body, cluster)
            .map_err(|error| Failure::new(Exit::CheckFailed, format!("{place}: {error}")))?;
        Ok(Self {
            document,
            etag: object.etag.to_string(),
            place,
            endpoint,
            now_ms: Clock.now().wall.get(),
            skew: client.observed().skew,
        })
    }

    /// Milliseconds until it expires; negative when it has.
    fn left_ms(&self) -> i64 {
        let until = i64::try_from(self.document.expires.get()).unwrap_or(i64::MAX);
        until.saturating_sub(i64::try_from(self.now_ms).unwrap_or(i64::MAX))
    }

    fn age_ms(&self) -> u64 {
        self.now_ms.saturating_sub(self.document.acquired.get())
    }

    fn in_sync(&self) -> Vec<String> {
        self.document.in_sync.members().map(|node| node.to_string()).collect()
    }

    fn text(&self) -> String {
        let Document { cluster, leader, epoch, acquired, expires, .. } = &self.document;
        let left_ms = self.left_ms();
        let far = span(left_ms.unsigned_abs());
        let expiry = match left_ms > 0 {
            true => format!("in {far}"),
            false => format!(
                "{far} ago: usual while the follower acks heartbeats, which carry the lease then"
            ),
        };
        let mut lines = vec![
            ("leader", leader.to_string()),
            ("epoch", epoch.to_string()),
            ("in sync", self.in_sync().join(", ")),
            ("written", format!("{}, {} ago", rfc3339(acquired.get()), span(self.age_ms()))),
            ("expires", format!("{}, {expiry}", rfc3339(expires.get()))),
            ("cluster", cluster.to_string()),
            ("object", format!("{} at {}, version {}", self.place, self.endpoint, self.etag)),
        ];
        if let Some(skew) = self.skew {
            let (least, most) = (skew.least_ms, skew.most_ms);
            let text = format!("the store's is {least} to {most} ms ahead of this machine's");
            lines.push(("clock", text));
        }
        if self.skew.is_some_and(Skew::is_alarming) {
            let text = "this machine's clock is wrong, and so are the ages above: check NTP";
            lines.push(("warning", text.to_owned()));
        }
        lines.into_iter().map(|(name, text)| format!("{name:<8}  {text}\n")).collect()
    }

    fn json(&self) -> Value {
        let document = &self.document;
        json!({
            "leader": document.leader.to_string(),
            "lease_epoch": document.epoch.get(),
            "in_sync": self.in_sync(),
            "acquired_unix_ms": document.acquired.get(),
            "expires_unix_ms": document.expires.get(),
            "age_ms": self.age_ms(),
            "expires_in_ms": self.left_ms(),
            "expired": self.left_ms() <= 0,
            "cluster": document.cluster.to_string(),
            "token": document.token.to_string(),
            "object": self.place,
            "endpoint": self.endpoint,
            "etag": self.etag,
            "skew": self.skew.map(|skew| json!({
                "least_ms": skew.least_ms,
                "most_ms": skew.most_ms,
                "alarming": skew.is_alarming(),
            })),
        })
    }
}

/// A length of time in its two largest units.
fn span(ms: u64) -> String {
    const SECOND: u64 = 1000;
    const MINUTE: u64 = 60 * SECOND;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    match ms {
        0..MINUTE => format!("{}.{} s", ms / SECOND, ms % SECOND / 100),
        MINUTE..HOUR => format!("{} min {} s", ms / MINUTE, ms % MINUTE / SECOND),
        HOUR..DAY => format!("{} h {} min", ms / HOUR, ms % HOUR / MINUTE),
        _ => format!("{} d {} h", ms / DAY, ms % DAY / HOUR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_told_in_their_two_largest_units() {
        for (ms, text) in [
            (0, "0.0 s"),
            (59_999, "59.9 s"),
            (60_000, "1 min 0 s"),
            (3_661_000, "1 h 1 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(span(ms), text);
        }
    }
}
