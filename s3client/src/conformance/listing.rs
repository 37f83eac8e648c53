//! Listings: right after writes, over several pages, with awkward keys.

use std::collections::BTreeSet;

use crate::clock;
use crate::conformance::{Finding, Suite};
use crate::error::Error;
use crate::key::ObjectKey;
use crate::request::{ListEncoding, ListQuery};

/// Parts of keys that were signed, encoded or listed wrongly somewhere.
const AWKWARD: [&str; 14] = [
    "a b",
    "a+b",
    "a%20b",
    "c%25d",
    "e&f=g",
    "h<i>j",
    "k\"l'm",
    "n~o-p_q.r",
    "s;t:u@v",
    "w,x!y*z",
    "(p)[q]{r}",
    "back\\slash|pipe^",
    "\u{e9}\u{4e2d}\u{1f980}",
    "dollar$#?hash",
];

impl Suite<'_> {
    pub(super) async fn check_list_after_write(&mut self) {
        let began = clock::now();
        let finding = self.list_after_writes().await;
        self.note(
            "list after write",
            "a new leader would miss events that were acknowledged into the chain",
            began,
            finding,
        );
    }

    async fn list_after_writes(&self) -> Result<Finding, Error> {
        const OBJECTS: usize = 10;
        let prefix = format!("{}list/", self.scratch);
        let mut expected = Vec::new();
        for object in 0..OBJECTS {
            let key = self.key(&format!("list/{object:04}"))?;
            self.client(object).put(&key, self.body(object)).await?;
            expected.push(key.to_string());
            let seen = self.names(object + 1, ListQuery::prefix(&*prefix)).await?;
            if seen != expected {
                return Ok(Finding::fail(format!(
                    "{} of {} objects were listed right after the last was written",
                    seen.len(),
                    expected.len()
                )));
            }
        }
        for key in &expected {
            self.client(0).delete(&ObjectKey::new(&**key)?).await?;
        }
        let left = self.names(1, ListQuery::prefix(&*prefix)).await?;
        Ok(match left.len() {
            0 => Finding::pass(format!("{OBJECTS} of {OBJECTS} listed at once, none when removed")),
            left => Finding::fail(format!("{left} removed objects are still listed")),
        })
    }

    pub(super) async fn check_paging(&mut self) {
        let began = clock::now();
        let finding = self.page_through().await;
        self.note(
            "paging",
            "a node would read a part of the chain and take it for the whole",
            began,
            finding,
        );
    }

    async fn page_through(&self) -> Result<Finding, Error> {
        let prefix = format!("{}page/", self.scratch);
        let mut expected = Vec::new();
        for object in 0..self.plan.keys {
            let key = self.key(&format!("page/{object:08}"))?;
            self.client(object).put(&key, self.body(object)).await?;
            expected.push(key.to_string());
        }
        let pages = ListQuery { page_keys: Some(7), ..ListQuery::prefix(&*prefix) };
        let seen = self.names(0, pages.clone()).await?;
        let set: BTreeSet<&String> = seen.iter().collect();
        if set.len() != seen.len() || set != expected.iter().collect() {
            let (seen, all) = (seen.len(), expected.len());
            return Ok(Finding::fail(format!("{seen} objects on all pages together, not {all}")));
        }
        if seen != expected {
            return Ok(Finding::note("complete, but not in the order of the keys"));
        }
        let Some(middle) = expected.get(expected.len() / 2) else {
            return Ok(Finding::note("no keys were asked for"));
        };
        let behind = ListQuery { start_after: Some(middle.clone()), ..pages };
        let seen = self.names(0, behind).await?;
        Ok(match seen == expected[expected.len() / 2 + 1..] {
            true => Finding::pass(format!("{} keys in order, start-after works", expected.len())),
            false => Finding::note("complete and in order, but start-after is ignored"),
        })
    }

    pub(super) async fn check_keys(&mut self) {
        let began = clock::now();
        let finding = self.awkward_keys().await;
        self.note(
            "awkward keys",
            "a subfolder with such characters would not work",
            began,
            finding,
        );
    }

    async fn awkward_keys(&self) -> Result<Finding, Error> {
        let prefix = format!("{}keys/", self.scratch);
        let mut expected = BTreeSet::new();
        for (index, part) in AWKWARD.iter().enumerate() {
            let key = self.key(&format!("keys/{part}/{index}"))?;
            let body = self.body(index);
            self.client(index).put(&key, body.clone()).await?;
            let seen = self.client(index).get(&key).await?;
            if seen.is_none_or(|object| object.body != body) {
                return Ok(Finding::fail(format!("{part:?} was written but not read back")));
            }
            expected.insert(key.to_string());
        }
        for encoding in [ListEncoding::Plain, ListEncoding::Url] {
            let listed =
                self.names(0, ListQuery { encoding, ..ListQuery::prefix(&*prefix) }).await?;
            let listed: BTreeSet<String> = listed.into_iter().collect();
            if let Some(wrong) = listed.symmetric_difference(&expected).next() {
                let end = wrong.strip_prefix(&prefix).unwrap_or(wrong);
                return Ok(match encoding {
                    ListEncoding::Plain => Finding::fail(format!("listed wrongly: {end:?}")),
                    // Nothing that Duolog does depends on it.
                    ListEncoding::Url => Finding::note(format!(
                        "right, but listed wrongly with encoding-type=url: {end:?}"
                    )),
                });
            }
        }
        Ok(Finding::pass(format!("{} keys written, read and listed", expected.len())))
    }

    async fn names(&self, client: usize, query: ListQuery) -> Result<Vec<String>, Error> {
        let listed = self.client(client).list(query).await?;
        Ok(listed.into_iter().map(|object| object.key).collect())
    }
}
