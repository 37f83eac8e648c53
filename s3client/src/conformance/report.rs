//! What the suite found, for people and for the bucket.

use std::fmt;
use std::fmt::Write as _;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::error::Error;
use crate::etag::IfMatchForm;
use crate::key::{KeyError, ObjectKey};

/// Version of the document in the bucket.
const FORMAT: u32 = 1;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As it must be.
    Pass,
    /// Not as it must be.
    Fail,
    /// Worth knowing, harmless.
    Note,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pass => "pass",
            Self::Fail => "FAIL",
            Self::Note => "note",
        })
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Its name.
    pub name: String,
    /// Its end.
    pub outcome: Outcome,
    /// What was seen.
    pub found: String,
    /// What a failure would do to a lease or to the log.
    pub consequence: String,
    /// How long it took, milliseconds.
    pub took_ms: u64,
}

/// Whether the store may hold a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every check passed.
    Safe,
    /// At least one failed.
    Unsafe,
}

/// All that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this document.
    pub format: u32,
    /// Endpoints that were used, in order.
    pub endpoints: Vec<String>,
    /// The bucket.
    pub bucket: String,
    /// The region that requests were signed for.
    pub region: String,
    /// When the suite ended, milliseconds since 1970 by this machine's clock.
    pub at_ms: i64,
    /// The form of If-Match that works here.
    pub form: Option<IfMatchForm>,
    /// Safe or unsafe.
    pub verdict: Verdict,
    /// The checks, in order.
    pub checks: Vec<Check>,
}

impl Report {
    pub(super) fn new(clients: &[Client], at_ms: i64, checks: Vec<Check>) -> Self {
        let first = clients.first().map(Client::bucket);
        let failed = checks.iter().any(|check| check.outcome == Outcome::Fail);
        Self {
            format: FORMAT,
            endpoints: clients.iter().map(|one| one.bucket().endpoint().to_string()).collect(),
            bucket: first.as_ref().map_or_else(String::new, |one| one.name().to_owned()),
            region: first.as_ref().map_or_else(String::new, |one| one.region().to_owned()),
            at_ms,
            form: None,
            verdict: if failed { Verdict::Unsafe } else { Verdict::Safe },
            checks,
        }
    }

    /// Checks that failed.
    pub fn failed(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| check.outcome == Outcome::Fail)
    }

    /// `safe for leases`, or `unsafe for leases, because …` with each failed check and what it
    /// would do.
    #[must_use]
    pub fn sentence(&self) -> String {
        let mut failed = self.failed().peekable();
        if failed.peek().is_none() {
            return "safe for leases".to_owned();
        }
        let reasons: Vec<String> = failed
            .map(|check| format!("{} ({}): {}", check.name, check.found, check.consequence))
            .collect();
        format!("unsafe for leases, because of {}", reasons.join("; "))
    }

    /// The table for people; the verdict is its last line.
    #[must_use]
    pub fn table(&self) -> String {
        let width = self.checks.iter().map(|check| check.name.len()).max().unwrap_or_default();
        let mut out = String::new();
        for check in &self.checks {
            let Check { name, outcome, found, took_ms, .. } = check;
            let _ = writeln!(out, "{outcome:<4}  {name:width$}  {took_ms:>6} ms  {found}");
        }
        for check in self.failed() {
            let _ = writeln!(out, "      {}: {}", check.name, check.consequence);
        }
        let _ = writeln!(out, "verdict: {}", self.sentence());
        out
    }

    /// Whether it speaks of this bucket and can be trusted in place of a new one.
    #[must_use]
    pub fn covers(&self, client: &Client) -> bool {
        let bucket = client.bucket();
        self.format == FORMAT
            && self.verdict == Verdict::Safe
            && self.bucket == bucket.name()
            && self.endpoints == [bucket.endpoint().to_string()]
            && self.form.is_some()
    }

    /// Where a cluster keeps it: beside the lease. `subfolder` ends with a slash or is empty.
    pub fn key(subfolder: &str) -> Result<ObjectKey, KeyError> {
        ObjectKey::new(format!("{subfolder}cluster/probe/verdict.json"))
    }

    /// Puts it into the bucket.
    pub async fn keep(&self, client: &Client, subfolder: &str) -> Result<(), Error> {
        let body = serde_json::to_vec_pretty(self).unwrap_or_default();
        client.put(&Self::key(subfolder)?, Bytes::from(body)).await.map(drop)
    }

    /// Reads what an earlier run has kept; `None` if there is none or nobody can read it.
    pub async fn kept(client: &Client, subfolder: &str) -> Result<Option<Self>, Error> {
        let object = client.get(&Self::key(subfolder)?).await?;
        Ok(object.and_then(|object| serde_json::from_slice(&object.body).ok()))
    }
}
