//! The conformance suite: can this store hold a lease and a chain?
//!
//! It runs against the real bucket, on scratch keys that it removes. The verdict counts what
//! happened, not what a store's documents promise: races between many writers, conditions in both
//! directions, a body that is slow on purpose, listings right after writes.

mod listing;
mod races;
mod report;
mod single;
mod slow_body;

use std::time::Duration;

use bytes::Bytes;

pub use report::{Check, Outcome, Report, Verdict};

use crate::answer::Written;
use crate::client::{Client, Object};
use crate::clock;
use crate::error::Error;
use crate::etag::{ETag, IfMatchForm};
use crate::key::{KeyError, ObjectKey};
use crate::request::{Condition, ListQuery};

/// How much is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Scratch keys lie below it; ends with a slash or is empty.
    pub subfolder: String,
    /// Writers in a race.
    pub writers: usize,
    /// Races of each kind.
    pub rounds: usize,
    /// Keys for paging.
    pub keys: usize,
    /// How long an interleaved body is held back.
    pub slow: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        let (subfolder, slow) = (String::new(), Duration::from_millis(400));
        Self { subfolder, writers: 32, rounds: 4, keys: 25, slow }
    }
}

/// What a check saw.
struct Finding {
    outcome: Outcome,
    found: String,
}

impl Finding {
    fn pass(found: impl Into<String>) -> Self {
        Self { outcome: Outcome::Pass, found: found.into() }
    }

    fn fail(found: impl Into<String>) -> Self {
        Self { outcome: Outcome::Fail, found: found.into() }
    }

    fn note(found: impl Into<String>) -> Self {
        Self { outcome: Outcome::Note, found: found.into() }
    }
}

/// A run of the suite.
struct Suite<'a> {
    clients: &'a [Client],
    plan: &'a Plan,
    /// Below the plan's subfolder, different for each run.
    scratch: String,
    checks: Vec<Check>,
    form: Option<IfMatchForm>,
}

/// Runs the suite through all `clients`, which reach the same bucket, perhaps through different
/// endpoints. An error means that the bucket cannot be used at all. The form of If-Match that
/// works is pinned in the clients.
pub async fn run(clients: &[Client], plan: &Plan) -> Result<Report, Error> {
    let scratch = format!("{}cluster/probe/{:016x}/", plan.subfolder, clock::chance());
    let mut suite = Suite { clients, plan, scratch, checks: Vec::new(), form: None };
    for client in clients {
        // First a call whose refusal has a document with the reason; HEAD has none.
        let one = ListQuery { page_keys: Some(1), ..ListQuery::prefix(&*suite.scratch) };
        client.list_page(&one).await?;
        client.head_bucket().await?;
    }
    suite.prove_access().await?;
    suite.run_all().await;
    suite.clean_up().await;
    let report = Report::new(clients, clock::wall_ms(), suite.checks);
    Ok(Report { form: suite.form, ..report })
}

/// What a node does when it starts: takes the report that an earlier start has kept beside the
/// lease, or runs the suite and keeps its report if the store is safe. Pins the form of If-Match
/// either way. An unsafe store is tried again at every start, for it may have been mended.
pub async fn ensure(client: &Client, plan: &Plan) -> Result<Report, Error> {
    let kept = Report::kept(client, &plan.subfolder).await?;
    if let Some(report) = kept.filter(|report| report.covers(client)) {
        report.form.into_iter().for_each(|form| client.pin_form(form));
        return Ok(report);
    }
    let report = run(std::slice::from_ref(client), plan).await?;
    if report.verdict == Verdict::Safe {
        report.keep(client, &plan.subfolder).await?;
    }
    Ok(report)
}

impl Suite<'_> {
    fn client(&self, index: usize) -> &Client {
        &self.clients[index % self.clients.len()]
    }

    fn key(&self, name: &str) -> Result<ObjectKey, KeyError> {
        ObjectKey::new(format!("{}{name}", self.scratch))
    }

    /// Bytes that no other write of this run has.
    fn body(&self, writer: usize) -> Bytes {
        Bytes::from(format!("{} {writer} {:016x}", self.scratch, clock::chance()))
    }

    /// Write, read, list and remove, so that a missing permission is an error that names it and
    /// not a failed check.
    async fn prove_access(&self) -> Result<(), Error> {
        let key = self.key("access")?;
        for client in self.clients {
            client.put(&key, self.body(0)).await?;
            client.get(&key).await?;
            client.list(ListQuery::prefix(&*self.scratch)).await?;
            client.delete(&key).await?;
        }
        Ok(())
    }

    async fn run_all(&mut self) {
        self.check_create().await;
        self.check_form().await;
        if self.form.is_some() {
            self.check_stale().await;
            self.check_missing().await;
        }
        self.check_delete().await;
        self.check_create_race().await;
        if self.form.is_some() {
            self.check_swap_race().await;
        }
        self.check_slow_create().await;
        if self.form.is_some() {
            self.check_slow_swap().await;
        }
        self.check_read_after_write().await;
        self.check_list_after_write().await;
        self.check_paging().await;
        self.check_keys().await;
        self.note_versioning().await;
        self.note_clock();
    }

    /// Adds a check's end to the report.
    fn note(
        &mut self,
        name: &str,
        consequence: &str,
        began: std::time::Instant,
        finding: Result<Finding, Error>,
    ) {
        let finding = finding.unwrap_or_else(|error| Finding::fail(error.to_string()));
        self.checks.push(Check {
            name: name.to_owned(),
            outcome: finding.outcome,
            found: finding.found,
            consequence: consequence.to_owned(),
            took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
    }

    /// A conditional write; an answer that says "try again" is tried again a few times.
    async fn write(
        &self,
        client: &Client,
        key: &ObjectKey,
        body: &Bytes,
        condition: &Condition,
    ) -> Result<Written, Error> {
        const ATTEMPTS: u64 = 5;
        let mut attempt = 1;
        loop {
            match client.put_if(key, body.clone(), condition).await {
                Err(error) if error.is_passing() && attempt < ATTEMPTS => {
                    clock::pause(Duration::from_millis(50 * attempt)).await;
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// A new object by create-only PUT, where that is known to work.
    async fn seed(&self, key: &ObjectKey) -> Result<(Bytes, ETag), Error> {
        let body = self.body(usize::MAX);
        let etag = self.client(0).put(key, body.clone()).await?;
        Ok((body, etag))
    }

    async fn content(&self, key: &ObjectKey) -> Result<Option<Object>, Error> {
        self.client(0).get(key).await
    }

    /// Removes the scratch keys; what is left is harmless and lies in a place of its own.
    async fn clean_up(&self) {
        let Ok(listed) = self.client(0).list(ListQuery::prefix(&*self.scratch)).await else {
            return;
        };
        for object in listed {
            if let Ok(key) = ObjectKey::new(object.key) {
                let _ = self.client(0).delete(&key).await;
            }
        }
    }
}

/// Said the same way everywhere.
fn describe(written: &Written) -> String {
    match written {
        Written::Stored { .. } => "stored".to_owned(),
        Written::Conflict => "refused".to_owned(),
        Written::Unknown(doubt) => format!("unknown ({doubt})"),
    }
}

fn describe_end(written: &Result<Written, Error>) -> String {
    match written {
        Ok(written) => describe(written),
        Err(error) => error.to_string(),
    }
}
