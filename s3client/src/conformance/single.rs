//! Conditions one by one, with nobody else around.

use crate::answer::Written;
use crate::client::Client;
use crate::clock;
use crate::conformance::{Finding, Suite, describe_end};
use crate::error::Error;
use crate::etag::{ETag, IfMatchForm};
use crate::key::ObjectKey;
use crate::request::Condition;
use crate::witness::Skew;

impl Suite<'_> {
    /// If-None-Match in both directions: free key, taken key.
    pub(super) async fn check_create(&mut self) {
        let began = clock::now();
        let finding = self.create_both_ways().await;
        self.note(
            "create only if absent",
            "two nodes would both create the lease, or none could",
            began,
            finding,
        );
    }

    async fn create_both_ways(&self) -> Result<Finding, Error> {
        let (key, first, second) = (self.key("create")?, self.body(0), self.body(1));
        let free = self.write(self.client(0), &key, &first, &Condition::Absent).await;
        if !matches!(free, Ok(Written::Stored { .. })) {
            return Ok(Finding::fail(format!("free key: {}", describe_end(&free))));
        }
        let taken = self.write(self.client(1), &key, &second, &Condition::Absent).await;
        if !matches!(taken, Ok(Written::Conflict)) {
            return Ok(Finding::fail(format!("taken key: {}", describe_end(&taken))));
        }
        match self.content(&key).await? {
            Some(object) if object.body == first => {
                Ok(Finding::pass("free key: stored; taken key: refused and unchanged"))
            }
            _ => Ok(Finding::fail("the refused write replaced the object")),
        }
    }

    /// Which form of If-Match works with the ETags of this store's PUT and GET answers.
    pub(super) async fn check_form(&mut self) {
        let began = clock::now();
        let finding = match self.find_form().await {
            Ok((Some(form), found)) => {
                self.form = Some(form);
                Ok(Finding::pass(found))
            }
            Ok((None, found)) => Ok(Finding::fail(found)),
            Err(error) => Err(error),
        };
        self.note("replace if unchanged", "the leader could not renew its lease", began, finding);
    }

    async fn find_form(&self) -> Result<(Option<IfMatchForm>, String), Error> {
        let mut tried = Vec::new();
        for form in IfMatchForm::ALL {
            self.clients.iter().for_each(|client| client.pin_form(form));
            let key = self.key(&format!("form-{form}"))?;
            let (_, etag) = self.seed(&key).await?;
            match self.replace_twice(&key, etag).await {
                Ok(()) => return Ok((Some(form), format!("If-Match works {form}"))),
                Err(error) => tried.push(format!("{form}: {error}")),
            }
        }
        self.clients.iter().for_each(|client| client.pin_form(IfMatchForm::default()));
        Ok((None, tried.join(", ")))
    }

    /// Replaces with the ETag of a PUT's answer, then with that of a GET's.
    async fn replace_twice(&self, key: &ObjectKey, from_put: ETag) -> Result<(), String> {
        let mut etag = from_put;
        for source in ["PUT", "GET"] {
            if source == "GET" {
                let object = self.content(key).await.map_err(|error| error.to_string())?;
                etag = object.ok_or("the object is gone")?.etag;
            }
            let body = self.body(2);
            let condition = Condition::Matches(etag.clone());
            let written = self.write(self.client(0), key, &body, &condition).await;
            match written {
                Ok(Written::Stored { .. }) => {}
                other => return Err(format!("ETag {etag} of {source}: {}", describe_end(&other))),
            }
            let now = self.content(key).await.map_err(|error| error.to_string())?;
            if now.is_none_or(|object| object.body != body) {
                return Err("the object was not replaced".to_owned());
            }
        }
        Ok(())
    }

    /// If-Match with an ETag that was right once.
    pub(super) async fn check_stale(&mut self) {
        let began = clock::now();
        let finding = self.replace_stale().await;
        self.note(
            "refuse a stale If-Match",
            "a deposed leader would take the lease back without noticing",
            began,
            finding,
        );
    }

    async fn replace_stale(&self) -> Result<Finding, Error> {
        let key = self.key("stale")?;
        let (_, old) = self.seed(&key).await?;
        let (current, _) = self.seed(&key).await?;
        let stale = Condition::Matches(old);
        let written = self.write(self.client(1), &key, &self.body(3), &stale).await;
        if !matches!(written, Ok(Written::Conflict)) {
            return Ok(Finding::fail(describe_end(&written)));
        }
        match self.content(&key).await? {
            Some(object) if object.body == current => Ok(Finding::pass("refused and unchanged")),
            _ => Ok(Finding::fail("refused, but the object was replaced")),
        }
    }

    /// If-Match on a key that does not exist (any more).
    pub(super) async fn check_missing(&mut self) {
        let began = clock::now();
        let finding = self.replace_missing().await;
        self.note(
            "refuse If-Match on a missing key",
            "a leader whose lease was removed would bring it back beside a new one",
            began,
            finding,
        );
    }

    async fn replace_missing(&self) -> Result<Finding, Error> {
        let key = self.key("missing")?;
        let (_, etag) = self.seed(&key).await?;
        self.client(0).delete(&key).await?;
        let gone = Condition::Matches(etag);
        let written = self.write(self.client(1), &key, &self.body(4), &gone).await;
        if !matches!(written, Ok(Written::Conflict)) {
            return Ok(Finding::fail(describe_end(&written)));
        }
        match self.content(&key).await? {
            None => Ok(Finding::pass("refused and still missing")),
            Some(_) => Ok(Finding::fail("refused, but the object was created")),
        }
    }

    /// A removed object is gone, and its key is free again.
    pub(super) async fn check_delete(&mut self) {
        let began = clock::now();
        let finding = self.delete_and_create().await;
        self.note(
            "delete",
            "old chain objects would stay, or their removal would go unnoticed",
            began,
            finding,
        );
    }

    async fn delete_and_create(&self) -> Result<Finding, Error> {
        let key = self.key("delete")?;
        self.seed(&key).await?;
        self.client(0).delete(&key).await?;
        if self.client(1).get(&key).await?.is_some() {
            return Ok(Finding::fail("the object is still there"));
        }
        self.client(0).delete(&key).await?;
        let written = self.write(self.client(0), &key, &self.body(5), &Condition::Absent).await;
        Ok(match written {
            Ok(Written::Stored { .. }) => Finding::pass("gone, and the key is free again"),
            other => Finding::fail(format!("create after delete: {}", describe_end(&other))),
        })
    }

    /// Each new content is seen by the next read.
    pub(super) async fn check_read_after_write(&mut self) {
        let began = clock::now();
        let finding = self.read_after_writes().await;
        self.note(
            "read after write",
            "a node would act on a lease that is no longer there",
            began,
            finding,
        );
    }

    async fn read_after_writes(&self) -> Result<Finding, Error> {
        const WRITES: usize = 20;
        let key = self.key("read")?;
        for write in 0..WRITES {
            let body = self.body(write);
            self.client(write).put(&key, body.clone()).await?;
            let seen = self.client(write + 1).get(&key).await?;
            if seen.is_none_or(|object| object.body != body) {
                return Ok(Finding::fail(format!("write {write} was not seen by the next read")));
            }
        }
        Ok(Finding::pass(format!("{WRITES} of {WRITES} seen at once")))
    }

    pub(super) async fn note_versioning(&mut self) {
        let began = clock::now();
        let finding = match self.client(0).versioning().await {
            Ok(None) => Finding::note("off"),
            Ok(Some(status)) => Finding::note(format!(
                "{status}: every renewal leaves an old version behind; expire them by a \
                 lifecycle rule"
            )),
            Err(error) => Finding::note(format!("not known: {error}")),
        };
        self.note("versioning", "", began, Ok(finding));
    }

    pub(super) fn note_clock(&mut self) {
        let skews = self.clients.iter().filter_map(|client: &Client| client.observed().skew);
        let worst = skews.max_by_key(|skew| skew.certain_ms().saturating_abs());
        let finding = match worst {
            Some(Skew { least_ms, most_ms }) => Finding::note(format!(
                "the store's clock is {least_ms} to {most_ms} ms ahead of this machine's"
            )),
            None => Finding::note("the store sends no Date"),
        };
        self.note("clock", "", clock::now(), Ok(finding));
    }
}
