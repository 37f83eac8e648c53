//! Before the shards start: which cluster this node belongs to, and whether the bucket's store can
//! hold a lease.
//!
//! A node that knows both from an earlier start needs no bucket here: it may be needed as a
//! follower while the bucket is away (M4).

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use duolog_engine::ids::ClusterId;
use duolog_s3client::conformance::{self, Plan, Verdict};
use duolog_s3client::etag::IfMatchForm;
use duolog_s3client::{Client, Remedy};
use serde::{Deserialize, Serialize};

use super::objects::{Keys, NodeDocument, id_in_lease};
use crate::datadir::{self, DataDirError, Identity};
use crate::exit::{Exit, Failure};
use crate::s3;
use crate::settings::Settings;

/// What the probe found, kept in the data directory.
const STORE_FILE: &str = "store.json";
/// Pause before the bucket is asked again.
const RETRY: Duration = Duration::from_secs(2);
/// A probe at a node's first start: fewer rounds than by hand, and every kind of check.
const PROBE_ROUNDS: usize = 2;

/// What a node of a pair starts with.
#[derive(Debug)]
pub struct Joined {
    /// Who it is.
    pub identity: Identity,
    /// The directory was made just now.
    pub is_new: bool,
    /// The bucket, with the proven form of If-Match.
    pub client: Client,
    /// Where the cluster's objects lie.
    pub keys: Keys,
}

/// What was proven about a store.
#[derive(Debug, Serialize, Deserialize)]
struct Proven {
    endpoint: String,
    bucket: String,
    if_match_form: u8,
}

/// Finds the node's cluster, or founds one.
pub fn join(settings: &Settings, path: &Path) -> Result<Joined, Failure> {
    let client = s3::client(&settings.s3, None)?;
    let keys = Keys::new(&settings.s3.subfolder).map_err(|error| {
        Failure::new(Exit::Usage, format!("s3.subfolder = {}: {error}", settings.s3.subfolder))
    })?;
    let refused = |error: DataDirError| Failure::new(error.exit(), error);
    let known = Identity::read(path).map_err(refused)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Failure::new(Exit::Internal, format!("no runtime for the bucket: {error}"))
    })?;
    let founded = runtime.block_on(async {
        prove(settings, &client, path).await?;
        if known.is_some() { Ok(None) } else { cluster(settings, &client, &keys).await }
    })?;
    let origin = settings.origin("shards.count");
    let count = settings.shards.count;
    let identity = datadir::identify(path, count, &origin, founded).map_err(refused)?;
    Ok(Joined { identity, is_new: known.is_none(), client, keys })
}

/// Pins the form of If-Match that the store was proven with, and proves it if nobody has.
async fn prove(settings: &Settings, client: &Client, path: &Path) -> Result<(), Failure> {
    let bucket = client.bucket();
    let here = (bucket.endpoint().to_string(), bucket.name().to_owned());
    if let Some(proven) = read_proven(path)
        && (proven.endpoint, proven.bucket) == here
        && let Some(form) = IfMatchForm::from_number(proven.if_match_form)
    {
        client.pin_form(form);
        return Ok(());
    }
    let subfolder = settings.s3.subfolder.clone();
    let plan = Plan { subfolder, rounds: PROBE_ROUNDS, ..Plan::default() };
    tracing::info!(event = "s3_probe", "finding out whether the bucket can hold a lease");
    loop {
        let report = match conformance::ensure(client, &plan).await {
            Ok(report) => report,
            Err(error) if error.remedy() == Remedy::Retry => {
                tracing::warn!(event = "waiting_for_s3", %error);
                tokio::time::sleep(RETRY).await;
                continue;
            }
            Err(error) => return Err(s3::failure(&error)),
        };
        tracing::info!(event = "s3_probed", verdict = report.sentence());
        if report.verdict == Verdict::Unsafe {
            let text = format!(
                "{}. The node does not start: with such a store two nodes could lead at one time",
                report.sentence()
            );
            return Err(Failure::new(Exit::StoreUnsafe, text));
        }
        let (endpoint, bucket) = here;
        let proven = Proven { endpoint, bucket, if_match_form: client.form().number() };
        return write_proven(path, &proven).map_err(|error| {
            let text = format!("{} cannot be written: {error}", path.join(STORE_FILE).display());
            Failure::new(Exit::DataDirUnusable, text)
        });
    }
}

/// What is known of the store from an earlier probe, in JSON: `endpoint`, `bucket`,
/// `if_match_form`.
#[must_use]
pub fn proven(path: &Path) -> Option<serde_json::Value> {
    serde_json::to_value(read_proven(path)?).ok()
}

fn read_proven(path: &Path) -> Option<Proven> {
    // Unreadable is as good as absent: the store is proven again.
    serde_json::from_slice(&fs::read(path.join(STORE_FILE)).ok()?).ok()
}

fn write_proven(path: &Path, proven: &Proven) -> io::Result<()> {
    let temporary = path.join("store.tmp");
    fs::write(&temporary, serde_json::to_vec_pretty(proven)?)?;
    fs::File::open(&temporary)?.sync_all()?;
    fs::rename(&temporary, path.join(STORE_FILE))
}

/// The cluster of the lease object; `None` if there is no lease.
async fn cluster(
    settings: &Settings,
    client: &Client,
    keys: &Keys,
) -> Result<Option<ClusterId>, Failure> {
    let key = keys.lease();
    let found = client.get(&key).await.map_err(|error| s3::failure(&error))?;
    let Some(object) = found else { return Ok(None) };
    let Some(cluster) = id_in_lease(&object.body, "cluster") else {
        let text = format!(
            "{key} names no cluster: some other program wrote it, or it is damaged; restore it, \
             or point s3.subfolder elsewhere"
        );
        return Err(Failure::new(Exit::DataDirMismatch, text));
    };
    if let Some(leader) = id_in_lease(&object.body, "leader") {
        let key = keys.node(duolog_engine::ids::NodeId(leader));
        let found = client.get(&key).await.map_err(|error| s3::failure(&error))?;
        let document = found.and_then(|object| NodeDocument::decode(&object.body));
        let (own, origin) = (settings.shards.count, settings.origin("shards.count"));
        if let Some(other) = document.map(|document| document.shard_count)
            && other != own
        {
            let text = format!(
                "the cluster has {other} shards, the settings say {own} (shards.count, from \
                 {origin}); set shards.count = {other}"
            );
            return Err(Failure::new(Exit::DataDirMismatch, text));
        }
    }
    Ok(Some(ClusterId(cluster)))
}

/// Forgets an identity that was made just now: another node founded the cluster first. Only for a
/// log without events.
pub fn forget(path: &Path) -> io::Result<()> {
    let mut dirs = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("shard-") {
            dirs.push(entry.path());
        }
    }
    for dir in dirs {
        fs::remove_dir_all(dir)?;
    }
    match fs::remove_file(path.join(datadir::IDENTITY_FILE)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
