//! Fetches what a failover is explained from: asks nodes, reads directories, looks at the lease.

use std::path::{Path, PathBuf};
use std::time::Duration;

use duolog_lease::document::Document;
use duolog_lease::ids::ClusterId;
use serde_json::Value as Json;

use super::evidence::{Evidence, Lease, Missing, NodeLog};
use crate::client::question::ask;
use crate::datadir::Identity;
use crate::journal;
use crate::s3;
use crate::serve::cluster::objects::{Keys, id_in_lease};
use crate::settings::s3::S3;

/// Entries asked for: more than the two files hold in an answer of 256 KiB.
const LAST: usize = 100_000;
/// How long the bucket may take.
const BUCKET_MAX: Duration = Duration::from_secs(5);

/// Asks all of them.
pub async fn gather(
    addresses: &[String],
    dirs: &[PathBuf],
    bucket: Option<&S3>,
    deadline: Duration,
) -> Evidence {
    let mut evidence = Evidence::default();
    let mut asked = tokio::task::JoinSet::new();
    for (index, address) in addresses.iter().cloned().enumerate() {
        asked.spawn(async move { (index, of_node(&address, deadline).await, address) });
    }
    let mut answers = asked.join_all().await;
    answers.sort_by_key(|(index, ..)| *index);
    for (_, answer, what) in answers {
        match answer {
            Ok(log) => put(&mut evidence, log),
            Err(reason) => evidence.missing.push(Missing { what, reason }),
        }
    }
    for dir in dirs {
        match of_dir(dir) {
            Ok(log) => put(&mut evidence, log),
            Err(reason) => {
                evidence.missing.push(Missing { what: dir.display().to_string(), reason });
            }
        }
    }
    if let Some(settings) = bucket {
        evidence.lease = Some(lease(settings).await);
    }
    complain_of_unknown(&mut evidence);
    evidence
}

/// Adds a log; one that is there already, given twice, only once: the longer one.
fn put(evidence: &mut Evidence, log: NodeLog) {
    let full = evidence.logs.len() >= 2;
    match evidence.logs.iter_mut().find(|known| known.node == log.node) {
        Some(known) if known.entries.len() < log.entries.len() && !known.answers => *known = log,
        Some(_) => {}
        None if !full => evidence.logs.push(log),
        None => {
            let reason = "the logs of two nodes are here already; one failover has two".to_owned();
            evidence.missing.push(Missing { what: log.name, reason });
        }
    }
}

/// Nodes that the logs speak of and that have no log here.
fn complain_of_unknown(evidence: &mut Evidence) {
    let known: Vec<String> = evidence.logs.iter().map(|log| log.node.clone()).collect();
    let mut named: Vec<String> = Vec::new();
    for entry in evidence.logs.iter().flat_map(|log| &log.entries) {
        let peer = entry.facts.get("peer").and_then(Json::as_str);
        if let Some(peer) = peer
            && !known.iter().chain(&named).any(|known| known == peer)
        {
            named.push(peer.to_owned());
        }
    }
    for node in named {
        let reason = "its event log is not here: name its address, or give --data-dir DIR with a \
                      copy of its data directory (events.ndjson and events.1.ndjson suffice)";
        let what = format!("node {node}");
        evidence.missing.push(Missing { what, reason: reason.to_owned() });
    }
}

async fn of_node(address: &str, deadline: Duration) -> Result<NodeLog, String> {
    let request = serde_json::json!({ "command": "events", "last": LAST }).to_string();
    let answer = ask(address, &request, deadline).await?;
    if let Some(error) = answer["error"].as_str() {
        return Err(format!("its event log cannot be read: {error}"));
    }
    let entries = serde_json::from_value(answer["entries"].clone());
    Ok(NodeLog {
        node: answer["node"].as_str().unwrap_or_default().to_owned(),
        name: address.to_owned(),
        answers: true,
        entries: entries.map_err(|error| format!("its events are not understood: {error}"))?,
        left_out: answer["left_out"] == true,
    })
}

fn of_dir(dir: &Path) -> Result<NodeLog, String> {
    let identity = Identity::read(dir).map_err(|error| error.to_string())?;
    let page = journal::read(dir, usize::MAX, usize::MAX).map_err(|error| error.to_string())?;
    if page.entries.is_empty() {
        return Err("there is no event log in it".to_owned());
    }
    Ok(NodeLog {
        node: identity.map(|identity| identity.node().to_string()).unwrap_or_default(),
        name: dir.display().to_string(),
        answers: false,
        entries: page.entries,
        left_out: page.left_out,
    })
}

async fn lease(settings: &S3) -> Result<Lease, String> {
    let mut settings = settings.clone();
    settings.retry_max_duration = Some(BUCKET_MAX);
    let client = s3::client(&settings, None).map_err(|failure| failure.text)?;
    let keys = Keys::new(&settings.subfolder).map_err(|error| error.to_string())?;
    let object = client.get(&keys.lease()).await.map_err(|error| error.to_string())?;
    let object = object.ok_or("there is no lease object in the bucket")?;
    let cluster = ClusterId(id_in_lease(&object.body, "cluster").unwrap_or(0));
    let document = Document::decode(&object.body, cluster).map_err(|error| error.to_string())?;
    Ok(Lease {
        leader: document.leader.to_string(),
        epoch: document.epoch.get(),
        acquired_ms: document.acquired.get(),
        expires_ms: document.expires.get(),
    })
}
