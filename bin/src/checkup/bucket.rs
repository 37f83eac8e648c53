//! The bucket: each permission that nodes need, one by one, the store's clock, and the verdict on
//! whether it may hold a lease.

use std::time::Duration;

use bytes::Bytes;
use duolog_s3client::answer::{Kind, Written};
use duolog_s3client::conformance::{self, Plan, Verdict};
use duolog_s3client::key::ObjectKey;
use duolog_s3client::request::ListQuery;
use duolog_s3client::{Client, Error};
use serde_json::Value as Json;

use crate::doctor::{Finding, Status};
use crate::s3;
use crate::serve::cluster::objects::Keys;
use crate::settings::s3::S3;

/// How long one call may be repeated.
const CALL_MAX: Duration = Duration::from_secs(3);
/// Rounds of a fresh probe: as at a node's first start.
const PROBE_ROUNDS: usize = 2;

/// Whether the store's fitness is found out anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// What the nodes have stored suffices.
    Stored,
    /// Yes.
    Fresh,
}

/// Looks at it. `name` makes the scratch objects this visit's own, `drift_ms` is what the nodes
/// bear, `stored` what each node knows of the store.
pub async fn examine(
    settings: &S3,
    name: &str,
    drift_ms: Option<u64>,
    stored: &[(String, Json)],
    probe: Probe,
) -> Vec<Finding> {
    let mut settings = settings.clone();
    settings.retry_max_duration = Some(CALL_MAX);
    let made = s3::client(&settings, None).and_then(|client| {
        let keys = Keys::new(&settings.subfolder);
        Ok((client, keys.map_err(|error| s3::failure(&Error::from(error)))?))
    });
    let (client, keys) = match made {
        Ok(made) => made,
        Err(failure) => {
            let remedy = "correct the settings of the bucket";
            return vec![Finding::bad("settings", Status::Fail, failure.text, remedy)];
        }
    };
    let mut findings = permissions(&client, &keys, name).await;
    if let (Some(skew), Some(drift_ms)) = (client.observed().skew, drift_ms) {
        let doubt_ms = (skew.most_ms - skew.least_ms).unsigned_abs().div_ceil(2);
        let what = "the store's less this machine's";
        findings.push(super::nodes::skew("clock", what, skew.middle_ms(), doubt_ms, drift_ms));
    }
    findings.push(match probe {
        Probe::Stored => stored_verdict(&client, stored),
        Probe::Fresh => fresh_verdict(&client, &settings).await,
    });
    findings
}

async fn permissions(client: &Client, keys: &Keys, name: &str) -> Vec<Finding> {
    let scratch = |what: &str| keys.key(&format!("probe/doctor-{name}-{what}"));
    let (plain, conditional) = (scratch("put"), scratch("conditional"));
    let query = ListQuery { prefix: keys.nodes(), ..ListQuery::default() };
    let listed = client.list_page(&query).await.map(drop);
    let read = client.get(&keys.lease()).await.map(drop);
    let put = client.put(&plain, Bytes::from_static(b"doctor")).await.map(drop);
    let created = created(client, &conditional).await;
    let deleted = match client.delete(&plain).await {
        Ok(()) => client.delete(&conditional).await,
        refused => refused,
    };
    vec![
        permission("list", "s3:ListBucket on the bucket", listed),
        permission("get", "s3:GetObject on its objects", read),
        permission("put", "s3:PutObject on its objects", put),
        conditional_put(created),
        permission("delete", "s3:DeleteObject on its objects", deleted),
    ]
}

/// What came of a conditional write, and of one whose condition does not hold.
enum Conditional {
    /// The first was done and the second was not.
    Honoured,
    /// In words.
    Wrong(String),
    Failed(Error),
}

async fn created(client: &Client, key: &ObjectKey) -> Conditional {
    for (nth, wanted) in [(1, true), (2, false)] {
        let written = client.put_if_absent(key, Bytes::from_static(b"doctor")).await;
        match written {
            Ok(Written::Stored { .. }) if wanted => {}
            Ok(Written::Conflict) if !wanted => {}
            Ok(other) => return Conditional::Wrong(format!("attempt {nth} ended as {other:?}")),
            Err(error) => return Conditional::Failed(error),
        }
    }
    Conditional::Honoured
}

fn conditional_put(outcome: Conditional) -> Finding {
    let check = "conditional put";
    match outcome {
        Conditional::Honoured => Finding::ok(check, "If-None-Match is honoured"),
        Conditional::Failed(error) => {
            permission(check, "s3:PutObject on its objects, also with conditions", Err(error))
        }
        Conditional::Wrong(text) => {
            let remedy = "the store does not do conditional writes as a lease needs them: run \
                          `duolog s3 probe`, use another store or mend the proxy before it";
            Finding::bad(check, Status::Fail, text, remedy)
        }
    }
}

fn permission(check: &str, needed: &str, outcome: Result<(), Error>) -> Finding {
    let Err(error) = outcome else { return Finding::ok(check, "allowed") };
    let remedy = match error.kind() {
        Some(Kind::AccessDenied) => format!("allow the nodes' credentials {needed}"),
        Some(Kind::NotImplemented) => "the store cannot do this: use another one".to_owned(),
        _ => "see the message; `duolog s3 probe` tells more".to_owned(),
    };
    Finding::bad(check, Status::Fail, error.to_string(), remedy)
}

/// A node that has started has proven its store.
fn stored_verdict(client: &Client, stored: &[(String, Json)]) -> Finding {
    let bucket = client.bucket();
    let (endpoint, name) = (bucket.endpoint().to_string(), bucket.name());
    let same = |proven: &Json| proven["bucket"] == name && proven["endpoint"] == endpoint.as_str();
    let unproven: Vec<&str> = stored
        .iter()
        .filter(|(_, proven)| !same(proven))
        .map(|(address, _)| address.as_str())
        .collect();
    if !stored.is_empty() && unproven.is_empty() {
        let value = format!("bucket {name} at {endpoint} was proven safe by every node");
        return Finding::ok("probe", value);
    }
    let who = if unproven.is_empty() { "no node".to_owned() } else { unproven.join(", ") };
    let value = format!("no verdict on {name} at {endpoint} from {who}");
    let remedy = "run this with --probe, or `duolog s3 probe`; if the nodes reach the bucket by \
                  another name, give that endpoint";
    Finding::bad("probe", Status::Warn, value, remedy)
}

async fn fresh_verdict(client: &Client, settings: &S3) -> Finding {
    let subfolder = settings.subfolder.clone();
    let plan = Plan { subfolder, rounds: PROBE_ROUNDS, ..Plan::default() };
    match conformance::run(std::slice::from_ref(client), &plan).await {
        Ok(report) if report.verdict == Verdict::Safe => Finding::ok("probe", report.sentence()),
        Ok(report) => {
            let remedy = "use another store: with this one two nodes could lead at one time";
            Finding::bad("probe", Status::Fail, report.sentence(), remedy)
        }
        Err(error) => {
            let remedy = "mend what the lines above say first";
            Finding::bad("probe", Status::Fail, error.to_string(), remedy)
        }
    }
}
